/* server.c - the process's life: listen, load, serve, drain, end.
 *
 *   LOADING --loaded--> READY --SIGTERM, SIGINT--> DRAINING --quiet or timed out--> exit 0
 *      |                  `----device failed-----> FAILED ----quiet or 3 s--------> exit 70
 *      `--failed--> exit 1
 *
 * It listens before it loads, so that health checks and clients get an answer (503) at once. Draining takes
 * no new API requests, but health, metrics and refusals are still answered, so that load balancers see it; it
 * ends when nothing is in flight, at once if nothing is. A second signal ends the process on the spot. SIGHUP
 * is ignored: there is nothing to reload, and a closed terminal must not stop a server.
 *
 * A load cannot be interrupted; a process told to end meanwhile leaves it running and exits under it. */
#include "server/server.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "server/http_metrics.h"
#include "server/listener.h"
#include "engine/load.h"
#include "server/loop_watch.h"

enum {
    EXIT_DEVICE = 70,
    LAST_WORDS_MS = 3000, /* for error events to reach their clients before the process ends */
};

struct life {
    struct server server;
    struct listener listener;
    struct load load;
    uv_loop_t loop;
    uv_async_t engine_wake, load_done, quiet;
    uv_signal_t sigterm, sigint;
    uv_timer_t deadline;
    uv_prepare_t before_wait;
    uv_thread_t load_thread;
    bool loading; /* load_thread runs */
    int load_status;
    struct error load_error;
    char *default_name;
    const char *model_name[1];
    bool last_words; /* everything was aborted; only flushing is left */
    bool ending;
    int exit_code;
};

/* ---- the end ---- */

static void close_handle(uv_handle_t *handle, void *context)
{
    (void)context;
    if (!uv_is_closing(handle)) uv_close(handle, NULL);
}

/* Closes what is left; the loop then runs out of handles. */
static void end(struct life *life)
{
    if (life->ending) return;
    life->ending = true;
    listener_close(&life->listener);
    uv_handle_t *own[] = {(uv_handle_t *)&life->engine_wake, (uv_handle_t *)&life->load_done,
                          (uv_handle_t *)&life->quiet,       (uv_handle_t *)&life->sigterm,
                          (uv_handle_t *)&life->sigint,      (uv_handle_t *)&life->deadline,
                          (uv_handle_t *)&life->before_wait};
    for (size_t i = 0; i < array_length(own); i++) close_handle(own[i], NULL);
}

static void end_if_quiet(struct life *life)
{
    enum server_state state = life->server.state;
    if (state != SERVER_DRAINING && state != SERVER_FAILED) return;
    if (life->listener.num_busy == 0 && api_num_in_flight(&life->server) == 0) end(life);
}

static void on_quiet(void *context)
{
    struct life *life = context;
    if (!life->ending) uv_async_send(&life->quiet); /* not now: a connection is at work on the stack */
}

static void on_quiet_async(uv_async_t *async)
{
    loop_watch_enter("the end of the last request");
    end_if_quiet(async->data);
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
        end(life);
        return;
    }
    log_warning("--drain-timeout is over: %d requests are cut off", api_num_in_flight(&life->server));
    abort_all(life, 503, "service_unavailable_error", "the server is shutting down");
}

static void begin_drain(struct life *life)
{
    const struct config *config = life->server.config;
    log_info("draining: %d requests in flight, at most %lld s (--drain-timeout)",
             api_num_in_flight(&life->server), (long long)config->drain_timeout);
    life->server.state = SERVER_DRAINING;
    uv_timer_start(&life->deadline, on_deadline, (uint64_t)config->drain_timeout * 1000, 0);
    listener_drain(&life->listener);
    end_if_quiet(life);
}

static void on_signal(uv_signal_t *signal, int number)
{
    loop_watch_enter("a signal");
    struct life *life = signal->data;
    log_info("got %s", number == SIGTERM ? "SIGTERM" : "SIGINT");
    if (life->server.state == SERVER_LOADING || life->server.state == SERVER_READY) {
        begin_drain(life);
        return;
    }
    if (life->server.config->uds) unlink(life->server.config->uds);
    _exit(life->exit_code);
}

static void fail_device(struct life *life)
{
    log_error("the device failed: the process ends with code %d to be restarted", EXIT_DEVICE);
    life->server.state = SERVER_FAILED;
    life->exit_code = EXIT_DEVICE;
    listener_drain(&life->listener);
    abort_all(life, 500, "server_error", "the device failed; the server is being restarted");
}

static void on_engine_wake(uv_async_t *async)
{
    loop_watch_enter("tokens of the engine");
    struct life *life = async->data;
    if (!life->server.engine) return;
    api_on_engine_wake(&life->server);
    if (life->server.state != SERVER_FAILED && engine_failed(life->server.engine)) fail_device(life);
    end_if_quiet(life);
}

/* ---- loading ---- */

static void wake_loop(void *context)
{
    uv_async_send(&((struct life *)context)->engine_wake);
}

static void load_main(void *context)
{
    struct life *life = context;
    life->load_status = load_run(&life->load, &life->load_error);
    uv_async_send(&life->load_done);
}

static void publish_model(struct life *life)
{
    struct server *server = &life->server;
    const struct load *load = &life->load;
    server->model_config = model_files_config(load->files);
    server->generation = model_files_generation_defaults(load->files);
    server->tokenizer = load->tokenizer;
    server->chat_template = load->chat_template;
    server->engine = load->engine;
    server->slots = load->slots;
    server->max_model_len = load->max_model_len;
    server->max_queued_tokens = load->max_queued_tokens;
    api_on_loaded(server, load_phase_names, load->phase_seconds, LOAD_PHASES);
}

static void on_load_done(uv_async_t *async)
{
    loop_watch_enter("the end of loading");
    struct life *life = async->data;
    uv_thread_join(&life->load_thread);
    life->loading = false;
    if (life->server.state != SERVER_LOADING) return; /* told to end meanwhile */
    if (life->load_status) {
        log_error("%s", life->load_error.text);
        life->exit_code = EXIT_FAILURE;
        end(life);
        return;
    }
    publish_model(life);
    life->server.state = SERVER_READY;
    log_info("ready after %.3f s: serving %s", (double)(clock_monotonic_ns() - life->server.start_ns) / 1e9,
             life->server.model_names[0]);
}

static int start_load(struct life *life, struct error *err)
{
    device_set_environment();
    life->load = (struct load){.config = life->server.config, .wake_loop = wake_loop, .wake_context = life};
    int uv_status = uv_thread_create(&life->load_thread, load_main, life);
    if (uv_status) return error_set(err, STATUS_IO, "cannot start a thread: %s", uv_strerror(uv_status));
    life->loading = true;
    return STATUS_OK;
}

/* ---- the beginning ---- */

/* The last part of the model's path. */
static char *name_of_model(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    const char *slash = memrchr(path, '/', n > 0 ? n - 1 : 0);
    const char *name = slash ? slash + 1 : path;
    return strndup(name, n - (size_t)(name - path));
}

static int choose_model_names(struct life *life, struct error *err)
{
    const struct text_list *names = &life->server.config->served_model_name;
    if (names->num_items > 0) {
        life->server.model_names = (const char *const *)names->items;
        life->server.num_model_names = names->num_items;
        return STATUS_OK;
    }
    life->default_name = name_of_model(life->server.config->model);
    if (!life->default_name) return error_set(err, STATUS_NO_MEMORY, "out of memory");
    life->model_name[0] = life->default_name;
    life->server.model_names = life->model_name;
    life->server.num_model_names = 1;
    return STATUS_OK;
}

static void on_before_wait(uv_prepare_t *prepare)
{
    (void)prepare;
    loop_watch_leave();
}

static void init_handles(struct life *life)
{
    uv_async_init(&life->loop, &life->engine_wake, on_engine_wake);
    uv_async_init(&life->loop, &life->load_done, on_load_done);
    uv_async_init(&life->loop, &life->quiet, on_quiet_async);
    uv_timer_init(&life->loop, &life->deadline);
    uv_signal_init(&life->loop, &life->sigterm);
    uv_signal_init(&life->loop, &life->sigint);
    life->engine_wake.data = life->load_done.data = life->quiet.data = life;
    life->deadline.data = life->sigterm.data = life->sigint.data = life;
    uv_prepare_init(&life->loop, &life->before_wait);
    uv_prepare_start(&life->before_wait, on_before_wait);
    uv_signal_start(&life->sigterm, on_signal, SIGTERM);
    uv_signal_start(&life->sigint, on_signal, SIGINT);
}

static int start(struct life *life, struct error *err)
{
    struct server *server = &life->server;
    int status = choose_model_names(life, err);
    if (!status) status = api_init(server, err);
    if (status) return status;
    http_metrics_register();
    status = listener_open(&life->listener, server, server_routes, err);
    life->listener.on_quiet = on_quiet;
    life->listener.quiet_context = life;
    if (status) return status;
    log_info("listening on %s", life->listener.address);
    return start_load(life, err);
}

/* The engine goes first: it finishes what is left, so that the API can let go of it, and it wakes the loop
 * until it is stopped. */
static void release(struct life *life)
{
    if (life->load.engine) engine_stop(life->load.engine);
    if (life->server.engine) api_on_engine_wake(&life->server);
    if (life->server.api) api_deinit(&life->server);
    load_release(&life->load);
    listener_deinit(&life->listener);
    free(life->default_name);
    uv_loop_close(&life->loop);
    metrics_reset();
    free(life);
}

int server_run(const struct config *config)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    struct life *life = calloc(1, sizeof *life);
    if (!life || uv_loop_init(&life->loop)) {
        log_error("out of memory");
        free(life);
        return EXIT_FAILURE;
    }
    life->server = (struct server){.loop = &life->loop,
                                   .config = config,
                                   .start_ns = clock_monotonic_ns(),
                                   .created = (int64_t)(clock_wall_ns() / 1000000000)};
    init_handles(life);
    struct error err = {0};
    if (start(life, &err)) {
        log_error("%s", err.text);
        life->exit_code = EXIT_FAILURE;
        end(life);
    }
    uv_run(&life->loop, UV_RUN_DEFAULT);
    int exit_code = life->exit_code;
    if (life->loading || exit_code == EXIT_DEVICE) _exit(exit_code); /* neither thread can be waited for */
    release(life);
    log_info("ended with code %d", exit_code);
    return exit_code;
}
