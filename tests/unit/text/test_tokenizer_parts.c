/* The tokenizer's parts by themselves: UTF-8, added tokens, pre-tokenizers, NFC, merges against a naive
 * version. */
#include "unit/model/model_bytes.h"

#include <utf8proc.h>

#include "base/rng.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/byte_map.h"
#include "text/tokenizer/nfc.h"
#include "text/tokenizer/pretokenizer.h"
#include "text/tokenizer/unicode.h"

static uint32_t draw(uint64_t *counter, uint32_t below)
{
    return rng_philox(7, (*counter)++, 0).word[0] % below;
}

/* ---- UTF-8 ---- */

static void test_utf8_round_trip(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xD800 && c < 0xE000) continue;
        unsigned char bytes[4];
        int n = utf8_encode(c, bytes), length;
        assert_true(utf8_is_valid(bytes, (size_t)n));
        assert_int_equal(utf8_length(bytes, bytes + n), n);
        assert_int_equal(utf8_decode(bytes, bytes + n, &length), c);
        assert_int_equal(length, n);
        assert_ptr_equal(utf8_previous(bytes, bytes + n), bytes);
        if (n > 1) assert_false(utf8_is_valid(bytes, (size_t)n - 1));
        if (n > 1) assert_int_equal(utf8_length(bytes, bytes + n - 1), 0);
    }
}

static void test_utf8_damaged(void **state)
{
    (void)state;
    static const char *const damaged[] = {
        "\x80",         "\xC0\x80",         "\xC1\xBF",         "\xE0\x9F\xBF",
        "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
        "\xFF",         "a\xE2\x82"};
    for (size_t i = 0; i < array_length(damaged); i++) {
        const unsigned char *p = (const unsigned char *)damaged[i], *end = p + strlen(damaged[i]);
        assert_false(utf8_is_valid(p, (size_t)(end - p)));
        while (p < end) {
            int n;
            utf8_decode(p, end, &n);
            assert_in_range(n, 1, end - p);
            p += n;
        }
    }
}

static void test_unicode_properties(void **state)
{
    (void)state;
    static const struct {
        uint32_t code_point;
        unsigned category;
    } cases[] = {{'A', CATEGORY_UPPER},       {'z', CATEGORY_LOWER},       {0x01C5, CATEGORY_UPPER},
                 {0x5D0, CATEGORY_UNCASED},   {0x2B0, CATEGORY_UNCASED},   {0x301, CATEGORY_MARK},
                 {'7', CATEGORY_NUMBER},      {0xBD, CATEGORY_NUMBER},     {0x85, CATEGORY_SPACE},
                 {0x3000, CATEGORY_SPACE},    {0x180E, CATEGORY_OTHER},    {0x200B, CATEGORY_OTHER},
                 {0x17F, CATEGORY_LOWER},     {0x20000, CATEGORY_UNCASED}, {0x10FFFF, CATEGORY_OTHER},
                 {0xFFFFFFFF, CATEGORY_OTHER}};
    for (size_t i = 0; i < array_length(cases); i++)
        assert_int_equal(unicode_properties(cases[i].code_point) & UNICODE_CATEGORY, cases[i].category);
    assert_true(unicode_properties('7') & UNICODE_NUMERIC);
    assert_true(unicode_properties('_') & UNICODE_WORD);
    assert_true(unicode_properties(0x301) & UNICODE_NFC_ACTIVE);
    assert_false(unicode_properties(0xE9) & UNICODE_NFC_ACTIVE);
    assert_true(unicode_properties('!') & UNICODE_PUNCTUATION);
    assert_true(unicode_properties(0x3002) & UNICODE_PUNCTUATION);
    assert_true(unicode_properties('+') & UNICODE_SYMBOL);
    assert_true(unicode_properties(0x1F600) & UNICODE_SYMBOL);
    assert_false(unicode_properties('a') & (UNICODE_PUNCTUATION | UNICODE_SYMBOL));
}

static void test_byte_map(void **state)
{
    (void)state;
    char out[64];
    size_t n;
    assert_true(byte_map_decode("\u0120the\u010a\u0142\u0143\u00ff", 13, out, &n));
    assert_int_equal(n, 8);
    assert_memory_equal(out, " the\n\xA0\xAD\xFF", 8);
    assert_false(byte_map_decode("\u2581the", 6, out, &n));
    assert_false(byte_map_decode("a b", 3, out, &n)); /* a space is not its own stand-in */
    assert_false(byte_map_decode("\u0144", 2, out, &n));
}

/* ---- added tokens ---- */

static void fill_added(struct added_tokens *a, const struct added_token *tokens, size_t n)
{
    added_tokens_init(a);
    for (size_t i = 0; i < n; i++) assert_int_equal(added_tokens_add(a, &tokens[i], NULL), 0);
    assert_int_equal(added_tokens_index(a, NULL), 0);
}

#define ADDED(text, number, ...)                                                                             \
    {                                                                                                        \
        .content = (char *)(text), .num_bytes = strlen(text), .id = (number), __VA_ARGS__                    \
    }

/* Matches as "id:begin-end ..." */
static void assert_matches(const struct added_tokens *a, const char *text, bool skip_special,
                           const char *expected)
{
    char found[256] = "";
    size_t n = 0, num_bytes = strlen(text);
    struct added_search search = {
        .tokens = a, .text = text, .end = num_bytes, .swallow_end = num_bytes, .skip_special = skip_special};
    struct added_match m;
    while (added_search_next(&search, &m))
        n +=
            (size_t)snprintf(found + n, sizeof found - n, "%s%d:%zu-%zu", n ? " " : "", m.id, m.begin, m.end);
    assert_string_equal(found, expected);
}

static void test_added_longest_first(void **state)
{
    (void)state;
    struct added_token tokens[] = {ADDED("<a>", 1),    ADDED("<a>b", 2),         ADDED("b", 3),
                                   ADDED("<a>bcd", 4), ADDED("\xE2\x96\x81", 5), ADDED("<", 6)};
    struct added_tokens a;
    fill_added(&a, tokens, array_length(tokens));
    assert_matches(&a, "x<a>bcx<a>bcdb", false, "2:1-5 4:7-13 3:13-14");
    assert_matches(&a, "<a<a\xE2\x96\x81", false, "6:0-1 6:2-3 5:4-7");
    assert_matches(&a, "", false, "");
    assert_int_equal(added_tokens_find(&a, "<a>b", 4), 2);
    assert_int_equal(added_tokens_find(&a, "<a>bc", 5), -1);
    added_tokens_deinit(&a);
}

static void test_added_flags(void **state)
{
    (void)state;
    struct added_token tokens[] = {ADDED("<l>", 1, .lstrip = true), ADDED("<r>", 2, .rstrip = true),
                                   ADDED("word", 3, .single_word = true), ADDED("<s>", 4, .special = true),
                                   ADDED("s>", 5)};
    struct added_tokens a;
    fill_added(&a, tokens, array_length(tokens));
    assert_matches(&a, "a \xC2\xA0<l> b", false, "1:1-7");
    assert_matches(&a, "a<r> \n b", false, "2:1-7");
    assert_matches(&a, "<r>  <l>", false, "2:0-5 1:5-8");
    assert_matches(&a, "word words aword (word) \xC3\xA9word", false, "3:0-4 3:18-22");
    assert_matches(&a, "<s> s>", false, "4:0-3 5:4-6");
    assert_matches(&a, "<s> s>", true, "5:4-6"); /* what is passed over takes its text with it */
    added_tokens_deinit(&a);
}

static void test_added_refused(void **state)
{
    (void)state;
    struct added_tokens a;
    struct error err = {0};
    added_tokens_init(&a);
    struct added_token empty = ADDED("", 1), one = ADDED("x", 1);
    assert_int_equal(added_tokens_add(&a, &empty, &err), STATUS_INVALID);
    assert_int_equal(added_tokens_add(&a, &one, &err), 0);
    assert_int_equal(added_tokens_add(&a, &one, &err), 0);
    assert_int_equal(added_tokens_index(&a, &err), STATUS_INVALID);
    added_tokens_deinit(&a);
}

/* ---- pre-tokenizers ---- */

/* Pieces joined by | */
static void assert_pieces(const struct pretokenizer *p, const char *text, const char *expected)
{
    struct buffer out;
    buffer_init(&out, 4096);
    struct piece_walk walk = piece_walk_start(p, text, strlen(text));
    const char *piece;
    size_t n;
    while (piece_walk_next(&walk, &piece, &n)) {
        if (out.num_bytes) buffer_append_char(&out, '|');
        buffer_append(&out, piece, n);
    }
    assert_string_equal(out.num_bytes ? out.data : "", expected);
    buffer_deinit(&out);
}

static void test_pretokenizers(void **state)
{
    (void)state;
    static const struct {
        struct {
            int num_stages;
            enum pretokenizer_kind stages[2];
        } p;
        const char *text, *pieces;
    } cases[] = {
        {{1, {PRETOKENIZE_GPT2}}, "I'll don't  x1 23!!\n\n y ", "I|'ll| don|'t| | x|1| 23|!!|\n\n| y| "},
        {{1, {PRETOKENIZE_GPT2}}, "IT'S 'S\u3000\u3000a", "IT|'|S| '|S|\u3000|\u3000|a"},
        {{1, {PRETOKENIZE_LLAMA3}},
         "IT'S 12345\r\n\r\nab\n  c\t\td",
         "IT|'S| |123|45|\r\n\r\n|ab|\n| | c|\t|\td"},
        {{1, {PRETOKENIZE_LLAMA3}}, "x'\u017f 'lL?!\n\n(a  ", "x|'\u017f| '|lL|?!\n\n|(a|  "},
        {{1, {PRETOKENIZE_LLAMA3}}, " \n \n  a\n", " \n \n| | a|\n"},
        {{1, {PRETOKENIZE_QWEN2}}, "a123 4", "a|1|2|3| |4"},
        {{1, {PRETOKENIZE_QWEN35}}, "a\u0301b \u0301 .\u0301c 12", "a\u0301b| \u0301| .|\u0301c| |1|2"},
        {{1, {PRETOKENIZE_QWEN2}}, "a\u0301b \u0301 .\u0301c", "a|\u0301b| \u0301| .\u0301|c"},
        {{1, {PRETOKENIZE_TEKKEN}},
         "HelloWorld XMLHttp \u4e2dA a/b//\n",
         "Hello|World| XMLHttp| \u4e2d|A| a|/b|//\n"},
        {{1, {PRETOKENIZE_TEKKEN}}, "ABC\u0301dA\u0301", "ABC\u0301d|A\u0301"},
        {{1, {PRETOKENIZE_TEKKEN}}, "\u0301A", "\u0301|A"},
        {{1, {PRETOKENIZE_O200K}},
         "It'S DON'Ts 12345 a'b'\u017f//\n",
         "It'S| DON'T|s| |123|45| a|'b'\u017f|//\n"},
        {{1, {PRETOKENIZE_YOUTU}}, "Don't 12", "Don't| |1|2"},
        {{1, {PRETOKENIZE_KIMI}},
         "It'S \u4e2d\u6587a\u4e2dB \u3042\u4e2d 12345//\n  \u4e2d",
         "It'S| |\u4e2d\u6587|a|\u4e2d|B| \u3042|\u4e2d| |123|45|//\n| | |\u4e2d"},
        {{1, {PRETOKENIZE_KIMI}}, "(\u4e2d)a \u3007\u2e80.\u2e80", "(|\u4e2d|)a| |\u3007\u2e80|.\u2e80"},
        {{1, {PRETOKENIZE_EXAONE_MOE}}, "an a\u0301 x  y 12.\n\n/a", "an a\u0301 x| | y| |1|2|.\n|\n|/a"},
        {{1, {PRETOKENIZE_EXAONE_MOE}}, "(ab c'S //\n \n d", "(ab c|'S| //\n| \n| d"},
        {{1, {PRETOKENIZE_THREES}}, "a1234567 12 123", "a|1|234|567| |12| |123"},
        {{1, {PRETOKENIZE_WORD_THREES}},
         "a12345 1234b 123456\u00bd 1234",
         "a|12|345| 1234b 123456\u00bd |1|234"},
        {{1, {PRETOKENIZE_DECIMAL_THREES}}, "a1234567 12\u00bd123 1234", "a1|234|567 12\u00bd|123 1|234"},
        {{1, {PRETOKENIZE_WORD_THREES}}, "1234567", "1|234|567"},
        {{1, {PRETOKENIZE_UFAKZEKA}}, "Ali'den It's 12", "Ali|'den| It|'s| |1|2"},
        {{1, {PRETOKENIZE_JAIS2}}, "a       b     \n  1", "a|    |  | b|     \n| | |1"},
        {{1, {PRETOKENIZE_JAIS2}}, "1   1  1\t1   ", "1|  | |1| | |1|\t|1|  | "},
        {{1, {PRETOKENIZE_SPARK}}, "a!?\n\n  b (c", "a|!?|\n|\n| | b| (|c"},
        {{2, {PRETOKENIZE_DIGITS, PRETOKENIZE_GPT2}}, "a 12  3\u00bd", "a| |1|2|  |3|\u00bd"},
        {{1, {PRETOKENIZE_NUMBERS}}, "a12b345", "a|12|b|345"},
        {{1, {PRETOKENIZE_METASPACE}}, "a\u2581\u2581b\u2581", "a|\u2581|\u2581b|\u2581"},
        {{1, {PRETOKENIZE_META_WORDS}}, "a\u2581\u2581b\u2581", "a|\u2581\u2581b|\u2581"},
        {{0, {0}}, "a b", "a b"},
        {{1, {PRETOKENIZE_LLAMA3}}, "", ""},
    };
    for (size_t i = 0; i < array_length(cases); i++) {
        struct pretokenizer p = {0};
        for (int k = 0; k < cases[i].p.num_stages; k++)
            assert_true(pretokenizer_add(&p, cases[i].p.stages[k]));
        assert_pieces(&p, cases[i].text, cases[i].pieces);
    }
}

/* Any bytes at all: the pieces cover them in order and none is empty. */
static void test_pieces_cover(void **state)
{
    (void)state;
    static const char *const atoms[] = {" ",    "\n",     "\r",     "a",          "B",      "7", "'",
                                        "s",    "\u0301", "\u4e2d", "\u00a0",     "\u2581", "!", "/",
                                        "\xE2", "\xFF",   "\x80",   "\U0001F600", "\u0130", "ll"};
    uint64_t counter = 0;
    for (int round = 0; round < 20000; round++) {
        char text[128];
        size_t n = 0;
        for (uint32_t k = draw(&counter, 20); k > 0; k--) {
            const char *atom = atoms[draw(&counter, array_length(atoms))];
            memcpy(text + n, atom, strlen(atom));
            n += strlen(atom);
        }
        struct pretokenizer p = {0};
        for (uint32_t i = draw(&counter, 4); i > 0; i--) {
            uint32_t kind = draw(&counter, PRETOKENIZE_BERT + 1);
            if (kind == PRETOKENIZE_RUN)
                assert_true(
                    pretokenizer_add_regex(&p, draw(&counter, 2) ? "\\s?[\\p{P}\n\\p{M}]+" : "[a7\u3000]"));
            else
                assert_true(pretokenizer_add(&p, (enum pretokenizer_kind)kind));
        }
        struct piece_walk walk = piece_walk_start(&p, text, n);
        const char *piece, *at = text;
        size_t piece_bytes;
        while (piece_walk_next(&walk, &piece, &piece_bytes)) {
            assert_ptr_equal(piece, at);
            assert_true(piece_bytes > 0);
            at += piece_bytes;
        }
        assert_ptr_equal(at, text + n);
    }
}

/* What a piece costs does not grow with what follows it. */
static void test_pieces_of_long_runs(void **state)
{
    (void)state;
    enum { BYTES = 4 << 20 };
    static const struct {
        enum pretokenizer_kind kind;
        const char *part;
        int num_pieces;
    } cases[] = {{PRETOKENIZE_KIMI, "Aa", BYTES / 2}, {PRETOKENIZE_JAIS2, "  ", BYTES / 512}};
    char *text = malloc(BYTES);
    assert_non_null(text);
    for (size_t i = 0; i < array_length(cases); i++) {
        struct pretokenizer p = {0};
        assert_true(pretokenizer_add(&p, cases[i].kind));
        for (size_t at = 0; at < BYTES; at += 2) memcpy(text + at, cases[i].part, 2);
        struct piece_walk walk = piece_walk_start(&p, text, BYTES);
        const char *piece;
        size_t num_bytes;
        int num_pieces = 0;
        while (piece_walk_next(&walk, &piece, &num_bytes)) num_pieces++;
        assert_int_equal(num_pieces, cases[i].num_pieces);
    }
    free(text);
}

static void test_regexes(void **state)
{
    (void)state;
    struct pretokenizer p = {0};
    assert_true(pretokenizer_add_regex(
        &p, "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"));
    assert_int_equal(p.stages[0], PRETOKENIZE_GPT2);
    assert_true(pretokenizer_leaves_nothing(&p));
    assert_true(pretokenizer_add_regex(&p, "\\p{N}"));
    assert_int_equal(p.stages[1], PRETOKENIZE_RUN);
    assert_false(pretokenizer_leaves_nothing(&p));
    while (p.num_stages < PRETOKENIZER_STAGES_MAX) assert_true(pretokenizer_add(&p, PRETOKENIZE_DIGITS));
    assert_false(pretokenizer_add(&p, PRETOKENIZE_DIGITS));
    assert_false(pretokenizer_add_regex(&p, "\\p{N}"));
}

/* Line breaks stand in the models' files as they are, here and there. */
static void test_regex_spellings(void **state)
{
    (void)state;
    struct pretokenizer p = {0};
    assert_true(pretokenizer_add_regex(
        &p, "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+"
            "|\\s*[\\r\n]+|\\s+(?!\\S)|\\s+"));
    assert_int_equal(p.stages[0], PRETOKENIZE_SEED);
    assert_false(pretokenizer_add_regex(&p, "\n"));
    assert_false(pretokenizer_add_regex(&p, ""));
    assert_false(pretokenizer_add_regex(&p, "\\s+$")); /* lines would end in a piece */
    assert_true(pretokenizer_add_regex(&p, "[\r\n]"));
    assert_true(pretokenizer_add_regex(&p, "\\s+$"));
}

static void test_char_runs(void **state)
{
    (void)state;
    static const char *const refused[] = {
        "",        "a",        "[]",    "[a",     "[^]",      "[a]*",  "[a-]", "[-a]",  "[z-a]", "[a&&b]",
        "[[:a:]]", "[a]{1,2}", "[a[]]", "[[^a]]", "\\p{Lu}+", "[a]+b", "\\s?", "[\\d]", "[a]++"};
    struct char_run run;
    for (size_t i = 0; i < array_length(refused); i++) assert_false(char_run_parse(refused[i], &run));
    assert_true(char_run_parse("\\s?[c-ex\\p{N}a-d\u4E00f]+", &run));
    assert_true(run.may_follow_space);
    assert_int_equal(run.num_ranges, 3); /* a-f, x, U+4E00 */
    for (uint32_t c = 0; c < 0x6000; c++)
        assert_int_equal(char_run_has(&run, c),
                         (c >= 'a' && c <= 'f') || c == 'x' || c == 0x4E00 ||
                             (unicode_properties(c) & UNICODE_CATEGORY) == CATEGORY_NUMBER);
    assert_true(char_run_parse(" ?[^(\\s|[.\\]])]+", &run));
    assert_true(run.may_follow_blank && !run.may_follow_space);
    for (const char *c = "( |.]\t"; *c; c++) assert_false(char_run_has(&run, (unsigned char)*c));
    for (const char *c = "a1[\\"; *c; c++) assert_true(char_run_has(&run, (unsigned char)*c));
    char many[4 * CHAR_RANGES_MAX + 8] = "[", *end = many + 1;
    for (uint32_t i = 0; i <= CHAR_RANGES_MAX; i++) end += utf8_encode(0x1000 + 2 * i, (unsigned char *)end);
    memcpy(end, "]", 2);
    assert_false(char_run_parse(many, &run));
    memcpy(end - 3, "]", 2);
    assert_true(char_run_parse(many, &run));
    assert_int_equal(run.num_ranges, CHAR_RANGES_MAX);
}

/* Regular expressions one after another, | between pieces. */
static void test_stages(void **state)
{
    (void)state;
    static const struct {
        const char *regexes[6], *text, *pieces;
    } cases[] = {
        {{"\\p{N}{1,3}"}, "12345a6 \u0664\u0665", "123|45|a|6| |\u0664\u0665"},
        {{"[\r\n]"}, "a\r\n\nb", "a|\r|\n|\n|b"},
        {{"\\s?\\p{P}+"}, "a .. !b\u3000\u3002+", "a| ..| !|b|\u3000\u3002|+"},
        {{"\\s?[\u3000-\u3002]+"},
         "a\u3000\u3000b \u3000",
         "a|\u3000\u3000|b| \u3000"}, /* a space of the set */
        {{"[\\r\\n]", "\\s?\\p{L}+", "\\s+$"}, "  ab  \n c ?  ", " | ab|  |\n| c| ?|  "},
        {{"[\u4E00-\u9FA5\u3040-\u30FF]+"}, "a\u4E00\u3042b", "a|\u4E00\u3042|b"},
        {{"[\u4E00-\u9FFF\u3400-\u4DBF\uF900-\uFAFF\u3040-\u309F\u30A0-\u30FF\uFF65-\uFF9F\u2F00-\u2FDF"
          "\u0E40-\u0E7F\u0E80-\u0EFF\u1780-\u17FF\u1000-\u109F\uAA60-\uAA7F\uA9E0-\uA9FF\uAC00-\uD7AF"
          "\u1100-\u11FF]+"},
         "a\u4E00\u0E40b",
         "a|\u4E00\u0E40|b"},
        {{"\\p{N}{1,3}",
          "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
          "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"},
         "I'll 1234x..y  \n\n z\u0301 +\u200b\u200b\u200bq\001\001",
         "I|'ll| |123|4|x|..|y|  \n\n| z\u0301| +|\u200b\u200b|\u200bq|\001\001"},
        {{"[0-9][0-9][0-9]"}, "a12345678\u0664\u0665\u0666", "a|123|456|78\u0664\u0665\u0666"},
        {{"\\p{N}{1,3}",
          "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}+| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
          "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
         "I'LL 12345 a",
         "I|'LL| |123|45| a"}, /* MiniCPM 5's */
    };
    for (size_t i = 0; i < array_length(cases); i++) {
        struct pretokenizer p = {0};
        for (int k = 0; k < 6 && cases[i].regexes[k]; k++)
            assert_true(pretokenizer_add_regex(&p, cases[i].regexes[k]));
        assert_pieces(&p, cases[i].text, cases[i].pieces);
    }
}

/* Falcon's: runs of punctuation, words, numbers in threes. */
static void test_punctuation(void **state)
{
    (void)state;
    struct pretokenizer alone = {.num_stages = 1, .stages = {PRETOKENIZE_PUNCTUATION}},
                        falcon = {.num_stages = 3,
                                  .stages = {PRETOKENIZE_PUNCTUATION_RUNS, PRETOKENIZE_GPT2,
                                             PRETOKENIZE_THREE_DIGITS}};
    assert_pieces(&alone, "a!?\u3002 $b", "a|!|?|\u3002| |$|b");
    assert_pieces(&falcon, "it's 12 1234!?$\u3002 x", "it|'|s| 12| |123|4|!?$\u3002| x");
}

/* ---- NFC ---- */

static void assert_nfc(const char *text, size_t num_bytes, const char *expected)
{
    struct buffer out;
    buffer_init(&out, 1 << 20);
    nfc_append(text, num_bytes, &out);
    assert_false(buffer_failed(&out));
    assert_int_equal(out.num_bytes, strlen(expected));
    if (out.num_bytes) assert_memory_equal(out.data, expected, out.num_bytes);
    buffer_deinit(&out);
}

/* Against utf8proc's own whole function, over code points whose class the reference and it agree on. */
static void test_nfc_against_utf8proc(void **state)
{
    (void)state;
    uint64_t counter = 0;
    static const uint32_t bases[] = {'a',    'e',   0xE9,   0x212B, 0x1100, 0xAC00, 0xAC01, 0x915,   0x9C7,
                                     0x1E0B, 0x6C7, 0x3046, 0xF900, 0x2126, ' ',    0x4E2D, 0x1F600, 0x11099};
    static const uint32_t marks[] = {0x300, 0x301, 0x308,  0x323,  0x327,   0x328,   0x345,
                                     0x31B, 0x335, 0x1161, 0x11A8, 0x93C,   0x9BE,   0x3099,
                                     0x654, 0x5B4, 0xF71,  0x338,  0x110BA, 0x1D165, 0x344};
    for (int round = 0; round < 20000; round++) {
        unsigned char text[256];
        size_t n = 0;
        for (uint32_t k = draw(&counter, 40); k > 0; k--) {
            uint32_t c = draw(&counter, 3) ? marks[draw(&counter, array_length(marks))]
                                           : bases[draw(&counter, array_length(bases))];
            n += (size_t)utf8_encode(c, text + n);
        }
        text[n] = '\0';
        utf8proc_uint8_t *expected = utf8proc_NFC(text);
        assert_nfc((const char *)text, n, (const char *)expected);
        if (nfc_is_normal((const char *)text, n)) assert_string_equal(text, expected);
        free(expected);
    }
}

static void test_nfc_leaves_newer_marks(void **state)
{
    (void)state;
    /* U+0898 came with Unicode 14; the reference neither orders it nor lets it stand between a base and its
     * mark. */
    assert_nfc("a\u0898\u0334", 6, "a\u0898\u0334");
    assert_nfc("a\u0323\u0301", 5, "\u1ea1\u0301");
    assert_nfc("", 0, "");
}

/* An insertion sort would need tens of thousands of millions of steps here. */
static void test_nfc_many_marks(void **state)
{
    (void)state;
    enum { PAIRS = 250000 };
    struct buffer in, out;
    buffer_init(&in, 4 << 20);
    buffer_init(&out, 4 << 20);
    for (int i = 0; i < PAIRS; i++) buffer_append_text(&in, "\u0301\u0323");
    nfc_append(in.data, in.num_bytes, &out);
    assert_int_equal(out.num_bytes, in.num_bytes);
    for (size_t i = 0; i < out.num_bytes; i += 2)
        assert_memory_equal(out.data + i, i < out.num_bytes / 2 ? "\u0323" : "\u0301", 2);
    buffer_deinit(&in);
    buffer_deinit(&out);
}

/* ---- merges ---- */

enum { RANDOM_LETTERS = 4, RANDOM_MERGES = 60 };

struct random_model {
    struct vocab vocab;
    struct bpe bpe;
    struct {
        int32_t left, right, product;
    } merges[RANDOM_MERGES];
    int num_merges;
};

/* Bytes a to d, and merges of any two tokens so far whose joined text is not a token yet. */
static void make_random_model(struct random_model *m, uint64_t *counter)
{
    *m = (struct random_model){0};
    vocab_init(&m->vocab);
    bpe_init(&m->bpe);
    m->bpe.byte_level = true;
    char texts[RANDOM_LETTERS + RANDOM_MERGES][64];
    int num_tokens = 0;
    for (; num_tokens < RANDOM_LETTERS; num_tokens++) {
        char c[] = {(char)('a' + num_tokens), '\0'};
        strcpy(texts[num_tokens], c);
        assert_int_equal(vocab_add(&m->vocab, num_tokens, c, 1, c, 1, 0, NULL), 0);
    }
    for (int tries = 0; tries < RANDOM_MERGES; tries++) {
        int32_t left = (int32_t)draw(counter, (uint32_t)num_tokens),
                right = (int32_t)draw(counter, (uint32_t)num_tokens);
        char joined[128];
        size_t n = (size_t)snprintf(joined, sizeof joined, "%s%s", texts[left], texts[right]);
        bool known = n >= sizeof texts[0];
        for (int i = 0; i < num_tokens && !known; i++) known = strcmp(texts[i], joined) == 0;
        if (known) continue;
        memcpy(texts[num_tokens], joined, n + 1);
        assert_int_equal(vocab_add(&m->vocab, num_tokens, joined, n, joined, n, 0, NULL), 0);
        m->merges[m->num_merges].left = left;
        m->merges[m->num_merges].right = right;
        m->merges[m->num_merges++].product = num_tokens++;
    }
    assert_int_equal(vocab_index(&m->vocab, false, NULL), 0);
    assert_int_equal(bpe_reserve(&m->bpe, RANDOM_MERGES, NULL), 0);
    for (int i = 0; i < m->num_merges; i++)
        bpe_add_merge(&m->bpe, m->merges[i].left, m->merges[i].right, (uint32_t)i, m->merges[i].product);
    assert_int_equal(bpe_finish(&m->bpe, &m->vocab, NULL), 0);
}

/* The definition: of all pairs that merge, the lowest rank, of those the leftmost; again and again. */
static int32_t merge_naively(const struct random_model *m, int32_t *ids, int32_t n)
{
    for (;;) {
        int best_rank = m->num_merges, at = -1;
        for (int32_t i = 0; i + 1 < n; i++) {
            for (int rank = 0; rank < best_rank; rank++) {
                if (m->merges[rank].left != ids[i] || m->merges[rank].right != ids[i + 1]) continue;
                best_rank = rank;
                at = i;
            }
        }
        if (at < 0) return n;
        ids[at] = m->merges[best_rank].product;
        memmove(ids + at + 1, ids + at + 2, (size_t)(n - at - 2) * sizeof *ids);
        n--;
    }
}

struct taken {
    int32_t *ids, num_ids;
};

static int take(void *context, const int32_t *ids, int32_t num_ids)
{
    struct taken *taken = context;
    memcpy(taken->ids + taken->num_ids, ids, (size_t)num_ids * sizeof *ids);
    taken->num_ids += num_ids;
    return 0;
}

enum { LONGEST = 200, SMALLEST_WINDOW = 32 };

static void compare_with_naive(const struct random_model *m, struct bpe_work *work, uint64_t *counter,
                               int32_t n)
{
    char text[LONGEST];
    int32_t ids[LONGEST], found[LONGEST];
    uint32_t letters = 1 + draw(counter, RANDOM_LETTERS);
    for (int32_t i = 0; i < n; i++) {
        ids[i] = (int32_t)draw(counter, letters);
        text[i] = (char)('a' + ids[i]);
    }
    size_t num_bytes = (size_t)n;
    n = merge_naively(m, ids, n);
    for (int again = 0; again < 2; again++) { /* the second time what was learned is used */
        struct taken taken = {.ids = found};
        assert_int_equal(bpe_encode(&m->bpe, &m->vocab, text, num_bytes, work, take, &taken), 0);
        assert_int_equal(taken.num_ids, n);
        assert_memory_equal(found, ids, (size_t)n * sizeof *ids);
    }
}

static void test_bpe_against_naive(void **state)
{
    (void)state;
    uint64_t counter = 0;
    struct bpe_work work = {0};
    for (int round = 0; round < 120; round++) {
        struct random_model m;
        make_random_model(&m, &counter);
        if (round % 2) m.bpe.window_units = SMALLEST_WINDOW;
        for (int k = 0; k < 60; k++)
            compare_with_naive(&m, &work, &counter, 1 + (int32_t)draw(&counter, k % 2 ? 45 : LONGEST));
        vocab_deinit(&m.vocab);
        bpe_deinit(&m.bpe);
    }
    bpe_work_deinit(&work);
}

static int count(void *context, const int32_t *ids, int32_t num_ids)
{
    (void)ids;
    *(int32_t *)context += num_ids;
    return 0;
}

/* One letter, and a merge of each power of two of it: the memory beside text and tokens does not grow. */
static void test_bpe_of_a_huge_piece(void **state)
{
    (void)state;
    enum { BYTES = (8 << 20) + 7, DOUBLINGS = 6 };
    struct random_model m = {0};
    struct bpe_work work = {0};
    char *text = malloc(BYTES);
    int32_t num_ids = 0;
    assert_non_null(text);
    memset(text, 'a', BYTES);
    vocab_init(&m.vocab);
    bpe_init(&m.bpe);
    m.bpe.byte_level = true;
    for (int i = 0; i <= DOUBLINGS; i++)
        assert_int_equal(vocab_add(&m.vocab, i, text, 1u << i, text, 1u << i, 0, NULL), 0);
    assert_int_equal(vocab_index(&m.vocab, false, NULL), 0);
    assert_int_equal(bpe_reserve(&m.bpe, DOUBLINGS, NULL), 0);
    for (int i = 0; i < DOUBLINGS; i++) bpe_add_merge(&m.bpe, i, i, (uint32_t)i, i + 1);
    assert_int_equal(bpe_finish(&m.bpe, &m.vocab, NULL), 0);
    assert_int_equal(bpe_encode(&m.bpe, &m.vocab, text, BYTES, &work, count, &num_ids), 0);
    assert_int_equal(num_ids, (BYTES >> DOUBLINGS) + 3); /* 7 is 4, 2 and 1 */
    assert_in_range(work.capacity, 1, 16 << 10);
    bpe_work_deinit(&work);
    vocab_deinit(&m.vocab);
    bpe_deinit(&m.bpe);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8_round_trip),
        cmocka_unit_test(test_utf8_damaged),
        cmocka_unit_test(test_unicode_properties),
        cmocka_unit_test(test_byte_map),
        cmocka_unit_test(test_added_longest_first),
        cmocka_unit_test(test_added_flags),
        cmocka_unit_test(test_added_refused),
        cmocka_unit_test(test_pretokenizers),
        cmocka_unit_test(test_pieces_cover),
        cmocka_unit_test(test_pieces_of_long_runs),
        cmocka_unit_test(test_regexes),
        cmocka_unit_test(test_regex_spellings),
        cmocka_unit_test(test_char_runs),
        cmocka_unit_test(test_punctuation),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_nfc_against_utf8proc),
        cmocka_unit_test(test_nfc_leaves_newer_marks),
        cmocka_unit_test(test_nfc_many_marks),
        cmocka_unit_test(test_bpe_against_naive),
        cmocka_unit_test(test_bpe_of_a_huge_piece),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
