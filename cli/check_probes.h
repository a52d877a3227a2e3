/* check_probes.h - what a server of OpenAI's protocol should hold, as a table. Thread: the only one; some start more
 * for as long as they run. */
#ifndef CLI_CHECK_PROBES_H
#define CLI_CHECK_PROBES_H

#include "cli/http_client.h"

struct check {
    const struct http_client *client;
    const char *model;
};

/* STATUS_OK: it holds. STATUS_UNSUPPORTED: the server refuses to show it. Any other: it does not; why says what came
 * instead. */
typedef int check_probe(const struct check *c, struct error *why);

/* A list of them ends with a name of NULL. */
struct check_row {
    const char *name;
    check_probe *probe;
};

extern const struct check_row check_rows[];

/* A request that cannot be answered: status 400 to 499 and an error object with a sentence are right. */
struct check_refusal {
    const char *name, *path,
        *body; /* body: its members behind the model's, or, beginning with !, all of it */
};

extern const struct check_refusal check_refusals[];

int check_refusal_holds(const struct check *c, const struct check_refusal *refusal, struct error *why);

#endif
