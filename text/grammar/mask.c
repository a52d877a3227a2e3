#include "text/grammar/mask.h"

#include <stdlib.h>
#include <string.h>

#include "base/bit_set.h"
#include "base/check.h"
#include "text/grammar/byte_group.h"
#include "text/grammar/matcher_state.h"
#include "text/grammar/repeats.h"
#include "text/grammar/vocabulary_parts.h"

/* A mask that took fewer steps is not worth a place in the cache. */
enum {
    STACKED_THREADS_MAX = 1 << 18,
    CHILDREN_FEW = 4,
    CHILDREN_MANY = 24,
    CACHED_STEPS_MIN = 100,
    CACHED_DEPTH_MAX = STACK_DEPTH_MAX / 2,
    WORK_MAX = 1 << 27 /* threads looked at: 0.1 to 0.3 s */
};

/* The bytes of a state that has edges and characters only: where each leads, 0 for nowhere, ROW_OTHER where
 * more than a state has to be looked at. */
struct row {
    uint32_t targets[256];
};
enum { ROWS = 128 };
#define ROW_OTHER UINT32_MAX

struct mask_maker {
    const struct vocabulary *v;
    const struct grammar *g;
    struct frames frames;
    struct thread *threads; /* sets of threads by depth, on each other */
    uint32_t capacity;
    uint64_t *words, *own_words; /* of the caller; a second mask */
    const struct trie *trie;     /* being walked */
    uint64_t *whole;             /* nodes of the vocabulary's trie all of whose tokens are let in */
    bool has_whole, keeps_whole; /* for the walks of this mask; during one of them */
    uint8_t allows_chars[TOKEN_BYTES_MAX + 1]; /* in the trie of tails: by the characters before the quote */
    struct row *rows;                          /* by the low bits of the state, of the grammar of this mask */
    uint32_t row_states[ROWS];
    uint32_t num_steps;
    int status;
};

int mask_maker_new(const struct vocabulary *v, struct mask_maker **out)
{
    struct mask_maker *w = calloc(1, sizeof *w);
    *out = NULL;
    if (w) {
        w->own_words = malloc(v->num_words * sizeof *w->own_words);
        w->rows = calloc(ROWS, sizeof *w->rows);
        w->whole = malloc(bit_set_words(v->trie.num_nodes) * sizeof *w->whole);
    }
    if (!w || !w->own_words || !w->rows || !w->whole || !frames_init(&w->frames)) {
        mask_maker_free(w);
        return STATUS_NO_MEMORY;
    }
    w->v = v;
    *out = w;
    return 0;
}

void mask_maker_free(struct mask_maker *w)
{
    if (!w) return;
    frames_deinit(&w->frames);
    free(w->threads);
    free(w->own_words);
    free(w->rows);
    free(w->whole);
    free(w);
}

/* Room for one more set on top of n threads. */
static bool reserve(struct mask_maker *w, uint32_t n)
{
    uint32_t needed = n + THREADS_MAX;
    if (needed <= w->capacity) return true;
    struct thread *threads =
        needed <= STACKED_THREADS_MAX ? realloc(w->threads, 2 * needed * sizeof *threads) : NULL;
    if (!threads) {
        w->status = needed <= STACKED_THREADS_MAX ? STATUS_NO_MEMORY : STATUS_LIMIT;
        return false;
    }
    w->threads = threads;
    w->capacity = 2 * needed;
    return true;
}

/* The set at begin (n threads) after a byte, put on top of it; 0 when there is none. */
static int step_on_top(struct mask_maker *w, uint32_t begin, int n, uint8_t byte)
{
    uint32_t top = begin + (uint32_t)n;
    w->num_steps++;
    if (!reserve(w, top)) return 0;
    int num_next = step_threads(w->g, &w->frames, w->threads + begin, n, byte, w->threads + top);
    if (num_next >= 0 && w->frames.work <= WORK_MAX) return num_next;
    w->status = w->frames.status ?: STATUS_LIMIT;
    return 0;
}

/* ---- tokens ---- */

static void let_in(struct mask_maker *w, uint32_t first, uint32_t end)
{
    const uint32_t *values = w->trie->values;
    if (w->trie != &w->v->tails) {
        for (uint32_t i = first; i < end; i++) bit_set_add(w->words, values[i]);
        return;
    }
    for (uint32_t i = first; i < end; i++) {
        const struct tail *tail = &w->v->tail_values[values[i]];
        if (w->allows_chars[tail->chars]) bit_set_add(w->words, tail->id);
    }
}

static void keep_out(struct mask_maker *w, uint32_t node)
{
    const struct trie_node *n = &w->trie->nodes[node];
    for (uint32_t i = n->first_value; i < n->end_value; i++) bit_set_remove(w->words, w->trie->values[i]);
}

/* ---- the walk ---- */

static bool counts_characters(const struct grammar *g, const struct state *s)
{
    enum entry_kind kind = g->entries[s->entry].kind;
    return kind == ENTRY_CHARACTER || kind == ENTRY_WITHIN;
}

/* Whether a state that counts characters lets so many bytes follow, whatever they are. */
static bool has_room(const struct grammar *g, const struct state *s, uint32_t count, uint32_t num_bytes)
{
    const struct entry *e = &g->entries[s->entry];
    return !counts_characters(g, s) || (count <= e->b && e->b - count >= num_bytes);
}

/* The same of all texts below a node. */
static bool has_room_below(const struct grammar *g, const struct state *s, uint32_t count,
                           const struct trie_node *node)
{
    return has_room(g, s, count, node->height < TRIE_HEIGHT_MAX ? node->height : TOKEN_BYTES_MAX);
}

/* Whether all texts below a node are plain, and short enough for the state. */
static bool is_plain(const struct state *s, const struct trie_node *node)
{
    return (s->plain_left == PLAIN_ANY || s->plain_left >= node->height) &&
           !(node->groups & GROUPS_NOT_PLAIN);
}

/* Whether all texts below a node leave the thread where it is. */
static bool covers(const struct mask_maker *w, const struct thread *t, const struct trie_node *node)
{
    const struct state *s = &w->g->states[t->state];
    const uint32_t spaces = 1u << GROUP_SPACE | 1u << GROUP_LINE;
    if (s->flags & STATE_SPACES && !(node->groups & ~spaces) && w->g->spaces[t->spaces].left >= node->height)
        return true;
    if (!has_room_below(w->g, s, t->count, node)) return false;
    if (is_plain(s, node)) return true;
    if (node->groups & ~s->self_groups) return false;
    const struct char_loop *loop = &w->g->loops[s->loop];
    return !loop->counts || (loop->max - t->count >= node->height && node->height < TRIE_HEIGHT_MAX);
}

static bool some_covers(const struct mask_maker *w, uint32_t begin, int n, const struct trie_node *node)
{
    for (int i = 0; i < n; i++)
        if (covers(w, &w->threads[begin + (uint32_t)i], node)) return true;
    return false;
}

/* Lets in what is below a node. Returns whether that is all of it, where that is kept. */
static bool walk(struct mask_maker *w, uint32_t node, uint32_t begin, int n);
static void visit(struct mask_maker *w, uint32_t child, uint32_t begin, int n);

/* A state that bytes lead out of without a look at stack or spaces, nor at a counter unless it is near a
 * limit. */
static bool is_simple(const struct mask_maker *w, uint32_t state, uint32_t count)
{
    const struct grammar *g = w->g;
    const struct state *s = &g->states[state];
    const struct char_loop *loop = &g->loops[s->loop];
    if (s->num_calls > 0 || s->flags & (STATE_FINAL | STATE_SPACES)) return false;
    return !loop->counts || (count >= loop->min && loop->max - count >= vocabulary_token_bytes(w->v));
}

static uint32_t simple_target(const struct grammar *g, uint32_t target)
{
    const struct state *s = &g->states[target];
    bool has_condition = s->entry != NO_ENTRY && !counts_characters(g, s);
    return s->flags & STATE_BARE_FINAL || has_condition ? ROW_OTHER : target;
}

static const struct row *find_row(struct mask_maker *w, uint32_t state)
{
    const struct grammar *g = w->g;
    const struct state *s = &g->states[state];
    struct row *row = &w->rows[state % ROWS];
    if (w->row_states[state % ROWS] == state) return row;
    w->row_states[state % ROWS] = state;
    memset(row->targets, 0, sizeof row->targets);
    if (s->loop != NO_LOOP) {
        const struct char_class *c = &g->classes[g->loops[s->loop].char_class];
        for (unsigned byte = 0; byte < 256; byte++) {
            if (byte_set_has(&c->single, byte))
                row->targets[byte] = simple_target(g, g->loops[s->loop].target);
            if (byte_set_has(&c->lead, byte)) row->targets[byte] = ROW_OTHER;
        }
    }
    for (uint32_t i = 0; i < s->num_edges; i++) {
        const struct byte_edge *e = &g->edges[s->edges + i];
        for (unsigned byte = e->lo; byte <= e->hi; byte++) row->targets[byte] = simple_target(g, e->target);
    }
    return row;
}

/* Whether all texts below a node can follow a simple state, as its flags tell. */
static bool stays(const struct grammar *g, const struct state *s, uint32_t count,
                  const struct trie_node *node)
{
    if (!has_room_below(g, s, count, node)) return false;
    return is_plain(s, node) || !(node->groups & ~s->self_groups);
}

/* Where a byte leads from a simple state, without a row. */
static uint32_t edge_target(const struct grammar *g, uint32_t state, uint8_t byte)
{
    const struct state *s = &g->states[state];
    const struct byte_edge *e = g->edges + s->edges, *end = e + s->num_edges;
    while (e < end && e->hi < byte) e++;
    if (e < end && e->lo <= byte) return simple_target(g, e->target);
    if (s->loop == NO_LOOP) return STATE_DEAD;
    const struct char_class *c = &g->classes[g->loops[s->loop].char_class];
    if (byte_set_has(&c->single, byte)) return simple_target(g, g->loops[s->loop].target);
    return byte_set_has(&c->lead, byte) ? ROW_OTHER : STATE_DEAD;
}

static void set_threads(struct mask_maker *w, uint32_t begin, int n, uint32_t state, uint32_t count)
{
    for (int i = 0; i < n; i++) {
        w->threads[begin + (uint32_t)i].state = state;
        w->threads[begin + (uint32_t)i].count = count;
    }
}

static bool is_whole(const struct mask_maker *w, uint32_t node)
{
    return w->keeps_whole && bit_set_has(w->whole, node);
}

static void keep_whole(struct mask_maker *w, uint32_t node)
{
    if (w->keeps_whole) bit_set_add(w->whole, node);
}

/* As walk, for threads in one simple state with one counter; each goes on with its stack. */
static bool walk_simply(struct mask_maker *w, uint32_t parent, uint32_t begin, int n)
{
    const struct trie_node *nodes = w->trie->nodes;
    const uint8_t *bytes = w->trie->bytes;
    uint32_t state = w->threads[begin].state, count = w->threads[begin].count;
    uint32_t end = nodes[parent].first_child + nodes[parent].num_children;
    bool is_wide = nodes[parent].num_children >= CHILDREN_MANY, all = w->keeps_whole;
    const struct row *row = is_wide ? find_row(w, state) : NULL;
    w->num_steps += nodes[parent].num_children;
    for (uint32_t child = nodes[parent].first_child; child < end && !w->status; child++) {
        uint32_t target = row ? row->targets[bytes[child]] : edge_target(w->g, state, bytes[child]);
        const struct trie_node *node = &nodes[child];
        if (is_whole(w, child)) continue;
        uint32_t next = count, entry = target == ROW_OTHER ? NO_ENTRY : w->g->states[target].entry;
        if (entry != NO_ENTRY && !step_enter(w->g, entry, &next)) target = STATE_DEAD;
        if (target == STATE_DEAD) {
            all = false;
        } else if (target == ROW_OTHER) {
            all = false;
            set_threads(w, begin, n, state, count);
            visit(w, child, begin, n);
        } else if (stays(w->g, &w->g->states[target], next, node) && is_simple(w, target, next)) {
            let_in(w, node->first_value, node->end_value);
            keep_whole(w, child);
        } else {
            let_in(w, node->first_value, node->first_value + node->num_values);
            set_threads(w, begin, n, target, next);
            if (node->num_children == 0 || walk(w, child, begin, n))
                keep_whole(w, child);
            else
                all = false;
        }
        if (row && w->row_states[state % ROWS] != state) row = find_row(w, state);
    }
    set_threads(w, begin, n, state, count);
    return all && !w->status;
}

/* Whether threads are in one simple state with one counter. */
static bool are_simple(const struct mask_maker *w, const struct thread *threads, int n)
{
    for (int i = 1; i < n; i++)
        if (threads[i].state != threads->state || threads[i].count != threads->count) return false;
    return is_simple(w, threads->state, threads->count);
}

static void visit(struct mask_maker *w, uint32_t child, uint32_t begin, int n)
{
    uint32_t num_frames = w->frames.count;
    const struct trie_node *node = &w->trie->nodes[child];
    int num_next = step_on_top(w, begin, n, w->trie->bytes[child]);
    if (num_next > 0) {
        uint32_t top = begin + (uint32_t)n;
        if (node->num_children > 0 && some_covers(w, top, num_next, node)) {
            let_in(w, node->first_value, node->end_value);
        } else {
            let_in(w, node->first_value, node->first_value + node->num_values);
            if (node->num_children > 0) walk(w, child, top, num_next);
        }
    }
    w->frames.count = num_frames;
}

static bool walk(struct mask_maker *w, uint32_t node, uint32_t begin, int n)
{
    const struct trie_node *parent = &w->trie->nodes[node];
    const struct state *s = &w->g->states[w->threads[begin].state];
    if (n == 1 && s->flags & STATE_LITERAL) {
        uint32_t child = trie_child(w->trie, node, w->g->edges[s->edges].lo);
        if (child != UINT32_MAX) visit(w, child, begin, n);
        return false;
    }
    if (are_simple(w, w->threads + begin, n)) return walk_simply(w, node, begin, n);
    struct byte_set first = {0};
    bool is_wide = parent->num_children > CHILDREN_FEW;
    if (is_wide) step_first_bytes(w->g, &w->frames, w->threads + begin, n, &first);
    for (uint32_t i = 0; i < parent->num_children && !w->status; i++) {
        uint32_t child = parent->first_child + i;
        if (!is_wide || byte_set_has(&first, w->trie->bytes[child])) visit(w, child, begin, n);
    }
    return false;
}

/* ---- inside strings ---- */

/* A string's body: characters of CLASS_ANY come back to it. */
static bool is_string_body(const struct grammar *g, uint32_t state)
{
    const struct char_loop *loop = &g->loops[g->states[state].loop];
    return g->states[state].loop != NO_LOOP && loop->char_class == CLASS_ANY && loop->target == state;
}

/* Tokens that end the string and go on behind it. */
static void add_tails(struct mask_maker *w, struct thread body)
{
    const struct char_loop *loop = &w->g->loops[w->g->states[body.state].loop];
    uint32_t left = loop->counts ? loop->max - body.count : NO_LIMIT, num_frames = w->frames.count;
    int num_next = 0;
    w->threads[0] = body;
    memset(w->allows_chars, 0, sizeof w->allows_chars);
    for (uint32_t chars = 0; chars <= min_of(w->v->max_tail_chars, left) && num_next == 0 && !w->status;
         chars++) {
        w->threads[0].count = body.count + (loop->counts ? chars : 0);
        num_next = step_on_top(w, 0, 1, '"');
        if (num_next > 0) memset(w->allows_chars + chars, 1, min_of(w->v->max_tail_chars, left) + 1 - chars);
        if (!loop->counts) break;
    }
    if (num_next > 0) {
        w->trie = &w->v->tails;
        let_in(w, 0, w->trie->nodes[TRIE_ROOT].num_values);
        walk(w, TRIE_ROOT, 1, num_next);
        w->trie = &w->v->trie;
    }
    w->frames.count = num_frames;
}

static void add_body(struct mask_maker *w, struct thread body)
{
    const struct char_loop *loop = &w->g->loops[w->g->states[body.state].loop];
    uint32_t left = loop->counts ? loop->max - body.count : NO_LIMIT;
    const uint64_t *slice = vocabulary_slice(w->v, left);
    for (size_t i = 0; i < w->v->num_words; i++) w->words[i] |= slice[i];
    for (uint32_t i = 0; left > SLICE_CHARS_MAX && left < w->v->max_chars && i < w->v->num_long; i++)
        if (w->v->long_values[i].chars <= left) bit_set_add(w->words, w->v->long_values[i].id);
    add_tails(w, body);
}

/* ---- keys of an object that may have others: a body but for the listed keys ---- */

/* Characters that are not on the way to a listed key lead into a string's body. */
static bool is_open_key(const struct grammar *g, const struct thread *t)
{
    const struct char_loop *loop = &g->loops[g->states[t->state].loop];
    uint32_t count = t->count;
    if (g->states[t->state].loop == NO_LOOP || loop->char_class != CLASS_CANONICAL ||
        loop->target == t->state)
        return false;
    return is_string_body(g, loop->target) && step_enter(g, g->states[loop->target].entry, &count);
}

/* The mask has what a body allows. Below node, along the listed keys (the one thread at begin), it is made
 * exact. */
static void follow_keys(struct mask_maker *w, uint32_t node, uint32_t begin)
{
    const struct state *s = &w->g->states[w->threads[begin].state];
    const struct trie_node *parent = &w->trie->nodes[node];
    for (uint32_t i = 0; i < parent->num_children && !w->status; i++) {
        uint32_t child = parent->first_child + i, num_frames = w->frames.count;
        uint8_t byte = w->trie->bytes[child];
        const struct byte_edge *e = w->g->edges + s->edges, *end = e + s->num_edges;
        while (e < end && byte > e->hi) e++;
        bool is_own = (e < end && byte >= e->lo) || byte == '\\';
        if (!is_own) continue;
        int num_next = step_on_top(w, begin, 1, byte);
        if (num_next == 1 && byte < 0x80 && is_open_key(w->g, &w->threads[begin + 1])) {
            follow_keys(w, child, begin + 1);
        } else {
            keep_out(w, child);
            visit(w, child, begin, 1);
        }
        w->frames.count = num_frames;
        s = &w->g->states[w->threads[begin].state];
    }
}

static void add_open_key(struct mask_maker *w, struct thread key)
{
    uint64_t *words = w->words;
    struct thread body = {w->g->loops[w->g->states[key.state].loop].target, key.count, key.stack, 0};
    w->words = w->own_words;
    memset(w->words, 0, w->v->num_words * sizeof *w->words);
    add_body(w, body);
    w->threads[0] = key;
    follow_keys(w, TRIE_ROOT, 0);
    w->words = words;
    for (size_t i = 0; i < w->v->num_words; i++) w->words[i] |= w->own_words[i];
}

/* ---- the mask ---- */

static bool copy_frames(struct mask_maker *w, const struct frames *f)
{
    w->frames.status = 0;
    if (!frames_reserve(&w->frames, f->count)) return false;
    memcpy(w->frames.items, f->items, f->count * sizeof *f->items);
    w->frames.count = f->count;
    return true;
}

static void add_end(struct mask_maker *w, const struct matcher *m)
{
    if (!matcher_can_end(m)) return;
    for (int i = 0; i < w->v->num_end_ids; i++) bit_set_add(w->words, (uint32_t)w->v->end_ids[i]);
}

/* All plain tokens, and the others one by one. */
static void add_plain(struct mask_maker *w, struct thread thread)
{
    for (size_t i = 0; i < w->v->num_words; i++) w->words[i] |= w->v->plain[i];
    w->threads[0] = thread;
    w->trie = &w->v->rest;
    walk(w, TRIE_ROOT, 0, 1);
    w->trie = &w->v->trie;
}

/* Threads in one simple state alone: several walks in simple states take less than one walk with several of them. The
 * threads that are in the state of the first go to the front; returns how many there are. */
static int add_walked(struct mask_maker *w, struct thread *threads, int n)
{
    int num_same = 1;
    for (int i = 1; i < n; i++) {
        struct thread t = threads[i];
        if (t.state != threads->state || t.count != threads->count) continue;
        threads[i] = threads[num_same];
        threads[num_same++] = t;
    }
    memcpy(w->threads, threads, (size_t)num_same * sizeof *threads);
    if (!w->has_whole && num_same < n)
        memset(w->whole, 0, bit_set_words(w->trie->num_nodes) * sizeof *w->whole);
    w->has_whole |= num_same < n;
    w->keeps_whole = w->has_whole;
    walk(w, TRIE_ROOT, 0, num_same);
    w->keeps_whole = false;
    return num_same;
}

static bool may_add_plain(const struct mask_maker *w, const struct thread *t)
{
    const struct state *s = &w->g->states[t->state];
    return s->plain_left == PLAIN_ANY && has_room(w->g, s, t->count, vocabulary_token_bytes(w->v));
}

static void compute(struct mask_maker *w, const struct thread *from, int n)
{
    int num_walked = 0, num_done = 1;
    struct thread walked[THREADS_MAX], threads[THREADS_MAX];
    memset(w->words, 0, w->v->num_words * sizeof *w->words);
    memcpy(threads, from, (size_t)n * sizeof *from);
    w->has_whole = w->keeps_whole = false;
    for (int i = 0; i < n; i += num_done) {
        num_done = 1;
        if (is_string_body(w->g, threads[i].state))
            add_body(w, threads[i]);
        else if (is_open_key(w->g, &threads[i]))
            add_open_key(w, threads[i]);
        else if (may_add_plain(w, &threads[i]))
            add_plain(w, threads[i]);
        else if (n > 1 && is_simple(w, threads[i].state, threads[i].count))
            num_done = add_walked(w, threads + i, n - i);
        else
            walked[num_walked++] = threads[i];
    }
    if (num_walked == 0) return;
    memcpy(w->threads, walked, (size_t)num_walked * sizeof *walked);
    walk(w, TRIE_ROOT, 0, num_walked);
}

static bool is_shallow(const struct frames *f, const struct thread *threads, int n)
{
    for (int i = 0; i < n; i++)
        if (f->items[threads[i].stack].depth > CACHED_DEPTH_MAX) return false;
    return true;
}

int mask_fill(struct mask_maker *w, const struct matcher *m, struct mask_cache *cache, uint64_t *words)
{
    int n;
    const struct thread *threads = matcher_threads(m, &n);
    w->g = m->grammar;
    w->words = words;
    w->trie = &w->v->trie;
    w->status = 0;
    w->num_steps = 0;
    w->frames.work = 0;
    if (cache && mask_cache_find(cache, threads, n, &m->frames, words)) {
        add_end(w, m);
        return m->grammar->has_unique ? repeats_remove(w->v, m, &w->frames, words) : 0;
    }
    if (!copy_frames(w, &m->frames) || !reserve(w, THREADS_MAX)) return STATUS_NO_MEMORY;
    memset(w->row_states, 0, sizeof w->row_states); /* STATE_DEAD: none */
    w->frames.touched = UINT32_MAX;
    compute(w, threads, n);
    if (cache && w->status == 0 && w->num_steps >= CACHED_STEPS_MIN && is_shallow(&w->frames, threads, n))
        mask_cache_add(cache, threads, n, &w->frames, words);
    add_end(w, m);
    if (w->status == 0 && m->grammar->has_unique) w->status = repeats_remove(w->v, m, &w->frames, words);
    return w->status;
}

uint64_t mask_maker_work(const struct mask_maker *w)
{
    return w->frames.work;
}
