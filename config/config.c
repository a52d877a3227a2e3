#include "config/config.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory_limit.h"
#include "config/api_keys.h"
#include "config/arguments.h"
#include "config/config_file.h"
#include "config/option_table.h"
#include "config/lora_modules.h"

int config_init(struct config *c, struct error *err)
{
    memset(c, 0, sizeof *c);
    for (size_t i = 0; i < NUM_OPTIONS; i++) {
        const struct option *o = &options[i];
        void *field = option_field(c, o);
        switch (o->type) {
        case OPTION_TEXT:
            *(char **)field = o->default_text ? strdup(o->default_text) : NULL;
            if (o->default_text && !*(char **)field) return error_set(err, STATUS_NO_MEMORY, "out of memory");
            break;
        case OPTION_INT:
            *(int64_t *)field = o->default_int;
            break;
        case OPTION_BYTES:
            *(uint64_t *)field = (uint64_t)o->default_int;
            break;
        case OPTION_REAL:
            *(double *)field = o->default_number;
            break;
        case OPTION_FLAG:
            *(bool *)field = o->default_int != 0;
            break;
        case OPTION_LIST:
        case OPTION_SECTION:
            break;
        }
    }
    return STATUS_OK;
}

void config_deinit(struct config *c)
{
    for (size_t i = 0; i < NUM_OPTIONS; i++) {
        if (options[i].type == OPTION_TEXT) free(*(char **)option_field(c, &options[i]));
        if (options[i].type == OPTION_LIST) text_list_deinit(option_field(c, &options[i]));
    }
    free(c->api_key_terms);
    free(c->model);
    free(c->model_path);
    text_list_deinit(&c->arguments);
    memset(c, 0, sizeof *c);
}

bool config_is_list(const char *name)
{
    const struct option *o = option_find(name, strlen(name));
    return o && o->type == OPTION_LIST;
}

int config_set(struct config *c, const char *name, const char *value, const char *source, struct error *err)
{
    if (!strcmp(name, "model")) return option_set_text(&c->model, name, value, source, err);
    const struct option *o = option_find(name, strlen(name));
    return o ? option_set(c, o, value, source, err)
             : option_fail_unknown(source, "", name, strlen(name), err);
}

/* So Kubernetes tells a pod of each Service of its namespace: of one that is called flashd,
 * FLASHD_PORT=tcp://10.0.0.1:80. */
static bool tells_of_a_service(const char *name, const char *value)
{
    enum { PORT_BYTES = 4 };
    size_t n = strlen(name);
    return n >= PORT_BYTES && !strcmp(name + n - PORT_BYTES, "port") && strstr(value, "://");
}

/* "FLASHD_MAX_NUM_SEQS=8" sets max-num-seqs. Variables that only begin like ours are somebody else's, unless
 * they look like slips: a key that is misspelt must not be missing. */
static int load_variable(struct config *c, const char *variable, struct error *err)
{
    enum { PREFIX_BYTES = 7 };
    char source[64], name[64];
    size_t n = strcspn(variable, "=");
    if (strncmp(variable, "FLASHD_", PREFIX_BYTES) != 0 || n >= sizeof source || !variable[n])
        return STATUS_OK;
    snprintf(source, sizeof source, "%.*s", (int)n, variable);
    for (size_t i = 0; i < sizeof source - PREFIX_BYTES; i++) {
        char letter = source[PREFIX_BYTES + i];
        name[i] = letter == '_' ? '-' : (char)tolower((unsigned char)letter);
        if (!letter) break;
    }
    if (tells_of_a_service(name, variable + n + 1)) return STATUS_OK;
    if (!strcmp(name, "model")) return config_set(c, name, variable + n + 1, source, err);
    const struct option *o = option_find(name, strlen(name));
    if (!o)
        return option_closest_name(name, strlen(name))
                   ? option_fail_unknown(source, "", name, strlen(name), err)
                   : STATUS_OK;
    if (o->type == OPTION_LIST) text_list_deinit(option_field(c, o)); /* the later source wins */
    return option_set(c, o, variable + n + 1, source, err);
}

static int load_environment(struct config *c, char *const *environment, struct error *err)
{
    int status = STATUS_OK;
    for (; environment && *environment && !status; environment++)
        status = load_variable(c, *environment, err);
    return status;
}

/* As of every option the last counts. */
const char *config_find_path(int num_args, char *const *args, char *const *environment)
{
    for (int i = num_args - 1; i >= 0; i--) {
        if (!strncmp(args[i], "--config=", 9)) return args[i] + 9;
        if (!strcmp(args[i], "--config") && i + 1 < num_args) return args[i + 1];
    }
    for (; environment && *environment; environment++)
        if (!strncmp(*environment, "FLASHD_CONFIG=", 14)) return *environment + 14;
    return NULL;
}

int config_check(const struct config *c, struct error *err)
{
    if (c->max_buffered_bytes >= c->max_body_bytes) return lora_modules_check(c, err);
    return error_set(err, STATUS_INVALID,
                     "--max-buffered-bytes %llu: not even one body of --max-body-bytes %llu would fit",
                     (unsigned long long)c->max_buffered_bytes, (unsigned long long)c->max_body_bytes);
}

/* A value that is not the default one has been said. */
static void lower_default(struct config *c, const char *name, uint64_t most)
{
    const struct option *o = option_find(name, strlen(name));
    uint64_t *value = option_field(c, o);
    if (*value == (uint64_t)o->default_int) *value = min_of(*value, most);
}

/* A value of a chat takes half a KiB while the chat is prepared, two chats at a time. */
void config_fit_memory(struct config *c, uint64_t total_bytes)
{
    enum { CHAT_VALUE_BYTES = 512, CHATS = 2, PART = 16 };
    lower_default(c, "max-buffered-bytes", max_of(total_bytes / 8, 2 * c->max_body_bytes + MIB));
    lower_default(c, "response-store-bytes", total_bytes / 32);
    lower_default(c, "max-json-nodes", total_bytes / PART / CHATS / CHAT_VALUE_BYTES);
}

int config_load(struct config *c, int num_args, char *const *args, char *const *environment,
                struct error *err)
{
    const char *path = config_find_path(num_args, args, environment);
    for (int i = 0; i < num_args; i++)
        if (text_list_append(&c->arguments, args[i], strlen(args[i])))
            return error_set(err, STATUS_NO_MEMORY, "out of memory");
    int status = path ? config_file_load(c, path, err) : STATUS_OK;
    if (!status) status = load_environment(c, environment, err);
    if (!status) status = arguments_load(c, num_args, args, err);
    if (!status) {
        config_fit_memory(c, memory_limit_now().total);
        status = config_check(c, err);
    }
    return status ? status : api_keys_load(c, err);
}
