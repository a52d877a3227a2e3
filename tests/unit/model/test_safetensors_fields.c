/* Every number and every string of a Hugging Face directory's config.json, index and safetensors header is
 * replaced by each value that can do harm there, the header's size likewise, and the file is cut at every
 * edge: each time a sentence or a model whose every weight can be read, by the loader and by `flashd
 * inspect`. Files are heap blocks of exactly their size (fuzz/memory_files.h), so that the sanitized build
 * sees a read beyond the end. */
#define LLVMFuzzerTestOneInput use_directory /* the fuzzer's own oracle */
#include "fuzz/fuzz_safetensors.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "quiet_inspect.h"

enum { SEED_BYTES_MAX = 64 << 10 };

static char seed[SEED_BYTES_MAX];
static int num_opened, num_refused;

/* The files are there. Returns whether they are a model. */
static bool try_files(void)
{
    bool opened = inspect_opens(MEMORY_DIRECTORY);
    memory_files_clear();
    num_opened += opened;
    num_refused += !opened;
    return opened;
}

static bool try_text(const char *text, size_t n)
{
    use_directory((const uint8_t *)text, n);
    memory_files_add("generation_config.json", "{}", 2, 0);
    memory_files_add_parts((const uint8_t *)text, n);
    return try_files();
}

static void read_seed(const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "tests/fuzz/seeds/safetensors/%s", name);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s: run in the project's folder", path);
    size_t n = fread(seed, 1, sizeof seed - 1, f);
    fclose(f);
    seed[n] = '\0';
    num_opened = num_refused = 0;
}

/* ---- one token of the JSON replaced ---- */

/* The size of the number or string that begins at text; 0: none does. */
static size_t token_bytes(const char *text)
{
    if (*text != '"') return strspn(text, "0123456789+-.eE");
    return strcspn(text + 1, "\"") + 2; /* there is no escape in a seed */
}

static const char *const replacements[] = {"0",
                                           "1",
                                           "-1",
                                           "2",
                                           "3",
                                           "7",
                                           "9",
                                           "15",
                                           "17",
                                           "1024",
                                           "2147483647",
                                           "2147483648",
                                           "4294967295",
                                           "4294967296",
                                           "9007199254740993",
                                           "9223372036854775807",
                                           "9223372036854775808",
                                           "18446744073709551615",
                                           "18446744073709551616",
                                           "-9223372036854775808",
                                           "1.5",
                                           "1e308",
                                           "1e400",
                                           "-0",
                                           "0.0",
                                           "1e-320",
                                           "\"\"",
                                           "\"x\"",
                                           "\"BF16\"",
                                           "\"F16\"",
                                           "\"F32\"",
                                           "\"F64\"",
                                           "\"F8_E4M3\"",
                                           "\"../x\"",
                                           "\"model.norm.weight\"",
                                           "\"default\"",
                                           "null",
                                           "true",
                                           "false",
                                           "[]",
                                           "{}",
                                           "[[]]",
                                           "[0,0]",
                                           "[4294967296,4294967296,16]",
                                           ""};

static void replace_token(size_t at, size_t n, const char *by, bool must_refuse)
{
    char text[SEED_BYTES_MAX];
    size_t by_bytes = strlen(by), rest = strlen(seed + at + n);
    if (by_bytes == n && !memcmp(by, seed + at, n)) return;
    memcpy(text, seed, at);
    memcpy(text + at, by, by_bytes);
    memcpy(text + at + by_bytes, seed + at + n, rest);
    bool is_number = by[0] != '"' && strspn(by, "0123456789") == by_bytes;
    if (try_text(text, at + by_bytes + rest) && must_refuse && is_number)
        fail_msg("\"%.*s\" at %zu replaced by %s opens", (int)n, seed + at, at, by);
}

static void every_token(const char *name)
{
    read_seed(name);
    assert_true(try_text(seed, strlen(seed)));
    bool in_header = false;
    int num_tokens = 0;
    for (size_t at = 0; seed[at]; at++) {
        if (!strncmp(seed + at, "== ", 3)) {
            size_t line_bytes = strcspn(seed + at, "\n");
            in_header = memchr(seed + at, '+', line_bytes) != NULL;
            at += line_bytes;
            continue;
        }
        size_t n = token_bytes(seed + at);
        if (n == 0 || seed[at] == 'e') continue; /* of true and false */
        /* A number of a header is a shape or an offset, and only one value of each is right. */
        for (size_t i = 0; i < array_length(replacements); i++)
            replace_token(at, n, replacements[i], in_header && seed[at] != '"');
        num_tokens++;
        at += n - 1;
    }
    print_message("%s: %d tokens, %d directories opened, %d refused\n", name, num_tokens, num_opened,
                  num_refused);
    assert_true(num_tokens > 50 && num_opened > 100 && num_refused > num_opened);
}

static void every_token_of_each_seed(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "index", "qwen3", "rope", "yarn"};
    for (size_t i = 0; i < array_length(names); i++) every_token(names[i]);
}

/* ---- the header's size, and files that end early ---- */

static char config_json[4096];
static struct {
    uint64_t header_bytes;
    char rest[SEED_BYTES_MAX];
} file;
static size_t file_bytes;

static void split_seed(void)
{
    read_seed("llama");
    const char *first = strstr(seed, "{"), *mark = strstr(seed, "== model.safetensors+");
    const char *header = strstr(mark, "{"), *end = strchr(header, '\n');
    snprintf(config_json, sizeof config_json, "%.*s", (int)(mark - first), first);
    memset(&file, 0, sizeof file);
    file.header_bytes = (uint64_t)(end - header);
    memcpy(file.rest, header, file.header_bytes);
    file_bytes = sizeof file.header_bytes + file.header_bytes + (size_t)atoi(strchr(mark, '+') + 1);
}

static bool try_cut(size_t num_bytes)
{
    memory_files_add("config.json", config_json, strlen(config_json), 0);
    memory_files_add("model.safetensors", &file, num_bytes, 0);
    return try_files();
}

static void every_size_of_the_header(void **state)
{
    (void)state;
    split_seed();
    uint64_t n = file.header_bytes, right = n;
    assert_true(try_cut(file_bytes));
    const uint64_t sizes[] = {0,
                              1,
                              2,
                              n - 1,
                              n + 1,
                              n / 2,
                              2 * n,
                              file_bytes - 9,
                              file_bytes - 8,
                              file_bytes - 7,
                              file_bytes,
                              UINT32_MAX,
                              1ull << 32,
                              100u << 20,
                              (100u << 20) + 1,
                              INT64_MAX,
                              1ull << 63,
                              UINT64_MAX - 8,
                              UINT64_MAX - 7,
                              UINT64_MAX};
    for (size_t i = 0; i < array_length(sizes); i++) {
        file.header_bytes = sizes[i];
        assert_false(try_cut(file_bytes));
    }
    for (int bit = 0; bit < 64; bit++) {
        file.header_bytes = right ^ 1ull << bit;
        assert_false(try_cut(file_bytes));
    }
}

static void every_cut_and_every_flip(void **state)
{
    (void)state;
    split_seed();
    for (size_t n = 0; n < file_bytes; n++) assert_false(try_cut(n));
    char *bytes = (char *)&file;
    for (size_t at = 0; at < sizeof file.header_bytes + file.header_bytes; at++)
        for (int bit = 0; bit < 8; bit += 3) {
            bytes[at] = (char)(bytes[at] ^ 1 << bit);
            try_cut(file_bytes);
            bytes[at] = (char)(bytes[at] ^ 1 << bit);
        }
    assert_true(try_cut(file_bytes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_token_of_each_seed),
        cmocka_unit_test(every_size_of_the_header),
        cmocka_unit_test(every_cut_and_every_flip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
