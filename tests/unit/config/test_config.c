/* test_config.c - three sources, one table: precedence, types, ranges, and the sentences of what is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "config/config.h"

static int load(struct config *c, char **environment, struct error *err, int num_args, char **args)
{
    assert_int_equal(config_init(c, err), 0);
    return config_load(c, num_args, args, environment, err);
}

#define LOAD(c, environment, err, ...)                                                                       \
    load(c, environment, err, (int)array_length(((char *[]){__VA_ARGS__})), (char *[]){__VA_ARGS__})

static char *write_file(const char *text)
{
    static char path[64];
    strcpy(path, "/tmp/flashd-config-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    return path;
}

static void defaults_hold(void **state)
{
    (void)state;
    struct config c;
    struct error err;
    assert_int_equal(LOAD(&c, NULL, &err, "model.gguf"), 0);
    assert_string_equal(c.model, "model.gguf");
    assert_int_equal(c.port, 8000);
    assert_string_equal(c.host, "127.0.0.1");
    assert_true(c.enable_prefix_caching);
    assert_int_equal(c.max_body_bytes, 8 * MIB);
    assert_null(c.uds);
    config_deinit(&c);
}

static void the_later_source_wins(void **state)
{
    (void)state;
    struct config c;
    struct error err;
    char *path =
        write_file("model: a.gguf\nport: 1\nmax_num_seqs: 2\nmax-num-batched-tokens: 3\napi-key: [x, y]\n");
    char *environment[] = {"FLASHD_MAX_NUM_SEQS=4", "FLASHD_MAX_NUM_BATCHED_TOKENS=5", "HOME=/", NULL};
    assert_int_equal(LOAD(&c, environment, &err, "--max-num-batched-tokens=6", "--config", path, "b.gguf"),
                     0);
    assert_int_equal(c.port, 1);
    assert_int_equal(c.max_num_seqs, 4);
    assert_int_equal(c.max_num_batched_tokens, 6);
    assert_string_equal(c.model, "b.gguf");
    assert_int_equal(c.api_key.num_items, 2);
    assert_string_equal(c.api_key.items[1], "y");
    config_deinit(&c);
    unlink(path);
}

static void lists_flags_and_sizes(void **state)
{
    (void)state;
    struct config c;
    struct error err;
    char *environment[] = {"FLASHD_API_KEY=from,environment", NULL};
    assert_int_equal(LOAD(&c, environment, &err, "m", "--api-key", "one", "--api-key=two",
                          "--no-enable-prefix-caching", "--kv-cache-memory-bytes", "2GiB",
                          "--gpu-memory-utilization", "0.5"),
                     0);
    assert_int_equal(c.api_key.num_items, 2);
    assert_string_equal(c.api_key.items[0], "one");
    assert_false(c.enable_prefix_caching);
    assert_int_equal(c.kv_cache_memory_bytes, 2 * GIB);
    assert_true(c.gpu_memory_utilization == 0.5);
    config_deinit(&c);
}

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    static const struct {
        char *arg, *expected;
    } cases[] = {
        {"--port=65536", "port must be a whole number of port from 0 to 65535, got \"65536\""},
        {"--port=-1", "got \"-1\""},
        {"--port=1x", "got \"1x\""},
        {"--max-body-bytes=9999999999999999999G", "got"},
        {"--device=tpu", "device must be one of auto|cpu|cuda, got \"tpu\""},
        {"--gpu-memory-utilization=nan", "must be a number from"},
        {"--no-such", "there is no option \"--no-such\""},
        {"--enable-prefix-caching=maybe", "must be true or false"},
        {"--port", "--port needs a value"},
        {"--config=/nonexistent/x.yaml", "/nonexistent/x.yaml"},
    };
    for (size_t i = 0; i < array_length(cases); i++) {
        struct config c;
        struct error err = {0};
        assert_int_not_equal(LOAD(&c, NULL, &err, cases[i].arg), 0);
        if (!strstr(err.text, cases[i].expected)) fail_msg("%s: %s", cases[i].arg, err.text);
        config_deinit(&c);
    }
}

static void a_bad_file_names_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"port: 1\nnope: 2\n", ":2: there is no option \"nope\""},
        {"a: {b: c}\n", "nested mapping"},
        {"port: [1\n", ":2:"},
        {"- port\n", "sequence in the wrong place"},
        {"port: &x 1\nthreads: *x\n", "an alias"},
        {"port: high\n", ":1: port must be"},
    };
    for (size_t i = 0; i < array_length(cases); i++) {
        struct config c;
        struct error err = {0};
        char *path = write_file(cases[i].text);
        assert_int_not_equal(LOAD(&c, NULL, &err, "--config", path), 0);
        if (!strstr(err.text, cases[i].expected)) fail_msg("%s: %s", cases[i].text, err.text);
        config_deinit(&c);
        unlink(path);
    }
}

static void the_example_file_loads(void **state)
{
    (void)state;
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    config_print_example(out);
    fclose(out);
    char *uncommented = malloc(n + 1),
         *to = uncommented; /* "#name: value" becomes "name: value" where a value stands */
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        size_t last = strlen(line) - 1;
        if (line[0] == '#' && line[1] != ' ' && line[last] != ' ') to += sprintf(to, "%s\n", line + 1);
    }
    char *path = write_file(uncommented);
    struct config c;
    struct error err = {0};
    if (LOAD(&c, NULL, &err, "--config", path)) fail_msg("%s", err.text);
    assert_int_equal(c.drain_timeout, 60);
    config_deinit(&c);
    unlink(path);
    free(uncommented);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_hold),
        cmocka_unit_test(the_later_source_wins),
        cmocka_unit_test(lists_flags_and_sizes),
        cmocka_unit_test(what_is_wrong_is_said),
        cmocka_unit_test(a_bad_file_names_its_line),
        cmocka_unit_test(the_example_file_loads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
