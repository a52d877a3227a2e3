/* logprobs_text.h - log probabilities of tokens as the API formats write them, straight from the engine's
 * arrays.
 *
 *   chat         {"content":[{"token","logprob","bytes","top_logprobs":[...]}, ...],"refusal":null}
 *   completions  {"tokens":[],"token_logprobs":[],"top_logprobs":[{}],"text_offset":[]}
 *   prompt       [null, {"ID":{"logprob","rank","decoded_token"}, ...}, ...]   (prompt_logprobs, as vLLM)
 *
 * A token that is a part of a character has U+FFFD in its text and its exact bytes in "bytes". Values are
 * floored at -9999: JSON has no infinity. Thread: any. */
#ifndef SERVER_API_LOGPROBS_TEXT_H
#define SERVER_API_LOGPROBS_TEXT_H

#include "link/request_slots.h"
#include "server/api/token_offsets.h"

/* What a token was, and how likely. */
struct id_and_logprob {
    int32_t id;
    float logprob;
};

/* Positions [begin, end) of a sequence. Position 0 was predicted by nothing. */
struct logprobs_part {
    const struct tokenizer *tokenizer;
    bool token_ids_as_text;        /* "token_id:123" */
    bool with_ids;                 /* an entry of chat's has its "id" first, as llama.cpp's do */
    int32_t num_top;               /* alternatives told, of those there are */
    struct token_offsets *offsets; /* completions */
    int32_t begin, end, first;     /* first: the position of tokens[0] and logprobs[0] */
    const int32_t *tokens;
    const struct token_logprobs *logprobs;
};

void logprobs_append(struct buffer *out, enum api_kind kind, const struct logprobs_part *part);
/* The array of chat's content alone. */
void logprobs_append_entries(struct buffer *out, const struct logprobs_part *part);
/* {"id","text","logprob","special"}, as Text Generation Inference tells of a token. text: NULL: the token's own */
void logprobs_append_token(struct buffer *out, const struct tokenizer *tokenizer, struct id_and_logprob token,
                           const char *text, size_t num_bytes);
/* The array of those that were likeliest at a position, each with its own text. */
void logprobs_append_top_tokens(struct buffer *out, const struct logprobs_part *part, int32_t position);
/* Of a position that something predicted. */
struct id_and_logprob logprobs_of(const struct logprobs_part *part, int32_t position);
void prompt_logprobs_append(struct buffer *out, const struct logprobs_part *part);

#endif
