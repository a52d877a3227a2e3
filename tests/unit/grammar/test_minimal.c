/* test_minimal.c - minimal automata accept the same texts, and have no two states that accept the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "text/grammar/minimal.h"

enum { AUTOMATA = 400, STATES_MAX = 60, CLASSES_MAX = 4 };

static uint32_t draw(uint64_t *counter, uint32_t below)
{
    return rng_philox(11, (*counter)++, 0).word[0] % below;
}

/* Many edges to few states, so that some are alike. */
static struct dfa random_dfa(uint64_t *counter)
{
    struct dfa d = {.num_classes = 1 + draw(counter, CLASSES_MAX),
                    .num_states = 2 + draw(counter, STATES_MAX - 2)};
    d.next = calloc((size_t)d.num_states * d.num_classes, sizeof *d.next);
    d.labels = calloc(d.num_states, sizeof *d.labels);
    assert_true(d.next && d.labels);
    const uint32_t reach = 1 + draw(counter, d.num_states);
    for (uint32_t e = d.num_classes; e < d.num_states * d.num_classes; e++) d.next[e] = draw(counter, reach);
    for (uint32_t s = 1; s < d.num_states; s++) d.labels[s] = draw(counter, 4) == 0;
    d.labels[d.num_states - 1] = 1;
    d.start = draw(counter, d.num_states);
    assert_int_equal(dfa_trim(&d), 0);
    return d;
}

static struct dfa copy_of(const struct dfa *d)
{
    struct dfa copy = *d;
    const size_t num_edges = (size_t)d->num_states * d->num_classes;
    copy.next = malloc(num_edges * sizeof *copy.next);
    copy.labels = malloc(d->num_states * sizeof *copy.labels);
    assert_true(copy.next && copy.labels);
    memcpy(copy.next, d->next, num_edges * sizeof *copy.next);
    memcpy(copy.labels, d->labels, d->num_states * sizeof *copy.labels);
    return copy;
}

/* Whether state s of a and state t of b accept the same texts: no pair that both reach differs. */
static bool accept_the_same(const struct dfa *a, uint32_t s, const struct dfa *b, uint32_t t)
{
    static bool seen[STATES_MAX][STATES_MAX];
    static uint32_t work[STATES_MAX * STATES_MAX][2];
    uint32_t num_work = 1;
    memset(seen, 0, sizeof seen);
    work[0][0] = s;
    work[0][1] = t;
    seen[s][t] = true;
    while (num_work > 0) {
        s = work[--num_work][0];
        t = work[num_work][1];
        if (a->labels[s] != b->labels[t]) return false;
        for (uint32_t c = 0; c < a->num_classes; c++) {
            const uint32_t x = a->next[s * a->num_classes + c], y = b->next[t * b->num_classes + c];
            if (seen[x][y]) continue;
            seen[x][y] = true;
            work[num_work][0] = x;
            work[num_work++][1] = y;
        }
    }
    return true;
}

static void alike_states_become_one(void **state)
{
    uint64_t counter = 0;
    int num_smaller = 0;
    (void)state;
    for (int i = 0; i < AUTOMATA; i++) {
        struct dfa d = random_dfa(&counter), small = copy_of(&d);
        assert_int_equal(dfa_minimize(&small), 0);
        assert_true(accept_the_same(&d, d.start, &small, small.start));
        for (uint32_t s = 0; s < small.num_states; s++)
            for (uint32_t t = 0; t < s; t++) assert_false(accept_the_same(&small, s, &small, t));
        for (uint32_t s = 0; s < d.num_states; s++) { /* each state is still there */
            bool found = false;
            for (uint32_t t = 0; t < small.num_states && !found; t++)
                found = accept_the_same(&d, s, &small, t);
            assert_true(found);
        }
        num_smaller += small.num_states < d.num_states;
        dfa_deinit(&d);
        dfa_deinit(&small);
    }
    assert_true(num_smaller > AUTOMATA / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(alike_states_become_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
