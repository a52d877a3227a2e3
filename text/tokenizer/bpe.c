/* Three ways to the same result, by length of the piece:
 *   - a piece that is itself a token, and is known to come out as that token, costs one look-up;
 *   - a short piece is merged in plain arrays: a scan for the lowest rank, a memmove. Quadratic, but in cache;
 *   - a long piece is a linked list of symbols and a heap of candidate pairs: n log n.
 * A heap entry is (rank, position). It is stale when the pair at its position has another rank by now; ranks
 * belong to pairs, so an entry whose rank still agrees means the pair that is there now. */
#include "text/tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/tokenizer/unicode.h"

enum { SHORT_PIECE_UNITS = 40 };

static const uint32_t no_rank = UINT32_MAX;

struct bpe_symbol {
    int32_t id;
    int32_t previous, next; /* -1: none */
    uint32_t rank;          /* of the pair with next; no_rank: none, or merged away */
    int32_t product;
};

enum memo { MEMO_UNKNOWN, MEMO_WHOLE, MEMO_NOT_WHOLE };

void bpe_init(struct bpe *b)
{
    *b = (struct bpe){.unknown_id = -1};
}

void bpe_deinit(struct bpe *b)
{
    free(b->slots);
    free((void *)b->memo);
    bpe_init(b);
}

void bpe_work_deinit(struct bpe_work *w)
{
    free(w->ids);
    free(w->symbols);
    free(w->heap);
    *w = (struct bpe_work){0};
}

int bpe_reserve(struct bpe *b, uint64_t num_merges, struct error *err)
{
    uint64_t num_slots = 16;
    while (num_slots < num_merges * 2) num_slots *= 2;
    b->slots = malloc(num_slots * sizeof *b->slots);
    if (!b->slots)
        return error_set(err, STATUS_NO_MEMORY, "No memory for %llu merges.", (unsigned long long)num_merges);
    memset(b->slots, 0xFF, num_slots * sizeof *b->slots);
    b->slot_mask = num_slots - 1;
    return 0;
}

/* The slot of this pair, or the empty one where it would go. */
static struct merge_slot *find_slot(const struct bpe *b, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t h = pair * 0x9E3779B97F4A7C15u;
    for (uint64_t at = (h ^ h >> 32) & b->slot_mask;; at = (at + 1) & b->slot_mask) {
        struct merge_slot *slot = &b->slots[at];
        if (slot->pair == pair || slot->pair == UINT64_MAX) return slot;
    }
}

void bpe_add_merge(struct bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t product)
{
    struct merge_slot *slot = find_slot(b, left, right);
    slot->pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    slot->rank = rank;
    slot->product = product;
}

static uint32_t find_merge(const struct bpe *b, int32_t left, int32_t right, int32_t *product)
{
    const struct merge_slot *slot = find_slot(b, left, right);
    if (slot->pair == UINT64_MAX) return no_rank;
    *product = slot->product;
    return slot->rank;
}

/* A token that text may turn into by itself. */
static int32_t find_plain(const struct vocab *v, const char *key, size_t key_bytes)
{
    int32_t id = vocab_find(v, key, key_bytes);
    return id >= 0 && (vocab_flags(v, id) & TOKEN_SPECIAL) ? -1 : id;
}

int bpe_finish(struct bpe *b, const struct vocab *v, struct error *err)
{
    static const char digits[] = "0123456789ABCDEF";
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte, name[] = {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
        b->byte_ids[byte] = b->byte_level ? find_plain(v, &c, 1) : vocab_find(v, name, sizeof name);
        if (byte < 128) b->ascii_ids[byte] = find_plain(v, &c, 1);
    }
    b->memo = calloc((size_t)v->num_ids + 1, sizeof *b->memo);
    return b->memo ? 0
                   : error_set(err, STATUS_NO_MEMORY, "No memory for a vocabulary of %d tokens.", v->num_ids);
}

static int work_reserve(struct bpe_work *w, size_t num_units)
{
    if (num_units <= w->capacity) return 0;
    size_t capacity = max_of(num_units, max_of(w->capacity * 2, (size_t)256));
    bpe_work_deinit(w);
    w->ids = malloc(capacity * sizeof *w->ids);
    w->symbols = malloc(capacity * sizeof *w->symbols);
    /* A merge takes one entry out and puts at most two in. */
    w->heap = malloc(capacity * 2 * sizeof *w->heap);
    if (!w->ids || !w->symbols || !w->heap) {
        bpe_work_deinit(w);
        return STATUS_NO_MEMORY;
    }
    w->capacity = capacity;
    return 0;
}

/* The tokens of the units before any merge. */
struct unit_list {
    int32_t *ids;
    int32_t num_ids;
    bool unknown_pending;
};

static void add_unit(struct unit_list *units, const struct bpe *b, int32_t id)
{
    if (units->unknown_pending) units->ids[units->num_ids++] = b->unknown_id;
    units->unknown_pending = false;
    units->ids[units->num_ids++] = id;
}

static void add_unknown(struct unit_list *units, const struct bpe *b)
{
    if (b->unknown_id < 0) return;
    if (units->unknown_pending && !b->fuse_unknown) units->ids[units->num_ids++] = b->unknown_id;
    units->unknown_pending = true;
}

/* A pending unknown token stays behind these bytes, as in the reference; that matters only to a vocabulary
 * that has some of the byte tokens but not all. */
static bool add_fallback_bytes(struct unit_list *units, const struct bpe *b, const unsigned char *p,
                               int num_bytes)
{
    for (int i = 0; i < num_bytes; i++) {
        if (b->byte_ids[p[i]] < 0) return false;
    }
    for (int i = 0; i < num_bytes; i++) units->ids[units->num_ids++] = b->byte_ids[p[i]];
    return true;
}

static void add_byte(struct unit_list *units, const struct bpe *b, unsigned char byte)
{
    if (b->byte_ids[byte] >= 0)
        add_unit(units, b, b->byte_ids[byte]);
    else
        add_unknown(units, b);
}

static void add_code_point(struct unit_list *units, const struct bpe *b, const struct vocab *v,
                           const unsigned char *p, int num_bytes)
{
    int32_t id = *p < 128 ? b->ascii_ids[*p] : find_plain(v, (const char *)p, (size_t)num_bytes);
    if (id >= 0)
        add_unit(units, b, id);
    else if (!b->byte_fallback || !add_fallback_bytes(units, b, p, num_bytes))
        add_unknown(units, b);
}

static int32_t list_units(const struct bpe *b, const struct vocab *v, const char *piece, size_t piece_bytes,
                          int32_t *ids)
{
    struct unit_list units = {.ids = ids};
    const unsigned char *p = (const unsigned char *)piece, *end = p + piece_bytes;
    while (p < end) {
        int num_bytes = 1;
        if (b->byte_level) {
            add_byte(&units, b, *p);
        } else {
            utf8_decode(p, end, &num_bytes);
            add_code_point(&units, b, v, p, num_bytes);
        }
        p += num_bytes;
    }
    if (units.unknown_pending) units.ids[units.num_ids++] = b->unknown_id;
    return units.num_ids;
}

/* A unit of a short piece, and the pair that it makes with the next one. */
struct short_unit {
    int32_t id;
    uint32_t rank;
    int32_t product;
};

static void renew_short_pair(const struct bpe *b, struct short_unit *unit, const struct short_unit *end)
{
    unit->rank = unit + 1 < end ? find_merge(b, unit[0].id, unit[1].id, &unit->product) : no_rank;
}

static int32_t merge_short(const struct bpe *b, int32_t *ids, int32_t n)
{
    struct short_unit units[SHORT_PIECE_UNITS], *end = units + n;
    for (int32_t i = 0; i < n; i++) units[i].id = ids[i];
    for (struct short_unit *unit = units; unit < end; unit++) renew_short_pair(b, unit, end);
    for (;;) {
        struct short_unit *best = units;
        for (struct short_unit *unit = units + 1; unit < end; unit++) {
            if (unit->rank < best->rank) best = unit;
        }
        if (best->rank == no_rank) break;
        best->id = best->product;
        end--;
        memmove(best + 1, best + 2, (size_t)(end - best - 1) * sizeof *best);
        renew_short_pair(b, best, end);
        if (best > units) renew_short_pair(b, best - 1, end);
    }
    n = (int32_t)(end - units);
    for (int32_t i = 0; i < n; i++) ids[i] = units[i].id;
    return n;
}

/* A heap of four children a node, the lowest on top. */
static void heap_sift_down(uint64_t *heap, size_t n, size_t at)
{
    uint64_t entry = heap[at];
    for (;;) {
        size_t child = at * 4 + 1, child_end = min_of(child + 4, n);
        if (child >= n) break;
        for (size_t i = child + 1; i < child_end; i++) {
            if (heap[i] < heap[child]) child = i;
        }
        if (heap[child] >= entry) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = entry;
}

static void heap_push(uint64_t *heap, size_t *n, uint64_t entry)
{
    size_t at = (*n)++;
    while (at > 0 && heap[(at - 1) / 4] > entry) {
        heap[at] = heap[(at - 1) / 4];
        at = (at - 1) / 4;
    }
    heap[at] = entry;
}

static uint64_t heap_pop(uint64_t *heap, size_t *n)
{
    uint64_t top = heap[0];
    heap[0] = heap[--*n];
    heap_sift_down(heap, *n, 0);
    return top;
}

/* Looks the pair at position up again and makes it a candidate if it can be merged. */
static void renew_pair(const struct bpe *b, struct bpe_work *w, size_t *heap_size, int32_t position)
{
    struct bpe_symbol *s = &w->symbols[position];
    s->rank = s->next < 0 ? no_rank : find_merge(b, s->id, w->symbols[s->next].id, &s->product);
    if (s->rank != no_rank) heap_push(w->heap, heap_size, (uint64_t)s->rank << 32 | (uint32_t)position);
}

static size_t start_symbols(const struct bpe *b, struct bpe_work *w, int32_t n)
{
    size_t heap_size = 0;
    for (int32_t i = 0; i < n; i++) {
        struct bpe_symbol *s = &w->symbols[i];
        *s = (struct bpe_symbol){
            .id = w->ids[i], .previous = i - 1, .next = i + 1 < n ? i + 1 : -1, .rank = no_rank};
        if (s->next >= 0) s->rank = find_merge(b, s->id, w->ids[i + 1], &s->product);
        if (s->rank != no_rank) w->heap[heap_size++] = (uint64_t)s->rank << 32 | (uint32_t)i;
    }
    for (size_t i = heap_size / 4 + 1; i-- > 0;) {
        if (i < heap_size) heap_sift_down(w->heap, heap_size, i);
    }
    return heap_size;
}

static int32_t merge_long(const struct bpe *b, struct bpe_work *w, int32_t n)
{
    size_t heap_size = start_symbols(b, w, n);
    while (heap_size > 0) {
        uint64_t top = heap_pop(w->heap, &heap_size);
        int32_t position = (int32_t)(uint32_t)top;
        struct bpe_symbol *s = &w->symbols[position];
        if (s->rank != (uint32_t)(top >> 32)) continue;
        struct bpe_symbol *right = &w->symbols[s->next];
        s->id = s->product;
        s->next = right->next;
        right->rank = no_rank;
        if (s->next >= 0) w->symbols[s->next].previous = position;
        renew_pair(b, w, &heap_size, position);
        if (s->previous >= 0) renew_pair(b, w, &heap_size, s->previous);
    }
    int32_t num_ids = 0;
    for (int32_t i = 0; i >= 0; i = w->symbols[i].next) w->ids[num_ids++] = w->symbols[i].id;
    return num_ids;
}

static int32_t merge(const struct bpe *b, struct bpe_work *w, int32_t n)
{
    if (n < 2) return n;
    return n <= SHORT_PIECE_UNITS ? merge_short(b, w->ids, n) : merge_long(b, w, n);
}

int bpe_encode(const struct bpe *b, const struct vocab *v, const char *piece, size_t num_bytes,
               struct bpe_work *w, int32_t *num_ids)
{
    if (num_bytes > BPE_PIECE_BYTES_MAX) return STATUS_LIMIT;
    /* Units are never more than bytes; one more for an unknown token that is put off. */
    int status = work_reserve(w, num_bytes + 1);
    if (status) return status;
    int32_t whole = find_plain(v, piece, num_bytes);
    if (whole >= 0 &&
        (b->ignore_merges || atomic_load_explicit(&b->memo[whole], memory_order_relaxed) == MEMO_WHOLE)) {
        w->ids[0] = whole;
        *num_ids = 1;
        return 0;
    }
    *num_ids = merge(b, w, list_units(b, v, piece, num_bytes, w->ids));
    if (whole >= 0) {
        bool came_out = *num_ids == 1 && w->ids[0] == whole;
        atomic_store_explicit(&b->memo[whole], came_out ? MEMO_WHOLE : MEMO_NOT_WHOLE, memory_order_relaxed);
    }
    return 0;
}
