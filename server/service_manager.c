#include "server/service_manager.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "server/loop_watch.h"

/* '@' stands for the NUL of an abstract name. */
static bool read_address(struct service_manager *m, const char *name)
{
    if (!name || (name[0] != '/' && name[0] != '@') || strlen(name) >= sizeof m->address.sun_path)
        return false;
    m->address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(m->address.sun_path, name, strlen(name));
    m->address_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    if (name[0] == '@') m->address.sun_path[0] = '\0';
    return true;
}

static void on_watchdog(uv_timer_t *timer)
{
    loop_watch_enter("the service manager's watchdog");
    service_manager_tell(timer->data, "WATCHDOG=1");
}

/* 0: it does not watch this process. */
static uint64_t watchdog_ms(void)
{
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    if (!usec || (pid && atoi(pid) != (int)getpid())) return 0;
    return strtoull(usec, NULL, 10) / 1000;
}

/* A unit of systemd, a pod, a container's first process; but not what a person started by hand in a shell that
 * is one of these. */
static bool is_supervised(void)
{
    if (isatty(STDIN_FILENO)) return false;
    return getenv("NOTIFY_SOCKET") || getenv("INVOCATION_ID") || getenv("KUBERNETES_SERVICE_HOST") ||
           getpid() == 1;
}

void service_manager_init(struct service_manager *m, uv_loop_t *loop)
{
    m->fd = -1;
    m->supervises = is_supervised();
    uv_timer_init(loop, &m->watchdog);
    m->watchdog.data = m;
    if (read_address(m, getenv("NOTIFY_SOCKET")))
        m->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    m->period_ms = watchdog_ms() / 2; /* twice as often as is asked for */
    static const char *const names[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"};
    for (size_t i = 0; i < array_length(m->environment); i++) {
        const char *value = getenv(names[i]);
        m->environment[i][0] = '\0';
        if (m->fd >= 0 && value)
            snprintf(m->environment[i], sizeof m->environment[i], "%s=%s", names[i], value);
    }
    for (size_t i = 0; i < array_length(names); i++) unsetenv(names[i]);
}

int service_manager_append_environment(const struct service_manager *m, struct text_list *out)
{
    int status = 0;
    for (size_t i = 0; i < array_length(m->environment) && !status; i++)
        if (m->environment[i][0])
            status = text_list_append(out, m->environment[i], strlen(m->environment[i]));
    return status;
}

void service_manager_tell(const struct service_manager *m, const char *message)
{
    if (m->fd < 0) return;
    (void)sendto(m->fd, message, strlen(message), MSG_NOSIGNAL, (const struct sockaddr *)&m->address,
                 m->address_bytes);
}

void service_manager_tell_ready(struct service_manager *m)
{
    service_manager_tell(m, "READY=1\nSTATUS=serving");
    if (m->fd >= 0 && m->period_ms > 0) uv_timer_start(&m->watchdog, on_watchdog, m->period_ms, m->period_ms);
}

void service_manager_deinit(struct service_manager *m)
{
    if (m->fd >= 0) close(m->fd);
    m->fd = -1;
}
