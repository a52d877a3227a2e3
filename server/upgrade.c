#include "server/upgrade.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
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

static bool is_this_program(const char *path)
{
    struct stat there, own;
    return stat(path, &there) == 0 && stat("/proc/self/exe", &own) == 0 && there.st_dev == own.st_dev &&
           there.st_ino == own.st_ino;
}

/* A name without a slash was found in one of PATH's folders. */
static bool find_in_path(const char *name, char path[UPGRADE_PATH_BYTES])
{
    for (const char *folder = getenv("PATH"), *end; folder; folder = *end ? end + 1 : NULL) {
        end = strchrnul(folder, ':');
        int n = snprintf(path, UPGRADE_PATH_BYTES, "%.*s/%s", (int)(end - folder), folder, name);
        if (n < UPGRADE_PATH_BYTES && *folder == '/' && is_this_program(path)) return true;
    }
    return false;
}

static bool find_by_name(const char *name, char path[UPGRADE_PATH_BYTES])
{
    char folder[UPGRADE_PATH_BYTES] = "";
    if (!strchr(name, '/')) return find_in_path(name, path);
    if (*name != '/' && !getcwd(folder, sizeof folder)) return false;
    int n = snprintf(path, UPGRADE_PATH_BYTES, "%s%s%s", folder, *folder ? "/" : "", name);
    return n < UPGRADE_PATH_BYTES && is_this_program(path);
}

void upgrade_note_program(struct upgrade *u)
{
    static const char deleted[] = " (deleted)";
    char *path = u->program;
    if (find_by_name(program_invocation_name, path)) return;
    ssize_t n = readlink("/proc/self/exe", path, UPGRADE_PATH_BYTES - 1);
    path[max_of(n, (ssize_t)0)] = '\0';
    size_t length = strlen(path), rest = length - min_of(length, sizeof deleted - 1);
    if (!strcmp(path + rest, deleted)) path[rest] = '\0';
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
    struct text_list args = {0}, environment = {0};
    if (getpid() == 1)
        return error_set(err, STATUS_INVALID, "the first process of a container ends it with its own end");
    if (u->num_open > 0) return error_set(err, STATUS_INVALID, "another process is starting already");
    if (!u->program[0]) return error_set(err, STATUS_IO, "/proc/self/exe cannot be read");
    int status = 0;
    if (make_arguments(&args, u->program, arguments) ||
        make_environment(&environment, belongs_to_systemd, more))
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
