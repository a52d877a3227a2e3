#include "server/upgrade.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "server/handover.h"
#include "server/inherited.h"
#include "server/loop_watch.h"

/* ---- while it loads ---- */

static void on_handle_closed(uv_handle_t *handle)
{
    ((struct upgrade *)handle->data)->num_open--;
}

static void on_told_closed(uv_handle_t *handle)
{
    struct upgrade *u = handle->data;
    if (u->told_fd >= 0) close(u->told_fd);
    u->told_fd = -1;
    u->num_open--;
}

static void stop_listening(struct upgrade *u)
{
    if (!uv_is_closing((uv_handle_t *)&u->told)) uv_close((uv_handle_t *)&u->told, on_told_closed);
}

static void close_handles(struct upgrade *u)
{
    if (u->num_open == 0) return;
    if (!uv_is_closing((uv_handle_t *)&u->process)) uv_close((uv_handle_t *)&u->process, on_handle_closed);
    stop_listening(u);
}

static void on_process_exit(uv_process_t *process, int64_t exit_code, int signal)
{
    struct upgrade *u = process->data;
    char why[96];
    loop_watch_enter("the end of a new process");
    bool failed = u->is_under_way;
    u->is_under_way = false;
    close_handles(u);
    if (signal)
        snprintf(why, sizeof why, "signal %d (%s)", signal, strsignal(signal));
    else
        snprintf(why, sizeof why, "exit code %d", (int)exit_code);
    if (failed) u->on_failed(u->context, why);
}

static bool has_identity(const struct handover_message *m)
{
    static const uint8_t none[IDENTITY_BYTES];
    return memcmp(m->identity, none, sizeof none) != 0;
}

static void on_told(uv_poll_t *poll, int uv_status, int events)
{
    struct upgrade *u = poll->data;
    struct handover_message m;
    int fds[HANDOVER_FDS];
    (void)events;
    loop_watch_enter("a new process that serves");
    int got = uv_status ? -1 : handover_receive(u->told_fd, &m, fds);
    if (got == 0) return;
    int fd = fcntl(u->told_fd, F_DUPFD_CLOEXEC, 0);
    stop_listening(u);
    if (got < 0 || !u->is_under_way) { /* its end is told by its exit */
        if (fd >= 0) close(fd);
        return;
    }
    u->is_under_way = false;
    u->is_taken_over = true;
    u->on_taken_over(u->context, fd, has_identity(&m) ? m.identity : NULL);
    close_handles(u);
}

/* ---- its start ---- */

/* Where this program was started from, whatever has been installed there since. */
static int find_program(char path[4096], struct error *err)
{
    static const char deleted[] = " (deleted)";
    ssize_t n = readlink("/proc/self/exe", path, 4095);
    if (n <= 0) return error_set(err, STATUS_IO, "/proc/self/exe cannot be read");
    path[n] = '\0';
    size_t rest = (size_t)n - min_of((size_t)n, sizeof deleted - 1);
    if (!strcmp(path + rest, deleted)) path[rest] = '\0';
    return STATUS_OK;
}

static int append_all(struct text_list *to, char *const *items, int num_items)
{
    int status = 0;
    for (int i = 0; i < num_items && !status; i++) status = text_list_append(to, items[i], strlen(items[i]));
    return status;
}

static int make_arguments(struct text_list *out, const char *program, const struct text_list *arguments)
{
    int status = text_list_append(out, program, strlen(program));
    if (!status) status = text_list_append(out, "serve", strlen("serve"));
    if (!status) status = append_all(out, arguments->items, arguments->num_items);
    return status ? status : text_list_append(out, NULL, 0);
}

static int make_environment(struct text_list *out, bool belongs_to_systemd, const struct text_list *more)
{
    char of[64];
    int count = 0;
    while (environ[count]) count++;
    snprintf(of, sizeof of, UPGRADE_VARIABLE "=%d%s", (int)getpid(), belongs_to_systemd ? "+" : "");
    int status = append_all(out, environ, count);
    if (!status) status = append_all(out, more->items, more->num_items);
    if (!status) status = text_list_append(out, of, strlen(of));
    return status ? status : text_list_append(out, NULL, 0);
}

static int spawn(struct upgrade *u, int listen_fd, char **args, char **environment, struct error *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair))
        return error_set(err, STATUS_IO, "no socket: %s", strerror(errno));
    if (uv_poll_init(u->loop, &u->told, pair[0])) {
        close(pair[0]);
        close(pair[1]);
        return error_set(err, STATUS_IO, "no socket can be watched");
    }
    uv_stdio_container_t files[] = {
        [STDIN_FILENO] = {.flags = UV_INHERIT_FD, .data.fd = STDIN_FILENO},
        [STDOUT_FILENO] = {.flags = UV_INHERIT_FD, .data.fd = STDOUT_FILENO},
        [STDERR_FILENO] = {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
        [INHERITED_SOCKET_FD] = {.flags = UV_INHERIT_FD, .data.fd = listen_fd},
        [INHERITED_TOLD_FD] = {.flags = UV_INHERIT_FD, .data.fd = pair[1]},
    };
    const uv_process_options_t options = {.file = args[0],
                                          .args = args,
                                          .env = environment,
                                          .exit_cb = on_process_exit,
                                          .stdio = files,
                                          .stdio_count = array_length(files)};
    u->told_fd = pair[0];
    u->process.data = u->told.data = u;
    u->num_open = 2;
    int uv_status = uv_spawn(u->loop, &u->process, &options);
    u->process.data = u;
    close(pair[1]);
    if (uv_status) {
        close_handles(u);
        return error_set(err, STATUS_IO, "%s cannot be started: %s", args[0], uv_strerror(uv_status));
    }
    uv_unref((uv_handle_t *)&u->process);
    uv_unref((uv_handle_t *)&u->told);
    u->is_under_way = true;
    uv_poll_start(&u->told, UV_READABLE | UV_DISCONNECT, on_told);
    return STATUS_OK;
}

int upgrade_start(struct upgrade *u, int listen_fd, bool belongs_to_systemd,
                  const struct text_list *arguments, const struct text_list *more, struct error *err)
{
    char program[4096];
    struct text_list args = {0}, environment = {0};
    if (getpid() == 1)
        return error_set(err, STATUS_INVALID, "the first process of a container ends it with its own end");
    if (u->num_open > 0) return error_set(err, STATUS_INVALID, "another process is starting already");
    int status = find_program(program, err);
    if (status) return status;
    if (make_arguments(&args, program, arguments) || make_environment(&environment, belongs_to_systemd, more))
        status = error_set(err, STATUS_NO_MEMORY, "out of memory");
    if (!status) status = spawn(u, listen_fd, args.items, environment.items, err);
    text_list_deinit(&args);
    text_list_deinit(&environment);
    return status;
}

void upgrade_call_off(struct upgrade *u)
{
    if (u->is_under_way) uv_process_kill(&u->process, SIGTERM);
    u->is_under_way = false;
}

void upgrade_close(struct upgrade *u)
{
    u->is_under_way = false;
    close_handles(u);
}
