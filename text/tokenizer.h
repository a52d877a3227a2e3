/* tokenizer.h - text to token ids and back, equal to Hugging Face's tokenizers on the models it supports.
 *
 * Built once from tokenizer.json (+ tokenizer_config.json) or from GGUF keys, then immutable: encode and
 * decode are pure functions that any thread may call at once. Time is linear (times a logarithm) in the
 * text, for any text. Input must be valid UTF-8.
 *
 * Trust: the text of an added token that is marked special (a control token) is recognised only where
 * the caller says that the text is its own; text typed by a user never becomes one. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

struct tokenizer;
struct gguf;

int tokenizer_open_directory(const char *directory, struct tokenizer **out, struct error *err) must_check;
int tokenizer_open_gguf(const struct gguf *gguf, struct tokenizer **out, struct error *err) must_check;
/* For random weights from a config.json alone: bytes are ids 0 to 255, the ids above decode to made-up words.
 */
int tokenizer_open_plain(int32_t vocab_size, struct tokenizer **out, struct error *err) must_check;
void tokenizer_close(struct tokenizer *t);

int32_t tokenizer_vocab_size(const struct tokenizer *t); /* highest id + 1 */
int32_t tokenizer_bos_id(const struct tokenizer *t);     /* -1: none */
int32_t tokenizer_eos_id(const struct tokenizer *t);     /* -1: none */
/* Tokens that TOKENIZER_ADD_SPECIAL puts before a text, and behind it. */
int32_t tokenizer_num_before(const struct tokenizer *t);
int32_t tokenizer_num_after(const struct tokenizer *t);
/* The id of this exact token text, or -1. */
int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t num_bytes);
bool tokenizer_is_special(const struct tokenizer *t, int32_t id); /* left out of decoded text */

/* A half-open range of bytes of a text. */
struct text_range {
    size_t begin, end;
};

struct token_list {
    int32_t *ids; /* malloc'd; the caller frees with token_list_deinit */
    int32_t num_ids, capacity;
};
/* STATUS_LIMIT when the list would have more than max_ids (it then has that many). */
int token_list_append(struct token_list *list, const int32_t *ids, int32_t num_ids,
                      int32_t max_ids) must_check;
void token_list_deinit(struct token_list *list);

/* Two texts in one list: there is a form for it. */
bool tokenizer_has_pairs(const struct tokenizer *t);

enum tokenizer_flags {
    TOKENIZER_ADD_SPECIAL = 1,   /* add BOS/EOS as the post-processor says */
    TOKENIZER_PARSE_SPECIAL = 2, /* control tokens in the text count as such, except in untrusted ranges */
};

/* Appends the ids of text to list. untrusted: ascending, disjoint ranges in which control tokens are
 * plain text (the pieces around a border are still tokenised as one text). STATUS_LIMIT when more than
 * max_tokens would result (the list then holds max_tokens). */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t num_bytes,
                     const struct text_range *untrusted, int num_untrusted, unsigned flags,
                     int32_t max_tokens, struct token_list *list) must_check;

/* Appends two texts, what stands around them and between, where the tokenizer has pairs; control tokens in them are plain text.
 * second_begin: the first token of the second's type, 0 where all have one type. Otherwise as tokenizer_encode. */
struct tokenizer_pair {
    const char *texts[2];
    size_t num_bytes[2];
};
int tokenizer_encode_pair(const struct tokenizer *t, const struct tokenizer_pair *pair, int32_t max_tokens,
                          struct token_list *list, int32_t *second_begin) must_check;

/* The raw bytes that a token stands for in the middle of a text (may be a part of a code point; empty
 * for ids without a token). Special tokens give their text. Points into the tokenizer. */
const char *tokenizer_token_bytes(const struct tokenizer *t, int32_t id, size_t *num_bytes);

/* Decodes a whole list (as Hugging Face's decode does; invalid UTF-8 becomes U+FFFD). */
void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, int32_t num_ids, bool skip_special,
                      struct buffer *out);

/* Incremental decoding: the concatenation of everything that push and finish append equals
 * tokenizer_decode of all pushed tokens, and every append is whole, valid UTF-8. */
struct detokenizer {
    const struct tokenizer *tokenizer;
    bool skip_special;
    bool at_start;           /* no token taken yet; set to false after init when the tokens continue a text */
    bool is_run_broken;      /* the run of byte tokens in progress is no UTF-8 */
    int num_strip;           /* leading characters that may still be stripped */
    int num_held, num_open;  /* bytes held back; how many of them are an unfinished code point */
    unsigned char held[256]; /* see tokenizer/decode.c */
};
void detokenizer_init(struct detokenizer *d, const struct tokenizer *t, bool skip_special);
void detokenizer_push(struct detokenizer *d, int32_t id, struct buffer *out);
void detokenizer_finish(struct detokenizer *d, struct buffer *out);

#endif
