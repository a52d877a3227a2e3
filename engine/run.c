#include "engine/run.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/log_writer.h"
#include "engine/last_words.h"
#include "engine/load.h"

enum { EXIT_DEVICE = 70 };

/* Signals are the front's; what a broken instruction raises stays with the thread that ran it. */
static void block_signals(void)
{
    sigset_t all;
    sigfillset(&all);
    const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    for (size_t i = 0; i < array_length(own); i++) sigdelset(&all, own[i]);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
}

/* What the log of an own process drops is counted where the front sees it, once the counters have their place. */
static int serve(struct link *link, struct engine *engine, bool is_process)
{
    if (is_process) log_writer_count_at(&link_counters(link)->num_log_lines_dropped);
    link_set_state(link, LINK_READY, NULL);
    pthread_setname_np(pthread_self(), "engine"); /* not the threads that it has started */
    engine_serve(engine);
    log_writer_count_at(NULL);
    return engine_failed(engine) ? EXIT_DEVICE : EXIT_SUCCESS;
}

static int run(struct link *link, const struct config *config, bool leaves_requests)
{
    struct load load = {.config = config, .link = link, .leaves_requests = leaves_requests};
    struct error err = {0};
    int exit_code = EXIT_FAILURE;
    block_signals();
    if (load_run(&load, &err))
        link_set_state(link, LINK_REFUSED, err.text);
    else
        exit_code = serve(link, load.engine, leaves_requests);
    /* A device that failed may never give its memory back. */
    if (exit_code != EXIT_DEVICE) load_release(&load);
    return exit_code;
}

void engine_run_thread(struct link *link, const struct config *config)
{
    run(link, config, false);
}

/* A full pipe says what another byte would say. */
static void wake_by_byte(void *context)
{
    const char byte = 0;
    ssize_t n = write(*(int *)context, &byte, 1);
    (void)n;
}

int engine_run_process(int link_fd, int wake_fd, pid_t front, const struct config *config)
{
    struct link *link;
    struct error err = {0};
    pthread_setname_np(pthread_self(), "flashd-engine");
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != front) return EXIT_FAILURE; /* it died in between */
    if (link_attach(link_fd, &link, &err)) {
        log_error("%s", err.text);
        return EXIT_FAILURE;
    }
    link_set_front_wake(link, wake_by_byte, &wake_fd);
    last_words_prepare(link);
    int exit_code = run(link, config, true);
    link_destroy(link);
    return exit_code;
}
