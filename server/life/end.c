/* end.c - drained, cut off or failed: how the process ends. */
#include "server/life/life.h"

#include <stdio.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/log_writer.h"
#include "server/api/api.h"
#include "server/journal.h"
#include "server/loop_watch.h"

enum {
    LAST_WORDS_MS = 3000, /* for error events to reach their clients before the process ends */
    MARGIN_SECONDS = 15,  /* for these and what is left to do then */
};

static void close_handle(uv_handle_t *handle, void *context)
{
    (void)context;
    if (!uv_is_closing(handle)) uv_close(handle, NULL);
}

/* Closes what is left; the loop then runs out of handles. Signals are heard further on: one that comes again
 * must not be what the process died of. */
void life_end(struct life *life)
{
    if (life->ending) return;
    life->ending = true;
    listener_close(&life->listener);
    engine_host_close(&life->engine);
    upgrade_close(&life->upgrade);
    handover_close(&life->handover);
    takeover_close(&life->takeover);
    work_queue_close(&life->server.works);
    uv_handle_t *own[] = {(uv_handle_t *)&life->text_done,       (uv_handle_t *)&life->quiet,
                          (uv_handle_t *)&life->deadline,        (uv_handle_t *)&life->restart,
                          (uv_handle_t *)&life->engine_watch,    (uv_handle_t *)&life->before_wait,
                          (uv_handle_t *)&life->manager.watchdog};
    for (size_t i = 0; i < array_length(own); i++) close_handle(own[i], NULL);
}

void life_end_if_quiet(struct life *life)
{
    enum server_state state = life->server.state;
    if (state != SERVER_DRAINING && state != SERVER_FAILED) return;
    if (life->listener.num_busy == 0 && api_num_in_flight(&life->server) == 0) life_end(life);
}

void life_on_quiet(void *context)
{
    struct life *life = context;
    if (!life->ending) uv_async_send(&life->quiet); /* not now: a connection is at work on the stack */
}

static void on_quiet_async(uv_async_t *async)
{
    loop_watch_enter("the end of the last request");
    life_end_if_quiet(async->data);
}

static void on_deadline(uv_timer_t *timer);

static void abort_all(struct life *life, int http_status, const char *type, const char *message)
{
    life->last_words = true;
    uv_timer_start(&life->deadline, on_deadline, LAST_WORDS_MS, 0);
    api_abort_all(&life->server, http_status, type, message);
    uv_async_send(&life->quiet);
}

static void on_deadline(uv_timer_t *timer)
{
    loop_watch_enter("the deadline of a drain");
    struct life *life = timer->data;
    if (life->last_words) {
        log_warning("not every client took its last bytes in time");
        life_end(life);
        return;
    }
    log_warning("--drain-timeout is over: %d requests are cut off", api_num_in_flight(&life->server));
    abort_all(life, 503, "service_unavailable_error", "the server is shutting down");
}

/* The manager waits as long as all of it may take, where that is longer than its own time for a stop. */
static void tell_stopping(const struct life *life, int64_t delay_seconds, const char *what)
{
    char text[160];
    int64_t seconds = delay_seconds + life->server.config->drain_timeout + MARGIN_SECONDS;
    snprintf(text, sizeof text, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%lld000000\nSTATUS=%s", (long long)seconds,
             what);
    service_manager_tell(&life->manager, text);
}

void life_begin_drain(struct life *life)
{
    const struct config *config = life->server.config;
    log_info(
        "draining: %d requests in flight, at most %lld s (--drain-timeout); a second signal ends it at once",
        api_num_in_flight(&life->server), (long long)config->drain_timeout);
    life->server.state = SERVER_DRAINING;
    tell_stopping(life, 0, "draining");
    uv_timer_start(&life->deadline, on_deadline, (uint64_t)config->drain_timeout * 1000, 0);
    listener_drain(&life->listener);
    life_end_if_quiet(life);
}

static void on_delay(uv_timer_t *timer)
{
    loop_watch_enter("the end of a lame duck");
    life_begin_drain(timer->data);
}

static int64_t drain_delay_seconds(const struct life *life)
{
    enum { SUPERVISED_SECONDS = 5 };
    int64_t told = life->server.config->drain_delay;
    if (told >= 0) return told;
    return life->manager.supervises ? SUPERVISED_SECONDS : 0;
}

void life_retire(struct life *life)
{
    int64_t seconds = drain_delay_seconds(life);
    if (seconds == 0) {
        life_begin_drain(life);
        return;
    }
    log_info("health says no; requests are still taken for %lld s (--drain-delay)", (long long)seconds);
    if (life->inherited.belongs_to_systemd)
        listener_stop(&life->listener); /* others wait for the next process */
    life->server.state = SERVER_LAME_DUCK;
    tell_stopping(life, seconds, "health says no, requests are still taken");
    listener_retire(&life->listener);
    uv_timer_start(&life->deadline, on_delay, (uint64_t)seconds * 1000, 0);
}

/* Without waiting for anybody but the log. */
void life_leave(const struct life *life)
{
    log_info("ended with code %d", life->exit_code);
    journal_destroy(life->server.journal);
    log_writer_stop();
    _exit(life->exit_code);
}

void life_fail_device(struct life *life, const char *why)
{
    log_error("%s: the process ends with code %d to be restarted", why, EXIT_DEVICE);
    life->server.state = SERVER_FAILED;
    life->exit_code = EXIT_DEVICE;
    listener_drain(&life->listener);
    abort_all(life, 500, "server_error", "the device failed; the server is being restarted");
}

void life_refuse_to_start(struct life *life, const char *why)
{
    log_error("%s", why);
    life->exit_code = EXIT_FAILURE;
    life_end(life);
}

void life_end_init(struct life *life)
{
    uv_async_init(&life->loop, &life->quiet, on_quiet_async);
    uv_timer_init(&life->loop, &life->deadline);
    life->quiet.data = life->deadline.data = life;
}
