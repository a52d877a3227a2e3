/* server.c - the process's life: listen, load, serve, drain, end.
 *
 *   LOADING --loaded--> READY --SIGTERM--> LAME_DUCK --delay--> DRAINING --quiet or timed out--> exit 0
 *      |                  `--device failed--> FAILED --quiet or 3 s--> exit 70
 *      `--failed--> exit 1
 *
 * Two things are loaded side by side: the texts (tokenizer, template) on a thread, the model by the engine.
 * Where the engine is a process it may die once it has served; recovery.c then says who goes on, and another
 * one is started. Requests wait meanwhile, new ones too.
 *
 * It listens before it loads, so that health checks and clients get an answer (503) at once. A lame duck says
 * no to health checks and takes requests as before, until whoever balances has seen it (--drain-delay); SIGINT,
 * or SIGTERM again, leaves that out. Draining takes no new API requests, but health, metrics and refusals are
 * still answered; it ends when nothing is in flight, at once if nothing is. A signal while it drains cuts off
 * what runs and ends the process on the spot. SIGHUP reads the configuration again, SIGUSR1 tells the log what
 * is in flight, SIGUSR2 lets another process take this one's place (upgrade.h); other signals are logged and ignored.
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
#include "base/log_writer.h"
#include "base/metrics.h"
#include "config/reload.h"
#include "server/engine_watch.h"
#include "server/handover.h"
#include "server/http_metrics.h"
#include "server/identity.h"
#include "server/inherited.h"
#include "server/journal.h"
#include "server/listener.h"
#include "server/loop_watch.h"
#include "server/loop_slice.h"
#include "server/masks.h"
#include "server/process_metrics.h"
#include "server/recovery.h"
#include "server/reranker.h"
#include "server/service_manager.h"
#include "server/span_export.h"
#include "server/takeover.h"
#include "server/upgrade.h"
#include "text/model_text.h"

enum {
    EXIT_DEVICE = 70,
    LAST_WORDS_MS = 3000, /* for error events to reach their clients before the process ends */
    ENGINE_WATCH_MS = 1000,
    RESTART_MS = 100, /* before another start, when an engine did not get as far as serving */
};

/* Some mean something; none of them ends a server. */
static const int other_signals[] = {SIGHUP, SIGUSR1,   SIGUSR2, SIGALRM,  SIGIO,
                                    SIGPWR, SIGVTALRM, SIGPROF, SIGSTKFLT};

struct life {
    struct config *config; /* the server's, where it may be changed */
    struct server server;
    struct listener listener;
    struct engine_host engine;
    struct recovery recovery;
    struct service_manager manager;
    struct inherited inherited;
    struct upgrade upgrade;
    struct handover handover; /* to the process after this one, */
    struct takeover takeover; /* from the one before */
    struct identity_files files;
    uint8_t own_identity[IDENTITY_BYTES];
    uv_loop_t loop;
    uv_async_t text_done, quiet;
    uv_signal_t sigterm, sigint, others[array_length(other_signals)];
    uv_timer_t deadline, restart, engine_watch;
    uv_prepare_t before_wait;
    struct model_text text;
    uv_thread_t text_thread;
    bool loading_text; /* text_thread runs */
    bool has_text;
    struct model_identity identity; /* the text thread's; where answers have receipts */
    int text_status;
    double text_seconds;
    struct error text_error;
    bool knows_engine;     /* one has served: the link is joined, and a death is no failed start */
    bool engine_was_stuck; /* and was killed for it */
    struct metric *engine_deaths;
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

/* Closes what is left; the loop then runs out of handles. Signals are heard further on: one that comes again
 * must not be what the process died of. */
static void end(struct life *life)
{
    if (life->ending) return;
    life->ending = true;
    listener_close(&life->listener);
    engine_host_close(&life->engine);
    upgrade_close(&life->upgrade);
    handover_close(&life->handover);
    takeover_close(&life->takeover);
    uv_handle_t *own[] = {(uv_handle_t *)&life->text_done,       (uv_handle_t *)&life->quiet,
                          (uv_handle_t *)&life->deadline,        (uv_handle_t *)&life->restart,
                          (uv_handle_t *)&life->engine_watch,    (uv_handle_t *)&life->before_wait,
                          (uv_handle_t *)&life->manager.watchdog};
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
    service_manager_tell(&life->manager, "STOPPING=1\nSTATUS=draining");
    uv_timer_start(&life->deadline, on_deadline, (uint64_t)config->drain_timeout * 1000, 0);
    listener_drain(&life->listener);
    end_if_quiet(life);
}

static void on_delay(uv_timer_t *timer)
{
    loop_watch_enter("the end of a lame duck");
    begin_drain(timer->data);
}

static int64_t drain_delay_seconds(const struct life *life)
{
    enum { SUPERVISED_SECONDS = 5 };
    int64_t told = life->server.config->drain_delay;
    if (told >= 0) return told;
    return life->manager.supervises ? SUPERVISED_SECONDS : 0;
}

static void retire(struct life *life)
{
    int64_t seconds = drain_delay_seconds(life);
    if (seconds == 0) {
        begin_drain(life);
        return;
    }
    log_info("health says no; requests are still taken for %lld s (--drain-delay)", (long long)seconds);
    if (life->inherited.belongs_to_systemd)
        listener_stop(&life->listener); /* others wait for the next process */
    life->server.state = SERVER_LAME_DUCK;
    service_manager_tell(&life->manager, "STOPPING=1\nSTATUS=health says no, requests are still taken");
    listener_retire(&life->listener);
    uv_timer_start(&life->deadline, on_delay, (uint64_t)seconds * 1000, 0);
}

/* Without waiting for anybody but the log. */
static void leave(const struct life *life)
{
    log_info("ended with code %d", life->exit_code);
    journal_destroy(life->server.journal);
    log_writer_stop();
    _exit(life->exit_code);
}

static void on_signal(uv_signal_t *signal, int number)
{
    loop_watch_enter("a signal");
    struct life *life = signal->data;
    if (life->ending) return; /* what is left takes no time */
    log_info("got SIG%s", sigabbrev_np(number));
    enum server_state state = life->server.state;
    upgrade_call_off(&life->upgrade);
    if (state == SERVER_READY && number == SIGTERM) {
        retire(life);
        return;
    }
    if (state == SERVER_LOADING || state == SERVER_READY || state == SERVER_LAME_DUCK) {
        begin_drain(life);
        return;
    }
    log_warning("told to end at once: %d requests are cut off", api_num_in_flight(&life->server));
    api_abort_all(&life->server, 503, "service_unavailable_error", "the server was told to end at once");
    listener_remove_path(&life->listener);
    leave(life);
}

static void dump(const struct life *life)
{
    static const char *const states[] = {[SERVER_LOADING] = "loading",
                                         [SERVER_READY] = "ready",
                                         [SERVER_LAME_DUCK] = "lame duck",
                                         [SERVER_DRAINING] = "draining",
                                         [SERVER_FAILED] = "failed"};
    const struct listener *l = &life->listener;
    log_info(
        "dump: %s; the engine's process is %d%s; %d connections, %d of them at work, %llu bytes held for "
        "them",
        states[life->server.state], (int)engine_host_pid(&life->engine),
        life->server.engine_is_down ? ", not ready" : "", l->num_connections, l->num_busy,
        (unsigned long long)l->num_buffered_bytes);
    api_dump(&life->server);
}

/* Where memory lacks for new keys, nobody looks for them. */
static void reload(struct life *life)
{
    struct config_changes changes;
    struct error err = {0};
    int status = config_reload(life->config, environ, &changes, &err);
    if (!status) status = api_on_new_keys(&life->server, &err);
    if (!status) status = listener_reload_keys(&life->listener, &err);
    if (status) {
        log_error("the configuration was not read again: %s", err.text);
        return;
    }
    log_set_level(log_level_of(life->config->log_level));
    log_info("the configuration was read again: %s", changes.applied[0] ? changes.applied : "nothing is new");
    if (changes.at_next_start[0])
        log_warning("these take effect at the next start: %s", changes.at_next_start);
}

/* ---- another process in this one's place ---- */

static void on_tick(uv_timer_t *timer)
{
    loop_watch_enter("connections that are left");
    struct life *life = timer->data;
    listener_drain(&life->listener);
    if (life->listener.num_open == 0 && api_num_in_flight(&life->server) == 0) end(life);
}

/* Streams go on there, if they can. Whoever else is connected here is served here: for --drain-delay on idle
 * connections, too, then until those at work are done, however long that takes. */
static void on_taken_over(void *context, int fd, const uint8_t *identity)
{
    enum { DELAY_SECONDS = 5, TICK_MS = 100 };
    struct life *life = context;
    char text[48];
    int64_t seconds = life->server.config->drain_delay;
    int pid = life->upgrade.process.pid;
    log_info("process %d has taken over; this one ends with its last answer, %d are in flight", pid,
             api_num_in_flight(&life->server));
    life->server.state = SERVER_LAME_DUCK;
    listener_hand_over(&life->listener);
    listener_retire(&life->listener);
    snprintf(text, sizeof text, "MAINPID=%d", pid);
    service_manager_tell(&life->manager, text);
    service_manager_deinit(&life->manager); /* what this process does is nobody's business any more */
    uv_timer_start(&life->deadline, on_tick, (uint64_t)(seconds >= 0 ? seconds : DELAY_SECONDS) * 1000,
                   TICK_MS);
    handover_begin(&life->handover, fd, identity && !memcmp(identity, life->own_identity, IDENTITY_BYTES));
}

static void on_upgrade_failed(void *context, const char *why)
{
    (void)context;
    log_error("the process that was to take over ended with %s; this one goes on", why);
}

static int start_upgrade(struct life *life, struct error *err)
{
    struct text_list more = {0};
    uv_os_fd_t fd;
    if (life->server.state != SERVER_READY)
        return error_set(err, STATUS_INVALID, "only a server that is ready can be replaced");
    if (uv_fileno(&life->listener.socket.handle, &fd)) return error_set(err, STATUS_IO, "there is no socket");
    int status = service_manager_append_environment(&life->manager, &more);
    if (status) error_set(err, status, "out of memory");
    if (!status)
        status = upgrade_start(&life->upgrade, fd, life->inherited.belongs_to_systemd,
                               &life->server.config->arguments, &more, err);
    text_list_deinit(&more);
    return status;
}

static void begin_upgrade(struct life *life)
{
    struct error err = {0};
    if (start_upgrade(life, &err))
        log_error("nothing is replaced: %s", err.text);
    else
        log_info("process %d starts to take over", life->upgrade.process.pid);
}

static void on_other_signal(uv_signal_t *signal, int number)
{
    loop_watch_enter("a signal");
    struct life *life = signal->data;
    if (life->ending) return;
    bool means_something = number == SIGUSR1 || number == SIGUSR2 || number == SIGHUP;
    log_info("got SIG%s%s", sigabbrev_np(number), means_something ? "" : ": ignored");
    if (number == SIGUSR1) dump(life);
    if (number == SIGUSR2) begin_upgrade(life);
    if (number == SIGHUP) reload(life);
}

static void fail_device(struct life *life)
{
    log_error("%s: the process ends with code %d to be restarted",
              life->engine.main ? "the device failed" : "the engine dies too often", EXIT_DEVICE);
    life->server.state = SERVER_FAILED;
    life->exit_code = EXIT_DEVICE;
    listener_drain(&life->listener);
    abort_all(life, 500, "server_error", "the device failed; the server is being restarted");
}

/* ---- loading ---- */

/* Random weights may have no files at all. */
static void read_identity(struct life *life)
{
    int status = model_identity_read(life->server.config->model, &life->identity, &life->text_error);
    if (status && !life->text_status) life->text_status = status;
}

static void text_main(void *context)
{
    struct life *life = context;
    const struct config *config = life->server.config;
    uint64_t begin_ns = clock_monotonic_ns();
    life->text_status = model_text_open(config->model, config->chat_template, &life->text, &life->text_error);
    if (life->server.makes_receipts && life->text_status != STATUS_NO_MEMORY) read_identity(life);
    life->text_seconds = (double)(clock_monotonic_ns() - begin_ns) / 1e9;
    uv_async_send(&life->text_done);
}

static void refuse_to_start(struct life *life, const char *why)
{
    log_error("%s", why);
    life->exit_code = EXIT_FAILURE;
    end(life);
}

/* Random weights need no tokenizer; and one must not have more ids than the model has rows. */
static int fit_tokenizer(struct life *life, const struct link_facts *facts, struct error *err)
{
    const struct config *config = life->server.config;
    if (!life->text.tokenizer) {
        log_info(
            "random weights without a tokenizer.json: bytes are the tokens of a prompt, words are made up");
        return tokenizer_open_plain(facts->vocab_size, &life->text.tokenizer, err);
    }
    if (tokenizer_vocab_size(life->text.tokenizer) <= facts->vocab_size) return 0;
    return error_set(err, STATUS_INVALID,
                     "%s: the tokenizer has ids up to %d, but the model has %d rows of logits", config->model,
                     tokenizer_vocab_size(life->text.tokenizer) - 1, facts->vocab_size);
}

/* The engine's phases, and beside them the texts'. */
static void tell_phases(struct life *life)
{
    static const char *const names[LOAD_PHASES + 1] = {
        [LOAD_FILES] = "files",  [LOAD_DEVICE] = "device", [LOAD_WEIGHTS] = "weights",
        [LOAD_POOL] = "kv_pool", [LOAD_ENGINE] = "engine", [LOAD_PHASES] = "tokenizer"};
    double seconds[LOAD_PHASES + 1];
    memcpy(seconds, link_phase_seconds(life->server.link), LOAD_PHASES * sizeof *seconds);
    seconds[LOAD_PHASES] = life->text_seconds;
    api_on_loaded(&life->server, names, seconds, LOAD_PHASES + 1);
}

static int publish_model(struct life *life, struct error *err)
{
    struct server *server = &life->server;
    struct link *link = server->link;
    int status = fit_tokenizer(life, link_facts(link), err);
    if (!status) status = grammars_create(life->text.tokenizer, link_facts(link), &server->grammars, err);
    if (!status)
        status =
            reranker_open(server->config, link_facts(link), life->text.tokenizer, &server->reranker, err);
    if (!status) status = masks_create(link, server->grammars, &server->masks, err);
    if (status) return status;
    link_set_text(link, tokenizer_eos_id(life->text.tokenizer));
    server->facts = link_facts(link);
    server->slots = link_slots(link);
    server->tokenizer = life->text.tokenizer;
    server->chat_template = life->text.chat_template;
    server->tool_format = life->text.tool_format;
    server->identity = life->identity;
    identity_make(server->config, &life->files, server->facts, server->model_names[0], life->own_identity);
    tell_phases(life);
    return 0;
}

/* Once both are there. */
static void become_ready(struct life *life)
{
    struct error err = {0};
    if (life->server.state != SERVER_LOADING || !life->has_text || !life->knows_engine) return;
    if (publish_model(life, &err)) {
        refuse_to_start(life, err.text);
        return;
    }
    if (listener_accept(&life->listener, &err)) {
        refuse_to_start(life, err.text);
        return;
    }
    life->server.state = SERVER_READY;
    log_info("ready after %.3f s: serving %s", (double)(clock_monotonic_ns() - life->server.start_ns) / 1e9,
             life->server.model_names[0]);
    takeover_begin(&life->takeover, &life->listener, inherited_take_told_fd(&life->inherited),
                   life->own_identity);
    service_manager_tell_ready(&life->manager);
}

static void on_text_done(uv_async_t *async)
{
    loop_watch_enter("the end of loading");
    struct life *life = async->data;
    uv_thread_join(&life->text_thread);
    life->loading_text = false;
    if (life->server.state != SERVER_LOADING) return; /* told to end meanwhile */
    bool may_lack = !strcmp(life->server.config->load_format, "dummy");
    life->has_text = life->text_status == 0 || (life->text_status == STATUS_NOT_FOUND && may_lack);
    if (life->has_text)
        become_ready(life);
    else
        refuse_to_start(life, life->text_error.text);
}

/* ---- the engine ---- */

static void replace_engine(struct life *life, bool accuses, uint64_t after_ms);

/* A start that fails, for want of memory perhaps, is one more death. */
static void on_restart(uv_timer_t *timer)
{
    loop_watch_enter("the engine's start");
    struct life *life = timer->data;
    struct error err = {0};
    life->server.engine_start_ns = clock_monotonic_ns();
    if (life->server.state == SERVER_FAILED || engine_host_start(&life->engine, &err) == 0) return;
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
        fail_device(life);
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
        refuse_to_start(life, err.text);
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
        refuse_to_start(life, link_error_text(server->link));
        return;
    }
    if (server->engine_is_down && state == LINK_READY) welcome_engine(life);
    if (life->knows_engine && state == LINK_READY) recovery_on_progress(&life->recovery);
    become_ready(life);
    if (!server->facts) return;
    api_on_engine_wake(server);
    if (server->state != SERVER_FAILED && state == LINK_FAILED && life->engine.main) fail_device(life);
    end_if_quiet(life);
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
        refuse_to_start(life, err.text);
        return;
    }
    if (!life->knows_engine) {
        refuse_to_start(life, has_said ? link_error_text(server->link) : "the engine died while it loaded");
        return;
    }
    bool accuses = link_has_fault(server->link) || end_of->signal == 0 || life->engine_was_stuck;
    life->engine_was_stuck = false;
    log_error("the engine died of %s after %.3f s%s%s", end_of->text,
              (double)(clock_monotonic_ns() - server->engine_start_ns) / 1e9, has_said ? ": " : "",
              has_said ? link_error_text(server->link) : "");
    replace_engine(life, accuses, has_served ? 0 : RESTART_MS);
}

static int start_load(struct life *life, struct error *err)
{
    identity_look_at_files(life->server.config, &life->files);
    int uv_status = uv_thread_create(&life->text_thread, text_main, life);
    if (uv_status) return error_set(err, STATUS_IO, "cannot start a thread: %s", uv_strerror(uv_status));
    life->loading_text = true;
    life->server.engine_start_ns = clock_monotonic_ns();
    return engine_host_start(&life->engine, err);
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
    if (names->num_items > 0 && names->items[0][strlen(names->items[0]) - 1] == '*')
        return error_set(err, STATUS_INVALID,
                         "--served-model-name: the first name is the one in answers; it must not end in *");
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
    if (life->engine.main || !engine_is_stuck(&life->server)) return;
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

static void init_handles(struct life *life)
{
    uv_async_init(&life->loop, &life->text_done, on_text_done);
    uv_async_init(&life->loop, &life->quiet, on_quiet_async);
    uv_timer_init(&life->loop, &life->deadline);
    uv_timer_init(&life->loop, &life->restart);
    uv_timer_init(&life->loop, &life->engine_watch);
    engine_host_init(&life->engine);
    service_manager_init(&life->manager, &life->loop);
    uv_signal_init(&life->loop, &life->sigterm);
    uv_signal_init(&life->loop, &life->sigint);
    uv_unref((uv_handle_t *)&life->sigterm);
    uv_unref((uv_handle_t *)&life->sigint);
    life->text_done.data = life->quiet.data = life->sigterm.data = life->sigint.data = life;
    life->deadline.data = life->restart.data = life->engine_watch.data = life;
    uv_prepare_init(&life->loop, &life->before_wait);
    life->before_wait.data = life;
    uv_prepare_start(&life->before_wait, on_before_wait);
    uv_signal_start(&life->sigterm, on_signal, SIGTERM);
    uv_signal_start(&life->sigint, on_signal, SIGINT);
    for (size_t i = 0; i < array_length(other_signals); i++) {
        uv_signal_init(&life->loop, &life->others[i]);
        uv_unref((uv_handle_t *)&life->others[i]);
        life->others[i].data = life;
        uv_signal_start(&life->others[i], on_other_signal, other_signals[i]);
    }
}

/* The front's and the engine's. */
static double num_log_lines_dropped(const void *context)
{
    const struct server *server = context;
    struct link_stats stats = {0};
    if (server->link) link_stats(server->link, &stats);
    return (double)(log_writer_num_dropped() + stats.num_log_lines_dropped);
}

static double num_spans_sent(const void *context)
{
    const struct server *server = context;
    return (double)span_export_num_sent(server->spans);
}

static double num_spans_dropped(const void *context)
{
    const struct server *server = context;
    return (double)span_export_num_dropped(server->spans);
}

static int start_spans(struct server *server, struct error *err)
{
    if (!server->config->otlp_endpoint) return STATUS_OK;
    int status = span_export_create(server->config->otlp_endpoint, &server->spans, err);
    if (status) return status;
    metric_register_read(METRIC_COUNTER, "flashd_spans_sent_total", "Spans that the collector took.",
                         num_spans_sent, server);
    metric_register_read(METRIC_COUNTER, "flashd_spans_dropped_total",
                         "Spans that it did not take, or that there was no room for.", num_spans_dropped,
                         server);
    return STATUS_OK;
}

static double num_lines_kept(const void *context)
{
    const struct server *server = context;
    return (double)journal_num_written(server->journal);
}

static double num_lines_dropped(const void *context)
{
    const struct server *server = context;
    return (double)journal_num_dropped(server->journal);
}

static int start_journal(struct server *server, struct error *err)
{
    enum { HEAD_BYTES = 4096 }; /* of a line, before the body of a request */
    const struct config *config = server->config;
    if (!config->journal) return STATUS_OK;
    int status = journal_create(config->journal, config->journal_bytes, config->max_body_bytes + HEAD_BYTES,
                                &server->journal, err);
    if (status) return status;
    metric_register_read(METRIC_COUNTER, "flashd_journal_lines_total",
                         "Lines that --journal holds, or held: two a request.", num_lines_kept, server);
    metric_register_read(METRIC_COUNTER, "flashd_journal_lines_dropped_total",
                         "Lines that it lacks: the disk was full, or too slow.", num_lines_dropped, server);
    return STATUS_OK;
}

static int start(struct life *life, struct error *err)
{
    struct server *server = &life->server;
    int status = choose_model_names(life, err);
    if (!status) status = link_create(&server->link, err);
    life->engine.link = server->link;
    if (!status) status = api_init(server, err);
    if (status) return status;
    http_metrics_register(server_routes);
    process_metrics_register(&life->engine);
    life->engine_deaths = metric_register(METRIC_COUNTER, "flashd_engine_deaths_total",
                                          "Engines that died and were replaced.", "", NULL, 0);
    metric_register_read(METRIC_COUNTER, "flashd_log_lines_dropped_total",
                         "Log lines that nobody will see: their reader was too slow, or the disk was full.",
                         num_log_lines_dropped, server);
    status = start_spans(server, err);
    if (!status) status = start_journal(server, err);
    if (!status) status = inherited_take(&life->inherited, err);
    if (!status) status = listener_open(&life->listener, server, server_routes, err);
    life->listener.on_quiet = on_quiet;
    life->listener.quiet_context = life;
    if (status) return status;
    log_info("listening on %s", life->listener.address);
    return start_load(life, err);
}

/* A process may have died before it had. */
static void finish_what_is_left(struct life *life)
{
    struct link *link = life->server.link;
    if (life->engine.main) return;
    link_reset(link);
    for (int32_t i = -1; (i = link_next_waiting(link, i)) >= 0;)
        link_finish_waiting(link, i, FINISH_CANCELLED, NULL);
}

/* The engine goes first: it finishes what is left, so that the API can let go of it. */
static void release(struct life *life)
{
    engine_host_join(&life->engine);
    if (life->server.facts) {
        finish_what_is_left(life);
        api_on_engine_wake(&life->server);
    }
    if (life->server.api) api_deinit(&life->server);
    span_export_destroy(life->server.spans);
    journal_destroy(life->server.journal);
    masks_destroy(life->server.masks);
    grammars_destroy(life->server.grammars);
    rerank_template_close(life->server.reranker);
    recovery_deinit(&life->recovery);
    link_destroy(life->server.link);
    life->server.link = NULL;
    model_text_close(&life->text);
    listener_deinit(&life->listener);
    service_manager_deinit(&life->manager);
    inherited_deinit(&life->inherited);
    free(life->default_name);
    uv_close((uv_handle_t *)&life->sigterm, NULL);
    uv_close((uv_handle_t *)&life->sigint, NULL);
    for (size_t i = 0; i < array_length(other_signals); i++) uv_close((uv_handle_t *)&life->others[i], NULL);
    uv_run(&life->loop, UV_RUN_NOWAIT);
    uv_loop_close(&life->loop);
    metrics_reset();
    free(life);
}

int server_run(struct config *config, engine_main *engine)
{
    struct life *life = calloc(1, sizeof *life);
    if (!life || uv_loop_init(&life->loop)) {
        log_error("out of memory");
        free(life);
        return EXIT_FAILURE;
    }
    life->config = config;
    life->server = (struct server){.loop = &life->loop,
                                   .config = config,
                                   .makes_receipts = config->receipts || config->journal,
                                   .start_ns = clock_monotonic_ns(),
                                   .engine_is_down = true,
                                   .created = (int64_t)(clock_wall_ns() / 1000000000)};
    life->engine = (struct engine_host){.loop = &life->loop,
                                        .config = config,
                                        .main = !strcmp(config->engine, "thread") ? engine : NULL,
                                        .on_wake = on_engine_wake,
                                        .on_end = on_engine_end,
                                        .context = life};
    life->inherited = (struct inherited){.socket_fd = -1, .told_fd = -1};
    life->server.inherited = &life->inherited;
    life->upgrade = (struct upgrade){
        .loop = &life->loop, .on_taken_over = on_taken_over, .on_failed = on_upgrade_failed, .context = life};
    life->upgrade.told_fd = life->handover.fd = life->takeover.fd = -1;
    life->handover.server = &life->server;
    life->handover.auth = &life->listener.auth;
    init_handles(life);
    loop_slice_shorten();
    struct error err = {0};
    if (start(life, &err)) {
        log_error("%s", err.text);
        life->exit_code = EXIT_FAILURE;
        end(life);
    }
    uv_run(&life->loop, UV_RUN_DEFAULT);
    int exit_code = life->exit_code;
    bool engine_loads = life->server.link && link_state(life->server.link) == LINK_LOADING;
    if (life->loading_text || engine_loads || exit_code == EXIT_DEVICE)
        leave(life); /* no thread to wait for */
    release(life);
    log_info("ended with code %d", exit_code);
    return exit_code;
}
