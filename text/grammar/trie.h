/* trie.h - texts in a tree by their bytes: nodes in one array, the children of a node beside each other.
 *
 * Values (what a text stands for) lie in the order of the texts, so those of a subtree are one range. A node
 * also knows which byte groups occur below it and how deep it is. Immutable once made. */
#ifndef TEXT_GRAMMAR_TRIE_H
#define TEXT_GRAMMAR_TRIE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { TRIE_ROOT = 0, TRIE_HEIGHT_MAX = 255 };

struct trie_node {
    uint32_t first_child;
    uint32_t first_value, end_value; /* of the whole subtree; those of the node itself come first */
    uint32_t groups;                 /* of the bytes below it (byte_group.h) */
    uint16_t num_children, num_values;
    uint8_t height; /* bytes of the longest text below it, TRIE_HEIGHT_MAX also if there are more */
};

struct trie {
    struct trie_node *nodes;
    uint8_t *bytes;   /* by node: the byte that leads to it; ascending among siblings */
    uint32_t *values; /* in the order of their texts */
    uint32_t num_nodes, num_values;
};

struct trie_text {
    const uint8_t *bytes;
    uint32_t num_bytes, value;
};

/* Sorts texts (the order of equal ones is kept by value). */
int trie_make(struct trie_text *texts, uint32_t num_texts, struct trie *out) must_check;
void trie_deinit(struct trie *t);

/* The child of a node by a byte, or UINT32_MAX. */
static inline uint32_t trie_child(const struct trie *t, uint32_t node, uint8_t byte)
{
    const uint8_t *bytes = t->bytes + t->nodes[node].first_child;
    uint32_t lo = 0, hi = t->nodes[node].num_children;
    while (lo < hi) {
        uint32_t middle = (lo + hi) / 2;
        if (bytes[middle] < byte)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo < t->nodes[node].num_children && bytes[lo] == byte ? t->nodes[node].first_child + lo
                                                                 : UINT32_MAX;
}

#endif
