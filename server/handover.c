#include "server/handover.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "server/api/moved_responses.h"
#include "server/api/moving.h"
#include "server/loop_watch.h"

enum { ANSWER_MS = 5000, LOOK_MS = 100 };

/* ---- messages ---- */

union fds_message {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(HANDOVER_FDS * sizeof(int))];
};

bool handover_send(int fd, enum handover_kind kind, const uint8_t *identity, const int *fds, int num_fds)
{
    const size_t fds_bytes = (size_t)num_fds * sizeof(int);
    struct handover_message m = {.kind = (uint8_t)kind};
    union fds_message control = {0};
    if (identity) memcpy(m.identity, identity, sizeof m.identity);
    struct iovec part = {&m, identity ? sizeof m : sizeof m.kind};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (num_fds > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(fds_bytes);
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(fds_bytes);
        memcpy(CMSG_DATA(&control.head), fds, fds_bytes);
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)part.iov_len;
}

int handover_receive(int fd, struct handover_message *out, int fds[HANDOVER_FDS])
{
    union fds_message control = {0};
    struct iovec part = {out, sizeof *out};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    *out = (struct handover_message){0};
    for (int i = 0; i < HANDOVER_FDS; i++) fds[i] = -1;
    ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (n <= 0) return -1;
    const struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head && head->cmsg_type == SCM_RIGHTS)
        memcpy(fds, CMSG_DATA(head), min_of(head->cmsg_len - CMSG_LEN(0), HANDOVER_FDS * sizeof(int)));
    return 1;
}

/* ---- the old process ---- */

static void look(struct handover *h);

static void on_closed(uv_handle_t *handle)
{
    close((int)(intptr_t)handle->data);
}

void handover_close(struct handover *h)
{
    if (h->fd < 0) return;
    h->poll.data = (void *)(intptr_t)h->fd;
    h->fd = -1;
    uv_close((uv_handle_t *)&h->poll, on_closed);
    uv_close((uv_handle_t *)&h->timer, NULL);
    moving_take_back(h->server, false);
}

static void tell(struct handover *h)
{
    if (h->has_told || !h->same) return;
    h->has_told = true;
    log_info("%d streams go on in the new process; %d requests end here, of which it refused %d",
             h->num_moved, moving_num_staying(h->server), h->num_refused);
}

/* What is left ends here. */
static void give_up(struct handover *h, const char *why)
{
    log_warning("no more streams go on in the new process: %s", why);
    handover_close(h);
}

static void on_timer(uv_timer_t *timer)
{
    struct handover *h = timer->data;
    loop_watch_enter("what may move");
    if (h->awaits_answer)
        give_up(h, "it did not answer in time");
    else
        look(h);
}

/* fds: the last is closed. */
static void send_fds(struct handover *h, enum handover_kind kind, const int *fds, int num_fds)
{
    h->awaits_answer = handover_send(h->fd, kind, NULL, fds, num_fds);
    close(fds[num_fds - 1]);
}

/* Later ones are those that were not ready, and that came on connections that are kept. */
static void look(struct handover *h)
{
    struct moving_offer offer;
    const int response_fd = moved_responses_next(h->server, h->auth);
    const bool offers = response_fd < 0 && h->same && moving_offer(h->server, h->auth, &offer);
    h->awaits_answer = false;
    if (response_fd >= 0)
        send_fds(h, HANDOVER_RESPONSE, &response_fd, 1);
    else if (offers)
        send_fds(h, HANDOVER_OFFER, (const int[]){offer.connection_fd, offer.state_fd}, HANDOVER_FDS);
    else
        tell(h);
    if ((response_fd >= 0 || offers) && !h->awaits_answer) {
        give_up(h, "it is gone");
        return;
    }
    uv_timer_start(&h->timer, on_timer, h->awaits_answer ? ANSWER_MS : LOOK_MS, 0);
}

/* Of two that know that the stream is ready there, this one says whose it is. */
static void on_ready(struct handover *h)
{
    bool is_offered = moving_is_offered(h->server);
    if (!handover_send(h->fd, is_offered ? HANDOVER_YOURS : HANDOVER_WITHDRAWN, NULL, NULL, 0)) {
        give_up(h, "it is gone");
        return;
    }
    if (is_offered) moving_commit(h->server);
    h->num_moved += is_offered;
    look(h);
}

static void on_message(uv_poll_t *poll, int uv_status, int events)
{
    struct handover *h = poll->data;
    struct handover_message m;
    int fds[HANDOVER_FDS];
    (void)events;
    loop_watch_enter("a process that takes over");
    int got = uv_status ? -1 : handover_receive(h->fd, &m, fds);
    if (got == 0) return;
    if (got > 0 && h->awaits_answer && m.kind == HANDOVER_READY) {
        on_ready(h);
    } else if (got > 0 && h->awaits_answer && m.kind == HANDOVER_NO) {
        h->num_refused++;
        moving_take_back(h->server, true);
        look(h);
    } else if (got > 0 && h->awaits_answer && m.kind == HANDOVER_KEPT) {
        look(h);
    } else {
        give_up(h, "it is gone");
    }
}

void handover_begin(struct handover *h, int fd, bool same)
{
    if (!same)
        log_info("streams end here: the new process answers with another program, model or configuration");
    if (uv_poll_init(h->server->loop, &h->poll, fd)) {
        close(fd);
        return;
    }
    h->fd = fd;
    h->same = same;
    moved_responses_begin(h->server);
    uv_timer_init(h->server->loop, &h->timer);
    h->poll.data = h->timer.data = h;
    uv_unref((uv_handle_t *)&h->timer);
    uv_poll_start(&h->poll, UV_READABLE | UV_DISCONNECT, on_message);
    uv_unref((uv_handle_t *)&h->poll);
    look(h);
}

bool handover_has_more(const struct handover *h)
{
    return h->fd >= 0 && (h->awaits_answer || moved_responses_has_more(h->server));
}
