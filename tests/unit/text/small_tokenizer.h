/* small_tokenizer.h - small tokenizer.json files for tests, and short ways to use a tokenizer.
 *
 * Byte level: all 256 bytes are tokens 0 to 255, then the products of the given merges, then the added
 * tokens. Text level: <unk> <s> </s>, 256 byte tokens, U+2581, a to z, then the same. */
#ifndef TESTS_UNIT_MODEL_SMALL_TOKENIZER_H
#define TESTS_UNIT_MODEL_SMALL_TOKENIZER_H

#include "unit/model/model_bytes.h"

#include "text/tokenizer.h"
#include "text/tokenizer/unicode.h"

#define LLAMA3_REGEX                                                                                         \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"                                 \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

struct small_merge {
    const char *left, *right;
};

struct small_added {
    const char *content;
    bool special, lstrip, rstrip, single_word;
};

/* GPT-2's stand-in for a byte, as UTF-8. */
static inline void append_byte_name(struct buffer *b, unsigned char byte)
{
    uint32_t c = byte;
    if (byte <= 32) c = 256u + byte;
    if (byte >= 127 && byte <= 160) c = 256u + 33 + byte - 127;
    if (byte == 173) c = 256 + 67;
    unsigned char utf8[4];
    buffer_append(b, utf8, (size_t)utf8_encode(c, utf8));
}

static inline void append_names(struct buffer *b, bool byte_level, const char *text, size_t n)
{
    struct buffer name;
    buffer_init(&name, 4096);
    for (size_t i = 0; i < n; i++) {
        if (byte_level)
            append_byte_name(&name, (unsigned char)text[i]);
        else
            buffer_append_char(&name, text[i]);
    }
    buffer_append_json(b, name.num_bytes ? name.data : "", name.num_bytes);
    buffer_deinit(&name);
}

static inline void append_vocab_item(struct buffer *b, bool byte_level, const char *text, size_t n, int *id)
{
    if (*id > 0) buffer_append_char(b, ',');
    append_names(b, byte_level, text, n);
    buffer_printf(b, ":%d", (*id)++);
}

static inline int append_first_tokens(struct buffer *b, bool byte_level)
{
    int id = 0;
    for (int byte = 0; byte_level && byte < 256; byte++) {
        char c = (char)byte;
        append_vocab_item(b, true, &c, 1, &id);
    }
    if (byte_level) return id;
    static const char *const first[] = {"<unk>", "<s>", "</s>"};
    for (int i = 0; i < 3; i++) append_vocab_item(b, false, first[i], strlen(first[i]), &id);
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", byte);
        append_vocab_item(b, false, name, 6, &id);
    }
    append_vocab_item(b, false, "\u2581", 3, &id);
    for (char c = 'a'; c <= 'z'; c++) append_vocab_item(b, false, &c, 1, &id);
    return id;
}

static inline void append_added(struct buffer *b, const struct small_added *a, int id, bool first)
{
    if (!first) buffer_append_char(b, ',');
    buffer_append_text(b, "{\"content\":");
    buffer_append_json(b, a->content, strlen(a->content));
    buffer_printf(
        b, ",\"id\":%d,\"special\":%s,\"lstrip\":%s,\"rstrip\":%s,\"single_word\":%s,\"normalized\":false}",
        id, a->special ? "true" : "false", a->lstrip ? "true" : "false", a->rstrip ? "true" : "false",
        a->single_word ? "true" : "false");
}

/* Everything between the braces of a tokenizer.json but normalizer, pre_tokenizer, decoder and
 * post_processor. */
static inline int append_model(struct buffer *b, bool byte_level, const struct small_merge *merges,
                               int num_merges, const struct small_added *added, int num_added)
{
    buffer_append_text(b, "\"model\":{\"type\":\"BPE\",");
    if (!byte_level)
        buffer_append_text(b, "\"unk_token\":\"<unk>\",\"byte_fallback\":true,\"fuse_unk\":true,");
    buffer_append_text(b, "\"vocab\":{");
    int id = append_first_tokens(b, byte_level);
    for (int i = 0; i < num_merges; i++) {
        char joined[64];
        int n = snprintf(joined, sizeof joined, "%s%s", merges[i].left, merges[i].right);
        append_vocab_item(b, byte_level, joined, (size_t)n, &id);
    }
    buffer_append_text(b, "},\"merges\":[");
    for (int i = 0; i < num_merges; i++) {
        buffer_append_text(b, i ? ",[" : "[");
        append_names(b, byte_level, merges[i].left, strlen(merges[i].left));
        buffer_append_char(b, ',');
        append_names(b, byte_level, merges[i].right, strlen(merges[i].right));
        buffer_append_char(b, ']');
    }
    buffer_append_text(b, "]},\"added_tokens\":[");
    int first_added = id;
    if (!byte_level) {
        static const char *const special[] = {"<unk>", "<s>", "</s>"};
        for (int i = 0; i < 3; i++)
            append_added(b, &(struct small_added){.content = special[i], .special = true}, i, i == 0);
    }
    for (int i = 0; i < num_added; i++) append_added(b, &added[i], id++, i == 0 && byte_level);
    buffer_append_text(b, "]");
    return first_added;
}

static inline void append_llama3_pipeline(struct buffer *b)
{
    buffer_append_text(
        b, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":"
           "{\"Regex\":");
    buffer_append_json(b, LLAMA3_REGEX, strlen(LLAMA3_REGEX));
    buffer_append_text(
        b, "},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":"
           "false,\"use_regex\":false}]},\"decoder\":{\"type\":\"ByteLevel\"},");
}

static inline void append_llama2_pipeline(struct buffer *b)
{
    buffer_append_text(
        b,
        "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\u2581\"}"
        ",{"
        "\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\u2581\"}]},\"decoder\":{\"type\":"
        "\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\u2581\"},\"content\":\" "
        "\"},"
        "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,"
        "\"stop\":0}]},\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{"
        "\"id\":"
        "\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{\"<s>\":{"
        "\"id\":"
        "\"<s>\",\"ids\":[1],\"tokens\":[\"<s>\"]}}},");
}

static inline int open_json(const char *json, struct tokenizer **t, struct error *err)
{
    char directory[TEST_PATH_BYTES];
    make_directory(directory);
    write_text(directory, "tokenizer.json", json);
    int status = tokenizer_open_directory(directory, t, err);
    remove_directory(directory);
    return status;
}

/* *first_added, if asked for: the id of the first added token. */
static inline struct tokenizer *open_small(bool byte_level, const struct small_merge *merges, int num_merges,
                                           const struct small_added *added, int num_added, int *first_added)
{
    struct buffer b;
    buffer_init(&b, TEST_FILE_BYTES_MAX);
    buffer_append_char(&b, '{');
    if (byte_level)
        append_llama3_pipeline(&b);
    else
        append_llama2_pipeline(&b);
    int first = append_model(&b, byte_level, merges, num_merges, added, num_added);
    if (first_added) *first_added = first;
    buffer_append_char(&b, '}');
    struct tokenizer *t = NULL;
    struct error err = {0};
    int status = open_json(b.data, &t, &err);
    if (status) fail_msg("%s", err.text);
    buffer_deinit(&b);
    return t;
}

static inline struct token_list encode_all(const struct tokenizer *t, const char *text, size_t n,
                                           unsigned flags)
{
    struct token_list list = {0};
    assert_int_equal(tokenizer_encode(t, text, n, NULL, 0, flags, INT32_MAX, &list), 0);
    return list;
}

/* The ids as text, "1 2 3", for comparing. */
static inline const char *ids_text(const struct token_list *list, char out[512])
{
    size_t n = 0;
    out[0] = '\0';
    for (int32_t i = 0; i < list->num_ids && n < 500; i++)
        n += (size_t)snprintf(out + n, 512 - n, i ? " %d" : "%d", list->ids[i]);
    return out;
}

static inline void assert_encodes(const struct tokenizer *t, const char *text, unsigned flags,
                                  const char *expected)
{
    char ids[512];
    struct token_list list = encode_all(t, text, strlen(text), flags);
    assert_string_equal(ids_text(&list, ids), expected);
    token_list_deinit(&list);
}

static inline void assert_decodes(const struct tokenizer *t, const int32_t *ids, int32_t n, bool skip_special,
                                  const char *expected)
{
    struct buffer out;
    buffer_init(&out, 1 << 20);
    tokenizer_decode(t, ids, n, skip_special, &out);
    assert_string_equal(out.num_bytes ? out.data : "", expected);
    buffer_deinit(&out);
}

#endif
