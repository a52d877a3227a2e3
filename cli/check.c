#include "cli/check.h"

#include <stdio.h>
#include <stdlib.h>

#include <cjson/cJSON.h>

#include "cli/check_probes.h"
#include "cli/command.h"
#include "cli/remote.h"

struct check_options {
    const char *url, *model, *key_file;
    int64_t num_pairs, seed, silence_s;
    bool json;
};

#define AT(field) offsetof(struct check_options, field)

const struct flag check_flags[] = {
    {"model", "name", "of the server's models [the first]", FLAG_TEXT, AT(model), 0, 0},
    {"api-key-file", "file", "its first key [FLASHD_API_KEY]", FLAG_TEXT, AT(key_file), 0, 0},
    {"pairs", "number", "of hostile fields that are tried [200]", FLAG_COUNT, AT(num_pairs), 0, 1e9},
    {"seed", "number", "another one, other pairs [0]", FLAG_COUNT, AT(seed), 0, 1e15},
    {"timeout", "seconds", "a server that is silent for so long does not answer [120]", FLAG_COUNT,
     AT(silence_s), 1, 1e6},
    {"json", "", "rows as JSON instead of a table", FLAG_SWITCH, AT(json), 0, 0},
    {.name = NULL},
};

struct tally {
    cJSON *rows; /* NULL: a table is printed */
    int num_held, num_broken, num_missing;
};

static void tell(struct tally *t, const char *kind, const char *name, int status, const struct error *why)
{
    const char *verdict = !status ? "ok" : status == STATUS_UNSUPPORTED ? "not offered" : "FAIL";
    int *count = !status ? &t->num_held : status == STATUS_UNSUPPORTED ? &t->num_missing : &t->num_broken;
    (*count)++;
    if (!t->rows) {
        printf("%-12s %s%s%s%s\n", verdict, kind, name, status ? ": " : "", status ? why->text : "");
        fflush(stdout);
        return;
    }
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "name", name);
    cJSON_AddStringToObject(row, "kind", kind[0] ? "bad request" : "probe");
    cJSON_AddStringToObject(row, "verdict", verdict);
    if (status) cJSON_AddStringToObject(row, "why", why->text);
    cJSON_AddItemToArray(t->rows, row);
}

static void check_rows(const struct check *c, const struct check_row *rows, struct tally *t)
{
    for (const struct check_row *row = rows; row->name; row++) {
        struct error why = {0};
        int status = row->probe(c, &why);
        tell(t, "", row->name, status, &why);
    }
}

static void check_all(const struct check *c, struct tally *t)
{
    check_rows(c, check_together_rows, t);
    check_rows(c, check_field_rows, t);
    check_rows(c, check_form_rows, t);
    for (const struct check_refusal *r = check_refusals; r->name; r++) {
        struct error why = {0};
        int status = check_refusal_holds(c, r, &why);
        tell(t, "bad request: ", r->name, status, &why);
    }
    check_rows(c, check_pair_rows, t);
}

static void finish(const struct tally *t)
{
    char *text = t->rows ? cJSON_Print(t->rows) : NULL;
    if (text)
        printf("%s\n", text);
    else
        printf("%d hold, %d fail, %d not offered\n", t->num_held, t->num_broken, t->num_missing);
    free(text);
}

static int check_server(const struct check_options *o, const struct http_client *client)
{
    struct tally tally = {.rows = NULL};
    struct error err = {0};
    char *found = NULL;
    if (!o->model && remote_find_model(client, &found, &err)) return command_fail(&err, EXIT_FAILURE);
    if (o->json) tally.rows = cJSON_CreateArray();
    const struct check check = {client, o->model ? o->model : found, o->num_pairs, o->seed};
    check_all(&check, &tally);
    finish(&tally);
    cJSON_Delete(tally.rows);
    free(found);
    return tally.num_broken ? EXIT_FAILURE : EXIT_SUCCESS;
}

int check_run(int num_args, char **args)
{
    struct check_options o = {.num_pairs = 200, .silence_s = 120};
    struct remote remote;
    struct error err = {0};
    if (flags_load(check_flags, &o, "check", &o.url, num_args, args, &err))
        return command_fail(&err, EXIT_USAGE);
    if (!o.url) {
        error_set(&err, STATUS_INVALID, "check URL [options] is expected");
        return command_fail(&err, EXIT_USAGE);
    }
    int status = remote_init(&remote, o.url, o.key_file, &err);
    remote.client.silence_s = (int)o.silence_s;
    int code = status ? command_fail(&err, EXIT_USAGE) : check_server(&o, &remote.client);
    remote_deinit(&remote);
    return code;
}
