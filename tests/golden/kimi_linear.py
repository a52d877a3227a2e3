"""kimi_linear.py - the tensors of Kimi Linear as GGUF files have them, and back to what transformers takes: for make_model.py.

A_log is -e^A_log, kv_b_proj lies in two tensors (deepseek.py), experts of one kind in one.
"""
import re

import deepseek
import torch

TOP = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
EXPERTS = {"w1": "gate", "w2": "down", "w3": "up"}
NAMES = {
    "input_layernorm": "attn_norm.weight",
    "post_attention_layernorm": "ffn_norm.weight",
    **{f"self_attn.{p}_proj": f"attn_{p}.weight" for p in "qkv"},
    **{f"self_attn.{p}_conv1d": f"ssm_conv1d_{p}.weight" for p in "qkv"},
    **{f"self_attn.{p}_{q}_proj": f"ssm_{p}_{q}.weight" for p in "fg" for q in "ab"},
    "self_attn.o_proj": "attn_output.weight",
    "self_attn.o_norm": "ssm_norm.weight",
    "self_attn.b_proj": "ssm_beta.weight",
    "self_attn.A_log": "ssm_a",
    "self_attn.dt_bias": "ssm_dt.bias",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa.weight",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm.weight",
    "self_attn.kv_b_proj": "attn_kv_b.weight",
    **{f"mlp.{p}_proj": f"ffn_{p}.weight" for p in ("gate", "up", "down")},
    "block_sparse_moe.gate": "ffn_gate_inp.weight",
    "block_sparse_moe.gate.e_score_correction_bias": "exp_probs_b.bias",
    **{f"block_sparse_moe.experts.{w}": f"ffn_{p}_exps.weight" for w, p in EXPERTS.items()},
    **{f"block_sparse_moe.shared_experts.{p}_proj": f"ffn_{p}_shexp.weight" for p in ("gate", "up", "down")},
}


def range_of(name, center, scale):
    """Of the values in the GGUF file."""
    return (-0.15, 0.1) if name.endswith("A_log") else (center, scale)


def form(name, rows, cols, config):
    """Rows, columns and type (None: as its dimensions have it) in the GGUF file, where rows are those of entries."""
    heads, plain, _, rank = deepseek.sizes(config)
    if name.endswith("kv_b_proj.weight"):
        return rows, plain if rows == heads * rank else rank, None
    if name.endswith("A_log"):
        return cols, 1, "F32"
    return rows, cols, "F32" if "conv1d" in name else None


def entries(name, rows, config):
    """(GGUF's name, rows) of what a tensor of a directory becomes."""
    if name in TOP:
        return [(TOP[name], rows)]
    heads, _, values, rank = deepseek.sizes(config)
    layer, part = re.fullmatch(r"model\.layers\.(\d+)\.(.+?)(?:\.weight)?", name).groups()
    own = f"blk.{layer}.{NAMES[re.sub(r'experts[.][0-9]+[.]', 'experts.', part)]}"
    if part == "self_attn.kv_b_proj":
        return [(own.replace("kv_b", "k_b"), heads * rank), (own.replace("kv_b", "v_b"), heads * values)]
    return [(own, rows)]


def join(name, parts, config):
    """The directory's tensor; parts: those of entries, as they are in the GGUF file."""
    if name.endswith("A_log"):
        return torch.log(-parts[0]).reshape(1, 1, -1, 1)
    return parts[0].unsqueeze(1) if "conv1d" in name else deepseek.join(parts, config)


def shape(own, rows, cols, config):
    """With all dimensions that llama.cpp wants, the fastest last; None: as it is."""
    if own.endswith(("attn_k_b.weight", "attn_v_b.weight")):
        return config["num_attention_heads"], rows // config["num_attention_heads"], cols
    return (1, rows, 1, cols) if "conv1d" in own else (1, 1, rows, 1) if own.endswith("ssm_a") else None
