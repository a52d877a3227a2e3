/* text_tree.h - states that take one of several texts: a tree, in which beginnings that are alike are there once. */
#ifndef TEXT_GRAMMAR_TEXT_TREE_H
#define TEXT_GRAMMAR_TEXT_TREE_H

#include "text/grammar/builder.h"

struct tree_text {
    const char *bytes;
    size_t num_bytes;
};

/* Sorts the texts. They end in BUILDER_FINAL, or in a final state that goes on; STATE_DEAD for none. Failures are the builder's. */
uint32_t text_tree_state(struct builder *b, struct tree_text *texts, uint32_t num_texts);

#endif
