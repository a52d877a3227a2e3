/* engine_host.c - a thread, or a process that is started with two descriptors, the link's region and a stream
 * down which it wakes the front, and with the configuration as this process has read it, so that neither an
 * edited file nor a changed environment makes the next engine another one. The program is /proc/self/exe: the
 * one that runs, whatever has been installed since. */
#include "server/engine_host.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "server/engine_process.h"
#include "server/loop_watch.h"

enum { JOIN_MS = 2000 };

/* ---- waking ---- */

static void wake(void *context)
{
    uv_async_send(&((struct engine_host *)context)->wake);
}

static void on_async(uv_async_t *async)
{
    struct engine_host *h = async->data;
    loop_watch_enter("tokens of the engine");
    h->on_wake(h->context);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    static char bytes[4096]; /* nobody reads them: that some came is all they say */
    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(bytes, sizeof bytes);
}

static void on_bytes(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct engine_host *h = stream->data;
    (void)buf;
    loop_watch_enter("tokens of the engine");
    if (n < 0)
        uv_read_stop(stream);
    else if (n > 0)
        h->on_wake(h->context);
}

/* ---- descriptors ---- */

static void give_up_spares(struct engine_host *h)
{
    for (int i = 0; i < ENGINE_SPARES; i++) {
        if (h->spares[i] >= 0) close(h->spares[i]);
        h->spares[i] = -1;
    }
}

/* As many as there are: clients may hold the others. */
static void take_spares(struct engine_host *h)
{
    for (int i = 0; i < ENGINE_SPARES; i++)
        if (h->spares[i] < 0) h->spares[i] = fcntl(link_fd(h->link), F_DUPFD_CLOEXEC, 0);
}

/* ---- a process ---- */

static void tell_end(uv_handle_t *handle)
{
    struct engine_host *h = handle->data;
    if (--h->num_open > 0) return;
    h->runs = false;
    h->on_end(h->context, &h->end);
}

static void on_process_exit(uv_process_t *process, int64_t exit_code, int signal)
{
    struct engine_host *h = process->data;
    loop_watch_enter("the end of the engine");
    h->end = (struct engine_end){.exit_code = (int)exit_code, .signal = signal};
    if (signal)
        snprintf(h->end.text, sizeof h->end.text, "signal %d (%s)", signal, strsignal(signal));
    else
        snprintf(h->end.text, sizeof h->end.text, "exit code %d", (int)exit_code);
    uv_close((uv_handle_t *)&h->process, tell_end);
    uv_close((uv_handle_t *)&h->wake_pipe, tell_end);
}

static int spawn(struct engine_host *h, char **args, struct error *err)
{
    uv_stdio_container_t files[] = {
        [STDIN_FILENO] = {.flags = UV_IGNORE},
        [STDOUT_FILENO] = {.flags = UV_INHERIT_FD, .data.fd = STDOUT_FILENO},
        [STDERR_FILENO] = {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
        [ENGINE_LINK_FD] = {.flags = UV_INHERIT_FD, .data.fd = link_fd(h->link)},
        [ENGINE_WAKE_FD] = {.flags = UV_CREATE_PIPE | UV_READABLE_PIPE | UV_WRITABLE_PIPE,
                            .data.stream = (uv_stream_t *)&h->wake_pipe},
    };
    const uv_process_options_t options = {.file = "/proc/self/exe",
                                          .args = args,
                                          .exit_cb = on_process_exit,
                                          .stdio = files,
                                          .stdio_count = array_length(files)};
    uv_pipe_init(h->loop, &h->wake_pipe, 0);
    int uv_status = uv_spawn(h->loop, &h->process, &options);
    h->process.data = h->wake_pipe.data = h;
    if (uv_status) {
        const bool has_proc = access("/proc/self", F_OK) == 0;
        uv_close((uv_handle_t *)&h->process, NULL);
        uv_close((uv_handle_t *)&h->wake_pipe, NULL);
        return error_set(err, STATUS_IO, "cannot start the engine's process: %s%s", uv_strerror(uv_status),
                         has_proc ? "" : "; /proc is not mounted here (--engine thread does without)");
    }
    h->num_open = 2;
    uv_read_start((uv_stream_t *)&h->wake_pipe, on_alloc, on_bytes);
    return 0;
}

static int start_process(struct engine_host *h, struct error *err)
{
    struct text_list args = {0};
    int status = engine_process_args(h->config, &args, err);
    give_up_spares(h);
    if (!status) status = spawn(h, args.items, err);
    take_spares(h);
    text_list_deinit(&args);
    return status;
}

/* ---- a thread ---- */

static void thread_main(void *context)
{
    struct engine_host *h = context;
    h->main(h->link, h->config);
}

static int start_thread(struct engine_host *h, struct error *err)
{
    link_set_front_wake(h->link, wake, h);
    int uv_status = uv_thread_create(&h->thread, thread_main, h);
    return uv_status ? error_set(err, STATUS_IO, "cannot start a thread: %s", uv_strerror(uv_status)) : 0;
}

/* ---- life ---- */

void engine_host_init(struct engine_host *h)
{
    uv_async_init(h->loop, &h->wake, on_async);
    h->wake.data = h;
    for (int i = 0; i < ENGINE_SPARES; i++) h->spares[i] = -1;
    h->inited = true;
}

int engine_host_start(struct engine_host *h, struct error *err)
{
    assert_always(h->inited && !h->runs);
    int status = h->main ? start_thread(h, err) : start_process(h, err);
    h->runs = status == 0;
    return status;
}

pid_t engine_host_pid(const struct engine_host *h)
{
    return h->runs && !h->main ? h->process.pid : 0;
}

void engine_host_kill(struct engine_host *h)
{
    if (h->runs && !h->main) uv_process_kill(&h->process, SIGKILL);
}

void engine_host_close(struct engine_host *h)
{
    if (!h->inited || uv_is_closing((uv_handle_t *)&h->wake)) return;
    uv_close((uv_handle_t *)&h->wake, NULL);
    give_up_spares(h);
    if (h->num_open == 0 || uv_is_closing((uv_handle_t *)&h->process)) return;
    uv_close((uv_handle_t *)&h->process, NULL);
    uv_close((uv_handle_t *)&h->wake_pipe, NULL);
}

/* There is no loop any more that would tell of its end. */
static void join_process(struct engine_host *h)
{
    uint64_t begin_ns = clock_monotonic_ns();
    while (waitpid(h->process.pid, NULL, WNOHANG) == 0) {
        if (clock_monotonic_ns() - begin_ns > JOIN_MS * 1000000ull) kill(h->process.pid, SIGKILL);
        usleep(1000);
    }
}

void engine_host_join(struct engine_host *h)
{
    if (!h->runs) return;
    link_stop(h->link);
    if (h->main)
        uv_thread_join(&h->thread);
    else
        join_process(h);
    h->runs = false;
}
