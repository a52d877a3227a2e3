/* Which files an engine must find as the one before it found them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/identity.h"

static char folder[64], path[128];

static void write_file(const char *name, const char *text)
{
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void remove_file(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(unlink(path), 0);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/flashd-identity-XXXXXX");
    assert_non_null(mkdtemp(folder));
    write_file("config.json", "{}");
    write_file("model.safetensors", "weights");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remove_file("config.json");
    remove_file("model.safetensors");
    return rmdir(folder);
}

static void test_a_folder(void **state)
{
    struct config config = {.model = folder};
    struct identity_files before, later;
    (void)state;
    identity_look_at_files(&config, &before);
    assert_true(identity_engine_may_go_on(&config, &before));

    write_file("notes.txt", "the front's, or nobody's");
    identity_look_at_files(&config, &later);
    assert_memory_not_equal(later.digest, before.digest, IDENTITY_BYTES);
    assert_true(identity_engine_may_go_on(&config, &before));

    write_file("model.safetensors", "other weights");
    assert_false(identity_engine_may_go_on(&config, &before));
    remove_file("notes.txt");
}

static void test_a_file(void **state)
{
    char file[128], other[128];
    struct config config = {.model = file};
    struct identity_files before;
    (void)state;
    snprintf(file, sizeof file, "%s/model.safetensors", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    identity_look_at_files(&config, &before);
    assert_true(identity_engine_may_go_on(&config, &before));
    write_file("other", "weights");
    assert_int_equal(rename(other, file), 0);
    assert_false(identity_engine_may_go_on(&config, &before));
}

static void test_a_file_in_parts(void **state)
{
    char file[128];
    struct config config = {.model = file};
    struct identity_files before;
    (void)state;
    snprintf(file, sizeof file, "%s/m-00001-of-00002.gguf", folder);
    write_file("m-00001-of-00002.gguf", "one");
    write_file("m-00002-of-00002.gguf", "two");
    write_file("m-00003-of-00002.gguf", "nobody's");
    identity_look_at_files(&config, &before);
    assert_int_equal(before.num_bytes, strlen("one") + strlen("two"));
    remove_file("m-00003-of-00002.gguf");
    assert_true(identity_engine_may_go_on(&config, &before));
    write_file("m-00002-of-00002.gguf", "another");
    assert_false(identity_engine_may_go_on(&config, &before));
    remove_file("m-00001-of-00002.gguf");
    remove_file("m-00002-of-00002.gguf");
}

static void test_none_is_for_the_engine_to_tell(void **state)
{
    struct config config = {.model = "/nowhere/model.gguf"};
    struct identity_files before = {.engines = {1}};
    (void)state;
    assert_true(identity_engine_may_go_on(&config, &before));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_folder, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_file_in_parts, set_up, tear_down),
        cmocka_unit_test(test_none_is_for_the_engine_to_tell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
