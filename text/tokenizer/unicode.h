/* unicode.h - code points and their properties, as the reference tokenizer sees them.
 *
 * The table comes from make_unicode_table.py, which asks the reference itself: its regex engine, its digit
 * test and its NFC are of different editions of Unicode, and no single edition would be equal to it.
 * Thread: any. */
#ifndef TEXT_TOKENIZER_UNICODE_H
#define TEXT_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/utf8.h"

enum unicode_category {
    CATEGORY_OTHER,
    CATEGORY_UPPER,   /* Lu, Lt */
    CATEGORY_LOWER,   /* Ll */
    CATEGORY_UNCASED, /* Lm, Lo */
    CATEGORY_MARK,    /* M */
    CATEGORY_NUMBER,  /* N */
    CATEGORY_SPACE,   /* \s */
    UNICODE_CATEGORY = 7,
    UNICODE_NUMERIC = 8,      /* the Digits pre-tokenizer isolates it */
    UNICODE_WORD = 16,        /* \w next to a single_word token */
    UNICODE_NFC_ACTIVE = 32,  /* changes under NFC, is reordered, or composes with what stands before it */
    UNICODE_PUNCTUATION = 64, /* P */
    UNICODE_SYMBOL = 128,     /* S */
};

/* Any number up to 0xFFFFFFFF; beyond the last code point there are no properties. */
unsigned unicode_properties(uint32_t code_point);

extern const unsigned char unicode_ascii[128];

/* The properties of the code point at p, where p < end, as utf8_decode sees it. */
static inline unsigned unicode_properties_at(const unsigned char *p, const unsigned char *end, int *num_bytes)
{
    *num_bytes = 1;
    return *p < 0x80 ? unicode_ascii[*p] : unicode_properties(utf8_decode(p, end, num_bytes));
}

#endif
