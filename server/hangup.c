#include "server/hangup.h"
#include "server/loop_watch.h"
#include "server/watch_room.h"

#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

struct hangup {
    uv_poll_t poll;
    int fd;
    void (*on_hangup)(void *context);
    void (*on_end)(void *context);
    void *context;
};

static void on_closed(uv_handle_t *handle)
{
    struct hangup *h = handle->data;
    close(h->fd);
    free(h);
}

static int what_happened(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLRDHUP | POLLPRI};
    return poll(&p, 1, 0) == 1 ? p.revents : 0;
}

static void start(struct hangup *h);

/* Urgent data, which no HTTP client sends, is an end, too: it would be reported again and again. */
static void on_event(uv_poll_t *poll, int uv_status, int events)
{
    loop_watch_enter("a client that hung up");
    (void)uv_status, (void)events;
    struct hangup *h = poll->data;
    void (*on_end)(void *context) = h->on_end;
    int what = what_happened(h->fd);
    if (what & ~POLLRDHUP) {
        uv_poll_stop(poll);
        h->on_hangup(h->context);
    } else if (what && on_end) {
        h->on_end = NULL;
        start(h);
        on_end(h->context);
    }
}

/* Some event must be asked for; errors and hang-ups come with any. Without room nothing is noticed until the next write. */
static void start(struct hangup *h)
{
    uv_poll_start(&h->poll, h->on_end ? UV_PRIORITIZED | UV_DISCONNECT : UV_PRIORITIZED, on_event);
    if (!watch_room_take(h->poll.loop, h->fd)) uv_poll_stop(&h->poll);
}

struct hangup *hangup_watch(uv_stream_t *stream, void (*on_hangup)(void *context),
                            void (*on_end)(void *context), void *context)
{
    uv_os_fd_t fd;
    if (uv_fileno((const uv_handle_t *)stream, &fd)) return NULL;
    struct hangup *h = calloc(1, sizeof *h);
    if (!h) return NULL;
    *h = (struct hangup){.on_hangup = on_hangup, .on_end = on_end, .context = context};
    h->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (h->fd < 0 || uv_poll_init(stream->loop, &h->poll, h->fd)) {
        if (h->fd >= 0) close(h->fd);
        free(h);
        return NULL;
    }
    h->poll.data = h;
    start(h);
    return h;
}

void hangup_stop(struct hangup *h)
{
    if (h) uv_close((uv_handle_t *)&h->poll, on_closed);
}
