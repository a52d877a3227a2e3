"""Small encoders of Llama's kind, whose tokens see both sides: EuroBERT, NVIDIA's embedders, as a GGUF file, too, and decoders whose config.json says so
(gte-Qwen2): encoder.py has the way of it."""
import json
import struct

import numpy as np

import encoder
import encoder_rotating as rotating
from encoder import HIDDEN, INNER, POSITIONS, WORDS, make_values, write_safetensors

LAYERS, HEADS, KV_HEADS, LISTS = 3, 6, 2, rotating.LISTS
DIM = HIDDEN // HEADS
KINDS = {
    "eurobert": {"architectures": ["EuroBertModel"], "model_type": "eurobert"},
    "llama": {"architectures": ["LlamaBidirectionalModel"], "model_type": "llama_bidirec"},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "is_causal": False, "use_sliding_window": False},
}


def config(kind):
    return {"vocab_size": len(WORDS), "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS, "hidden_act": "silu", "max_position_embeddings": POSITIONS, "rms_norm_eps": 1e-5, "rope_theta": 250000.0,
            "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "tie_word_embeddings": False, **KINDS[kind]}


def tensors(kind):
    """(name, shape), as the base class has them."""
    yield "embed_tokens.weight", (len(WORDS), HIDDEN)
    for i in range(LAYERS):
        layer = "layers.%d." % i
        for name, rows in (("q", HIDDEN), ("k", KV_HEADS * DIM), ("v", KV_HEADS * DIM)):
            yield layer + "self_attn.%s_proj.weight" % name, (rows, HIDDEN)
            if kind == "qwen2":
                yield layer + "self_attn.%s_proj.bias" % name, (rows,)
        yield layer + "self_attn.o_proj.weight", (HIDDEN, HIDDEN)
        for name, rows, cols in (("gate", INNER, HIDDEN), ("up", INNER, HIDDEN), ("down", HIDDEN, INNER)):
            yield layer + "mlp.%s_proj.weight" % name, (rows, cols)
        for name in ("input", "post_attention"):
            yield layer + name + "_layernorm.weight", (HIDDEN,)
    yield "norm.weight", (HIDDEN,)


def write(path, kind, pooling="mean", **changes):
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps({**config(kind), **changes}))
    prefix = "model." if kind == "qwen2" else ""
    write_safetensors(path / "model.safetensors", {prefix + name: make_values(name, shape) for name, shape in tensors(kind)})
    (path / "tokenizer.json").write_text(json.dumps(encoder.tokenizer()))
    encoder.write_pooling(path, pooling)


GGUF_NAMES = (
    ("embed_tokens", "token_embd"), ("layers.", "blk."), ("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"), ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"), ("mlp.gate_proj", "ffn_gate"), ("mlp.up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down"),
    ("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm"))


def gguf_values(name, shape):
    """The converter has the rows of Q's and K's heads in another order."""
    values = make_values(name, shape)
    if "q_proj" in name or "k_proj" in name:
        return np.ascontiguousarray(values.reshape(-1, 2, DIM // 2, shape[1]).swapaxes(1, 2).reshape(shape))
    return values


def write_gguf(path):
    """As llama.cpp's converter leaves "llama", all in f32."""
    numbers = {"block_count": LAYERS, "context_length": POSITIONS, "embedding_length": HIDDEN, "feed_forward_length": INNER,
               "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS, "pooling_type": 1}
    keys = {"llama-embed." + name: struct.pack("<II", 4, number) for name, number in numbers.items()}
    keys["llama-embed.attention.layer_norm_rms_epsilon"] = struct.pack("<If", 6, 1e-5)
    keys["llama-embed.rope.freq_base"] = struct.pack("<If", 6, 250000.0)
    keys["llama-embed.attention.causal"] = struct.pack("<I?", 7, False)
    keys.update(encoder.gguf_words("llama-embed"))

    def short(name):
        return "output_norm.weight" if name == "norm.weight" else encoder.gguf_name(name, GGUF_NAMES)

    encoder.write_gguf_file(path, keys, [(short(name), gguf_values(name, shape)) for name, shape in tensors("llama")])
