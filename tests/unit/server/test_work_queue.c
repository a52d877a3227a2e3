/* Work for the pool: how many long ones are on it, who is next, and that each is ended once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/work_queue.h"

struct task {
    struct pool_work work; /* first */
    char name;
    bool is_wanted;
    int num_ran, num_ended;
};

static uv_loop_t loop;
static struct work_queue queue;
static char begun[32]; /* names, in this order */

static bool begin(struct pool_work *w)
{
    struct task *t = (struct task *)w;
    if (t->is_wanted) strncat(begun, &t->name, 1);
    return t->is_wanted;
}

static void run(struct pool_work *w)
{
    ((struct task *)w)->num_ran++;
}

static void done(struct pool_work *w, bool has_run)
{
    struct task *t = (struct task *)w;
    t->num_ended++;
    assert_int_equal(has_run, t->num_ran);
}

static struct task make(char name, bool is_long, int api_key_idx)
{
    return (struct task){
        .work = {.begin = begin, .run = run, .done = done, .is_long = is_long, .api_key_idx = api_key_idx},
        .name = name,
        .is_wanted = true};
}

static int set_up(void **state)
{
    (void)state;
    queue = (struct work_queue){0};
    begun[0] = '\0';
    return uv_loop_init(&loop);
}

static int tear_down(void **state)
{
    (void)state;
    return uv_loop_close(&loop) == 0 && queue.num_long == 0 && !queue.first ? 0 : -1;
}

static void put(struct task *t)
{
    assert_true(work_queue_put(&queue, &loop, &t->work));
}

/* A short one does not wait for long ones, of which the others wait until one of two has ended. */
static void short_ones_pass(void **state)
{
    (void)state;
    struct task tasks[] = {make('a', true, 0), make('b', true, 0), make('c', true, 0), make('d', false, 0),
                           make('e', true, 0)};
    for (int i = 0; i < 5; i++) put(&tasks[i]);
    assert_string_equal(begun, "abd");
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_string_equal(begun, "abdce");
    for (int i = 0; i < 5; i++) assert_true(tasks[i].num_ran == 1 && tasks[i].num_ended == 1);
}

/* One key's many do not stand before another's. */
static void keys_take_turns(void **state)
{
    (void)state;
    struct task tasks[] = {make('a', true, 1), make('b', true, 1), make('c', true, 1), make('d', true, 1),
                           make('e', true, 1), make('f', true, 2), make('g', true, 2)};
    for (int i = 0; i < 7; i++) put(&tasks[i]);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_string_equal(begun, "abcfdge");
}

/* Taken back, not wanted when its turn comes, refused at once: nothing runs, and what comes behind does. */
static void not_all_run(void **state)
{
    (void)state;
    struct task tasks[] = {make('a', true, 0), make('b', true, 0), make('c', true, 0), make('d', true, 0),
                           make('e', true, 0)};
    for (int i = 0; i < 5; i++) put(&tasks[i]);
    assert_true(work_queue_take_back(&tasks[2].work));
    assert_false(work_queue_take_back(&tasks[2].work));
    assert_false(work_queue_take_back(&tasks[0].work)); /* it runs */
    tasks[3].is_wanted = false;
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_string_equal(begun, "abe");
    assert_int_equal(tasks[2].num_ended, 0);
    assert_int_equal(tasks[3].num_ended, 1);
    tasks[4].is_wanted = false;
    assert_false(work_queue_put(&queue, &loop, &tasks[4].work));
    assert_int_equal(tasks[4].num_ended, 1); /* the first time */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(short_ones_pass, set_up, tear_down),
        cmocka_unit_test_setup_teardown(keys_take_turns, set_up, tear_down),
        cmocka_unit_test_setup_teardown(not_all_run, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
