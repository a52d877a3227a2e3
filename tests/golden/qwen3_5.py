"""qwen3_5.py - Qwen3.5's tensors as GGUF files have them, and back to what transformers takes: for make_model.py.

Norms count from 0, A_log is -e^A_log, and heads of v are tiled: head h goes with head h % (number of k's) of k.
"""
import re

import torch

NAMES = {
    **{f"self_attn.{p}_proj": f"attn_{p}" for p in "qkv"},
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_a": "ssm_alpha",
}


def gguf_name(name):
    """None: as other families have it."""
    match = re.fullmatch(r"model\.layers\.(\d+)\.(.+?)(\.weight)?", name)
    if not match:
        return None
    own = {"linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias"}.get(match[2])
    own = own or (NAMES[match[2]] + ".weight" if match[2] in NAMES else None)
    return own and f"blk.{match[1]}.{own}"


def counts_from_one(name):
    return name.endswith("norm.weight") and "linear_attn" not in name


def range_of(name, center, scale):
    """Of the values in the GGUF file."""
    return (-0.15, 0.1) if name.endswith("A_log") else (center + counts_from_one(name), scale)


def untile(value, dim, config, size):
    num_k, num_v = config["linear_num_key_heads"], config["linear_num_value_heads"]
    shape = list(value.shape)
    split = value.reshape(shape[:dim] + [num_v // num_k, num_k, size] + shape[dim + 1 :])
    return split.transpose(dim, dim + 1).reshape(shape)


def from_gguf(name, value, config):
    """value: as it is in the GGUF file."""
    size, num_keys = config["linear_value_head_dim"], 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"]
    part = name.removesuffix(".weight").split(".")[-1]
    if part in ("conv1d", "in_proj_qkv"):
        value = torch.cat([value[:num_keys], untile(value[num_keys:], 0, config, size)])
        return value.unsqueeze(1) if part == "conv1d" else value
    if part in ("A_log", "dt_bias", "in_proj_a", "in_proj_b"):
        value = untile(value, 0, config, 1)
        return torch.log(-value) if part == "A_log" else value
    if part in ("in_proj_z", "out_proj"):
        return untile(value, int(part == "out_proj"), config, size)
    return value - int(counts_from_one(name))
