/* signals.c - what the operator tells the process. */
#include "server/life/life.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "config/reload.h"
#include "server/api/api.h"
#include "server/loop_watch.h"

/* A terminal's Ctrl-\, too: no request is left without its line. Who wants a core file sends SIGABRT. */
static const int ending_signals[LIFE_ENDING_SIGNALS] = {SIGTERM, SIGINT, SIGQUIT};

/* Some mean something; none of them ends a server. */
static const int other_signals[LIFE_OTHER_SIGNALS] = {SIGHUP, SIGUSR1,   SIGUSR2, SIGALRM,  SIGIO,
                                                      SIGPWR, SIGVTALRM, SIGPROF, SIGSTKFLT};

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

static void on_signal(uv_signal_t *signal, int number)
{
    loop_watch_enter("a signal");
    struct life *life = signal->data;
    if (life->ending) return; /* what is left takes no time */
    log_info("got SIG%s", sigabbrev_np(number));
    enum server_state state = life->server.state;
    upgrade_call_off(&life->upgrade);
    if (state == SERVER_READY && number == SIGTERM) {
        life_retire(life);
        return;
    }
    if (state == SERVER_LOADING || state == SERVER_READY || state == SERVER_LAME_DUCK) {
        life_begin_drain(life);
        return;
    }
    log_warning("told to end at once: %d requests are cut off", api_num_in_flight(&life->server));
    api_abort_all(&life->server, 503, "service_unavailable_error", "the server was told to end at once");
    listener_remove_path(&life->listener);
    life_leave(life);
}

static void on_other_signal(uv_signal_t *signal, int number)
{
    loop_watch_enter("a signal");
    struct life *life = signal->data;
    if (life->ending) return;
    bool means_something = number == SIGUSR1 || number == SIGUSR2 || number == SIGHUP;
    log_info("got SIG%s%s", sigabbrev_np(number), means_something ? "" : ": ignored");
    if (number == SIGUSR1) dump(life);
    if (number == SIGUSR2) life_begin_upgrade(life);
    if (number == SIGHUP) reload(life);
}

/* Whoever loses its parent in a container, as the command of a health check may, becomes the first process's child, and stays
 * in the table of processes until that has asked for it. The engine is libuv's to ask for. */
static void on_child_ended(uv_signal_t *signal, int number)
{
    loop_watch_enter("a child's end");
    (void)number;
    const struct life *life = signal->data;
    siginfo_t child = {0};
    while (waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) == 0 && child.si_pid != 0 &&
           child.si_pid != engine_host_pid(&life->engine)) {
        waitpid(child.si_pid, NULL, WNOHANG);
        child.si_pid = 0;
    }
}

static void listen_for(struct life *life, uv_signal_t *signal, int number, uv_signal_cb on_it)
{
    uv_signal_init(&life->loop, signal);
    uv_unref((uv_handle_t *)signal);
    signal->data = life;
    uv_signal_start(signal, on_it, number);
}

void life_signals_init(struct life *life)
{
    for (size_t i = 0; i < array_length(ending_signals); i++)
        listen_for(life, &life->endings[i], ending_signals[i], on_signal);
    for (size_t i = 0; i < array_length(other_signals); i++)
        listen_for(life, &life->others[i], other_signals[i], on_other_signal);
    if (getpid() == 1) listen_for(life, &life->child_ended, SIGCHLD, on_child_ended);
}

/* One that ends and comes while the rest is freed is not what the process dies of. */
void life_signals_close(struct life *life)
{
    for (size_t i = 0; i < array_length(ending_signals); i++) {
        uv_close((uv_handle_t *)&life->endings[i], NULL);
        signal(ending_signals[i], SIG_IGN);
    }
    for (size_t i = 0; i < array_length(other_signals); i++) uv_close((uv_handle_t *)&life->others[i], NULL);
    if (getpid() == 1) uv_close((uv_handle_t *)&life->child_ended, NULL);
}
