/* upgrade.c - another process in this one's place. */
#include "server/life/life.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "server/api/api.h"
#include "server/api/loras.h"
#include "server/loop_watch.h"

static void on_tick(uv_timer_t *timer)
{
    loop_watch_enter("connections that are left");
    struct life *life = timer->data;
    listener_drain(&life->listener);
    if (life->listener.num_open == 0 && api_num_in_flight(&life->server) == 0 &&
        !handover_has_more(&life->handover))
        life_end(life);
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
    life_make_identity(life);
    handover_begin(&life->handover, fd, identity && !memcmp(identity, life->own_identity, IDENTITY_BYTES));
}

static void on_upgrade_failed(void *context, const char *why)
{
    ((struct life *)context)->server.is_replaced = false;
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
    if (!status) status = loras_append_environment(life->server.loras, &more);
    if (status) error_set(err, status, "out of memory");
    if (!status)
        status = upgrade_start(&life->upgrade, fd, life->inherited.belongs_to_systemd,
                               &life->server.config->arguments, &more, err);
    text_list_deinit(&more);
    return status;
}

void life_begin_upgrade(struct life *life)
{
    struct error err = {0};
    if (start_upgrade(life, &err))
        log_error("nothing is replaced: %s", err.text);
    else
        log_info("process %d starts to take over", life->upgrade.process.pid);
    life->server.is_replaced |= life->upgrade.is_under_way;
}

void life_upgrade_init(struct life *life)
{
    life->inherited = (struct inherited){.socket_fd = -1, .told_fd = -1};
    life->server.inherited = &life->inherited;
    life->upgrade = (struct upgrade){
        .loop = &life->loop, .on_taken_over = on_taken_over, .on_failed = on_upgrade_failed, .context = life};
    upgrade_note_program(&life->upgrade);
    life->upgrade.told_fd = life->handover.fd = life->takeover.fd = -1;
    life->handover.server = &life->server;
    life->handover.auth = &life->listener.auth;
}
