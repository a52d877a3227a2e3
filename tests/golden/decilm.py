"""decilm.py - DeciLM, whose class transformers has not, made of Llama's parts: for make_model.py.

Each layer says in block_configs whether it has attention, by how many heads of K and V, or one product in its place, and whether it has an MLP,
and how wide.
"""
import copy

import torch
from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaMLP


@strict
class Config(LlamaConfig):
    model_type = "nemotron-nas"
    intermediate_size: int | None = None
    block_configs: list | None = None

    def __post_init__(self, **kwargs):
        self.intermediate_size = self.intermediate_size or 1
        super().__post_init__(**kwargs)


class Nothing(torch.nn.Module):
    """Adds nothing, as attention and as an MLP."""

    def forward(self, x=None, hidden_states=None, **_):
        return torch.zeros_like(x) if hidden_states is None else (torch.zeros_like(hidden_states), None)


class Product(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear_attn = torch.nn.Linear(size, size, bias=False)

    def forward(self, hidden_states, **_):
        return self.linear_attn(hidden_states), None


def kv_heads(config, layer):
    """0: it has no attention."""
    own = config["block_configs"][layer]["attention"]
    return 0 if own["no_op"] or own["replace_with_linear"] else config["num_attention_heads"] // own["n_heads_in_group"]


def width(config, layer):
    """0: it has no MLP."""
    own = config["block_configs"][layer]["ffn"]
    return 0 if own["no_op"] else -(-int(2 * own["ffn_mult"] * config["hidden_size"] / 3) // 256) * 256


class Model(LlamaForCausalLM):
    config_class = Config

    def __init__(self, config):
        super().__init__(config)
        for i, layer in enumerate(self.model.layers):
            own = copy.copy(config)
            facts = {**config.to_dict(), "block_configs": config.block_configs}
            own.num_key_value_heads, own.intermediate_size = kv_heads(facts, i), width(facts, i)
            is_replaced = config.block_configs[i]["attention"]["replace_with_linear"]
            layer.self_attn = LlamaAttention(own, i) if own.num_key_value_heads else Product(config.hidden_size) if is_replaced else Nothing()
            layer.mlp = LlamaMLP(own) if own.intermediate_size else Nothing()
            if isinstance(layer.self_attn, Nothing):
                layer.input_layernorm = torch.nn.Identity()
            if isinstance(layer.mlp, Nothing):
                layer.post_attention_layernorm = torch.nn.Identity()


AutoConfig.register("nemotron-nas", Config)
AutoModelForCausalLM.register(Config, Model)


def block(group, mult, is_replaced=False):
    """Of block_configs; None: no attention, no MLP."""
    attention = {"n_heads_in_group": group, "no_op": group is None and not is_replaced, "replace_with_linear": is_replaced, "window_length": None}
    return {"attention": attention, "ffn": {"ffn_mult": mult, "no_op": mult is None, "replace_with_linear": False}}


class KvHeadsByLayer:
    """DeciLM 6B and 7B, which say of each layer how many heads of K and V it has, and that alone: for make_model.py, RENAMED."""

    def known(self, config):
        heads = config["num_attention_heads"]
        own = {k: v for k, v in config.items() if k not in ("num_key_value_heads_per_layer", "intermediate_size")}
        assert config["intermediate_size"] == 256  # what 3.0 gives
        return {**own, "model_type": "nemotron-nas", "block_configs": [block(heads // n, 3.0) for n in config["num_key_value_heads_per_layer"]]}

    def entry(self, name, rows, cols, config):
        return name, rows, cols

    def split(self, name, value, config):
        return {name: value}
