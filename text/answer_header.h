/* answer_header.h - the tokens with which a chat template begins an answer: <|im_start|>assistant and a line's end, say. Thread: any. */
#ifndef TEXT_ANSWER_HEADER_H
#define TEXT_ANSWER_HEADER_H

#include "text/model_text.h"

/* Writes them to ids and returns how many: what add_generation_prompt adds, as far as it is the same with and without thinking.
 * 0: there is no template, it adds nothing behind the messages or more than max_ids, or no control token is among them, so that
 * words of anybody could look like it. */
int32_t answer_header_find(const struct model_text *text, int32_t *ids, int32_t max_ids);

#endif
