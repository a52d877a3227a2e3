/* test_thread_pool.c - every thread runs every task exactly once, what tasks write is seen, an idle pool
 * sleeps. */
#include <sys/stat.h>
#include <unistd.h>

#include "fixture.h"
#include "kernels/cpu/thread_limit.h"
#include "kernels/cpu/thread_pool.h"

enum { THREADS_MAX = 8 };

struct counted {
    int runs[THREADS_MAX];
    int num_threads;
    int64_t covered[257];
    int64_t num_items;
};

static void count_runs(void *context, int thread_idx, int num_threads)
{
    struct counted *c = context;
    c->runs[thread_idx]++;
    if (thread_idx == 0) c->num_threads = num_threads;
    int64_t begin, end;
    thread_pool_range(c->num_items, thread_idx, num_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) c->covered[i]++;
}

static struct thread_pool *pool_of(int num_threads)
{
    struct thread_pool *p;
    struct error err;
    assert_int_equal(thread_pool_create(num_threads, &p, &err), 0);
    return p;
}

/* Plain (not atomic) counters: a lost hand-over shows as a wrong count, or in a thread sanitizer. */
static void test_each_thread_runs_once(void **state)
{
    (void)state;
    for (int n = 1; n <= THREADS_MAX; n++) {
        struct thread_pool *p = pool_of(n);
        struct counted c = {.num_items = 0};
        enum { RUNS = 300 };
        for (int run = 0; run < RUNS; run++) {
            memset(c.covered, 0, sizeof c.covered);
            c.num_items = run % 257;
            thread_pool_run(p, count_runs, &c);
            for (int64_t i = 0; i < 257; i++) assert_int_equal(c.covered[i], i < c.num_items);
        }
        assert_int_equal(c.num_threads, n);
        for (int i = 0; i < THREADS_MAX; i++) assert_int_equal(c.runs[i], i < n ? RUNS : 0);
        thread_pool_destroy(p);
    }
}

static void sleep_us(long us)
{
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

static void uneven_task(void *context, int thread_idx, int num_threads)
{
    (void)num_threads;
    struct counted *c = context;
    if (thread_idx == c->num_threads) sleep_us(300); /* longer than the others spin */
    c->runs[thread_idx]++;
}

/* Workers asleep when work comes, the caller asleep when it ends, and everything between. */
static void test_wakes_sleepers(void **state)
{
    (void)state;
    struct thread_pool *p = pool_of(3);
    struct counted c = {.num_threads = 0};
    for (int run = 0; run < 200; run++) {
        c.num_threads = run % 4; /* which one is slow; 3: none */
        thread_pool_run(p, uneven_task, &c);
        if (run % 3 == 0) sleep_us(run);
    }
    for (int i = 0; i < 3; i++) assert_int_equal(c.runs[i], 200);
    thread_pool_destroy(p);
}

static int64_t process_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* CPU time, not wall time: a busy machine cannot make it fail. */
static void test_idle_pool_uses_no_cpu(void **state)
{
    (void)state;
    struct thread_pool *p = pool_of(4);
    struct counted c = {.num_items = 1};
    thread_pool_run(p, count_runs, &c);
    sleep_us(20000);
    int64_t before = process_cpu_ns();
    sleep_us(300000);
    assert_true(process_cpu_ns() - before < 10 * 1000 * 1000);
    thread_pool_destroy(p);
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* The least of a group's own limit and its parents' counts, rounded up. */
static void test_cgroup_limit(void **state)
{
    (void)state;
    char mount[] = "/tmp/flashd-cgroup-XXXXXX", folder[64], inner[80];
    assert_non_null(mkdtemp(mount));
    snprintf(folder, sizeof folder, "%s/a", mount);
    snprintf(inner, sizeof inner, "%s/b", folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(mkdir(inner, 0700), 0);
    assert_int_equal(thread_limit_cgroup(mount, "/a/b"), 0);
    write_file(inner, "cpu.max", "max 100000\n");
    assert_int_equal(thread_limit_cgroup(mount, "/a/b"), 0);
    write_file(folder, "cpu.max", "250000 100000\n");
    assert_int_equal(thread_limit_cgroup(mount, "/a/b"), 3);
    write_file(inner, "cpu.max", "50000 100000\n");
    assert_int_equal(thread_limit_cgroup(mount, "/a/b"), 1);
    write_file(inner, "cpu.max", "nonsense\n");
    assert_int_equal(thread_limit_cgroup(mount, "/a/b"), 3);
    write_file(mount, "cpu.max", "200000 100000\n");
    assert_int_equal(thread_limit_cgroup(mount, "/"), 2);
    assert_int_equal(thread_limit_cgroup(mount, "/a"), 2);
    assert_true(thread_limit_usable() >= 1);
    const char *const files[] = {"a/b/cpu.max", "a/cpu.max", "cpu.max", "a/b", "a", "."};
    for (size_t i = 0; i < array_length(files); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", mount, files[i]);
        assert_int_equal(remove(i + 1 < array_length(files) ? path : mount), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_thread_runs_once),
        cmocka_unit_test(test_wakes_sleepers),
        cmocka_unit_test(test_idle_pool_uses_no_cpu),
        cmocka_unit_test(test_cgroup_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
