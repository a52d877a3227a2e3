"""chatglm.py - the tensors of GLM-4-9B as GGUF files of its older form have them: for make_model.py.

Q, K and V of a layer lie one behind the other.
"""
import re

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def known(config):
    """A config.json that transformers has a class for."""
    return config


def entry(name, rows, cols, config):
    """(name, rows, cols) in the file; None: it is in another one's tensor."""
    layer, part, kind = re.fullmatch(r"(?:model\.layers\.(\d+)\.)?(.+)\.(weight|bias)", name).groups()
    both = 2 * config["num_key_value_heads"] * config["head_dim"]
    if part.endswith((".k_proj", ".v_proj")):
        return None
    if part.endswith(".q_proj"):
        rows, cols = (rows + both, cols) if rows else (0, cols + both)
    return (f"blk.{layer}." if layer else "") + f"{NAMES[part]}.{kind}", rows, cols


def split(name, value, config):
    """By the directory's names."""
    if ".q_proj" not in name:
        return {name: value}
    width, both = (config[k] * config["head_dim"] for k in ("num_attention_heads", "num_key_value_heads"))
    parts = zip("qkv", value.split([width, both, both]))
    return {name.replace(".q_proj", f".{p}_proj"): v.contiguous() for p, v in parts}
