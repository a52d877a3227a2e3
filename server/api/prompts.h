/* prompts.h - the token ids that a body asks to continue: one list per prompt.
 *
 * Completions take a string, strings, ids or lists of ids, with texts between ids, too. A string there is the raw prompt, which the client
 * may have rendered itself, so that control tokens in it count as such unless parse_special is false. Chat
 * renders messages through the model's template: the template's own text may hold control tokens, what a user
 * typed never becomes one. Every prompt leaves room for at least one token of
 * answer, and for max_tokens where given. Thread: any; a pure function of the body and of the server's
 * immutable tables. */
#ifndef SERVER_API_PROMPTS_H
#define SERVER_API_PROMPTS_H

#include "server/api/params.h"

struct prompt {
    struct token_list tokens;
    const char *text; /* with echo: as the client sent it, or decoded; of a chat the last message; of a pair
                         the document, if the client wants it back. In the arena; NULL: none */
    size_t text_bytes;
    int32_t num_added;     /* first tokens that the tokenizer added: they are not in text */
    bool text_has_special; /* control tokens are */
    int32_t second_begin;  /* of a pair for a model that scores pairs: request_slots.h */
    bool opens_reasoning;  /* the answer begins within a block of it; behind token ids it is not known */
};

struct prompts {
    struct prompt *items; /* in the arena; their token lists on the heap */
    int count;
    int num_dropped;              /* messages of a chat that had no room */
    int num_unseen;               /* parts of tools' results that are no text */
    struct token_list prediction; /* prediction.h; on the heap, too */
};

int prompts_read_completions(const struct server *server, const struct params *params, const cJSON *body,
                             struct arena *arena, struct prompts *out, struct api_error *err) must_check;

/* A prompt for each pair of queries and documents, in the form that the server's rerank template has; for a model that scores
 * pairs, in that of its tokenizer. */
int prompts_read_pairs(const struct server *server, const struct params *params, const cJSON *body,
                       struct arena *arena, struct prompts *out, struct api_error *err) must_check;

/* Takes the messages out of body. now_seconds: for templates that print the date. */
int prompts_read_chat(const struct server *server, const struct params *params, cJSON *body,
                      int64_t now_seconds, struct arena *arena, struct prompts *out,
                      struct api_error *err) must_check;

/* Also after a failed read. */
void prompts_deinit(struct prompts *p);

/* Renders body's messages with the template into out (chat, and /tokenize with messages). */
int prompts_render_chat(const struct server *server, const struct params *params, cJSON *body,
                        int64_t now_seconds, struct buffer *out, struct text_range **untrusted,
                        int *num_untrusted, struct api_error *err) must_check;

#endif
