"""dbrx.py - the tensors of DBRX as GGUF files have them, and back to what transformers takes: for make_model.py.

All experts of a layer lie in one matrix, rows behind rows; those that come last are turned.
"""
import re

import torch

TOP = {"wte": "token_embd", "norm_f": "output_norm", "lm_head": "output"}
NAMES = {
    "norm_attn_norm.norm_1": "attn_norm",
    "norm_attn_norm.norm_2": "attn_output_norm",
    "norm_attn_norm.attn.Wqkv": "attn_qkv",
    "norm_attn_norm.attn.out_proj": "attn_output",
    "ffn.router.layer": "ffn_gate_inp",
    "ffn.experts.mlp.w1": "ffn_gate_exps",
    "ffn.experts.mlp.v1": "ffn_up_exps",
    "ffn.experts.mlp.w2": "ffn_down_exps",
}


def range_of(name, center, scale):
    return center, scale


def is_expert(name):
    return ".experts." in name


def entries(name, rows, config):
    """(GGUF's name, rows) of what stands for a tensor: of experts each."""
    layer, part = re.fullmatch(r"(?:transformer\.)?(?:blocks\.(\d+)\.)?(.+?)(?:\.weight)?", name).groups()
    num = config["ffn_config"]["moe_num_experts"] if is_expert(name) else 1
    return num * [(f"blk.{layer}.{NAMES[part]}.weight" if layer else f"{TOP[part]}.weight", rows // num)]


def form(name, rows, cols, config):
    """Rows, columns and type in the file."""
    return (cols, rows, None) if name.endswith(".w2") else (rows, cols, None)


def join(name, parts, config):
    """Back to what a checkpoint has."""
    return torch.cat([p.T for p in parts]).contiguous() if name.endswith(".w2") else torch.cat(parts)
