#include "sim/form.h"

#include <string.h>

enum { TEXT_MAX = 1024, LETTERS_MAX = 12, LIMITS = NUM_FORMS - 1 };

const char *form_members(int form)
{
    static const char *const members[NUM_FORMS] = {
        "",
        "\"structured_outputs\":{\"choice\":[\"ab\",\"abcd cd\",\"aaa\",\"d/9\",\"\\u00e9t\\u00e9\"]}",
        "\"guided_regex\":\"[a-f]{1,12}\"",
        "\"structured_outputs\":{\"regex\":\"(ab|\xC3\xA9)*z\"}",
        "\"guided_grammar\":\"root ::= \\\"a\\\" root \\\"b\\\" | \\\"c\\\"\"",
        "\"allowed_token_ids\":[0,1,2,3,4,5,6,42,43,46],\"bad_words\":[\"ab\",\"ba\",\"cde\"]",
    };
    return members[form];
}

/* ---- each form: whether a text may become whole, and whether it is ---- */

static bool is_choice(const char *text, size_t n, bool whole)
{
    static const char *const choices[] = {"ab", "abcd cd", "aaa", "d/9", "\xC3\xA9t\xC3\xA9"};
    for (size_t i = 0; i < array_length(choices); i++) {
        size_t length = strlen(choices[i]);
        if (whole ? n == length && !memcmp(text, choices[i], n) : n <= length && !memcmp(text, choices[i], n))
            return true;
    }
    return false;
}

static bool is_letters(const char *text, size_t n, bool whole)
{
    for (size_t i = 0; i < n; i++)
        if (text[i] < 'a' || text[i] > 'f') return false;
    return n <= LETTERS_MAX && (!whole || n >= 1);
}

static bool is_pairs(const char *text, size_t n, bool whole)
{
    size_t at = 0;
    for (; at + 2 <= n && (!memcmp(text + at, "ab", 2) || !memcmp(text + at, "\xC3\xA9", 2)); at += 2)
        continue;
    if (whole) return at + 1 == n && text[at] == 'z';
    return at == n || (at + 1 == n && (text[at] == 'a' || text[at] == '\xC3' || text[at] == 'z'));
}

static bool is_nested(const char *text, size_t n, bool whole)
{
    size_t depth = 0, at = 0;
    while (at < n && text[at] == 'a') at++, depth++;
    if (at == n) return !whole;
    if (text[at++] != 'c') return false;
    for (; at < n && text[at] == 'b' && depth > 0; at++) depth--;
    return at == n && (!whole || depth == 0);
}

static bool fits(int form, const char *text, size_t n, bool whole)
{
    static bool (*const forms[NUM_FORMS])(const char *, size_t, bool) = {NULL,     is_choice, is_letters,
                                                                         is_pairs, is_nested, NULL};
    return forms[form](text, n, whole);
}

/* ---- tokens ---- */

static size_t write_text(const int32_t *ids, int32_t num_ids, char text[TEXT_MAX])
{
    size_t n = 0;
    for (int32_t i = 0; i < num_ids; i++) {
        size_t length = strlen(word_of(ids[i]));
        assert_always(n + length < TEXT_MAX);
        memcpy(text + n, word_of(ids[i]), length);
        n += length;
    }
    return n;
}

static uint64_t bit_of(int32_t id)
{
    return (uint64_t)1 << id;
}

/* What ends an answer beside its form. */
static uint64_t ends_of(const struct request_slot_input *input)
{
    uint64_t ids = input->ignore_eos ? 0 : bit_of(FAKE_EOS);
    for (int32_t i = 0; i < input->num_stop_token_ids; i++) ids |= bit_of(input->stop_token_ids[i]);
    return ids;
}

/* Words of one token, two and three. They go by tokens, whatever their text. */
static uint64_t limits_allow(const int32_t *generated, int32_t n)
{
    enum { A = 0, B = 1, C = 2, D = 4, E = 5, AB = 42 };
    uint64_t ids = 0x7F | bit_of(43) | bit_of(46);
    if (n >= 1 && generated[n - 1] == B) ids &= ~bit_of(A);
    if (n >= 2 && generated[n - 2] == C && generated[n - 1] == D) ids &= ~bit_of(E);
    return ids & ~bit_of(AB);
}

uint64_t form_allowed(int form, const struct request_slot_input *input, const int32_t *generated,
                      int32_t num_generated)
{
    char text[TEXT_MAX + 16];
    if (form == LIMITS) {
        uint64_t limited = limits_allow(generated, num_generated);
        return num_generated < input->min_tokens ? limited & ~(ends_of(input) | bit_of(FAKE_EOS)) : limited;
    }
    size_t n = write_text(generated, num_generated, text);
    uint64_t ids = 0;
    for (int32_t id = 0; id < FAKE_VOCAB; id++) {
        size_t length = strlen(word_of(id));
        memcpy(text + n, word_of(id), length);
        if (length > 0 && fits(form, text, n + length, false)) ids |= bit_of(id);
    }
    if (num_generated < input->min_tokens) return ids & ~ends_of(input);
    return fits(form, text, n, true) ? ids | ends_of(input) : ids;
}

bool form_is_whole(int form, const int32_t *generated, int32_t num_generated)
{
    char text[TEXT_MAX];
    return form == LIMITS || fits(form, text, write_text(generated, num_generated, text), true);
}
