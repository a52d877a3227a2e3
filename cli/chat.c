#include "cli/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/chat_server.h"
#include "cli/command.h"
#include "cli/conversation.h"
#include "cli/remote.h"

struct chat_options {
    const char *url, *model, *key_file;
};

/* ---- with a server that runs ---- */

const struct flag chat_flags[] = {
    {"url", "url", "of a server that runs, instead of MODEL", FLAG_TEXT, offsetof(struct chat_options, url),
     0, 0},
    {"model", "name", "of the server's models (default: the first)", FLAG_TEXT,
     offsetof(struct chat_options, model), 0, 0},
    {"api-key-file", "file", "its first key (default: FLASHD_API_KEY)", FLAG_TEXT,
     offsetof(struct chat_options, key_file), 0, 0},
    {.name = NULL},
};

static int chat_elsewhere(int num_args, char **args)
{
    struct chat_options o = {0};
    struct remote remote;
    struct error err = {0};
    if (flags_load(chat_flags, &o, "chat --url", NULL, num_args, args, &err))
        return command_fail(&err, EXIT_USAGE);
    bool ready = !remote_init(&remote, o.url, o.key_file, &err);
    int status = ready ? conversation_run(&remote.client, o.model, &err) : STATUS_INVALID;
    remote_deinit(&remote);
    return !status ? EXIT_SUCCESS : command_fail(&err, ready ? EXIT_FAILURE : EXIT_USAGE);
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
    return status ? command_fail(&err, EXIT_FAILURE) : EXIT_SUCCESS;
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
