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
#include "config/api_keys.h"
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

static void the_file_may_be_named_by_the_environment(void **state)
{
    (void)state;
    struct config c;
    struct error err = {0};
    char variable[80], *environment[] = {variable, NULL}, *path = write_file("port: 1\n");
    snprintf(variable, sizeof variable, "FLASHD_CONFIG=%s", path);
    assert_int_equal(LOAD(&c, environment, &err, "m"), 0);
    assert_int_equal(c.port, 1);
    config_deinit(&c);
    assert_int_not_equal(LOAD(&c, environment, &err, "m", "--config=/nonexistent/x.yaml"), 0);
    config_deinit(&c);
    unlink(path);
    assert_int_not_equal(LOAD(&c, environment, &err, "m"), 0);
    assert_non_null(strstr(err.text, path));
    config_deinit(&c);
}

static void the_model_may_be_named_by_the_environment(void **state)
{
    (void)state;
    struct config c;
    struct error err = {0};
    char *environment[] = {"FLASHD_MODEL=b", NULL}, *path = write_file("model: a\n");
    assert_int_equal(LOAD(&c, environment, &err, "--config", path), 0);
    assert_string_equal(c.model, "b");
    config_deinit(&c);
    assert_int_equal(LOAD(&c, environment, &err, "--config", path, "c"), 0);
    assert_string_equal(c.model, "c");
    config_deinit(&c);
    unlink(path);
}

static void of_several_files_the_last_is_read(void **state)
{
    (void)state;
    struct config c;
    struct error err = {0};
    char first[64];
    strcpy(first, write_file("port: 1\n"));
    char *last = write_file("host: \"::1\"\n");
    assert_int_equal(LOAD(&c, NULL, &err, "m", "--config", first, "--config", last), 0);
    assert_int_equal(c.port, 8000);
    assert_string_equal(c.host, "::1");
    config_deinit(&c);
    unlink(first);
    unlink(last);
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
        {"--port=65536", "port must be a whole number from 0 to 65535, got \"65536\""},
        {"--port=-1", "got \"-1\""},
        {"--port=1x", "got \"1x\""},
        {"--max-body-bytes=9999999999999999999G", "got"},
        {"--device=tpu", "device must be one of auto|cpu|cuda, got \"tpu\""},
        {"--gpu-memory-utilization=nan", "must be a number from"},
        {"--no-such", "there is no option \"--no-such\""},
        {"--enable-prefix-caching=maybe", "must be true or false"},
        {"--port", "--port needs a value"},
        {"--config=/nonexistent/x.yaml", "/nonexistent/x.yaml"},
        {"--config", "--config needs a value"},
        {"--uds=", "uds is empty"},
        {"--uds=a\x1b[31m", "uds must be UTF-8 without control characters"},
        {"--chat-template=\xff", "chat-template must be UTF-8"},
        {"--host=\xc2\x9b", "host must be UTF-8"},
        {"\xc3(", "MODEL must be UTF-8"},
        {"-p", "there is no option \"-p\", they begin with --; a MODEL of that name is ./-p"},
        {"--config=/", "--config /: Is a directory"},
        {"--max-buffered-bytes=1MiB", "not even one body of --max-body-bytes 8388608 would fit"},
        {"--kv-offload-bytes=4GB", "(or like 64K, 64MiB, 4G), got \"4GB\""},
        {"--max-num-seq=3", "there is no option \"--max-num-seq\"; did you mean \"--max-num-seqs\"?"},
        {"--gpu-memory", "did you mean \"--gpu-memory-utilization\"?"},
        {"--enable-prefix-cahcing", "did you mean \"--enable-prefix-caching\"?"},
        {"--no-port", "there is no option \"--no-port\""},
        {"--pipeline-parallel-size=2", "--pipeline-parallel-size\"; flashd --help"},
        {"--tensor-parallel-size=9", "tensor-parallel-size must be a whole number of devices from 1 to 8"},
        {"--api-kye=secret", "there is no option \"--api-kye\"; did you mean \"--api-key\"?"},
        {"--seed=-2", "seed must be a whole number from -1"},
        {"--threads=-1", "threads must be a whole number of threads from 0 to"},
        {"--cuda-device=x", "cuda-device must be a whole number from 0 to 255"},
        {"--body-min-rate=x", "body-min-rate must be a whole number of bytes/s from 0"},
        {"--block-size=17", "block-size must be 16, got \"17\""},
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
        {"api-key: [1\n", ":2:"},
        {"port: [1, 2]\n", ":1: a sequence where one value belongs"},
        {"- port\n", "sequence in the wrong place"},
        {"port: &x 1\nthreads: *x\n", "an alias"},
        {"port: high\n", ":1: port must be"},
        {"api-key: []\n", ":1: an empty sequence"},
        {"api-key:\n", ":1: a name without a value"},
        {"uds: ~\n", ":1: a name without a value"},
        {"api-key: [a, null]\n", ":1: a name without a value"},
        {"api-key: \"null\"\n", "key 1 is \"null\""},
        {"api-key: \"\"\n", "api-key is empty"},
        {"host: \"a\\0b\"\n", ":1: a NUL character"},
        {"\"ho\\0st\": a\n", ":1: a NUL character"},
        {"uds: \"\\e[2J\"\n", "uds must be UTF-8"},
        {"model: \"\"\n", "model is empty"},
        {"max_num_seq: 3\n", "did you mean \"max-num-seqs\"?"},
        {"port: 1\nhost: \"::1\"\nport: 2\n", ":3: port stands in line 1, too"},
        {"max-num-seqs: 8\nmax_num_seqs: 9\n", ":2: max-num-seqs stands in line 1, too"},
        {"api-key: [a]\n\napi-key: b\n", ":3: api-key stands in line 1, too"},
        {"model: a\nmodel: b\n", ":2: model stands in line 1, too"},
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

/* Wherever they come from, keys that got lost, or that nobody could send, do not leave the server open. */
static void a_key_that_is_none_is_refused(void **state)
{
    (void)state;
    static const char *const values[] = {"",     ",",    "=,",     "a,",   ",a",       "a,,b",
                                         "null", "NULL", "a,null", "a b",  " a",       "a ",
                                         "a, b", "a\tb", "a\n",    "\x7f", "k\xc3\xa9"};
    for (size_t i = 0; i < array_length(values); i++) {
        char variable[64], argument[64], text[64], *environment[] = {variable, NULL};
        struct error err = {0};
        struct config c;
        snprintf(variable, sizeof variable, "FLASHD_API_KEY=%s", values[i]);
        snprintf(argument, sizeof argument, "--api-key=%s", values[i]);
        assert_int_not_equal(LOAD(&c, environment, &err, "m"), 0);
        config_deinit(&c);
        assert_int_not_equal(LOAD(&c, NULL, &err, "m", argument), 0);
        config_deinit(&c);
        if (strpbrk(values[i], "\t\n\x7f\xc3")) continue;
        snprintf(text, sizeof text, "api-key: \"%s\"\n", values[i]);
        char *path = write_file(text);
        assert_int_not_equal(LOAD(&c, NULL, &err, "m", "--config", path), 0);
        config_deinit(&c);
        unlink(path);
    }
}

static void keys_are_split_alike_everywhere(void **state)
{
    (void)state;
    static const char *const texts[] = {"api-key: one,two\n", "api-key: [one, two]\n",
                                        "api-key: \"one,two\"\n", "port: 1\n"};
    for (int i = 0; i < 6; i++) {
        char *environment[] = {i == 4 ? "FLASHD_API_KEY=one,two" : "HOME=/", NULL};
        char *path = write_file(texts[min_of(i, 3)]);
        struct error err = {0};
        struct config c;
        int status = i == 5 ? LOAD(&c, environment, &err, "m", "--config", path, "--api-key", "one,two")
                            : LOAD(&c, environment, &err, "m", "--config", path);
        if (i != 3) {
            assert_int_equal(status, 0);
            assert_int_equal(c.api_key.num_items, 2);
            assert_string_equal(c.api_key.items[0], "one");
            assert_string_equal(c.api_key.items[1], "two");
        }
        config_deinit(&c);
        unlink(path);
    }
}

static void keys_come_from_a_file(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int num_keys; /* 0: refused */
    } cases[] = {{"one\ntwo\n", 3}, {"one", 2},   {"\r\n\none\r\n\n", 2}, {"", 0},           {"\n\n", 0},
                 {"a b\n", 0},      {"a,b\n", 0}, {"one\nnull\n", 0},     {"k\xc3\xa9\n", 0}};
    for (size_t i = 0; i < array_length(cases); i++) {
        struct config c;
        struct error err = {0};
        char *path = write_file(cases[i].text);
        int status = LOAD(&c, NULL, &err, "m", "--api-key", "zero", "--api-key-file", path);
        assert_int_equal(status == 0, cases[i].num_keys > 0);
        if (status == 0) assert_int_equal(c.api_key.num_items, cases[i].num_keys);
        if (status == 0) assert_string_equal(c.api_key.items[1], "one");
        config_deinit(&c);
        unlink(path);
    }
    static char *const others[] = {"/nonexistent/keys", "/tmp", "/dev/zero", "/proc/self/mem", "/dev/null"};
    for (size_t i = 0; i < array_length(others); i++) {
        struct config c;
        struct error err = {0};
        assert_int_not_equal(LOAD(&c, NULL, &err, "m", "--api-key-file", others[i]), 0);
        assert_non_null(strstr(err.text, others[i]));
        config_deinit(&c);
    }
}

static void terms_stand_behind_keys(void **state)
{
    (void)state;
    struct config c;
    struct error err = {0};
    char *path = write_file("one name=acme weight=2.5\ttwo\n");
    assert_int_not_equal(LOAD(&c, NULL, &err, "m", "--api-key-file", path), 0);
    assert_null(strstr(err.text, "two")); /* it may be a key */
    config_deinit(&c);
    unlink(path);
    path = write_file("one name=acme  weight=2.5 max-seqs=3 max-tokens=1000\ntwo\n");
    assert_int_equal(LOAD(&c, NULL, &err, "m", "--api-key-file", path), 0);
    assert_string_equal(c.api_key.items[0], "one");
    struct api_key_terms one = api_keys_terms(&c, 0), two = api_keys_terms(&c, 1);
    assert_string_equal(one.name, "acme");
    assert_true(one.weight == 2.5 && one.max_seqs == 3 && one.max_tokens == 1000);
    assert_true(two.weight == 1 && two.max_seqs == 0 && two.max_tokens == 0 && !two.name[0]);
    assert_true(api_keys_terms(&c, -1).weight == 1);
    config_deinit(&c);
    unlink(path);
    static const char *const wrong[] = {
        "weight=0", "weight=-1",  "weight=nan",   "weight=1001",
        "weight=",  "max-seqs=0", "max-seqs=1e3", "max-tokens=x",
        "name=",    "name=a/b",   "Weight=1",     "max-seqs=99999999999999999999"};
    for (size_t i = 0; i < array_length(wrong); i++) {
        char entry[64];
        snprintf(entry, sizeof entry, "key %s", wrong[i]);
        assert_int_not_equal(LOAD(&c, NULL, &err, "m", "--api-key", entry), 0);
        config_deinit(&c);
    }
}

/* The sentence names file and line, and shows no key. */
static void keys_and_their_names_stand_once(void **state)
{
    (void)state;
    static const char digest[] =
        "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"; /* secret */
    char both_forms[128];
    snprintf(both_forms, sizeof both_forms, "%s\n\nsecret\n", digest);
    const struct {
        const char *text, *said;
        int line;
        bool in_yaml;
    } cases[] = {
        {"secret name=a\r\n\r\nsecret name=b\n", "key 2 is the same as key 1 (", 3, false},
        {"a\nsecret\nsecret\n", "key 3 is the same as key 2 (", 3, false},
        {both_forms, "key 2 is the same as key 1 (", 3, false},
        {"secret name=a\nother name=b\nb name=a", "key 3 has the name of key 1 (", 3, false},
        {"a\n\nsecret weight=0\n", "behind key 2 stands weight=0; name=NAME, ", 3, false},
        {"a\nb max-seq=8\n", "behind key 2 stands max-seq=8; ", 2, false},
        {"a\nb admn\n", "behind key 2 stands admn; ", 2, false},
        {"a\nb secret\n", "behind key 2 stands a word that is none of these; ", 2, false},
        {"a\nb secret=\n", "behind key 2 stands a word that is none of these; ", 2, false},
        {"a\nb name=x name=y\n", "behind key 2 name stands twice", 2, false},
        {"a\nb max-seqs=1 admin max-seqs=9\n", "behind key 2 max-seqs stands twice", 2, false},
        {"a\nb admin admin\n", "behind key 2 admin stands twice", 2, false},
        {"a\nnull\n", "key 2 is \"null\"", 2, false},
        {"a\nsha256:1\n", "key 2 begins with sha256:", 2, false},
        {"a\n\xff\n", "key 2 must be 1 to", 2, false},
        {"port: 1\napi-key:\n- secret\n- secret name=a\n", "key 2 is the same as key 1 (", 4, true},
        {"api-key: [a, a]\n", "key 2 is the same as key 1 (", 1, true},
        {"port: 1\napi-key: [a name=x, secret name=x]\n", "key 2 has the name of key 1 (", 2, true},
        {"port: 1\napi-key:\n- a\n- secret admin=1\n", "behind key 2 stands admin=1; ", 4, true},
    };
    for (size_t i = 0; i < array_length(cases); i++) {
        char place[96];
        struct config c;
        struct error err = {0};
        char *path = write_file(cases[i].text);
        int status = LOAD(&c, NULL, &err, "m", cases[i].in_yaml ? "--config" : "--api-key-file", path);
        snprintf(place, sizeof place, "%s:%d: api-key: ", path, cases[i].line);
        assert_int_equal(status, STATUS_INVALID);
        assert_memory_equal(err.text, place, strlen(place));
        assert_non_null(strstr(err.text, cases[i].said));
        assert_null(strstr(err.text, "secret"));
        config_deinit(&c);
        unlink(path);
    }
    struct config c;
    struct error err = {0};
    assert_int_not_equal(LOAD(&c, NULL, &err, "m", "--api-key", "secret", "secret"), 0);
    assert_string_equal(err.text, "command line: api-key: key 2 is the same as key 1 (command line)");
    config_deinit(&c);
}

static void what_ps_shows_has_no_keys(void **state)
{
    (void)state;
    char args[][20] = {"--api-key=secret1", "m.gguf", "--api-key", "secret2", "secret3", "--port", "81"};
    char *list[array_length(args)];
    for (size_t i = 0; i < array_length(args); i++) list[i] = args[i];
    struct config c;
    struct error err = {0};
    assert_int_equal(load(&c, NULL, &err, array_length(args), list), 0);
    api_keys_hide(&c, array_length(args), list);
    for (size_t i = 0; i < array_length(args); i++) assert_null(strstr(args[i], "secret"));
    assert_string_equal(args[1], "m.gguf");
    assert_string_equal(args[6], "81");
    assert_int_equal(c.api_key.num_items, 3);
    assert_string_equal(c.api_key.items[2], "secret3");
    config_deinit(&c);
}

static void a_variable_that_looks_like_a_slip_is_refused(void **state)
{
    (void)state;
    static const struct {
        char *variable;
        const char *expected; /* NULL: somebody else's */
    } cases[] = {
        {"FLASHD_API_KYE=x", "FLASHD_API_KYE: there is no option \"api-kye\"; did you mean \"api-key\"?"},
        {"FLASHD_APIKEY=x", "did you mean \"api-key\"?"},
        {"FLASHD_MAX_NUM_SEQ=1", "did you mean \"max-num-seqs\"?"},
        {"FLASHD_SERVICE_HOST=10.0.0.1", NULL},
        {"FLASHD_PORT_8000_TCP_ADDR=10.0.0.1", NULL},
        {"FLASHD_PORT=tcp://10.0.0.1:80", NULL},
        {"FLASHD_A_PORT=udp://10.0.0.1:80", NULL},
        {"FLASHD_PORT=10.0.0.1:80", "port must be"},
        {"FLASHD_BIN=x", NULL},
        {"FLASHD_MODEL=", "FLASHD_MODEL: model is empty"},
        {"FLASHD_=x", NULL},
        {"FLASHD_API_KYE", NULL},
        {"FLASHD_UDS=", "FLASHD_UDS: uds is empty"}};
    for (size_t i = 0; i < array_length(cases); i++) {
        char *environment[] = {cases[i].variable, NULL};
        struct config c;
        struct error err = {0};
        int status = LOAD(&c, environment, &err, "m");
        assert_int_equal(status == 0, cases[i].expected == NULL);
        if (cases[i].expected && !strstr(err.text, cases[i].expected)) fail_msg("%s", err.text);
        config_deinit(&c);
    }
}

static void lists_take_several_arguments(void **state)
{
    (void)state;
    static const struct {
        char *args[7];
        const char *names, *model;
    } cases[] = {
        {{"m", "--served-model-name", "a", "b"}, "a b", "m"},
        {{"--served-model-name", "a", "m"}, "a", "m"},
        {{"--served-model-name", "a", "b", "m"}, "a b", "m"},
        {{"--served-model-name", "a", "m", "--port", "1"}, "a", "m"},
        {{"--served-model-name", "a", "b", "--port", "1", "m"}, "a b", "m"},
        {{"m", "--served-model-name", "a", "--port", "1", "--served-model-name", "b"}, "a b", "m"},
        {{"m", "--served-model-name=a", "--served-model-name", "b,c"}, "a b c", "m"},
        {{"--served-model-name", "--x", "m"}, "--x", "m"},
        {{"m", "--log-requests", "n"}, NULL, NULL},
        {{"m", "--port", "1", "n"}, NULL, NULL},
        {{"m", "--served-model-name"}, NULL, NULL},
        {{"m", "--served-model-name", "a", ""}, NULL, NULL},
        {{"m", "--served-model-name=a", "n"}, NULL, NULL},
    };
    for (size_t i = 0; i < array_length(cases); i++) {
        int n = 0;
        while (n < 7 && cases[i].args[n]) n++;
        struct config c;
        struct error err = {0};
        int status = load(&c, NULL, &err, n, (char **)(uintptr_t)cases[i].args);
        if ((status == 0) != (cases[i].names != NULL)) fail_msg("case %zu: %s", i, err.text);
        char names[64] = "";
        for (int k = 0; k < c.served_model_name.num_items; k++)
            sprintf(names + strlen(names), "%s%s", k ? " " : "", c.served_model_name.items[k]);
        if (status == 0) {
            assert_string_equal(names, cases[i].names);
            assert_string_equal(c.model, cases[i].model);
        }
        config_deinit(&c);
    }
}

/* Where memory is little, what is held for clients is, too, but not what somebody asked for. */
static void little_memory_lowers_defaults(void **state)
{
    (void)state;
    char *args[] = {"--response-store-bytes=50MiB", "--max-json-nodes=900000", "m"};
    struct config c;
    struct error err = {0};
    assert_int_equal(config_init(&c, &err), STATUS_OK);
    config_fit_memory(&c, 16 * GIB);
    assert_true(c.max_buffered_bytes == 256 * MIB && c.response_store_bytes == 64 * MIB);
    assert_int_equal(c.max_json_nodes, 1000000);
    config_fit_memory(&c, 320 * MIB);
    assert_true(c.max_buffered_bytes == 40 * MIB && c.response_store_bytes == 10 * MIB);
    assert_int_equal(c.max_json_nodes, 20480);
    config_deinit(&c);
    assert_int_equal(config_init(&c, &err), STATUS_OK);
    assert_int_equal(config_load(&c, (int)array_length(args), args, NULL, &err), STATUS_OK);
    config_fit_memory(&c, 32 * MIB);
    assert_true(c.max_buffered_bytes == 17 * MIB && c.response_store_bytes == 50 * MIB);
    assert_int_equal(c.max_json_nodes, 900000);
    config_deinit(&c);
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
        cmocka_unit_test(the_file_may_be_named_by_the_environment),
        cmocka_unit_test(the_model_may_be_named_by_the_environment),
        cmocka_unit_test(of_several_files_the_last_is_read),
        cmocka_unit_test(lists_flags_and_sizes),
        cmocka_unit_test(what_is_wrong_is_said),
        cmocka_unit_test(a_bad_file_names_its_line),
        cmocka_unit_test(a_key_that_is_none_is_refused),
        cmocka_unit_test(keys_are_split_alike_everywhere),
        cmocka_unit_test(keys_come_from_a_file),
        cmocka_unit_test(terms_stand_behind_keys),
        cmocka_unit_test(keys_and_their_names_stand_once),
        cmocka_unit_test(what_ps_shows_has_no_keys),
        cmocka_unit_test(a_variable_that_looks_like_a_slip_is_refused),
        cmocka_unit_test(lists_take_several_arguments),
        cmocka_unit_test(little_memory_lowers_defaults),
        cmocka_unit_test(the_example_file_loads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
