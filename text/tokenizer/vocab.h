/* vocab.h - the tokens of a tokenizer by id, and by what they match in a text.
 *
 * A token has a key, the bytes of text that the model's merges work on (for byte-level models the bytes
 * themselves, not Hugging Face's printable stand-ins), and a text, the bytes that it decodes to. Filled by
 * vocab_add, then vocab_index once, then read-only. Owner: the tokenizer. Thread: any once indexed. */
#ifndef TEXT_TOKENIZER_VOCAB_H
#define TEXT_TOKENIZER_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

enum { TOKEN_ID_MAX = (1 << 22) - 1 };

enum token_flags {
    TOKEN_EXISTS = 1,  /* ids may have gaps */
    TOKEN_SPECIAL = 2, /* a control token: never made of text that is not trusted, left out of decoded text */
    TOKEN_BYTE = 4,    /* <0xNN>: stands for one byte, its text */
    TOKEN_NO_KEY = 8,  /* the merges never see it */
    TOKEN_SHOWN = 16,  /* a control token that decoded text keeps */
};

struct vocab_token {
    uint32_t key_begin, key_bytes; /* in vocab->bytes */
    uint32_t text_begin, text_bytes;
    uint32_t flags;
};

struct vocab_slot {
    uint32_t tag; /* of the key's hash */
    int32_t id;   /* -1: empty */
};

struct vocab {
    struct vocab_token *tokens; /* num_ids entries */
    int32_t num_ids, capacity;
    struct buffer bytes;
    struct vocab_slot *slots; /* slot_mask + 1 entries, at most half of them used */
    uint32_t slot_mask;
};

void vocab_init(struct vocab *v);
void vocab_deinit(struct vocab *v);

/* Adds a token; an id that exists already is an error. key may equal text: then it is stored once. */
int vocab_add(struct vocab *v, int64_t id, const char *key, size_t key_bytes, const char *text,
              size_t text_bytes, unsigned flags, struct error *err) must_check;

/* Replaces the text of a token that exists. */
int vocab_set_text(struct vocab *v, int32_t id, const char *text, size_t text_bytes,
                   struct error *err) must_check;

/* Makes vocab_find work. Two tokens with one key are an error, or the lower id wins when tolerant. */
int vocab_index(struct vocab *v, bool tolerant, struct error *err) must_check;

/* The id of the token with this key, or -1. */
int32_t vocab_find(const struct vocab *v, const char *key, size_t key_bytes);

static inline bool vocab_has(const struct vocab *v, int64_t id)
{
    return id >= 0 && id < v->num_ids && (v->tokens[id].flags & TOKEN_EXISTS);
}

static inline unsigned vocab_flags(const struct vocab *v, int32_t id)
{
    return v->tokens[id].flags;
}

/* A token that text may turn into by itself: the id of one that is not special, or -1. */
static inline int32_t vocab_find_plain(const struct vocab *v, const char *key, size_t key_bytes)
{
    int32_t id = vocab_find(v, key, key_bytes);
    return id >= 0 && (vocab_flags(v, id) & TOKEN_SPECIAL) ? -1 : id;
}

const char *vocab_key(const struct vocab *v, int32_t id, size_t *num_bytes);
const char *vocab_text(const struct vocab *v, int32_t id, size_t *num_bytes);

/* Whether decoded text leaves it out. */
static inline bool vocab_is_hidden(const struct vocab *v, int32_t id)
{
    return (vocab_flags(v, id) & (TOKEN_SPECIAL | TOKEN_SHOWN)) == TOKEN_SPECIAL;
}

#endif
