/* remote.h - a server that runs, as the command line names it: URL, API key, model. Thread: the only one. */
#ifndef CLI_REMOTE_H
#define CLI_REMOTE_H

#include "cli/http_client.h"
#include "config/config.h"

struct remote {
    struct http_client client;
    struct config config; /* owns the key */
};

/* The key: the first of key_file, as `serve` reads it; where that is NULL, FLASHD_API_KEY; else none.
 * remote_deinit also after a failure. */
int remote_init(struct remote *r, const char *url, const char *key_file, struct error *err) must_check;
void remote_deinit(struct remote *r);

/* The first of the server's list; the caller frees *model. */
int remote_find_model(const struct http_client *client, char **model, struct error *err) must_check;

#endif
