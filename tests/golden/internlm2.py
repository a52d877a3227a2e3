"""internlm2.py - a directory of InternLM 2, whose class transformers has not, and the Llama that it is: for make_model.py.

Each K/V head has its rows of q, k and v in one tensor.
"""
import re

NAMES = {
    "model.embed_tokens": "model.tok_embeddings",
    "model.norm": "model.norm",
    "lm_head": "output",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attention.wqkv",
    "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.up_proj": "feed_forward.w3",
    "mlp.down_proj": "feed_forward.w2",
}


def known(config):
    """A config.json that transformers has a class for."""
    return {**config, "architectures": ["LlamaForCausalLM"], "model_type": "llama"}


def entry(name, rows, cols, config):
    """(name, rows, cols) in the directory; None: it is in another one's tensor."""
    layer, part = re.fullmatch(r"(?:model\.layers\.(\d+)\.)?(.+)\.weight", name).groups()
    if part.endswith((".k_proj", ".v_proj")):
        return None
    if part.endswith(".q_proj"):
        rows += 2 * config["num_key_value_heads"] * config["head_dim"]
    return (f"model.layers.{layer}." if layer else "") + NAMES[part] + ".weight", rows, cols


def split(name, value, config):
    """By the names of Llama."""
    if not name.endswith(".q_proj.weight"):
        return {name: value}
    groups = value.unflatten(0, (config["num_key_value_heads"], -1, config["head_dim"]))
    parts = {"q": groups[:, :-2], "k": groups[:, -2], "v": groups[:, -1]}
    return {name.replace(".q_proj", f".{p}_proj"): v.reshape(-1, value.shape[1]).contiguous() for p, v in parts.items()}
