#include "text/grammar/names.h"

#include <search.h>
#include <string.h>

#include "base/check.h"

struct name {
    const char *text;
    size_t num_bytes;
    uint32_t number;
};

_Static_assert(sizeof(struct name) <= NAME_BYTES, "names_init makes room");

static int compare(const void *a, const void *b)
{
    const struct name *x = a, *y = b;
    if (x->num_bytes != y->num_bytes) return x->num_bytes < y->num_bytes ? -1 : 1;
    return memcmp(x->text, y->text, x->num_bytes);
}

void names_init(struct names *n, uint32_t num_max)
{
    *n = (struct names){0};
    arena_init(&n->arena, (size_t)num_max * NAME_BYTES);
}

/* Names are the arena's. */
static void leave(void *name)
{
    (void)name;
}

void names_deinit(struct names *n)
{
    tdestroy(n->tree, leave);
    arena_deinit(&n->arena);
}

uint32_t names_find(struct names *n, const char *name, size_t num_bytes, uint32_t next)
{
    const struct name key = {name, num_bytes, next};
    struct name *const *known = tfind(&key, &n->tree, compare);
    if (known) return (*known)->number;
    struct name *own = arena_alloc(&n->arena, sizeof *own);
    if (!own) return NAMES_FULL;
    *own = key;
    return tsearch(own, &n->tree, compare) ? next : NAMES_FULL;
}
