/* utf8.h - code points and bytes. Text is assumed to be valid UTF-8; on any other bytes the functions stay
 * inside the text and go on byte by byte. Thread: any. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes the code point at p, where p < end. *num_bytes is 1 to 4 and never reaches past end. Bytes that are
 * no UTF-8 give U+FFFD, one byte at a time. */
uint32_t utf8_decode(const unsigned char *p, const unsigned char *end, int *num_bytes);

/* The bytes of the code point at p, where p < end: 1 to 4; 0: what is there is no UTF-8. */
int utf8_length(const unsigned char *p, const unsigned char *end);

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
