/* words.c - a tokenizer of 48 tokens: letters, a few words and JSON's special characters, an end, and one id
 * without text, which the server must never let a model draw. */
#include <stdlib.h>
#include <string.h>

#include "sim/sim.h"
#include "text/answer_header.h"

static const char *const words[FAKE_VOCAB] = {
    "a", "b", "c", "</s>", "d",  "e",  "f",  "g",  "h", "i", "j",  "k",   "l",   "m",        "n",   "o",
    "p", "q", "r", "s",    "t",  "u",  "v",  "w",  "x", "y", "z",  "A",   "B",   "C",        "D",   "E",
    "F", "G", "H", " ",    "\n", "\"", "\\", "\t", "/", "{", "ab", "bcd", " cd", "\xC3\xA9", "aaa", "",
};

const char *word_of(int32_t id)
{
    return id == FAKE_EOS ? "" : words[id];
}

int32_t tokenizer_vocab_size(const struct tokenizer *t)
{
    (void)t;
    return FAKE_VOCAB;
}

int32_t tokenizer_bos_id(const struct tokenizer *t)
{
    (void)t;
    return -1;
}

int32_t tokenizer_eos_id(const struct tokenizer *t)
{
    (void)t;
    return FAKE_EOS;
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    (void)t;
    return id == FAKE_EOS;
}

/* Encoding adds nothing. */
int32_t tokenizer_num_before(const struct tokenizer *t)
{
    (void)t;
    return 0;
}

int32_t tokenizer_num_after(const struct tokenizer *t)
{
    (void)t;
    return 0;
}

const char *tokenizer_token_bytes(const struct tokenizer *t, int32_t id, size_t *num_bytes)
{
    (void)t;
    assert_always(id >= 0 && id < FAKE_VOCAB);
    *num_bytes = strlen(words[id]);
    return words[id];
}

int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t num_bytes)
{
    (void)t;
    for (int32_t id = 0; id < FAKE_VOCAB; id++)
        if (strlen(words[id]) == num_bytes && !memcmp(words[id], text, num_bytes)) return id;
    return -1;
}

/* The longest of the words that the text begins with; -1: none. */
static int32_t first_word(const char *text, size_t num_bytes)
{
    int32_t best = -1;
    for (int32_t id = 0; id < FAKE_VOCAB; id++) {
        size_t n = strlen(word_of(id));
        bool fits = n > 0 && n <= num_bytes && !memcmp(text, word_of(id), n);
        if (fits && (best < 0 || n > strlen(word_of(best)))) best = id;
    }
    return best;
}

/* Encoding adds nothing. Prompts come as ids. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t num_bytes,
                     const struct text_range *untrusted, int num_untrusted, unsigned flags,
                     int32_t max_tokens, struct token_list *list)
{
    (void)t, (void)untrusted, (void)num_untrusted, (void)flags;
    *list = (struct token_list){.ids = malloc((num_bytes + 1) * sizeof(int32_t))};
    if (!list->ids) return STATUS_NO_MEMORY;
    for (size_t at = 0; at < num_bytes; at += strlen(word_of(list->ids[list->num_ids++]))) {
        if (list->num_ids == max_tokens) return STATUS_LIMIT;
        list->ids[list->num_ids] = first_word(text + at, num_bytes - at);
        if (list->ids[list->num_ids] < 0) return STATUS_INVALID;
    }
    return 0;
}

bool tokenizer_has_pairs(const struct tokenizer *t)
{
    (void)t;
    return false;
}

int tokenizer_encode_pair(const struct tokenizer *t, const struct tokenizer_pair *pair, int32_t max_tokens,
                          struct token_list *list, int32_t *second_begin)
{
    (void)t, (void)pair, (void)max_tokens, (void)list, (void)second_begin;
    return STATUS_UNSUPPORTED;
}

void detokenizer_init(struct detokenizer *d, const struct tokenizer *t, bool skip_special)
{
    *d = (struct detokenizer){.tokenizer = t, .skip_special = skip_special};
}

void detokenizer_push(struct detokenizer *d, int32_t id, struct buffer *out)
{
    buffer_append_text(out, d->skip_special ? word_of(id) : words[id]);
}

void detokenizer_finish(struct detokenizer *d, struct buffer *out)
{
    (void)d, (void)out;
}

void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, int32_t num_ids, bool skip_special,
                      struct buffer *out)
{
    struct detokenizer d;
    detokenizer_init(&d, t, skip_special);
    for (int32_t i = 0; i < num_ids; i++) detokenizer_push(&d, ids[i], out);
}

/* ---- text/model_text.c's place: words.c needs none ---- */

int model_text_open(const char *path, const char *template_path, struct model_text *out, struct error *err)
{
    static char some_tokenizer;
    (void)path, (void)template_path, (void)err;
    *out = (struct model_text){.tokenizer = (struct tokenizer *)(void *)&some_tokenizer};
    return 0;
}

/* There is no chat template, and yet answers begin somewhere. */
int32_t answer_header_find(const struct model_text *text, int32_t *ids, int32_t max_ids)
{
    (void)text;
    assert_always(max_ids >= FAKE_HEADER);
    ids[0] = FAKE_HEADER_FIRST;
    ids[1] = FAKE_HEADER_LAST;
    return has(FEATURE_answers) ? FAKE_HEADER : 0;
}

int model_text_derive_tools(struct model_text *t, struct error *err)
{
    (void)t, (void)err;
    return 0;
}

/* It has no files. */
int model_identity_read(const char *path, struct model_identity *out, struct error *err)
{
    (void)path, (void)err;
    *out = (struct model_identity){.weights = digest_of("sim", 3)};
    return 0;
}

/* Nobody has any here. */
int model_identity_read_lora(const char *path, const struct digest_text *weights, struct digest_text *out,
                             struct error *err)
{
    (void)path, (void)err;
    *out = *weights;
    return STATUS_OK;
}

void model_text_close(struct model_text *t)
{
    *t = (struct model_text){0};
}
