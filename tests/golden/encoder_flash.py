"""Small models of Jina's own XLM-RoBERTa (jina-embeddings-v3, which rotates and has adapters for tasks, and jina-reranker-v2), as directories and as GGUF
files: encoder.py has the way of it."""
import json
import struct

import numpy as np

import encoder
from encoder import HIDDEN, INNER, LAYERS, POSITIONS, ROBERTA, make_values, write_safetensors

THETA, RANK, ALPHA = 20000.0, 4, 2
TASKS = ["retrieval.query", "retrieval.passage", "separation", "classification", "text-matching"]
INSTRUCTIONS = {"retrieval.query": "the sky: ", "retrieval.passage": "is blue: ", "separation": "", "classification": "", "text-matching": ""}
LISTS = encoder.ROBERTA_LISTS
MATRICES = ("word_embeddings", "token_type_embeddings", "Wqkv", "out_proj", "fc1", "fc2")
PARAMETRIZED = ".parametrizations.weight."


def tensors(has_positions=False):
    """(name, shape), as a directory without tasks has them, but for the prefix."""
    def both(name, rows, cols=None):
        return [(name + ".weight", (rows, cols) if cols else (rows,)), (name + ".bias", (rows,))]

    yield "embeddings.word_embeddings.weight", (ROBERTA["vocab_size"], HIDDEN)
    yield "embeddings.token_type_embeddings.weight", (1, HIDDEN)
    if has_positions:
        yield "embeddings.position_embeddings.weight", (POSITIONS + 2, HIDDEN)
    yield from both("emb_ln", HIDDEN)
    for i in range(LAYERS):
        layer = "encoder.layers.%d." % i
        yield from both(layer + "mixer.Wqkv", 3 * HIDDEN, HIDDEN)
        yield from both(layer + "mixer.out_proj", HIDDEN, HIDDEN)
        yield from both(layer + "norm1", HIDDEN)
        yield from both(layer + "mlp.fc1", INNER, HIDDEN)
        yield from both(layer + "mlp.fc2", HIDDEN, INNER)
        yield from both(layer + "norm2", HIDDEN)


def is_adapted(name):
    return name.endswith(".weight") and name.rsplit(".", 2)[-2] in MATRICES


def adapter_tensors(name, shape):
    """Of all tasks: what a matrix is multiplied by first, and then; tables of embeddings have both the other way round."""
    down, up = ((shape[0], RANK), (RANK, shape[1])) if "embeddings" in name else ((RANK, shape[1]), (shape[0], RANK))
    own = name[:-len(".weight")] + PARAMETRIZED
    yield own + "0.lora_A", (len(TASKS), *down)
    yield own + "0.lora_B", (len(TASKS), *up)


def adapter_values(name, shape):
    return make_values(name, shape) * np.float32(0.2 if "lora_B" in name else 1)


def published(has_tasks):
    """name: values."""
    out = {}
    for name, shape in tensors():
        if not has_tasks or not is_adapted(name):
            out[name] = make_values(name, shape)
            continue
        out[name[:-len(".weight")] + PARAMETRIZED + "original"] = make_values(name, shape)
        out.update((n, adapter_values(n, s)) for n, s in adapter_tensors(name, shape))
    return out


def merged(task):
    """The model's matrices with a task's adapters in them; None: without."""
    for name, shape in tensors():
        values = make_values(name, shape)
        if task is not None and is_adapted(name):
            a, b = (adapter_values(n, s)[TASKS.index(task)] for n, s in adapter_tensors(name, shape))
            values = values + (a @ b if "embeddings" in name else b @ a) * (ALPHA / RANK)
        yield name, values


def config(kind):
    common = dict(ROBERTA, model_type="xlm-roberta", use_flash_attn=True, use_reg_tokens=False, bos_token_id=0, eos_token_id=2)
    if kind == "scores":
        return dict(common, architectures=["XLMRobertaForSequenceClassification"], position_embedding_type="absolute", id2label={"0": "LABEL_0"},
                    label2id={"LABEL_0": 0})
    if kind == "saved":
        kept = {k: v for k, v in ROBERTA.items()}
        return dict(kept, architectures=["JinaEmbeddingsV3Model"], model_type="jina_embeddings_v3",
                    rope_parameters={"rope_theta": THETA, "rope_type": "default"})
    return dict(common, architectures=["XLMRobertaModel"], position_embedding_type="rotary", rotary_emb_base=THETA, emb_pooler=None, truncate_dim=None,
                lora_adaptations=TASKS, lora_alpha=ALPHA, lora_rank=RANK, lora_dropout_p=0.0, load_trained_adapters=True,
                task_instructions=INSTRUCTIONS, matryoshka_dimensions=[32, 64])


def write_modules(path):
    """As published: a class of its own reads texts."""
    encoder.write_pooling(path, "mean")
    modules = json.loads((path / "modules.json").read_text())
    modules[0].update(type="custom_st.Transformer", kwargs=["task"])
    (path / "modules.json").write_text(json.dumps(modules))


def write(path, kind, prefix="", change=lambda values: None, **changes):
    """kind: "tasks", "plain" (the same without adapters), "saved" (as transformers saves that) or "scores"; change: of the tensors, by their names."""
    path.mkdir(parents=True, exist_ok=True)
    own = config(kind)
    if kind == "plain":
        own = {k: v for k, v in own.items() if "lora" not in k and k != "task_instructions"}
    (path / "config.json").write_text(json.dumps({**own, **changes}))
    values = published(kind == "tasks") if kind != "scores" else {n: make_values(n, s) for n, s in tensors(has_positions=True)}
    values = {prefix + name: array for name, array in values.items()}
    if kind == "scores":
        values.update((n, make_values(n, s)) for n, s in encoder.head_tensors(True))
    change(values)
    write_safetensors(path / "model.safetensors", values)
    (path / "tokenizer.json").write_text(json.dumps(encoder.roberta_tokenizer()))
    (path / "tokenizer_config.json").write_text(json.dumps({"cls_token": "<s>", "sep_token": "</s>"}))
    if kind != "scores":
        write_modules(path)


GGUF_NAMES = (
    ("embeddings.word_embeddings", "token_embd"), ("embeddings.token_type_embeddings", "token_types"), ("embeddings.position_embeddings", "position_embd"),
    ("emb_ln", "token_embd_norm"), ("encoder.layers.", "blk."), ("mixer.Wqkv", "attn_qkv"), ("mixer.out_proj", "attn_output"),
    ("norm1", "attn_output_norm"), ("norm2", "layer_output_norm"), ("mlp.fc1", "ffn_up"), ("mlp.fc2", "ffn_down"), ("classifier.dense", "cls"),
    ("classifier.out_proj", "cls.output"))


def gguf_tensors(scores):
    for name, shape in list(tensors(scores)) + (list(encoder.head_tensors(True)) if scores else []):
        values = make_values(name, shape)
        yield encoder.gguf_name(name, GGUF_NAMES), values[2:] if "position" in name else values


def write_gguf(path, scores=False):
    """As llama.cpp's converter leaves it, all in f32; the tasks' adapters are files of their own there."""
    architecture = "bert" if scores else "jina-bert-v3"
    keys = {name.replace("bert.", architecture + ".", 1): value for name, value in encoder.gguf_shape(4 if scores else 1, 1e-5).items()}
    keys.update(encoder.gguf_scores(architecture))
    if not scores:
        keys["jina-bert-v3.rope.freq_base"] = struct.pack("<If", 6, THETA)
    encoder.write_gguf_file(path, keys, gguf_tensors(scores))


def transformers_roberta():
    """What transformers' own XLM-RoBERTa calls the tensors of one that scores pairs."""
    names = (("emb_ln", "embeddings.LayerNorm"), ("encoder.layers.", "encoder.layer."), ("mixer.out_proj", "attention.output.dense"),
             ("norm1", "attention.output.LayerNorm"), ("norm2", "output.LayerNorm"), ("mlp.fc1", "intermediate.dense"), ("mlp.fc2", "output.dense"))
    for name, shape in tensors(has_positions=True):
        values = make_values(name, shape)
        own = "roberta." + encoder.gguf_name(name, names)
        if "Wqkv" not in name:
            yield own, values
            continue
        for i, part in enumerate(("query", "key", "value")):
            yield own.replace("mixer.Wqkv", "attention.self." + part), values[i * HIDDEN:(i + 1) * HIDDEN]
    for name, shape in encoder.head_tensors(True):
        yield name, make_values(name, shape)
