#include "server/token_limits.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/bit_set.h"
#include "base/check.h"

struct token_limits {
    _Atomic int num_holders;
    int32_t num_mask_words, reach;
    uint64_t *allowed; /* NULL: every id */
    int32_t *ids;      /* of all words, each behind its count */
    size_t num_ids, capacity;
};

int token_limits_new(int32_t num_ids, struct token_limits **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return STATUS_NO_MEMORY;
    (*out)->num_mask_words = (int32_t)bit_set_words((size_t)num_ids);
    (*out)->num_holders = 1;
    return 0;
}

const struct token_limits *token_limits_hold(const struct token_limits *l)
{
    if (l) atomic_fetch_add_explicit((_Atomic int *)(uintptr_t)&l->num_holders, 1, memory_order_relaxed);
    return l;
}

void token_limits_release(const struct token_limits *l)
{
    struct token_limits *mine = (struct token_limits *)(uintptr_t)l;
    if (!mine || atomic_fetch_sub_explicit(&mine->num_holders, 1, memory_order_acq_rel) > 1) return;
    free(mine->allowed);
    free(mine->ids);
    free(mine);
}

int token_limits_allow(struct token_limits *l, int32_t id)
{
    if (!l->allowed) l->allowed = calloc((size_t)l->num_mask_words, sizeof *l->allowed);
    if (!l->allowed) return STATUS_NO_MEMORY;
    assert_always(id >= 0 && id / 64 < l->num_mask_words);
    bit_set_add(l->allowed, (size_t)id);
    return 0;
}

int token_limits_forbid(struct token_limits *l, const int32_t *ids, int32_t num_ids)
{
    size_t needed = l->num_ids + (size_t)num_ids + 1;
    assert_always(num_ids >= 1 && num_ids <= WORD_TOKENS_MAX);
    if (needed > l->capacity) {
        size_t capacity = 2 * needed;
        int32_t *grown = realloc(l->ids, capacity * sizeof *grown);
        if (!grown) return STATUS_NO_MEMORY;
        l->ids = grown;
        l->capacity = capacity;
    }
    l->ids[l->num_ids] = num_ids;
    memcpy(l->ids + l->num_ids + 1, ids, (size_t)num_ids * sizeof *ids);
    l->num_ids = needed;
    l->reach = max_of(l->reach, num_ids - 1);
    return 0;
}

int32_t token_limits_reach(const struct token_limits *l)
{
    return l->reach;
}

static bool ends_with(const int32_t *last, int32_t num_last, const int32_t *ids, int32_t num_ids)
{
    return num_ids <= num_last &&
           (num_ids == 0 || !memcmp(last + num_last - num_ids, ids, (size_t)num_ids * sizeof *ids));
}

bool token_limits_let(const struct token_limits *l, const int32_t *last, int32_t num_last, int32_t id)
{
    bool lets = !l->allowed || bit_set_has(l->allowed, (size_t)id);
    for (size_t at = 0; at < l->num_ids && lets; at += (size_t)l->ids[at] + 1) {
        const int32_t *word = l->ids + at + 1;
        int32_t count = l->ids[at];
        lets = word[count - 1] != id || !ends_with(last, num_last, word, count - 1);
    }
    return lets;
}

void token_limits_apply(const struct token_limits *l, const int32_t *last, int32_t num_last, uint64_t *words)
{
    for (int32_t i = 0; l->allowed && i < l->num_mask_words; i++) words[i] &= l->allowed[i];
    for (size_t at = 0; at < l->num_ids; at += (size_t)l->ids[at] + 1) {
        const int32_t *word = l->ids + at + 1;
        int32_t count = l->ids[at], id = word[count - 1];
        if (ends_with(last, num_last, word, count - 1)) bit_set_remove(words, (size_t)id);
    }
}
