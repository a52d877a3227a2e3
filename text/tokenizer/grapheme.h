/* grapheme.h - extended grapheme clusters, by the rules and the table of Unicode 17, which the reference brings. Thread: any. */
#ifndef TEXT_TOKENIZER_GRAPHEME_H
#define TEXT_TOKENIZER_GRAPHEME_H

#include <stdbool.h>
#include <stdint.h>

/* Where the cluster ends that begins at p, where p < end. */
const unsigned char *grapheme_end(const unsigned char *p, const unsigned char *end);

/* Whether it is Extended_Pictographic. */
bool grapheme_is_picture(uint32_t code_point);

#endif
