#include "server/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/byte_queue.h"
#include "base/check.h"
#include "base/log.h"

enum { PATH_BYTES_MAX = 4096, QUEUE_BYTES = 16 << 20, STOP_MS = 2000 };

struct journal {
    struct byte_queue queue;
    pthread_t thread;
    char path[PATH_BYTES_MAX];
    uint64_t file_bytes_max;
    _Atomic uint64_t num_written, num_dropped;
    /* the thread's, once it runs */
    int fd;       /* -1: none could be opened */
    bool is_file; /* or a device, a pipe: it is never moved away */
    uint64_t num_bytes;
    bool torn;    /* the file's last line has no newline */
    bool failing; /* the last line was dropped, and the log knows */
};

/* ---- the file ---- */

static bool ends_torn(int fd, off_t num_bytes)
{
    char last = '\n';
    return num_bytes > 0 && pread(fd, &last, 1, num_bytes - 1) == 1 && last != '\n';
}

static void close_file(struct journal *j)
{
    if (j->fd >= 0) close(j->fd);
    j->fd = -1;
}

/* All who may write a file share its lock, which the first of them had to get alone. Where a file system has no locks there are
 * none. */
static int lock_file(const struct journal *j, bool alone, struct error *err)
{
    if ((!alone || flock(j->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) &&
        (flock(j->fd, LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK))
        return STATUS_OK;
    return error_set(err, STATUS_IO, "--journal %s: another server writes it; give each its own file",
                     j->path);
}

/* What is no file, such as a device, has no length and no owner to be kept to. */
static int open_file(struct journal *j, bool alone, struct error *err)
{
    struct stat st;
    j->fd = open(j->path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
    if (j->fd < 0 || fstat(j->fd, &st) || (S_ISREG(st.st_mode) && fchmod(j->fd, 0600))) {
        error_set(err, STATUS_IO, "--journal %s: %s", j->path, strerror(errno));
        close_file(j);
        return STATUS_IO;
    }
    j->is_file = S_ISREG(st.st_mode);
    if (j->is_file && lock_file(j, alone, err)) {
        close_file(j);
        return STATUS_IO;
    }
    j->num_bytes = (uint64_t)st.st_size;
    j->torn = j->is_file && ends_torn(j->fd, st.st_size);
    return STATUS_OK;
}

/* False: FILE is another file by now, or none. */
static bool is_at_path(const struct journal *j)
{
    struct stat own, there;
    return j->fd >= 0 && !fstat(j->fd, &own) && !stat(j->path, &there) && own.st_dev == there.st_dev &&
           own.st_ino == there.st_ino;
}

static int move_away(const struct journal *j, struct error *err)
{
    char older[PATH_BYTES_MAX + 2];
    snprintf(older, sizeof older, "%s.1", j->path);
    if (rename(j->path, older) == 0) return STATUS_OK;
    return error_set(err, STATUS_IO, "--journal %s: cannot be moved to %s: %s", j->path, older,
                     strerror(errno));
}

/* The file where a line of n bytes belongs is open afterwards. */
static int choose_file(struct journal *j, size_t n, struct error *err)
{
    bool there = is_at_path(j),
         full = j->is_file && j->num_bytes + n + 1 > j->file_bytes_max && j->num_bytes > 0;
    if (there && !full) return STATUS_OK;
    int status = there ? move_away(j, err) : STATUS_OK;
    if (status) return status;
    close_file(j);
    return open_file(j, false, err);
}

/* In one piece unless the system cuts it. */
static int write_bytes(struct journal *j, const char *bytes, size_t n, struct error *err)
{
    while (n > 0) {
        ssize_t written = write(j->fd, bytes, n);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0)
            return error_set(err, STATUS_IO, "--journal %s: %s", j->path,
                             strerror(written < 0 ? errno : ENOSPC));
        bytes += written;
        n -= (size_t)written;
        j->num_bytes += (uint64_t)written;
        j->torn = bytes[-1] != '\n';
    }
    return STATUS_OK;
}

static int write_line(struct journal *j, const char *line, size_t n, struct error *err)
{
    if (n > j->file_bytes_max)
        return error_set(err, STATUS_LIMIT, "--journal-bytes: half of it is less than a line of %zu bytes",
                         n);
    int status = choose_file(j, n, err);
    if (!status && j->torn) status = write_bytes(j, "\n", 1, err);
    return status ? status : write_bytes(j, line, n, err);
}

/* ---- the thread ---- */

static void take_line(struct journal *j, const char *line, size_t n)
{
    struct error err;
    int status = write_line(j, line, n, &err);
    atomic_fetch_add(status ? &j->num_dropped : &j->num_written, 1);
    if (status && !j->failing) log_error("the journal lacks requests from here on: %s", err.text);
    if (!status && j->failing) log_info("the journal is written again");
    j->failing = status != 0;
}

static void *write_lines(void *context)
{
    struct journal *j = context;
    for (const struct byte_half *half; (half = byte_queue_take(&j->queue));) {
        for (size_t at = 0, n; at < half->num_bytes; at += n) {
            const char *line = half->bytes + at;
            n = (size_t)((const char *)memchr(line, '\n', half->num_bytes - at) - line) + 1;
            take_line(j, line, n);
        }
        atomic_fetch_add(&j->num_dropped, half->num_missing);
        if (half->num_missing > 0)
            log_warning("the journal lacks %llu lines: the disk was too slow",
                        (unsigned long long)half->num_missing);
    }
    return NULL;
}

/* ---- everybody ---- */

void journal_put(struct journal *j, const char *line, size_t n)
{
    if (byte_queue_put(&j->queue, line, n) == BYTE_QUEUE_CLOSED) journal_count_dropped(j);
}

void journal_count_dropped(struct journal *j)
{
    atomic_fetch_add(&j->num_dropped, 1);
}

uint64_t journal_num_written(const struct journal *j)
{
    return atomic_load(&j->num_written);
}

uint64_t journal_num_dropped(const struct journal *j)
{
    return atomic_load(&j->num_dropped);
}

/* ---- life ---- */

static void release(struct journal *j)
{
    close_file(j);
    free(j->queue.halves[0].bytes);
    free(j->queue.halves[1].bytes);
    free(j);
}

/* Signals are the loop's. */
static int start_thread(struct journal *j, struct error *err)
{
    sigset_t all, before;
    byte_queue_open(&j->queue);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int problem = pthread_create(&j->thread, NULL, write_lines, j);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (problem) return error_set(err, STATUS_IO, "cannot start the journal's thread: %s", strerror(problem));
    pthread_setname_np(j->thread, "journal");
    return STATUS_OK;
}

int journal_create(const char *path, uint64_t bytes_max, size_t line_bytes, bool joins, struct journal **out,
                   struct error *err)
{
    struct journal *j = calloc(1, sizeof *j);
    size_t half_bytes = line_bytes + QUEUE_BYTES; /* touched as far as it is filled */
    char *halves[2] = {malloc(half_bytes), malloc(half_bytes)};
    if (!j || !halves[0] || !halves[1]) {
        free(j);
        free(halves[0]);
        free(halves[1]);
        return error_set(err, STATUS_NO_MEMORY, "out of memory");
    }
    *j = (struct journal){.queue = BYTE_QUEUE_INIT(halves[0], halves[1], half_bytes),
                          .file_bytes_max = bytes_max / 2,
                          .fd = -1};
    int status = STATUS_OK;
    if (snprintf(j->path, sizeof j->path, "%s", path) >= (int)sizeof j->path)
        status = error_set(err, STATUS_LIMIT, "--journal: the path is too long");
    if (!status) status = open_file(j, !joins, err);
    if (!status) status = start_thread(j, err);
    if (status)
        release(j);
    else
        *out = j;
    return status;
}

/* A disk that does not take what is left keeps its thread and its memory until the process is gone. */
void journal_destroy(struct journal *j)
{
    if (!j) return;
    byte_queue_close(&j->queue);
    if (!byte_queue_wait(&j->queue, STOP_MS)) return;
    pthread_join(j->thread, NULL);
    release(j);
}
