#include "config/reload.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "config/api_keys.h"
#include "config/option_table.h"

/* Read by the loop alone, each time anew. */
static const char *const reloadable[] = {"log-level",
                                         "log-requests",
                                         "drain-delay",
                                         "drain-timeout",
                                         "header-timeout",
                                         "body-timeout",
                                         "body-min-rate",
                                         "idle-timeout",
                                         "write-timeout",
                                         "ping-interval",
                                         "stream-buffer-soft",
                                         "stream-buffer-hard",
                                         "max-buffered-bytes",
                                         "tenant-header",
                                         "max-queued-tokens",
                                         "api-key",
                                         "report-cached-tokens",
                                         "max-requests-per-connection"};

static bool is_reloadable(const struct option *o)
{
    for (size_t i = 0; i < array_length(reloadable); i++)
        if (!strcmp(o->name, reloadable[i])) return true;
    return false;
}

static bool is_same_text(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

static bool is_same_list(const struct text_list *a, const struct text_list *b)
{
    if (a->num_items != b->num_items) return false;
    for (int i = 0; i < a->num_items; i++)
        if (strcmp(a->items[i], b->items[i]) != 0) return false;
    return true;
}

static bool is_same(const struct option *o, struct config *a, struct config *b)
{
    void *x = option_field(a, o), *y = option_field(b, o);
    switch (o->type) {
    case OPTION_TEXT:
        return is_same_text(*(char **)x, *(char **)y);
    case OPTION_LIST:
        return is_same_list(x, y);
    case OPTION_FLAG:
        return *(bool *)x == *(bool *)y;
    case OPTION_REAL:
        return *(double *)x == *(double *)y;
    case OPTION_INT:
    case OPTION_BYTES:
        return !memcmp(x, y, sizeof(int64_t));
    case OPTION_SECTION:
        break;
    }
    return true;
}

/* The fresh configuration gets the old value, to free it. */
static void swap(const struct option *o, struct config *a, struct config *b)
{
    char kept[sizeof(int64_t)];
    size_t n = o->type == OPTION_FLAG ? sizeof(bool) : sizeof kept;
    memcpy(kept, option_field(a, o), n);
    memcpy(option_field(a, o), option_field(b, o), n);
    memcpy(option_field(b, o), kept, n);
}

static void note(char text[512], const char *name)
{
    size_t n = strlen(text);
    snprintf(text + n, 512 - n, "%s--%s", n > 0 ? " " : "", name);
}

/* A seed that nobody chose was drawn when the server started. */
static bool is_drawn(const struct option *o, const struct config *fresh)
{
    return !strcmp(o->name, "seed") && fresh->seed < 0;
}

/* Keys are api_keys_merge's. */
static void take_over(struct config *config, struct config *fresh, struct config_changes *changes)
{
    for (size_t i = 0; i < NUM_OPTIONS; i++) {
        const struct option *o = &options[i];
        if (is_same(o, config, fresh) || is_drawn(o, fresh) || !strcmp(o->name, "api-key")) continue;
        if (!is_reloadable(o)) {
            note(changes->at_next_start, o->name);
            continue;
        }
        swap(o, config, fresh);
        note(changes->applied, o->name);
    }
    if (!is_same_text(config->model, fresh->model)) note(changes->at_next_start, "model");
}

/* A pipe, as of `--config <(program)`, was read to its end; who opened it again would wait for a writer. */
static int refuse_pipe(const char *option, const char *path, struct error *err)
{
    struct stat st;
    if (!path || stat(path, &st) || !S_ISFIFO(st.st_mode)) return STATUS_OK;
    return error_set(err, STATUS_IO, "%s %s: a pipe, which is read once, when the server starts", option,
                     path);
}

static int check_sources(const struct config *config, char *const *environment, struct error *err)
{
    const struct text_list *args = &config->arguments;
    const char *path = config_find_path(args->num_items, args->items, environment);
    int status = refuse_pipe("--config", path, err);
    return status ? status : refuse_pipe("--api-key-file", config->api_key_file, err);
}

/* What changes now goes together with what waits for the next start. */
static int check_together(const struct config *config, const struct config *fresh, struct error *err)
{
    struct config both = *config; /* nothing of it is its own */
    both.max_buffered_bytes = fresh->max_buffered_bytes;
    return config_check(&both, err);
}

int config_reload(struct config *config, char *const *environment, struct config_changes *changes,
                  struct error *err)
{
    struct config fresh;
    bool keys_changed = false;
    *changes = (struct config_changes){0};
    int status = config_init(&fresh, err);
    if (!status) status = check_sources(config, environment, err);
    if (!status)
        status = config_load(&fresh, config->arguments.num_items, config->arguments.items, environment, err);
    if (!status) status = check_together(config, &fresh, err);
    if (!status) status = api_keys_merge(config, &fresh, &keys_changed, err);
    if (!status) take_over(config, &fresh, changes);
    if (keys_changed) note(changes->applied, "api-key");
    config_deinit(&fresh);
    return status;
}
