/* log_writer.c - two halves of memory that change places: everybody fills one while the thread writes the
 * other. A half that is taken begins at its front again, so a quiet server touches few pages of them. */
#include "base/log_writer.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log_line.h"

enum {
    HALF_BYTES = 2 << 20, /* some 5,000 lines of requests: more than can be in flight and end at once */
    DIRECT_MS = 1000,
    STOP_MS = 2000,
    ABORT_MS = 500,
};

struct half {
    char bytes[HALF_BYTES];
    size_t num_bytes;
    uint64_t num_missing; /* lines that found it full */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_empty = PTHREAD_COND_INITIALIZER;
static struct half halves[2], *filling = &halves[0];
static bool running, stopping;
static pthread_t thread;
static _Atomic bool idle = true; /* all that was queued is written or given up */
static _Atomic uint64_t own_count, *num_dropped = &own_count;

static void count_dropped(void)
{
    pthread_mutex_lock(&lock);
    atomic_fetch_add(num_dropped, 1);
    pthread_mutex_unlock(&lock);
}

uint64_t log_writer_num_dropped(void)
{
    return atomic_load(&own_count);
}

void log_writer_count_at(_Atomic uint64_t *counter)
{
    pthread_mutex_lock(&lock);
    num_dropped = counter ? counter : &own_count;
    if (counter) atomic_fetch_add(counter, atomic_exchange(&own_count, 0));
    pthread_mutex_unlock(&lock);
}

/* In one piece unless the system cuts it; waits timeout_ms for a reader that stalls, -1: for ever. A pipe
 * that has room by poll takes PIPE_BUF bytes, so write does not wait then. */
static bool write_line(const char *line, size_t n, int timeout_ms)
{
    while (n > 0) {
        struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
        int ready = poll(&out, 1, timeout_ms);
        if (ready == 0) return false;
        if (ready < 0 && errno == EINTR) continue;
        ssize_t written = write(STDERR_FILENO, line, n);
        if (written < 0 && errno != EINTR && errno != EAGAIN) return false;
        if (written <= 0) continue;
        line += written;
        n -= (size_t)written;
    }
    return true;
}

/* ---- the thread ---- */

/* Returns how many lines have still to be told of. */
static uint64_t tell_missing(uint64_t num_missing)
{
    struct log_line line;
    char text[80];
    int n = snprintf(text, sizeof text, "%llu lines were dropped: whoever reads the log was too slow",
                     (unsigned long long)num_missing);
    log_line_begin(&line, LOG_WARNING, text, (size_t)n);
    log_line_end(&line);
    return write_line(line.bytes, line.num_bytes, -1) ? 0 : num_missing;
}

/* Each line on its own; untold: lines that were lost before and that the log does not mention yet. */
static uint64_t write_half(const struct half *half, uint64_t untold)
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

/* The half that was filled, NULL: there is nothing and nothing will come. */
static struct half *take_half(void)
{
    pthread_mutex_lock(&lock);
    atomic_store(&idle, filling->num_bytes == 0);
    while (filling->num_bytes == 0 && !stopping) pthread_cond_wait(&not_empty, &lock);
    struct half *full = filling->num_bytes > 0 ? filling : NULL;
    if (full) filling = full == &halves[0] ? &halves[1] : &halves[0];
    pthread_mutex_unlock(&lock);
    return full;
}

static void *write_lines(void *context)
{
    uint64_t untold = 0;
    for (struct half *half; (half = take_half());) {
        untold = write_half(half, untold) + half->num_missing;
        if (half->num_missing > 0) untold = tell_missing(untold);
        half->num_bytes = 0;
        half->num_missing = 0;
    }
    return context;
}

/* ---- everybody ---- */

static bool queue_line(const char *line, size_t n)
{
    if (n > sizeof filling->bytes - filling->num_bytes) {
        filling->num_missing++;
        return false;
    }
    memcpy(filling->bytes + filling->num_bytes, line, n);
    filling->num_bytes += n;
    atomic_store(&idle, false);
    pthread_cond_signal(&not_empty);
    return true;
}

void log_writer_put(const char *line, size_t n)
{
    pthread_mutex_lock(&lock);
    bool direct = !running, kept = !direct && queue_line(line, n);
    pthread_mutex_unlock(&lock);
    if (direct) kept = write_line(line, n, DIRECT_MS);
    if (!kept) count_dropped();
}

/* ---- life ---- */

/* Also in a signal handler. */
static bool wait_until_idle(int ms)
{
    for (; ms > 0 && !atomic_load(&idle); ms--) poll(NULL, 0, 1);
    return ms > 0;
}

/* The lines before an abort are the ones that say why. The writing thread goes on meanwhile. */
static void on_abort(int number)
{
    wait_until_idle(ABORT_MS);
    signal(number, SIG_DFL); /* abort raises it again */
}

int log_writer_start(struct error *err)
{
    sigset_t all, before;
    stopping = false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int problem = pthread_create(&thread, NULL, write_lines, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (problem) return error_set(err, STATUS_IO, "cannot start the log's thread: %s", strerror(problem));
    pthread_setname_np(thread, "flashd-log");
    signal(SIGABRT, on_abort);
    pthread_mutex_lock(&lock);
    running = true;
    pthread_mutex_unlock(&lock);
    return STATUS_OK;
}

void log_writer_stop(void)
{
    pthread_mutex_lock(&lock);
    bool was_running = running;
    running = false;
    stopping = true;
    pthread_cond_signal(&not_empty);
    pthread_mutex_unlock(&lock);
    if (was_running && wait_until_idle(STOP_MS)) pthread_join(thread, NULL);
}
