"""Small decoders and adapters of low rank for them, as PEFT saves these: for each adapter the model with its matrices added to by it (merged),
which is another way to the same numbers. encoder.py has the way weights are made."""
import json

import numpy as np

import encoder
import encoder_llama
from encoder import HIDDEN, INNER, POSITIONS, WORDS, make_values, write_safetensors

LAYERS, HEADS, KV_HEADS = 3, 6, 2
DIM = HIDDEN // HEADS
KV = KV_HEADS * DIM
COMMON = {"vocab_size": len(WORDS), "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
          "num_key_value_heads": KV_HEADS, "hidden_act": "silu", "max_position_embeddings": POSITIONS, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
          "bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0, "tie_word_embeddings": False}
CONFIGS = {
    "llama": {**COMMON, "architectures": ["LlamaForCausalLM"], "model_type": "llama"},
    "qwen2": {**COMMON, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "use_sliding_window": False},
    "phi3": {**COMMON, "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "original_max_position_embeddings": POSITIONS,
             "rope_scaling": None, "sliding_window": None},
    "gpt2": {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": len(WORDS), "n_embd": HIDDEN, "n_layer": LAYERS,
             "n_head": HEADS, "n_inner": INNER, "n_positions": POSITIONS, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
             "bos_token_id": 2, "eos_token_id": 3},
}
OWN = (("self_attn.q_proj", HIDDEN, HIDDEN), ("self_attn.k_proj", KV, HIDDEN), ("self_attn.v_proj", KV, HIDDEN), ("self_attn.o_proj", HIDDEN, HIDDEN),
       ("mlp.gate_proj", INNER, HIDDEN), ("mlp.up_proj", INNER, HIDDEN), ("mlp.down_proj", HIDDEN, INNER))
STACKED = (("self_attn.qkv_proj", HIDDEN + 2 * KV, HIDDEN), ("self_attn.o_proj", HIDDEN, HIDDEN), ("mlp.gate_up_proj", 2 * INNER, HIDDEN),
           ("mlp.down_proj", HIDDEN, INNER))
GPT2 = (("attn.c_attn", 3 * HIDDEN, HIDDEN), ("attn.c_proj", HIDDEN, HIDDEN), ("mlp.c_fc", INNER, HIDDEN), ("mlp.c_proj", HIDDEN, INNER))


def matrices(kind):
    """(module, rows, columns) of a layer."""
    return {"phi3": STACKED, "gpt2": GPT2}.get(kind, OWN)


def layer_name(kind, i):
    return ("transformer.h.%d." if kind == "gpt2" else "model.layers.%d.") % i


def vectors(kind, layer):
    if kind == "gpt2":
        for norm in ("ln_1", "ln_2"):
            yield layer + norm + ".weight", HIDDEN
            yield layer + norm + ".bias", HIDDEN
        for module, rows, _ in GPT2:
            yield layer + module + ".bias", rows
        return
    for name in ("input", "post_attention"):
        yield layer + name + "_layernorm.weight", HIDDEN
    for name, rows in (("q", HIDDEN), ("k", KV), ("v", KV)) if kind == "qwen2" else ():
        yield layer + "self_attn.%s_proj.bias" % name, rows


def base_values(kind):
    """Matrices [rows][columns] whatever the file has."""
    values = {}
    if kind == "gpt2":
        values["transformer.wte.weight"] = make_values("wte.weight", (len(WORDS), HIDDEN)) / 3
        values["transformer.wpe.weight"] = make_values("wpe.weight", (POSITIONS, HIDDEN)) / 3
        values["transformer.ln_f.weight"] = make_values("ln_f.weight", (HIDDEN,))
        values["transformer.ln_f.bias"] = make_values("ln_f.bias", (HIDDEN,))
    else:
        values["model.embed_tokens.weight"] = make_values("embed_tokens.weight", (len(WORDS), HIDDEN))
        values["model.norm.weight"] = make_values("norm.weight", (HIDDEN,))
        values["lm_head.weight"] = make_values("lm_head.weight", (len(WORDS), HIDDEN))
    for i in range(LAYERS):
        layer = layer_name(kind, i)
        for module, rows, cols in matrices(kind):
            values[layer + module + ".weight"] = make_values(layer + module + ".weight", (rows, cols))
        for name, size in vectors(kind, layer):
            values[name] = make_values(name, (size,))
    return values


def write_model(path, kind, adapters=()):
    """adapters: merged, one after the other."""
    path.mkdir(parents=True, exist_ok=True)
    values = base_values(kind)
    for a in adapters:
        for module, (down, up) in a.halves.items():
            values[module + ".weight"] = (values[module + ".weight"] + a.scale(module) * (up.astype(np.float64) @ down)).astype(np.float32)
    if kind == "gpt2":  # its matrices are those of a convolution
        values = {n: np.ascontiguousarray(v.T) if v.ndim == 2 and ".h." in n else v for n, v in values.items()}
    (path / "config.json").write_text(json.dumps(CONFIGS[kind]))
    write_safetensors(path / "model.safetensors", values)
    (path / "tokenizer.json").write_text(json.dumps(encoder.tokenizer()))


def write_gguf(path):
    """Of "llama", as llama.cpp's converter leaves it: rows of Q's and K's heads in another order."""
    numbers = {"block_count": LAYERS, "context_length": POSITIONS, "embedding_length": HIDDEN, "feed_forward_length": INNER,
               "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS}
    keys = {"llama." + name: encoder.struct.pack("<II", 4, number) for name, number in numbers.items()}
    keys["llama.attention.layer_norm_rms_epsilon"] = encoder.struct.pack("<If", 6, 1e-5)
    keys["llama.rope.freq_base"] = encoder.struct.pack("<If", 6, 10000.0)
    keys.update(encoder.gguf_words("llama"))
    named = []
    for name, values in base_values("llama").items():
        if "q_proj" in name or "k_proj" in name:
            values = np.ascontiguousarray(values.reshape(-1, 2, DIM // 2, HIDDEN).swapaxes(1, 2).reshape(values.shape))
        short = name.removeprefix("model.")
        short = {"norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}.get(short, encoder.gguf_name(short, encoder_llama.GGUF_NAMES))
        named.append((short, values))
    encoder.write_gguf_file(path, keys, named)


class Adapter:
    """config: fields of adapter_config.json; modules: those of each layer that it has, by the end of their names; None: all."""
    def __init__(self, kind, name, rank=8, modules=None, **config):
        self.config = {"peft_type": "LORA", "r": rank, "lora_alpha": 16, "bias": "none", "use_rslora": False, "task_type": "CAUSAL_LM", **config}
        self.rank, self.halves = rank, {}
        for i in range(LAYERS):
            for module, rows, cols in matrices(kind):
                if modules is None or module.split(".")[1] in modules:
                    full = layer_name(kind, i) + module
                    down, up = make_values(name + full + ".lora_A", (rank, cols)), make_values(name + full + ".lora_B", (rows, rank))
                    self.halves[full] = down / 3, up / 3

    def scale(self, module):
        alpha = next((a for key, a in self.config.get("alpha_pattern", {}).items() if module.endswith(key)), self.config["lora_alpha"])
        return alpha / (self.rank ** 0.5 if self.config["use_rslora"] else self.rank)

    def tensors(self):
        for module, (down, up) in self.halves.items():
            yield "base_model.model.%s.lora_A.weight" % module, down
            yield "base_model.model.%s.lora_B.weight" % module, up

    def write(self, path, **changes):
        path.mkdir(parents=True, exist_ok=True)
        (path / "adapter_config.json").write_text(json.dumps({**self.config, **changes}))
        write_safetensors(path / "adapter_model.safetensors", dict(self.tensors()))
        return path


def of_smollm2(name, rank=8, scale=40.0):
    """One whose answers are others, for SmolLM2-135M, which is read as GGUF."""
    own = {"self_attn.q_proj": (576, 576), "self_attn.k_proj": (192, 576), "self_attn.v_proj": (192, 576), "self_attn.o_proj": (576, 576),
           "mlp.gate_proj": (1536, 576), "mlp.up_proj": (1536, 576), "mlp.down_proj": (576, 1536)}
    adapter = Adapter("llama", name, rank, (), lora_alpha=scale)
    for i in range(0, 30, 3):
        for module, (rows, cols) in own.items():
            full = "model.layers.%d.%s" % (i, module)
            adapter.halves[full] = make_values(name + full + "A", (rank, cols)) / 100, make_values(name + full + "B", (rows, rank)) / 10
    return adapter
