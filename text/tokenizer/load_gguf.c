/* The tokenizer keys of a GGUF file. Two models: "gpt2", byte-level BPE with a list of merges and the name of
 * a pre-tokenizer; and "llama", sentencepiece BPE, which has a score a token and no merges.
 *
 * With scores, the pair to merge next is the one whose product has the highest score, of equals the leftmost.
 * That is a list of merges too: every way to cut a token into two tokens, ranked by the token's score. So it
 * is made into one. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "files/gguf.h"
#include "text/tokenizer/tables.h"
#include "text/tokenizer/unicode.h"

enum token_type { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER_DEFINED, TYPE_UNUSED, TYPE_BYTE };

static bool text_is(const char *text, size_t num_bytes, const char *other)
{
    return strlen(other) == num_bytes && memcmp(text, other, num_bytes) == 0;
}

/* ---- tokens ---- */

static int add_token(struct tokenizer *t, int32_t id, const char *name, size_t num_bytes, int64_t type,
                     struct error *err)
{
    /* A text-level token that is no plain text must not be found by the merges. */
    bool is_hidden =
        !t->bpe.byte_level && type != TYPE_NORMAL && type != TYPE_USER_DEFINED && type != TYPE_BYTE;
    int status = tables_add_token(t, id, name, num_bytes, is_hidden ? TOKEN_NO_KEY : 0, err);
    bool is_special = type == TYPE_CONTROL || type == TYPE_UNKNOWN;
    if (status || (!is_special && type != TYPE_USER_DEFINED)) return status;
    struct added_token token = {
        .content = (char *)name, .num_bytes = num_bytes, .id = id, .special = is_special};
    return tables_add_added(t, &token, false, err);
}

static int read_tokens(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    struct gguf_array names, types = {0};
    if (!gguf_find_array(g, "tokenizer.ggml.tokens", &names) || names.num_items > TOKEN_ID_MAX)
        return error_set(err, STATUS_INVALID, "The GGUF file has no usable tokenizer.ggml.tokens.");
    bool has_types = gguf_find_array(g, "tokenizer.ggml.token_type", &types);
    uint64_t num_names = names.num_items;
    for (uint64_t i = 0; i < num_names; i++) {
        const char *name;
        size_t num_bytes;
        int64_t type = TYPE_NORMAL;
        if (!gguf_array_next_text(&names, &name, &num_bytes))
            return error_set(err, STATUS_INVALID, "tokenizer.ggml.tokens is not a list of texts.");
        if (has_types && !gguf_array_next_int(&types, &type))
            return error_set(err, STATUS_INVALID,
                             "tokenizer.ggml.token_type is shorter than the list of tokens.");
        int status = add_token(t, (int32_t)i, name, num_bytes, type, err);
        if (status) return status;
    }
    return tables_index(t, true, err);
}

/* ---- byte-level models ---- */

static const struct {
    const char *name;
    enum pretokenizer_kind stages[2];
    int num_stages;
    bool ignore_merges, add_bos, nfc;
} known_pretokenizers[] = {
    {"gpt-2", {PRETOKENIZE_GPT2}, 1, false, false, false},
    {"smollm", {PRETOKENIZE_DIGITS, PRETOKENIZE_GPT2}, 2, false, false, false},
    {"llama-bpe", {PRETOKENIZE_LLAMA3}, 1, true, true, false},
    {"llama3", {PRETOKENIZE_LLAMA3}, 1, true, true, false},
    {"llama-v3", {PRETOKENIZE_LLAMA3}, 1, true, true, false},
    {"qwen2", {PRETOKENIZE_QWEN2}, 1, false, false, true},
    {"qwen35", {PRETOKENIZE_QWEN35}, 1, false, false, true},
    {"deepseek-r1-qwen", {PRETOKENIZE_QWEN2}, 1, false, false, false},
    {"tekken", {PRETOKENIZE_TEKKEN}, 1, true, true, false},
    {"gpt-4o", {PRETOKENIZE_O200K}, 1, false, false, false}, /* Phi-4-mini, gpt-oss */
    {"llama4", {PRETOKENIZE_O200K}, 1, false, false, false},
    {"dbrx", {PRETOKENIZE_LLAMA3}, 1, false, false, false},      /* Phi-4, OLMo 2 and 3, Granite 4 */
    {"smaug-bpe", {PRETOKENIZE_LLAMA3}, 1, false, false, false}, /* SmolLM3 */
    {"glm4", {PRETOKENIZE_LLAMA3}, 1, false, false, false},
    {"chatglm-bpe", {PRETOKENIZE_LLAMA3}, 1, false, false, false},
    {"refact", {PRETOKENIZE_DIGITS, PRETOKENIZE_GPT2}, 2, false, false, false}, /* Granite 3 */
    {"starcoder", {PRETOKENIZE_DIGITS, PRETOKENIZE_GPT2}, 2, false, false, false},
    {"olmo", {PRETOKENIZE_GPT2}, 1, false, false, false},
};

static int set_up_byte_level(struct tokenizer *t, const struct gguf *g, bool *add_bos, struct error *err)
{
    const char *name;
    size_t num_bytes;
    if (!gguf_find_text(g, "tokenizer.ggml.pre", &name, &num_bytes))
        return error_set(
            err, STATUS_UNSUPPORTED,
            "The GGUF file does not name its pre-tokenizer (tokenizer.ggml.pre); it must be converted anew.");
    size_t i = 0;
    while (i < array_length(known_pretokenizers) && !text_is(name, num_bytes, known_pretokenizers[i].name))
        i++;
    if (i == array_length(known_pretokenizers))
        return error_set(err, STATUS_UNSUPPORTED, "The pre-tokenizer \"%.*s\" is not supported.",
                         (int)min_of(num_bytes, (size_t)64), name);
    t->bpe.byte_level = t->decoder.byte_level = true;
    t->bpe.ignore_merges = known_pretokenizers[i].ignore_merges;
    *add_bos = known_pretokenizers[i].add_bos;
    t->pretokenizer.num_stages = known_pretokenizers[i].num_stages;
    memcpy(t->pretokenizer.stages, known_pretokenizers[i].stages, sizeof known_pretokenizers[i].stages);
    /* GGUF has no key for the normalizer; the models of this family have NFC in their own files. */
    if (known_pretokenizers[i].nfc && !normalizer_add(&t->normalizer, NORMALIZE_NFC, "", ""))
        return STATUS_LIMIT;
    bool prefix_space = false;
    if (gguf_find_bool(g, "tokenizer.ggml.add_space_prefix", &prefix_space) && prefix_space)
        return error_set(err, STATUS_UNSUPPORTED,
                         "add_space_prefix with a byte-level tokenizer is not supported.");
    return 0;
}

static int read_merges(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    struct gguf_array merges;
    if (!gguf_find_array(g, "tokenizer.ggml.merges", &merges) || merges.num_items >= UINT32_MAX)
        return error_set(err, STATUS_INVALID, "The GGUF file has no usable tokenizer.ggml.merges.");
    uint64_t num_merges = merges.num_items;
    int status = bpe_reserve(&t->bpe, num_merges, err);
    for (uint64_t rank = 0; !status && rank < num_merges; rank++) {
        const char *text, *space;
        size_t num_bytes;
        /* A space at the very start belongs to the left token's name. */
        if (!gguf_array_next_text(&merges, &text, &num_bytes) || num_bytes < 3 ||
            !(space = memchr(text + 1, ' ', num_bytes - 1)))
            return error_set(err, STATUS_INVALID, "Merge %llu of the GGUF file is no pair of tokens.",
                             (unsigned long long)rank);
        size_t left_bytes = (size_t)(space - text);
        status =
            tables_add_merge(t, text, left_bytes, space + 1, num_bytes - left_bytes - 1, (uint32_t)rank, err);
    }
    return status;
}

/* ---- models with scores ---- */

struct scored_merge {
    float score; /* of the product */
    int32_t left, right, product;
};

struct merge_list {
    struct scored_merge *items;
    size_t num_items, capacity;
};

static bool merge_list_add(struct merge_list *list, struct scored_merge merge)
{
    if (list->num_items == list->capacity) {
        size_t capacity = max_of(list->capacity * 2, (size_t)1024);
        struct scored_merge *items = realloc(list->items, capacity * sizeof *items);
        if (!items) return false;
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->num_items++] = merge;
    return true;
}

/* A token that merging may make or start from: found by its key, and text. */
static int32_t find_mergeable(const struct vocab *v, const char *key, size_t key_bytes)
{
    int32_t id = vocab_find(v, key, key_bytes);
    return id >= 0 && (vocab_flags(v, id) & (TOKEN_SPECIAL | TOKEN_BYTE)) ? -1 : id;
}

/* Every cut of the token between two code points whose halves are tokens. */
static bool list_cuts(const struct vocab *v, int32_t id, float score, struct merge_list *list)
{
    size_t num_bytes;
    const char *key = vocab_key(v, id, &num_bytes);
    if (find_mergeable(v, key, num_bytes) != id) return true;
    for (size_t cut = 1; cut < num_bytes; cut++) {
        if (((unsigned char)key[cut] & 0xC0) == 0x80) continue;
        int32_t left = find_mergeable(v, key, cut), right = find_mergeable(v, key + cut, num_bytes - cut);
        if (left >= 0 && right >= 0 && !merge_list_add(list, (struct scored_merge){score, left, right, id}))
            return false;
    }
    return true;
}

static int compare_scores(const void *x, const void *y)
{
    const struct scored_merge *a = x, *b = y;
    return (a->score < b->score) - (a->score > b->score);
}

static int add_scored_merges(struct tokenizer *t, struct merge_list *list, struct error *err)
{
    int status = bpe_reserve(&t->bpe, list->num_items, err);
    if (status) return status;
    if (list->num_items > 0) qsort(list->items, list->num_items, sizeof *list->items, compare_scores);
    uint32_t rank = 0;
    for (size_t i = 0; i < list->num_items; i++) {
        const struct scored_merge *m = &list->items[i];
        if (i > 0 && m->score != list->items[i - 1].score) rank++;
        bpe_add_merge(&t->bpe, m->left, m->right, rank, m->product);
    }
    return 0;
}

static int read_scores(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    struct gguf_array scores;
    struct merge_list list = {0};
    int status = 0;
    if (!gguf_find_array(g, "tokenizer.ggml.scores", &scores))
        return error_set(err, STATUS_INVALID, "The GGUF file has no tokenizer.ggml.scores.");
    for (int32_t id = 0; !status && id < t->vocab.num_ids; id++) {
        double score;
        if (!gguf_array_next_real(&scores, &score) || score != score)
            status = error_set(err, STATUS_INVALID, "tokenizer.ggml.scores lacks a number for token %d.", id);
        else if (!list_cuts(&t->vocab, id, (float)score, &list))
            status = error_set(err, STATUS_NO_MEMORY, "No memory for the merges of the tokenizer.");
    }
    if (!status) status = add_scored_merges(t, &list, err);
    free(list.items);
    return status;
}

static int set_up_scored(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    bool prefix_space = true;
    (void)gguf_find_bool(g, "tokenizer.ggml.add_space_prefix", &prefix_space);
    t->bpe.byte_fallback = t->bpe.fuse_unknown = true;
    if (tables_use_meta_spaces(t, prefix_space)) return 0;
    return error_set(err, STATUS_LIMIT, "The tokenizer has too many steps.");
}

/* ---- both ---- */

/* -1 when there is no such key; an id that is no token is an error. */
static int read_id(const struct tokenizer *t, const struct gguf *g, const char *key, int32_t *id,
                   struct error *err)
{
    int64_t value;
    *id = -1;
    if (!gguf_find_int(g, key, &value)) return 0;
    if (!vocab_has(&t->vocab, value))
        return error_set(err, STATUS_INVALID, "%s is %lld, which is no token.", key, (long long)value);
    *id = (int32_t)value;
    return 0;
}

static int read_ends(struct tokenizer *t, const struct gguf *g, bool add_bos, struct error *err)
{
    bool add_eos = false;
    (void)gguf_find_bool(g, "tokenizer.ggml.add_bos_token", &add_bos);
    (void)gguf_find_bool(g, "tokenizer.ggml.add_eos_token", &add_eos);
    int status = read_id(t, g, "tokenizer.ggml.bos_token_id", &t->bos_id, err);
    if (!status) status = read_id(t, g, "tokenizer.ggml.eos_token_id", &t->eos_id, err);
    if (!status && !t->bpe.byte_level)
        status = read_id(t, g, "tokenizer.ggml.unknown_token_id", &t->bpe.unknown_id, err);
    if (add_bos && t->bos_id >= 0) t->before[t->num_before++] = t->bos_id;
    if (add_eos && t->eos_id >= 0) t->after[t->num_after++] = t->eos_id;
    return status;
}

static int read_all(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    const char *model;
    size_t num_bytes;
    if (!gguf_find_text(g, "tokenizer.ggml.model", &model, &num_bytes))
        return error_set(err, STATUS_INVALID, "The GGUF file has no tokenizer (tokenizer.ggml.model).");
    bool is_scored = text_is(model, num_bytes, "llama"), add_bos = true;
    if (!is_scored && !text_is(model, num_bytes, "gpt2"))
        return error_set(err, STATUS_UNSUPPORTED,
                         "The tokenizer model \"%.*s\" is not supported; gpt2 and llama are.",
                         (int)min_of(num_bytes, (size_t)64), model);
    int status = is_scored ? set_up_scored(t, g, err) : set_up_byte_level(t, g, &add_bos, err);
    if (!status) status = read_tokens(t, g, err);
    if (!status) status = is_scored ? read_scores(t, g, err) : read_merges(t, g, err);
    if (!status) status = read_ends(t, g, add_bos, err);
    return status ? status : tables_finish(t, err);
}

int tokenizer_open_gguf(const struct gguf *gguf, struct tokenizer **out, struct error *err)
{
    struct tokenizer *t = tokenizer_create();
    if (!t) return error_set(err, STATUS_NO_MEMORY, "No memory for a tokenizer.");
    int status = read_all(t, gguf, err);
    if (status) {
        tokenizer_close(t);
        return status;
    }
    *out = t;
    return 0;
}
