/* Tokens around a gap: by the names that families gave them, and by a GGUF file's keys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "files/gguf.h"
#include "text/fim_tokens.h"
#include "unit/text/small_tokenizer.h"

enum { NAMES_MAX = 8 };

/* Of a tokenizer with these control tokens, ids from first on. */
static struct fim_tokens find(const char *const *names, int *first)
{
    struct small_added added[NAMES_MAX];
    struct fim_tokens f;
    int n = 0;
    for (; names[n]; n++) added[n] = (struct small_added){.content = names[n], .special = true};
    struct tokenizer *t = open_small(true, NULL, 0, added, n, first);
    fim_tokens_find(t, NULL, &f);
    tokenizer_close(t);
    return f;
}

static void families_are_known_by_their_names(void **state)
{
    (void)state;
    static const struct {
        const char *names[NAMES_MAX]; /* prefix, suffix, middle, then ends */
        int num_ends;
        bool suffix_first, has_middle;
    } families[] = {
        {{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>", "<|endoftext|>"},
         2,
         false,
         true},
        {{"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<fim_pad>"}, 1, false, true},
        {{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", "<|EOT|>"}, 1, false, true},
        {{"▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"}, 1, false, true},
        {{"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"}, 0, false, true},
        {{"<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>"}, 0, true, true},
        {{"[PREFIX]", "[SUFFIX]", "[MIDDLE]"}, 0, true, false},
    };
    for (size_t i = 0; i < array_length(families); i++) {
        int first;
        const struct fim_tokens f = find(families[i].names, &first);
        if (f.prefix != first || f.suffix != first + 1 ||
            f.middle != (families[i].has_middle ? first + 2 : -1) || !fim_tokens_fill(&f))
            fail_msg("%s", families[i].names[0]);
        assert_true(f.suffix_first == families[i].suffix_first && f.repository == -1 && f.file == -1);
        assert_int_equal(f.num_ends, families[i].num_ends);
        for (int k = 0; k < f.num_ends; k++) assert_int_equal(f.ends[k], first + 3 + k);
    }
}

static void what_is_missing_is_missing(void **state)
{
    (void)state;
    static const char *const none[] = {NULL}, *const half[] = {"<fim_prefix>", "<fim_middle>", NULL},
                             *const no_middle[] = {"<fim_prefix>", "<fim_suffix>", "<|repo_name|>",
                                                   "<|file_sep|>", NULL};
    int first;
    struct fim_tokens f = find(none, &first);
    assert_true(f.prefix == -1 && f.suffix == -1 && f.middle == -1 && f.num_ends == 0 &&
                !fim_tokens_fill(&f));
    f = find(half, &first);
    assert_false(fim_tokens_fill(&f));
    f = find(no_middle, &first);
    assert_true(!fim_tokens_fill(&f) && f.repository == first + 2 && f.file == first + 3);
}

/* Keys win over names, the newer over the older; one that is no token is none. */
static void a_files_keys_come_first(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "<fim_prefix>", "<fim_suffix>", "<fim_middle>", "c"};
    const int32_t types[] = {1, 1, 3, 3, 3, 3};
    struct gguf_builder g;
    struct buffer file;
    char directory[TEST_PATH_BYTES], path[TEST_PATH_BYTES];
    struct gguf *gguf = NULL;
    struct tokenizer *t = NULL;
    struct fim_tokens f;
    struct error err = {0};
    gguf_builder_init(&g);
    buffer_init(&file, TEST_FILE_BYTES_MAX);
    gguf_put_text(&g, "tokenizer.ggml.model", "gpt2");
    gguf_put_text(&g, "tokenizer.ggml.pre", "llama-bpe");
    gguf_put_texts(&g, "tokenizer.ggml.tokens", names, array_length(names));
    gguf_put_key(&g, "tokenizer.ggml.token_type", 9);
    put_u32(&g.keys, 5);
    put_u64(&g.keys, array_length(types));
    buffer_append(&g.keys, types, sizeof types);
    gguf_put_texts(&g, "tokenizer.ggml.merges", NULL, 0);
    gguf_put_u32(&g, "tokenizer.ggml.fim_pre_token_id", 5);
    gguf_put_u32(&g, "tokenizer.ggml.prefix_token_id", 4);
    gguf_put_u32(&g, "tokenizer.ggml.suffix_token_id", 2);
    gguf_put_u32(&g, "tokenizer.ggml.fim_mid_token_id", 6);
    gguf_put_u32(&g, "tokenizer.ggml.fim_pad_token_id", 1);
    gguf_put_u32(&g, "tokenizer.ggml.eot_token_id", 0xFFFFFFFF);
    gguf_finish(&g, &file);
    make_directory(directory);
    write_file(directory, "m.gguf", file.data, file.num_bytes);
    int status = gguf_open(join_path(path, directory, "m.gguf"), &gguf, &err);
    if (status == 0) status = tokenizer_open_gguf(gguf, &t, &err);
    if (status) fail_msg("%s", err.text);
    fim_tokens_find(t, gguf, &f);
    assert_true(f.prefix == 5 && f.suffix == 2 && f.middle == 4);
    assert_true(f.num_ends == 1 && f.ends[0] == 1);
    tokenizer_close(t);
    gguf_close(gguf);
    remove_directory(directory);
    gguf_builder_deinit(&g);
    buffer_deinit(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_are_known_by_their_names),
        cmocka_unit_test(what_is_missing_is_missing),
        cmocka_unit_test(a_files_keys_come_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
