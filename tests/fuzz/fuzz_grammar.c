/* A grammar (the first byte: s schema, r regular expression, e EBNF, t structural tag, w white space of a list, c choices,
 * one a line) and, behind a NUL, what to pick from the masks. A failure has a sentence; a mask equals trying every token, with and
 * without the cache; what it lets in is accepted. */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "server/api/json_gate.h"
#include "text/grammar/grammar.h"
#include "text/grammar/program.h"
#include "unit/grammar/small_vocabulary.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WORDS = (SMALL_IDS + 63) / 64, CHOICES_MAX = 64, TOKENS_MAX = 10, CACHE_BYTES = 4000 };

/* As the server does: nothing reaches the compiler that has not passed the gate. */
static int compile_json(const char *text, size_t n, bool is_tag, struct grammar **out, struct error *err)
{
    static const struct json_gate_limits limits = {.max_depth = 64, .max_nodes = 10000, .max_keys = 4096};
    const struct grammar_options options = {.max_spaces = 3, .closes_objects = n % 2};
    if (n == 0 || json_gate_check(text, n, &limits, NULL) != 0)
        return error_set(err, STATUS_INVALID, "no JSON");
    cJSON *schema = cJSON_ParseWithLength(text, n);
    if (!schema) return error_set(err, STATUS_INVALID, "no JSON");
    int status = is_tag ? grammar_from_structural_tag(schema, &options, out, err)
                        : grammar_from_json_schema(schema, &options, out, err);
    cJSON_Delete(schema);
    return status;
}

static int compile_spaces(const char *text, size_t n, struct grammar **out, struct error *err)
{
    char *pattern = strndup(text, n);
    const struct grammar_options options = {.whitespace_pattern = pattern};
    cJSON *schema = cJSON_Parse("{\"type\":\"array\"}");
    assert_always(pattern && schema);
    int status = grammar_from_json_schema(schema, &options, out, err);
    cJSON_Delete(schema);
    free(pattern);
    return status;
}

static int compile_choices(const char *text, size_t n, struct grammar **out, struct error *err)
{
    const char *texts[CHOICES_MAX];
    size_t sizes[CHOICES_MAX];
    int count = 0;
    for (const char *end = text + n; text < end && count < CHOICES_MAX; count++) {
        const char *line = memchr(text, '\n', (size_t)(end - text));
        texts[count] = text;
        sizes[count] = (size_t)((line ? line : end) - text);
        text += sizes[count] + (line ? 1 : 0);
    }
    return grammar_from_choices(texts, sizes, count, out, err);
}

static int compile(char kind, const char *text, size_t n, struct grammar **out, struct error *err)
{
    if (kind == 's' || kind == 't') return compile_json(text, n, kind == 't', out, err);
    if (kind == 'w') return compile_spaces(text, n, out, err);
    if (kind == 'r') return grammar_from_regex(text, n, out, err);
    if (kind == 'e') return grammar_from_ebnf(text, n, out, err);
    return compile_choices(text, n, out, err);
}

static int32_t pick(const uint64_t *words, int count, uint8_t choice)
{
    int index = choice % count;
    for (int32_t id = 0; id < SMALL_IDS; id++)
        if (mask_has(words, id) && index-- == 0) return id;
    return SMALL_END;
}

/* Equal, or, where elements of arrays differ, without what would hold several of them. */
static bool is_right(const struct grammar *g, const uint64_t *fast, const uint64_t *slow)
{
    bool is_within = true;
    for (int i = 0; i < WORDS; i++) is_within &= (fast[i] & ~slow[i]) == 0;
    return g->has_unique ? is_within : memcmp(fast, slow, WORDS * sizeof *fast) == 0;
}

static void follow(const struct grammar *g, const struct vocabulary *vocabulary, struct mask_maker *maker,
                   const uint8_t *choices, size_t n)
{
    uint64_t fast[WORDS], slow[WORDS];
    struct matcher *m;
    struct mask_cache *cache;
    assert_always(matcher_new(g, &m) == 0 && mask_cache_new(g, vocabulary, CACHE_BYTES, &cache) == 0);
    for (size_t i = 0; i < n && i < TOKENS_MAX; i++) {
        int status = mask_fill(maker, m, cache, fast), count = 0;
        (void)slow_mask(m, slow);
        if (status == STATUS_LIMIT) break; /* too many readings at once */
        assert_always(status == 0 && is_right(g, fast, slow));
        assert_always(mask_fill(maker, m, NULL, fast) == 0 && is_right(g, fast, slow));
        for (int w = 0; w < WORDS; w++) count += __builtin_popcountll(fast[w]);
        int32_t id = count > 0 ? pick(fast, count, choices[i]) : SMALL_END;
        if (id == SMALL_END) break;
        size_t num_bytes;
        const char *bytes = small_token(NULL, id, &num_bytes);
        assert_always(matcher_accept(m, bytes, num_bytes) == 0);
    }
    mask_cache_free(cache);
    matcher_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct vocabulary *vocabulary;
    static struct mask_maker *maker;
    struct grammar *g = NULL;
    struct error err = {0};
    if (!vocabulary) {
        vocabulary = make_small_vocabulary();
        assert_always(mask_maker_new(vocabulary, &maker) == 0);
    }
    if (size < 2) return 0;
    const uint8_t *nul = memchr(data + 1, 0, size - 1);
    size_t n = nul ? (size_t)(nul - data) - 1 : size - 1;
    if (compile((char)data[0], (const char *)data + 1, n, &g, &err) == 0) {
        follow(g, vocabulary, maker, nul ? nul + 1 : data, nul ? size - n - 2 : 0);
        grammar_free(g);
    } else {
        assert_always(err.text[0] && !g);
    }
    return 0;
}
