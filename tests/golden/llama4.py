"""llama4.py - the experts of Llama 4, Qwen3-VL and Granite: as transformers and its checkpoints have them, and as GGUF files do: for make_model.py.

A checkpoint has all of a layer's in one tensor [E][columns][rows], gate and up side by side; a GGUF file has them as rows, apart.
"""
import re

import torch

GGUF_PARTS = {"gate_up_proj": ("gate", "up"), "down_proj": ("down",)}


def is_expert(name):
    return re.search(
        r"(\.feed_forward|language_model\.layers\.\d+\.mlp)\.experts\.(gate_up|down)_proj$|block_sparse_moe\.((in|out)put_linear\.weight|experts\.(gate_up|down)_proj)$", name
    ) is not None


def shape(name, rows, cols, config):
    """In the file."""
    if is_expert(name):
        num = config.get("num_local_experts") or config["num_experts"]
        return num, rows // num, cols
    return (rows, cols) if rows else (cols,)


def gguf_entries(name, rows, cols, config):
    """(GGUF's name, rows, cols, type) of what stands for a tensor of all experts."""
    num, parts = config["num_local_experts"], GGUF_PARTS[name.split(".")[-1]]
    return [(f"blk.{name.split('.')[2]}.ffn_{p}_exps.weight", num * (cols // len(parts)), rows // num, None) for p in parts]


def join(parts, config):
    """Back to what a checkpoint has."""
    return torch.cat([p.reshape(config["num_local_experts"], -1, p.shape[1]).transpose(1, 2) for p in parts], 2)


def numbered_entries(name, rows, cols, config):
    """(name, rows, cols) of what stands for a tensor of all experts where each has its own, as programs that quantise write them."""
    num, parts = config["num_local_experts"], GGUF_PARTS[name.split(".")[-1]]
    base = name.rsplit(".", 1)[0]
    return [(f"{base}.{e}.{p}_proj.weight", cols // len(parts), rows // num) for e in range(num) for p in parts]


def join_numbered(parts, config):
    num = config["num_local_experts"]
    return torch.stack([torch.cat(parts[e * len(parts) // num:(e + 1) * len(parts) // num]).T for e in range(num)])
