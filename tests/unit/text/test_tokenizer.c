/* Whole tokenizers built from small files: encoding, trust, decoding, detokenising. (That they are equal to
 * the reference is what tests/golden/compare_tokenizers.py shows, over real vocabularies.) */
#include "unit/text/small_tokenizer.h"

#include "base/rng.h"

static uint32_t draw(uint64_t *counter, uint32_t below)
{
    return rng_philox(11, (*counter)++, 0).word[0] % below;
}

static const struct small_merge merges[] = {
    {"l", "l"}, {"h", "e"},  {"he", "ll"}, {"hell", "o"},
    {" ", "w"}, {" w", "o"}, {"1", "2"},   {"\xC3", "\xA9"},
};

static const struct small_added added[] = {
    {.content = "<|im_start|>", .special = true},
    {.content = "<|im_end|>", .special = true},
    {.content = "<think>"},
    {.content = "<|r|>", .special = true, .rstrip = true},
    {.content = "im_end|><|im"}, /* lies across two control tokens */
};

static struct tokenizer *open_byte_level(int *first_added)
{
    return open_small(true, merges, array_length(merges), added, array_length(added), first_added);
}

static const struct small_merge meta_merges[] = {
    {"\u2581", "h"}, {"l", "l"}, {"\u2581h", "e"}, {"\u2581", "\u2581"}, {"\u2581he", "ll"},
};

static struct tokenizer *open_text_level(void)
{
    static const struct small_added word[] = {{.content = "<mid>", .special = true}};
    return open_small(false, meta_merges, array_length(meta_merges), word, 1, NULL);
}

/* Ids: bytes 0 to 255, products from 256 in order, added tokens after them. */
static void test_byte_level_encode(void **state)
{
    (void)state;
    int first;
    struct tokenizer *t = open_byte_level(&first);
    assert_int_equal(first, 256 + (int)array_length(merges));
    assert_encodes(t, "hello", 0, "259");
    assert_encodes(t, "hello hell world", 0, "259 32 258 261 114 108 100");
    assert_encodes(t, "\u00e9 12\n", 0, "263 32 262 10");
    assert_encodes(t, "1234", 0, "262 51 52"); /* 123 | 4 */
    assert_encodes(t, "", 0, "");
    assert_int_equal(tokenizer_vocab_size(t), first + (int)array_length(added));
    assert_int_equal(tokenizer_find(t, "hello", 5), 259);
    assert_int_equal(tokenizer_find(t, "<|im_end|>", 10), first + 1);
    assert_int_equal(tokenizer_find(t, "hellq", 5), -1);
    size_t n;
    assert_memory_equal(tokenizer_token_bytes(t, 261, &n), " wo", 3);
    assert_int_equal(n, 3);
    tokenizer_token_bytes(t, 99999, &n);
    assert_int_equal(n, 0);
    tokenizer_close(t);
}

static void test_control_tokens(void **state)
{
    (void)state;
    int first;
    struct tokenizer *t = open_byte_level(&first);
    assert_encodes(t, "<|im_start|>hello<think>", TOKENIZER_PARSE_SPECIAL, "264 259 266");
    assert_encodes(t, "<think>1", 0, "266 49"); /* no control token: always one */
    assert_encodes(t, "a<|r|>  \nb", TOKENIZER_PARSE_SPECIAL, "97 267 98");
    struct token_list list = encode_all(t, "<|im_start|>", 12, 0);
    assert_int_equal(list.num_ids, 12); /* its bytes */
    token_list_deinit(&list);
    assert_true(tokenizer_is_special(t, first));
    assert_false(tokenizer_is_special(t, first + 2));
    assert_false(tokenizer_is_special(t, -1));
    tokenizer_close(t);
}

static int count_special(const struct tokenizer *t, const struct token_list *list)
{
    int count = 0;
    for (int32_t i = 0; i < list->num_ids; i++) count += tokenizer_is_special(t, list->ids[i]);
    return count;
}

/* Whatever two users write into a template, its five control tokens come out, and no others. */
static void test_trust(void **state)
{
    (void)state;
    static const char *const atoms[] = {"<|im_start|>", "<|im_end|>", "<|im_", "start|>", "<",     "|>",
                                        "<|r|>",        "<think>",    " ",     "\n",      "hello", "12",
                                        "im_end|><|im", "im_end|>",   "<|",    "\u00e9"};
    int first;
    struct tokenizer *t = open_byte_level(&first);
    uint64_t counter = 0;
    for (int round = 0; round < 6000; round++) {
        char text[2048] = "<|im_start|>";
        struct text_range ranges[2];
        for (int r = 0; r < 2; r++) {
            ranges[r].begin = strlen(text);
            for (uint32_t k = draw(&counter, 7); k > 0; k--)
                strcat(text, atoms[draw(&counter, array_length(atoms))]);
            ranges[r].end = strlen(text);
            strcat(text, r ? "<|im_end|>" : "<|im_end|><|im_start|><|r|>");
        }
        struct token_list list = {0};
        assert_int_equal(
            tokenizer_encode(t, text, strlen(text), ranges, 2, TOKENIZER_PARSE_SPECIAL, INT32_MAX, &list), 0);
        assert_int_equal(count_special(t, &list), 5);
        token_list_deinit(&list);
    }
    tokenizer_close(t);
}

/* The border between what is trusted and what is not does not cut a piece in two. */
static void test_trust_border(void **state)
{
    (void)state;
    struct tokenizer *t = open_byte_level(NULL);
    struct text_range middle = {2, 4};
    struct token_list list = {0};
    char ids[512];
    assert_int_equal(tokenizer_encode(t, "hello", 5, &middle, 1, TOKENIZER_PARSE_SPECIAL, 10, &list), 0);
    assert_string_equal(ids_text(&list, ids), "259");
    token_list_deinit(&list);
    tokenizer_close(t);
}

/* A merge that makes a control token, and one that is a whole piece, stay out of reach of plain text. */
static void test_control_token_by_merges(void **state)
{
    (void)state;
    static const struct small_merge evil[] = {{"e", "n"}, {"en", "d"}};
    struct buffer b;
    buffer_init(&b, TEST_FILE_BYTES_MAX);
    buffer_append_char(&b, '{');
    append_llama3_pipeline(&b);
    append_model(&b, true, evil, 2, NULL, 0);
    buffer_append_char(&b, '}');
    char *list_end = strrchr(b.data, ']');
    assert_non_null(list_end);
    struct buffer json;
    buffer_init(&json, TEST_FILE_BYTES_MAX);
    buffer_append(&json, b.data, (size_t)(list_end - b.data));
    append_added(&json, &(struct small_added){.content = "end", .special = true}, 257, true);
    buffer_append_text(&json, "]}");
    struct tokenizer *t = NULL;
    struct error err = {0};
    assert_int_equal(open_json(json.data, &t, &err), 0);
    assert_encodes(t, "end", 0, "256 100");
    assert_encodes(t, "end", TOKENIZER_PARSE_SPECIAL, "257");
    tokenizer_close(t);
    buffer_deinit(&b);
    buffer_deinit(&json);
}

static void test_limit(void **state)
{
    (void)state;
    struct tokenizer *t = open_byte_level(NULL);
    struct token_list list = {0};
    assert_int_equal(tokenizer_encode(t, "a b c d", 7, NULL, 0, 0, 3, &list), STATUS_LIMIT);
    assert_int_equal(list.num_ids, 3);
    assert_int_equal(tokenizer_encode(t, "", 0, NULL, 0, 0, 3, &list), 0);
    assert_int_equal(tokenizer_encode(t, "x", 1, NULL, 0, 0, 3, &list), STATUS_LIMIT);
    assert_int_equal(tokenizer_encode(t, "x", 1, NULL, 0, 0, 4, &list), 0);
    assert_int_equal(list.num_ids, 4);
    assert_int_equal(list.ids[3], 'x');
    token_list_deinit(&list);
    tokenizer_close(t);
}

/* Without a vocabulary: bytes, and words for the ids above them. */
static void test_plain(void **state)
{
    (void)state;
    struct tokenizer *t;
    struct error err;
    assert_int_equal(tokenizer_open_plain(255, &t, &err), STATUS_UNSUPPORTED);
    assert_int_equal(tokenizer_open_plain(1000, &t, &err), 0);
    assert_int_equal(tokenizer_vocab_size(t), 1000);
    assert_encodes(t, "Hi \xC3\xA9 aaa", 0, "72 105 32 195 169 32 97 97 97");
    struct buffer text;
    buffer_init(&text, 100);
    tokenizer_decode(t, (int32_t[]){72, 105, 32, 195, 169, 999}, 6, true, &text);
    assert_int_equal(text.num_bytes, 9);
    assert_memory_equal(text.data, "Hi \xC3\xA9 ", 6);
    buffer_deinit(&text);
    tokenizer_close(t);
}

/* Ids: <unk> <s> </s>, bytes 3 to 258, U+2581 259, a to z 260 to 285, products from 286. */
static void test_text_level_encode(void **state)
{
    (void)state;
    struct tokenizer *t = open_text_level();
    assert_encodes(t, "hell", 0, "290");
    assert_encodes(t, " hell", 0,
                   "259 290"); /* the last of two spaces goes with the word: its merge ranks first */
    assert_encodes(t, "a b", TOKENIZER_ADD_SPECIAL, "1 259 260 259 261");
    assert_encodes(t, "\u00e9\n", 0, "259 198 172 13");
    assert_encodes(t, "a<mid>b", TOKENIZER_PARSE_SPECIAL, "259 260 291 259 261");
    assert_encodes(t, "", TOKENIZER_ADD_SPECIAL, "1");
    assert_encodes(t, "<s>", TOKENIZER_PARSE_SPECIAL, "1");
    assert_encodes(t, "<0x41>", 0, "259 63 51 283 55 52 65"); /* a user cannot write byte tokens */
    tokenizer_close(t);
}

static void test_byte_level_decode(void **state)
{
    (void)state;
    int first;
    struct tokenizer *t = open_byte_level(&first);
    assert_decodes(t, (int32_t[]){259, 261, first + 1, 'x'}, 4, false, "hello wo<|im_end|>x");
    assert_decodes(t, (int32_t[]){259, 261, first + 1, 'x'}, 4, true, "hello wox");
    assert_decodes(t, (int32_t[]){0xE2, 0x82, 0xAC, 0xC3}, 4, true, "\u20ac\uFFFD");
    assert_decodes(t, (int32_t[]){0xE2, 0x82, 'a', 0xFF, 0x80}, 5, true, "\uFFFDa\uFFFD\uFFFD");
    assert_decodes(t, (int32_t[]){0xF0, 0x9F, 0xE2, 0x82}, 4, true, "\uFFFD\uFFFD");
    assert_decodes(t, (int32_t[]){0xED, 0xA0, 0x80}, 3, true, "\uFFFD\uFFFD\uFFFD");
    assert_decodes(t, (int32_t[]){-1, 100000, 'a'}, 3, true, "a");
    tokenizer_close(t);
}

static int32_t byte_id(int byte)
{
    return 3 + byte;
}

static void test_text_level_decode(void **state)
{
    (void)state;
    struct tokenizer *t = open_text_level();
    assert_decodes(t, (int32_t[]){290, 290}, 2, true, "hell hell");
    assert_decodes(t, (int32_t[]){1, 259, 259, 260}, 4, true, " a");
    assert_decodes(t, (int32_t[]){1, 259, 260}, 3, false, "<s> a");
    assert_decodes(t, (int32_t[]){260, byte_id(0xC3), byte_id(0xA9), 260}, 4, true, "a\u00e9a");
    /* A run of byte tokens that is not UTF-8 as a whole is one U+FFFD a byte. */
    assert_decodes(t, (int32_t[]){byte_id('a'), byte_id(0xC3), byte_id(0xA9), byte_id(0xFF)}, 4, true,
                   "\uFFFD\uFFFD\uFFFD\uFFFD");
    assert_decodes(t, (int32_t[]){byte_id(0xFF), byte_id('a'), 260, byte_id('b')}, 4, true, "\uFFFD\uFFFDab");
    assert_decodes(t, (int32_t[]){byte_id(0xE2), byte_id(0x82)}, 2, true, "\uFFFD\uFFFD");
    assert_decodes(t, (int32_t[]){byte_id(' '), byte_id(' ')}, 2, true, " "); /* stripped as any space */
    tokenizer_close(t);
}

/* Longer than what is held: whole code points are let out, what is left still ends well. */
static void test_long_byte_run(void **state)
{
    (void)state;
    enum { POINTS = 500 };
    struct tokenizer *t = open_text_level();
    int32_t ids[POINTS * 3];
    char expected[POINTS * 3 + 1] = "";
    for (int i = 0; i < POINTS; i++) {
        for (int k = 0; k < 3; k++) ids[i * 3 + k] = byte_id((unsigned char)"\u20ac"[k]);
        strcat(expected, "\u20ac");
    }
    assert_decodes(t, ids, POINTS * 3, true, expected);
    tokenizer_close(t);
}

/* Every append is whole UTF-8, and together they are what tokenizer_decode gives. */
static void check_detokenizer(const struct tokenizer *t, uint64_t *counter)
{
    enum { LONGEST = 400 };
    int32_t ids[LONGEST], n = (int32_t)draw(counter, draw(counter, 20) ? 30 : LONGEST),
                          size = tokenizer_vocab_size(t);
    for (int32_t i = 0; i < n; i++)
        ids[i] =
            draw(counter, 3) ? (int32_t)draw(counter, 300) : (int32_t)draw(counter, (uint32_t)size + 2) - 1;
    bool skip_special = draw(counter, 2);
    struct buffer whole, parts;
    buffer_init(&whole, 1 << 20);
    buffer_init(&parts, 1 << 20);
    tokenizer_decode(t, ids, n, skip_special, &whole);
    struct detokenizer d;
    detokenizer_init(&d, t, skip_special);
    for (int32_t i = 0; i <= n; i++) {
        size_t before = parts.num_bytes;
        if (i < n)
            detokenizer_push(&d, ids[i], &parts);
        else
            detokenizer_finish(&d, &parts);
        if (parts.num_bytes > before)
            assert_true(utf8_is_valid((unsigned char *)parts.data + before, parts.num_bytes - before));
    }
    assert_int_equal(parts.num_bytes, whole.num_bytes);
    if (parts.num_bytes) assert_memory_equal(parts.data, whole.data, parts.num_bytes);
    buffer_deinit(&whole);
    buffer_deinit(&parts);
}

static void test_detokenizer(void **state)
{
    (void)state;
    struct tokenizer *byte_level = open_byte_level(NULL), *text_level = open_text_level();
    uint64_t counter = 0;
    for (int round = 0; round < 4000; round++) {
        check_detokenizer(byte_level, &counter);
        check_detokenizer(text_level, &counter);
    }
    tokenizer_close(byte_level);
    tokenizer_close(text_level);
}

/* Tokens that continue a text keep the space before their first word. */
static void test_detokenizer_in_the_middle(void **state)
{
    (void)state;
    struct tokenizer *t = open_text_level();
    struct detokenizer d;
    struct buffer out;
    buffer_init(&out, 100);
    detokenizer_init(&d, t, true);
    d.at_start = false;
    detokenizer_push(&d, 290, &out);
    detokenizer_finish(&d, &out);
    assert_string_equal(out.data, " hell");
    buffer_deinit(&out);
    tokenizer_close(t);
}

/* What is encoded decodes to the same text, for any valid text. */
static void test_round_trip(void **state)
{
    (void)state;
    struct tokenizer *t = open_byte_level(NULL);
    uint64_t counter = 0;
    for (int round = 0; round < 3000; round++) {
        unsigned char text[128];
        size_t n = 0;
        for (uint32_t k = draw(&counter, 20); k > 0; k--) {
            uint32_t c = draw(&counter, 4) ? 1 + draw(&counter, 127) : 0x80 + draw(&counter, 0xD000);
            n += (size_t)utf8_encode(c, text + n);
        }
        text[n] = '\0';
        struct token_list list = encode_all(t, (char *)text, n, 0);
        assert_decodes(t, list.ids, list.num_ids, true, (char *)text);
        token_list_deinit(&list);
    }
    tokenizer_close(t);
}

/* One megabyte of one thing: these end at once, or would not end in this lifetime. */
static void test_long_runs(void **state)
{
    (void)state;
    static const char *const units[] = {"a", " ", "\n",     "7",  "\u8a9e", "\u0301",
                                        "l", "'", "\u2581", "aA", "<|im_"};
    struct tokenizer *tokenizers[] = {open_byte_level(NULL), open_text_level()};
    enum { BYTES = 1 << 20 };
    char *text = malloc(BYTES);
    assert_non_null(text);
    for (size_t i = 0; i < array_length(units); i++) {
        size_t unit_bytes = strlen(units[i]), n = 0;
        for (; n + unit_bytes <= BYTES; n += unit_bytes) memcpy(text + n, units[i], unit_bytes);
        for (int k = 0; k < 2; k++) {
            struct token_list list = encode_all(tokenizers[k], text, n, TOKENIZER_PARSE_SPECIAL);
            assert_true(list.num_ids > 1000);
            token_list_deinit(&list);
        }
    }
    free(text);
    tokenizer_close(tokenizers[0]);
    tokenizer_close(tokenizers[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_byte_level_encode),
        cmocka_unit_test(test_control_tokens),
        cmocka_unit_test(test_trust),
        cmocka_unit_test(test_trust_border),
        cmocka_unit_test(test_control_token_by_merges),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_text_level_encode),
        cmocka_unit_test(test_byte_level_decode),
        cmocka_unit_test(test_text_level_decode),
        cmocka_unit_test(test_long_byte_run),
        cmocka_unit_test(test_detokenizer),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_detokenizer_in_the_middle),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_long_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
