"""Small encoders of EmbeddingGemma's kind, as a directory with dense layers behind the pooling and as a GGUF file: encoder.py has the way of it."""
import json
import struct

import numpy as np

import encoder
import encoder_rotating as rotating
from encoder import HIDDEN, INNER, POSITIONS, WORDS, make_values, write_safetensors

LAYERS, HEADS, DIM, WINDOW, PERIOD, EPS = 7, 3, 32, 64, 6, 1e-6
DENSE = (("2_Dense", HIDDEN, 150, False, "Identity"), ("3_Dense", 150, 50, False, "Identity"))
TANH = (("2_Dense", HIDDEN, 41, True, "Tanh"),)


def config(saved=False, **changes):
    """As published, or as the fifth transformers saves it."""
    types = ["sliding_attention" if (i + 1) % PERIOD else "full_attention" for i in range(LAYERS)]
    own = {"architectures": ["Gemma3TextModel"], "model_type": "gemma3_text", "vocab_size": len(WORDS), "hidden_size": HIDDEN,
           "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": 1,
           "head_dim": DIM, "query_pre_attn_scalar": DIM, "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": POSITIONS,
           "rms_norm_eps": EPS, "attention_bias": False, "attn_logit_softcapping": None, "final_logit_softcapping": None,
           "sliding_window": WINDOW, "use_bidirectional_attention": True, "layer_types": types, "pad_token_id": 0, "bos_token_id": 2,
           "eos_token_id": 3}
    if saved:
        own["rope_parameters"] = {"full_attention": {"rope_type": "default", "rope_theta": 1e6},
                                  "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    else:
        own.update(_sliding_window_pattern=PERIOD, rope_theta=1000000.0, rope_local_base_freq=10000.0, rope_scaling=None)
    return {**own, **changes}


def tensors():
    yield "embed_tokens.weight", (len(WORDS), HIDDEN)
    for i in range(LAYERS):
        layer = "layers.%d." % i
        for name, rows, cols in (("q", HEADS * DIM, HIDDEN), ("k", DIM, HIDDEN), ("v", DIM, HIDDEN), ("o", HIDDEN, HEADS * DIM)):
            yield layer + "self_attn.%s_proj.weight" % name, (rows, cols)
        yield layer + "self_attn.q_norm.weight", (DIM,)
        yield layer + "self_attn.k_norm.weight", (DIM,)
        for name, rows, cols in (("gate", INNER, HIDDEN), ("up", INNER, HIDDEN), ("down", HIDDEN, INNER)):
            yield layer + "mlp.%s_proj.weight" % name, (rows, cols)
        for name in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            yield layer + name + "_layernorm.weight", (HIDDEN,)
    yield "norm.weight", (HIDDEN,)


def values(name, shape):
    """Norms count from 1."""
    made = make_values(name, shape)
    return made - 1 if len(shape) == 1 else made


def dense_values(folder, num_in, num_out, has_bias):
    matrix = make_values(folder + ".linear.weight", (num_out, num_in))
    return matrix, make_values(folder + ".linear.bias", (num_out,)) if has_bias else np.zeros(num_out, np.float32)


def through_dense(row, dense=DENSE):
    """What a pooled row becomes, in float64."""
    row = np.array(row, np.float64)
    for folder, num_in, num_out, has_bias, function in dense:
        matrix, bias = dense_values(folder, num_in, num_out, has_bias)
        row = matrix.astype(np.float64) @ row + bias
        row = np.tanh(row) if function == "Tanh" else row
    return row


def write_dense(path, folder, num_in, num_out, has_bias, function):
    (path / folder).mkdir(exist_ok=True)
    (path / folder / "config.json").write_text(json.dumps(
        {"in_features": num_in, "out_features": num_out, "bias": has_bias, "activation_function": "torch.nn.modules.x." + function}))
    matrix, bias = dense_values(folder, num_in, num_out, has_bias)
    write_safetensors(path / folder / "model.safetensors", {"linear.weight": matrix, **({"linear.bias": bias} if has_bias else {})})


def write(path, pooling="mean", dense=DENSE, **changes):
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config(**changes)))
    write_safetensors(path / "model.safetensors", {name: values(name, shape) for name, shape in tensors()})
    (path / "tokenizer.json").write_text(json.dumps(encoder.tokenizer()))
    encoder.write_pooling(path, pooling)
    modules = json.loads((path / "modules.json").read_text())
    modules[2:2] = [{"idx": 2, "name": "2", "path": d[0], "type": "sentence_transformers.models.Dense"} for d in dense]
    (path / "modules.json").write_text(json.dumps(modules))
    for layer in dense:
        write_dense(path, *layer)


GGUF_NAMES = (
    ("embed_tokens", "token_embd"), ("layers.", "blk."), ("self_attn.q_norm", "attn_q_norm"), ("self_attn.k_norm", "attn_k_norm"),
    ("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"), ("self_attn.v_proj", "attn_v"), ("self_attn.o_proj", "attn_output"),
    ("mlp.gate_proj", "ffn_gate"), ("mlp.up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down"), ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "post_attention_norm"), ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"))


def write_gguf(path, pooling_type=1, dense=DENSE):
    """As llama.cpp's converter leaves it, all in f32."""
    numbers = {"block_count": LAYERS, "context_length": POSITIONS, "embedding_length": HIDDEN, "feed_forward_length": INNER,
               "attention.head_count": HEADS, "attention.head_count_kv": 1, "attention.key_length": DIM, "attention.value_length": DIM,
               "attention.sliding_window": WINDOW, "pooling_type": pooling_type}
    numbers.update({"dense_%s_feat_%s" % (d[0][0], which): d[n] for d in dense for n, which in ((1, "in"), (2, "out"))})
    keys = {"gemma-embedding." + name: struct.pack("<II", 4, number) for name, number in numbers.items()}
    keys["gemma-embedding.attention.layer_norm_rms_epsilon"] = struct.pack("<If", 6, EPS)
    keys["gemma-embedding.rope.freq_base"] = struct.pack("<If", 6, 1000000.0)
    keys.update(encoder.gguf_words("gemma-embedding"))

    def short(name):
        return "output_norm.weight" if name == "norm.weight" else encoder.gguf_name(name, GGUF_NAMES)

    made = [(short(name), values(name, shape) + (len(shape) == 1)) for name, shape in tensors()]
    made += [("dense_%s.weight" % d[0][0], dense_values(*d[:4])[0]) for d in dense]
    encoder.write_gguf_file(path, keys, [(name, array.astype(np.float32)) for name, array in made])


LISTS = rotating.LISTS
