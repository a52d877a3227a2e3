/* number_text.h - numbers as JSON has them, many at a time: answers may have a million. Thread: any. */
#ifndef SERVER_API_NUMBER_TEXT_H
#define SERVER_API_NUMBER_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

enum { NUMBER_CHARS_MAX = 20 };

/* x, finite, of at most 9 digits that read as the same float; without an exponent from 1e-5 to 1e9. Both return how many
 * characters they wrote, and write no NUL. */
size_t number_write_float(char out[NUMBER_CHARS_MAX], float x);
size_t number_write_count(char out[NUMBER_CHARS_MAX], uint32_t x);

void number_append_float(struct buffer *out, float x);
void number_append_count(struct buffer *out, uint32_t x);

#endif
