/* Names on the Hugging Face hub, and what of a cache they are found as. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "base/status.h"
#include "files/hub_cache.h"
#include "files/model_path.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"

static char root[] = "/tmp/flashd-hub-XXXXXX";

static void make(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/hub/%s", root, name);
    for (char *slash = path + sizeof root; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        mkdir(path, 0700);
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void expect_found(const char *text, const char *file)
{
    struct hub_name name;
    struct error err = {0};
    char *path = NULL, expected[512];
    assert_true(hub_name_parse(text, &name));
    if (hub_cache_find(&name, &path, &err)) fail_msg("%s: %s", text, err.text);
    snprintf(expected, sizeof expected, "%s/hub/%s", root, file);
    assert_string_equal(path, expected);
    free(path);
}

static void expect_refused(const char *text, const char *sentence)
{
    struct error err = {0};
    char *path = NULL;
    assert_int_equal(model_path_find(text, &path, &err), STATUS_NOT_FOUND);
    free(path);
    if (!strstr(err.text, sentence)) fail_msg("%s: %s", text, err.text);
}

static int make_cache(void **state)
{
    (void)state;
    if (!mkdtemp(root) || setenv("HF_HOME", root, 1) || unsetenv("HF_HUB_CACHE")) return -1;
    make("models--a--plain/refs/main", COMMIT "\n");
    make("models--a--plain/refs/v2", "fedc\n");
    make("models--a--plain/snapshots/" COMMIT "/config.json", "{}");
    make("models--a--plain/snapshots/" COMMIT "/x-Q8_0.gguf", "GGUF");
    make("models--a--plain/snapshots/fedc/config.json", "{}");
    make("models--a--files/refs/main", "f1");
    make("models--a--files/snapshots/f1/README.md", "");
    make("models--a--files/snapshots/f1/m-BF16.gguf", "GGUF");
    make("models--a--files/snapshots/f1/m-IQ4_XS.gguf", "GGUF");
    make("models--a--files/snapshots/f1/m-Q4_K_M.gguf", "GGUF");
    make("models--a--files/snapshots/f1/mmproj-Q6_K.gguf", "GGUF");
    make("models--a--files/snapshots/f1/Q8_0/m-Q8_0-00002-of-00002.gguf", "GGUF");
    make("models--a--files/snapshots/f1/Q8_0/m-Q8_0-00001-of-00002.gguf", "GGUF");
    make("models--a--one/refs/main", "f2");
    make("models--a--one/snapshots/f2/z.gguf", "GGUF");
    make("models--a--one/snapshots/f2/y.gguf", "GGUF");
    make("models--a--empty/refs/main", "f3");
    make("models--a--empty/snapshots/f3/README.md", "");
    make("models--a--gone/refs/main", "f4");
    make("models--a--bad/refs/main", "../../models--a--plain/snapshots/" COMMIT);
    return 0;
}

static int remove_cache(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static void names_are_read(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",       "a",     "/a",          "a/",      "a/b/c",     "./a",
                                        "../a",   "a/..",  "a/.b",        "a/b@",    "a/b:",      "a/b:c@d",
                                        "a/b@c:", "a/b c", "a/b@refs/pr", "a/b:c/d", "a/\xc3\xa9"};
    struct hub_name name;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (hub_name_parse(wrong[i], &name)) fail_msg("\"%s\" is a name", wrong[i]);
    assert_true(hub_name_parse("Qwen/Qwen3-0.6B", &name));
    assert_string_equal(name.model, "Qwen/Qwen3-0.6B");
    assert_string_equal(name.revision, "main");
    assert_string_equal(name.quant, "");
    assert_true(hub_name_parse("a_b/c.d@v1.0:Q4_K_M", &name));
    assert_string_equal(name.model, "a_b/c.d");
    assert_string_equal(name.revision, "v1.0");
    assert_string_equal(name.quant, "Q4_K_M");
    char long_name[400] = "a/";
    memset(long_name + 2, 'b', sizeof long_name - 3);
    assert_false(hub_name_parse(long_name, &name));
}

static void directories_are_found(void **state)
{
    (void)state;
    expect_found("a/plain", "models--a--plain/snapshots/" COMMIT);
    expect_found("a/plain@" COMMIT, "models--a--plain/snapshots/" COMMIT);
    expect_found("a/plain@v2", "models--a--plain/snapshots/fedc");
    expect_found("a/plain:q8_0", "models--a--plain/snapshots/" COMMIT "/x-Q8_0.gguf");
}

static void files_are_found(void **state)
{
    (void)state;
    expect_found("a/files", "models--a--files/snapshots/f1/m-Q4_K_M.gguf");
    expect_found("a/files:bf16", "models--a--files/snapshots/f1/m-BF16.gguf");
    expect_found("a/files:IQ4_XS", "models--a--files/snapshots/f1/m-IQ4_XS.gguf");
    expect_found("a/files:Q8_0", "models--a--files/snapshots/f1/Q8_0/m-Q8_0-00001-of-00002.gguf");
    expect_found("a/one", "models--a--one/snapshots/f2/y.gguf");
}

static void what_is_not_there_is_named(void **state)
{
    (void)state;
    expect_refused("a/files:Q6_K", "has no GGUF file of Q6_K; there are ");
    expect_refused("a/files:K_M4", "there are ");
    expect_refused("a/empty", "neither a config.json nor a GGUF file");
    expect_refused("a/gone", "nor is it in the Hugging Face cache");
    expect_refused("a/bad", "nor is it in the Hugging Face cache");
    expect_refused("a/other@v3", "`hf download a/other --revision v3`");
    expect_refused("/no/such/file", "No such file");
}

static void the_environment_says_where(void **state)
{
    (void)state;
    char folder[128], small[8];
    setenv("HF_HUB_CACHE", "/elsewhere", 1);
    assert_true(hub_cache_folder(folder, sizeof folder));
    assert_string_equal(folder, "/elsewhere");
    assert_false(hub_cache_folder(small, sizeof small));
    unsetenv("HF_HUB_CACHE");
    unsetenv("HF_HOME");
    setenv("XDG_CACHE_HOME", "", 1);
    setenv("HOME", "/home/a", 1);
    assert_true(hub_cache_folder(folder, sizeof folder));
    assert_string_equal(folder, "/home/a/.cache/huggingface/hub");
    unsetenv("HOME");
    assert_false(hub_cache_folder(folder, sizeof folder));
    expect_refused("a/plain", "nor is it in the Hugging Face cache, and flashd fetches none");
    setenv("HF_HOME", root, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_read),
        cmocka_unit_test(directories_are_found),
        cmocka_unit_test(files_are_found),
        cmocka_unit_test(what_is_not_there_is_named),
        cmocka_unit_test(the_environment_says_where),
    };
    return cmocka_run_group_tests(tests, make_cache, remove_cache);
}
