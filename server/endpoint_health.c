/* endpoint_health.c - is it ready, is it alive, which version is it.
 *
 * That /livez answers shows that the loop ticks. The engine counts as stuck when it owes a request tokens and
 * has ended no step for longer than ten of its longest steps would take at the speed it had: busy is not
 * dead, a long step is legal, and a client that does not read is not the engine's fault. */
#include <string.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/clock.h"
#include "server/server.h"
#include "base/version.h"

enum { STUCK_SECONDS_MIN = 30, STUCK_SECONDS_MAX = 600, STEPS_OF_PATIENCE = 10 };

static double patience_seconds(const struct server *server, const struct engine_stats *stats)
{
    if (stats->tokens_per_second <= 0) return STUCK_SECONDS_MAX;
    int64_t tokens = server->config->max_num_batched_tokens;
    double step_seconds = (double)(tokens > 0 ? tokens : 8192) / stats->tokens_per_second;
    return max_of((double)STUCK_SECONDS_MIN,
                  min_of(STEPS_OF_PATIENCE * step_seconds, (double)STUCK_SECONDS_MAX));
}

static bool engine_is_stuck(const struct server *server)
{
    uint64_t since_ns = server->engine ? api_engine_owes_since_ns(server) : 0;
    if (since_ns == 0) return false;
    struct engine_stats stats;
    engine_stats(server->engine, &stats);
    since_ns = max_of(since_ns, stats.last_step_end_ns);
    uint64_t now_ns = clock_monotonic_ns();
    return now_ns > since_ns && (double)(now_ns - since_ns) / 1e9 > patience_seconds(server, &stats);
}

static const char *why_not_alive(const struct server *server)
{
    if (server->state == SERVER_FAILED || (server->engine && engine_failed(server->engine)))
        return "the device failed";
    return engine_is_stuck(server) ? "the engine is stuck" : NULL;
}

static const char *why_not_ready(const struct server *server)
{
    if (server->state == SERVER_LOADING) return "the model is still loading";
    if (server->state == SERVER_DRAINING) return "the server is shutting down";
    return why_not_alive(server);
}

static void answer(struct exchange *x, const char *problem)
{
    static const char ok[] = "{\"status\":\"ok\"}";
    exchange_add_header(x, "Cache-Control", "no-store");
    if (problem)
        exchange_error(x, 503, "service_unavailable_error", NULL, NULL, 1, "%s", problem);
    else
        exchange_reply(x, 200, "application/json", ok, sizeof ok - 1);
}

void endpoint_health(struct exchange *x)
{
    answer(x, why_not_ready(x->server));
}

void endpoint_livez(struct exchange *x)
{
    answer(x, why_not_alive(x->server));
}

void endpoint_version(struct exchange *x)
{
    struct buffer text;
    buffer_init(&text, 1024);
    buffer_append_text(&text, "{\"version\":");
    buffer_append_json(&text, flashd_version(), strlen(flashd_version()));
    buffer_append_text(&text, ",\"commit\":");
    buffer_append_json(&text, flashd_commit(), strlen(flashd_commit()));
    buffer_append_text(&text, "}");
    if (buffer_failed(&text))
        exchange_error(x, 500, "server_error", NULL, NULL, 0, "out of memory");
    else
        exchange_reply(x, 200, "application/json", text.data, text.num_bytes);
    buffer_deinit(&text);
}
