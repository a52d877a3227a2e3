/* check_probes.h - what a server of OpenAI's protocol should hold, as a table. Thread: the only one; some start more
 * for as long as they run. */
#ifndef CLI_CHECK_PROBES_H
#define CLI_CHECK_PROBES_H

#include <stdint.h>

#include "cli/http_client.h"

struct check {
    const struct http_client *client;
    const char *model;
    int64_t num_pairs, seed; /* of hostile fields; which of them */
};

/* STATUS_OK: it holds. STATUS_UNSUPPORTED: the server says that it has no such thing. Any other: it does not; why says what came
 * instead. */
typedef int check_probe(const struct check *c, struct error *why);

/* A list of them ends with a name of NULL. */
struct check_row {
    const char *name;
    check_probe *probe;
};

extern const struct check_row check_field_rows[];    /* streams, stop, logprobs, usage, n */
extern const struct check_row check_together_rows[]; /* many at a time */
extern const struct check_row check_form_rows[];     /* structured output, tools */
extern const struct check_row check_pair_rows[];     /* hostile fields, two at a time */

/* A request that cannot be answered: status 400 to 499 and an error object with a sentence are right. */
struct check_refusal {
    const char *name, *path,
        *body; /* body: its members behind the model's, or, beginning with !, all of it */
};

extern const struct check_refusal check_refusals[];

int check_refusal_holds(const struct check *c, const struct check_refusal *refusal, struct error *why);

#endif
