"""gpt_oss.py - gpt-oss' experts: as transformers has them in memory, as its checkpoints and as GGUF files do: for make_model.py.

A checkpoint has blocks of MXFP4, rows of gate and up in turns; a GGUF file has gate and up apart; transformers has them transposed.
"""
import re

import numpy as np
import torch

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
E2M1 = np.concatenate([E2M1, -E2M1])
BLOCK, BLOCK_BYTES = 32, 17
GGUF_PARTS = {"gate_up_proj": ("gate", "up"), "down_proj": ("down",)}


def is_expert(name):
    return re.search(r"\.mlp\.experts\.(gate_up|down)_proj(_bias)?$", name) is not None


def as_rows(value):
    """[E][K][N] to the rows of all experts' matrices."""
    return value.transpose(1, 2).reshape(-1, value.shape[1]) if value.ndim == 3 else value


def in_memory(name, rows, config):
    """What as_rows has been made of."""
    if config["model_type"] != "gpt_oss" or not is_expert(name) or name.endswith("_bias"):
        return rows
    return rows.reshape(config["num_local_experts"], -1, rows.shape[1]).transpose(1, 2)


def gguf_entries(name, rows, cols, config):
    """(GGUF's name, rows, cols, type) of what stands for a tensor of all experts."""
    layer, own = name.split(".")[2], name.split(".")[-1]
    parts = GGUF_PARTS[own.removesuffix("_bias")]
    if own.endswith("_bias"):
        return [(f"blk.{layer}.ffn_{p}_exps.bias", rows, cols // len(parts), "F32") for p in parts]
    return [(f"blk.{layer}.ffn_{p}_exps.weight", rows // len(parts), cols, "MXFP4") for p in parts]


def join(parts, is_bias):
    """Rows of gate and of up (of a bias its values) in turns."""
    return parts[0] if len(parts) == 1 else torch.stack(parts, 2 if is_bias else 1).reshape(
        (parts[0].shape[0], -1) if is_bias else (-1, parts[0].shape[1]))


def scale_range(cols):
    """Of the scales' bytes: the lowest, and how many."""
    return 127 + int(np.log2(2 / np.sqrt(cols) / 2.4)) - 2, 4


def unpack_gguf(data, rows, cols):
    blocks = data.reshape(-1, BLOCK_BYTES)
    codes = np.concatenate([blocks[:, 1:] & 15, blocks[:, 1:] >> 4], 1)
    values = E2M1[codes] * np.ldexp(np.float32(1), blocks[:, :1].astype(int) - 127).astype(np.float32)
    return torch.from_numpy(values.astype(np.float32).reshape(rows, cols))
