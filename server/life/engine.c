/* engine.c - where the engine is a process it may die once it has served; recovery.c then says who goes on, and another one
 * is started. Requests wait meanwhile, new ones too. */
#include "server/life/life.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "server/api/api.h"
#include "server/api/loras.h"
#include "server/engine_watch.h"
#include "server/loop_watch.h"

enum {
    ENGINE_WATCH_MS = 1000,
    RESTART_MS = 100, /* before another start, when an engine did not get as far as serving */
};

static void replace_engine(struct life *life, bool accuses, uint64_t after_ms);

/* A start that fails, for want of memory perhaps, is one more death. */
static void on_restart(uv_timer_t *timer)
{
    loop_watch_enter("the engine's start");
    struct life *life = timer->data;
    struct error err = {0};
    life->server.engine_start_ns = clock_monotonic_ns();
    if (life->server.state == SERVER_FAILED) return;
    if (!identity_engine_may_go_on(life->config, &life->files)) {
        life_fail_device(
            life,
            "the model's files are others by now, and answers that have begun must not go on with theirs");
        return;
    }
    loras_look_at_files(life->server.loras);
    if (engine_host_start(&life->engine, &err) == 0) return;
    log_error("%s", err.text);
    replace_engine(life, false, RESTART_MS);
}

/* Or gives up. */
static void replace_engine(struct life *life, bool accuses, uint64_t after_ms)
{
    struct server *server = &life->server;
    server->engine_is_down = true;
    server->engine_start_ns = clock_monotonic_ns();
    bool goes_on = recovery_on_death(&life->recovery, accuses, clock_monotonic_ns());
    metric_add(life->engine_deaths, 1);
    api_on_engine_death(server);
    if (goes_on)
        uv_timer_start(&life->restart, on_restart, after_ms, 0);
    else
        life_fail_device(life, "the engine dies too often");
}

/* The first that serves. It may be dead by now. */
static int get_to_know_engine(struct life *life, struct error *err)
{
    struct server *server = &life->server;
    int status = link_join(server->link, err);
    if (!status)
        status =
            recovery_init(&life->recovery, server->link, (int32_t)server->config->max_engine_deaths, err);
    life->knows_engine = status == 0;
    return status;
}

static void welcome_engine(struct life *life)
{
    struct server *server = &life->server;
    struct error err = {0};
    bool is_first = !life->knows_engine;
    if (is_first && get_to_know_engine(life, &err)) {
        life_refuse_to_start(life, err.text);
        return;
    }
    server->engine_is_down = false;
    server->engine_ready_ns = clock_monotonic_ns();
    double seconds = (double)(server->engine_ready_ns - server->engine_start_ns) / 1e9;
    server->engine_load_seconds = max_of(server->engine_load_seconds, seconds);
    if (!is_first) log_info("the engine is back after %.3f s", seconds);
}

static void on_engine_wake(void *context)
{
    struct life *life = context;
    struct server *server = &life->server;
    enum link_state state = link_state(server->link);
    if (life->ending) return;
    if (!life->knows_engine && state == LINK_REFUSED) {
        life_refuse_to_start(life, link_error_text(server->link));
        return;
    }
    if (server->engine_is_down && state == LINK_READY) welcome_engine(life);
    if (life->knows_engine && state == LINK_READY) recovery_on_progress(&life->recovery);
    life_become_ready(life);
    if (!server->facts) return;
    api_on_engine_wake(server);
    if (server->state != SERVER_FAILED && state == LINK_FAILED && life->engine.main)
        life_fail_device(life, "the device failed");
    life_end_if_quiet(life);
}

/* The first one never served. */
static void end_with_engine(struct life *life, const struct engine_end *end_of, bool has_said)
{
    char text[sizeof end_of->text + 64];
    snprintf(text, sizeof text, "the engine died of %s while it loaded", end_of->text);
    life_refuse_to_start(life, has_said ? link_error_text(life->server.link) : text);
}

/* A process only. */
static void on_engine_end(void *context, const struct engine_end *end_of)
{
    struct life *life = context;
    struct server *server = &life->server;
    if (life->ending || server->state == SERVER_FAILED) return;
    enum link_state last = link_state(server->link);
    bool has_said = last == LINK_REFUSED || last == LINK_FAILED;
    bool has_served = last == LINK_READY || last == LINK_FAILED;
    struct error err = {0};
    if (has_served && !life->knows_engine && get_to_know_engine(life, &err)) {
        life_refuse_to_start(life, err.text);
        return;
    }
    if (!life->knows_engine) {
        end_with_engine(life, end_of, has_said);
        return;
    }
    bool accuses = link_has_fault(server->link) || end_of->signal == 0 || life->engine_was_stuck;
    life->engine_was_stuck = false;
    log_error("the engine died of %s after %.3f s%s%s", end_of->text,
              (double)(clock_monotonic_ns() - server->engine_start_ns) / 1e9, has_said ? ": " : "",
              has_said ? link_error_text(server->link) : "");
    replace_engine(life, accuses, has_served ? 0 : RESTART_MS);
}

/* An idle server does not tick. */
static bool needs_watch(const struct life *life)
{
    return life->knows_engine && (life->server.engine_is_down || api_num_in_flight(&life->server) > 0);
}

static void on_engine_watch(uv_timer_t *timer)
{
    loop_watch_enter("the engine's watch");
    struct life *life = timer->data;
    if (!needs_watch(life)) uv_timer_stop(timer);
    const bool is_stuck = engine_is_stuck(&life->server); /* a thread cannot be ended, but is looked at */
    if (life->engine.main || !is_stuck) return;
    log_error("the engine is stuck: it is ended");
    life->engine_was_stuck = true;
    engine_host_kill(&life->engine);
}

static void on_before_wait(uv_prepare_t *prepare)
{
    struct life *life = prepare->data;
    if (needs_watch(life) && !uv_is_active((uv_handle_t *)&life->engine_watch))
        uv_timer_start(&life->engine_watch, on_engine_watch, ENGINE_WATCH_MS, ENGINE_WATCH_MS);
    loop_watch_leave();
}

void life_engine_init(struct life *life, engine_main *engine)
{
    life->engine = (struct engine_host){.loop = &life->loop,
                                        .config = life->config,
                                        .main = !strcmp(life->config->engine, "thread") ? engine : NULL,
                                        .on_wake = on_engine_wake,
                                        .on_end = on_engine_end,
                                        .context = life};
    engine_host_init(&life->engine);
    uv_timer_init(&life->loop, &life->restart);
    uv_timer_init(&life->loop, &life->engine_watch);
    uv_prepare_init(&life->loop, &life->before_wait);
    life->restart.data = life->engine_watch.data = life->before_wait.data = life;
    uv_prepare_start(&life->before_wait, on_before_wait);
}
