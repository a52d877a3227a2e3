"""A small Nomic BERT with experts (nomic-embed-text-v2-moe), as a directory and as a GGUF file, and what it computes, as its own code has it, which
transformers has not: encoder.py has the way of it."""
import json
import struct

import numpy as np

import encoder
from encoder import HIDDEN, INNER, POSITIONS, WORDS, make_values, write_safetensors
from encoder_rotating import GGUF_NAMES

LAYERS, HEADS, EXPERTS, CHOSEN, PERIOD, THETA, EPS, LISTS = 5, 3, 4, 2, 2, 10000.0, 1e-5, encoder.ROBERTA_LISTS


def is_sparse(layer):
    return layer % PERIOD == 1


def tensors(has_bias=True):
    """As published. has_bias: of what experts make together."""
    def both(name, rows, cols=None):
        return [(name + ".weight", (rows, cols) if cols else (rows,)), (name + ".bias", (rows,))]

    yield "embeddings.word_embeddings.weight", (len(WORDS), HIDDEN)
    yield "embeddings.token_type_embeddings.weight", (1, HIDDEN)
    yield from both("emb_ln", HIDDEN)
    for i in range(LAYERS):
        layer = "encoder.layers.%d." % i
        yield from both(layer + "attn.Wqkv", 3 * HIDDEN, HIDDEN)
        yield from both(layer + "attn.out_proj", HIDDEN, HIDDEN)
        if is_sparse(i):
            yield layer + "mlp.router.layer.weight", (EXPERTS, HIDDEN)
            yield layer + "mlp.experts.mlp.w1", (EXPERTS * INNER, HIDDEN)
            yield layer + "mlp.experts.mlp.w2", (EXPERTS * INNER, HIDDEN)
            if has_bias:
                yield layer + "mlp.experts.bias", (HIDDEN,)
        else:
            yield from both(layer + "mlp.fc1", INNER, HIDDEN)
            yield from both(layer + "mlp.fc2", HIDDEN, INNER)
        yield from both(layer + "norm1", HIDDEN)
        yield from both(layer + "norm2", HIDDEN)


def config():
    return {"architectures": ["NomicBertModel"], "model_type": "nomic_bert", "activation_function": "gelu", "causal": False, "n_embd": HIDDEN,
            "n_head": HEADS, "n_inner": INNER, "n_layer": LAYERS, "n_positions": POSITIONS, "layer_norm_epsilon": EPS, "pad_vocab_size_multiple": 1,
            "parallel_block": False, "parallel_block_tied_norm": False, "prenorm": False, "qkv_proj_bias": True, "mlp_fc1_bias": True,
            "mlp_fc2_bias": True, "rotary_emb_base": THETA, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None,
            "rotary_scaling_factor": None, "max_trained_positions": 2048, "scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True,
            "type_vocab_size": 1, "use_rms_norm": False, "vocab_size": len(WORDS), "pad_token_id": 1, "moe_every_n_layers": PERIOD, "moe_top_k": CHOSEN,
            "moe_normalize_expert_weights": False, "num_experts": EXPERTS, "num_shared_experts": 0, "expert_choice_router": False, "ffn_div": 1}


def write(path, pooling, has_bias=True, change=lambda values: None, **changes):
    """change: of the tensors, by their names."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps({**config(), **changes}))
    values = {name: make_values(name, shape) for name, shape in tensors(has_bias)}
    change(values)
    write_safetensors(path / "model.safetensors", values)
    (path / "tokenizer.json").write_text(json.dumps(encoder.roberta_tokenizer()))
    encoder.write_pooling(path, pooling)


MORE_NAMES = GGUF_NAMES + (("mlp.fc1", "ffn_up"), ("mlp.router.layer", "ffn_gate_inp"), ("mlp.experts.mlp.w1", "ffn_up_exps.weight"),
                           ("mlp.experts.mlp.w2", "ffn_down_exps.weight"))


def gguf_values(name, shape):
    values = make_values(name, shape)
    if "experts.mlp" not in name:
        return values
    values = values.reshape(EXPERTS, INNER, HIDDEN)
    return np.ascontiguousarray(values.swapaxes(1, 2)) if name.endswith("w2") else values


def write_gguf(path, pooling_type, **changes):
    """As llama.cpp's converter leaves it, all in f32: without the bias of what experts make together. changes: of numbers among the keys; None: not there."""
    numbers = {"block_count": LAYERS, "context_length": POSITIONS, "embedding_length": HIDDEN, "feed_forward_length": INNER,
               "attention.head_count": HEADS, "pooling_type": pooling_type, "moe_every_n_layers": PERIOD, "expert_count": EXPERTS,
               "expert_used_count": CHOSEN, **changes}
    keys = {"nomic-bert-moe." + name: struct.pack("<II", 4, number) for name, number in numbers.items() if number is not None}
    keys["nomic-bert-moe.attention.layer_norm_epsilon"] = struct.pack("<If", 6, EPS)
    keys["nomic-bert-moe.rope.freq_base"] = struct.pack("<If", 6, THETA)
    keys["nomic-bert-moe.attention.causal"] = struct.pack("<I?", 7, False)
    keys.update(encoder.gguf_scores("nomic-bert-moe"))
    encoder.write_gguf_file(path, keys, [(encoder.gguf_name(n, MORE_NAMES), gguf_values(n, s)) for n, s in tensors(False)])


def states(ids, has_bias=True):
    """The last hidden states of a list of ids, in float32. torch is wanted here alone."""
    import torch
    from torch.nn import functional as F
    w = {name: torch.from_numpy(make_values(name, shape)) for name, shape in tensors(has_bias)}
    dim, num = HIDDEN // HEADS, len(ids)
    angles = torch.arange(num).float()[:, None] / THETA ** (torch.arange(0, dim, 2).float() / dim)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]

    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    def norm(x, name):
        return F.layer_norm(x, (HIDDEN,), w[name + ".weight"], w[name + ".bias"], EPS)

    def rotate(x):
        one, two = x.chunk(2, -1)
        return torch.cat((one * cos - two * sin, two * cos + one * sin), -1)

    def attention(x, layer):
        q, k, v = linear(x, layer + "attn.Wqkv").view(num, 3, HEADS, dim).unbind(1)
        heads = F.scaled_dot_product_attention(*(t.transpose(0, 1)[None] for t in (rotate(q), rotate(k), v)))[0]
        return linear(heads.transpose(0, 1).reshape(num, HIDDEN), layer + "attn.out_proj")

    def experts(x, layer):
        scores, chosen = F.linear(x, w[layer + "mlp.router.layer.weight"]).softmax(-1).topk(CHOSEN, -1)
        w1, w2 = (w[layer + "mlp.experts.mlp." + n].view(EXPERTS, INNER, HIDDEN) for n in ("w1", "w2"))
        out = torch.zeros_like(x)
        for row in range(num):
            for score, e in zip(scores[row], chosen[row]):
                out[row] += score * (F.gelu(x[row] @ w1[e].t()) @ w2[e])
        return out + w[layer + "mlp.experts.bias"] if has_bias else out

    x = norm(w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][0], "emb_ln")
    for i in range(LAYERS):
        layer = "encoder.layers.%d." % i
        x = norm(x + attention(x, layer), layer + "norm1")
        mlp = experts(x, layer) if is_sparse(i) else linear(F.gelu(linear(x, layer + "mlp.fc1")), layer + "mlp.fc2")
        x = norm(x + mlp, layer + "norm2")
    return x
