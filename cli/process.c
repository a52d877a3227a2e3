#include "cli/process.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uv.h>

#include "base/check.h"

enum {
    DESCRIPTORS_MIN = 64, /* model files, log, loop, a probe or two; more connections need more */
    WORKERS = 4,
    WORKERS_MAX = 64,
    WORKERS_NICE = 10,         /* a tenth of the time of a thread that computes */
    STACK_BYTES = 8 << 20,     /* of every thread; libuv's choice for its workers */
    STACK_BYTES_MIN = 1 << 20, /* of the first thread, whose stack the system alone makes larger */
};

bool process_open_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) return false;
    return true;
}

void process_settle_signals(void)
{
    static const int ignored[] = {SIGPIPE, SIGHUP,    SIGXFSZ, SIGUSR1, SIGUSR2,  SIGALRM,
                                  SIGIO,   SIGVTALRM, SIGPROF, SIGPWR,  SIGSTKFLT};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (size_t i = 0; i < array_length(ignored); i++) signal(ignored[i], SIG_IGN);
}

/* Returns the hard limit. */
static uint64_t raise_limit(__rlimit_resource_t resource)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit)) return UINT64_MAX;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(resource, &limit);
    return limit.rlim_max;
}

/* Texts with others in them are read by functions that call themselves, as deep as --max-json-depth goes. Threads get the stack
 * that they need, whatever the limit was; libuv asks for as much as the limit is. */
static int raise_stack(struct error *err)
{
    struct rlimit limit;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
    if (getrlimit(RLIMIT_STACK, &limit) || limit.rlim_cur >= STACK_BYTES) return STATUS_OK;
    limit.rlim_cur = min_of(limit.rlim_max, (rlim_t)STACK_BYTES);
    setrlimit(RLIMIT_STACK, &limit);
    if (limit.rlim_cur >= STACK_BYTES_MIN) return STATUS_OK;
    return error_set(err, STATUS_LIMIT, "the stack may have %llu KiB (ulimit -s), but needs at least %d",
                     (unsigned long long)(limit.rlim_cur >> 10), STACK_BYTES_MIN >> 10);
}

int process_raise_limits(struct error *err)
{
    int status = raise_stack(err);
    if (status) return status;
    raise_limit(RLIMIT_FSIZE);
    uint64_t num_descriptors = raise_limit(RLIMIT_NOFILE);
    if (num_descriptors >= DESCRIPTORS_MIN) return STATUS_OK;
    return error_set(err, STATUS_LIMIT,
                     "the process may open %llu files and sockets (ulimit -n), but needs at least %d",
                     (unsigned long long)num_descriptors, DESCRIPTORS_MIN);
}

static int choose_num_workers(void)
{
    const char *told = getenv("UV_THREADPOOL_SIZE");
    int count = told ? atoi(told) : WORKERS;
    char text[16];
    count = max_of(1, min_of(count, WORKERS_MAX));
    snprintf(text, sizeof text, "%d", count);
    setenv("UV_THREADPOOL_SIZE", text, 1);
    return count;
}

static void wait_for_post(void *sem)
{
    uv_sem_wait(sem);
}

/* Whether that many can be had at once. */
static int try_threads(int count)
{
    static const uv_thread_options_t options = {.flags = UV_THREAD_HAS_STACK_SIZE, .stack_size = STACK_BYTES};
    uv_thread_t threads[WORKERS_MAX + 1];
    uv_sem_t sem;
    int uv_status = uv_sem_init(&sem, 0), num_started = 0;
    if (uv_status) return uv_status;
    while (num_started < count && !uv_status) {
        uv_status = uv_thread_create_ex(&threads[num_started], &options, wait_for_post, &sem);
        if (!uv_status) num_started++;
    }
    for (int i = 0; i < num_started; i++) uv_sem_post(&sem);
    for (int i = 0; i < num_started; i++) uv_thread_join(&threads[i]);
    uv_sem_destroy(&sem);
    return uv_status;
}

static void do_nothing(uv_work_t *work)
{
    (void)work;
}

/* Linux gives each thread a nice value of its own, which those that it starts inherit, and takes none back: so a
 * thread that ends starts the workers. */
static void start_pool(void *uv_status)
{
    uv_loop_t loop;
    uv_work_t work;
    (void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + WORKERS_NICE);
    *(int *)uv_status = uv_loop_init(&loop);
    if (*(int *)uv_status) return;
    uv_queue_work(&loop, &work, do_nothing, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
}

int process_start_workers(struct error *err)
{
    uv_thread_t starter;
    int pool_status = 0, uv_status = try_threads(choose_num_workers() + 1); /* the starter is one, too */
    if (!uv_status) uv_status = uv_thread_create(&starter, start_pool, &pool_status);
    if (!uv_status) uv_status = uv_thread_join(&starter);
    if (!uv_status) uv_status = pool_status;
    if (uv_status)
        return error_set(err, STATUS_IO, "cannot start worker threads: %s", uv_strerror(uv_status));
    return STATUS_OK;
}
