#include "files/file_map.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"

static int open_regular(const char *path, int *fd, size_t *num_bytes, struct error *err)
{
    /* O_NONBLOCK: opening a fifo must not wait for its writer */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0)
        return error_set(err, errno == ENOENT || errno == ENOTDIR ? STATUS_NOT_FOUND : STATUS_IO, "%s: %s",
                         path, strerror(errno));
    struct stat st;
    if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode)) {
        *num_bytes = (size_t)st.st_size;
        return STATUS_OK;
    }
    close(*fd);
    return error_set(err, STATUS_INVALID, "%s: not a regular file", path);
}

int file_map_open(const char *path, struct file_map *out, struct error *err)
{
    *out = (struct file_map){0};
    int fd = -1;
    size_t num_bytes = 0;
    int status = open_regular(path, &fd, &num_bytes, err);
    if (status || num_bytes == 0) {
        if (!status) close(fd);
        return status;
    }
    void *data = mmap(NULL, num_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    int problem = errno;
    close(fd);
    if (data == MAP_FAILED) return error_set(err, STATUS_IO, "%s: cannot map: %s", path, strerror(problem));
    *out = (struct file_map){data, num_bytes};
    return STATUS_OK;
}

void file_map_close(struct file_map *m)
{
    if (m->data) munmap((void *)(uintptr_t)m->data, m->num_bytes);
    *m = (struct file_map){0};
}

/* Any other bus error is a bug, or somebody's signal: it has its default action. */
static void end_on_bus_error(int number, siginfo_t *info, void *context)
{
    static const char text[] =
        "flashd: a model's file was cut short while it was read, or its disk failed; replace model files by "
        "renaming, not in place\n";
    (void)context;
    if (info->si_code != BUS_ADRERR) {
        signal(number, SIG_DFL);
        raise(number); /* as soon as this returns */
        return;
    }
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)written;
    _exit(EXIT_FAILURE);
}

void file_map_guard_process(void)
{
    struct sigaction action = {.sa_sigaction = end_on_bus_error, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
}

void file_map_drop_pages(const struct file_map *m)
{
    if (m->data) madvise((void *)(uintptr_t)m->data, m->num_bytes, MADV_DONTNEED);
}

void file_map_prefetch(const void *data, size_t num_bytes)
{
    assert_debug(data && num_bytes > 0);
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)data / page * page;
    madvise((void *)begin, (uintptr_t)data + num_bytes - begin, MADV_WILLNEED);
}

static int read_all(int fd, char *to, size_t num_bytes)
{
    for (size_t done = 0; done < num_bytes;) {
        ssize_t n = read(fd, to + done, num_bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return STATUS_IO;
        done += (size_t)n;
    }
    return STATUS_OK;
}

int file_read_text(const char *path, size_t bytes_max, char **text, size_t *num_bytes, struct error *err)
{
    int fd = -1;
    *num_bytes = 0;
    int status = open_regular(path, &fd, num_bytes, err);
    if (status) return status;
    if (*num_bytes > bytes_max) {
        status = error_set(err, STATUS_LIMIT, "%s: %zu bytes, where at most %zu are expected", path,
                           *num_bytes, bytes_max);
    } else if (!(*text = malloc(*num_bytes + 1))) {
        status = error_set(err, STATUS_NO_MEMORY, "%s: no memory for %zu bytes", path, *num_bytes);
    } else if (read_all(fd, *text, *num_bytes)) {
        free(*text);
        status = error_set(err, STATUS_IO, "%s: cannot be read whole", path);
    } else {
        (*text)[*num_bytes] = '\0';
    }
    close(fd);
    return status;
}

struct printable printable_from(const char *bytes, size_t num_bytes)
{
    struct printable p;
    size_t n = min_of(num_bytes, sizeof p.text - 1);
    for (size_t i = 0; i < n; i++) p.text[i] = bytes[i] >= ' ' && bytes[i] <= '~' ? bytes[i] : '?';
    p.text[n] = '\0';
    if (n < num_bytes) memcpy(p.text + n - 3, "...", 3);
    return p;
}
