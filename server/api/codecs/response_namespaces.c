#include "server/api/codecs/response_namespaces.h"

#include <string.h>

#include "server/api/codecs/canonical.h"

#define BETWEEN "__"

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), num_end = strlen(end);
    return n >= num_end && !strcmp(text + n - num_end, end);
}

static const char *between_of(const char *space)
{
    return ends_with(space, BETWEEN) ? "" : BETWEEN;
}

char *response_namespaces_join(struct arena *arena, const char *space, const char *name)
{
    const char *between = between_of(space);
    size_t n = strlen(space) + strlen(between) + strlen(name) + 1;
    char *joined = arena_alloc(arena, n);
    if (joined) snprintf(joined, n, "%s%s%s", space, between, name);
    return joined;
}

int response_namespaces_add(struct translation *t, const struct namespaced_tool **list, const char *space,
                            cJSON *tool)
{
    const char *name = canonical_text(tool, "name");
    struct namespaced_tool *own = arena_alloc(t->arena, sizeof *own);
    if (!name) return 0; /* the reader's to refuse */
    if (!own) return api_error_no_memory(t->err);
    *own = (struct namespaced_tool){.joined = response_namespaces_join(t->arena, space, name),
                                    .space = arena_copy(t->arena, space, strlen(space)),
                                    .name = arena_copy(t->arena, name, strlen(name)),
                                    .next = *list};
    if (!own->joined || !own->space || !own->name) return api_error_no_memory(t->err);
    *list = own;
    return codec_put(t, tool, "name", cJSON_CreateString(own->joined));
}

const struct namespaced_tool *response_namespaces_find(const struct namespaced_tool *list, const char *joined)
{
    while (list && strcmp(list->joined, joined) != 0) list = list->next;
    return list;
}

const struct namespaced_tool *response_namespaces_find_own(const struct namespaced_tool *list,
                                                           const char *name)
{
    const struct namespaced_tool *found = NULL;
    for (; list; list = list->next) {
        if (strcmp(list->name, name) != 0) continue;
        if (found) return NULL;
        found = list;
    }
    return found;
}

const char *response_namespaces_own_name(const char *space, const char *joined)
{
    return joined + strlen(space) + strlen(between_of(space));
}
