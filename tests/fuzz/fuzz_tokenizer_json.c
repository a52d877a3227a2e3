/* A tokenizer.json (or, in the form of memory_files.h, with a tokenizer_config.json beside it): loaded, and
 * if it loads, used on texts that hold its own tokens. */
#include "fuzz/memory_files.h"

#include "fuzz/check_decoding.h"

enum { TOKENS_MAX = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void encode(const struct tokenizer *t, const char *text, size_t n, unsigned flags)
{
    struct token_list list = {0};
    int status = tokenizer_encode(t, text, n, NULL, 0, flags, TOKENS_MAX, &list);
    assert_always(status == 0 || status == STATUS_LIMIT || status == STATUS_NO_MEMORY);
    for (int32_t i = 0; i < list.num_ids; i++)
        assert_always(list.ids[i] >= 0 && list.ids[i] < tokenizer_vocab_size(t));
    check_decoding(t, list.ids, list.num_ids, false);
    check_decoding(t, list.ids, list.num_ids, true);
    token_list_deinit(&list);
}

static void encode_pair(const struct tokenizer *t, const char *first, const char *second)
{
    const struct tokenizer_pair pair = {{first, second}, {strlen(first), strlen(second)}};
    struct token_list list = {0};
    int32_t second_begin;
    if (!tokenizer_has_pairs(t)) return;
    int status = tokenizer_encode_pair(t, &pair, TOKENS_MAX, &list, &second_begin);
    assert_always(status == 0 || status == STATUS_LIMIT || status == STATUS_NO_MEMORY);
    assert_always(status != 0 || (second_begin >= 0 && second_begin <= list.num_ids));
    for (int32_t i = 0; i < list.num_ids; i++)
        assert_always(list.ids[i] >= 0 && list.ids[i] < tokenizer_vocab_size(t));
    token_list_deinit(&list);
}

static void use(const struct tokenizer *t, const char *own, size_t own_bytes)
{
    static const char text[] = "Hello, w\xC3\xB6rld's <s>  \n\n 12345 \xE2\x96\x81 \xF0\x9F\x98\x80 aaaa";
    encode(t, text, sizeof text - 1, TOKENIZER_ADD_SPECIAL);
    encode_pair(t, text, "");
    encode_pair(t, "", text);
    if (is_valid_text(own, own_bytes)) encode(t, own, own_bytes, TOKENIZER_PARSE_SPECIAL);
    int32_t last = tokenizer_vocab_size(t) - 1, some[64], count = 0;
    for (int32_t id = -1; id <= last + 1 && count < 64; id += max_of(1, last / 60)) some[count++] = id;
    check_decoding(t, some, count, false);
    assert_always(tokenizer_bos_id(t) >= -1 && tokenizer_bos_id(t) <= last);
    assert_always(tokenizer_eos_id(t) >= -1 && tokenizer_eos_id(t) <= last);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tokenizer *t = NULL;
    struct error err = {0};
    memory_files_add("tokenizer.json", "", 0, 0);
    if (size > 3 && !memcmp(data, "== ", 3))
        memory_files_add_parts(data, size);
    else
        memory_files_add("tokenizer.json", data, size, 0);
    if (tokenizer_open_directory(MEMORY_DIRECTORY, &t, &err) == 0) {
        use(t, (const char *)data, min_of(size, (size_t)512));
        tokenizer_close(t);
    } else {
        assert_always(err.text[0]);
    }
    memory_files_clear();
    return 0;
}
