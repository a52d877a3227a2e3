"""early.py - models of 2023 and 2024 whose classes transformers has not, and the ones that compute the same: for make_model.py.

Qwen 1 is a Qwen 2 and Baichuan a Llama, with rows of q, k and v in one tensor; the rows of Baichuan 2's head are divided by their lengths. DeepSeek's first mixture and Ling 1 are Qwen 2's mixture without
biases, whose shared experts count in full: there they are weighed by sigmoid(0), and so twice as large. Phi-4-multimodal's text is a Phi-4 whose
matrices have names beside those of adapters. PLM is a DeepSeek V2 without experts. Refact is a Llama that does not rotate and whose scores fall with the distance: its positions are all 0, and
what scores lose is its attention mask.
"""
import re

import torch

from quantised import Online

LLAMA = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    **{f"self_attn.{p}_proj": f"attn_{p}" for p in "qkv"},
    "self_attn.o_proj": "attn_output",
    **{f"mlp.{p}_proj": f"ffn_{p}" for p in ("gate", "up", "down")},
    "mlp.gate": "ffn_gate_inp",
    **{f"mlp.experts.{p}_proj": f"ffn_{p}_exps" for p in ("gate", "up", "down")},
    **{f"mlp.shared_expert.{p}_proj": f"ffn_{p}_shexp" for p in ("gate", "up", "down")},
}
QWEN = {
    "model.embed_tokens": "wte",
    "model.norm": "ln_f",
    "input_layernorm": "ln_1",
    "post_attention_layernorm": "ln_2",
    "self_attn.q_proj": "attn.c_attn",
    "self_attn.o_proj": "attn.c_proj",
    "mlp.gate_proj": "mlp.w2",
    "mlp.up_proj": "mlp.w1",
    "mlp.down_proj": "mlp.c_proj",
}
LING = {"model.embed_tokens": "model.word_embeddings", "self_attn.q_proj": "attention.query_key_value", "self_attn.o_proj": "attention.dense"}


def alibi_inputs(config, num_tokens):
    """Of a Llama: every position 0, and in the mask's place what each head's scores lose."""
    heads = config["num_attention_heads"]
    most = 2 ** (heads.bit_length() - 1)
    slopes = torch.tensor([2 ** (-8 * (h + 1 if h < most else h - most + 0.5) / most) for h in range(heads)])
    places = torch.arange(num_tokens)
    behind = places[None, :] - places[:, None]
    mask = torch.where(behind > 0, torch.finfo(torch.float32).min, slopes[:, None, None] * behind)
    return {"attention_mask": mask[None], "position_ids": torch.zeros(1, num_tokens, dtype=torch.long)}


def qkv_rows(config):
    return [config[k] * config["head_dim"] for k in ("num_attention_heads", "num_key_value_heads", "num_key_value_heads")]


def in_halves(value, config, heads):
    """Rows of a head that are rotated in pairs, as transformers rotates them."""
    return value.unflatten(0, (config[heads], config["head_dim"] // 2, 2)).swapaxes(1, 2).flatten(0, 2).contiguous()


class Early:
    def __init__(self, names, is_gguf=False, fuses=True, is_mixture=False):
        self.names, self.is_gguf, self.fuses, self.is_mixture = names, is_gguf, fuses, is_mixture

    def known(self, config):
        """A config.json that transformers has a class for."""
        own = {k: v for k, v in config.items() if k not in ("rope_scaling", "first_k_dense_replace")}
        if self.is_mixture:
            first = list(range(config.get("first_k_dense_replace", 0)))
            shared = config.get("n_shared_experts", config.get("num_shared_experts")) * config["moe_intermediate_size"]
            number = config.get("n_routed_experts", config.get("num_experts"))
            return {**own, "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "num_experts": number, "mlp_only_layers": first,
                    "shared_expert_intermediate_size": shared, "norm_topk_prob": config["norm_topk_prob"]}
        if config["model_type"] == "qwen":
            return {**own, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "intermediate_size": config["intermediate_size"] // 2,
                    "rms_norm_eps": config["layer_norm_epsilon"]}
        if config["model_type"] == "phi4mm":
            return {**config, "architectures": ["Phi3ForCausalLM"], "model_type": "phi3"}
        return {**own, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "alibi": config["model_type"] == "refact"}

    def renamed(self, part):
        return self.names.get(part, part)

    def entry(self, name, rows, cols, config):
        """(name, rows, cols) in the file; None: it is in another one's tensor, or nowhere."""
        prefix, part, kind = re.fullmatch(r"(model\.layers\.\d+\.)?(.+)\.(weight|bias)", name).groups()
        if self.is_mixture and (kind == "bias" or part == "mlp.shared_expert_gate"):
            return None
        if self.fuses and part.endswith((".k_proj", ".v_proj")):
            return None
        if self.fuses and part.endswith(".q_proj"):
            rows, cols = (sum(qkv_rows(config)), cols) if rows else (0, sum(qkv_rows(config)))
        if self.is_gguf:
            part = re.sub(r"experts\.\d+\.", "experts.", part)
        elif self.is_mixture:
            part = part.replace("shared_expert.", "shared_experts.")
        own = self.renamed("self_attn.qkv" if self.fuses and self.is_gguf and part.endswith(".q_proj") else part)
        if prefix and self.is_gguf:
            prefix = prefix.replace("model.layers.", "blk.")
        elif config["model_type"] == "qwen" and not self.is_gguf and part != "lm_head":
            prefix = (prefix or "").replace("model.layers.", "h.")
            return f"transformer.{prefix}{own}.{kind}", rows, cols
        return f"{prefix or ''}{own}.{kind}", rows, cols

    def split(self, name, value, config):
        """By the names of the class that transformers has."""
        if name.endswith(".q_proj.weight") and self.is_mixture:
            zeros = {name.replace("q_proj.weight", f"{p}_proj.bias"): torch.zeros(n, dtype=value.dtype) for p, n in zip("qkv", qkv_rows(config))}
            return zeros | self.split_qkv(name, value, config)
        if name == "lm_head.weight" and "z_loss_weight" in config:  # Baichuan 2's
            return {name: torch.nn.functional.normalize(value.float()).to(value.dtype)}
        if name.endswith("mlp.shared_expert.down_proj.weight"):
            return {name: 2 * value, name.replace("shared_expert.down_proj", "shared_expert_gate"): torch.zeros(1, value.shape[0], dtype=value.dtype)}
        return self.split_qkv(name, value, config)

    def split_qkv(self, name, value, config):
        if self.fuses and ".q_proj" in name:
            parts = value.split(qkv_rows(config))
            return {name.replace(".q_proj", f".{p}_proj"): v.contiguous() for p, v in zip("qkv", parts)}
        heads = {".q_proj.weight": "num_attention_heads", ".k_proj.weight": "num_key_value_heads"}
        own = [h for end, h in heads.items() if name.endswith(end)]
        return {name: in_halves(value, config, own[0]) if own and self.is_gguf else value}


class Like(Early):
    """A GGUF file that is what a class of transformers is, by other names: rows of q and k may lie in another order of rotation."""

    def __init__(self, own, names=(), fuses=False, reorder=None):
        super().__init__({**LLAMA, **dict(names)}, is_gguf=True, fuses=fuses)
        self.own, self.reorder = own, reorder

    def known(self, config):
        return {**config, **self.own}

    def split(self, name, value, config):
        if self.fuses and ".q_proj" in name:
            return self.split_qkv(name, value, config)
        heads = re.search(r"([qk])_proj\.weight|(query|key)_layernorm", name)
        if not heads or not self.reorder:
            return {name: value}
        num = 1 if heads[2] else config["num_attention_heads" if heads[1] == "q" else "num_key_value_heads"]
        return {name: self.reorder(value, num)}


def pairs_to_halves(value, heads):
    return value.unflatten(0, (heads, -1, 2)).swapaxes(1, 2).flatten(0, 2).contiguous()


def halves_to_pairs(value, heads):
    return value.unflatten(0, (heads, 2, -1)).swapaxes(1, 2).flatten(0, 2).contiguous()


PANGU = Like({"architectures": ["LlamaForCausalLM"], "model_type": "llama"})
MAINCODER = Like(
    {"architectures": ["HunYuanDenseV1ForCausalLM"], "model_type": "hunyuan_v1_dense"},
    {"self_attn.query_layernorm": "attn_q_norm", "self_attn.key_layernorm": "attn_k_norm"},
    reorder=pairs_to_halves,
)
CODESHELL = Like(
    {"architectures": ["Starcoder2ForCausalLM"], "model_type": "starcoder2"},
    {"self_attn.qkv": "attn_qkv", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
    fuses=True,
)
PLAMO = Like({"architectures": ["Cohere2MoeForCausalLM"], "model_type": "cohere2_moe"}, reorder=halves_to_pairs)


class SquaredRelu(Like):
    """Whose MLP has no gate: a gate of the same rows, behind ReLU, squares it."""

    def entry(self, name, rows, cols, config):
        return None if ".gate_proj" in name else super().entry(name, rows, cols, config)

    def split(self, name, value, config):
        return {name: value, **({name.replace("up_proj", "gate_proj"): value.clone()} if ".up_proj" in name else {})}


PLM = SquaredRelu(
    {"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2"},
    {"self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b"},
)


class EarlyBitnet:
    """A BitNet with SiLU by other names, whose class makes its floats ternary."""

    def known(self, config):
        return {**config, "architectures": ["BitNetForCausalLM"], "model_type": "bitnet"}

    def entry(self, name, rows, cols, config):
        return name.replace("attn_sub_norm", "inner_attn_ln").replace("ffn_sub_norm", "ffn_layernorm"), rows, cols

    def split(self, name, value, config):
        return {name: torch.from_numpy(Online().weights(*value.shape, {"": value.float().numpy()})) if "_proj" in name else value}


PHI_4_MM = Early({p: f"{p}.base_layer" for p in ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj")}, fuses=False)
QWEN_1 = Early(QWEN)
QWEN_1_GGUF = Early({**LLAMA, "self_attn.qkv": "attn_qkv"}, is_gguf=True)
BAICHUAN = Early({"self_attn.q_proj": "self_attn.W_pack"})
REFACT_GGUF = Early(LLAMA, is_gguf=True, fuses=False)
DEEPSEEK_1 = Early({}, fuses=False, is_mixture=True)
LING_1 = Early(LING, is_mixture=True)
MIXTURE_GGUF = Early(LLAMA, is_gguf=True, fuses=False, is_mixture=True)
