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
static char begun[32];          /* names, in this order */
static struct task *put_at_end; /* by the next that ends */

static void put(struct task *t);

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
    struct task *next = put_at_end;
    put_at_end = NULL;
    if (next) put(next);
}

static struct task make(char name, bool is_long, int api_key_idx)
{
    return (struct task){
        .work = {.begin = begin, .run = run, .done = done, .is_long = is_long, .api_key_idx = api_key_idx},
        .name = name,
        .is_wanted = true};
}

static struct task of_tenant(char name, int api_key_idx, uint64_t tenant)
{
    struct task t = make(name, true, api_key_idx);
    t.work.tenant = tenant;
    return t;
}

static void put_all(struct task *tasks, int num)
{
    for (int i = 0; i < num; i++) put(&tasks[i]);
    uv_run(&loop, UV_RUN_DEFAULT);
    for (int i = 0; i < num; i++) assert_true(tasks[i].num_ran == 1 && tasks[i].num_ended == 1);
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

/* Two that have many keep a third one waiting for a turn of each. */
static void a_third_key_has_its_turn(void **state)
{
    (void)state;
    struct task tasks[] = {make('a', true, 1), make('b', true, 2), make('c', true, 1), make('d', true, 2),
                           make('e', true, 1), make('f', true, 2), make('g', true, 3)};
    put_all(tasks, 7);
    assert_string_equal(begun, "abcdgef");
}

/* Of one key, or where there is none, tenants do; and a key's many tenants have the turns of one key. */
static void tenants_take_turns(void **state)
{
    (void)state;
    struct task tasks[] = {of_tenant('a', -1, 7), of_tenant('b', -1, 7), of_tenant('c', -1, 7),
                           of_tenant('d', -1, 7), of_tenant('e', -1, 8), of_tenant('f', -1, 9)};
    put_all(tasks, 6);
    assert_string_equal(begun, "abcefd");
    begun[0] = '\0';
    struct task of_keys[] = {of_tenant('a', 1, 1), of_tenant('b', 1, 2), of_tenant('c', 1, 3),
                             of_tenant('d', 1, 4), of_tenant('e', 1, 5), of_tenant('f', 2, 1),
                             of_tenant('g', 2, 1)};
    put_all(of_keys, 7);
    assert_string_equal(begun, "abcfdge");
}

/* Short ones, too, wait for their turn when there are many. */
static void many_short_ones_take_turns(void **state)
{
    (void)state;
    struct task tasks[POOL_WORKS_MAX + 4];
    for (int i = 0; i < POOL_WORKS_MAX + 3; i++) tasks[i] = make((char)('a' + i), false, 1);
    tasks[POOL_WORKS_MAX + 3] = make('z', false, 2);
    put_all(tasks, POOL_WORKS_MAX + 4);
    assert_string_equal(begun, "abcdefghizjk");
}

/* What follows from one that ends is put behind who waits. */
static void what_follows_waits_too(void **state)
{
    (void)state;
    struct task tasks[] = {make('a', true, 1), make('b', true, 1), make('c', true, 2)},
                next = make('d', true, 1);
    put_at_end = &next;
    put_all(tasks, 3);
    assert_string_equal(begun, "abcd");
    assert_int_equal(next.num_ended, 1);
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
        cmocka_unit_test_setup_teardown(a_third_key_has_its_turn, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tenants_take_turns, set_up, tear_down),
        cmocka_unit_test_setup_teardown(many_short_ones_take_turns, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_follows_waits_too, set_up, tear_down),
        cmocka_unit_test_setup_teardown(not_all_run, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
