"""jamba.py - the tensors of Jamba and Mamba-1 as GGUF files have them, and back to what transformers takes: for make_model.py. A_log is -e^A_log there, and
all experts of a layer are in one tensor."""
import re

import torch

TOP = {"backbone.embeddings.weight": "token_embd.weight", "backbone.norm_f.weight": "output_norm.weight", "model.embed_tokens.weight": "token_embd.weight", "model.final_layernorm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
NAMES = {
    **{f"self_attn.{p}_proj.weight": f"attn_{p}.weight" for p in "qkv"},
    "self_attn.o_proj.weight": "attn_output.weight",
    "input_layernorm.weight": "attn_norm.weight",
    "norm.weight": "attn_norm.weight",
    "pre_ff_layernorm.weight": "ffn_norm.weight",
    **{f"feed_forward.{p}_proj.weight": f"ffn_{p}.weight" for p in ("gate", "up", "down")},
    **{f"feed_forward.experts.{p}_proj.weight": f"ffn_{p}_exps.weight" for p in ("gate", "up", "down")},
    "feed_forward.router.weight": "ffn_gate_inp.weight",
    "mamba.in_proj.weight": "ssm_in.weight",
    "mamba.conv1d.weight": "ssm_conv1d.weight",
    "mamba.conv1d.bias": "ssm_conv1d.bias",
    "mamba.x_proj.weight": "ssm_x.weight",
    "mamba.dt_proj.weight": "ssm_dt.weight",
    "mamba.dt_proj.bias": "ssm_dt.bias",
    **{f"mamba.{p}_layernorm.weight": f"ssm_{p}_norm.weight" for p in ("dt", "b", "c")},
    "mamba.A_log": "ssm_a",
    "mamba.D": "ssm_d",
    "mamba.out_proj.weight": "ssm_out.weight",
}


def range_of(name, center, scale):
    """Of the values in the GGUF file."""
    return (-1.5, 1.0) if name.endswith("A_log") else (center, scale)


def form(name, rows, cols, config):
    """Rows, columns and type (None: as its dimensions have it) in the GGUF file."""
    return rows, cols, "F32" if name.endswith(("A_log", "conv1d.weight")) else None


def entries(name, rows, config):
    """(GGUF's name, rows) of what a tensor of a directory becomes."""
    if name in TOP:
        return [(TOP[name], rows)]
    layer, part = re.fullmatch(r"\w+\.layers\.(\d+)\.(.+)", name).groups()
    part = re.sub("experts.[0-9]+", "experts", part).replace("mixer.", "mamba.")
    return [(f"blk.{layer}.{NAMES[part]}", rows)]


def join(name, parts, config):
    """The directory's tensor; parts: those of entries, as they are in the GGUF file."""
    value = parts[0]
    return torch.log(-value) if name.endswith("A_log") else value.unsqueeze(1) if name.endswith("conv1d.weight") else value
