#include "cli/verify.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/again.h"
#include "cli/command.h"

enum { TEXT_BYTES_MAX = 1 << 30, READ_BYTES = 64 << 10 };

struct verify_options {
    struct again_options who;
    const char *receipt, *request;
};

#define AT(field) offsetof(struct verify_options, field)

const struct flag verify_flags[] = {
    {"request", "file", "what was asked: the request's body", FLAG_TEXT, AT(request), 0, 0},
    {"model", "model", "computes here; FLASHD_... variables are its options", FLAG_TEXT, AT(who.model), 0, 0},
    {"url", "url", "of a server that runs with --receipts, instead of --model", FLAG_TEXT, AT(who.url), 0, 0},
    {"api-key-file", "file", "its first key [FLASHD_API_KEY]", FLAG_TEXT, AT(who.key_file), 0, 0},
    {.name = NULL},
};

/* "-": standard input. */
static int read_all(const char *path, struct buffer *out, struct error *err)
{
    FILE *file = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    if (!file) return error_set(err, STATUS_IO, "%s: %s", path, strerror(errno));
    char *to;
    size_t n = 1;
    while (n > 0 && (to = buffer_reserve(out, READ_BYTES)))
        buffer_commit(out, n = fread(to, 1, READ_BYTES, file));
    bool broken = ferror(file) || buffer_failed(out);
    if (file != stdin) fclose(file);
    return broken ? error_set(err, STATUS_IO, "%s: it cannot be read, or is too long", path) : STATUS_OK;
}

static int read_receipt(const char *path, cJSON **out, struct error *err)
{
    struct buffer text;
    buffer_init(&text, TEXT_BYTES_MAX);
    int status = read_all(path, &text, err);
    *out = status ? NULL : again_find_receipt(text.data, text.num_bytes);
    buffer_deinit(&text);
    if (!status && !*out)
        status = error_set(err, STATUS_INVALID, "%s: there is no receipt in it, nor is it one", path);
    return status;
}

static int tell(const cJSON *receipt, enum again_verdict verdict, const struct error *why)
{
    const char *id = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(receipt, "id"));
    if (verdict != AGAIN_SAME) return command_fail(why, EXIT_FAILURE);
    printf("%s is the same answer, byte for byte%s%s\n", id, why->text[0] ? "; " : "", why->text);
    return EXIT_SUCCESS;
}

static int verify(const struct again *a, const cJSON *receipt, const char *body)
{
    struct buffer answer;
    struct error why = {0};
    buffer_init(&answer, TEXT_BYTES_MAX);
    int code = tell(receipt, again_check(a, receipt, body, &answer, &why), &why);
    buffer_deinit(&answer);
    return code;
}

static int run(const struct verify_options *o)
{
    struct again again = {.own.pid = 0};
    struct buffer body;
    struct error err = {0};
    cJSON *receipt = NULL;
    buffer_init(&body, TEXT_BYTES_MAX);
    int status = read_receipt(o->receipt, &receipt, &err);
    if (!status) status = read_all(o->request, &body, &err);
    if (!status) status = again_open(&again, &o->who, &err);
    int code = status ? command_fail(&err, status == STATUS_INVALID ? EXIT_USAGE : EXIT_FAILURE)
                      : verify(&again, receipt, body.data);
    again_close(&again);
    buffer_deinit(&body);
    cJSON_Delete(receipt);
    return code;
}

int verify_run(int num_args, char **args)
{
    struct verify_options o = {0};
    struct error err = {0};
    if (flags_load(verify_flags, &o, "verify", &o.receipt, num_args, args, &err))
        return command_fail(&err, EXIT_USAGE);
    if (o.receipt && o.request) return run(&o);
    error_set(&err, STATUS_INVALID, "verify RECEIPT --request FILE --model MODEL (or --url URL) is expected");
    return command_fail(&err, EXIT_USAGE);
}
