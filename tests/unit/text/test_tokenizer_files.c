/* The loaders: what they accept beside the usual, and that whatever is wrong with a file gives a sentence. */
#include "unit/text/small_tokenizer.h"

#include "files/gguf.h"

/* ---- tokenizer.json ---- */

static const struct small_merge merges[] = {{"a", "b"}, {"ab", "c"}};
static const struct small_added added[] = {{.content = "<s>", .special = true},
                                           {.content = "</s>", .special = true}};

static void make_byte_level(struct buffer *b)
{
    buffer_init(b, TEST_FILE_BYTES_MAX);
    buffer_append_char(b, '{');
    append_llama3_pipeline(b);
    append_model(b, true, merges, array_length(merges), added, array_length(added));
    buffer_append_char(b, '}');
}

static void assert_refused(const char *json, int status, const char *sentence_part)
{
    struct tokenizer *t = NULL;
    struct error err = {0};
    int got = open_json(json, &t, &err);
    if (got != status || !strstr(err.text, sentence_part))
        fail_msg("status %d (\"%s\") for %.200s", got, err.text, json);
    assert_null(t);
}

/* The good file with one text in it replaced. */
static void assert_replaced_refused(const char *from, const char *to, int status, const char *sentence_part)
{
    struct buffer good, bad;
    make_byte_level(&good);
    buffer_init(&bad, TEST_FILE_BYTES_MAX);
    const char *at = strstr(good.data, from);
    assert_non_null(at);
    buffer_append(&bad, good.data, (size_t)(at - good.data));
    buffer_append_text(&bad, to);
    buffer_append_text(&bad, at + strlen(from));
    assert_refused(bad.data, status, sentence_part);
    buffer_deinit(&good);
    buffer_deinit(&bad);
}

static void test_json_refused(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        int status;
        const char *sentence_part;
    } cases[] = {
        {"\"type\":\"BPE\"", "\"type\":\"Unigram\"", STATUS_UNSUPPORTED, "Unigram"},
        {"\"type\":\"BPE\"", "\"type\":\"BPE\",\"dropout\":0.1", STATUS_UNSUPPORTED, "dropout"},
        {"\"type\":\"BPE\"", "\"type\":\"BPE\",\"continuing_subword_prefix\":\"##\"", STATUS_UNSUPPORTED,
         "subword_prefix"},
        {"\"type\":\"BPE\"", "\"type\":\"BPE\",\"unk_token\":\"<none>\"", STATUS_INVALID, "<none>"},
        {"\"model\":{", "\"model_\":{", STATUS_UNSUPPORTED, "model"},
        {"\"vocab\":{", "\"vocab_\":{", STATUS_INVALID, "vocab"},
        {"\"merges\":[", "\"merges_\":[", STATUS_INVALID, "merges"},
        {"\"!\":33", "\"!\":-1", STATUS_INVALID, "\"!\""},
        {"\"!\":33", "\"!\":1e300", STATUS_INVALID, "\"!\""},
        {"\"!\":33", "\"!\":33.5", STATUS_INVALID, "\"!\""},
        {"\"!\":33", "\"!\":\"33\"", STATUS_INVALID, "\"!\""},
        {"\"!\":33", "\"!\":34", STATUS_INVALID, "twice"},
        {"\"!\":33", "\"!!\":33,\"!!\":900", STATUS_INVALID, "same text"},
        {"\"!\":33", "\"\\u0000\":33", STATUS_UNSUPPORTED, "NUL"},
        {"[\"a\",\"b\"]", "[\"a\",\"zz\"]", STATUS_INVALID, "Merge 0"},
        {"[\"a\",\"b\"]", "[\"b\",\"a\"]", STATUS_INVALID, "Merge 0"},
        {"[\"a\",\"b\"]", "[\"a\"]", STATUS_INVALID, "merge 0"},
        {"[\"a\",\"b\"]", "[\"a\",\"b\",\"c\"]", STATUS_INVALID, "merge 0"},
        {"[\"a\",\"b\"]", "\"a b c\"", STATUS_INVALID, "merge 0"},
        {"[\"a\",\"b\"]", "17", STATUS_INVALID, "merge 0"},
        {"\"id\":258", "\"id\":-258", STATUS_INVALID, "added token"},
        {"\"id\":258", "\"id\":1e18", STATUS_INVALID, "added token"},
        {"\"id\":258", "\"id\":65", STATUS_INVALID, "another token"},
        {"\"content\":\"<s>\"", "\"content\":\"\"", STATUS_INVALID, "bytes"},
        {"\"content\":\"<s>\"", "\"content\":5", STATUS_INVALID, "content"},
        {"\"content\":\"<s>\"", "\"content\":\"</s>\"", STATUS_INVALID, "same text"},
        {"\\\\p{N}{1,3}", "\\\\p{N}{1,4}", STATUS_UNSUPPORTED, "{1,4}"},
        {"\"Isolated\"", "\"Removed\"", STATUS_UNSUPPORTED, "Split"},
        {"\"invert\":false", "\"invert\":true", STATUS_UNSUPPORTED, "Split"},
        {"\"decoder\":{\"type\":\"ByteLevel\"}", "\"decoder\":null", STATUS_UNSUPPORTED, "decoder"},
        {"\"decoder\":{\"type\":\"ByteLevel\"}", "\"decoder\":{\"type\":\"WordPiece\"}", STATUS_UNSUPPORTED,
         "WordPiece"},
        {"\"decoder\":{\"type\":\"ByteLevel\"}", "\"decoder\":{\"type\":\"Fuse\"}", STATUS_UNSUPPORTED,
         "ByteLevel"},
        {"{\"type\":\"ByteLevel\",\"add_prefix_space\":", "{\"type\":\"Whitespace\",\"add_prefix_space\":",
         STATUS_UNSUPPORTED, "Whitespace"},
        {"\"decoder\":", "\"normalizer\":{\"type\":\"Lowercase\"},\"decoder\":", STATUS_UNSUPPORTED,
         "Lowercase"},
        {"\"decoder\":",
         "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},\"content\":\"\"},\"decoder\":",
         STATUS_UNSUPPORTED, "Replace"},
        {"\"decoder\":", "\"post_processor\":{\"type\":\"BertProcessing\"},\"decoder\":", STATUS_UNSUPPORTED,
         "BertProcessing"},
        {"\"decoder\":",
         "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}],"
         "\"special_tokens\":{\"x\":{\"ids\":[123456]}}},\"decoder\":",
         STATUS_INVALID, "TemplateProcessing"},
    };
    for (size_t i = 0; i < array_length(cases); i++)
        assert_replaced_refused(cases[i].from, cases[i].to, cases[i].status, cases[i].sentence_part);
    assert_refused("", STATUS_INVALID, "JSON");
    assert_refused("[]", STATUS_INVALID, "JSON");
    assert_refused("{\"\xFF\":1}", STATUS_INVALID, "UTF-8");
}

/* Cut off anywhere it is refused; nothing leaks and nothing is read past the end (the sanitizers watch). */
/* ---- word pieces ---- */

#define WORDS                                                                                                \
    "{\"added_tokens\":[{\"id\":0,\"content\":\"[UNK]\",\"special\":true},{\"id\":1,\"content\":\"[CLS]\","  \
    "\"special\":true},{\"id\":2,\"content\":\"[SEP]\",\"special\":true}],\"normalizer\":{\"type\":"         \
    "\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,\"strip_accents\":null,"           \
    "\"lowercase\":"                                                                                         \
    "true},\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"post_processor\":{\"type\":"                  \
    "\"BertProcessing\","                                                                                    \
    "\"sep\":[\"[SEP]\",2],\"cls\":[\"[CLS]\",1]},\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\","    \
    "\"cleanup\":true},\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"continuing_subword_"      \
    "prefix\":"                                                                                              \
    "\"##\",\"max_input_chars_per_word\":9,\"vocab\":{\"[UNK]\":0,\"[CLS]\":1,\"[SEP]\":2,\"over\":3,\"##"   \
    "over\":4,"                                                                                              \
    "\"##o\":5,\".\":6,\"[\":7,\"sep\":8,\"]\":9}}}"

static void assert_words(const struct tokenizer *t, const char *text, unsigned flags, const int32_t *ids,
                         int32_t num_ids)
{
    struct token_list list = {0};
    assert_int_equal(tokenizer_encode(t, text, strlen(text), NULL, 0, flags, 100, &list), 0);
    if (list.num_ids != num_ids) fail_msg("%d tokens of %s", list.num_ids, text);
    for (int32_t i = 0; i < num_ids; i++) assert_int_equal(list.ids[i], ids[i]);
    token_list_deinit(&list);
}

static void test_word_pieces(void **state)
{
    (void)state;
    struct tokenizer *t = NULL;
    struct error err = {0};
    if (open_json(WORDS, &t, &err)) fail_msg("%s", err.text);
    assert_words(t, "Ov\u00e9r over.", TOKENIZER_ADD_SPECIAL, (const int32_t[]){1, 3, 3, 6, 2}, 5);
    assert_words(t, "overover overoverx overo", 0, (const int32_t[]){3, 4, 0, 3, 5}, 5);
    assert_words(t, "ooo overoveroo", 0, (const int32_t[]){0, 0}, 2); /* no beginning; too long */
    assert_words(t, "[SEP]", 0, (const int32_t[]){7, 8, 9}, 3);
    assert_words(t, "[SEP]", TOKENIZER_PARSE_SPECIAL, (const int32_t[]){2}, 1);
    assert_words(t, " \t\x01\u200b", 0, NULL, 0);
    struct buffer out;
    buffer_init(&out, 100);
    tokenizer_decode(t, (const int32_t[]){1, 3, 5, 3, 6, 2}, 6, true, &out);
    buffer_append_char(&out, '\0');
    assert_string_equal(out.data, "overo over.");
    buffer_deinit(&out);
    tokenizer_close(t);
}

static void assert_words_refused(const char *from, const char *to, int status, const char *sentence_part)
{
    struct buffer bad;
    const char *at = strstr(WORDS, from);
    buffer_init(&bad, TEST_FILE_BYTES_MAX);
    assert_non_null(at);
    buffer_append(&bad, WORDS, (size_t)(at - WORDS));
    buffer_append_text(&bad, to);
    buffer_append_text(&bad, at + strlen(from));
    assert_refused(bad.data, status, sentence_part);
    buffer_deinit(&bad);
}

static void test_word_pieces_refused(void **state)
{
    (void)state;
    assert_words_refused("\"BertPreTokenizer\"", "\"Digits\"", STATUS_UNSUPPORTED, "BertPreTokenizer");
    assert_words_refused("\"prefix\":\"##\"", "\"prefix\":\"@@\"", STATUS_UNSUPPORTED, "prefix");
    assert_words_refused("\"prefix\":\"##\"", "\"prefix\":\"\"", STATUS_UNSUPPORTED, "WordPiece");
    assert_words_refused("\"prefix\":\"##\"", "\"prefix\":\"0123456789abcdefg\"", STATUS_UNSUPPORTED,
                         "WordPiece");
    assert_words_refused("\"max_input_chars_per_word\":9", "\"max_input_chars_per_word\":1001",
                         STATUS_UNSUPPORTED, "1000");
    assert_words_refused("\"max_input_chars_per_word\":9", "\"max_input_chars_per_word\":0",
                         STATUS_UNSUPPORTED, "1000");
    assert_words_refused("\"unk_token\":\"[UNK]\"", "\"unk_token\":\"[unk]\"", STATUS_INVALID, "[unk]");
    assert_words_refused("\"unk_token\":\"[UNK]\",", "", STATUS_UNSUPPORTED, "unk_token");
    assert_words_refused("[\"[SEP]\",2]", "[\"[SEP]\",20]", STATUS_UNSUPPORTED, "BertProcessing");
    assert_words_refused("\"type\":\"WordPiece\",\"unk", "\"type\":\"BPE\",\"unk", STATUS_UNSUPPORTED,
                         "WordPiece");
}

/* ---- scores ---- */

/* A becomes "ab". What is wrong with the others: a text behind the end, one that begins inside a character, an offset out of the
 * trie, a size, what is no UTF-8. */
#define CHARSMAP                                                                                             \
    "CAEAAAAAAAAAAACAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"             \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"             \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"             \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAQQEBAGFi"             \
    "AA=="
#define CHARSMAP_FAR                                                                                         \
    "CAEAAAAAAACIEwCAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"             \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"             \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"             \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAQQEBAGFi"             \
    "AA=="
#define CHARSMAP_INSIDE                                                                                      \
    "CAEAAAAAAAABAACAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"             \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"             \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"             \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAQQEBAMOp"             \
    "AA=="
#define CHARSMAP_OUTSIDE                                                                                     \
    "CAEAAAAAAAAAAACAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"             \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"             \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"             \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAQf3//2Fi"             \
    "AA=="
#define CHARSMAP_SIZE                                                                                        \
    "AAAAQAAAAAAAAACAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"             \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"             \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"             \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAQQEBAGFi"             \
    "AA=="
#define CHARSMAP_TEXTS                                                                                       \
    "CAEAAAAAAAAAAACAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"             \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"             \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"             \
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAQQEBAP8A"

#define SCORES                                                                                               \
    "{\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":true},{\"id\":1,\"content\":\"<unk>\","    \
    "\"special\":true}],\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"" CHARSMAP       \
    "\"},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"},{"       \
    "\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"add_prefix_space\":true}]},\"post_processor\":{"    \
    "\"type\":\"RobertaProcessing\",\"sep\":[\"<s>\",0],\"cls\":[\"<s>\",0]},\"decoder\":{\"type\":"         \
    "\"Metaspace\",\"replacement\":\"\u2581\",\"add_prefix_space\":true},\"model\":{\"type\":\"Unigram\","   \
    "\"unk_id\":1,\"vocab\":[[\"<s>\",0],[\"<unk>\",0.0],[\"\u2581\",-2],[\"a\",-1.5],[\"b\",-15e-1],"       \
    "[\"ab\",-3],[\"\u2581ab\",-4.75],[\"abb\",-4.6]]}}"

static void test_scores(void **state)
{
    (void)state;
    struct tokenizer *t = NULL;
    struct error err = {0};
    if (open_json(SCORES, &t, &err)) fail_msg("%s", err.text);
    assert_words(t, " ab", TOKENIZER_ADD_SPECIAL, (const int32_t[]){0, 6, 0}, 3);
    assert_words(t, "A  A", 0, (const int32_t[]){6, 6}, 2);
    assert_words(t, "\u2581abb", 0, (const int32_t[]){6, 4}, 2);
    assert_words(t, "bab", 0, (const int32_t[]){2, 4, 5}, 3); /* of equals the one found first */
    assert_words(t, "xyza", 0, (const int32_t[]){2, 1, 3}, 3);
    assert_words(t, "<s>", 0, (const int32_t[]){2, 1}, 2); /* which nobody types */
    assert_words(t, "<s>", TOKENIZER_PARSE_SPECIAL, (const int32_t[]){0}, 1);
    assert_words(t, " \u3000", 0, NULL, 0);
    struct buffer out;
    buffer_init(&out, 100);
    tokenizer_decode(t, (const int32_t[]){0, 6, 6, 4}, 4, true, &out);
    buffer_append_char(&out, '\0');
    assert_string_equal(out.data, "ab abb");
    buffer_deinit(&out);
    tokenizer_close(t);
}

static void replace_in_scores(struct buffer *out, const char *from, const char *to)
{
    const char *at = strstr(SCORES, from);
    buffer_init(out, TEST_FILE_BYTES_MAX);
    assert_non_null(at);
    buffer_append(out, SCORES, (size_t)(at - SCORES));
    buffer_append_text(out, to);
    buffer_append_text(out, at + strlen(from));
}

static void test_scores_refused(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        int status;
        const char *sentence_part;
    } cases[] = {
        {"\"unk_id\":1", "\"unk_id\":8", STATUS_UNSUPPORTED, "unk_id"},
        {"\"unk_id\":1", "\"unk_id\":-1", STATUS_UNSUPPORTED, "unk_id"},
        {"\"unk_id\":1,", "", STATUS_UNSUPPORTED, "unk_id"},
        {"[\"a\",-1.5]", "[\"a\",\"-1.5\"]", STATUS_INVALID, "scores"},
        {"[\"a\",-1.5]", "[\"a\",-1e999]", STATUS_INVALID, "scores"},
        {"[\"a\",-1.5]", "[\"a\"]", STATUS_INVALID, "scores"},
        {"[\"a\",-1.5]", "[]", STATUS_INVALID, "scores"},
        {"[\"a\",-1.5]", "5", STATUS_INVALID, "scores"},
        {"[\"a\",-1.5]", "[\"b\",-1.5]", STATUS_INVALID, "same text"},
        {"\"model\":{", "\"model\":{\"vocab\":5,", STATUS_UNSUPPORTED, "unk_id"},
        {CHARSMAP, "%", STATUS_INVALID, "base64"},
        {CHARSMAP, "", STATUS_INVALID, "damaged"},
        {CHARSMAP, CHARSMAP_SIZE, STATUS_INVALID, "damaged"},
        {CHARSMAP, CHARSMAP_TEXTS, STATUS_INVALID, "damaged"},
        {"\"WhitespaceSplit\"", "\"Whitespace\"", STATUS_UNSUPPORTED, "Whitespace"},
        {"\"replacement\":\"\u2581\"", "\"split\":false,\"replacement\":\"\u2581\"", STATUS_UNSUPPORTED,
         "Metaspace"},
        {"\"cls\":[\"<s>\",0]", "\"cls\":[\"<s>\",9]", STATUS_UNSUPPORTED, "RobertaProcessing"},
    };
    struct buffer bad;
    for (size_t i = 0; i < array_length(cases); i++) {
        replace_in_scores(&bad, cases[i].from, cases[i].to);
        assert_refused(bad.data, cases[i].status, cases[i].sentence_part);
        buffer_deinit(&bad);
    }
}

/* A rule that cannot be applied is none. */
static void test_broken_rules(void **state)
{
    (void)state;
    static const char *const charsmaps[] = {CHARSMAP_FAR, CHARSMAP_INSIDE, CHARSMAP_OUTSIDE};
    for (size_t i = 0; i < array_length(charsmaps); i++) {
        struct tokenizer *t = NULL;
        struct error err = {0};
        struct buffer file;
        replace_in_scores(&file, CHARSMAP, charsmaps[i]);
        buffer_append_char(&file, '\0');
        if (open_json(file.data, &t, &err)) fail_msg("%s", err.text);
        assert_words(t, "A", 0, (const int32_t[]){2, 1}, 2);
        tokenizer_close(t);
        buffer_deinit(&file);
    }
}

static void test_json_cut_off(void **state)
{
    (void)state;
    struct buffer b;
    make_byte_level(&b);
    for (size_t n = 0; n < b.num_bytes; n += n < 600 || b.num_bytes - n < 600 ? 7 : 97) {
        char *json = malloc(n + 1);
        assert_non_null(json);
        memcpy(json, b.data, n);
        json[n] = '\0';
        assert_refused(json, STATUS_INVALID, "tokenizer.json");
        free(json);
    }
    buffer_deinit(&b);
}

static void test_config_names(void **state)
{
    (void)state;
    struct buffer b;
    make_byte_level(&b);
    char directory[TEST_PATH_BYTES];
    make_directory(directory);
    write_text(directory, "tokenizer.json", b.data);
    write_text(directory, "tokenizer_config.json",
               "{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":\"</s>\",\"pad_token\":null}");
    struct tokenizer *t = NULL;
    assert_int_equal(tokenizer_open_directory(directory, &t, NULL), 0);
    assert_int_equal(tokenizer_bos_id(t), 258);
    assert_int_equal(tokenizer_eos_id(t), 259);
    tokenizer_close(t);
    write_text(directory, "tokenizer_config.json", "{\"bos_token\":7");
    t = NULL;
    struct error err = {0};
    assert_int_equal(tokenizer_open_directory(directory, &t, &err), STATUS_INVALID);
    assert_null(t);
    remove_directory(directory);
    assert_int_equal(tokenizer_open_directory(directory, &t, &err), STATUS_NOT_FOUND);
    buffer_deinit(&b);
}

/* ---- GGUF ---- */

struct gguf_parts {
    const char *model, *pre, *architecture;
    const char *const *names;
    const int32_t *types;
    const float *scores;
    const char *const *merges;
    int num_names, num_types, num_scores, num_merges;
    int64_t bos_id;
    int add_bos; /* -1: no key */
};

static void put_numbers(struct gguf_builder *g, const char *key, uint32_t type, const void *numbers, int n)
{
    gguf_put_key(g, key, 9);
    put_u32(&g->keys, type);
    put_u64(&g->keys, (uint64_t)n);
    if (n > 0) buffer_append(&g->keys, numbers, (size_t)n * 4);
}

static void put_bool(struct gguf_builder *g, const char *key, bool value)
{
    gguf_put_key(g, key, 7);
    buffer_append_char(&g->keys, (char)value);
}

static int open_parts(const struct gguf_parts *p, struct tokenizer **t, struct error *err)
{
    struct gguf_builder g;
    struct buffer file;
    gguf_builder_init(&g);
    buffer_init(&file, TEST_FILE_BYTES_MAX);
    if (p->architecture) gguf_put_text(&g, "general.architecture", p->architecture);
    if (p->model) gguf_put_text(&g, "tokenizer.ggml.model", p->model);
    if (p->pre) gguf_put_text(&g, "tokenizer.ggml.pre", p->pre);
    if (p->names) gguf_put_texts(&g, "tokenizer.ggml.tokens", p->names, (size_t)p->num_names);
    if (p->types) put_numbers(&g, "tokenizer.ggml.token_type", 5, p->types, p->num_types);
    if (p->scores) put_numbers(&g, "tokenizer.ggml.scores", 6, p->scores, p->num_scores);
    if (p->merges) gguf_put_texts(&g, "tokenizer.ggml.merges", p->merges, (size_t)p->num_merges);
    gguf_put_u32(&g, "tokenizer.ggml.bos_token_id", (uint32_t)p->bos_id);
    if (p->add_bos >= 0) put_bool(&g, "tokenizer.ggml.add_bos_token", p->add_bos);
    gguf_finish(&g, &file);
    char directory[TEST_PATH_BYTES], path[TEST_PATH_BYTES];
    make_directory(directory);
    write_file(directory, "m.gguf", file.data, file.num_bytes);
    struct gguf *opened = NULL;
    int status = gguf_open(join_path(path, directory, "m.gguf"), &opened, err);
    if (status) fail_msg("%s", err->text);
    status = tokenizer_open_gguf(opened, t, err);
    gguf_close(opened);
    remove_directory(directory);
    gguf_builder_deinit(&g);
    buffer_deinit(&file);
    return status;
}

#define PARTS(array) .names = (array), .num_names = array_length(array)

static void test_gguf_byte_level(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b",  "ab",         "\u0120", "\u0120a",
                                        "1", "12", "<|im_end|>", "<tool>"};
    static const int32_t types[] = {1, 1, 1, 1, 1, 1, 1, 3, 4};
    static const char *const gguf_merges[] = {"a b", "\u0120 a", "1 1"};
    struct gguf_parts p = {.model = "gpt2",
                           .pre = "smollm",
                           PARTS(names),
                           .types = types,
                           .num_types = 9,
                           .merges = gguf_merges,
                           .num_merges = 2,
                           .bos_id = 7,
                           .add_bos = -1};
    struct tokenizer *t = NULL;
    struct error err = {0};
    if (open_parts(&p, &t, &err)) fail_msg("%s", err.text);
    assert_encodes(t, "ab a 11<|im_end|><tool>", TOKENIZER_PARSE_SPECIAL | TOKENIZER_ADD_SPECIAL,
                   "2 4 3 5 5 7 8");
    assert_encodes(t, "x", 0, ""); /* without a token for the byte and without an unknown token */
    assert_int_equal(tokenizer_bos_id(t), 7);
    assert_int_equal(tokenizer_eos_id(t), -1);
    assert_true(tokenizer_is_special(t, 7));
    tokenizer_close(t);
    p.num_merges = 3;
    assert_int_equal(open_parts(&p, &t, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "Merge 2"));
}

/* Whose files have no name for Llama 3's: digits stay together, by threes. Of others it is asked for. */
static void test_gguf_of_bitnet_names_no_pretokenizer(void **state)
{
    (void)state;
    static const char *const names[] = {"1", "11", "111", "<s>"}, *const gguf_merges[] = {"1 1", "11 1"};
    static const int32_t types[] = {1, 1, 1, 3};
    struct gguf_parts p = {.model = "gpt2",
                           .architecture = "bitnet-b1.58",
                           PARTS(names),
                           .types = types,
                           .num_types = 4,
                           .merges = gguf_merges,
                           .num_merges = 2,
                           .bos_id = 3,
                           .add_bos = 1};
    struct tokenizer *t = NULL;
    struct error err = {0};
    if (open_parts(&p, &t, &err)) fail_msg("%s", err.text);
    assert_encodes(t, "11111", TOKENIZER_ADD_SPECIAL, "3 2 1");
    tokenizer_close(t);
    p.architecture = "bitnet";
    assert_int_equal(open_parts(&p, &t, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "does not name its pre-tokenizer"));
}

/* Highest score first, of equals the leftmost: not the order of the tokens. */
static void test_gguf_scores(void **state)
{
    (void)state;
    static const char *const names[] = {"<unk>", "<s>", "</s>", "\u2581", "a",  "b", "c",
                                        "ab",    "bc",  "abc",  "<0x64>", "aa", "ca"};
    static const int32_t types[] = {2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 6, 1, 1};
    static const float scores[] = {0, 0, 0, -1, -1, -1, -1, -5, -4, -6, 0, -2, -3};
    struct gguf_parts p = {.model = "llama",
                           PARTS(names),
                           .types = types,
                           .num_types = 13,
                           .scores = scores,
                           .num_scores = 13,
                           .bos_id = 1,
                           .add_bos = -1};
    struct tokenizer *t = NULL;
    struct error err = {0};
    if (open_parts(&p, &t, &err)) fail_msg("%s", err.text);
    assert_encodes(t, "abc", TOKENIZER_ADD_SPECIAL,
                   "1 3 9"); /* bc first, then a with bc: also a cut of abc */
    assert_encodes(t, "abb", 0, "3 7 5");
    assert_encodes(t, "bca", 0, "3 5 12"); /* ca before bc */
    assert_encodes(t, "aaa", 0, "3 11 4"); /* the left pair */
    assert_encodes(t, "d", 0, "3 10");
    assert_decodes(t, (int32_t[]){1, 3, 9, 10}, 4, true, "abcd");
    tokenizer_close(t);
    p.num_scores = 12;
    assert_int_equal(open_parts(&p, &t, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "token 12"));
}

/* By merges, over spaces that are tokens' text, without one in front; a byte where there is no token. */
static void test_gguf_merges_of_text(void **state)
{
    (void)state;
    static const char *const names[] = {"<pad>",   "<eos>", "<bos>", "\u2581", "a",       "b",      "ab",
                                        "\u2581a", "\n",    "\n\n",  "<0x64>", "<turn|>", "<|tool>"};
    static const int32_t types[] = {3, 3, 3, 1, 1, 1, 1, 1, 1, 1, 6, 3, 4};
    static const char *const text_merges[] = {"a b", "\u2581 a", "\n \n"};
    struct gguf_parts p = {.model = "gemma4",
                           PARTS(names),
                           .types = types,
                           .num_types = 13,
                           .merges = text_merges,
                           .num_merges = 3,
                           .bos_id = 2,
                           .add_bos = 1};
    struct tokenizer *t = NULL;
    struct error err = {0};
    if (open_parts(&p, &t, &err)) fail_msg("%s", err.text);
    assert_encodes(t, "ab a", TOKENIZER_ADD_SPECIAL, "2 6 7");
    assert_encodes(t, " ab\n\n\nd", 0, "3 6 9 8 10");
    assert_encodes(t, "a<turn|><|tool>", TOKENIZER_PARSE_SPECIAL, "4 11 12");
    assert_decodes(t, (int32_t[]){2, 6, 7, 9, 10}, 5, true, "ab a\n\nd");
    tokenizer_close(t);
    p.model = "gpt2", p.pre = "sarvam-moe", p.add_bos = -1; /* the same by another name */
    if (open_parts(&p, &t, &err)) fail_msg("%s", err.text);
    assert_encodes(t, " ab\n\n\nd a", TOKENIZER_ADD_SPECIAL, "3 6 9 8 10 7");
    tokenizer_close(t);
    p.merges = NULL;
    assert_int_equal(open_parts(&p, &t, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "merges"));
}

static void test_gguf_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b"};
    static const int32_t types[] = {1, 1};
    static const char *const none[] = {"ab"};
    static const struct {
        struct gguf_parts parts;
        int status;
        const char *sentence_part;
    } cases[] = {
        {{.add_bos = -1}, STATUS_INVALID, "no tokenizer"},
        {{.model = "rwkv", .add_bos = -1}, STATUS_UNSUPPORTED, "rwkv"},
        {{.model = "t5", .add_bos = -1}, STATUS_INVALID, "tokens"},
        {{.model = "t5", PARTS(names), .add_bos = -1}, STATUS_INVALID, "scores"},
        {{.model = "bert", .add_bos = -1}, STATUS_INVALID, "tokens"},
        {{.model = "bert", PARTS(names), .add_bos = -1}, STATUS_INVALID, "[CLS]"},
        {{.model = "gpt2", .add_bos = -1}, STATUS_UNSUPPORTED, "pre-tokenizer"},
        {{.model = "gpt2", .pre = "jina", .add_bos = -1}, STATUS_UNSUPPORTED, "jina"},
        {{.model = "gpt2", .pre = "gpt-2", .add_bos = -1}, STATUS_INVALID, "tokens"},
        {{.model = "gpt2", .pre = "gpt-2", PARTS(names), .types = types, .num_types = 1, .add_bos = -1},
         STATUS_INVALID,
         "token_type"},
        {{.model = "gpt2", .pre = "gpt-2", PARTS(names), .add_bos = -1}, STATUS_INVALID, "merges"},
        {{.model = "gpt2", .pre = "gpt-2", PARTS(names), .merges = none, .num_merges = 1, .add_bos = -1},
         STATUS_INVALID,
         "Merge 0"},
        {{.model = "gpt2",
          .pre = "gpt-2",
          PARTS(names),
          .merges = none,
          .num_merges = 0,
          .bos_id = 2,
          .add_bos = 1},
         STATUS_INVALID,
         "bos_token_id"},
        {{.model = "llama", PARTS(names), .add_bos = -1}, STATUS_INVALID, "scores"},
    };
    for (size_t i = 0; i < array_length(cases); i++) {
        struct tokenizer *t = NULL;
        struct error err = {0};
        int status = open_parts(&cases[i].parts, &t, &err);
        if (status != cases[i].status || !strstr(err.text, cases[i].sentence_part))
            fail_msg("case %zu: status %d (\"%s\")", i, status, err.text);
        assert_null(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_refused),    cmocka_unit_test(test_json_cut_off),
        cmocka_unit_test(test_word_pieces),     cmocka_unit_test(test_word_pieces_refused),
        cmocka_unit_test(test_scores),          cmocka_unit_test(test_scores_refused),
        cmocka_unit_test(test_broken_rules),    cmocka_unit_test(test_config_names),
        cmocka_unit_test(test_gguf_byte_level), cmocka_unit_test(test_gguf_of_bitnet_names_no_pretokenizer),
        cmocka_unit_test(test_gguf_scores),     cmocka_unit_test(test_gguf_merges_of_text),
        cmocka_unit_test(test_gguf_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
