/* again.h - an answer computed again and compared with its receipt (server/api/receipt.h): by a server that runs, or by
 * one of its own. Thread: the only one. */
#ifndef CLI_AGAIN_H
#define CLI_AGAIN_H

#include <cjson/cJSON.h>

#include "base/buffer.h"
#include "cli/chat_server.h"
#include "cli/remote.h"

/* Who computes: exactly one of url and model. */
struct again_options {
    const char *url, *model, *key_file;
};

struct again {
    struct chat_server own; /* where there is no URL; FLASHD_... variables are its options */
    struct remote remote;
};

/* again_close also after a failure. STATUS_INVALID: the options are not as they should be. */
int again_open(struct again *a, const struct again_options *o, struct error *err) must_check;
void again_close(struct again *a);

/* The receipt that a text is or holds: an answer, a stream of events, lines of JSON. NULL: none. The caller frees it. */
cJSON *again_find_receipt(const char *text, size_t num_bytes);

/* What one more answer showed; the first that differs is told. */
enum again_verdict {
    AGAIN_SAME,
    AGAIN_OTHER, /* answer, request, model or receipt */
    AGAIN_NONE,  /* nothing was computed */
};

/* body: the request as it came. answer: what the server sends, for a client. why: a sentence; with AGAIN_SAME "" or what
 * differed nevertheless. */
enum again_verdict again_check(const struct again *a, const cJSON *receipt, const char *body,
                               struct buffer *answer, struct error *why);

#endif
