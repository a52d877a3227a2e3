#include "cli/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "cli/chat_server.h"
#include "cli/conversation.h"
#include "config/api_keys.h"
#include "config/closest.h"
#include "config/config.h"

enum { EXIT_USAGE = 2 };

struct chat_options {
    const char *url, *model, *key_file;
};

static int fail(const struct error *err, int code)
{
    fprintf(stderr, "flashd: %s\n", err->text);
    return code;
}

/* ---- with a server that runs ---- */

static const char *const names[] = {"--url", "--model", "--api-key-file"};

static int load_option(struct chat_options *o, int num_args, char **args, int *i, struct error *err)
{
    const char **const fields[] = {&o->url, &o->model, &o->key_file};
    const char *arg = args[*i];
    size_t n = strcspn(arg, "=");
    for (size_t k = 0; k < array_length(names); k++) {
        if (strlen(names[k]) != n || strncmp(arg, names[k], n) != 0) continue;
        if (arg[n] != '=' && *i + 1 == num_args)
            return error_set(err, STATUS_INVALID, "%s needs a value", names[k]);
        *fields[k] = arg[n] == '=' ? arg + n + 1 : args[++*i];
        return STATUS_OK;
    }
    const char *meant = closest_word(arg, n, names, array_length(names));
    return error_set(err, STATUS_INVALID, "chat --url: \"%s\" is not understood%s%s%s", arg,
                     meant ? "; did you mean \"" : "", meant ? meant : "", meant ? "\"?" : "");
}

/* The first of --api-key-file, as `serve` reads it; else the environment's. NULL: none. */
static int find_key(const struct chat_options *o, struct config *config, const char **key, struct error *err)
{
    const char *told = getenv("FLASHD_API_KEY");
    int status = 0;
    if (o->key_file)
        status = config_set(config, "api-key-file", o->key_file, "--api-key-file", err);
    else if (told)
        status = config_set(config, "api-key", told, "FLASHD_API_KEY", err);
    if (!status) status = api_keys_load(config, err);
    *key = config->api_key.num_items > 0 ? config->api_key.items[0] : NULL;
    return status;
}

static int chat_with(const struct chat_options *o, struct config *config)
{
    struct http_client client;
    struct error err = {0};
    const char *key;
    if (find_key(o, config, &key, &err) || http_client_init(&client, o->url, key, &err))
        return fail(&err, EXIT_USAGE);
    return conversation_run(&client, o->model, &err) ? fail(&err, EXIT_FAILURE) : EXIT_SUCCESS;
}

static int chat_elsewhere(int num_args, char **args)
{
    struct chat_options options = {0};
    struct error err = {0};
    struct config config;
    for (int i = 0; i < num_args; i++)
        if (load_option(&options, num_args, args, &i, &err)) return fail(&err, EXIT_USAGE);
    if (config_init(&config, &err)) return fail(&err, EXIT_FAILURE);
    int code = chat_with(&options, &config);
    config_deinit(&config);
    return code;
}

/* ---- with one of its own ---- */

static int chat_here(int num_args, char **args)
{
    struct chat_server server;
    struct http_client client;
    struct error err = {0};
    int status = chat_server_start(&server, num_args, args, &err);
    if (!status) status = http_client_init(&client, server.url, NULL, &err);
    if (!status) status = conversation_run(&client, NULL, &err);
    chat_server_stop(&server);
    return status ? fail(&err, EXIT_FAILURE) : EXIT_SUCCESS;
}

int chat_run(int num_args, char **args)
{
    for (int i = 0; i < num_args; i++)
        if (!strcmp(args[i], "--url") || !strncmp(args[i], "--url=", 6))
            return chat_elsewhere(num_args, args);
    if (num_args > 0) return chat_here(num_args, args);
    fprintf(stderr, "flashd: chat MODEL, or chat --url URL, is expected\n");
    return EXIT_USAGE;
}
