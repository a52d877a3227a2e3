"""gpt.py - the tensors of GPT-2 and its kind as GGUF files have them, and back to what transformers takes: for make_model.py.

The converter turns matrices that lie transposed, and puts rows of q, k and v that come by heads one behind the other.
"""
import re

import torch

NAMES = {
    "ln_1": "attn_norm",
    "ln_2": "ffn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "mlp.c_fc": "ffn_up",
    "mlp.c_fc_0": "ffn_gate",
    "mlp.c_fc_1": "ffn_up",
    **{f"attn.attention.{p}_proj": f"attn_{p}" for p in "qkv"},
    "attn.attention.out_proj": "attn_output",
    "mlp.c_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "attention.query_key_value": "attn_qkv",
    "attention.dense": "attn_output",
    "mlp.dense_h_to_4h": "ffn_up",
    "mlp.dense_4h_to_h": "ffn_down",
    "self_attention.query_key_value": "attn_qkv",
    "self_attention.dense": "attn_output",
    "ln_attn": "attn_norm_2",
    "ln_mlp": "attn_norm",
    "norm_1": "attn_norm",
    "norm_2": "ffn_norm",
    "attn.Wqkv": "attn_qkv",
    "attn.out_proj": "attn_output",
    "ffn.up_proj": "ffn_up",
    "ffn.down_proj": "ffn_down",
}
TOP = {"wte": "token_embd", "word_embeddings": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "lm_head": "output", "embed_in": "token_embd", "embed_out": "output", "final_layer_norm": "output_norm", "word_embeddings_layernorm": "token_embd_norm", "norm_f": "output_norm"}


def is_transposed(name, config):
    return config["model_type"] == "gpt2" and re.search(r"\.c_\w+\.weight$", name) is not None


def range_of(name, center, scale):
    return center, scale


def entries(name, rows, config):
    """(GGUF's name, rows) of what stands for a tensor."""
    layer, part, kind = re.fullmatch(r"(?:transformer\.|gpt_neox\.)?(?:(?:h|layers|blocks)\.(\d+)\.)?(.+)\.(weight|bias)", name).groups()
    return [(f"blk.{layer}.{NAMES[part]}.{kind}" if layer else f"{TOP[part]}.{kind}", rows)]


def form(name, rows, cols, config):
    """Rows, columns and type in the file."""
    return (cols, rows, None) if is_transposed(name, config) else (rows, cols, None)


def join(name, parts, config):
    """Back to what a checkpoint has."""
    if is_transposed(name, config):
        return parts[0].T.contiguous()
    if "query_key_value" in name:
        heads = config.get("num_kv_heads", config.get("num_key_value_heads"))
        group = config["num_attention_heads"] // heads
        q, k, v = (p.unflatten(0, (heads, -1)) for p in parts[0].split([len(parts[0]) // (group + 2) * n for n in (group, 1, 1)]))
        return torch.cat([q, k, v], 1).flatten(0, 1)
    return parts[0]
