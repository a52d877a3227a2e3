#include "text/tokenizer/unigram.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"

enum { NODES_MAX = 1 << 24 };

#define UNKNOWN_PENALTY 10.0
#define NO_PLACE UINT32_MAX

/* The best cut of what stands before a byte of the piece. */
struct unigram_place {
    double score;
    int32_t id;     /* of its last token */
    uint32_t begin; /* of its last token; NO_PLACE: nothing ends here */
    uint32_t next;  /* of the best cut of all: where the token ends that begins here */
};

void unigram_work_deinit(struct unigram_work *w)
{
    free(w->places);
    *w = (struct unigram_work){0};
}

void unigram_deinit(struct unigram *u)
{
    free(u->scores);
    free(u->edges);
    free(u->node_ids);
    *u = (struct unigram){0};
}

/* ---- the trie ---- */

/* The edge from the node by the byte, or the free place for it. */
static struct unigram_edge *edge_of(const struct unigram *u, uint32_t node, unsigned char byte)
{
    const uint32_t from = node << 8 | byte;
    for (uint32_t at = (from * 0x9E3779B1u ^ from >> 13) & u->edge_mask;; at = (at + 1) & u->edge_mask) {
        struct unigram_edge *edge = &u->edges[at];
        if (edge->from == from || edge->from == UINT32_MAX) return edge;
    }
}

static void add_to_trie(struct unigram *u, const char *key, size_t num_bytes, int32_t id)
{
    uint32_t node = 0;
    for (size_t i = 0; i < num_bytes; i++) {
        struct unigram_edge *edge = edge_of(u, node, (unsigned char)key[i]);
        if (edge->from == UINT32_MAX)
            *edge = (struct unigram_edge){node << 8 | (unsigned char)key[i], u->num_nodes++};
        node = edge->to;
    }
    u->node_ids[node] = id;
}

static bool is_in_trie(const struct unigram *u, const struct vocab *v, int32_t id)
{
    return id < u->num_scores && vocab_has(v, id) && !(vocab_flags(v, id) & (TOKEN_SPECIAL | TOKEN_NO_KEY));
}

static int reserve_trie(struct unigram *u, const struct vocab *v, struct error *err)
{
    uint64_t nodes_max = 1, num_edges = 16;
    for (int32_t id = 0; id < v->num_ids; id++) {
        size_t num_bytes = 0;
        if (is_in_trie(u, v, id)) (void)vocab_key(v, id, &num_bytes);
        nodes_max += num_bytes;
    }
    if (nodes_max >= NODES_MAX)
        return error_set(err, STATUS_UNSUPPORTED, "The names of the tokens have more than %d bytes.",
                         NODES_MAX);
    while (num_edges < nodes_max * 2) num_edges *= 2;
    u->edges = malloc(num_edges * sizeof *u->edges);
    u->node_ids = malloc(nodes_max * sizeof *u->node_ids);
    if (!u->edges || !u->node_ids) return error_set(err, STATUS_NO_MEMORY, "No memory for a tokenizer.");
    memset(u->edges, 0xFF, num_edges * sizeof *u->edges);
    memset(u->node_ids, 0xFF, nodes_max * sizeof *u->node_ids);
    u->edge_mask = (uint32_t)num_edges - 1;
    u->num_nodes = 1;
    return 0;
}

static void find_bytes(struct unigram *u, const struct vocab *v)
{
    char name[8];
    for (int i = 0; i < 256; i++) {
        const int length = snprintf(name, sizeof name, "<0x%02X>", (unsigned)i);
        u->byte_ids[i] = u->byte_fallback ? vocab_find_plain(v, name, (size_t)length) : -1;
    }
}

int unigram_finish(struct unigram *u, const struct vocab *v, struct error *err)
{
    assert_debug(u->num_scores > 0);
    double lowest = u->scores[0];
    for (int32_t id = 0; id < u->num_scores; id++) lowest = min_of(lowest, u->scores[id]);
    u->unknown_score = lowest - UNKNOWN_PENALTY;
    int status = reserve_trie(u, v, err);
    for (int32_t id = 0; id < v->num_ids && !status; id++) {
        size_t num_bytes;
        if (!is_in_trie(u, v, id)) continue;
        const char *key = vocab_key(v, id, &num_bytes);
        if (num_bytes > 0) add_to_trie(u, key, num_bytes, id);
    }
    if (!status) find_bytes(u, v);
    return status;
}

/* ---- one piece ---- */

static int reserve_places(struct unigram_work *w, size_t num)
{
    if (num > w->capacity) {
        const size_t capacity = max_of(num, w->capacity * 2 + 256);
        struct unigram_place *places = realloc(w->places, capacity * sizeof *places);
        if (!places) return STATUS_NO_MEMORY;
        w->places = places;
        w->capacity = capacity;
    }
    for (size_t i = 0; i < num; i++) w->places[i].begin = NO_PLACE;
    return 0;
}

static void offer(struct unigram_place *place, double score, int32_t id, size_t begin)
{
    if (place->begin != NO_PLACE && !(score > place->score)) return;
    place->score = score;
    place->id = id;
    place->begin = (uint32_t)begin;
}

/* All tokens that begin at a character of so many bytes. */
static void offer_tokens(const struct unigram *u, const char *piece, size_t num_bytes, size_t begin,
                         size_t length, struct unigram_place *places)
{
    const double score = begin > 0 ? places[begin].score : 0;
    bool has_character = false;
    uint32_t node = 0;
    for (size_t i = begin; i < num_bytes; i++) {
        const struct unigram_edge *edge = edge_of(u, node, (unsigned char)piece[i]);
        if (edge->from == UINT32_MAX) break;
        node = edge->to;
        const int32_t id = u->node_ids[node];
        if (id < 0) continue;
        offer(&places[i + 1], u->scores[id] + score, id, begin);
        has_character = has_character || i + 1 - begin == length;
    }
    if (!has_character) offer(&places[begin + length], u->unknown_score + score, u->unknown_id, begin);
}

static int take_unknown(const struct unigram *u, const struct vocab *v, const char *text, size_t num_bytes,
                        bpe_take *take, void *context)
{
    const int32_t whole = vocab_find_plain(v, text, num_bytes);
    bool has_bytes = whole < 0 && u->byte_fallback;
    if (whole >= 0 && whole < u->num_scores) return take(context, &whole, 1);
    for (size_t i = 0; i < num_bytes && has_bytes; i++) has_bytes = u->byte_ids[(unsigned char)text[i]] >= 0;
    if (!has_bytes) return take(context, &u->unknown_id, 1);
    for (size_t i = 0; i < num_bytes; i++) {
        const int status = take(context, &u->byte_ids[(unsigned char)text[i]], 1);
        if (status) return status;
    }
    return 0;
}

static int take_path(const struct unigram *u, const struct vocab *v, const char *piece, size_t num_bytes,
                     struct unigram_place *places, bpe_take *take, void *context)
{
    for (size_t end = num_bytes; end > 0; end = places[end].begin)
        places[places[end].begin].next = (uint32_t)end;
    for (size_t begin = 0, end; begin < num_bytes; begin = end) {
        end = places[begin].next;
        const bool is_unknown = places[end].id == u->unknown_id;
        while (is_unknown && end < num_bytes && places[places[end].next].id == u->unknown_id)
            end = places[end].next;
        const int status = is_unknown ? take_unknown(u, v, piece + begin, end - begin, take, context)
                                      : take(context, &places[end].id, 1);
        if (status) return status;
    }
    return 0;
}

int unigram_encode(const struct unigram *u, const struct vocab *v, const char *piece, size_t num_bytes,
                   struct unigram_work *work, bpe_take *take, void *context)
{
    if (num_bytes == 0) return 0;
    if (num_bytes > BPE_PIECE_BYTES_MAX) return STATUS_LIMIT;
    int length, status = reserve_places(work, num_bytes + 1);
    if (status) return status;
    const unsigned char *p = (const unsigned char *)piece, *const end = p + num_bytes;
    for (size_t begin = 0; begin < num_bytes; begin += (size_t)length) {
        (void)utf8_decode(p + begin, end, &length);
        offer_tokens(u, piece, num_bytes, begin, (size_t)length, work->places);
    }
    return take_path(u, v, piece, num_bytes, work->places, take, context);
}
