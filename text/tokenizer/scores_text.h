/* scores_text.h - the scores of a Unigram model, out of the text of tokenizer.json: the reference reads a number of many digits not
 * to the nearest double but to its digits over a power of ten, and which of two cuts is better may hang on the last bit.
 * Thread: any. */
#ifndef TEXT_TOKENIZER_SCORES_TEXT_H
#define TEXT_TOKENIZER_SCORES_TEXT_H

#include <stdbool.h>
#include <stdint.h>

/* Of model.vocab, a list of [name, score], in a text that is JSON. False unless there are num pairs with finite scores. */
bool scores_text_read(const char *json, double *scores, int32_t num);

#endif
