"""mamba2.py - the tensors of Mamba 2 as GGUF files have them, and back to what transformers takes: for make_model.py. As Granite 4's states
(granite_hybrid.py), under Mamba's names."""
import re

import granite_hybrid
import jamba

range_of = granite_hybrid.range_of


def as_granite(name):
    """What Granite calls it."""
    return name.replace("mixer.", "mamba.")


def form(name, rows, cols, config):
    """As Granite's."""
    return granite_hybrid.form(as_granite(name), rows, cols, {"mamba_n_groups": config["n_groups"]})


def entries(name, rows, config):
    """(GGUF's name, rows) of what a tensor of a directory becomes."""
    if name in jamba.TOP:
        return [(jamba.TOP[name], rows)]
    layer, part = re.fullmatch(r"\w+\.layers\.(\d+)\.(.+?)(?:\.weight)?", name).groups()
    own = "attn_norm.weight" if part == "norm" else granite_hybrid.NAMES[as_granite(part)]
    return [(f"blk.{layer}.{own}", rows)]


def join(name, parts, config):
    """As Granite's."""
    return granite_hybrid.join(as_granite(name), parts, config)
