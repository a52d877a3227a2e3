#include <stdlib.h>

#include "text/grammar/program.h"

void grammar_free(struct grammar *g)
{
    if (!g) return;
    free(g->states);
    free(g->edges);
    free(g->calls);
    free(g->loops);
    free(g->classes);
    free(g->entries);
    free(g->objects);
    free(g->keys);
    free(g->rules);
    free(g);
}

size_t grammar_bytes(const struct grammar *g)
{
    return g->num_bytes;
}
