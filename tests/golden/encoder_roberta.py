"""Small RoBERTas whose tokenizer has byte pairs, with a head that scores pairs or without, as a directory and as a GGUF file: encoder.py has the way of it."""
import json
import struct

import encoder
from encoder import ROBERTA, make_values, write_safetensors
from encoder_rotating import MERGES, byte_letters

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
WORDS = SPECIAL + byte_letters() + [m.replace(" ", "") for m in MERGES] + ["<mask>"]
CONFIG = dict(ROBERTA, vocab_size=len(WORDS))
LISTS = [[0, 2], [0, 7, 2]] + [[0] + [4 + (i * i * 7 + 5 * i + n) % (len(WORDS) - 4) for i in range(n)] + [2] for n in (5, 62, 190, 298)]


def tokenizer():
    added = [dict(id=WORDS.index(w), content=w, single_word=False, lstrip=w == "<mask>", rstrip=False, normalized=False, special=True)
             for w in SPECIAL + ["<mask>"]]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": level,
        "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True, "add_prefix_space": False},
        "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False,
                  "byte_fallback": False, "ignore_merges": False, "vocab": {w: i for i, w in enumerate(WORDS)}, "merges": MERGES}}


def write(path, pooling=None, head=False):
    """pooling: "cls" or "mean"; None with a head."""
    path.mkdir(parents=True, exist_ok=True)
    name = "RobertaForSequenceClassification" if head else "RobertaModel"
    config = dict(CONFIG, architectures=[name], model_type="roberta", **({"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}} if head else {}))
    (path / "config.json").write_text(json.dumps(config))
    values = {("roberta." if head else "") + name: make_values(name, shape) for name, shape in encoder.tensors(CONFIG)}
    if head:
        values.update((name, make_values(name, shape)) for name, shape in encoder.head_tensors(True))
    write_safetensors(path / "model.safetensors", values)
    (path / "tokenizer.json").write_text(json.dumps(tokenizer()))
    (path / "tokenizer_config.json").write_text(json.dumps({"cls_token": "<s>", "sep_token": "</s>"}))
    if pooling:
        encoder.write_pooling(path, pooling)


def write_gguf(path, pooling_type=None, head=False, says_ends=True):
    """As llama.cpp's converter leaves it, all in f32. says_ends: older ones say nothing of a text's."""
    keys = encoder.gguf_shape(pooling_type, 1e-5)
    keys.update(("tokenizer.ggml.%s_token_id" % name, struct.pack("<II", 4, number))
                for name, number in (("bos", 0), ("eos", 2), ("unknown", 3), ("seperator", 2), ("padding", 1), ("cls", 0), ("mask", len(WORDS) - 1)))
    keys["tokenizer.ggml.token_type_count"] = struct.pack("<II", 4, 1)
    if says_ends:
        keys.update(("tokenizer.ggml." + name, struct.pack("<I?", 7, True)) for name in ("add_bos_token", "add_eos_token", "add_sep_token"))
    for name, value in (("general.architecture", "bert"), ("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", "roberta-bpe")):
        keys[name] = struct.pack("<I", 8) + encoder.gguf_text(value)
    keys["tokenizer.ggml.tokens"] = encoder.gguf_array(8, [encoder.gguf_text(w) for w in WORDS])
    keys["tokenizer.ggml.token_type"] = encoder.gguf_array(5, [struct.pack("<i", 3 if w in SPECIAL + ["<mask>"] else 1) for w in WORDS])
    keys["tokenizer.ggml.merges"] = encoder.gguf_array(8, [encoder.gguf_text(m) for m in MERGES])
    encoder.write_gguf_file(path, keys, encoder.gguf_tensors(CONFIG, True, head))
