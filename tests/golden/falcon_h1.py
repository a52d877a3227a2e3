"""falcon_h1.py - the tensors of Falcon-H1 as GGUF files have them, and back to what transformers takes: for make_model.py.

As Granite 4's (granite_hybrid.py), but that each layer has both attention, whose rows stay as they are, and a state. What a directory multiplies
beside, the converter puts into weights.
"""
import re

import granite_hybrid

TOP = {"model.embed_tokens.weight": "token_embd.weight", "model.final_layernorm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
NAMES = {
    **granite_hybrid.NAMES,
    "pre_ff_layernorm": "ffn_norm",
    **{f"feed_forward.{p}_proj": f"ffn_{p}.weight" for p in ("gate", "up", "down")},
}

form = granite_hybrid.form
range_of = granite_hybrid.range_of


def entries(name, rows, config):
    """As Granite's."""
    if name in TOP:
        return [(TOP[name], rows)]
    layer, part = re.fullmatch(r"model\.layers\.(\d+)\.(.+?)(?:\.weight)?", name).groups()
    return [(f"blk.{layer}.{NAMES[part]}", rows)]


def join(name, parts, config):
    """As Granite's."""
    return parts[0] if name.endswith(("q_proj.weight", "k_proj.weight")) else granite_hybrid.join(name, parts, config)
