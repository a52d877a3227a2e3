/* Many spans at once, and the end right behind them: each is sent or told of, whatever the clock on the wall says. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/span_export.h"

enum { NUM_SPANS = 1000, HOUR_SECONDS = 3600, MOST_SECONDS = 60 };

static bool clock_goes_back; /* by an hour, between what is read of it and what is waited for */

int clock_gettime(clockid_t clock, struct timespec *out)
{
    int status = (int)syscall(SYS_clock_gettime, clock, out);
    if (clock == CLOCK_REALTIME && clock_goes_back) out->tv_sec += HOUR_SECONDS;
    return status;
}

/* A collector that counts spans until it is told to end by a connection that says nothing. */
struct collector {
    int socket;
    pthread_t thread;
    int num_spans;
};

static int count(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)); at++) n++;
    return n;
}

/* False: it says nothing. */
static bool take_request(struct collector *c, int fd)
{
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    size_t n = 0, capacity = 1 << 20, expected = SIZE_MAX;
    char *text = malloc(capacity + 1);
    assert_non_null(text);
    while (n < expected) {
        ssize_t more = recv(fd, text + n, capacity - n, 0);
        if (more <= 0) break;
        n += (size_t)more;
        text[n] = '\0';
        const char *head_end = strstr(text, "\r\n\r\n"), *length = strstr(text, "Content-Length: ");
        if (head_end && length) expected = (size_t)(head_end + 4 - text) + strtoul(length + 16, NULL, 10);
    }
    text[n] = '\0';
    c->num_spans += count(text, "\"a span\"");
    free(text);
    return n > 0 && send(fd, answer, sizeof answer - 1, MSG_NOSIGNAL) > 0;
}

static void *collect(void *context)
{
    struct collector *c = context;
    for (bool goes_on = true; goes_on;) {
        int fd = accept(c->socket, NULL, NULL);
        assert_true(fd >= 0);
        goes_on = take_request(c, fd);
        close(fd);
    }
    return NULL;
}

static struct sockaddr_in start_collector(struct collector *c)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    c->num_spans = 0;
    c->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(c->socket, (struct sockaddr *)&address, n), 0);
    assert_int_equal(listen(c->socket, 8), 0);
    assert_int_equal(getsockname(c->socket, (struct sockaddr *)&address, &n), 0);
    assert_int_equal(pthread_create(&c->thread, NULL, collect, c), 0);
    return address;
}

static void stop_collector(struct collector *c, const struct sockaddr_in *address)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)address, sizeof *address), 0);
    close(fd);
    pthread_join(c->thread, NULL);
    close(c->socket);
}

/* How many spans the log says were left when the export ended. */
static int destroy_and_read_log(struct span_export *e)
{
    char line[512] = "";
    int saved = dup(STDERR_FILENO), left = 0;
    FILE *file = tmpfile();
    assert_non_null(file);
    dup2(fileno(file), STDERR_FILENO);
    log_configure(LOG_WARNING, false);
    span_export_destroy(e);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    while (fgets(line, sizeof line, file)) {
        const char *told = strstr(line, " spans were not sent");
        while (told && told > line && told[-1] >= '0' && told[-1] <= '9') told--;
        if (told) left += atoi(told);
    }
    fclose(file);
    return left;
}

static struct span_export *export_spans(const struct sockaddr_in *collector, int num_spans)
{
    struct span_export *e;
    struct error err = {0};
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", ntohs(collector->sin_port));
    assert_int_equal(span_export_create(endpoint, &e, &err), 0);
    for (int i = 0; i < num_spans; i++) span_export_put(e, strdup("{\"name\":\"a span\"}"));
    return e;
}

static void every_span_is_sent_or_told(void **state)
{
    struct collector c;
    (void)state;
    struct sockaddr_in address = start_collector(&c);
    int left = destroy_and_read_log(export_spans(&address, NUM_SPANS));
    stop_collector(&c, &address);
    assert_int_equal(c.num_spans + left, NUM_SPANS);
}

static void a_collector_that_is_gone_costs_what_is_left(void **state)
{
    struct collector c;
    (void)state;
    struct sockaddr_in address = start_collector(&c);
    stop_collector(&c, &address);
    (void)destroy_and_read_log(export_spans(&address, NUM_SPANS)); /* comes back, and nothing leaks */
    assert_int_equal(c.num_spans, 0);
}

/* Fewer than are sent at once: they are waited for a second. */
static void a_clock_that_goes_back_holds_no_span_up(void **state)
{
    struct collector c;
    (void)state;
    struct sockaddr_in address = start_collector(&c);
    clock_goes_back = true;
    struct span_export *e = export_spans(&address, 3);
    uint64_t until_ns = clock_monotonic_ns() + (uint64_t)MOST_SECONDS * 1000000000u;
    while (span_export_num_sent(e) < 3 && clock_monotonic_ns() < until_ns) usleep(1000);
    clock_goes_back = false;
    assert_int_equal(span_export_num_sent(e), 3);
    assert_int_equal(destroy_and_read_log(e), 0);
    stop_collector(&c, &address);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_span_is_sent_or_told),
        cmocka_unit_test(a_collector_that_is_gone_costs_what_is_left),
        cmocka_unit_test(a_clock_that_goes_back_holds_no_span_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
