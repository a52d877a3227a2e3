#include "text/grammar/trie.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/grammar/byte_group.h"

static int compare_texts(const void *a, const void *b)
{
    const struct trie_text *x = a, *y = b;
    uint32_t n = min_of(x->num_bytes, y->num_bytes);
    int order = n ? memcmp(x->bytes, y->bytes, n) : 0;
    if (order) return order;
    if (x->num_bytes != y->num_bytes) return x->num_bytes < y->num_bytes ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

/* What is needed of a node only while the trie is made. */
struct open_node {
    uint32_t parent, depth;
    uint8_t missing, lo, hi; /* bytes that the character in progress misses, and the limits of the next */
    uint8_t group;           /* of the byte that leads here */
    uint8_t separator;       /* how many bytes of a line separator (E2 80 A8, E2 80 A9) stand here */
};

struct maker {
    const struct trie_text *texts;
    struct trie *trie;
    struct open_node *open;
    uint8_t groups[128];
};

/* The group of a byte above 127, given what its parent waits for. */
static void follow_utf8(const struct open_node *parent, uint8_t byte, struct open_node *child)
{
    *child = (struct open_node){.group = GROUP_UTF8, .lo = 0x80, .hi = 0xBF};
    if (parent->missing > 0 && byte >= parent->lo && byte <= parent->hi) {
        child->missing = parent->missing - 1;
        child->separator = parent->separator == 1 && byte == 0x80 ? 2 : 0;
        if (parent->separator == 2 && (byte == 0xA8 || byte == 0xA9)) child->group = GROUP_LINE;
    } else if (parent->missing == 0 && byte >= 0xC2 && byte <= 0xF4) {
        child->missing = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
        child->separator = byte == 0xE2;
        if (byte == 0xE0) child->lo = 0xA0;
        if (byte == 0xED) child->hi = 0x9F;
        if (byte == 0xF0) child->lo = 0x90;
        if (byte == 0xF4) child->hi = 0x8F;
    } else {
        child->group = GROUP_INVALID;
    }
}

static void describe(const struct maker *m, uint32_t parent, uint8_t byte, struct open_node *child)
{
    if (byte >= 0x80)
        follow_utf8(&m->open[parent], byte, child);
    else /* a character that is cut off by an ASCII byte was no UTF-8 */
        *child = (struct open_node){.group = m->open[parent].missing ? GROUP_INVALID : m->groups[byte]};
    child->parent = parent;
    child->depth = m->open[parent].depth + 1;
}

static void add_children(struct maker *m, uint32_t number)
{
    struct trie *t = m->trie;
    struct trie_node *node = &t->nodes[number];
    uint32_t depth = m->open[number].depth, i = node->first_value;
    while (i < node->end_value && m->texts[i].num_bytes == depth) i++;
    node->num_values = (uint16_t)min_of(i - node->first_value, (uint32_t)UINT16_MAX);
    node->first_child = t->num_nodes;
    while (i < node->end_value) {
        uint8_t byte = m->texts[i].bytes[depth];
        uint32_t child = t->num_nodes++, begin = i;
        while (i < node->end_value && m->texts[i].bytes[depth] == byte) i++;
        t->nodes[child] = (struct trie_node){.first_value = begin, .end_value = i};
        t->bytes[child] = byte;
        describe(m, number, byte, &m->open[child]);
        node->num_children++;
    }
}

/* Children have higher numbers than their parents. */
static void sum_up(struct maker *m)
{
    struct trie_node *nodes = m->trie->nodes;
    for (uint32_t i = m->trie->num_nodes; i-- > 1;) {
        struct trie_node *parent = &nodes[m->open[i].parent];
        parent->groups |= nodes[i].groups | 1u << m->open[i].group;
        parent->height = max_of(parent->height, (uint8_t)min_of(nodes[i].height + 1, TRIE_HEIGHT_MAX));
    }
}

static void build(struct maker *m, uint32_t num_texts)
{
    struct trie *t = m->trie;
    for (unsigned byte = 0; byte < 128; byte++) m->groups[byte] = (uint8_t)byte_group((uint8_t)byte);
    for (uint32_t i = 0; i < num_texts; i++) t->values[i] = m->texts[i].value;
    t->num_values = num_texts;
    t->nodes[0] = (struct trie_node){.end_value = num_texts};
    t->num_nodes = 1;
    for (uint32_t i = 0; i < t->num_nodes; i++) add_children(m, i);
    sum_up(m);
}

int trie_make(struct trie_text *texts, uint32_t num_texts, struct trie *out)
{
    uint64_t nodes_max = 1;
    *out = (struct trie){0};
    for (uint32_t i = 0; i < num_texts; i++) nodes_max += texts[i].num_bytes;
    if (nodes_max > UINT32_MAX / sizeof(struct trie_node)) return STATUS_LIMIT;
    if (num_texts > 0) qsort(texts, num_texts, sizeof *texts, compare_texts);
    struct maker m = {.texts = texts, .trie = out, .open = calloc(nodes_max, sizeof *m.open)};
    out->nodes = malloc(nodes_max * sizeof *out->nodes);
    out->bytes = malloc(nodes_max);
    out->values = malloc(((size_t)num_texts + 1) * sizeof *out->values);
    bool ok = m.open && out->nodes && out->bytes && out->values;
    if (ok) {
        build(&m, num_texts);
        void *nodes = realloc(out->nodes, out->num_nodes * sizeof *out->nodes);
        void *bytes = realloc(out->bytes, out->num_nodes);
        if (nodes) out->nodes = nodes;
        if (bytes) out->bytes = bytes;
    }
    free(m.open);
    if (ok) return 0;
    trie_deinit(out);
    return STATUS_NO_MEMORY;
}

void trie_deinit(struct trie *t)
{
    free(t->nodes);
    free(t->bytes);
    free(t->values);
    *t = (struct trie){0};
}
