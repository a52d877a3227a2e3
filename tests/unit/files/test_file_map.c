/* Files that change under their map. */
#include "unit/model/model_bytes.h"

#include <signal.h>
#include <sys/wait.h>

#include "files/file_map.h"

enum { FILE_BYTES = 5 * 4096 };

struct end {
    int status;
    char said[256];
};

/* What becomes of a process that does this. */
static struct end end_of(void (*action)(const char *path), const char *path)
{
    struct end end = {0};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        action(path);
        _exit(EXIT_SUCCESS);
    }
    close(ends[1]);
    ssize_t num_bytes = read(ends[0], end.said, sizeof end.said - 1);
    assert_true(num_bytes >= 0);
    close(ends[0]);
    assert_int_equal(waitpid(child, &end.status, 0), child);
    return end;
}

static void read_what_was_cut(const char *path)
{
    struct file_map map;
    struct error err;
    file_map_guard_process();
    if (file_map_open(path, &map, &err) || truncate(path, 4096)) _exit(EXIT_SUCCESS);
    _exit(((const volatile unsigned char *)map.data)[FILE_BYTES - 1]);
}

static void read_what_is_left(const char *path)
{
    struct file_map map;
    struct error err;
    file_map_guard_process();
    if (file_map_open(path, &map, &err)) _exit(EXIT_FAILURE);
    _exit(((const volatile unsigned char *)map.data)[4095]);
}

static void fail_otherwise(const char *path)
{
    (void)path;
    file_map_guard_process();
    raise(SIGBUS);
}

static void test_a_file_that_is_cut_while_it_is_read(void **state)
{
    (void)state;
    char directory[TEST_PATH_BYTES], path[TEST_PATH_BYTES + 16], text[FILE_BYTES + 1];
    make_directory(directory);
    memset(text, 7, FILE_BYTES);
    text[FILE_BYTES] = '\0';
    write_text(directory, "model", text);
    snprintf(path, sizeof path, "%s/model", directory);

    struct end end = end_of(read_what_was_cut, path);
    assert_true(WIFEXITED(end.status));
    assert_int_equal(WEXITSTATUS(end.status), EXIT_FAILURE);
    assert_non_null(strstr(end.said, "was cut short"));

    end = end_of(read_what_is_left, path);
    assert_true(WIFEXITED(end.status) && WEXITSTATUS(end.status) == 7);
    assert_string_equal(end.said, "");

    end = end_of(fail_otherwise, path);
    assert_true(WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGBUS);
    assert_string_equal(end.said, "");
    remove_directory(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_file_that_is_cut_while_it_is_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
