/* bert_text.h - BERT's normalizer, and what its pre-tokenizer cuts at.
 *
 * The properties come from make_bert_table.py, which asks the reference itself. Thread: any. */
#ifndef TEXT_TOKENIZER_BERT_TEXT_H
#define TEXT_TOKENIZER_BERT_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

enum bert_property {
    BERT_DROPPED = 1,     /* a control character, as BERT_CLEAN sees it */
    BERT_SPACE = 2,       /* becomes a space by BERT_CLEAN */
    BERT_MARK = 4,        /* an accent */
    BERT_PUNCTUATION = 8, /* a piece by itself */
    BERT_GAP = 16,        /* white space between pieces */
    BERT_IDEOGRAPH = 32,  /* gets spaces around it by BERT_CHINESE */
    BERT_DECOMPOSES = 64,
    BERT_CAPITAL = 128,
};

/* Of the code point at p, where p < end, as utf8_decode sees it. */
unsigned bert_properties_at(const unsigned char *p, const unsigned char *end, int *num_bytes);

/* Steps of the normalizer, in their order. */
enum bert_step {
    BERT_CLEAN = 1,   /* control characters go, white space becomes spaces */
    BERT_CHINESE = 2, /* ideographs get spaces around them */
    BERT_ACCENTS = 4, /* decomposed, and accents go */
    BERT_LOWER = 8,
};

/* Appends the normalised text; out->failed says whether there was no memory. */
void bert_normalize(unsigned steps, const char *text, size_t num_bytes, struct buffer *out);

#endif
