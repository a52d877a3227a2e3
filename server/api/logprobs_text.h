/* logprobs_text.h - log probabilities of tokens as the two API formats write them.
 *
 *   chat         {"content":[{"token","logprob","bytes","top_logprobs":[...]}, ...],"refusal":null}
 *   completions  {"tokens":[],"token_logprobs":[],"top_logprobs":[{}],"text_offset":[]}
 *
 * Entries are added as they become known and written out, once, by logprobs_text_append, which begins a new
 * object; text_offset goes on counting, in characters. A token that is a part of a character has U+FFFD in
 * its text and its exact bytes in "bytes". Values are floored at -9999: JSON has no infinity. Thread: its
 * owner's. */
#ifndef SERVER_API_LOGPROBS_TEXT_H
#define SERVER_API_LOGPROBS_TEXT_H

#include "text/tokenizer.h"
#include "link/request_slots.h"
#include "server/api/params.h"

struct logprobs_text {
    enum api_kind kind;
    const struct tokenizer *tokenizer;
    bool token_ids_as_text;              /* "token_id:123" */
    int count;                           /* entries since the last append */
    int64_t offset_chars;                /* of the next token in the choice's text */
    struct buffer tokens;                /* chat: whole entries */
    struct buffer values, tops, offsets; /* completions only */
};

void logprobs_text_init(struct logprobs_text *t, enum api_kind kind, const struct tokenizer *tokenizer,
                        bool token_ids_as_text, size_t max_bytes);
void logprobs_text_deinit(struct logprobs_text *t);

/* lp NULL: the first token of a prompt, which nothing predicted. */
void logprobs_text_add(struct logprobs_text *t, int32_t token_id, const struct token_logprobs *lp);
void logprobs_text_append(struct logprobs_text *t, struct buffer *out);
bool logprobs_text_failed(const struct logprobs_text *t);

#endif
