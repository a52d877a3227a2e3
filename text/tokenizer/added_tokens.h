/* added_tokens.h - finds the tokens that are cut out of a text before anything else looks at it.
 *
 * Leftmost match first, at one place the longest. Time is linear in the text times the longest token.
 * Filled by add, then index once, then read-only. Owner: the tokenizer. Thread: any once indexed. */
#ifndef TEXT_TOKENIZER_ADDED_TOKENS_H
#define TEXT_TOKENIZER_ADDED_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { ADDED_TOKEN_BYTES_MAX = 512 };

struct added_token {
    char *content; /* owned */
    size_t num_bytes;
    int32_t id;
    bool special;        /* a control token */
    bool shown;          /* one that decoded text keeps */
    bool single_word;    /* not beside a word character */
    bool lstrip, rstrip; /* swallows white space on that side */
};

struct added_tokens {
    struct added_token *tokens; /* sorted by content once indexed */
    int32_t num_tokens, capacity;
    int32_t first[257]; /* tokens whose first byte is b: first[b] to first[b + 1] */
};

struct added_match {
    size_t begin, end; /* swallowed white space included */
    int32_t id;
};

void added_tokens_init(struct added_tokens *a);
void added_tokens_deinit(struct added_tokens *a);

/* content is copied; 1 to ADDED_TOKEN_BYTES_MAX bytes. */
int added_tokens_add(struct added_tokens *a, const struct added_token *token, struct error *err) must_check;
int added_tokens_index(struct added_tokens *a, struct error *err) must_check;

/* The id of the token with exactly this content, or -1. */
int32_t added_tokens_find(const struct added_tokens *a, const char *content, size_t num_bytes);

/* A search through text from begin to end. */
struct added_search {
    const struct added_tokens *tokens;
    const char *text;
    size_t begin, end;
    size_t swallow_begin,
        swallow_end;   /* lstrip and rstrip may take white space from begin and end on up to here */
    bool skip_special; /* the text of a control token is passed over as plain text */
    size_t at;         /* begin at first */
};
bool added_search_next(struct added_search *s, struct added_match *match);

#endif
