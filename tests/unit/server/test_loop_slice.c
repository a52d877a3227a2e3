/* test_loop_slice.c - the loop's thread gets short slices; what it starts, and what has a priority of its own, does not. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define sched_param kernel_sched_param /* glibc has one, too */
#include <linux/sched/types.h>

#include "server/loop_slice.h"

static struct sched_attr own(void)
{
    struct sched_attr attr = {0};
    assert_int_equal(syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0), 0);
    return attr;
}

static void *read_own(void *out)
{
    *(struct sched_attr *)out = own();
    return NULL;
}

static struct sched_attr of_new_thread(void)
{
    struct sched_attr attr;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, read_own, &attr), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return attr;
}

/* Batch is a policy that somebody chose. */
static void test_a_chosen_policy_stays(void **state)
{
    struct sched_attr usual = own(), batch = {.size = sizeof batch, .sched_policy = SCHED_BATCH};
    (void)state;
    batch.sched_nice = usual.sched_nice;
    usual.sched_runtime = 0;
    assert_int_equal(syscall(SYS_sched_setattr, 0, &batch, 0), 0);
    struct sched_attr before = own();
    loop_slice_shorten();
    struct sched_attr after = own();
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(syscall(SYS_sched_setattr, 0, &usual, 0), 0);
}

static void test_short_for_itself_alone(void **state)
{
    struct sched_attr before = own();
    (void)state;
    loop_slice_shorten();
    struct sched_attr after = own();
    assert_int_equal(after.sched_policy, before.sched_policy);
    assert_int_equal(after.sched_nice, before.sched_nice);
    if (before.sched_runtime == 0 || before.sched_policy != 0 || before.sched_nice < 0)
        skip(); /* an old kernel; not ours */
    assert_int_equal(after.sched_runtime, 100000);
    struct sched_attr child = of_new_thread();
    assert_int_equal(child.sched_runtime, before.sched_runtime);
    assert_int_equal(child.sched_flags, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_chosen_policy_stays),
        cmocka_unit_test(test_short_for_itself_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
