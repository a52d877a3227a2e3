"""Small models of BERT's kind, with a head that scores pairs or without, as a directory: sizes that are no multiples of anything, weights that are functions of their
names (make_encoder.py has transformers compute the same), a tokenizer of word pieces."""
import json
import struct
import zlib

import numpy as np

HIDDEN, LAYERS, HEADS, INNER, POSITIONS = 72, 3, 6, 200, 300
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", "?", "[", "]", "the", "sky", "is", "blue", "why", "over",
         "##ly", "##s", "der", "himmel", "ist", "bla", "##u", "天", "sep", "hello"]
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
WORDS = list(dict.fromkeys(WORDS + list(LETTERS) + ["##" + c for c in LETTERS]))
CONFIG = {
    "vocab_size": len(WORDS),
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": INNER,
    "max_position_embeddings": POSITIONS,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
}
ROBERTA = dict(CONFIG, type_vocab_size=1, max_position_embeddings=POSITIONS + 2, pad_token_id=1, layer_norm_eps=1e-5)
QUERY = "why is the sky blue"
DOCUMENTS = ["The sky is blue.", "Der Himmel ist bla\u00fa?", "", "WHY over overly skys", "x", "\u5929\u5929 the sky [SEP] hello", "the sky is over " * 40]
LISTS = [[2, 3], [2, 11, 3]] + [[2] + [(i * i * 7 + 5 * i + n) % len(WORDS) for i in range(n)] + [3] for n in (5, 62, 63, 190, 298)]

ROBERTA_LISTS = [[0] + [5 if i == 1 else i for i in ids[1:-1]] + [2] for ids in LISTS]  # 1 is the padding, which has no position


def tensors(config=CONFIG):
    """(name, shape), as a directory has them."""
    def norm(name):
        return [(name + ".weight", (HIDDEN,)), (name + ".bias", (HIDDEN,))]

    def linear(name, rows, cols):
        return [(name + ".weight", (rows, cols)), (name + ".bias", (rows,))]

    yield "embeddings.word_embeddings.weight", (config["vocab_size"], HIDDEN)
    yield "embeddings.position_embeddings.weight", (config["max_position_embeddings"], HIDDEN)
    yield "embeddings.token_type_embeddings.weight", (config["type_vocab_size"], HIDDEN)
    yield from norm("embeddings.LayerNorm")
    for i in range(LAYERS):
        layer = "encoder.layer.%d." % i
        for part in ("query", "key", "value"):
            yield from linear(layer + "attention.self." + part, HIDDEN, HIDDEN)
        yield from linear(layer + "attention.output.dense", HIDDEN, HIDDEN)
        yield from norm(layer + "attention.output.LayerNorm")
        yield from linear(layer + "intermediate.dense", INNER, HIDDEN)
        yield from linear(layer + "output.dense", HIDDEN, INNER)
        yield from norm(layer + "output.LayerNorm")


def head_tensors(roberta):
    """(name, shape) of what is not in the model itself, with a BERT's prefix."""
    names = ("classifier.dense", "classifier.out_proj") if roberta else ("bert.pooler.dense", "classifier")
    for name, rows in zip(names, (HIDDEN, 1)):
        yield name + ".weight", (rows, HIDDEN)
        yield name + ".bias", (rows,)


def score_config(roberta):
    return dict(ROBERTA if roberta else CONFIG, id2label={"0": "LABEL_0"}, label2id={"LABEL_0": 0})


def make_values(name, shape):
    values = np.random.RandomState(zlib.crc32(name.encode())).uniform(-1, 1, shape)
    if len(shape) == 1 and name.endswith(".weight"):  # of a norm
        return (1 + 0.5 * values).astype(np.float32)
    return (values * (0.3 if len(shape) == 1 else 1 if "embeddings" in name else 3 / shape[1] ** 0.5)).astype(np.float32)


def write_safetensors(path, values):
    header, at = {}, 0
    for name, array in values.items():
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(a.tobytes() for a in values.values()))


def tokenizer():
    special = [dict(id=i, content=w, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
               for i, w in enumerate(WORDS[:5])]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                       "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
            "pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                     {"SpecialToken": {"id": "[SEP]", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}},
                     {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
            "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
                               "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}}},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": {w: i for i, w in enumerate(WORDS)}}}


def roberta_tokenizer():
    """Of scores; the same number of tokens."""
    words = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "\u2581", "\u2581the", "\u2581sky", "\u2581is", "\u2581blue", "er", "ist"]
    words += [c for c in LETTERS + ".,?!-+*/()[]{}:;_=%&<>|^~\u00e4\u00f6\u00fc\u00df\u5929\u0439\u05d0\u0e01\u3042\uac00\u00e9\u00e8"]
    words = words[:len(WORDS)] + ["\u2581" + c for c in LETTERS[: len(WORDS) - len(words)]]
    assert len(set(words)) == len(WORDS)
    special = [dict(id=i, content=w, single_word=False, lstrip=w == "<mask>", rstrip=False, normalized=False, special=True)
               for i, w in enumerate(words[:5])]
    meta = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, meta]},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": "</s>", "type_id": 0}}],
            "pair": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                     {"SpecialToken": {"id": "</s>", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}},
                     {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "</s>", "type_id": 1}}],
            "special_tokens": {w: {"id": w, "ids": [i], "tokens": [w]} for i, w in ((0, "<s>"), (2, "</s>"))}},
        "decoder": meta,
        "model": {"type": "Unigram", "unk_id": 3, "vocab": [[w, -0.37 * i] for i, w in enumerate(words)], "byte_fallback": False}}


def write_pooling(path, pooling):
    names = ("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")
    modules = [{"idx": i, "name": str(i), "path": folder, "type": "sentence_transformers.models." + name}
               for i, (name, folder) in enumerate(names)]
    (path / "modules.json").write_text(json.dumps(modules))
    (path / "1_Pooling").mkdir(exist_ok=True)
    (path / "1_Pooling" / "config.json").write_text(json.dumps(
        {"pooling_mode_cls_token": pooling == "cls", "pooling_mode_mean_tokens": pooling == "mean",
         "pooling_mode_lasttoken": pooling == "lasttoken"}))


def write_directory(path, pooling, prefix="", longest=None, roberta=None):
    """pooling: "cls" or "mean"; roberta: the name of a class in the place of BertModel."""
    path.mkdir(parents=True, exist_ok=True)
    base = ROBERTA if roberta else CONFIG
    config = dict(base, architectures=[roberta or "BertModel"], model_type="xlm-roberta" if roberta else "bert",
                  position_embedding_type="absolute")
    (path / "config.json").write_text(json.dumps(config))
    write_safetensors(path / "model.safetensors", {prefix + name: make_values(name, shape) for name, shape in tensors(base)})
    (path / "tokenizer.json").write_text(json.dumps(roberta_tokenizer() if roberta else tokenizer()))
    names = ("<s>", "</s>") if roberta else ("[CLS]", "[SEP]")
    (path / "tokenizer_config.json").write_text(json.dumps(dict(zip(("cls_token", "sep_token"), names))))
    write_pooling(path, pooling)
    if longest:
        (path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": longest, "do_lower_case": False}))


def write_scorer(path, roberta=False, **changes):
    """A model with a head; changes: of its config.json."""
    base = ROBERTA if roberta else CONFIG
    name = "XLMRobertaForSequenceClassification" if roberta else "BertForSequenceClassification"
    write_directory(path, "cls", prefix="roberta." if roberta else "bert.", roberta=name if roberta else None)
    for extra in ("modules.json", "1_Pooling/config.json"):
        (path / extra).unlink()
    config = dict(json.loads((path / "config.json").read_text()), **score_config(roberta), architectures=[name])
    (path / "config.json").write_text(json.dumps(dict(config, **changes)))
    prefix = "roberta." if roberta else "bert."
    values = {prefix + name: make_values(name, shape) for name, shape in tensors(base)}
    values.update((name, make_values(name, shape)) for name, shape in head_tensors(roberta))
    write_safetensors(path / "model.safetensors", values)


GGUF_NAMES = (
    ("embeddings.word_embeddings", "token_embd"), ("embeddings.position_embeddings", "position_embd"),
    ("embeddings.token_type_embeddings", "token_types"), ("embeddings.LayerNorm", "token_embd_norm"), ("encoder.layer.", "blk."),
    ("attention.self.query", "attn_q"), ("attention.self.key", "attn_k"), ("attention.self.value", "attn_v"),
    ("attention.output.dense", "attn_output"), ("attention.output.LayerNorm", "attn_output_norm"),
    ("intermediate.dense", "ffn_up"), ("output.dense", "ffn_down"), ("output.LayerNorm", "layer_output_norm"), ("classifier.dense", "cls"), ("classifier.out_proj", "cls.output"),
    ("bert.pooler.dense", "cls"), ("classifier", "cls.output"))


def gguf_text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf_array(kind, items):
    return struct.pack("<IIQ", 9, kind, len(items)) + b"".join(items)


def gguf_words(architecture):
    """Keys of the architecture's name and of the tokenizer of word pieces."""
    def words():
        for i, w in enumerate(WORDS):
            yield w if i < 5 else w[2:] if w.startswith("##") else "\u2581" + w

    numbers = {"token_type_count": 2, "cls_token_id": 2, "seperator_token_id": 3, "unknown_token_id": 1}
    keys = {"tokenizer.ggml." + name: struct.pack("<II", 4, number) for name, number in numbers.items()}
    keys["general.architecture"] = struct.pack("<I", 8) + gguf_text(architecture)
    keys["tokenizer.ggml.model"] = struct.pack("<I", 8) + gguf_text("bert")
    keys["tokenizer.ggml.tokens"] = gguf_array(8, [gguf_text(w) for w in words()])
    keys["tokenizer.ggml.token_type"] = gguf_array(5, [struct.pack("<i", 3 if i < 5 else 1) for i in range(len(WORDS))])
    return keys


def gguf_scores(architecture):
    """The same, of the tokenizer of scores."""
    keys, vocab = gguf_words(architecture), roberta_tokenizer()["model"]["vocab"]
    for name, number in (("cls", 0), ("seperator", 2), ("bos", 0), ("eos", 2), ("unknown", 3)):
        keys["tokenizer.ggml.%s_token_id" % name] = struct.pack("<II", 4, number)
    keys["tokenizer.ggml.token_type_count"] = struct.pack("<II", 4, 1)
    keys["tokenizer.ggml.model"] = struct.pack("<I", 8) + gguf_text("t5")
    keys["tokenizer.ggml.tokens"] = gguf_array(8, [gguf_text(w) for w, _ in vocab])
    keys["tokenizer.ggml.scores"] = gguf_array(6, [struct.pack("<f", score) for _, score in vocab])
    keys["tokenizer.ggml.remove_extra_whitespaces"] = struct.pack("<I?", 7, True)
    return keys


def gguf_name(name, names):
    """What a tensor is called there, by pairs of what stands in its name and what then does."""
    for long_name, short in names:
        name = name.replace(long_name, short)
    return name


def write_gguf_file(path, keys, named):
    """named: (name in the file, array)."""
    named = list(named)
    infos, data = b"", b""
    for name, values in named:
        infos += gguf_text(name) + struct.pack("<I%dQIQ" % values.ndim, values.ndim, *values.shape[::-1], 0, len(data))
        data += values.tobytes()
        data += bytes(-len(data) % 32)
    head = struct.pack("<IIQQ", 0x46554747, 3, len(named), len(keys)) + b"".join(gguf_text(k) + v for k, v in keys.items()) + infos
    path.write_bytes(head + bytes(-len(head) % 32) + data)


def gguf_shape(pooling_type, eps):
    """Keys of BERT's sizes; pooling_type None: they say nothing of it."""
    numbers = {"bert.block_count": LAYERS, "bert.context_length": POSITIONS, "bert.embedding_length": HIDDEN,
               "bert.feed_forward_length": INNER, "bert.attention.head_count": HEADS, "bert.pooling_type": pooling_type}
    keys = {name: struct.pack("<II", 4, number) for name, number in numbers.items() if number is not None}
    keys["bert.attention.layer_norm_epsilon"] = struct.pack("<If", 6, eps)
    keys["bert.attention.causal"] = struct.pack("<I?", 7, False)
    return keys


def gguf_tensors(config, roberta, head):
    """(name in the file, array)."""
    for name, shape in list(tensors(config)) + (list(head_tensors(roberta)) if head else []):
        values = make_values(name, shape)
        if roberta and "position" in name:  # only those that are used
            values = values[2:]
        yield gguf_name(name, GGUF_NAMES), values


def write_gguf(path, pooling_type, roberta=False, head=False):
    """As llama.cpp's converter leaves it, all in f32; head: of one that ranks."""
    keys = gguf_shape(pooling_type, 1e-5 if roberta else 1e-12)
    keys.update(gguf_scores("bert") if roberta else gguf_words("bert"))
    write_gguf_file(path, keys, gguf_tensors(ROBERTA if roberta else CONFIG, roberta, head))
