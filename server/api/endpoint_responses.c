/* endpoint_responses.c - /v1/responses and the responses that have a name: GET, DELETE, cancel. */
#include <stdlib.h>
#include <string.h>

#include "server/api/endpoint_response_items.h"
#include "server/api/generation.h"
#include "server/api/response_store.h"

void endpoint_responses(struct exchange *x)
{
    generation_start(x, &codec_responses);
}

int response_unknown(struct api_error *err, const char *id)
{
    return api_error_set(err, 404, "invalid_request_error", "response_not_found", NULL,
                         "there is no response `%.60s` here; it was not stored, or newer ones took its place "
                         "(--response-store-bytes)",
                         id);
}

static void refuse_unknown(struct exchange *x, const char *id)
{
    struct api_error error;
    response_unknown(&error, id);
    api_error_send(x, &error);
}

/* One that ends in the process before an upgrade, which is to tell. */
static bool is_unfinished(const struct exchange *x, const char *id)
{
    return response_store_is_unfinished(x->server->api->responses, x->api_key_idx, id);
}

/* True: nobody will tell. */
static bool is_refused_as_lost(struct exchange *x, const char *id)
{
    if (x->server->has_predecessor || !is_unfinished(x, id)) return false;
    exchange_error(x, 404, "invalid_request_error", "response_lost", NULL, 0,
                   "the process that generated the response `%.60s` has ended before it", id);
    return true;
}

/* ?stream=true asks for events, which are not kept. */
static bool is_refused(struct exchange *x)
{
    bool is_below = strchr(x->path_rest, '/') != NULL;
    if (is_below)
        exchange_error(x, 404, "invalid_request_error", "unknown_url", NULL, 0,
                       "GET /v1/responses/ID and /v1/responses/ID/input_items are what there is below "
                       "/v1/responses");
    else if (strstr(x->query, "stream=true"))
        exchange_error(x, 400, "invalid_request_error", "unsupported_parameter", "stream", 0,
                       "stream is not supported here: a response that is stored is told whole");
    else
        return false;
    return true;
}

/* Whether path is ID/name; id becomes the ID. */
static bool is_below_id(const char *path, const char *name, char id[48])
{
    const char *end = strchr(path, '/');
    size_t n = end ? (size_t)(end - path) : 0;
    if (!end || strcmp(end + 1, name) != 0 || n >= 48) return false;
    memcpy(id, path, n);
    id[n] = '\0';
    return true;
}

static struct generation *find_running(const struct exchange *x, const char *id)
{
    for (struct generation *g = x->server->api->generations; g; g = g->next)
        if (generation_is_live(g) && g->admitted && g->answer.codec == &codec_responses &&
            g->api_key_idx == x->api_key_idx && !strcmp(g->answer.id, id))
            return g;
    return NULL;
}

void endpoint_response(struct exchange *x)
{
    char id[48];
    size_t n;
    if (is_below_id(x->path_rest, "input_items", id)) {
        response_items_reply(x, id);
        return;
    }
    if (is_refused(x)) return;
    struct generation *g = find_running(x, x->path_rest);
    if (g && g->in_background) {
        generation_tell_unfinished(g, x);
        return;
    }
    char *body =
        response_store_get(x->server->api->responses, x->api_key_idx, x->path_rest, RESPONSE_BODY, &n);
    if (!body)
        refuse_unknown(x, x->path_rest);
    else if (!is_refused_as_lost(x, x->path_rest))
        exchange_reply(x, 200, "application/json", body, n);
    free(body);
}

void endpoint_response_delete(struct exchange *x)
{
    struct buffer body;
    if (!response_store_remove(x->server->api->responses, x->api_key_idx, x->path_rest)) {
        refuse_unknown(x, x->path_rest);
        return;
    }
    buffer_init(&body, 4096);
    buffer_append_text(&body, "{\"id\":");
    buffer_append_json_text(&body, x->path_rest);
    buffer_append_text(&body, ",\"object\":\"response\",\"deleted\":true}");
    exchange_reply_page(x, "application/json", &body);
    buffer_deinit(&body);
}

/* As its codec has kept it, where it has. */
static void reply_cancelled(struct exchange *x, const char *id)
{
    char body[256];
    size_t num_bytes;
    char *stored =
        response_store_get(x->server->api->responses, x->api_key_idx, id, RESPONSE_BODY, &num_bytes);
    if (stored) {
        exchange_reply(x, 200, "application/json", stored, num_bytes);
        free(stored);
        return;
    }
    int n = snprintf(body, sizeof body,
                     "{\"id\":\"%s\",\"object\":\"response\",\"status\":\"cancelled\",\"output\":[]}", id);
    exchange_reply(x, 200, "application/json", body, (size_t)n);
}

/* Of a stored one, whose status stands before all that its client said (codecs/responses.c), which may be megabytes. */
static bool is_cancelled(const char *body)
{
    static const char name[] = "\"status\":", cancelled[] = "\"cancelled\"";
    const char *status = strstr(body, name);
    return status && !strncmp(status + sizeof name - 1, cancelled, sizeof cancelled - 1);
}

/* POST /v1/responses/ID/cancel: one that runs ends, with an error for who waits for it. Once more it is what it was. */
void endpoint_response_cancel(struct exchange *x)
{
    char id[48];
    size_t num_bytes;
    if (!is_below_id(x->path_rest, "cancel", id)) {
        exchange_error(x, 404, "invalid_request_error", "unknown_url", NULL, 0,
                       "POST /v1/responses/ID/cancel and /v1/responses/input_tokens are what there is below "
                       "/v1/responses");
        return;
    }
    struct generation *g = find_running(x, id);
    char *stored =
        g ? NULL
          : response_store_get(x->server->api->responses, x->api_key_idx, id, RESPONSE_BODY, &num_bytes);
    if (g) {
        struct api_error error;
        api_error_set(&error, 409, "invalid_request_error", "cancelled", NULL, "this response was cancelled");
        generation_abort(g, &error, OUTCOME_ABORTED);
        generation_pump(g);
        reply_cancelled(x, id);
    } else if (stored && is_cancelled(stored)) {
        exchange_reply(x, 200, "application/json", stored, num_bytes);
    } else if (stored && is_unfinished(x, id)) {
        if (!is_refused_as_lost(x, id))
            exchange_error(x, 409, "invalid_request_error", NULL, NULL, 0,
                           "this response is generated by the process before an upgrade, and is not "
                           "cancelled from here");
    } else if (stored) {
        exchange_error(x, 400, "invalid_request_error", NULL, NULL, 0,
                       "only a response that has not ended can be cancelled");
    } else {
        refuse_unknown(x, id);
    }
    free(stored);
}
