/* byte_map.h - GPT-2's printable stand-ins: each byte value is one character in a byte-level vocabulary file.
 * 33-126, 161-172 and 174-255 stand for themselves, the other 68 are U+0100 and up in order. Thread: any. */
#ifndef TEXT_TOKENIZER_BYTE_MAP_H
#define TEXT_TOKENIZER_BYTE_MAP_H

#include <stdbool.h>
#include <stddef.h>

/* Writes the bytes that content stands for to out (num_bytes of room are enough) and their number to
 * *out_bytes. False when a character of content is no stand-in. */
bool byte_map_decode(const char *content, size_t num_bytes, char *out, size_t *out_bytes);

#endif
