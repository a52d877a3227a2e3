#include "server/takeover.h"

#include <unistd.h>

#include "base/log.h"
#include "base/metrics.h"
#include "server/api/moved_responses.h"
#include "server/api/moving.h"
#include "server/loop_watch.h"

static struct metric *taken, *refused;

static void on_closed(uv_handle_t *handle)
{
    close((int)(intptr_t)handle->data);
}

/* One that was not handed over is the old process's, or nobody's. */
void takeover_close(struct takeover *t)
{
    if (t->fd < 0) return;
    t->poll.data = (void *)(intptr_t)t->fd;
    t->fd = -1;
    t->listener->server->has_predecessor = false;
    uv_close((uv_handle_t *)&t->poll, on_closed);
    moving_drop(t->listener->server);
}

static void answer(struct takeover *t, enum handover_kind kind)
{
    if (!t->owes_answer) return;
    t->owes_answer = false;
    metric_add(refused, kind == HANDOVER_NO);
    if (!handover_send(t->fd, kind, NULL, NULL, 0)) takeover_close(t);
}

static void on_prepared(void *context, bool is_ready)
{
    answer(context, is_ready ? HANDOVER_READY : HANDOVER_NO);
}

static void close_all(const int fds[HANDOVER_FDS])
{
    for (int i = 0; i < HANDOVER_FDS; i++)
        if (fds[i] >= 0) close(fds[i]);
}

static void on_offer(struct takeover *t, const int fds[HANDOVER_FDS])
{
    struct server *server = t->listener->server;
    t->owes_answer = true;
    if (fds[0] >= 0 && fds[1] >= 0 && server->state == SERVER_READY) {
        moving_prepare(t->listener, &(struct moving_offer){fds[0], fds[1]}, on_prepared, t);
        return;
    }
    close_all(fds);
    answer(t, HANDOVER_NO);
}

static void on_response(struct takeover *t, const int fds[HANDOVER_FDS])
{
    if (fds[0] >= 0) moved_responses_keep(t->listener, fds[0]);
    close_all(fds);
    if (!handover_send(t->fd, HANDOVER_KEPT, NULL, NULL, 0)) takeover_close(t);
}

static void on_message(uv_poll_t *poll, int uv_status, int events)
{
    struct takeover *t = poll->data;
    struct handover_message m;
    int fds[HANDOVER_FDS];
    (void)events;
    loop_watch_enter("a stream of the process before");
    int got = uv_status ? -1 : handover_receive(t->fd, &m, fds);
    if (got == 0) return;
    if (got < 0)
        takeover_close(t);
    else if (m.kind == HANDOVER_OFFER)
        on_offer(t, fds);
    else if (m.kind == HANDOVER_YOURS)
        metric_add(taken, moving_finish(t->listener->server));
    else if (m.kind == HANDOVER_WITHDRAWN)
        moving_drop(t->listener->server);
    else if (m.kind == HANDOVER_RESPONSE)
        on_response(t, fds);
}

static void register_metrics(void)
{
    static const char name[] = "flashd_streams_taken_over_total",
                      help[] = "Streams of the process before that were offered to this one.";
    taken = metric_register(METRIC_COUNTER, name, help, "result=\"taken\"", NULL, 0);
    refused = metric_register(METRIC_COUNTER, name, help, "result=\"refused\"", NULL, 0);
}

void takeover_begin(struct takeover *t, struct listener *listener, int fd,
                    const uint8_t identity[IDENTITY_BYTES])
{
    *t = (struct takeover){.listener = listener, .fd = -1};
    register_metrics(); /* 0 where nobody is replaced: a series that comes with an upgrade has no increase */
    if (fd < 0) return;
    if (!handover_send(fd, HANDOVER_SERVES, identity, NULL, 0) ||
        uv_poll_init(listener->loop, &t->poll, fd)) {
        close(fd); /* one that is gone has let go */
        return;
    }
    t->fd = fd;
    listener->server->has_predecessor = true;
    t->poll.data = t;
    uv_poll_start(&t->poll, UV_READABLE | UV_DISCONNECT, on_message);
    uv_unref((uv_handle_t *)&t->poll);
}
