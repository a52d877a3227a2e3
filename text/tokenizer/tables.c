#include "text/tokenizer/tables.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/tokenizer/byte_map.h"
#include "text/tokenizer/unicode.h"

enum { NAME_BYTES_MAX = 4096 };

#define META_SPACE "\u2581"

struct tokenizer *tokenizer_create(void)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    vocab_init(&t->vocab);
    bpe_init(&t->bpe);
    t->bos_id = t->eos_id = -1;
    return t;
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t) return;
    vocab_deinit(&t->vocab);
    bpe_deinit(&t->bpe);
    unigram_deinit(&t->unigram);
    charsmap_deinit(&t->charsmap);
    added_tokens_deinit(&t->added);
    added_tokens_deinit(&t->added_normalized);
    free(t);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte that <0xNN> names, or -1. */
static int byte_of_name(const char *name, size_t num_bytes)
{
    if (num_bytes != 6 || memcmp(name, "<0x", 3) != 0 || name[5] != '>') return -1;
    int high = hex_digit(name[3]), low = hex_digit(name[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

struct token_form {
    char bytes[NAME_BYTES_MAX];
    const char *key, *text;
    size_t key_bytes, text_bytes;
    unsigned flags;
    struct buffer rewritten[2];
};

static void form_init(struct token_form *f)
{
    buffer_init(&f->rewritten[0], (size_t)NAME_BYTES_MAX * NORMALIZER_TEXT_BYTES * NORMALIZER_TEXT_BYTES);
    buffer_init(&f->rewritten[1], f->rewritten[0].max_bytes);
}

static void form_deinit(struct token_form *f)
{
    buffer_deinit(&f->rewritten[0]);
    buffer_deinit(&f->rewritten[1]);
}

static int form_by_bytes(struct token_form *f, const char *name, size_t num_bytes)
{
    if (byte_map_decode(name, num_bytes, f->bytes, &f->key_bytes)) {
        f->key = f->text = f->bytes;
        f->text_bytes = f->key_bytes;
    } else {
        f->key = f->text = name;
        f->key_bytes = f->text_bytes = num_bytes;
        f->flags |= TOKEN_NO_KEY;
    }
    return 0;
}

static bool begins_with(const char *name, size_t num_bytes, const char *text)
{
    return num_bytes >= strlen(text) && memcmp(name, text, strlen(text)) == 0;
}

/* What the reference's clean-up moves to the word before. */
static bool joins_word_before(const char *name, size_t num_bytes)
{
    static const char *const beginnings[] = {".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"};
    for (size_t i = 0; i < array_length(beginnings); i++)
        if (begins_with(name, num_bytes, beginnings[i])) return true;
    return false;
}

/* Behind another token. */
static void form_by_words(struct token_form *f, const struct tokenizer *t, const char *name, size_t num_bytes)
{
    const size_t prefix_bytes = t->wordpiece.prefix_bytes;
    f->text = name;
    f->text_bytes = num_bytes;
    if (num_bytes >= prefix_bytes && memcmp(name, t->wordpiece.prefix, prefix_bytes) == 0) {
        f->text += prefix_bytes;
        f->text_bytes -= prefix_bytes;
    } else if (num_bytes < sizeof f->bytes && !(t->decoder.cleans_up && joins_word_before(name, num_bytes))) {
        f->bytes[0] = ' ';
        memcpy(f->bytes + 1, name, num_bytes);
        f->text = f->bytes;
        f->text_bytes++;
    }
}

static int form_by_text(struct token_form *f, const struct tokenizer *t, const char *name, size_t num_bytes,
                        struct error *err)
{
    const struct decoder *d = &t->decoder;
    if (!utf8_is_valid((const unsigned char *)name, num_bytes))
        return error_set(err, STATUS_INVALID, "The name of a token is not UTF-8.");
    f->key = name;
    f->key_bytes = num_bytes;
    if (d->word_pieces) {
        form_by_words(f, t, name, num_bytes);
        return 0;
    }
    int byte = d->byte_fallback ? byte_of_name(name, num_bytes) : -1;
    if (byte >= 0) {
        f->bytes[0] = (char)byte;
        f->text = f->bytes;
        f->text_bytes = 1;
        f->flags |= TOKEN_BYTE;
        return 0;
    }
    f->text = normalizer_run(&d->rewrite, name, num_bytes, true, f->rewritten, &f->text_bytes);
    return f->text ? 0 : error_set(err, STATUS_NO_MEMORY, "No memory for the text of a token.");
}

/* What name means to the merges and to decoding. */
static int form_of_name(struct token_form *f, const struct tokenizer *t, const char *name, size_t num_bytes,
                        struct error *err)
{
    f->flags = 0;
    if (num_bytes > NAME_BYTES_MAX)
        return error_set(err, STATUS_INVALID, "The name of a token has %zu bytes; at most %d are possible.",
                         num_bytes, NAME_BYTES_MAX);
    if (t->decoder.byte_level) return form_by_bytes(f, name, num_bytes);
    return form_by_text(f, t, name, num_bytes, err);
}

int tables_add_token(struct tokenizer *t, int64_t id, const char *name, size_t num_bytes, unsigned flags,
                     struct error *err)
{
    struct token_form f;
    form_init(&f);
    int status = form_of_name(&f, t, name, num_bytes, err);
    if (!status)
        status = vocab_add(&t->vocab, id, f.key, f.key_bytes, f.text, f.text_bytes, f.flags | flags, err);
    form_deinit(&f);
    return status;
}

int tables_index(struct tokenizer *t, bool tolerant, struct error *err)
{
    return vocab_index(&t->vocab, tolerant, err);
}

/* The token whose key is the bytes that a merge names; appends them to joined. */
static int32_t find_part(const struct tokenizer *t, const char *name, size_t num_bytes, char *joined,
                         size_t *joined_bytes)
{
    char *part = joined + *joined_bytes;
    size_t part_bytes = num_bytes;
    if (num_bytes > NAME_BYTES_MAX - *joined_bytes) return -1;
    if (!t->bpe.byte_level)
        memcpy(part, name, num_bytes);
    else if (!byte_map_decode(name, num_bytes, part, &part_bytes))
        return -1;
    *joined_bytes += part_bytes;
    return vocab_find(&t->vocab, part, part_bytes);
}

int32_t tables_find_name(const struct tokenizer *t, const char *name, size_t num_bytes)
{
    char joined[NAME_BYTES_MAX];
    size_t joined_bytes = 0;
    return find_part(t, name, num_bytes, joined, &joined_bytes);
}

static bool has_key(const struct vocab *v, int32_t id, const char *key, size_t key_bytes)
{
    size_t num_bytes;
    const char *bytes = vocab_key(v, id, &num_bytes);
    return num_bytes == key_bytes && memcmp(bytes, key, key_bytes) == 0;
}

static int add_or_mark(struct tokenizer *t, const struct added_token *token, const struct token_form *f,
                       struct error *err)
{
    unsigned flags = (token->special ? TOKEN_SPECIAL : 0) | (token->shown ? TOKEN_SHOWN : 0);
    if (!vocab_has(&t->vocab, token->id))
        return vocab_add(&t->vocab, token->id, f->key, f->key_bytes, f->text, f->text_bytes,
                         f->flags | TOKEN_NO_KEY | flags, err);
    if (!has_key(&t->vocab, token->id, f->key, f->key_bytes))
        return error_set(err, STATUS_INVALID, "The id %d is that of an added token and of another token.",
                         token->id);
    t->vocab.tokens[token->id].flags |= flags;
    return 0;
}

/* Decodes the token as if name were its name. */
static int set_text_by_name(struct tokenizer *t, int32_t id, const char *name, size_t num_bytes,
                            struct error *err)
{
    struct token_form f;
    form_init(&f);
    int status = form_of_name(&f, t, name, num_bytes, err);
    if (!status) status = vocab_set_text(&t->vocab, id, f.text, f.text_bytes, err);
    form_deinit(&f);
    return status;
}

/* A token that is matched in the normalised text is looked for, and decoded, in its own normalised form. */
static int add_normalized(struct tokenizer *t, const struct added_token *token, struct error *err)
{
    struct buffer buffers[2];
    buffer_init(&buffers[0], ADDED_TOKEN_BYTES_MAX * 64);
    buffer_init(&buffers[1], ADDED_TOKEN_BYTES_MAX * 64);
    struct added_token copy = *token;
    copy.content = (char *)normalizer_run(&t->normalizer, token->content, token->num_bytes, true, buffers,
                                          &copy.num_bytes);
    int status = copy.content ? added_tokens_add(&t->added_normalized, &copy, err)
                              : error_set(err, STATUS_INVALID, "The added token %d is too long.", token->id);
    if (!status) status = set_text_by_name(t, token->id, copy.content, copy.num_bytes, err);
    buffer_deinit(&buffers[0]);
    buffer_deinit(&buffers[1]);
    return status;
}

/* Control tokens are always looked for in the text as it comes, also where a file asks for the normalised
 * text: only there is it known which bytes to trust. (The reference misses them then in the middle of a
 * text.) */
int tables_add_added(struct tokenizer *t, const struct added_token *token, bool normalized, struct error *err)
{
    if (token->id < 0 || token->id > TOKEN_ID_MAX)
        return error_set(err, STATUS_INVALID, "The token id %d is outside 0 to %d.", token->id, TOKEN_ID_MAX);
    struct token_form f;
    form_init(&f);
    int status = form_of_name(&f, t, token->content, token->num_bytes, err);
    if (!status) status = add_or_mark(t, token, &f, err);
    form_deinit(&f);
    if (status) return status;
    if (normalized && !token->special && t->normalizer.num_steps > 0) return add_normalized(t, token, err);
    return added_tokens_add(&t->added, token, err);
}

/* A merge that would make a control token of plain text is left out: nobody may type one. */
int tables_add_merge(struct tokenizer *t, const char *left, size_t left_bytes, const char *right,
                     size_t right_bytes, uint32_t rank, struct error *err)
{
    char joined[NAME_BYTES_MAX];
    size_t joined_bytes = 0;
    int32_t left_id = find_part(t, left, left_bytes, joined, &joined_bytes);
    int32_t right_id = find_part(t, right, right_bytes, joined, &joined_bytes);
    int32_t product = left_id < 0 || right_id < 0 ? -1 : vocab_find(&t->vocab, joined, joined_bytes);
    if (product < 0)
        return error_set(
            err, STATUS_INVALID, "Merge %u (\"%.*s\" and \"%.*s\") names a token that does not exist.", rank,
            (int)min_of(left_bytes, (size_t)64), left, (int)min_of(right_bytes, (size_t)64), right);
    if (!(vocab_flags(&t->vocab, product) & TOKEN_SPECIAL))
        bpe_add_merge(&t->bpe, left_id, right_id, rank, product);
    return 0;
}

static bool crosses_into_meta(const char *key, size_t num_bytes)
{
    for (size_t i = 3; i + 3 <= num_bytes; i++) {
        if (memcmp(key + i, META_SPACE, 3) == 0 && memcmp(key + i - 3, META_SPACE, 3) != 0) return true;
    }
    return num_bytes >= 3 && key[0] != META_SPACE[0] && memmem(key, num_bytes, META_SPACE, 3);
}

/* A model without pre-tokenizer merges over the whole text. When none of its tokens has U+2581 behind
 * anything else, no merge crosses from a word into the spaces after it: cutting there changes nothing but the
 * time it takes. */
static void cut_at_meta_spaces(struct tokenizer *t)
{
    if (t->bpe.byte_level || t->pretokenizer.num_stages > 0 || vocab_find(&t->vocab, META_SPACE, 3) < 0)
        return;
    for (int32_t id = 0; id < t->vocab.num_ids; id++) {
        size_t num_bytes;
        const char *key = vocab_key(&t->vocab, id, &num_bytes);
        unsigned flags = vocab_flags(&t->vocab, id);
        if ((flags & TOKEN_EXISTS) && !(flags & TOKEN_NO_KEY) && crosses_into_meta(key, num_bytes)) return;
    }
    t->pretokenizer.stages[t->pretokenizer.num_stages++] = PRETOKENIZE_META_WORDS;
}

int tables_finish(struct tokenizer *t, struct error *err)
{
    int status = added_tokens_index(&t->added, err);
    if (!status) status = added_tokens_index(&t->added_normalized, err);
    if (status) return status;
    if (t->wordpiece.is_used) {
        wordpiece_finish(&t->wordpiece, &t->vocab);
        return 0;
    }
    if (t->unigram.is_used) return unigram_finish(&t->unigram, &t->vocab, err);
    cut_at_meta_spaces(t);
    return bpe_finish(&t->bpe, &t->vocab, err);
}

bool tables_use_meta_spaces(struct tokenizer *t, bool prefix)
{
    struct decoder *d = &t->decoder;
    if (prefix && !normalizer_add(&t->normalizer, NORMALIZE_PREPEND, "", META_SPACE)) return false;
    d->byte_fallback = true;
    d->num_strip = prefix ? 1 : 0;
    d->strip_char[0] = ' ';
    d->strip_char_bytes = 1;
    return normalizer_add(&t->normalizer, NORMALIZE_REPLACE, " ", META_SPACE) &&
           normalizer_add(&d->rewrite, NORMALIZE_REPLACE, META_SPACE, " ");
}
