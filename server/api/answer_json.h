/* answer_json.h - the exact JSON of answers: chat completions and text completions, whole and as stream
 * chunks.
 *
 * Written by hand into a buffer, member by member in the order that OpenAI sends them. A stream's chunk is
 * one `data: {...}\n\n` event. Thread: the loop's. */
#ifndef SERVER_API_ANSWER_JSON_H
#define SERVER_API_ANSWER_JSON_H

#include "server/api/choice.h"

struct usage {
    int64_t prompt_tokens, completion_tokens, cached_tokens;
};

struct answer_head {
    enum api_kind kind;
    char id[48];     /* chatcmpl-... or cmpl-... */
    int64_t created; /* unix seconds */
    const char *model;
    bool usage_in_chunks;       /* include_usage: every chunk but the last says "usage":null */
    bool reports_cached_tokens; /* --report-cached-tokens */
};

/* What a chunk of one choice holds. */
struct chunk {
    int index;
    bool is_first; /* chat: says the role, and nothing else */
    const char *text;
    size_t text_bytes;
    const struct logprobs_part *logprobs; /* NULL: none in this chunk */
    const char *finish_reason;            /* NULL: not the last one */
    const struct usage *usage;            /* NULL: none */
};

void answer_append_chunk(struct buffer *out, const struct answer_head *head, const struct chunk *chunk);
void answer_append_usage_chunk(struct buffer *out, const struct answer_head *head, const struct usage *usage);
void answer_append_done(struct buffer *out);

/* The whole answer, once all choices are complete. */
void answer_append_whole(struct buffer *out, const struct answer_head *head, const struct choice *choices,
                         int num_choices, const struct choice_context *context, const struct usage *usage);

#endif
