#include "server/api/model_names.h"

#include <string.h>

bool model_name_is_pattern(const char *name)
{
    size_t n = strlen(name);
    return n > 0 && name[n - 1] == '*';
}

static bool stands_for(const char *served, const char *name)
{
    size_t n = strlen(served);
    if (model_name_is_pattern(served)) return !strncmp(served, name, n - 1);
    return !strncmp(served, name, n) && (!name[n] || !strcmp(name + n, ":latest"));
}

bool model_name_is_served(const struct server *server, const char *name)
{
    for (int i = 0; i < server->num_model_names; i++)
        if (stands_for(server->model_names[i], name)) return true;
    return false;
}
