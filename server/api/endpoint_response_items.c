/* endpoint_response_items.c - GET /v1/responses/ID/input_items: what a stored response was an answer to, the conversation before it
 * included, made of the canonical messages that are kept for its next turn. Its instructions are not among them. They may be megabytes,
 * which a worker takes apart (job.h). */
#include "server/api/endpoint_response_items.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "server/api/api.h"
#include "server/api/codecs/canonical.h"
#include "server/api/codecs/response_namespaces.h"
#include "server/api/job.h"
#include "server/api/json_field.h"
#include "server/api/response_store.h"

enum { ITEMS_MOST = 100, ITEMS_DEFAULT = 20, PAGE_BYTES_MAX = 64 << 20, ID_BYTES = 96 };

/* Items as they are made. */
struct listing {
    cJSON *items;
    const char *response; /* the id's end, which is part of every item's */
    int num_items;
    bool failed;
};

static cJSON *add_item(struct listing *l, const char *prefix, const char *type)
{
    char id[80];
    cJSON *item = cJSON_CreateObject();
    snprintf(id, sizeof id, "%s_%.40s_in_%d", prefix, l->response, l->num_items++);
    if (cJSON_AddStringToObject(item, "id", id) && cJSON_AddStringToObject(item, "type", type) &&
        cJSON_AddItemToArray(l->items, item))
        return item;
    cJSON_Delete(item);
    l->failed = true;
    return NULL;
}

static void add_text(struct listing *l, cJSON *object, const char *name, const char *text)
{
    l->failed |= !cJSON_AddStringToObject(object, name, text ? text : "");
}

/* The parts of a message, each of that type. */
static void add_parts(struct listing *l, cJSON *item, const char *name, const char *type,
                      const cJSON *content)
{
    const cJSON *part;
    bool is_output = !strcmp(type, "output_text");
    cJSON *parts = cJSON_AddArrayToObject(item, name);
    cJSON_ArrayForEach(part, content)
    {
        cJSON *made = cJSON_CreateObject();
        add_text(l, made, "type", type);
        add_text(l, made, "text", canonical_text(part, "text"));
        if (is_output) l->failed |= !cJSON_AddArrayToObject(made, "annotations");
        l->failed |= !cJSON_AddItemToArray(parts, made);
    }
}

static void add_reasoning(struct listing *l, const char *text)
{
    cJSON *item = add_item(l, "rs", "reasoning"), *parts, *part;
    if (!item || !cJSON_AddArrayToObject(item, "summary")) return;
    parts = cJSON_AddArrayToObject(item, "content");
    part = cJSON_CreateObject();
    add_text(l, part, "type", "reasoning_text");
    add_text(l, part, "text", text);
    l->failed |= !cJSON_AddItemToArray(parts, part);
}

static void add_call(struct listing *l, const cJSON *call)
{
    const cJSON *function = json_field_find(call, "function");
    const char *name = canonical_text(function, "name"), *space = canonical_text(call, "namespace");
    cJSON *item = add_item(l, "fc", "function_call");
    add_text(l, item, "call_id", canonical_text(call, "id"));
    add_text(l, item, "name", space && name ? response_namespaces_own_name(space, name) : name);
    if (space) add_text(l, item, "namespace", space);
    add_text(l, item, "arguments", canonical_text(function, "arguments"));
    add_text(l, item, "status", "completed");
}

static void add_message(struct listing *l, const cJSON *message)
{
    const char *role = canonical_text(message, "role"), *reasoning;
    const cJSON *content = json_field_find(message, "content"), *call;
    bool is_assistant = role && !strcmp(role, "assistant");
    if (role && !strcmp(role, "tool")) {
        cJSON *item = add_item(l, "fco", "function_call_output");
        add_text(l, item, "call_id", canonical_text(message, "tool_call_id"));
        add_parts(l, item, "output", "input_text", content);
        add_text(l, item, "status", "completed");
        return;
    }
    if ((reasoning = canonical_text(message, "reasoning_content"))) add_reasoning(l, reasoning);
    if (content && content->child) {
        cJSON *item = add_item(l, "msg", "message");
        add_text(l, item, "role", role);
        add_parts(l, item, "content", is_assistant ? "output_text" : "input_text", content);
        add_text(l, item, "status", "completed");
    }
    cJSON_ArrayForEach(call, json_field_find(message, "tool_calls")) add_call(l, call);
}

/* ---- a page of them ---- */

/* The value of NAME=; its length is *n. NULL: there is none. */
static const char *find_query(const char *query, const char *name, size_t *n)
{
    size_t name_chars = strlen(name);
    for (const char *at = query; at && *at; at = strchr(at, '&')) {
        if (*at == '&') at++;
        if (strncmp(at, name, name_chars) != 0 || at[name_chars] != '=') continue;
        at += name_chars + 1;
        *n = strcspn(at, "&");
        return at;
    }
    return NULL;
}

struct page {
    bool newest_first, has_after;
    int limit;
    char after[ID_BYTES]; /* an item's id, cut where it is longer than any */
};

static bool read_page(struct exchange *x, struct page *p)
{
    size_t n;
    const char *order = find_query(x->query, "order", &n), *limit, *after;
    bool oldest_first = order && n == 3 && !strncmp(order, "asc", n);
    *p = (struct page){.newest_first = !oldest_first, .limit = ITEMS_DEFAULT};
    if (order && !oldest_first && (n != 4 || strncmp(order, "desc", n) != 0)) {
        exchange_error(x, 400, "invalid_request_error", "invalid_value", "order", 0,
                       "order must be asc or desc");
        return false;
    }
    if ((limit = find_query(x->query, "limit", &n)))
        p->limit = strspn(limit, "0123456789") == n && n < 9 ? atoi(limit) : 0;
    if ((after = find_query(x->query, "after", &n))) memcpy(p->after, after, min_of(n, sizeof p->after - 1));
    p->has_after = after != NULL;
    if (p->limit >= 1 && p->limit <= ITEMS_MOST) return true;
    exchange_error(x, 400, "invalid_request_error", "invalid_value", "limit", 0,
                   "limit must be an integer from 1 to %d", ITEMS_MOST);
    return false;
}

static bool is_after(const struct page *p, const cJSON *item)
{
    const char *id = canonical_text(item, "id");
    return id && !strcmp(id, p->after);
}

static bool has_place(const struct page *p, const cJSON *items)
{
    const cJSON *item;
    bool found = !p->has_after;
    cJSON_ArrayForEach(item, items) found |= is_after(p, item);
    return found;
}

static void append_id(struct buffer *out, const char *name, const cJSON *item)
{
    buffer_printf(out, ",\"%s\":", name);
    buffer_append_json_text(out, item ? canonical_text(item, "id") : "");
}

static void append_page(struct buffer *out, const struct page *p, const cJSON *items)
{
    int count = cJSON_GetArraySize(items), num_told = 0;
    const cJSON *first = NULL, *last = NULL, *item = items->child;
    bool begun = !p->has_after;
    if (item && p->newest_first)
        item = items->child->prev; /* cJSON: the first element's prev is the last element */
    buffer_append_text(out, "{\"object\":\"list\",\"data\":[");
    for (; item && count > 0 && num_told < p->limit;
         count--, item = p->newest_first ? item->prev : item->next) {
        if (!begun) {
            begun = is_after(p, item);
            continue;
        }
        char *text = cJSON_PrintUnformatted(item);
        if (num_told++ > 0) buffer_append_char(out, ',');
        if (text) buffer_append_text(out, text);
        if (!text) out->failed = true;
        cJSON_free(text);
        if (!first) first = item;
        last = item;
    }
    buffer_printf(out, "],\"has_more\":%s", count > 0 ? "true" : "false");
    append_id(out, "first_id", first);
    append_id(out, "last_id", last);
    buffer_append_char(out, '}');
}

/* ---- by a worker ---- */

struct items_job {
    struct job job; /* first */
    struct page page;
    char id[ID_BYTES]; /* the response's */
};

static int append_items(struct job *job, const struct page *page, const cJSON *items)
{
    if (!has_place(page, items))
        return api_error_invalid(&job->error, "invalid_value", "after",
                                 "after names `%.60s`, which is none of the items", page->after);
    append_page(&job->answer, page, items);
    return 0;
}

static int make_page(struct items_job *j, const char *history, size_t history_bytes)
{
    const char *end = strchr(j->id, '_');
    cJSON *messages = cJSON_ParseWithLength(history, history_bytes), *message;
    struct listing l = {.items = cJSON_CreateArray(), .response = end ? end + 1 : j->id};
    l.failed = !messages || !l.items;
    cJSON_ArrayForEach(message, messages)
    {
        if (message->next) add_message(&l, message); /* the last is the answer */
    }
    int status = l.failed ? api_error_no_memory(&j->job.error) : append_items(&j->job, &j->page, l.items);
    cJSON_Delete(messages);
    cJSON_Delete(l.items);
    return status;
}

static int run_items(struct job *job, cJSON *body)
{
    struct items_job *j = (struct items_job *)job;
    size_t n;
    char *history =
        response_store_get(job->server->api->responses, job->api_key_idx, j->id, RESPONSE_HISTORY, &n);
    (void)body;
    int status = history ? make_page(j, history, n) : response_unknown(&job->error, j->id);
    if (history) pool_work_note_bytes(&job->work, n);
    free(history);
    return status;
}

void response_items_reply(struct exchange *x, const char *id)
{
    struct page page;
    struct items_job *j = read_page(x, &page) ? job_create(x, sizeof *j, PAGE_BYTES_MAX) : NULL;
    if (!j) return;
    j->job.name = "items of a response";
    j->job.run = run_items;
    j->page = page;
    snprintf(j->id, sizeof j->id, "%s", id);
    job_start(&j->job, true);
}
