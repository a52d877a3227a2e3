#include "text/grammar/mask_cache.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/bit_set.h"
#include "base/check.h"
#include "text/grammar/state_classes.h"
#include "text/grammar/step.h"
#include "text/grammar/vocabulary_parts.h"

enum {
    SLOTS = 1024,
    KEY_MAX = 512,
    FAR_COUNT = UINT32_MAX - 1,
    FAR_BELOW = UINT32_MAX - 2,
    ENDS = 1 << 16,
    BASES = 4
};

/* The key: for each thread its state's class, counter and spaces, the number of frames (and ENDS when the stack
 * must have no others), then state's class and counter of each. */
struct cached_mask {
    struct cached_mask *next;
    const struct cached_mask
        *base; /* ids are where it differs from this one; NULL: they are all that it has */
    uint32_t hash, num_key, num_ids;
    bool is_whole;      /* its words follow, not ids */
    uint32_t numbers[]; /* the key, then ids or words */
};

struct mask_cache {
    const struct grammar *grammar;
    pthread_mutex_t mutex;
    uint32_t token_bytes; /* of the longest token */
    uint32_t *classes;    /* state_classes.h, of texts as long as that; NULL: each state is one */
    size_t num_words, num_bytes, max_bytes;
    const struct cached_mask *bases[BASES]; /* the newest whole ones */
    uint32_t num_whole;
    struct cached_mask *slots[SLOTS];
};

int mask_cache_new(const struct grammar *g, const struct vocabulary *v, size_t max_bytes,
                   struct mask_cache **out)
{
    struct mask_cache *c = calloc(1, sizeof *c);
    *out = c;
    if (!c) return STATUS_NO_MEMORY;
    c->grammar = g;
    c->num_words = v->num_words;
    c->token_bytes = vocabulary_token_bytes(v);
    c->max_bytes = max_bytes;
    pthread_mutex_init(&c->mutex, NULL);
    if (state_classes_new(g, c->token_bytes, &c->classes)) {
        mask_cache_free(c);
        *out = NULL;
        return STATUS_NO_MEMORY;
    }
    return 0;
}

static void drop_all(struct mask_cache *c)
{
    for (int i = 0; i < SLOTS; i++) {
        while (c->slots[i]) {
            struct cached_mask *next = c->slots[i]->next;
            free(c->slots[i]);
            c->slots[i] = next;
        }
    }
    c->num_bytes = 0;
    c->num_whole = 0;
}

void mask_cache_free(struct mask_cache *c)
{
    if (!c) return;
    drop_all(c);
    free(c->classes);
    pthread_mutex_destroy(&c->mutex);
    free(c);
}

size_t mask_cache_bytes(struct mask_cache *c)
{
    pthread_mutex_lock(&c->mutex);
    size_t num_bytes = c->num_bytes;
    pthread_mutex_unlock(&c->mutex);
    return num_bytes;
}

/* Where no token reaches a limit of what counts characters, the counter's value does not matter. */
static uint32_t key_count(const struct mask_cache *c, const struct thread *t)
{
    const struct grammar *g = c->grammar;
    const struct char_loop *loop = &g->loops[g->states[t->state].loop];
    const struct entry *e = &g->entries[g->states[t->state].entry];
    bool counts = e->kind == ENTRY_CHARACTER || e->kind == ENTRY_WITHIN;
    uint32_t min = counts ? e->end : loop->min, max = counts ? e->b : loop->max;
    bool has_room = (counts || loop->counts) && t->count <= max && max - t->count >= c->token_bytes;
    if (has_room && t->count >= min) return FAR_COUNT;
    return has_room && min - t->count > c->token_bytes ? FAR_BELOW : t->count;
}

static uint32_t key_state(const struct mask_cache *c, uint32_t state)
{
    return c->classes ? c->classes[state] : state;
}

static uint32_t hash_threads(const struct mask_cache *c, const struct thread *threads, int n)
{
    uint64_t h = (uint64_t)n;
    for (int i = 0; i < n; i++) {
        h = (h ^ key_state(c, threads[i].state)) * 0x9E3779B97F4A7C15u;
        h = (h ^ ((uint64_t)key_count(c, &threads[i]) << 8 | threads[i].spaces)) * 0x9E3779B97F4A7C15u;
    }
    return (uint32_t)(h >> 32);
}

static bool is_at(const struct mask_cache *c, const struct cached_mask *mask, const struct thread *threads,
                  int n, const struct frames *f)
{
    const uint32_t *key = mask->numbers, *end = key + mask->num_key;
    for (int i = 0; i < n; i++) {
        const struct thread *t = &threads[i];
        if (key == end || key[0] != key_state(c, t->state) || key[1] != key_count(c, t) ||
            key[2] != t->spaces)
            return false;
        uint32_t num_frames = key[3] % ENDS, frame = t->stack;
        bool ends = key[3] / ENDS;
        key += 4;
        for (; num_frames > 0; num_frames--, key += 2) {
            const struct frame *own = &f->items[frame];
            if (frame == STACK_BOTTOM || key_state(c, own->state) != key[0] || own->count != key[1])
                return false;
            frame = own->parent;
        }
        if (ends && frame != STACK_BOTTOM) return false;
    }
    return key == end;
}

static const uint32_t *body_of(const struct cached_mask *mask)
{
    return mask->numbers + mask->num_key;
}

static void copy_out(const struct mask_cache *c, const struct cached_mask *mask, uint64_t *words)
{
    const struct cached_mask *whole = mask->is_whole ? mask : mask->base;
    if (whole)
        memcpy(words, body_of(whole), c->num_words * sizeof *words);
    else
        memset(words, 0, c->num_words * sizeof *words);
    for (const uint32_t *id = body_of(mask), *end = id + mask->num_ids; id < end; id++)
        words[*id / 64] ^= (uint64_t)1 << *id % 64;
}

bool mask_cache_find(struct mask_cache *c, const struct thread *threads, int n, const struct frames *f,
                     uint64_t *words)
{
    uint32_t hash = hash_threads(c, threads, n);
    pthread_mutex_lock(&c->mutex);
    struct cached_mask *mask = c->slots[hash % SLOTS];
    while (mask && (mask->hash != hash || !is_at(c, mask, threads, n, f))) mask = mask->next;
    if (mask) copy_out(c, mask, words);
    pthread_mutex_unlock(&c->mutex);
    return mask != NULL;
}

/* Writes the key; 0 when it is too long. */
static uint32_t write_key(const struct mask_cache *c, const struct thread *threads, int n,
                          const struct frames *f, uint32_t *key)
{
    uint32_t length = 0;
    for (int i = 0; i < n; i++) {
        uint32_t *head = key + length, frame = threads[i].stack;
        if (length + 4 > KEY_MAX) return 0;
        head[0] = key_state(c, threads[i].state);
        head[1] = key_count(c, &threads[i]);
        head[2] = threads[i].spaces;
        head[3] = f->touched == 0 ? ENDS : 0;
        length += 4;
        for (; frame != STACK_BOTTOM && f->items[frame].depth >= f->touched; frame = f->items[frame].parent) {
            if (length + 2 > KEY_MAX) return 0;
            key[length++] = key_state(c, f->items[frame].state);
            key[length++] = f->items[frame].count;
            head[3]++;
        }
    }
    return length;
}

/* Where a mask differs from base; NULL: all that it has. */
static uint64_t difference(const uint64_t *words, const struct cached_mask *base, size_t i)
{
    uint64_t other = 0;
    if (base) memcpy(&other, body_of(base) + 2 * i, sizeof other);
    return words[i] ^ other;
}

static uint32_t count_ids(const struct mask_cache *c, const uint64_t *words, const struct cached_mask *base)
{
    uint32_t n = 0;
    for (size_t i = 0; i < c->num_words; i++) n += (uint32_t)__builtin_popcountll(difference(words, base, i));
    return n;
}

static void list_ids(const struct mask_cache *c, const uint64_t *words, const struct cached_mask *base,
                     uint32_t *ids)
{
    for (size_t i = 0; i < c->num_words; i++)
        for (uint64_t rest = difference(words, base, i); rest; rest &= rest - 1)
            *ids++ = (uint32_t)(i * 64) + (uint32_t)__builtin_ctzll(rest);
}

/* What has the fewest ids beside it. */
static const struct cached_mask *nearest_base(const struct mask_cache *c, const uint64_t *words,
                                              uint32_t *num_ids)
{
    const struct cached_mask *nearest = NULL;
    *num_ids = count_ids(c, words, NULL);
    for (uint32_t i = 0; i < min_of(c->num_whole, (uint32_t)BASES); i++) {
        const uint32_t own = count_ids(c, words, c->bases[i]);
        if (own >= *num_ids) continue;
        nearest = c->bases[i];
        *num_ids = own;
    }
    return nearest;
}

/* In the fewest bytes: masks of places that follow each other are often alike but for some ids. */
static struct cached_mask *make_mask(const struct mask_cache *c, const uint32_t *key, uint32_t num_key,
                                     const uint64_t *words, size_t *num_bytes)
{
    uint32_t num_ids;
    const struct cached_mask *base = nearest_base(c, words, &num_ids);
    const bool is_whole = num_ids >= c->num_words / 2;
    const size_t body = is_whole ? c->num_words * sizeof *words : num_ids * sizeof(uint32_t);
    struct cached_mask *mask = malloc(*num_bytes = sizeof *mask + num_key * sizeof *key + body);
    if (!mask) return NULL;
    *mask = (struct cached_mask){.base = is_whole ? NULL : base,
                                 .num_key = num_key,
                                 .num_ids = is_whole ? 0 : num_ids,
                                 .is_whole = is_whole};
    memcpy(mask->numbers, key, num_key * sizeof *key);
    if (is_whole)
        memcpy(mask->numbers + num_key, words, body);
    else
        list_ids(c, words, base, mask->numbers + num_key);
    return mask;
}

void mask_cache_add(struct mask_cache *c, const struct thread *threads, int n, const struct frames *f,
                    const uint64_t *words)
{
    uint32_t key[KEY_MAX], num_key = write_key(c, threads, n, f, key);
    size_t num_bytes;
    if (num_key == 0) return;
    pthread_mutex_lock(&c->mutex);
    struct cached_mask *mask = make_mask(c, key, num_key, words, &num_bytes);
    if (mask && c->num_bytes + num_bytes > c->max_bytes) { /* its base goes, too */
        free(mask);
        drop_all(c);
        mask = make_mask(c, key, num_key, words, &num_bytes);
    }
    if (mask && num_bytes <= c->max_bytes) {
        mask->hash = hash_threads(c, threads, n);
        mask->next = c->slots[mask->hash % SLOTS];
        c->slots[mask->hash % SLOTS] = mask;
        c->num_bytes += num_bytes;
        if (mask->is_whole) c->bases[c->num_whole++ % BASES] = mask;
    } else {
        free(mask);
    }
    pthread_mutex_unlock(&c->mutex);
}
