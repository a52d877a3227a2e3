/* test_thread_pool.c - every thread runs every task exactly once, what tasks write is seen, an idle pool
 * sleeps. */
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fixture.h"
#include "base/memory_limit.h"
#include "base/thread_limit.h"
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

/* Files (name, text) into a new folder, whose name goes to folder; names may hold folders. */
static void write_tree(char *folder, const char *const (*files)[2], size_t num_files)
{
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < num_files; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", folder, files[i][0]);
        for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
            *slash = '\0';
            mkdir(path, 0700);
        }
        write_file(folder, files[i][0], files[i][1]);
    }
}

static void remove_tree(const char *folder)
{
    char command[512];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
}

/* Both versions of control groups, as /proc/self/cgroup lists them; the least counts. */
static void test_groups_of_both_versions(void **state)
{
    (void)state;
    static const char *const files[][2] = {
        {"one", "3:cpuset:/a\n4:cpu,cpuacct:/a/b\n0::/\n"},
        {"cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1\n"},
        {"cpu,cpuacct/a/b/cpu.cfs_period_us", "100000\n"},
        {"cpu,cpuacct/a/cpu.cfs_quota_us", "150000\n"},
        {"cpu,cpuacct/a/cpu.cfs_period_us", "50000\n"},
        {"two", "0::/x/y\n"},
        {"x/y/cpu.max", "400000 100000\n"},
        {"both", "0::/x/y\n1:cpu,cpuacct:/a/b\n"},
        {"free", "9:cpuacct:/a\n0::/none\n"},
        {"odd", "0\n:\n::\n1:cpu\n1:cpu:\n\n"},
    };
    char folder[] = "/tmp/flashd-cgroup-XXXXXX", path[128];
    static const struct {
        const char *file;
        int limit;
    } cases[] = {{"one", 3}, {"two", 4}, {"both", 3}, {"free", 0}, {"odd", 0}, {"missing", 0}};
    write_tree(folder, files, array_length(files));
    for (size_t i = 0; i < array_length(cases); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, cases[i].file);
        assert_int_equal(thread_limit_groups(path, folder), cases[i].limit);
    }
    remove_tree(folder);
}

/* What is left in a service's own group, in a container's at the mount, in one of version 1; the least counts. */
static void test_memory_of_groups(void **state)
{
    (void)state;
    static const char *const files[][2] = {
        {"service", "0::/system.slice/flashd.service\n"},
        {"system.slice/flashd.service/memory.max", "1000000\n"},
        {"system.slice/flashd.service/memory.current", "700000\n"},
        {"system.slice/flashd.service/memory.stat", "anon 1\nfile 5\ninactive_file 200000\nactive_file 9\n"},
        {"slice", "0::/small.slice/a.service\n"},
        {"small.slice/memory.max", "5000\n"},
        {"small.slice/memory.current", "6000\n"},
        {"small.slice/a.service/memory.max", "max\n"},
        {"soft", "0::/gentle\n"},
        {"gentle/memory.max", "max\n"},
        {"gentle/memory.high", "3000\n"},
        {"gentle/memory.current", "1000\n"},
        {"one", "8:memory:/a/b\n9:cpu:/small.slice\n"},
        {"memory/a/b/memory.limit_in_bytes", "9223372036854771712\n"},
        {"memory/a/b/memory.usage_in_bytes", "10\n"},
        {"memory/a/memory.limit_in_bytes", "4000\n"},
        {"memory/a/memory.usage_in_bytes", "3500\n"},
        {"memory/a/memory.stat", "inactive_file 1\ntotal_inactive_file 500\n"},
        {"container", "0::/\n8:memory:/docker/0123\n"},
        {"memory/memory.limit_in_bytes", "8000\n"},
        {"memory/memory.usage_in_bytes", "1\n"},
        {"free", "0::/none\n"},
    };
    static const struct {
        const char *file;
        uint64_t total, free;
    } cases[] = {{"service", 1000000, 500000},
                 {"slice", 5000, 0},
                 {"soft", 3000, 2000},
                 {"one", 4000, 1000},
                 {"container", 8000, 7999},
                 {"free", UINT64_MAX, UINT64_MAX},
                 {"missing", UINT64_MAX, UINT64_MAX}};
    char folder[] = "/tmp/flashd-cgroup-XXXXXX", path[128];
    write_tree(folder, files, array_length(files));
    for (size_t i = 0; i < array_length(cases); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, cases[i].file);
        const struct memory_limit limit = memory_limit_of_groups(path, folder);
        assert_true(limit.total == cases[i].total && limit.free == cases[i].free);
    }
    remove_tree(folder);
    const struct memory_limit now = memory_limit_now();
    assert_in_range(now.free, 1, now.total);
    assert_true(now.total < UINT64_MAX / 2);
}

static void record_mask(void *context, int thread_idx, int num_threads)
{
    (void)num_threads;
    cpu_set_t *masks = context;
    if (sched_getaffinity(0, sizeof *masks, &masks[thread_idx]) != 0) CPU_ZERO(&masks[thread_idx]);
}

/* On processors that others use, too, one that may not move holds all up. */
static void test_no_thread_is_pinned(void **state)
{
    (void)state;
    const int num_threads = min_of(thread_limit_usable(), (int)THREADS_MAX);
    cpu_set_t masks[THREADS_MAX], all;
    struct thread_pool *p = pool_of(num_threads);
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    for (int run = 0; run < 2; run++) {
        thread_pool_run(p, record_mask, masks);
        for (int i = 0; i < num_threads; i++) assert_true(CPU_EQUAL(&masks[i], &all));
    }
    thread_pool_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_thread_runs_once),   cmocka_unit_test(test_wakes_sleepers),
        cmocka_unit_test(test_idle_pool_uses_no_cpu),   cmocka_unit_test(test_cgroup_limit),
        cmocka_unit_test(test_groups_of_both_versions), cmocka_unit_test(test_memory_of_groups),
        cmocka_unit_test(test_no_thread_is_pinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
