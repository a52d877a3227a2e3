#include "base/log_writer.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/byte_queue.h"
#include "base/log_line.h"

enum {
    HALF_BYTES = 2 << 20, /* some 5,000 lines of requests: more than can be in flight and end at once */
    DIRECT_MS = 1000,
    STOP_MS = 2000,
    ABORT_MS = 500,
};

static char halves[2][HALF_BYTES];
static struct byte_queue queue = BYTE_QUEUE_INIT(halves[0], halves[1], HALF_BYTES);
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
static bool running;
static pthread_t thread;
static atomic_bool torn; /* the last line was cut: the disk got full in its middle */
static _Atomic uint64_t own_count, *num_dropped = &own_count;

static void count_dropped(void)
{
    pthread_mutex_lock(&counting);
    atomic_fetch_add(num_dropped, 1);
    pthread_mutex_unlock(&counting);
}

uint64_t log_writer_num_dropped(void)
{
    return atomic_load(&own_count);
}

void log_writer_count_at(_Atomic uint64_t *counter)
{
    pthread_mutex_lock(&counting);
    num_dropped = counter ? counter : &own_count;
    if (counter) atomic_fetch_add(counter, atomic_exchange(&own_count, 0));
    pthread_mutex_unlock(&counting);
}

/* In one piece unless the system cuts it; waits timeout_ms for a reader that stalls, -1: for ever. A pipe
 * that has room by poll takes PIPE_BUF bytes, so write does not wait then. */
static bool write_bytes(const char *bytes, size_t n, int timeout_ms)
{
    while (n > 0) {
        struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
        int ready = poll(&out, 1, timeout_ms);
        if (ready == 0) return false;
        if (ready < 0 && errno == EINTR) continue;
        ssize_t written = write(STDERR_FILENO, bytes, n);
        if (written < 0 && errno != EINTR && errno != EAGAIN) return false;
        if (written <= 0) continue;
        bytes += written;
        n -= (size_t)written;
        atomic_store(&torn, bytes[-1] != '\n');
    }
    return true;
}

static bool write_line(const char *line, size_t n, int timeout_ms)
{
    if (atomic_load(&torn) && !write_bytes("\n", 1, timeout_ms)) return false;
    return write_bytes(line, n, timeout_ms);
}

/* ---- the thread ---- */

/* Returns how many lines have still to be told of. */
static uint64_t tell_missing(uint64_t num_missing)
{
    struct log_line line;
    char text[128];
    int n = snprintf(text, sizeof text,
                     "%llu lines were dropped: whoever reads the log was too slow, or the disk was full",
                     (unsigned long long)num_missing);
    log_line_begin(&line, LOG_WARNING, text, (size_t)n);
    log_line_end(&line);
    return write_line(line.bytes, line.num_bytes, -1) ? 0 : num_missing;
}

/* Each line on its own; untold: lines that were lost before and that the log does not mention yet. */
static uint64_t write_half(const struct byte_half *half, uint64_t untold)
{
    for (size_t at = 0, n; at < half->num_bytes; at += n) {
        const char *line = half->bytes + at;
        n = (size_t)((const char *)memchr(line, '\n', half->num_bytes - at) - line) + 1;
        if (!write_line(line, n, -1)) {
            count_dropped();
            untold++;
        } else if (untold > 0) {
            untold = tell_missing(untold);
        }
    }
    return untold;
}

static void *write_lines(void *context)
{
    uint64_t untold = 0;
    for (const struct byte_half *half; (half = byte_queue_take(&queue));) {
        untold = write_half(half, untold) + half->num_missing;
        if (half->num_missing > 0) untold = tell_missing(untold);
    }
    return context;
}

/* ---- everybody ---- */

void log_writer_put(const char *line, size_t n)
{
    enum byte_queue_result result = byte_queue_put(&queue, line, n);
    bool kept = result == BYTE_QUEUE_CLOSED ? write_line(line, n, DIRECT_MS) : result == BYTE_QUEUE_KEPT;
    if (!kept) count_dropped();
}

/* ---- life ---- */

/* The lines before an abort are the ones that say why. The writing thread goes on meanwhile. */
static void on_abort(int number)
{
    byte_queue_wait(&queue, ABORT_MS);
    signal(number, SIG_DFL); /* abort raises it again */
}

int log_writer_start(struct error *err)
{
    sigset_t all, before;
    byte_queue_open(&queue); /* or the thread would end at once */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int problem = pthread_create(&thread, NULL, write_lines, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (problem) {
        byte_queue_close(&queue);
        return error_set(err, STATUS_IO, "cannot start the log's thread: %s", strerror(problem));
    }
    pthread_setname_np(thread, "flashd-log");
    signal(SIGABRT, on_abort);
    running = true;
    return STATUS_OK;
}

void log_writer_stop(void)
{
    byte_queue_close(&queue);
    if (running && byte_queue_wait(&queue, STOP_MS)) pthread_join(thread, NULL);
    running = false;
}
