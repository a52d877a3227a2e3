"""granite_hybrid.py - the tensors of Granite 4 without experts as GGUF files have them, and back to what transformers takes: for make_model.py.

A_log is -e^A_log, the MLP's gate and up are apart, and rows of q and k stand as a rotation in pairs wants them, though nothing is rotated.
"""
import re

import torch

NAMES = {
    **{f"self_attn.{p}_proj": f"attn_{p}.weight" for p in "qkv"},
    "self_attn.o_proj": "attn_output.weight",
    "input_layernorm": "attn_norm.weight",
    "post_attention_layernorm": "ffn_norm.weight",
    "shared_mlp.output_linear": "ffn_down.weight",
    "mamba.in_proj": "ssm_in.weight",
    "mamba.conv1d": "ssm_conv1d.weight",
    "mamba.conv1d.bias": "ssm_conv1d.bias",
    "mamba.A_log": "ssm_a",
    "mamba.D": "ssm_d",
    "mamba.dt_bias": "ssm_dt.bias",
    "mamba.norm": "ssm_norm.weight",
    "mamba.out_proj": "ssm_out.weight",
}


def range_of(name, center, scale):
    """Of the values in the GGUF file."""
    return (-0.15, 0.1) if name.endswith("A_log") else (center, scale)


def form(name, rows, cols, config):
    """Rows, columns and type (None: as its dimensions have it) in the GGUF file: a norm is a row a group, numbers of heads are a column."""
    if name.endswith("mamba.norm.weight"):
        return config["mamba_n_groups"], cols // config["mamba_n_groups"], "F32"
    if name.endswith(("A_log", "mamba.D")):
        return cols, 1, "F32"
    return rows, cols, "F32" if name.endswith("conv1d.weight") else None


def entries(name, rows, config):
    """(GGUF's name or None, rows) of what a tensor of a directory becomes."""
    match = re.fullmatch(r"model\.layers\.(\d+)\.(.+?)(\.weight)?", name)
    if not match:
        return [(None, rows)]
    if match[2] == "shared_mlp.input_linear":
        return [(f"blk.{match[1]}.ffn_{p}.weight", rows // 2) for p in ("gate", "up")]
    return [(f"blk.{match[1]}.{NAMES[match[2]]}", rows)]


def unpermute(value, heads):
    """Rows of heads from pairs to halves."""
    return value.reshape(heads, -1, 2, value.shape[1]).swapaxes(1, 2).reshape(value.shape)


def join(name, parts, config):
    """The directory's tensor; parts: those of entries, as they are in the GGUF file."""
    if len(parts) > 1:
        return torch.cat(parts)
    value = parts[0]
    if name.endswith("A_log"):
        return torch.log(-value).flatten()
    if name.endswith(("mamba.norm.weight", "mamba.D")):
        return value.flatten()
    if name.endswith("conv1d.weight"):
        return value.unsqueeze(1)
    if name.endswith(("q_proj.weight", "k_proj.weight")):
        return unpermute(value, config["num_attention_heads" if ".q_" in name else "num_key_value_heads"])
    return value
