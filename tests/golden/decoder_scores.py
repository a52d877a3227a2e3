"""Small decoders with a head that scores pairs, as Qwen3-Reranker is converted, as a directory: encoder.py has the way of it."""
import json

import encoder
import encoder_llama
from encoder import HIDDEN, POSITIONS, make_values, write_safetensors

DIM, TEMPLATE = 16, "why {query} is\nthe {document} over"
GEMMA = {"head_dim": DIM, "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh"}
KINDS = {
    "Llama": {"rms_norm_eps": 1e-5, "tie_word_embeddings": False},
    "Mistral": {"sliding_window": 32},
    "Qwen2": {"use_sliding_window": False},
    "Qwen3": {"head_dim": DIM, "use_sliding_window": False},
    "Gemma": GEMMA,
    "Gemma2": {**GEMMA, "sliding_window": 32, "query_pre_attn_scalar": 24},
}


def config(kind):
    base = encoder_llama.config("qwen2")
    del base["is_causal"], base["use_sliding_window"], base["tie_word_embeddings"]
    return {**base, "architectures": [kind + "ForSequenceClassification"], "model_type": kind.lower(), "max_position_embeddings": POSITIONS + 200,
            "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, **KINDS[kind]}


def tensors(kind):
    """(name, shape), as a directory has them."""
    dim = KINDS[kind].get("head_dim", encoder_llama.DIM)
    for name, shape in encoder_llama.tensors("qwen2" if kind == "Qwen2" else "llama"):
        heads = encoder_llama.HEADS if "q_proj" in name or "o_proj" in name else encoder_llama.KV_HEADS
        if "o_proj" in name:
            shape = (HIDDEN, heads * dim)
        elif "self_attn" in name:
            shape = (heads * dim,) + shape[1:]
        yield "model." + name, shape
    for i in range(encoder_llama.LAYERS):
        layer = "model.layers.%d." % i
        if kind == "Qwen3":
            yield from ((layer + "self_attn.%s_norm.weight" % name, (dim,)) for name in "qk")
        if kind == "Gemma2":
            yield from ((layer + "%s_feedforward_layernorm.weight" % name, (HIDDEN,)) for name in ("pre", "post"))
    yield "score.weight", (1, HIDDEN)


def tokenizer(kind):
    """Llama's begins each text with a token; others add nothing, so that one text follows the other."""
    own = encoder.tokenizer()
    begin, parts = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}, own["post_processor"]
    parts["single"] = [begin, {"Sequence": {"id": "A", "type_id": 0}}]
    parts["pair"] = [*parts["single"], {"SpecialToken": {"id": "[CLS]", "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}]
    if kind != "Llama":
        own["post_processor"] = None
    return own


def write(path, kind, **changes):
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps({**config(kind), **changes}))
    write_safetensors(path / "model.safetensors", {name: make_values(name, shape) for name, shape in tensors(kind)})
    (path / "tokenizer.json").write_text(json.dumps(tokenizer(kind)))
