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

/* Where adapters' names begin. */
static int first_lora(const struct server *server)
{
    return server->num_model_names - server->num_loras;
}

int model_name_lora(const struct server *server, const char *name)
{
    for (int i = first_lora(server); i < server->num_model_names; i++)
        if (stands_for(server->model_names[i], name)) return i - first_lora(server) + 1;
    return 0;
}

const char *model_name_of_lora(const struct server *server, int lora)
{
    return server->model_names[first_lora(server) + lora - 1];
}

bool model_name_is_served(const struct server *server, const char *name)
{
    for (int i = 0; i < server->num_model_names; i++)
        if (stands_for(server->model_names[i], name)) return true;
    return false;
}
