/* Which answer's mask comes next, where masks take long: tenants in turn, whatever each asks for, and an old answer beside new ones
 * without end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "server/mask_turns.h"

enum { WAITING = 14, GUEST = WAITING, ROUNDS = 2000, MASK_WORK = 1000 };

static struct mask_turns turns;
static struct mask_turn answers[WAITING + 1]; /* of a flood, and a guest's */

static void join(int i, size_t tenant)
{
    answers[i] = (struct mask_turn){.tenant = tenant};
    mask_turns_join(&turns, &answers[i]);
}

static int set_up(void **state)
{
    (void)state;
    turns = (struct mask_turns){0};
    for (int i = 0; i < WAITING; i++) join(i, 1);
    return 0;
}

/* The next one's mask; returns whose. */
static int take(uint64_t work_of_guest)
{
    int next = 0;
    for (int i = 1; i <= WAITING; i++)
        if (mask_turns_is_before(&turns, &answers[i], &answers[next])) next = i;
    mask_turns_take(&turns, &answers[next], next == GUEST ? work_of_guest : MASK_WORK, WAITING + 1);
    return next;
}

/* Masks of the guest's, whose answer goes on, while each of the flood's ends with its first mask and another one comes. */
static int num_of_guest(size_t tenant, uint64_t work)
{
    int num = 0;
    join(GUEST, tenant);
    for (int round = 0; round < ROUNDS; round++) {
        int next = take(work);
        num += next == GUEST;
        if (next != GUEST) join(next, 1);
    }
    return num;
}

static void another_tenant_gets_its_half(void **state)
{
    (void)state;
    assert_in_range(num_of_guest(2, MASK_WORK), ROUNDS / 2 - 1, ROUNDS / 2 + 1);
}

static void whose_masks_take_less_gets_more(void **state)
{
    (void)state;
    assert_in_range(num_of_guest(2, MASK_WORK / 4), ROUNDS * 4 / 5 - 4, ROUNDS * 4 / 5 + 4);
}

/* Of all that wait it gets what each does. */
static void an_old_answer_beside_new_ones_of_its_tenant(void **state)
{
    (void)state;
    assert_true(num_of_guest(1, MASK_WORK) >= ROUNDS / (WAITING + 1) - 1);
}

static void a_cheap_one_of_the_same_tenant_gets_more(void **state)
{
    (void)state;
    assert_true(num_of_guest(1, MASK_WORK / 20) >= ROUNDS / 2);
}

/* A tenant that comes, or comes back, has the next turn, and not all that it has not had. */
static void nobody_saves_anything_up(void **state)
{
    (void)state;
    for (int again = 0; again < 2; again++) {
        for (int round = 0; round < ROUNDS; round++)
            mask_turns_take(&turns, &answers[round % WAITING], MASK_WORK, WAITING);
        join(GUEST, 2);
        int num = 0;
        for (int round = 0; round < 20; round++) num += take(MASK_WORK) == GUEST;
        assert_in_range(num, 9, 11);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(another_tenant_gets_its_half, set_up),
        cmocka_unit_test_setup(whose_masks_take_less_gets_more, set_up),
        cmocka_unit_test_setup(an_old_answer_beside_new_ones_of_its_tenant, set_up),
        cmocka_unit_test_setup(a_cheap_one_of_the_same_tenant_gets_more, set_up),
        cmocka_unit_test_setup(nobody_saves_anything_up, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
