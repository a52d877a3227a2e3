/* A callback that takes long is logged with its name, one that does not is not; the clock is the test's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/loop_watch.h"

static uint64_t now_ns = 1, processor_ns = 5000000;

static uint64_t get_now(void)
{
    return now_ns;
}

static uint64_t get_processor(void)
{
    return processor_ns;
}

/* With a processor for half of the time. */
static void work_ms(uint64_t ms)
{
    now_ns += ms * 1000000;
    processor_ns += ms * 1000000 / 2;
}

/* Three callbacks, a wait, and one more. */
static void run_loop(void)
{
    loop_watch_leave();
    loop_watch_enter("the first");
    work_ms(51);
    loop_watch_enter("the second");
    work_ms(50);
    loop_watch_enter("the third");
    work_ms(1234);
    loop_watch_leave();
    now_ns += 1000000000; /* waiting is nobody's fault */
    loop_watch_leave();
    loop_watch_enter("the fourth");
    loop_watch_leave();
}

/* What it logs. */
static void read_log(char *text, size_t size)
{
    int ends[2], own = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    run_loop();
    dup2(own, STDERR_FILENO);
    close(own);
    close(ends[1]);
    ssize_t n = read(ends[0], text, size - 1);
    text[n > 0 ? n : 0] = '\0';
    close(ends[0]);
}

static void slow_callbacks_are_named(void **state)
{
    static const struct clock_source clock = {get_now, get_now, get_processor};
    char text[4096];
    (void)state;
    clock_set_source(&clock);
    log_configure(LOG_WARNING, false);
    read_log(text, sizeof text);
    assert_non_null(strstr(text, "51 ms by: the first; it had a processor for 25 ms"));
    assert_non_null(strstr(text, "1234 ms by: the third; it had a processor for 667 ms"));
    assert_null(strstr(text, "the second"));
    assert_null(strstr(text, "the fourth"));
    clock_set_source(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(slow_callbacks_are_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
