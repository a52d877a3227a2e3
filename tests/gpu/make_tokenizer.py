"""Writes a tokenizer.json in which every id of a vocabulary has a text: for servers with random weights.

    make_tokenizer.py FOLDER    FOLDER holds a config.json
"""
import json
import pathlib
import sys

folder = pathlib.Path(sys.argv[1])
size = json.loads((folder / "config.json").read_text())["vocab_size"]
printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
shifted = iter(range(256, 512))
letters = [chr(b) if b in printable else chr(next(shifted)) for b in range(256)]  # bytes as byte-level BPE writes them
words = letters + ["t%d" % i for i in range(256, size)]
model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
         "fuse_unk": False, "byte_fallback": False, "vocab": {w: i for i, w in enumerate(words)}, "merges": []}
byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
(folder / "tokenizer.json").write_text(json.dumps(
    {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
     "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level, "model": model}, ensure_ascii=False))
