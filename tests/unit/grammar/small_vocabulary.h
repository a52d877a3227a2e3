/* small_vocabulary.h - some hundred tokens that cross every border of JSON, and what a mask must equal: each
 * token tried byte by byte on a copy of the matcher. */
#ifndef TESTS_UNIT_GRAMMAR_SMALL_VOCABULARY_H
#define TESTS_UNIT_GRAMMAR_SMALL_VOCABULARY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "text/grammar/mask.h"
#include "text/grammar/matcher.h"

static const char *const small_texts[] = {
    "\xE2\x80\xA8", /* a line separator, parts of one, others around it */
    "a\xE2\x80",
    "\xA9",
    "\xE2\x80\xA6 maker",
    "{\"",
    "\":",
    "\": ",
    "\",",
    "\", \"",
    "\"}",
    "\"]",
    "\"}]",
    "\"},",
    "},",
    "}}",
    "]}",
    "],",
    "[[",
    "[{",
    "{}",
    "[]",
    "[\"",
    " \"",
    ", ",
    ": ",
    ",\"",
    "\":\"",
    "\": \"",
    "\":{\"",
    "\n",
    "\n\n",
    "\n  ",
    "\n    ",
    "  ",
    "    ",
    "\t",
    "\r\n",
    " {",
    " [",
    " }",
    "true",
    "false",
    "null",
    " true",
    " null",
    "tr",
    "ue",
    "nul",
    "12",
    "123",
    "0.",
    ".5",
    "-1",
    "-",
    "e5",
    "1e",
    "E+",
    "00",
    "10",
    "100",
    "99",
    "name",
    "na",
    "me",
    "a",
    "ab",
    "abc",
    "age",
    "id",
    "ids",
    "type",
    "value",
    "x",
    "xx",
    "xxx",
    "xxxx",
    "xxxxxxxx",
    "hello",
    " world",
    "Hello",
    "foo",
    "bar",
    "foobar",
    "foo\"",
    "name\"",
    "name\":",
    "age\": ",
    "ab\"",
    "abc\",",
    "ab\"}",
    "x\"]",
    "\\",
    "\\\"",
    "\\n",
    "\\u",
    "\\u00",
    "\\u0041",
    "\\ud83d",
    "\\ude00",
    "\\ud83d\\ude00",
    "00\"",
    "41\"",
    "\xC3",
    "\xA9",
    "\xC3\xA9",
    "\xC3\xA9\"",
    "\xA9\"",
    "\xE6\x97\xA5",
    "\xE6\x97",
    "\xA5",
    "\xE6\x97\xA5\xE6\x9C\xAC",
    "\xF0\x9F\x98\x80",
    "\xF0\x9F",
    "\x98\x80",
    "\xED\xA0\x80",
    "\xC0\x80",
    "\xFF",
    "caf\xC3\xA9",
    "caf\xC3",
    "na\xC3\xAF",
    "2024-",
    "-02-",
    "29",
    "2024-02-29",
    "T12:",
    "30:00Z",
    "@",
    "a@b.c",
    ".com",
    "://",
    "http",
    "127.",
    "0.0.1",
    "::",
    "\x01",
    "\x7F",
    "/",
    "\\/",
    "//",
    "    \"",
    "\n\"",
    "\n}",
    "name\" :",
    "1,",
    "1}",
    "1]",
    "1.5",
    "5e3",
    "-0",
    "-0.5",
    "7",
    "14",
    "21",
    "\"\"",
    "\"a\"",
    "\"name\"",
    "\"name\":\"",
    "\"foo",
    "foob",
    "ar\"",
    "b\\",
    "\"\\",
    "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz",
    "                                                                        ",
    "\n                    ",
};

enum { SMALL_IDS = 256 + (int)array_length(small_texts) + 2, SMALL_END = SMALL_IDS - 1 };

static inline const char *small_token(const void *context, int32_t id, size_t *num_bytes)
{
    static char bytes[256];
    (void)context;
    if (id < 256) {
        bytes[id] = (char)id;
        *num_bytes = 1;
        return &bytes[id];
    }
    if (id >= SMALL_IDS - 2) { /* a control token, and the one that ends an answer */
        *num_bytes = 0;
        return NULL;
    }
    *num_bytes = strlen(small_texts[id - 256]);
    return small_texts[id - 256];
}

static inline struct vocabulary *make_small_vocabulary(void)
{
    static const int32_t end = SMALL_END;
    struct vocabulary_source source = {
        .num_ids = SMALL_IDS, .end_ids = &end, .num_end_ids = 1, .token_bytes = small_token};
    struct vocabulary *v = NULL;
    struct error err = {0};
    assert_always(vocabulary_make(&source, &v, &err) == 0);
    return v;
}

static inline bool mask_has(const uint64_t *words, int32_t id)
{
    return words[id / 64] >> (id & 63) & 1;
}

/* What the mask must be; returns how many tokens there are. */
static inline int slow_mask(const struct matcher *m, uint64_t *words)
{
    int count = 0;
    memset(words, 0, (SMALL_IDS + 63) / 64 * sizeof *words);
    for (int32_t id = 0; id < SMALL_IDS; id++) {
        size_t n;
        struct matcher *copy;
        const char *bytes = small_token(NULL, id, &n);
        bool ok = id == SMALL_END && matcher_can_end(m);
        if (n > 0) {
            assert_always(matcher_copy(m, &copy) == 0);
            ok = true;
            for (size_t i = 0; i < n && ok; i++) ok = matcher_accept(copy, bytes + i, 1) == 0;
            matcher_free(copy);
        }
        if (!ok) continue;
        words[id / 64] |= (uint64_t)1 << (id & 63);
        count++;
    }
    return count;
}

/* Whether the grammar accepts the whole text. */
static inline bool accepts(const struct grammar *g, const char *text)
{
    struct matcher *m;
    assert_always(matcher_new(g, &m) == 0);
    bool ok = matcher_accept(m, text, strlen(text)) == 0 && matcher_can_end(m);
    matcher_free(m);
    return ok;
}

#endif
