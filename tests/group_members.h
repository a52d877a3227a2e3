/* group_members.h - in tests: how many devices compute as one (kernels/group), as whoever runs them says. */
#ifndef TESTS_GROUP_MEMBERS_H
#define TESTS_GROUP_MEMBERS_H

#include <stdbool.h>
#include <stdlib.h>

/* FLASHD_TEST_MEMBERS, or 1. */
static inline int test_num_members(void)
{
    const char *members = getenv("FLASHD_TEST_MEMBERS");
    return members ? atoi(members) : 1;
}

/* FLASHD_TEST_ONE_GPU: they are all the same one. */
static inline bool test_on_one_gpu(void)
{
    return getenv("FLASHD_TEST_ONE_GPU") != NULL;
}

#endif
