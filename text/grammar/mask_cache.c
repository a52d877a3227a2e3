#include "text/grammar/mask_cache.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/bit_set.h"
#include "base/check.h"
#include "text/grammar/state_classes.h"
#include "text/grammar/step.h"
#include "text/grammar/vocabulary_parts.h"

enum { SLOTS = 1024, KEY_MAX = 512, FAR_COUNT = UINT32_MAX - 1, FAR_BELOW = UINT32_MAX - 2, ENDS = 1 << 16 };

/* The key: for each thread its state's class, counter and spaces, the number of frames (and ENDS when the stack
 * must have no others), then state's class and counter of each. */
struct cached_mask {
    struct cached_mask *next;
    uint32_t hash, num_key;
    uint32_t num_ids; /* listed one by one; 0: the whole mask follows */
    uint32_t numbers[];
};

struct mask_cache {
    const struct grammar *grammar;
    pthread_mutex_t mutex;
    uint32_t token_bytes; /* of the longest token */
    uint32_t *classes;    /* state_classes.h, of texts as long as that; NULL: each state is one */
    size_t num_words, num_bytes, max_bytes;
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

static void copy_out(const struct mask_cache *c, const struct cached_mask *mask, uint64_t *words)
{
    const uint32_t *ids = mask->numbers + mask->num_key;
    if (mask->num_ids == 0) {
        memcpy(words, ids, c->num_words * sizeof *words);
        return;
    }
    memset(words, 0, c->num_words * sizeof *words);
    for (uint32_t i = 0; i < mask->num_ids; i++) bit_set_add(words, ids[i]);
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

static uint32_t count_ids(const struct mask_cache *c, const uint64_t *words)
{
    uint32_t n = 0;
    for (size_t i = 0; i < c->num_words; i++) n += (uint32_t)__builtin_popcountll(words[i]);
    return n;
}

static void list_ids(const struct mask_cache *c, const uint64_t *words, uint32_t *ids)
{
    for (size_t i = 0; i < c->num_words; i++)
        for (uint64_t rest = words[i]; rest; rest &= rest - 1)
            *ids++ = (uint32_t)(i * 64) + (uint32_t)__builtin_ctzll(rest);
}

void mask_cache_add(struct mask_cache *c, const struct thread *threads, int n, const struct frames *f,
                    const uint64_t *words)
{
    uint32_t key[KEY_MAX], num_key = write_key(c, threads, n, f, key), num_ids = count_ids(c, words);
    bool is_listed = num_ids > 0 && num_ids < c->num_words / 2;
    size_t body = is_listed ? num_ids * sizeof(uint32_t) : c->num_words * sizeof *words;
    struct cached_mask *mask = num_key > 0 ? malloc(sizeof *mask + num_key * sizeof *key + body) : NULL;
    if (!mask) return;
    *mask = (struct cached_mask){NULL, hash_threads(c, threads, n), num_key, is_listed ? num_ids : 0};
    memcpy(mask->numbers, key, num_key * sizeof *key);
    if (is_listed)
        list_ids(c, words, mask->numbers + num_key);
    else
        memcpy(mask->numbers + num_key, words, body);
    pthread_mutex_lock(&c->mutex);
    size_t bytes = sizeof *mask + num_key * sizeof *key + body;
    if (c->num_bytes + bytes > c->max_bytes) drop_all(c);
    if (bytes <= c->max_bytes) {
        c->num_bytes += bytes;
        mask->next = c->slots[mask->hash % SLOTS];
        c->slots[mask->hash % SLOTS] = mask;
        mask = NULL;
    }
    pthread_mutex_unlock(&c->mutex);
    free(mask);
}
