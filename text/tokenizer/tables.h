/* tables.h - what a tokenizer is made of. Filled by one of the loaders through the functions below, then
 * read-only. */
#ifndef TEXT_TOKENIZER_TABLES_H
#define TEXT_TOKENIZER_TABLES_H

#include "text/tokenizer.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pretokenizer.h"
#include "text/tokenizer/unigram.h"
#include "text/tokenizer/vocab.h"
#include "text/tokenizer/wordpiece.h"

enum { TEMPLATE_IDS_MAX = 8 };

/* How tokens become text. What a token's own text is was settled when it was added. */
struct decoder {
    bool byte_level;      /* texts are bytes of one stream, else each is whole UTF-8 */
    bool byte_fallback;   /* <0xNN> tokens are bytes; a run of them that is no UTF-8 is one U+FFFD a byte */
    bool drop_first_meta; /* every U+2581 of the first token is dropped, not a space */
    bool word_pieces; /* spaces before words, none before what has the prefix, or (cleans_up) before marks */
    bool cleans_up;
    struct normalizer rewrite; /* of a token's name into its text */
    int num_strip;             /* at most so many strip_char at the start of a text are left out */
    char strip_char[4];
    size_t strip_char_bytes;
};

/* What stands around two texts, and between them: [before] first [between] second [after]. */
struct pair_template {
    bool is_there;
    int32_t
        num_first; /* of between's, those of the first text's type; the others and all behind have the second's; -1: all
                          have one type */
    int32_t ids[3][TEMPLATE_IDS_MAX];
    int num[3];
};

struct tokenizer {
    struct vocab vocab;
    struct bpe bpe;
    struct wordpiece wordpiece; /* in the place of merges */
    struct unigram unigram;     /* likewise */
    struct charsmap charsmap;   /* of the normalizer */
    struct added_tokens added;  /* cut out of the text as it comes: every control token, and others */
    struct added_tokens added_normalized; /* cut out of the normalised text; no control tokens */
    struct normalizer normalizer;
    struct pretokenizer pretokenizer;
    struct normalizer piece_rewrite; /* what the pre-tokenizer changes before it cuts */
    struct decoder decoder;
    int32_t before[TEMPLATE_IDS_MAX], after[TEMPLATE_IDS_MAX]; /* BOS and EOS, mostly */
    int num_before, num_after;
    struct pair_template pair;
    int32_t bos_id, eos_id;
};

struct tokenizer *tokenizer_create(void); /* empty; NULL when out of memory */

/* The loaders' steps, in this order: settings (bpe, decoder, normalizer, pretokenizer), all tokens, all added
 * tokens, tables_index, bpe_reserve and all merges, tables_finish. Names are spelled as in a vocabulary file.
 */
int tables_add_token(struct tokenizer *t, int64_t id, const char *name, size_t num_bytes, unsigned flags,
                     struct error *err) must_check;

int tables_index(struct tokenizer *t, bool tolerant, struct error *err) must_check;

/* The token of this name, or -1; not those that came as added tokens. */
int32_t tables_find_name(const struct tokenizer *t, const char *name, size_t num_bytes);

/* token->id may be that of a token of the same name, or free. */
int tables_add_added(struct tokenizer *t, const struct added_token *token, bool normalized,
                     struct error *err) must_check;

int tables_add_merge(struct tokenizer *t, const char *left, size_t left_bytes, const char *right,
                     size_t right_bytes, uint32_t rank, struct error *err) must_check;

int tables_finish(struct tokenizer *t, struct error *err) must_check;

/* For a model without pre-tokenizer whose spaces are U+2581: "Prepend", "Replace" and the decoder that undoes
 * them. */
bool tables_use_meta_spaces(struct tokenizer *t, bool prefix);

#endif
