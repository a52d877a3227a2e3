/* endpoint_debug.c - for whoever operates the server: what is in flight, told as JSON or to the log, and how to end it. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "config/api_keys.h"
#include "server/api/generation.h"

enum { SHOWN_MAX = 1000, LOGGED_MAX = 64, BODY_BYTES_MAX = 4 << 20 };

/* One request as it is now. */
struct sight {
    const char *id, *response_id, *path, *key, *state; /* key: its name, NULL: it has none */
    char client[IP_ADDRESS_CHARS];                     /* its address */
    double age_seconds;
    int64_t num_prompt_tokens, num_prompt_computed, num_generated;
    int num_sequences, num_with_engine;
    bool streams, client_is_behind;
};

static void add_sequence(struct sight *s, const struct server *server, const struct choice *c)
{
    s->num_sequences++;
    s->num_prompt_tokens += c->num_prompt_tokens;
    if (c->slot_idx < 0) {
        s->num_prompt_computed += c->num_prompt_tokens;
        s->num_generated += c->num_pulled;
        return;
    }
    const struct request_slot *slot = request_slots_get(server->slots, c->slot_idx);
    s->num_with_engine += atomic_load(&slot->finish_reason) == FINISH_NONE;
    s->num_prompt_computed += atomic_load(&slot->num_prompt_computed);
    s->num_generated += atomic_load(&slot->num_published);
}

static const char *state_of(const struct generation *g, const struct sight *s)
{
    if (g->preparing || !g->admitted) return "preparing";
    if (s->num_with_engine == 0) return "writing";
    return s->num_prompt_computed > 0 || s->num_generated > 0 ? "running" : "waiting";
}

static struct sight look_at(const struct generation *g)
{
    const struct server *server = g->api->server;
    struct sight s = {.id = g->request_id,
                      .response_id = g->answer.id ? g->answer.id : "", /* while it is prepared */
                      .path = g->answer.codec->path,
                      .age_seconds = (double)(clock_monotonic_ns() - g->arrival_ns) / 1e9,
                      .streams = g->streaming,
                      .client_is_behind = g->blocked};
    ip_address_write(&g->client, s.client);
    for (int i = 0; i < g->num_choices; i++) add_sequence(&s, server, &g->choices[i]);
    s.key = api_keys_name(server->config, g->api_key_idx);
    s.state = state_of(g, &s);
    return s;
}

/* ---- the list ---- */

static void append_request(struct buffer *out, const struct sight *s)
{
    buffer_append_text(out, "{\"id\":");
    buffer_append_json_text(out, s->id);
    buffer_append_text(out, ",\"response_id\":");
    buffer_append_json_text(out, s->response_id);
    buffer_append_text(out, ",\"key\":");
    if (s->key)
        buffer_append_json_text(out, s->key);
    else
        buffer_append_text(out, "null");
    buffer_printf(out,
                  ",\"client\":\"%s\",\"path\":\"%s\",\"state\":\"%s\",\"stream\":%s,\"client_is_behind\":%s,"
                  "\"age_seconds\":%.3f,\"sequences\":%d,\"prompt_tokens\":%lld,"
                  "\"prompt_tokens_computed\":%lld,\"completion_tokens\":%lld}",
                  s->client, s->path, s->state, s->streams ? "true" : "false",
                  s->client_is_behind ? "true" : "false", s->age_seconds, s->num_sequences,
                  (long long)s->num_prompt_tokens, (long long)s->num_prompt_computed,
                  (long long)s->num_generated);
}

/* The newest first. */
void endpoint_debug_requests(struct exchange *x)
{
    const struct api *api = x->server->api;
    struct buffer body;
    int num_shown = 0;
    buffer_init(&body, BODY_BYTES_MAX);
    buffer_append_text(&body, "{\"object\":\"list\",\"data\":[");
    for (const struct generation *g = api->generations; g && num_shown < SHOWN_MAX; g = g->next) {
        if (!generation_is_live(g)) continue; /* answered: its slots are on their way back */
        const struct sight s = look_at(g);
        if (num_shown++ > 0) buffer_append_char(&body, ',');
        append_request(&body, &s);
    }
    buffer_printf(&body, "],\"total\":%d}", api->num_generations);
    exchange_reply_page(x, "application/json", &body);
    buffer_deinit(&body);
}

/* ---- the end of one ---- */

static bool is_named(const struct generation *g, const char *id)
{
    return generation_is_live(g) &&
           (!strcmp(g->request_id, id) || (g->admitted && !strcmp(g->answer.id, id)));
}

/* Clients choose ids: several requests may have one. */
static int cancel(struct api *api, const char *id)
{
    struct api_error error;
    struct generation *next;
    int num_cancelled = 0;
    api_error_set(&error, 403, "invalid_request_error", "cancelled", NULL,
                  "an operator of this server has ended the request");
    for (struct generation *g = api->generations; g; g = next) {
        next = g->next;
        if (!is_named(g, id)) continue;
        log_info("an operator ends request %s", g->request_id);
        generation_abort(g, &error, OUTCOME_ABORTED);
        generation_pump(g);
        num_cancelled++;
    }
    return num_cancelled;
}

void endpoint_debug_cancel(struct exchange *x)
{
    int num_cancelled = cancel(x->server->api, x->path_rest);
    if (num_cancelled == 0) {
        exchange_error(x, 404, "invalid_request_error", "request_not_found", NULL, 0,
                       "no request with this id is in flight; GET /debug/requests lists them");
        return;
    }
    struct buffer body;
    buffer_init(&body, BODY_BYTES_MAX);
    buffer_append_text(&body, "{\"id\":");
    buffer_append_json_text(&body, x->path_rest);
    buffer_printf(&body, ",\"cancelled\":%d}", num_cancelled);
    exchange_reply_page(x, "application/json", &body);
    buffer_deinit(&body);
}

/* ---- to the log ---- */

static void log_stats(const struct server *server)
{
    struct link_stats s;
    link_stats(server->link, &s);
    log_info("dump: engine: %d sequences run, %d wait; K/V blocks: %d held, %d cached, %d free; %llu steps, "
             "%llu preemptions; %d of %d slots are free",
             s.num_running, s.num_waiting, s.num_held_blocks, s.num_cached_blocks, s.num_free_blocks,
             (unsigned long long)s.num_steps, (unsigned long long)s.num_preemptions,
             request_slots_num_free(server->slots), request_slots_count(server->slots));
}

static void log_request(const struct sight *s)
{
    struct log_field fields[] = {
        {"request_id", LOG_FIELD_TEXT, .text = s->id},
        {"client", LOG_FIELD_TEXT, .text = s->client},
        {"key", LOG_FIELD_TEXT, .text = s->key},
        {"path", LOG_FIELD_TEXT, .text = s->path},
        {"state", LOG_FIELD_TEXT, .text = s->state},
        {"age_seconds", LOG_FIELD_REAL, .real = s->age_seconds},
        {"sequences", LOG_FIELD_INT, .integer = s->num_sequences},
        {"with_engine", LOG_FIELD_INT, .integer = s->num_with_engine},
        {"prompt_tokens", LOG_FIELD_INT, .integer = s->num_prompt_tokens},
        {"prompt_tokens_computed", LOG_FIELD_INT, .integer = s->num_prompt_computed},
        {"completion_tokens", LOG_FIELD_INT, .integer = s->num_generated},
        {"client_is_behind", LOG_FIELD_INT, .integer = s->client_is_behind},
    };
    log_fields(LOG_INFO, "dump: request", fields, sizeof fields / sizeof *fields);
}

void api_dump(const struct server *server)
{
    const struct api *api = server->api;
    int num_logged = 0;
    if (server->slots) log_stats(server);
    log_info("dump: front: %d requests, %d of them admitted; %d texts to tokenize", api->num_generations,
             api->num_admitted, api->num_jobs);
    for (const struct generation *g = api->generations; g && num_logged < LOGGED_MAX; g = g->next) {
        const struct sight s = look_at(g);
        log_request(&s);
        num_logged++;
    }
    if (api->num_generations > num_logged)
        log_info("dump: and %d requests more", api->num_generations - num_logged);
}
