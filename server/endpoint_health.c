/* endpoint_health.c - is it ready, is it alive, which version is it. That /livez answers shows that the loop
 * ticks; the engine is alive unless it is stuck (engine_watch.h). */
#include "base/buffer.h"
#include "base/version.h"
#include "server/engine_watch.h"

static const char *why_not_alive(struct server *server)
{
    if (server->state == SERVER_FAILED) return "the device failed";
    return engine_is_stuck(server) ? "the engine is stuck" : NULL;
}

static const char *why_not_ready(struct server *server)
{
    if (server->state == SERVER_LOADING) return "the model is still loading";
    if (server->state == SERVER_LAME_DUCK || server->state == SERVER_DRAINING)
        return "the server is shutting down";
    if (server->engine_is_down) return "the engine is being started again";
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
    buffer_append_json_text(&text, flashd_version());
    buffer_append_text(&text, ",\"commit\":");
    buffer_append_json_text(&text, flashd_commit());
    buffer_append_text(&text, "}");
    exchange_reply_page(x, "application/json", &text);
    buffer_deinit(&text);
}
