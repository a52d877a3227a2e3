/* nfc.h - Unicode normalisation form C in linear time. Thread: any. */
#ifndef TEXT_TOKENIZER_NFC_H
#define TEXT_TOKENIZER_NFC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

/* Whether normalisation would leave the text alone; may also say no when it would. */
bool nfc_is_normal(const char *text, size_t num_bytes);

/* Appends the normalised text; buffer_failed(out) when out of memory. */
void nfc_append(const char *text, size_t num_bytes, struct buffer *out);

#endif
