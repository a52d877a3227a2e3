/* One loop over the text with a small state machine; open containers are a stack of frames, so depth costs
 * no C stack. A key is kept as (hash of its unescaped code points, where it lies); when its object closes,
 * the object's keys are sorted by hash and neighbours with equal hashes are compared code point by code
 * point. The hash is seeded from the system's random numbers, so equal hashes cannot be prepared. Memory is
 * bounded by the open objects: max_depth * max_keys keys, and by the body. */
#include "server/api/json_gate.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/check.h"
#include "base/utf8.h"

enum { NUMBER_BYTES_MAX = 63 /* cJSON looks at no more */, FEW_KEYS = 64 };

enum expect {
    EXPECT_VALUE,
    EXPECT_VALUE_OR_END,
    EXPECT_KEY,
    EXPECT_KEY_OR_END,
    EXPECT_COLON,
    EXPECT_COMMA_OR_END
};

struct key {
    uint64_t hash;
    size_t begin; /* first byte after the opening quote */
};

struct frame {
    bool is_object;
    int first_key; /* index into keys; those above belong to this object */
};

struct gate {
    const unsigned char *text;
    size_t n, i;
    const struct json_gate_limits *limits;
    struct error *err;
    enum expect expect;
    uint64_t hash_seed;
    int num_nodes, depth, num_keys, keys_capacity;
    struct key few_keys[FEW_KEYS], *keys;
    struct frame frames[JSON_GATE_DEPTH_MAX];
};

#define fail(g, ...) error_set((g)->err, STATUS_INVALID, __VA_ARGS__)

static int fail_expected(struct gate *g, const char *what)
{
    if (g->i >= g->n) return fail(g, "the JSON ends at byte %zu where %s was expected", g->n, what);
    unsigned char c = g->text[g->i];
    if (c > 0x20 && c < 0x7F) return fail(g, "expected %s at byte %zu of the JSON, got '%c'", what, g->i, c);
    return fail(g, "expected %s at byte %zu of the JSON, got byte 0x%02x", what, g->i, c);
}

static void skip_space(struct gate *g)
{
    while (g->i < g->n &&
           (g->text[g->i] == ' ' || g->text[g->i] == '\t' || g->text[g->i] == '\n' || g->text[g->i] == '\r'))
        g->i++;
}

static int hex_value(unsigned char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The four digits after \u at p, or -1. */
static int32_t decode_hex4(const unsigned char *p, size_t n)
{
    if (n < 4) return -1;
    int32_t unit = 0;
    for (int k = 0; k < 4; k++) {
        int digit = hex_value(p[k]);
        if (digit < 0) return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

/* The code unit of the \u escape at p, or -1. */
static int32_t decode_unit(const unsigned char *p, size_t n)
{
    return n >= 2 && p[0] == '\\' && p[1] == 'u' ? decode_hex4(p + 2, n - 2) : -1;
}

/* Of the \u escape of half a pair at p: the other half behind it, or -1. */
static int32_t decode_low(const unsigned char *p, size_t n)
{
    int32_t low = decode_unit(p, n) < 0xDC00 && n > 6 ? decode_unit(p + 6, n - 6) : -1;
    return low >= 0xDC00 && low < 0xE000 ? low : -1;
}

/* A backslash is at g->i. */
static int read_escape(struct gate *g, uint32_t *code_point)
{
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    size_t at = g->i, left = g->n - at;
    const unsigned char *p = g->text + at;
    const char *letter = left > 1 && p[1] != '\0' ? strchr(letters, p[1]) : NULL;
    if (letter) {
        *code_point = (unsigned char)values[letter - letters];
        g->i += 2;
        return 0;
    }
    if (left < 2 || p[1] != 'u') return fail(g, "unknown escape at byte %zu of the JSON", at);
    int32_t unit = decode_unit(p, left);
    if (unit < 0) return fail(g, "\\u at byte %zu of the JSON is not followed by four hex digits", at);
    g->i += 6;
    *code_point = (uint32_t)unit;
    if (unit < 0xD800 || unit >= 0xE000) return 0;
    int32_t low = decode_low(p, left);
    if (low < 0)
        return fail(g, "lone surrogate \\u%04x at byte %zu of the JSON: it is no character", (unsigned)unit,
                    at);
    g->i += 6;
    *code_point = 0x10000 + ((uint32_t)(unit - 0xD800) << 10) + (uint32_t)(low - 0xDC00);
    return 0;
}

/* Reads one character of a string, escaped or not; g->i is inside the string and not at its closing quote. */
static int read_character(struct gate *g, uint32_t *code_point)
{
    if (g->text[g->i] == '\\') return read_escape(g, code_point);
    if (g->text[g->i] < 0x20)
        return fail(g, "control character 0x%02x at byte %zu of the JSON: escape it inside a string",
                    g->text[g->i], g->i);
    int length;
    const unsigned char *at = g->text + g->i, *end = g->text + g->n;
    if (utf8_length(at, end) == 0) return fail(g, "invalid UTF-8 at byte %zu of the JSON", g->i);
    *code_point = utf8_decode(at, end, &length);
    g->i += (size_t)length;
    return 0;
}

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

/* An opening quote is at g->i. hash may be NULL. */
static int read_string(struct gate *g, uint64_t *hash)
{
    size_t begin = g->i++;
    uint64_t h = g->hash_seed;
    for (;;) {
        if (!hash)
            while (g->i < g->n && is_plain(g->text[g->i])) g->i++;
        if (g->i >= g->n)
            return fail(g, "the string that begins at byte %zu of the JSON does not end", begin);
        if (g->text[g->i] == '"') break;
        uint32_t code_point = 0;
        int status = read_character(g, &code_point);
        if (status < 0) return status;
        h = (h ^ code_point) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    g->i++;
    if (hash) *hash = h;
    return 0;
}

static bool skip_digits(struct gate *g)
{
    size_t begin = g->i;
    while (g->i < g->n && g->text[g->i] >= '0' && g->text[g->i] <= '9') g->i++;
    return g->i > begin;
}

static bool skip_char(struct gate *g, char c)
{
    if (g->i >= g->n || g->text[g->i] != (unsigned char)c) return false;
    g->i++;
    return true;
}

static bool skip_number_grammar(struct gate *g)
{
    skip_char(g, '-');
    if (!skip_char(g, '0') && !skip_digits(g)) return false;
    if (skip_char(g, '.') && !skip_digits(g)) return false;
    if (!skip_char(g, 'e') && !skip_char(g, 'E')) return true;
    if (!skip_char(g, '+')) skip_char(g, '-');
    return skip_digits(g);
}

static int read_number(struct gate *g)
{
    size_t begin = g->i;
    if (!skip_number_grammar(g)) return fail_expected(g, "a digit");
    if (g->i < g->n && g->text[g->i] >= '0' && g->text[g->i] <= '9')
        return fail(g, "the number at byte %zu of the JSON begins with a needless 0", begin);
    size_t length = g->i - begin;
    if (length > NUMBER_BYTES_MAX)
        return fail(g, "the number at byte %zu of the JSON has %zu characters; at most %d are accepted",
                    begin, length, NUMBER_BYTES_MAX);
    char copy[NUMBER_BYTES_MAX + 1];
    memcpy(copy, g->text + begin, length);
    copy[length] = '\0';
    if (!isfinite(strtod(copy, NULL)))
        return fail(g, "the number at byte %zu of the JSON is beyond the range of a double", begin);
    return 0;
}

static int read_literal(struct gate *g, const char *literal)
{
    size_t n = strlen(literal);
    if (g->n - g->i < n || memcmp(g->text + g->i, literal, n) != 0) return fail_expected(g, "a value");
    g->i += n;
    return 0;
}

static int open_container(struct gate *g, bool is_object)
{
    int max_depth = min_of(g->limits->max_depth, (int)JSON_GATE_DEPTH_MAX);
    if (g->depth >= max_depth)
        return error_set(g->err, STATUS_LIMIT,
                         "the JSON is nested deeper than %d levels at byte %zu (--max-json-depth)", max_depth,
                         g->i);
    g->frames[g->depth++] = (struct frame){.is_object = is_object, .first_key = g->num_keys};
    g->expect = is_object ? EXPECT_KEY_OR_END : EXPECT_VALUE_OR_END;
    g->i++;
    return 0;
}

static int read_value(struct gate *g)
{
    if (g->num_nodes++ >= g->limits->max_nodes)
        return error_set(g->err, STATUS_LIMIT, "the JSON has more than %d values (--max-json-nodes)",
                         g->limits->max_nodes);
    unsigned char c = g->text[g->i];
    g->expect = EXPECT_COMMA_OR_END;
    switch (c) {
    case '{':
        return open_container(g, true);
    case '[':
        return open_container(g, false);
    case '"':
        return read_string(g, NULL);
    case 't':
        return read_literal(g, "true");
    case 'f':
        return read_literal(g, "false");
    case 'n':
        return read_literal(g, "null");
    default:
        return c == '-' || (c >= '0' && c <= '9') ? read_number(g) : fail_expected(g, "a value");
    }
}

static bool grow_keys(struct gate *g)
{
    if (g->num_keys < g->keys_capacity) return true;
    int capacity = g->keys_capacity * 2;
    struct key *keys = g->keys == g->few_keys ? malloc((size_t)capacity * sizeof *keys)
                                              : realloc(g->keys, (size_t)capacity * sizeof *keys);
    if (!keys) return false;
    if (g->keys == g->few_keys) memcpy(keys, g->few_keys, sizeof g->few_keys);
    g->keys = keys;
    g->keys_capacity = capacity;
    return true;
}

static int read_key(struct gate *g)
{
    if (g->text[g->i] != '"') return fail_expected(g, "a key in double quotes");
    if (g->num_keys - g->frames[g->depth - 1].first_key >= g->limits->max_keys)
        return error_set(g->err, STATUS_LIMIT,
                         "an object of the JSON has more than %d keys (--max-json-keys)",
                         g->limits->max_keys);
    if (!grow_keys(g)) return error_set(g->err, STATUS_NO_MEMORY, "out of memory while checking the JSON");
    struct key *key = &g->keys[g->num_keys++];
    key->begin = g->i + 1;
    g->expect = EXPECT_COLON;
    return read_string(g, &key->hash);
}

static bool keys_equal(const struct gate *g, size_t a, size_t b)
{
    struct gate left = {.text = g->text, .n = g->n, .i = a}, right = {.text = g->text, .n = g->n, .i = b};
    while (g->text[left.i] != '"' && g->text[right.i] != '"') {
        uint32_t l = 0, r = 0;
        if (read_character(&left, &l) < 0 || read_character(&right, &r) < 0 || l != r) return false;
    }
    return g->text[left.i] == g->text[right.i];
}

static int compare_keys(const void *a, const void *b)
{
    uint64_t x = ((const struct key *)a)->hash, y = ((const struct key *)b)->hash;
    return x < y ? -1 : x > y;
}

static int check_duplicates(struct gate *g, int first_key)
{
    struct key *keys = g->keys + first_key;
    int count = g->num_keys - first_key;
    if (count > 1) qsort(keys, (size_t)count, sizeof *keys, compare_keys);
    for (int a = 0; a < count; a++) {
        for (int b = a + 1; b < count && keys[b].hash == keys[a].hash; b++) {
            if (keys_equal(g, keys[a].begin, keys[b].begin))
                return fail(g, "an object of the JSON has the same key twice, at bytes %zu and %zu",
                            min_of(keys[a].begin, keys[b].begin), max_of(keys[a].begin, keys[b].begin));
        }
    }
    return 0;
}

static int close_container(struct gate *g)
{
    struct frame frame = g->frames[--g->depth];
    g->i++;
    g->expect = EXPECT_COMMA_OR_END;
    int status = frame.is_object ? check_duplicates(g, frame.first_key) : 0;
    g->num_keys = frame.first_key;
    return status;
}

static int read_comma_or_end(struct gate *g)
{
    bool is_object = g->frames[g->depth - 1].is_object;
    if (g->text[g->i] == (is_object ? '}' : ']')) return close_container(g);
    if (!skip_char(g, ',')) return fail_expected(g, is_object ? "',' or '}'" : "',' or ']'");
    g->expect = is_object ? EXPECT_KEY : EXPECT_VALUE;
    return 0;
}

static int read_next(struct gate *g)
{
    static const char *const names[] = {"a value", "a value or ']'", "a key", "a key or '}'",
                                        "':'",     "',' or an end"};
    if (g->i >= g->n) return fail_expected(g, names[g->expect]);
    switch (g->expect) {
    case EXPECT_VALUE:
        return read_value(g);
    case EXPECT_VALUE_OR_END:
        return g->text[g->i] == ']' ? close_container(g) : read_value(g);
    case EXPECT_KEY:
        return read_key(g);
    case EXPECT_KEY_OR_END:
        return g->text[g->i] == '}' ? close_container(g) : read_key(g);
    case EXPECT_COLON:
        g->expect = EXPECT_VALUE;
        return skip_char(g, ':') ? 0 : fail_expected(g, "':'");
    default:
        return read_comma_or_end(g);
    }
}

static int check_begin(struct gate *g)
{
    const unsigned char *t = g->text;
    if (g->n >= 3 && t[0] == 0xEF && t[1] == 0xBB && t[2] == 0xBF)
        return fail(g, "the JSON begins with a byte order mark; send plain UTF-8");
    if (g->n >= 2 && ((t[0] == 0xFF && t[1] == 0xFE) || (t[0] == 0xFE && t[1] == 0xFF) || !t[0] || !t[1]))
        return fail(g, "the JSON looks like UTF-16 or UTF-32; send UTF-8");
    skip_space(g);
    if (g->i >= g->n) return fail(g, "the body is empty; expected a JSON object");
    return 0;
}

static int check_document(struct gate *g)
{
    int status = check_begin(g);
    if (status == 0) status = read_value(g);
    while (status == 0 && g->depth > 0) {
        skip_space(g);
        status = read_next(g);
    }
    if (status < 0) return status;
    skip_space(g);
    return g->i == g->n ? 0 : fail(g, "bytes after the end of the JSON, at byte %zu", g->i);
}

int json_gate_check(const char *text, size_t n, const struct json_gate_limits *limits, struct error *err)
{
    struct gate g;
    g.text = (const unsigned char *)text;
    g.n = n;
    g.i = 0;
    g.limits = limits;
    g.err = err;
    g.expect = EXPECT_VALUE;
    g.num_nodes = g.depth = g.num_keys = 0;
    g.keys = g.few_keys;
    g.keys_capacity = FEW_KEYS;
    if (getrandom(&g.hash_seed, sizeof g.hash_seed, GRND_NONBLOCK) != (ssize_t)sizeof g.hash_seed)
        g.hash_seed = (uint64_t)(uintptr_t)&g;
    int status = check_document(&g);
    if (g.keys != g.few_keys) free(g.keys);
    return status;
}

void json_gate_mend(char *text, size_t n)
{
    const char *next;
    for (size_t at = 0; (next = memchr(text + at, '\\', n - at));) {
        at = (size_t)(next - text);
        const unsigned char *p = (const unsigned char *)next;
        int32_t unit = decode_unit(p, n - at);
        bool is_half = unit >= 0xD800 && unit < 0xE000, is_pair = is_half && decode_low(p, n - at) >= 0;
        if (is_half && !is_pair) memcpy(text + at + 2, "fffd", 4);
        at += is_pair ? 12 : unit >= 0 ? 6 : 2;
        if (at >= n) return;
    }
}
