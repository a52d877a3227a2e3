#include "text/grammar/text_tree.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* Edges of the nodes from the root to where the work is: a client's texts may nest thousands deep. */
struct tree {
    struct builder *builder;
    struct pool edges;
};

static int compare(const void *a, const void *b)
{
    const struct tree_text *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, min_of(x->num_bytes, y->num_bytes));
    return order ? order : (x->num_bytes > y->num_bytes) - (x->num_bytes < y->num_bytes);
}

static uint32_t grow(struct tree *t, const struct tree_text *texts, uint32_t n, size_t depth);

/* Texts that share their first depth bytes and no more, or are alike. */
static uint32_t branch(struct tree *t, const struct tree_text *texts, uint32_t n, size_t depth)
{
    uint32_t first = t->edges.count, i = 0;
    while (i < n && texts[i].num_bytes == depth) i++;
    if (i == n) return BUILDER_FINAL;
    uint32_t state = builder_state(t->builder, i > 0 ? STATE_FINAL : 0);
    while (i < n && !t->edges.status && !builder_status(t->builder)) {
        uint32_t begin = i;
        uint8_t byte = (uint8_t)texts[i].bytes[depth];
        while (i < n && (uint8_t)texts[i].bytes[depth] == byte) i++;
        uint32_t next = grow(t, texts + begin, i - begin, depth + 1);
        struct byte_edge *edge = pool_push(&t->edges, 1);
        if (edge) *edge = (struct byte_edge){byte, byte, next};
    }
    builder_set_edges(t->builder, state, pool_items(struct byte_edge, &t->edges) + first,
                      t->edges.count - first);
    t->edges.count = first;
    return state;
}

/* Texts that share their first depth bytes: what they share beyond them, and a branch. */
static uint32_t grow(struct tree *t, const struct tree_text *texts, uint32_t n, size_t depth)
{
    const struct tree_text *a = &texts[0], *z = &texts[n - 1];
    size_t end = depth, most = min_of(a->num_bytes, z->num_bytes);
    while (end < most && a->bytes[end] == z->bytes[end]) end++;
    uint32_t state = branch(t, texts, n, end);
    return builder_text(t->builder, a->bytes + depth, end - depth, state);
}

uint32_t text_tree_state(struct builder *b, struct tree_text *texts, uint32_t num_texts)
{
    struct tree t = {.builder = b};
    if (num_texts == 0) return STATE_DEAD;
    pool_init(&t.edges, sizeof(struct byte_edge), GRAMMAR_STATES_MAX);
    qsort(texts, num_texts, sizeof *texts, compare);
    uint32_t state = grow(&t, texts, num_texts, 0);
    if (t.edges.status && !b->edges.status) b->edges.status = t.edges.status;
    pool_deinit(&t.edges);
    return state;
}
