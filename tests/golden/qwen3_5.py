"""qwen3_5.py - the tensors of Qwen3.5 and Qwen3-Next as GGUF files have them, and back to what transformers takes: for make_model.py.

Norms count from 0, A_log is -e^A_log. Of Qwen3.5 heads of v are tiled: head h goes with head h % (number of k's) of k. Of
Qwen3-Next they are not, and q, k, v and z, which a directory has by heads of k in one tensor, are taken apart; b and a are not.
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
    "linear_attn.in_proj_ba": "ssm_ba",
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


def form(name, rows, cols, config):
    """Rows, columns and type (None: as its dimensions have it) in the GGUF file."""
    return rows, cols, "F32" if name.endswith("conv1d.weight") else None


def entries(name, rows, config):
    """(GGUF's name or None, rows) of what a tensor of a directory becomes."""
    if not name.endswith("in_proj_qkvz.weight"):
        return [(gguf_name(name), rows)]
    width = config["linear_num_value_heads"] * config["linear_value_head_dim"]
    return [(gguf_name(name.replace("qkvz", "qkv")), rows - width), (gguf_name(name.replace("qkvz", "z")), width)]


def join(name, parts, config):
    """The directory's tensor; parts: those of entries, as they are in the GGUF file."""
    if len(parts) == 1:
        return from_gguf(name, parts[0], config)
    num, keys, cols = config["linear_num_key_heads"], config["linear_key_head_dim"], parts[0].shape[1]
    qkv = parts[0].split([num * keys, num * keys, parts[1].shape[0]])
    return torch.cat([p.reshape(num, -1, cols) for p in (*qkv, parts[1])], 1).reshape(-1, cols)


def untile(value, dim, config, size):
    if config["model_type"] == "qwen3_next":
        return value
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
