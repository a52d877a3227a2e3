/* shim.c - makes one chosen call of a running server fail (LD_PRELOAD).
 *
 * The file named by FAULTS_FILE is shared with the test, which fills a struct plan in: which call, how many
 * of its kind pass before it fails, how many then fail, and with which errno. SHORT lets a read or write
 * through with one byte instead. Calls are counted over all threads from the moment that the plan is armed.
 * Beside that, the page tells how much of the heap is in use, moves the monotonic clock, makes sockets small,
 * and stops single threads: one that gets SIGUSR2 stays in the handler while hold is set. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum call {
    NONE,
    ALLOCATION,
    ACCEPT,
    READ,
    WRITE,
    EVENTFD,
    MMAP,
    EPOLL_CTL,
    SOCKET,
    OPEN,
    SHUTDOWN,
    SETSOCKOPT,
    MADVISE
};

enum { SHORT = 1000 }; /* in place of an errno */

struct plan {
    _Atomic int32_t call; /* enum call; written last */
    _Atomic int32_t num_passing, num_failing;
    _Atomic int32_t error;
    /* for the test to read */
    _Atomic int32_t num_failed;
    _Atomic int64_t heap_bytes; /* in use, with the allocator's own word a block */
    _Atomic int32_t num_held;   /* threads in the handler */
    /* for the test to write */
    _Atomic int32_t hold;
    _Atomic int64_t clock_offset_ns;
    _Atomic int32_t send_buffer_bytes; /* of connections accepted from now on; 0: the system's choice */
};

static struct plan none, *plan = &none;

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t count, size_t n);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t alignment, size_t n);
void __libc_free(void *p);

/* Inside uv_async_send, where libuv's loop spins until the sender has come out, no thread stops: a moment
 * later. */
static _Thread_local volatile sig_atomic_t is_waking_loop, holds_later;

static void hold_thread(int number)
{
    if (is_waking_loop) {
        holds_later = 1;
        return;
    }
    const struct timespec pause = {.tv_nsec = 1000000};
    (void)number;
    int error = errno;
    atomic_fetch_add(&plan->num_held, 1);
    while (atomic_load(&plan->hold)) syscall(SYS_nanosleep, &pause, NULL);
    atomic_fetch_sub(&plan->num_held, 1);
    errno = error;
}

/* Threads that leave all signals to the loop still take this one. */
int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
    sigset_t others;
    if (set) {
        others = *set;
        sigdelset(&others, SIGUSR2);
    }
    return sigprocmask(how, set ? &others : NULL, old) ? errno : 0;
}

/* Nor does the server's own use of that signal replace the handler. */
int sigaction(int number, const struct sigaction *action, struct sigaction *old)
{
    if (number == SIGUSR2) action = NULL;
    return ((__typeof__(&sigaction))dlsym(RTLD_NEXT, "sigaction"))(number, action, old);
}

void (*signal(int number, void (*handler)(int)))(int)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, old = {0};
    return sigaction(number, &action, &old) ? SIG_ERR : old.sa_handler;
}

__attribute__((constructor)) static void open_plan(void)
{
    const struct sigaction action = {.sa_handler = hold_thread, .sa_flags = SA_RESTART};
    ((__typeof__(&sigaction))dlsym(RTLD_NEXT, "sigaction"))(SIGUSR2, &action, NULL);
    const char *path = getenv("FAULTS_FILE");
    int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *map = (void *)syscall(SYS_mmap, NULL, sizeof *plan, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0L);
    syscall(SYS_close, fd);
    if (map != MAP_FAILED) plan = map;
}

int uv_async_send(void *handle)
{
    is_waking_loop = 1;
    int result = ((int (*)(void *))dlsym(RTLD_NEXT, "uv_async_send"))(handle);
    is_waking_loop = 0;
    if (holds_later) {
        holds_later = 0;
        hold_thread(SIGUSR2);
    }
    return result;
}

/* The errno with which this call fails, 0: it does not. */
static int fault(enum call call)
{
    if (atomic_load(&plan->call) != (int32_t)call) return 0;
    if (atomic_fetch_sub(&plan->num_passing, 1) > 0) return 0;
    if (atomic_fetch_sub(&plan->num_failing, 1) <= 0) return 0;
    atomic_fetch_add(&plan->num_failed, 1);
    return atomic_load(&plan->error);
}

#define real(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAIL(call, value)                                                                                    \
    do {                                                                                                     \
        int error = fault(call);                                                                             \
        if (error) {                                                                                         \
            errno = error;                                                                                   \
            return value;                                                                                    \
        }                                                                                                    \
    } while (0)

/* ---- memory ---- */

static int64_t block_bytes(void *p)
{
    return p ? (int64_t)(malloc_usable_size(p) + sizeof(size_t)) : 0;
}

static void *counted(void *p)
{
    atomic_fetch_add(&plan->heap_bytes, block_bytes(p));
    return p;
}

void *malloc(size_t n)
{
    FAIL(ALLOCATION, NULL);
    return counted(__libc_malloc(n));
}

void *calloc(size_t count, size_t n)
{
    FAIL(ALLOCATION, NULL);
    return counted(__libc_calloc(count, n));
}

void *realloc(void *p, size_t n)
{
    FAIL(ALLOCATION, NULL);
    int64_t before = block_bytes(p);
    void *grown = __libc_realloc(p, n);
    if (grown || n == 0) atomic_fetch_sub(&plan->heap_bytes, before);
    return counted(grown);
}

void *aligned_alloc(size_t alignment, size_t n)
{
    FAIL(ALLOCATION, NULL);
    return counted(__libc_memalign(alignment, n));
}

int posix_memalign(void **out, size_t alignment, size_t n)
{
    if (fault(ALLOCATION)) return ENOMEM;
    *out = counted(__libc_memalign(alignment, n));
    return *out ? 0 : ENOMEM;
}

void free(void *p)
{
    atomic_fetch_sub(&plan->heap_bytes, block_bytes(p));
    __libc_free(p);
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    FAIL(MMAP, MAP_FAILED);
    return (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
}

int madvise(void *at, size_t n, int advice)
{
    FAIL(MADVISE, -1);
    return (int)syscall(SYS_madvise, at, n, advice);
}

/* ---- time ---- */

int clock_gettime(clockid_t id, struct timespec *t)
{
    int status = (int)syscall(SYS_clock_gettime, id, t);
    int64_t offset_ns = id == CLOCK_MONOTONIC ? atomic_load(&plan->clock_offset_ns) : 0;
    t->tv_sec += offset_ns / 1000000000; /* whole seconds are moved */
    return status;
}

/* ---- files and sockets ---- */

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    int mode = flags & O_CREAT ? va_arg(args, int) : 0;
    va_end(args);
    FAIL(OPEN, -1);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int accept4(int fd, struct sockaddr *address, socklen_t *n, int flags)
{
    FAIL(ACCEPT, -1);
    int accepted = real(accept4)(fd, address, n, flags);
    int bytes = atomic_load(&plan->send_buffer_bytes);
    if (accepted >= 0 && bytes > 0)
        syscall(SYS_setsockopt, accepted, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    return accepted;
}

/* One byte is let through by SHORT. */
static size_t cut(int error, size_t n)
{
    return error == SHORT && n > 1 ? 1 : n;
}

/* Only sockets: an eventfd or a signal pipe does not fail like this, and libuv aborts when it does. */
static int socket_fault(int fd, enum call call)
{
    int type;
    socklen_t n = sizeof type;
    if (atomic_load(&plan->call) != (int32_t)call) return 0;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0 ? fault(call) : 0;
}

ssize_t read(int fd, void *bytes, size_t n)
{
    int error = socket_fault(fd, READ);
    if (!error || error == SHORT) return real(read)(fd, bytes, cut(error, n));
    errno = error;
    return -1;
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    int error = socket_fault(fd, WRITE);
    if (!error || error == SHORT) return real(write)(fd, bytes, cut(error, n));
    errno = error;
    return -1;
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    int error = socket_fault(fd, WRITE);
    if (!error) return real(writev)(fd, parts, count);
    if (error == SHORT) return real(write)(fd, parts[0].iov_base, cut(error, parts[0].iov_len));
    errno = error;
    return -1;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    FAIL(WRITE, -1);
    return real(sendmsg)(fd, message, flags);
}

int eventfd(unsigned value, int flags)
{
    FAIL(EVENTFD, -1);
    return (int)syscall(SYS_eventfd2, value, flags);
}

/* Only what is watched anew can find no room. */
int epoll_ctl(int fd, int operation, int which, struct epoll_event *event)
{
    int result = real(epoll_ctl)(fd, operation, which, event);
    if (operation != EPOLL_CTL_ADD || result) return result;
    int error = fault(EPOLL_CTL);
    if (!error) return 0;
    real(epoll_ctl)(fd, EPOLL_CTL_DEL, which, event);
    errno = error;
    return -1;
}

int socket(int domain, int type, int protocol)
{
    FAIL(SOCKET, -1);
    return real(socket)(domain, type, protocol);
}

int shutdown(int fd, int how)
{
    FAIL(SHUTDOWN, -1);
    return real(shutdown)(fd, how);
}

int setsockopt(int fd, int level, int option, const void *value, socklen_t n)
{
    FAIL(SETSOCKOPT, -1);
    return real(setsockopt)(fd, level, option, value, n);
}
