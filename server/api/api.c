/* api.c - the generation endpoints as the server sees them: begin, wake, abort, end. */
#include "server/api/api.h"

#include <stdlib.h>
#include <sys/random.h>

#include "base/bit_set.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/id_list.h"
#include "base/log.h"
#include "server/api/generation.h"
#include "server/api/job.h"
#include "server/api/loras.h"
#include "server/api/request_metrics.h"
#include "server/api/response_store.h"
#include "server/loop_watch.h"

enum { EVENT_BYTES_MAX = 16 << 20, EVENT_BYTES_READY = 16 << 10, PING_TICK_MS = 250 };

static void on_ping_timer(uv_timer_t *timer)
{
    loop_watch_enter("pings");
    struct api *api = timer->data;
    uint64_t interval_ns = (uint64_t)api->server->config->ping_interval * 1000000000u,
             now_ns = clock_monotonic_ns();
    if (!api->generations) uv_timer_stop(timer); /* an idle server does not wake up */
    for (struct generation *g = api->generations, *next; g; g = next) {
        next = g->next;
        generation_ping(g, now_ns, interval_ns);
        generation_check_deadline(g, now_ns);
    }
}

void api_start_pings(struct api *api)
{
    if (!uv_is_active((uv_handle_t *)&api->ping_timer))
        uv_timer_start(&api->ping_timer, on_ping_timer, PING_TICK_MS, PING_TICK_MS);
}

int api_init(struct server *server, struct error *err)
{
    struct api *api = calloc(1, sizeof *api);
    if (!api) return error_set(err, STATUS_NO_MEMORY, "out of memory");
    api->server = server;
    admission_init(&api->admission);
    metrics_page_init(&api->metrics);
    metrics_page_init(&api->openmetrics);
    api->responses = response_store_create(server->config->response_store_bytes);
    api->num_keys = server->config->api_key.num_items;
    api->key_use = calloc((size_t)server->config->api_key.num_items + 1, sizeof *api->key_use);
    buffer_init(&api->event, EVENT_BYTES_MAX);
    /* What ends a stream, well or badly, needs no memory then. */
    if (!api->key_use || !api->responses || !buffer_reserve(&api->event, EVENT_BYTES_READY)) {
        response_store_destroy(api->responses);
        buffer_deinit(&api->event);
        free(api->key_use);
        free(api);
        return error_set(err, STATUS_NO_MEMORY, "out of memory");
    }
    if (getrandom(&api->id_key, sizeof api->id_key, 0) != (ssize_t)sizeof api->id_key)
        api->id_key = clock_wall_ns();
    if (server->makes_receipts &&
        getrandom(&api->chain_id, sizeof api->chain_id, 0) != (ssize_t)sizeof api->chain_id)
        api->chain_id = clock_wall_ns();
    uv_timer_init(server->loop, &api->ping_timer);
    uv_unref((uv_handle_t *)&api->ping_timer);
    api->ping_timer.data = api;
    server->api = api;
    return 0;
}

/* Requests in flight are counted by key: the counts stay where they are. */
int api_on_new_keys(struct server *server, struct error *err)
{
    struct api *api = server->api;
    size_t num_before = (size_t)api->num_keys + 1, num_now = (size_t)server->config->api_key.num_items + 1;
    struct key_use *use = realloc(api->key_use, num_now * sizeof *use);
    if (!use) return error_set(err, STATUS_NO_MEMORY, "out of memory");
    for (size_t i = num_before; i < num_now; i++) use[i] = (struct key_use){0};
    api->key_use = use;
    api->num_keys = (int)num_now - 1;
    return STATUS_OK;
}

/* Embeddings are often padded: rows of the logits that no token stands behind. They are never drawn. */
static void find_silent_ids(const struct server *server)
{
    int32_t num_tokens = tokenizer_vocab_size(server->tokenizer);
    uint64_t *silent = link_silent_ids(server->link);
    for (int32_t id = 0; id < server->facts->vocab_size; id++) {
        size_t n = 0;
        if (id < num_tokens) tokenizer_token_bytes(server->tokenizer, id, &n);
        if (n == 0 && !id_list_has(server->facts->eos_ids, server->facts->num_eos_ids, id))
            bit_set_add(silent, (size_t)id);
    }
}

void api_on_loaded(struct server *server, const char *const *phase_names, const double *phase_seconds,
                   int num_phases)
{
    find_silent_ids(server);
    request_metrics_register(server, phase_names, phase_seconds, num_phases);
}

void api_on_engine_wake(struct server *server)
{
    struct generation *next;
    for (struct generation *g = server->api->generations; g; g = next) {
        next = g->next;
        generation_pump(g);
    }
    loras_pump(server->loras); /* behind those that have ended */
}

void api_on_engine_death(struct server *server)
{
    admission_recount(&server->api->admission, server);
    api_on_engine_wake(server);
}

int api_num_in_flight(const struct server *server)
{
    return server->api->num_generations + server->api->num_jobs;
}

static bool is_owed(const struct server *server, const struct choice *c)
{
    if (c->slot_idx < 0) return false;
    const struct request_slot *slot = request_slots_get(server->slots, c->slot_idx);
    return atomic_load_explicit(&slot->finish_reason, memory_order_acquire) == FINISH_NONE;
}

uint64_t api_engine_owes_since_ns(const struct server *server)
{
    uint64_t oldest_ns = 0;
    for (const struct generation *g = server->api->generations; g; g = g->next) {
        bool owed = false;
        for (int i = 0; i < g->num_choices && !owed; i++) owed = is_owed(server, &g->choices[i]);
        if (owed && (oldest_ns == 0 || g->submitted_ns < oldest_ns)) oldest_ns = g->submitted_ns;
    }
    return oldest_ns;
}

void api_abort_all(struct server *server, int http_status, const char *type, const char *message)
{
    struct api_error error;
    struct generation *next;
    api_error_set(&error, http_status, type, NULL, NULL, "%s", message);
    if (http_status == 429 || http_status == 503) error.retry_after_seconds = 1;
    error.may_pass = true;
    job_abort_waiting(server, &error);
    loras_give_up(server->loras, message);
    for (struct generation *g = server->api->generations; g; g = next) {
        next = g->next;
        generation_abort(g, &error, OUTCOME_ABORTED);
        generation_pump(g);
    }
}

void api_abort_lora(struct server *server, int place)
{
    struct api_error error;
    struct generation *next;
    loras_refuse_lost(&error);
    for (struct generation *g = server->api->generations; g; g = next) {
        next = g->next;
        if (g->preparing || g->params.lora != place || !generation_is_live(g)) continue;
        generation_abort(g, &error, OUTCOME_ABORTED);
        generation_pump(g);
    }
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct api *api = handle->data;
    metrics_page_deinit(&api->metrics);
    metrics_page_deinit(&api->openmetrics);
    buffer_deinit(&api->event);
    free(api->key_use);
    response_store_destroy(api->responses);
    free(api);
}

/* Runs the loop once more, for the timer to go. */
void api_deinit(struct server *server)
{
    struct api *api = server->api;
    if (!api) return;
    server->api = NULL;
    uv_close((uv_handle_t *)&api->ping_timer, on_timer_closed);
    uv_run(server->loop, UV_RUN_NOWAIT);
}
