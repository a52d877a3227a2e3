/* linear_fixture.h - what programs over linear_cases.h start with: random numbers from a seed that they print, two threads. */
#ifndef TESTS_KERNELS_LINEAR_FIXTURE_H
#define TESTS_KERNELS_LINEAR_FIXTURE_H

#include "tests/kernels/linear_cases.h"

static struct random_source random_numbers;
static struct thread_pool *pool;

static int start(void **state)
{
    struct error err;
    (void)state;
    random_numbers = random_source_new();
    print_message("FLASHD_TEST_SEED=%llu\n", (unsigned long long)random_numbers.seed);
    return thread_pool_create(2, &pool, &err);
}

static int stop(void **state)
{
    (void)state;
    thread_pool_destroy(pool);
    return 0;
}

#endif
