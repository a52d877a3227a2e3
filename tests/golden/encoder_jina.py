"""Small encoders of Jina's kind (jina-embeddings-v2; "jina_code": with norms of q and k, and two behind attention), as directories and as GGUF files, and
what they compute, as their own code has it, which transformers has not: encoder.py has the way of it."""
import json
import math
import struct

import numpy as np

import encoder
from encoder import HEADS, HIDDEN, INNER, LAYERS, POSITIONS, WORDS, make_values, write_safetensors

LISTS, EPS, KINDS = encoder.LISTS, 1e-12, ("jina", "jina_code")


def tensors(kind):
    """As published."""
    def both(name, rows, cols=None):
        return [(name + ".weight", (rows, cols) if cols else (rows,)), (name + ".bias", (rows,))]

    yield "embeddings.word_embeddings.weight", (len(WORDS), HIDDEN)
    yield "embeddings.token_type_embeddings.weight", (2, HIDDEN)
    yield from both("embeddings.LayerNorm", HIDDEN)
    for i in range(LAYERS):
        layer = "encoder.layer.%d." % i
        for part in ("query", "key", "value"):
            yield from both(layer + "attention.self." + part, HIDDEN, HIDDEN)
        yield from both(layer + "attention.output.dense", HIDDEN, HIDDEN)
        yield from both(layer + "attention.output.LayerNorm", HIDDEN)
        if kind == "jina":
            yield layer + "mlp.gated_layers.weight", (2 * INNER, HIDDEN)
            yield from both(layer + "mlp.wo", HIDDEN, INNER)
            yield from both(layer + "mlp.layernorm", HIDDEN)
        else:
            yield layer + "mlp.up_gated_layer.weight", (2 * INNER, HIDDEN)
            yield from both(layer + "mlp.down_layer", HIDDEN, INNER)
            for norm in ("attention.self.layer_norm_q", "attention.self.layer_norm_k", "layer_norm_1", "layer_norm_2"):
                yield from both(layer + norm, HIDDEN)


def config():
    return {"architectures": ["JinaBertForMaskedLM"], "auto_map": {"AutoModel": "own--modeling_bert.JinaBertModel"}, "model_type": "bert",
            "attn_implementation": "torch", "emb_pooler": "mean", "feed_forward_type": "geglu", "hidden_act": "gelu", "hidden_size": HIDDEN,
            "intermediate_size": INNER, "layer_norm_eps": EPS, "max_position_embeddings": POSITIONS, "model_max_length": POSITIONS,
            "num_attention_heads": HEADS, "num_hidden_layers": LAYERS, "pad_token_id": 0, "position_embedding_type": "alibi", "type_vocab_size": 2,
            "vocab_size": len(WORDS)}


def write(path, pooling, kind, prefix="", change=lambda values: None, **changes):
    """change: of the tensors, by their names."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps({**config(), **changes}))
    values = {prefix + name: make_values(name, shape) for name, shape in tensors(kind)}
    change(values)
    write_safetensors(path / "model.safetensors", values)
    (path / "tokenizer.json").write_text(json.dumps(encoder.tokenizer()))
    encoder.write_pooling(path, pooling)


GGUF_NAMES = (
    ("embeddings.word_embeddings", "token_embd"), ("embeddings.token_type_embeddings", "token_types"), ("embeddings.LayerNorm", "token_embd_norm"),
    ("encoder.layer.", "blk."), ("attention.self.query", "attn_q"), ("attention.self.key", "attn_k"), ("attention.self.value", "attn_v"),
    ("attention.self.layer_norm_q", "attn_q_norm"), ("attention.self.layer_norm_k", "attn_k_norm"), ("attention.output.dense", "attn_output"),
    ("attention.output.LayerNorm", "attn_output_norm"), ("mlp.gated_layers", "ffn_up"), ("mlp.up_gated_layer", "ffn_up"), ("mlp.wo", "ffn_down"),
    ("mlp.down_layer", "ffn_down"), ("mlp.layernorm", "layer_output_norm"), ("layer_norm_1", "attn_norm_2"), ("layer_norm_2", "layer_output_norm"))


def gguf_tensors(kind, is_apart):
    for name, shape in tensors(kind):
        own, values = encoder.gguf_name(name, GGUF_NAMES), make_values(name, shape)
        if is_apart and "ffn_up" in own:
            gate, up = (values[:INNER], values[INNER:]) if kind == "jina" else (values[INNER:], values[:INNER])
            yield own.replace("ffn_up", "ffn_gate"), np.ascontiguousarray(gate)
            values = np.ascontiguousarray(up)
        yield own, values


def write_gguf(path, pooling_type, kind, is_apart=False):
    """As llama.cpp's converter leaves it, all in f32. is_apart: gate and up, as it was once."""
    numbers = {"block_count": LAYERS, "context_length": POSITIONS, "embedding_length": HIDDEN, "feed_forward_length": INNER,
               "attention.head_count": HEADS, "pooling_type": pooling_type}
    keys = {"jina-bert-v2." + name: struct.pack("<II", 4, number) for name, number in numbers.items()}
    keys["jina-bert-v2.attention.layer_norm_epsilon"] = struct.pack("<If", 6, EPS)
    keys["jina-bert-v2.attention.causal"] = struct.pack("<I?", 7, False)
    keys.update(encoder.gguf_words("jina-bert-v2"))
    encoder.write_gguf_file(path, keys, gguf_tensors(kind, is_apart))


def slopes(num_heads):
    """Of the heads of a power of 2, and for the others every second of those of twice as many."""
    whole = 2 ** math.floor(math.log2(num_heads))
    own = [2 ** (-8 * (i + 1) / whole) for i in range(whole)]
    return own if whole == num_heads else own + slopes(2 * whole)[::2][:num_heads - whole]


def states(ids, kind):
    """The last hidden states of a list of ids, in float32. torch is wanted here alone."""
    import torch
    from torch.nn import functional as F
    w = {name: torch.from_numpy(make_values(name, shape)) for name, shape in tensors(kind)}
    places = torch.arange(len(ids))
    bias = -torch.tensor(slopes(HEADS))[:, None, None] * (places[None] - places[:, None]).abs()

    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))

    def norm(x, name):
        return F.layer_norm(x, (HIDDEN,), w[name + ".weight"], w[name + ".bias"], EPS)

    def attention(x, layer):
        q, k, v = (linear(x, layer + "self." + part) for part in ("query", "key", "value"))
        if kind == "jina_code":
            q, k = norm(q, layer + "self.layer_norm_q"), norm(k, layer + "self.layer_norm_k")
        q, k, v = (t.view(len(ids), HEADS, HIDDEN // HEADS).transpose(0, 1) for t in (q, k, v))
        probabilities = (q @ k.transpose(1, 2) / math.sqrt(HIDDEN // HEADS) + bias).softmax(-1)
        own = linear((probabilities @ v).transpose(0, 1).reshape(len(ids), HIDDEN), layer + "output.dense")
        return norm(own + x, layer + "output.LayerNorm")

    x = norm(w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for i in range(LAYERS):
        layer = "encoder.layer.%d." % i
        attended = attention(x, layer + "attention.")
        if kind == "jina":
            gate, other = linear(attended, layer + "mlp.gated_layers").chunk(2, -1)
            x = norm(linear(F.gelu(gate) * other, layer + "mlp.wo") + attended, layer + "mlp.layernorm")
        else:
            attended = norm(x + attended, layer + "layer_norm_1")
            other, gate = linear(attended, layer + "mlp.up_gated_layer").chunk(2, -1)
            x = norm(attended + linear(other * F.gelu(gate), layer + "mlp.down_layer"), layer + "layer_norm_2")
    return x
