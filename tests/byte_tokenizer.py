"""The smallest real tokenizer.json: byte-level BPE without merges, whose ids are the bytes, and special tokens behind them."""
import json


def spelled_bytes():
    """As GPT-2 spells bytes, in order."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return [chr(b) if b in plain else chr(256 + others.index(b)) for b in range(256)]


def write(folder, special_tokens=(), words=()):
    """special_tokens have the ids from 256 on, words, which text is cut at, too, those behind them."""
    added = [{"id": 256 + i, "content": text, "special": i < len(special_tokens), "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False} for i, text in enumerate((*special_tokens, *words))]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {"version": "1.0", "added_tokens": added, "pre_tokenizer": byte_level, "decoder": byte_level,
                 "model": {"type": "BPE", "vocab": {text: b for b, text in enumerate(spelled_bytes())}, "merges": []}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
