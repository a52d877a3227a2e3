/* Three ways to the same result, by length of the piece:
 *   - a piece that is itself a token, and is known to come out as that token, costs one look-up;
 *   - a short piece is merged in plain arrays: a scan for the lowest rank, a memmove. Quadratic, but in cache;
 *   - a long piece is a linked list of symbols and a heap of candidate pairs: n log n; a longer one is merged
 *     window by window, in the memory of two windows.
 * A heap entry is (rank, position). It is stale when the pair at its position has another rank by now; ranks
 * belong to pairs, so an entry whose rank still agrees means the pair that is there now.
 *
 * Why windows change nothing. No merge crosses the border of two tokens of a result, so the merges to its left
 * are those of the left part alone, in the same order: (1) any run of a result's tokens is the result of its
 * own units. And (2) if p ends the result P of one text, q begins the result Q of the next one, and p q is the
 * result of their units, then P Q is the result of both texts: the first merge across the border would be the
 * lowest and leftmost of the units of p and q as well. A window that begins at a border of the one before, and
 * whose first token is that one's token there, satisfies (2) by (1). Where it is another token, because what
 * follows reaches back that far, both windows are merged as one, and windows are twice as long from then on. */
#include "text/tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/tokenizer/bpe_units.h"

enum {
    SHORT_PIECE_UNITS = 40,
    WINDOW_UNITS = 4096,
    OVERLAP_SHARE =
        8, /* of a window is merged again with the next one: what follows does not reach further */
};

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
    *b = (struct bpe){.unknown_id = -1, .window_units = WINDOW_UNITS};
}

void bpe_deinit(struct bpe *b)
{
    free(b->slots);
    free((void *)b->memo);
    bpe_init(b);
}

void bpe_work_deinit(struct bpe_work *w)
{
    free(w->units);
    free(w->ids);
    free(w->begins);
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

int bpe_finish(struct bpe *b, const struct vocab *v, struct error *err)
{
    static const char digits[] = "0123456789ABCDEF";
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte, name[] = {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
        b->byte_ids[byte] = b->byte_level ? vocab_find_plain(v, &c, 1) : vocab_find(v, name, sizeof name);
        if (byte < 128) b->ascii_ids[byte] = vocab_find_plain(v, &c, 1);
    }
    b->memo = calloc((size_t)v->num_ids + 1, sizeof *b->memo);
    return b->memo ? 0
                   : error_set(err, STATUS_NO_MEMORY, "No memory for a vocabulary of %d tokens.", v->num_ids);
}

/* Keeps the units. */
static int work_reserve(struct bpe_work *w, size_t num_units)
{
    if (num_units <= w->capacity) return 0;
    size_t capacity = max_of(num_units, max_of(w->capacity * 2, (size_t)256));
    int32_t *units = realloc(w->units, capacity * sizeof *units);
    if (!units) return STATUS_NO_MEMORY;
    w->units = NULL;
    bpe_work_deinit(w);
    w->units = units;
    w->ids = malloc(capacity * sizeof *w->ids);
    w->begins = malloc((capacity + 1) * sizeof *w->begins);
    w->symbols = malloc(capacity * sizeof *w->symbols);
    /* A merge takes one entry out and puts at most two in. */
    w->heap = malloc(capacity * 2 * sizeof *w->heap);
    if (!w->ids || !w->begins || !w->symbols || !w->heap) {
        bpe_work_deinit(w);
        return STATUS_NO_MEMORY;
    }
    w->capacity = capacity;
    return 0;
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

static int32_t merge_short(const struct bpe *b, const int32_t *unit_ids, int32_t n, int32_t *ids)
{
    struct short_unit units[SHORT_PIECE_UNITS], *end = units + n;
    for (int32_t i = 0; i < n; i++) units[i].id = unit_ids[i];
    for (struct short_unit *unit = units; unit < end; unit++) renew_short_pair(b, unit, end);
    while (end > units) {
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

static size_t start_symbols(const struct bpe *b, struct bpe_work *w, const int32_t *units, int32_t n)
{
    size_t heap_size = 0;
    for (int32_t i = 0; i < n; i++) {
        struct bpe_symbol *s = &w->symbols[i];
        *s = (struct bpe_symbol){
            .id = units[i], .previous = i - 1, .next = i + 1 < n ? i + 1 : -1, .rank = no_rank};
        if (s->next >= 0) s->rank = find_merge(b, s->id, units[i + 1], &s->product);
        if (s->rank != no_rank) w->heap[heap_size++] = (uint64_t)s->rank << 32 | (uint32_t)i;
    }
    for (size_t i = heap_size / 4 + 1; i-- > 0;) {
        if (i < heap_size) heap_sift_down(w->heap, heap_size, i);
    }
    return heap_size;
}

/* Leaves the result as a list of symbols, the first at 0. */
static void merge_symbols(const struct bpe *b, struct bpe_work *w, const int32_t *units, int32_t n)
{
    size_t heap_size = start_symbols(b, w, units, n);
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
}

/* ---- windows ---- */

/* The symbols as tokens with the units that they begin at; one more begin is the end. */
static int32_t list_tokens(struct bpe_work *w, int32_t num_units)
{
    int32_t num_ids = 0;
    for (int32_t i = num_units > 0 ? 0 : -1; i >= 0; i = w->symbols[i].next) {
        w->begins[num_ids] = i;
        w->ids[num_ids++] = w->symbols[i].id;
    }
    w->begins[num_ids] = num_units;
    return num_ids;
}

static bool begins_with_token(const struct bpe_work *w, int32_t num_units, int32_t token)
{
    int32_t end = w->symbols[0].next < 0 ? num_units : w->symbols[0].next;
    return w->symbols[0].id == w->ids[token] && end == w->begins[token + 1] - w->begins[token];
}

/* The last token that begins early enough for what follows the units not to reach it. */
static int32_t find_seam(const struct bpe_work *w, int32_t num_ids, int32_t limit)
{
    int32_t seam = num_ids - 1;
    while (seam > 0 && w->begins[seam] > limit) seam--;
    return seam;
}

/* What the windows of a piece have in common. w->units holds the current one, w->ids its tokens. */
struct windows {
    const struct bpe *b;
    struct bpe_work *w;
    struct unit_cursor *cursor;
    int32_t size, num_units, num_ids;
};

/* Fills the units up to a number of them. */
static void fill_units(struct windows *s, int32_t num_units)
{
    s->num_units += unit_cursor_fill(s->cursor, s->w->units + s->num_units, num_units - s->num_units);
}

static void merge_window(struct windows *s)
{
    merge_symbols(s->b, s->w, s->w->units, s->num_units);
    s->num_ids = list_tokens(s->w, s->num_units);
}

/* Both as one, and longer ones from now on. */
static int widen(struct windows *s)
{
    s->size *= 2;
    int status = work_reserve(s->w, 2 * (size_t)s->size);
    if (status) return status;
    fill_units(s, s->size);
    merge_window(s);
    return 0;
}

/* The window that begins at token seam becomes the current one; the tokens before are known. */
static int move_on(struct windows *s, int32_t seam, bpe_take *take, void *context)
{
    struct bpe_work *w = s->w;
    int32_t begin = w->begins[seam];
    int status = take(context, w->ids, seam);
    s->num_units -= begin;
    memmove(w->units, w->units + begin, (size_t)s->num_units * sizeof *w->units);
    s->num_ids = list_tokens(w, s->num_units);
    return status;
}

static int next_window(struct windows *s, bpe_take *take, void *context)
{
    struct bpe_work *w = s->w;
    int32_t seam = find_seam(w, s->num_ids, s->num_units - s->size / OVERLAP_SHARE);
    if (seam <= 0 || w->begins[seam] < s->size / 2) return widen(s);
    int32_t begin = w->begins[seam];
    fill_units(s, begin + s->size);
    merge_symbols(s->b, w, w->units + begin, s->num_units - begin);
    return begins_with_token(w, s->num_units - begin, seam) ? move_on(s, seam, take, context) : widen(s);
}

static int encode_windows(struct windows *s, bpe_take *take, void *context)
{
    merge_window(s);
    while (unit_cursor_has_more(s->cursor)) {
        int status = next_window(s, take, context);
        if (status) return status;
    }
    return take(context, s->w->ids, s->num_ids);
}

/* ---- a piece ---- */

static void merge_all(struct windows *s)
{
    if (s->num_units <= SHORT_PIECE_UNITS)
        s->num_ids = merge_short(s->b, s->w->units, s->num_units, s->w->ids);
    else
        merge_window(s);
}

int bpe_encode(const struct bpe *b, const struct vocab *v, const char *piece, size_t num_bytes,
               struct bpe_work *w, bpe_take *take, void *context)
{
    if (num_bytes > BPE_PIECE_BYTES_MAX) return STATUS_LIMIT;
    int32_t whole = vocab_find_plain(v, piece, num_bytes);
    if (whole >= 0 &&
        (b->ignore_merges || atomic_load_explicit(&b->memo[whole], memory_order_relaxed) == MEMO_WHOLE))
        return take(context, &whole, 1);
    int status = work_reserve(w, min_of(num_bytes + 1, 2 * (size_t)b->window_units));
    if (status) return status;
    struct unit_cursor cursor = unit_cursor_start(b, v, piece, num_bytes);
    struct windows s = {.b = b, .w = w, .cursor = &cursor, .size = b->window_units};
    fill_units(&s, s.size);
    if (unit_cursor_has_more(&cursor)) return encode_windows(&s, take, context);
    merge_all(&s);
    if (whole >= 0) {
        bool came_out = s.num_ids == 1 && w->ids[0] == whole;
        atomic_store_explicit(&b->memo[whole], came_out ? MEMO_WHOLE : MEMO_NOT_WHOLE, memory_order_relaxed);
    }
    return take(context, w->ids, s.num_ids);
}
