#include "cli/remote.h"

#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/buffer.h"
#include "config/api_keys.h"

enum { LIST_BYTES_MAX = 16 << 20 };

static int find_key(struct config *config, const char *key_file, struct error *err)
{
    const char *told = getenv("FLASHD_API_KEY");
    int status = 0;
    if (key_file)
        status = config_set(config, "api-key-file", key_file, "--api-key-file", err);
    else if (told)
        status = config_set(config, "api-key", told, "FLASHD_API_KEY", err);
    return status ? status : api_keys_load(config, err);
}

int remote_init(struct remote *r, const char *url, const char *key_file, struct error *err)
{
    *r = (struct remote){.config = {.model = NULL}};
    int status = config_init(&r->config, err);
    if (!status) status = find_key(&r->config, key_file, err);
    if (status) return status;
    const char *key = r->config.api_key.num_items > 0 ? r->config.api_key.items[0] : NULL;
    return http_client_init(&r->client, url, key, err);
}

void remote_deinit(struct remote *r)
{
    config_deinit(&r->config);
}

static bool append_bytes(void *context, const char *bytes, size_t n)
{
    buffer_append(context, bytes, n);
    return true;
}

int remote_find_model(const struct http_client *client, char **model, struct error *err)
{
    struct buffer text;
    int http_status = 0;
    buffer_init(&text, LIST_BYTES_MAX);
    int status = http_client_ask(client, "/v1/models", NULL, append_bytes, &text, &http_status, err);
    cJSON *list = status || !text.data ? NULL : cJSON_Parse(text.data);
    const cJSON *first = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(list, "data"), 0);
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(first, "id"));
    const cJSON *problem = cJSON_GetObjectItemCaseSensitive(list, "error");
    const char *message = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(problem, "message"));
    *model = !status && name ? strdup(name) : NULL;
    if (!status && !name)
        status = error_set(err, STATUS_IO, "%s", message ? message : "the server lists no model");
    else if (!status && !*model)
        status = error_set(err, STATUS_NO_MEMORY, "out of memory");
    cJSON_Delete(list);
    buffer_deinit(&text);
    return status;
}
