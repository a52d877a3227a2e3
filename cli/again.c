#include "cli/again.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"

enum { MEMBERS_MAX = 64, NAMES_BYTES = 512 };

/* ---- who computes ---- */

int again_open(struct again *a, const struct again_options *o, struct error *err)
{
    *a = (struct again){.own.pid = 0};
    if (!o->url == !o->model)
        return error_set(err, STATUS_INVALID,
                         "--model MODEL or --url URL is expected: what is to compute the answer");
    if (o->url) return remote_init(&a->remote, o->url, o->key_file, err);
    char *args[] = {(char *)(uintptr_t)o->model, "--receipts"};
    int status = chat_server_start(&a->own, 2, args, err);
    return status ? STATUS_IO : http_client_init(&a->remote.client, a->own.url, NULL, err);
}

void again_close(struct again *a)
{
    chat_server_stop(&a->own);
    remote_deinit(&a->remote);
}

/* ---- receipts ---- */

static const char *text_of(const cJSON *object, const char *name)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
}

static const char *shown(const cJSON *object, const char *name)
{
    const char *text = text_of(object, name);
    return text ? text : "none";
}

static bool is_receipt(const cJSON *object)
{
    return text_of(object, "digest") && text_of(object, "answer") && text_of(object, "request");
}

/* Detached from object, unless it is the object. */
static cJSON *take_receipt(cJSON *object)
{
    cJSON *response = cJSON_GetObjectItemCaseSensitive(object, "response");
    cJSON *holder = cJSON_IsObject(response) ? response : object;
    if (is_receipt(object)) return object;
    if (!is_receipt(cJSON_GetObjectItemCaseSensitive(holder, "receipt"))) return NULL;
    return cJSON_DetachItemFromObjectCaseSensitive(holder, "receipt");
}

static cJSON *find_in(const char *text, size_t n)
{
    cJSON *object = cJSON_ParseWithLength(text, n), *receipt = take_receipt(object);
    if (object != receipt) cJSON_Delete(object);
    return receipt;
}

/* Of several the last. */
static cJSON *find_in_lines(const char *text, size_t n)
{
    static const char field[] = "data:";
    cJSON *last = NULL;
    for (const char *end = text + n, *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) stop = end;
        size_t num_bytes = (size_t)(stop - line),
               skip = num_bytes > strlen(field) && !memcmp(line, field, strlen(field)) ? strlen(field) : 0;
        cJSON *receipt = find_in(line + skip, num_bytes - skip);
        if (receipt) {
            cJSON_Delete(last);
            last = receipt;
        }
        line = stop + 1;
    }
    return last;
}

cJSON *again_find_receipt(const char *text, size_t num_bytes)
{
    cJSON *receipt = num_bytes > 0 ? find_in(text, num_bytes) : NULL;
    return receipt || num_bytes == 0 ? receipt : find_in_lines(text, num_bytes);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(cJSON *const *)a)->string, (*(cJSON *const *)b)->string);
}

static void append_member(struct buffer *out, const cJSON *member)
{
    char *value = cJSON_PrintUnformatted(member);
    if (out->num_bytes > 1) buffer_append_char(out, ',');
    buffer_append_json_text(out, member->string);
    buffer_append_char(out, ':');
    buffer_append_text(out, value ? value : "");
    if (!value) out->failed = true;
    cJSON_free(value);
}

/* Of what it says, in its canonical form. */
static int check_digest(const cJSON *receipt, struct error *why)
{
    enum { RECEIPT_BYTES_MAX = 16 << 20 };
    const cJSON *members[MEMBERS_MAX], *member;
    size_t count = 0;
    struct buffer text;
    cJSON_ArrayForEach(member, receipt)
    {
        if (strcmp(member->string, "digest") != 0 && count < MEMBERS_MAX) members[count++] = member;
    }
    qsort(members, count, sizeof *members, by_name);
    buffer_init(&text, RECEIPT_BYTES_MAX);
    buffer_append_char(&text, '{');
    for (size_t i = 0; i < count; i++) append_member(&text, members[i]);
    buffer_append_char(&text, '}');
    const struct digest_text digest = digest_of(text.data, text.num_bytes);
    bool failed = buffer_failed(&text);
    buffer_deinit(&text);
    if (failed) return error_set(why, STATUS_NO_MEMORY, "out of memory");
    if (!strcmp(digest.text, text_of(receipt, "digest"))) return STATUS_OK;
    return error_set(why, STATUS_INVALID,
                     "the receipt was changed: its digest is %s, but what it says has %s",
                     text_of(receipt, "digest"), digest.text);
}

/* ---- comparing ---- */

static bool is_same(const cJSON *was, const cJSON *is, const char *name)
{
    return cJSON_Compare(cJSON_GetObjectItemCaseSensitive(was, name),
                         cJSON_GetObjectItemCaseSensitive(is, name), true);
}

static int compare_origin(const cJSON *was, const cJSON *is, struct error *why)
{
    static const char *const names[][2] = {{"model", "another model"},
                                           {"tokenizer", "another tokenizer"},
                                           {"template", "another chat template"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!is_same(was, is, names[i][0]))
            return error_set(why, STATUS_INVALID, "%s: the receipt is of %.16s, here is %.16s", names[i][1],
                             shown(was, names[i][0]), shown(is, names[i][0]));
    if (is_same(was, is, "request")) return STATUS_OK;
    return error_set(why, STATUS_INVALID,
                     "another request: its prompt, its sampling or its form, or the server's defaults of "
                     "them, are not what "
                     "the receipt is of");
}

/* False: the first num tokens of both are the same, and there are no more. */
static bool find_difference(const cJSON *was, const cJSON *is, int *at, char tokens[2][16])
{
    const cJSON *a = was ? was->child : NULL, *b = is ? is->child : NULL;
    for (*at = 0; a && b && a->valueint == b->valueint; ++*at) {
        a = a->next;
        b = b->next;
    }
    if (!a && !b) return false;
    snprintf(tokens[0], sizeof tokens[0], a ? "%d" : "no more", a ? a->valueint : 0);
    snprintf(tokens[1], sizeof tokens[1], b ? "%d" : "no more", b ? b->valueint : 0);
    return true;
}

static int tell_difference(const cJSON *was, const cJSON *is, struct error *why)
{
    const cJSON *a = cJSON_GetObjectItemCaseSensitive(was, "tokens"),
                *b = cJSON_GetObjectItemCaseSensitive(is, "tokens");
    char kernels[NAMES_BYTES] = "", tokens[2][16];
    int at;
    if (!is_same(was, is, "kernels"))
        snprintf(kernels, sizeof kernels, " (the receipt is of other kernels: %.200s; here are %.200s)",
                 shown(was, "kernels"), shown(is, "kernels"));
    if (!cJSON_IsArray(a) || !cJSON_IsArray(b))
        return error_set(why, STATUS_INVALID, "another answer; it is too long for a receipt to tell where%s",
                         kernels);
    int choice = 0;
    for (const cJSON *x = a->child, *y = b->child; x && y; x = x->next, y = y->next, choice++)
        if (find_difference(x, y, &at, tokens))
            return error_set(why, STATUS_INVALID,
                             "another answer from token %d of choice %d on: it was %s, now it is %s%s", at,
                             choice, tokens[0], tokens[1], kernels);
    return error_set(why, STATUS_INVALID,
                     "another answer: its tokens are the same, but not their text or how it ends%s", kernels);
}

/* ---- once more ---- */

static bool take_bytes(void *answer, const char *bytes, size_t n)
{
    buffer_append(answer, bytes, n);
    return true;
}

static int refuse_receipt(struct error *why)
{
    return error_set(why, STATUS_INVALID, "the receipt is none of flashd's, or was changed");
}

/* Nothing of a receipt becomes more than a path and a header's value. */
static int prepare(struct http_client *client, const cJSON *receipt, struct error *why)
{
    static const char letters[] = "/abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-",
                      *name = letters + 1;
    const char *id = shown(receipt, "id"), *seed = shown(receipt, "seed"), *path = shown(receipt, "path");
    const cJSON *created = cJSON_GetObjectItemCaseSensitive(receipt, "created");
    if (path[0] != '/' || strspn(path, letters) != strlen(path) ||
        strspn(seed, "0123456789") != strlen(seed) || !cJSON_IsNumber(created) ||
        !(created->valuedouble >= 0 && created->valuedouble < 1e12))
        return refuse_receipt(why);
    bool sendable =
        id[0] && strspn(id, name) == strlen(id) && strlen(id) < 128; /* a client's own comes with its body */
    snprintf(client->header, sizeof client->header, "x-flashd-replay: %s %.0f %.20s", sendable ? id : "-",
             created->valuedouble, seed);
    return STATUS_OK;
}

static int ask(const struct again *a, const cJSON *receipt, const char *body, struct buffer *answer,
               struct error *why)
{
    struct http_client client = a->remote.client;
    int http_status = 0, status = prepare(&client, receipt, why);
    if (!status)
        status =
            http_client_ask(&client, text_of(receipt, "path"), body, take_bytes, answer, &http_status, why);
    if (!status && buffer_failed(answer)) status = error_set(why, STATUS_NO_MEMORY, "out of memory");
    if (status || http_status == 200) return status;
    cJSON *object = answer->data ? cJSON_ParseWithLength(answer->data, answer->num_bytes) : NULL;
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(object, "error");
    const char *message = cJSON_IsString(error) ? error->valuestring : text_of(error, "message");
    error_set(why, STATUS_IO, "the server answers %d: %s", http_status, message ? message : "nothing");
    cJSON_Delete(object);
    return STATUS_IO;
}

static enum again_verdict compare(const cJSON *was, const cJSON *is, struct error *why)
{
    if (!is) {
        error_set(why, STATUS_IO, "no receipt came with the answer: the server must run with --receipts");
        return AGAIN_NONE;
    }
    if (compare_origin(was, is, why)) return AGAIN_OTHER;
    if (!is_same(was, is, "answer")) {
        (void)tell_difference(was, is, why);
        return AGAIN_OTHER;
    }
    *why = (struct error){0};
    if (!is_same(was, is, "kernels"))
        error_set(why, STATUS_OK, "the kernels are others: %.200s then, %.200s now", shown(was, "kernels"),
                  shown(is, "kernels"));
    return AGAIN_SAME;
}

enum again_verdict again_check(const struct again *a, const cJSON *receipt, const char *body,
                               struct buffer *answer, struct error *why)
{
    int status = is_receipt(receipt) ? check_digest(receipt, why) : refuse_receipt(why);
    if (status) return AGAIN_OTHER;
    if (ask(a, receipt, body, answer, why)) return AGAIN_NONE;
    cJSON *is = again_find_receipt(answer->data, answer->num_bytes);
    enum again_verdict verdict = compare(receipt, is, why);
    cJSON_Delete(is);
    return verdict;
}
