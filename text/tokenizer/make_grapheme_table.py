#!/usr/bin/env python3
"""Writes grapheme_table.h: what Unicode's rules of grapheme clusters see of each code point. The reference (tokenizers 0.23.3)
brings Unicode 17; compare_tokenizers.py has every code point beside others.

    pip install regex==2025.11.3 && text/tokenizer/make_grapheme_table.py > text/tokenizer/grapheme_table.h
"""
import regex

from make_unicode_table import POINTS, print_table

CLASSES = ("CR", "LF", "Control", "Extend", "ZWJ", "Regional_Indicator", "Prepend", "SpacingMark", "L", "V", "T", "LV", "LVT")


def main():
    everything = "".join(map(chr, POINTS))

    def members(pattern):
        return [ord(c) for c in regex.findall(pattern, everything)]

    table = bytearray(0x110000)
    for i, name in enumerate(CLASSES):
        for c in members(r"\p{Grapheme_Cluster_Break=%s}" % name):
            table[c] = i + 1
    for i, pattern in enumerate((r"\p{Extended_Pictographic}", r"\p{Indic_Conjunct_Break=Consonant}")):
        for c in members(pattern):
            assert table[c] == 0
            table[c] = len(CLASSES) + 1 + i
    for bit, pattern in ((16, r"\p{Indic_Conjunct_Break=Extend}"), (32, r"\p{Indic_Conjunct_Break=Linker}")):
        for c in members(pattern):
            table[c] |= bit
    print("/* Made by make_grapheme_table.py with regex %s; do not edit. */" % regex.__version__)
    print("/* clang-format off */")
    print_table("grapheme", table)


main()
