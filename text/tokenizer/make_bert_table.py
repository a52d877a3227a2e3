#!/usr/bin/env python3
"""Writes bert_table.h: what BERT's normalizer and pre-tokenizer do to each code point, asked of the package itself as in
make_unicode_table.py, with which it shares its editions:

    pip install tokenizers==0.23.3 && text/tokenizer/make_bert_table.py > text/tokenizer/bert_table.h
"""
import ctypes

import tokenizers
from tokenizers import normalizers, pre_tokenizers

from make_unicode_table import POINTS, print_table

DROPPED, SPACE, MARK, PUNCTUATION, GAP, CHINESE, DECOMPOSES, CAPITAL = (1 << i for i in range(8))


def normalizer(**flags):
    off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**off, **flags}).normalize_str


def main():
    clean, chinese = normalizer(clean_text=True), normalizer(handle_chinese_chars=True)
    accents, lower = normalizer(strip_accents=True), normalizer(lowercase=True)
    nfd, cut = normalizers.NFD().normalize_str, pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    utf8proc = ctypes.CDLL("libutf8proc.so.2")
    table, others = bytearray(0x110000), []
    for c in POINTS:
        x = chr(c)
        between = "a" + x + "a"
        num_pieces = len(cut(between))
        capital = lower(x) != x
        table[c] = (
            DROPPED * (clean(between) == "aa")
            | SPACE * (clean(between) == "a a")
            | MARK * (accents(between) == "aa")
            | PUNCTUATION * (num_pieces == 3)
            | GAP * (num_pieces == 2)
            | CHINESE * (chinese(x) == " " + x + " ")
            | DECOMPOSES * (nfd(x) != x)
            | CAPITAL * capital
        )
        if capital and len(lower(x)) == 1 and utf8proc.utf8proc_tolower(c) != ord(lower(x)):
            others.append((c, ord(lower(x))))
        assert not capital or len(lower(x)) == 1 or lower(x) == "i\u0307"
    print("/* Made by make_bert_table.py with tokenizers %s; do not edit. */" % tokenizers.__version__)
    print("/* clang-format off */")
    print_table("bert", table)
    print("/* Capitals that utf8proc 2.8 does not know, and their small letters. */")
    print("static const uint32_t bert_capitals[%d][2] = {" % len(others))
    for pair in others:
        print("    {0x%X, 0x%X}," % pair)
    print("};")


main()
