#include "cli/chat_server.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/http_client.h"

enum { POLL_NS = 50000000 };

/* A process group of its own: Ctrl-C is for the answer, not for the server. */
static void run_child(const struct chat_server *s, int num_args, char **args, pid_t parent)
{
    char socket_path[96];
    snprintf(socket_path, sizeof socket_path, "--uds=%s", s->url + strlen("unix:"));
    char **all = calloc((size_t)num_args + 5, sizeof *all);
    if (!all) _exit(EXIT_FAILURE);
    all[0] = "flashd";
    all[1] = "serve";
    all[2] = "--log-level=warning";
    memcpy(all + 3, args, (size_t)num_args * sizeof *all);
    all[num_args + 3] = socket_path;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(EXIT_FAILURE);
    unsetenv("FLASHD_API_KEY"); /* nobody else can reach it */
    unsetenv("FLASHD_API_KEY_FILE");
    unsetenv("FLASHD_JOURNAL"); /* that of the server that everybody reaches */
    execv("/proc/self/exe", all);
    _exit(EXIT_FAILURE);
}

static bool ignore_bytes(void *context, const char *bytes, size_t n)
{
    (void)context;
    (void)bytes;
    (void)n;
    return true;
}

static bool is_ready(const struct chat_server *s)
{
    struct http_client client;
    struct error ignored;
    int http_status = 0;
    return !http_client_init(&client, s->url, NULL, &ignored) &&
           !http_client_ask(&client, "/health", NULL, ignore_bytes, NULL, &http_status, &ignored) &&
           http_status == 200;
}

/* The signals of ending are blocked. What went wrong stands in the child's log. */
static int wait_until_ready(struct chat_server *s, const sigset_t *ending, struct error *err)
{
    const struct timespec pause = {.tv_nsec = POLL_NS};
    uint64_t begin_ns = clock_monotonic_ns();
    bool tells = isatty(STDERR_FILENO);
    while (!is_ready(s)) {
        if (waitpid(s->pid, NULL, WNOHANG) == s->pid) {
            s->pid = 0;
            return error_set(err, STATUS_IO, "the server did not start");
        }
        if (tells) fprintf(stderr, "\rloading, %.1f s", (double)(clock_monotonic_ns() - begin_ns) / 1e9);
        if (sigtimedwait(ending, NULL, &pause) > 0) return error_set(err, STATUS_IO, "interrupted");
    }
    if (tells) fprintf(stderr, "\r\033[K");
    return STATUS_OK;
}

int chat_server_start(struct chat_server *s, int num_args, char **args, struct error *err)
{
    const char *temporary = getenv("TMPDIR");
    *s = (struct chat_server){.pid = 0};
    if (!temporary || strlen(temporary) > 32) temporary = "/tmp";
    snprintf(s->folder, sizeof s->folder, "%s/flashd-chat-XXXXXX", temporary);
    if (!mkdtemp(s->folder)) {
        s->folder[0] = '\0';
        return error_set(err, STATUS_IO, "%s: %s", temporary, strerror(errno));
    }
    snprintf(s->url, sizeof s->url, "unix:%s/socket", s->folder);
    sigset_t ending;
    sigemptyset(&ending);
    sigaddset(&ending, SIGINT);
    sigaddset(&ending, SIGTERM);
    sigprocmask(SIG_BLOCK, &ending, NULL); /* the folder is to be removed */
    pid_t parent = getpid();
    s->pid = fork();
    if (s->pid == 0) run_child(s, num_args, args, parent);
    if (s->pid < 0) {
        s->pid = 0;
        return error_set(err, STATUS_IO, "cannot start a process: %s", strerror(errno));
    }
    int status = wait_until_ready(s, &ending, err);
    sigprocmask(SIG_UNBLOCK, &ending, NULL);
    return status;
}

void chat_server_stop(struct chat_server *s)
{
    if (s->pid > 0) {
        kill(s->pid, SIGTERM);
        while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    if (s->url[0]) unlink(s->url + strlen("unix:"));
    if (s->folder[0]) rmdir(s->folder);
    *s = (struct chat_server){.pid = 0};
}
