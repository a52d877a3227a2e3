#!/usr/bin/env python3
"""Writes unicode_table.h: the properties of code points as Hugging Face's tokenizers sees them.

The reference mixes several editions of Unicode (its regex engine, Rust's char methods and its NFC crate each bring
their own), so the classes are not taken from one edition of UnicodeData.txt but asked of the package itself, code
point by code point. Made with tokenizers 0.23.3 and libutf8proc 2.8:

    pip install tokenizers==0.23.3 && text/tokenizer/make_unicode_table.py > text/tokenizer/unicode_table.h
"""
import ctypes

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
CHUNK = 4096


def chunks():
    for i in range(0, len(POINTS), CHUNK):
        yield POINTS[i : i + CHUNK]


def regex_class(pattern):
    """Code points that the regex engine of the Split pre-tokenizer puts into the class."""
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    found = set()
    for chunk in chunks():
        kept = set()
        for piece, _ in split.pre_tokenize_str("".join(map(chr, chunk))):
            kept.update(piece)
        found.update(c for c in chunk if chr(c) not in kept)
    return found


def numeric_class():
    """Code points that the Digits pre-tokenizer isolates."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    found = set()
    for chunk in chunks():
        text = "x" + "x".join(map(chr, chunk)) + "x"
        found.update(ord(p) for p, _ in digits.pre_tokenize_str(text) if len(p) == 1 and p != "x")
    return found


def added_token_probe(**flags):
    t = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    t.add_tokens([AddedToken("QQ", normalized=False, **flags)])
    qq = t.token_to_id("QQ")
    for chunk in chunks():
        text = "".join(chr(c) + "QQ\x01" for c in chunk)
        encoding = t.encode(text)
        yield chunk, [o for i, o in zip(encoding.ids, encoding.offsets) if i == qq]


def word_class():
    r"""\w beside a single_word token: the token is not found there."""
    found = set()
    for chunk, offsets in added_token_probe(single_word=True):
        matched = {begin for begin, _ in offsets}
        found.update(c for k, c in enumerate(chunk) if 4 * k + 1 not in matched)
    return found


def strip_class():
    """White space that an lstrip token swallows."""
    found = set()
    for chunk, offsets in added_token_probe(lstrip=True):
        found.update(chunk[begin // 4] for begin, end in offsets if end - begin == 3)
    return found


def nfc_active_class():
    """Code points at which NFC may have work to do: they change by themselves, or they are reordered, or they
    compose with what stands before. The reference's edition is old; it leaves newer marks alone."""
    nfc = normalizers.NFC().normalize_str
    utf8proc = ctypes.CDLL("libutf8proc.so.2")
    utf8proc.utf8proc_NFD.argtypes = [ctypes.c_char_p]
    utf8proc.utf8proc_NFD.restype = ctypes.c_void_p

    def nfd(text):
        return ctypes.string_at(utf8proc.utf8proc_NFD(text.encode())).decode()

    active = set()
    firsts, seconds = set(), set()
    for c in POINTS[1:]:
        x = chr(c)
        if nfc(x) != x or nfc("a" + x + "\u0334") != "a" + x + "\u0334" or nfc("a\u0345" + x) != "a\u0345" + x:
            active.add(c)
        parts = nfd(x)
        if len(parts) > 1 and not 0xAC00 <= c < 0xD7A4:
            firsts.add(parts[0])
            seconds.add(parts[-1])
            firsts.add(nfc(parts[:-1]))
    for second in seconds:
        if any(nfc(first + second) != first + second for first in firsts if len(first) == 1):
            active.add(ord(second))
    active.update(range(0x1161, 0x1176))  # Hangul vowels and final consonants
    active.update(range(0x11A8, 0x11C3))
    return active


def properties():
    categories = [
        (1, regex_class(r"[\p{Lu}\p{Lt}]")),
        (2, regex_class(r"\p{Ll}")),
        (3, regex_class(r"[\p{Lm}\p{Lo}]")),
        (4, regex_class(r"\p{M}")),
        (5, regex_class(r"\p{N}")),
        (6, regex_class(r"\s")),
    ]
    letters = regex_class(r"\p{L}")
    assert letters == categories[0][1] | categories[1][1] | categories[2][1]
    assert categories[5][1] == strip_class()
    table = bytearray(0x110000)
    for value, members in categories:
        for c in members:
            assert table[c] == 0
            table[c] = value
    bits = (8, numeric_class()), (16, word_class()), (32, nfc_active_class()), (64, regex_class(r"\p{P}")), (128, regex_class(r"\p{S}"))
    for bit, members in bits:
        for c in members:
            table[c] |= bit
    return table


def print_table(name, table, block_points=128):
    """Of one byte a code point: blocks, and an index of them."""
    blocks, index = [], []
    for i in range(0, len(table), block_points):
        block = bytes(table[i : i + block_points])
        if block not in blocks:
            blocks.append(block)
        index.append(blocks.index(block))
    assert len(blocks) <= 256
    runs = []  # of the index, which is nearly constant in the upper planes
    for value in index:
        if runs and runs[-1][1] == value:
            runs[-1][0] += 1
        else:
            runs.append([1, value])
    print("static const unsigned char %s_blocks[%d][%d] = {" % (name, len(blocks), block_points))
    for block in blocks:
        print("    {" + ",".join(map(str, block)) + "},")
    print("};")
    print("static const unsigned char %s_index[%d] = {" % (name, len(index)))
    at = 0
    for count, value in runs:
        print("    [%d%s] = %d," % (at, "" if count == 1 else " ... %d" % (at + count - 1), value))
        at += count
    print("};")


def main():
    table = properties()
    print("/* Made by make_unicode_table.py with tokenizers %s; do not edit. */" % tokenizers.__version__)
    print("/* clang-format off */")
    print("const unsigned char unicode_ascii[128] = {" + ",".join(map(str, table[:128])) + "};")
    print_table("unicode", table, 256)


if __name__ == "__main__":
    main()
