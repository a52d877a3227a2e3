/* in_directory.h - tests that each have an empty directory: cmocka_unit_test_setup_teardown(test, set_up,
 * tear_down). */
#ifndef TESTS_UNIT_MODEL_IN_DIRECTORY_H
#define TESTS_UNIT_MODEL_IN_DIRECTORY_H

#include "unit/model/model_bytes.h"

static char directory[TEST_PATH_BYTES];

static int set_up(void **state)
{
    (void)state;
    make_directory(directory);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remove_directory(directory);
    return 0;
}

#endif
