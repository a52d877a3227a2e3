#include "server/api/model_names.h"

#include <string.h>

#include "server/api/loras.h"

bool model_name_is_pattern(const char *name)
{
    size_t n = strlen(name);
    return n > 0 && name[n - 1] == '*';
}

bool model_name_stands_for(const char *served, const char *name)
{
    size_t n = strlen(served);
    if (model_name_is_pattern(served)) return !strncmp(served, name, n - 1);
    return !strncmp(served, name, n) && (!name[n] || !strcmp(name + n, ":latest"));
}

bool model_name_is_models(const struct server *server, const char *name)
{
    for (int i = 0; i < server->num_model_names; i++)
        if (model_name_stands_for(server->model_names[i], name)) return true;
    return false;
}

bool model_name_is_served(const struct server *server, const char *name)
{
    return model_name_is_models(server, name) || loras_find(server->loras, name) > 0;
}

const char *model_name_next(const struct server *server, int *at)
{
    const int num = server->num_model_names, end = num + loras_num_places(server->loras);
    while (*at < end) {
        const int i = (*at)++, place = i - num + 1;
        if (i < num && !model_name_is_pattern(server->model_names[i])) return server->model_names[i];
        if (i >= num && loras_is_there(server->loras, place)) return loras_name(server->loras, place);
    }
    return NULL;
}
