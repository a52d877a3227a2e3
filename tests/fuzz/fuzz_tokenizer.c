/* Texts and ids through two small tokenizers, one on bytes and one on text with byte fallback. The first byte
 * of the input has the options, the second and third an untrusted range; the rest is the text, or ids when it
 * is no UTF-8. */
#include "fuzz/check_decoding.h"
#include "fuzz/fuzz_server.h"

enum { TOKENS_MAX = 1 << 16, OPTION_TEXT_LEVEL = 4, OPTION_LIMIT = 8, FEW_TOKENS = 5 };

static void check_ids(const struct tokenizer *t, const uint8_t *data, size_t size)
{
    int32_t ids[256], count = 0;
    for (size_t i = 0; i + 1 < size && count < 256; i += 2)
        ids[count++] = (data[i] | data[i + 1] << 8) % (tokenizer_vocab_size(t) + 2) - 1;
    check_decoding(t, ids, count, false);
    check_decoding(t, ids, count, true);
}

/* Byte level: the text comes back as it was. */
static void check_text(const struct tokenizer *t, const struct token_list *list, const char *text, size_t n)
{
    struct buffer back;
    buffer_init(&back, DECODED_BYTES_MAX);
    tokenizer_decode(t, list->ids, list->num_ids, false, &back);
    assert_always(back.num_bytes == n && (n == 0 || !memcmp(back.data, text, n)));
    buffer_deinit(&back);
}

static int count_special(const struct tokenizer *t, const struct token_list *list)
{
    int count = 0;
    for (int32_t i = 0; i < list->num_ids; i++) {
        assert_always(list->ids[i] >= 0 && list->ids[i] < tokenizer_vocab_size(t));
        count += tokenizer_is_special(t, list->ids[i]);
    }
    return count;
}

static struct token_list encode(const struct tokenizer *t, const char *text, size_t n,
                                const struct text_range *range, unsigned flags, int32_t max_tokens)
{
    struct token_list list = {0};
    int status = tokenizer_encode(t, text, n, range, range ? 1 : 0, flags, max_tokens, &list);
    assert_always(status == 0 || (status == STATUS_LIMIT && list.num_ids == max_tokens));
    return list;
}

static void check_limit(const struct tokenizer *t, const char *text, size_t n, unsigned flags,
                        const struct token_list *whole)
{
    struct token_list few = encode(t, text, n, NULL, flags, FEW_TOKENS);
    assert_always(few.num_ids <= FEW_TOKENS && few.num_ids <= whole->num_ids);
    assert_always(few.num_ids == 0 || !memcmp(few.ids, whole->ids, (size_t)few.num_ids * sizeof *few.ids));
    token_list_deinit(&few);
}

static void check_encoding(const struct tokenizer *t, bool byte_level, const uint8_t *data, size_t size)
{
    unsigned flags = data[0] & 3u;
    const char *text = (const char *)data + 3;
    size_t n = size - 3, a = min_of((size_t)data[1], n), b = min_of((size_t)data[2], n);
    struct text_range all = {0, n}, some = {min_of(a, b), max_of(a, b)};
    struct token_list list = encode(t, text, n, NULL, flags, TOKENS_MAX);
    check_decoding(t, list.ids, list.num_ids, flags & 1);
    if (byte_level && flags == 0) check_text(t, &list, text, n);
    if (data[0] & OPTION_LIMIT) check_limit(t, text, n, flags, &list);
    int num_added = flags & TOKENIZER_ADD_SPECIAL && !byte_level ? 1 : 0; /* <s> */
    if (!(flags & TOKENIZER_PARSE_SPECIAL)) assert_always(count_special(t, &list) == num_added);
    token_list_deinit(&list);
    list = encode(t, text, n, &all, flags, TOKENS_MAX);
    assert_always(count_special(t, &list) == num_added);
    token_list_deinit(&list);
    list = encode(t, text, n, &some, flags, TOKENS_MAX);
    check_decoding(t, list.ids, list.num_ids, false);
    token_list_deinit(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *tokenizers[2];
    if (!tokenizers[0]) {
        tokenizers[0] = fuzz_tokenizer_open(true);
        tokenizers[1] = fuzz_tokenizer_open(false);
    }
    if (size < 3) return 0;
    bool byte_level = !(data[0] & OPTION_TEXT_LEVEL);
    const struct tokenizer *t = tokenizers[!byte_level];
    check_ids(t, data, size);
    if (is_valid_text((const char *)data + 3, size - 3)) check_encoding(t, byte_level, data, size);
    return 0;
}
