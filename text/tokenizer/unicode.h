/* unicode.h - code points and their properties, as the reference tokenizer sees them.
 *
 * The table comes from make_unicode_table.py, which asks the reference itself: its regex engine, its digit
 * test and its NFC are of different editions of Unicode, and no single edition would be equal to it. Text is
 * assumed to be valid UTF-8; on any other bytes the functions stay inside the text and go on byte by byte.
 * Thread: any. */
#ifndef TEXT_TOKENIZER_UNICODE_H
#define TEXT_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum unicode_category {
    CATEGORY_OTHER,
    CATEGORY_UPPER,   /* Lu, Lt */
    CATEGORY_LOWER,   /* Ll */
    CATEGORY_UNCASED, /* Lm, Lo */
    CATEGORY_MARK,    /* M */
    CATEGORY_NUMBER,  /* N */
    CATEGORY_SPACE,   /* \s */
    UNICODE_CATEGORY = 7,
    UNICODE_NUMERIC = 8,     /* the Digits pre-tokenizer isolates it */
    UNICODE_WORD = 16,       /* \w next to a single_word token */
    UNICODE_NFC_ACTIVE = 32, /* changes under NFC, is reordered, or composes with what stands before it */
};

/* Decodes the code point at p, where p < end. *num_bytes is 1 to 4 and never reaches past end. Bytes that are
 * no UTF-8 give U+FFFD, one byte at a time. */
uint32_t utf8_decode(const unsigned char *p, const unsigned char *end, int *num_bytes);

/* Any number up to 0xFFFFFFFF; beyond the last code point there are no properties. */
unsigned unicode_properties(uint32_t code_point);

extern const unsigned char unicode_ascii[128];

/* The properties of the code point at p, where p < end, as utf8_decode sees it. */
static inline unsigned unicode_properties_at(const unsigned char *p, const unsigned char *end, int *num_bytes)
{
    *num_bytes = 1;
    return *p < 0x80 ? unicode_ascii[*p] : unicode_properties(utf8_decode(p, end, num_bytes));
}

/* Writes 1 to 4 bytes and returns how many. */
int utf8_encode(uint32_t code_point, unsigned char *out);

/* The start of the code point that ends at p, where begin < p. */
const unsigned char *utf8_previous(const unsigned char *begin, const unsigned char *p);

bool utf8_is_valid(const unsigned char *p, size_t num_bytes);

/* How many bytes the code point that begins with this byte has in all; 0 for a byte that begins none. */
int utf8_sequence_bytes(unsigned char lead);

/* Whether byte may stand at position idx (1 to 3) of a sequence that begins with first and, when idx is 1,
 * obeys the rules against overlong forms, surrogates and numbers past U+10FFFF. */
bool utf8_may_follow(unsigned char first, int idx, unsigned char byte);

#endif
