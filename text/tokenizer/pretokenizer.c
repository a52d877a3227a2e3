/* The expressions, as the models' files spell them:
 *
 *   GPT-2   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *   Llama 3 (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
 *           \s*[\r\n]+|\s+(?!\S)|\s+            (Qwen 2: \p{N} instead of \p{N}{1,3})
 *   Qwen3.5 (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|
 *           \s*[\r\n]+|\s+(?!\S)|\s+
 *   tekken  [^\r\n\p{L}\p{N}]?[U]*[W]+|[^\r\n\p{L}\p{N}]?[U]+[W]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|
 *           \s*[\r\n]+|\s+(?!\S)|\s+            with U = \p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}, W = \p{Ll}\p{Lm}\p{Lo}\p{M}
 *   o200k   as tekken, (?i:'s|'t|'re|'ve|'m|'ll|'d)? behind both words, and \p{N}{1,3}
 *   Kimi    [\p{Han}]+|, then as o200k with U and W without \p{Han}, and [\r\n]* behind symbols
 *   Ling    as Qwen 2, spelled otherwise
 *   Jais 2  as Llama 3, \s{512}(?!\S)|\s{256}(?!\S)|...|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1} instead of \s+(?!\S)|\s+
 *   Tiny Aya \d{1,3}(?=(?:\d{3})*\b), then as o200k
 *   EXAONE  as Qwen 2, [^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+ for words, [\r\n/]? behind symbols, \s*[\r\n]
 *   Seed    as Qwen 2, [^\s\p{L}\p{N}\r\n]+ instead of [^\s\p{L}\p{N}]+[\r\n]*
 *   DeepSeek V3  [!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|
 *           \s*[\r\n]+|\s+(?!\S)|\s+            (with the set spelled out)
 *   Spark   as DeepSeek V3,  ?[\p{P}\p{S}]+|[\r\n] instead of  ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+
 *
 * All but the last match at every place of every text, so the pieces are the matches in a row. What
 * backtracking would find is worked out here instead:
 *
 *   \s+(?!\S)   the run of white space without its last character, unless the text ends there; one space before a
 *               word is left to the word
 *   \s*[\r\n]+  the run of white space up to and with its last line break
 *   [U]*[W]+    the longest run of U, then W; if no W follows, the run gives back up to its last character that is
 *               also a W */
#include "text/tokenizer/pretokenizer.h"

#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "text/tokenizer/bert_text.h"
#include "text/tokenizer/unicode.h"

enum {
    UPPER = 1 << CATEGORY_UPPER,
    LOWER = 1 << CATEGORY_LOWER,
    UNCASED = 1 << CATEGORY_UNCASED,
    MARK = 1 << CATEGORY_MARK,
    NUMBER = 1 << CATEGORY_NUMBER,
    SPACE = 1 << CATEGORY_SPACE,
    LETTER = UPPER | LOWER | UNCASED,
    BOTH_CASES = UNCASED | MARK,
};

typedef const unsigned char *position;

/* The properties of the character at p, and where the next one begins. p < end */
static unsigned properties_at(position p, position end, position *next)
{
    int num_bytes;
    unsigned properties = unicode_properties_at(p, end, &num_bytes);
    *next = p + num_bytes;
    return properties;
}

/* The category of the character at p as a bit, 0 at the end, and where the next one begins. */
static unsigned category_at(position p, position end, position *next)
{
    *next = p;
    return p < end ? 1u << (properties_at(p, end, next) & UNICODE_CATEGORY) : 0;
}

static position skip_while(position p, position end, unsigned categories)
{
    position next;
    while (category_at(p, end, &next) & categories) p = next;
    return p;
}

/* word: what words are made of. */
static position skip_symbols(position p, position end, unsigned word)
{
    return skip_while(p, end, 0xFFu & ~(SPACE | word | NUMBER));
}

static bool is_break(unsigned char c)
{
    return c == '\r' || c == '\n';
}

/* 's 't 're 've 'm 'll 'd after the apostrophe at p; NULL when there is none. With any_case also the
 * capitals, and U+017F (long s), whose capital is S. */
static position match_contraction(position p, position end, bool any_case)
{
    ptrdiff_t n = end - p;
    if (n < 2 || *p != '\'') return NULL;
    unsigned char fold = any_case ? 0x20 : 0;
    unsigned char a = p[1] | fold;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return p + 2;
    if (n < 3) return NULL;
    if (any_case && p[1] == 0xC5 && p[2] == 0xBF) return p + 3;
    unsigned char b = p[2] | fold;
    if (((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l')) return p + 3;
    return NULL;
}

/* p is at white space: \s+(?!\S)|\s+ */
static position match_spaces(position p, position end)
{
    position run_end = skip_while(p, end, SPACE);
    if (run_end == end) return run_end;
    position last = utf8_previous(p, run_end);
    return last > p ? last : run_end;
}

/* \s*[\r\n]+ at p; NULL when it does not match. */
static position match_breaks(position p, position end)
{
    for (position q = skip_while(p, end, SPACE); q > p; q--)
        if (is_break(q[-1])) return q;
    return NULL;
}

/* p is at white space: \s*[\r\n]+|\s+(?!\S)|\s+ */
static position match_breaks_or_spaces(position p, position end)
{
    position breaks = match_breaks(p, end);
    return breaks ? breaks : match_spaces(p, end);
}

static position match_gpt2(position p, position end)
{
    position contraction = match_contraction(p, end, false);
    if (contraction) return contraction;
    position next, start = p;
    unsigned category = category_at(p, end, &next);
    if (*p == ' ' && next < end) {
        start = next;
        category = category_at(start, end, &next);
    }
    if (category & (LETTER | NUMBER)) return skip_while(next, end, category & LETTER ? LETTER : NUMBER);
    if (category & SPACE) return match_spaces(p, end);
    return skip_symbols(start, end, LETTER);
}

static position skip_bytes(position p, position end, const char *bytes)
{
    while (p < end && *p && strchr(bytes, *p)) p++;
    return p;
}

/* ?[^\s\p{L}\p{N}]+ and the bytes of tail after it; NULL when p begins none. */
static position match_symbols(position p, position end, unsigned word, const char *tail)
{
    position start = *p == ' ' ? p + 1 : p;
    position q = skip_symbols(start, end, word);
    return q > start ? skip_bytes(q, end, tail) : NULL;
}

/* p is at a digit. */
static position match_number(position p, position end, int num_digits_max)
{
    position next;
    for (int i = 0; i < num_digits_max && (category_at(p, end, &next) & NUMBER); i++) p = next;
    return p;
}

/* What is no white space by Llama 3's expression; NULL when p begins none. word: LETTER, or with marks. tail: what
 * symbols take with them. */
static position match_llama3_text(position p, position end, unsigned word, int num_digits_max,
                                  const char *tail)
{
    position next, after;
    unsigned category = category_at(p, end, &next);
    if (category & word) return skip_while(next, end, word);
    if (category & NUMBER) return match_number(p, end, num_digits_max);
    if (!is_break(*p) && (category_at(next, end, &after) & word)) return skip_while(after, end, word);
    return match_symbols(p, end, word, tail);
}

static position match_llama3(position p, position end, unsigned word, int num_digits_max, const char *tail)
{
    position contraction = match_contraction(p, end, true);
    if (contraction) return contraction;
    position text = match_llama3_text(p, end, word, num_digits_max, tail);
    return text ? text : match_breaks_or_spaces(p, end);
}

static position match_ufakzeka(position p, position end)
{
    position text = match_llama3_text(p, end, LETTER, 1, "\r\n");
    return text ? text : match_breaks_or_spaces(p, end);
}

/* p is at white space: the most of 512, 256, ..., 2, 1 characters that leave one to what follows the run, or one. */
static position match_spaces_by_powers(position p, position end)
{
    position next, after, taken = p;
    for (int num = 1; num <= 512 && (category_at(p, end, &next) & SPACE); num++, p = next) {
        const bool is_last = next < end && !(category_at(next, end, &after) & SPACE);
        if ((num & (num - 1)) == 0 && (num == 1 || !is_last)) taken = next;
    }
    return taken;
}

/* Whether p is within white space whose line breaks are behind it: a match of spaces alone ended here. */
static bool is_after_breaks(position begin, position p, position end)
{
    position next;
    return p > begin && !is_break(p[-1]) && (category_at(utf8_previous(begin, p), end, &next) & SPACE);
}

static position match_jais2(position begin, position p, position end)
{
    position contraction = match_contraction(p, end, true);
    if (contraction) return contraction;
    position text = match_llama3_text(p, end, LETTER, 3, "\r\n");
    if (!text && !is_after_breaks(begin, p, end)) text = match_breaks(p, end);
    return text ? text : match_spaces_by_powers(p, end);
}

/* p is at a letter: (?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+ */
static position match_words_in_a_row(position p, position end)
{
    position next, after;
    for (;;) {
        (void)category_at(p, end, &next);
        p = skip_while(next, end, MARK);
        if (category_at(p, end, &next) & LETTER) continue;
        if (p == end || *p != ' ' || !(category_at(p + 1, end, &after) & LETTER)) return p;
        p++;
    }
}

static position match_exaone_moe(position p, position end)
{
    position contraction = match_contraction(p, end, true), next, after;
    if (contraction) return contraction;
    const unsigned category = category_at(p, end, &next);
    if (category & LETTER) return match_words_in_a_row(p, end);
    if (category & NUMBER) return next;
    if (!is_break(*p) && (category_at(next, end, &after) & LETTER)) return match_words_in_a_row(next, end);
    position symbols = match_symbols(p, end, LETTER, "");
    if (!symbols) return match_breaks_or_spaces(p, end);
    return symbols < end && (is_break(*symbols) || *symbols == '/') ? symbols + 1 : symbols;
}

/* [U]*[W]+ at p; NULL when it does not match. */
static position match_lower_word(position p, position end)
{
    position given_back = NULL, next;
    for (;;) {
        unsigned category = category_at(p, end, &next);
        if (!(category & (UPPER | BOTH_CASES))) break;
        if (category & BOTH_CASES) given_back = next;
        p = next;
    }
    position word_end = skip_while(p, end, LOWER | BOTH_CASES);
    return word_end > p ? word_end : given_back;
}

/* [U]+[W]* at p; NULL when it does not match. */
static position match_upper_word(position p, position end)
{
    position word_end = skip_while(p, end, UPPER | BOTH_CASES);
    return word_end > p ? skip_while(word_end, end, LOWER | BOTH_CASES) : NULL;
}

/* The two words alternatives of tekken, each first with the character at p as its prefix, then without. */
static position match_tekken_word(position p, position end)
{
    position after_prefix, found;
    unsigned category = category_at(p, end, &after_prefix);
    bool may_prefix = !(category & (LETTER | NUMBER)) && !is_break(*p);
    if (may_prefix && (found = match_lower_word(after_prefix, end))) return found;
    if ((found = match_lower_word(p, end))) return found;
    if (may_prefix && (found = match_upper_word(after_prefix, end))) return found;
    return match_upper_word(p, end);
}

static position match_tekken(position p, position end, bool contractions, int num_digits_max)
{
    position word = match_tekken_word(p, end);
    position contraction = word && contractions ? match_contraction(word, end, true) : NULL;
    if (word) return contraction ? contraction : word;
    position next;
    if (category_at(p, end, &next) & NUMBER) return match_number(p, end, num_digits_max);
    position symbols = match_symbols(p, end, LETTER, "\r\n/");
    return symbols ? symbols : match_breaks_or_spaces(p, end);
}

/* ---- Kimi ---- */

static const struct code_point_range {
    uint32_t first, last;
} han[] = {{0x2E80, 0x2E99},   {0x2E9B, 0x2EF3},   {0x2F00, 0x2FD5},   {0x3005, 0x3005},   {0x3007, 0x3007},
           {0x3021, 0x3029},   {0x3038, 0x303B},   {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFA6D},
           {0xFA70, 0xFAD9},   {0x16FE2, 0x16FE3}, {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B739},
           {0x2B740, 0x2B81D}, {0x2B820, 0x2CEA1}, {0x2CEB0, 0x2EBE0}, {0x2EBF0, 0x2EE5D}, {0x2F800, 0x2FA1D},
           {0x30000, 0x3134A}, {0x31350, 0x323AF}};

/* ranges: ascending. */
static bool is_in(const struct code_point_range *ranges, size_t num_ranges, uint32_t code_point)
{
    for (size_t i = 0; i < num_ranges && code_point >= ranges[i].first; i++)
        if (code_point <= ranges[i].last) return true;
    return false;
}

/* \p{Han} at p, and where the next character begins, if it is. */
static bool is_han_at(position p, position end, position *next)
{
    int num_bytes;
    *next = p;
    if (p == end || *p < 0xE2) return false; /* below U+2000 */
    const uint32_t code_point = utf8_decode(p, end, &num_bytes);
    *next = p + num_bytes;
    return is_in(han, array_length(han), code_point);
}

static position skip_other_than_han(position p, position end, unsigned categories)
{
    position next, ignored;
    while ((category_at(p, end, &next) & categories) && !is_han_at(p, end, &ignored)) p = next;
    return p;
}

/* Where the letters and marks end that may be a word's whose prefix or first character is at p; no more than that
 * is looked at, for every word of a text asks. */
static position find_end_of_letters(position p, position end)
{
    position next;
    (void)category_at(p, end, &next);
    next = skip_other_than_han(next, end, UPPER | BOTH_CASES);
    return skip_other_than_han(next, end, LOWER | BOTH_CASES);
}

static position match_kimi(position p, position end)
{
    position next;
    bool is_han = false;
    for (position q = p; is_han_at(q, end, &next); q = p = next) is_han = true;
    if (is_han) return p;
    position word = match_tekken_word(p, find_end_of_letters(p, end));
    position contraction = word ? match_contraction(word, end, true) : NULL;
    if (word) return contraction ? contraction : word;
    if (category_at(p, end, &next) & NUMBER) return match_number(p, end, 3);
    position symbols = match_symbols(p, end, LETTER, "\r\n");
    return symbols ? symbols : match_breaks_or_spaces(p, end);
}

/* ---- DeepSeek V3 ---- */

static bool is_ascii_letter(unsigned char c)
{
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

static bool is_mark_of_sentence(unsigned properties)
{
    return properties & (UNICODE_PUNCTUATION | UNICODE_SYMBOL);
}

/* ?[\p{P}\p{S}]+ and the bytes of tail after it */
static position match_marks_of_sentence(position p, position end, const char *tail)
{
    position start = *p == ' ' ? p + 1 : p, q = start, next;
    while (q < end && is_mark_of_sentence(properties_at(q, end, &next))) q = next;
    return q > start ? skip_bytes(q, end, tail) : NULL;
}

/* What of white space has no letter behind it. */
typedef position match_white_space(position p, position end);

static position match_each_break_or_spaces(position p, position end)
{
    return is_break(*p) ? p + 1 : match_spaces(p, end);
}

/* NULL when no match begins at p. tail: what marks take with them. */
static position try_deepseek3(position p, position end, const char *tail, match_white_space *match_gap)
{
    position next, after;
    unsigned properties = properties_at(p, end, &next), category = 1u << (properties & UNICODE_CATEGORY);
    if (category & (LETTER | MARK)) return skip_while(next, end, LETTER | MARK);
    if (is_mark_of_sentence(properties) && *p < 0x80 && next < end && is_ascii_letter(*next)) {
        while (next < end && is_ascii_letter(*next)) next++;
        return next;
    }
    if (!is_mark_of_sentence(properties) && !is_break(*p) &&
        (category_at(next, end, &after) & (LETTER | MARK)))
        return skip_while(after, end, LETTER | MARK);
    position marks = match_marks_of_sentence(p, end, tail);
    if (marks) return marks;
    return category & SPACE ? match_gap(p, end) : NULL;
}

/* ---- expressions that do not match everywhere ---- */

typedef position try_match(const struct char_run *run, position p, position end);

static position try_run(const struct char_run *run, position p, position end)
{
    return char_run_match(run, p, end);
}

static position try_deepseek3_of(const struct char_run *run, position p, position end)
{
    (void)run;
    return try_deepseek3(p, end, "\r\n", match_breaks_or_spaces);
}

static position try_spark(const struct char_run *run, position p, position end)
{
    (void)run;
    return try_deepseek3(p, end, "", match_each_break_or_spaces);
}

/* The match at p, or what stands before the next one. */
static position match_or_gap(try_match *try, const struct char_run *run, position p, position end)
{
    position found = try(run, p, end), next;
    while (!found && p < end) {
        properties_at(p, end, &next);
        p = next;
        if (p == end || try(run, p, end)) return p;
    }
    return found;
}

/* \s+$, where no line break is followed by anything */
static position match_spaces_end(position p, position end)
{
    position begin = end, next;
    while (begin > p) {
        position last = utf8_previous(p, begin);
        if (!(category_at(last, end, &next) & SPACE)) break;
        begin = last;
    }
    return begin > p ? begin : end;
}

static bool is_digit(position p, position end, position *next)
{
    return properties_at(p, end, next) & UNICODE_NUMERIC;
}

static position match_digits(position p, position end, bool each_by_itself)
{
    position next;
    bool digits = is_digit(p, end, &next);
    if (digits && each_by_itself) return next;
    do p = next;
    while (p < end && is_digit(p, end, &next) == digits);
    return p;
}

/* Within a run: what is left of it is threes, for it was counted at its begin. */
static position match_threes(position begin, position p, position end)
{
    position next = p, start = p;
    int num = 0;
    if (p > begin && (category_at(utf8_previous(begin, p), end, &next) & NUMBER) &&
        (category_at(p, end, &next) & NUMBER))
        return match_number(p, end, 3);
    while (category_at(p, end, &next) & NUMBER) {
        p = next;
        num++;
    }
    if (num > 0) return match_number(start, end, num % 3 ? num % 3 : 3);
    while (p < end && !(category_at(p, end, &next) & NUMBER)) p = next;
    return p;
}

/* \p{Nl} */
static const struct code_point_range letter_numbers[] = {
    {0x16EE, 0x16F0},   {0x2160, 0x2182},   {0x2185, 0x2188},   {0x3007, 0x3007},
    {0x3021, 0x3029},   {0x3038, 0x303A},   {0xA6E6, 0xA6EF},   {0x10140, 0x10174},
    {0x10341, 0x10341}, {0x1034A, 0x1034A}, {0x103D1, 0x103D5}, {0x12400, 0x1246E}};

/* \d at p, and where the next character begins. p < end */
static bool is_decimal_at(position p, position end, position *next)
{
    int num_bytes;
    const unsigned properties = unicode_properties_at(p, end, &num_bytes);
    *next = p + num_bytes;
    if (!(1u << (properties & UNICODE_CATEGORY) & NUMBER) || !(properties & UNICODE_WORD)) return false;
    return !is_in(letter_numbers, array_length(letter_numbers), utf8_decode(p, end, &num_bytes));
}

/* \w at p: of numbers also those that are no digits. */
static bool is_word_at(position p, position end)
{
    position next;
    const unsigned properties = p < end ? properties_at(p, end, &next) : 0;
    return (properties & UNICODE_WORD) || (1u << (properties & UNICODE_CATEGORY) & NUMBER);
}

/* Digits in threes from a run's end, where that is a word's, too; all between in one. */
static position match_word_threes(position begin, position p, position end)
{
    position start = p, next;
    if (p > begin && is_decimal_at(utf8_previous(begin, p), end, &next) && is_decimal_at(p, end, &next))
        return match_number(p, end, 3);
    while (p < end) {
        int num = 0;
        position run_begin = p;
        for (; p < end && is_decimal_at(p, end, &next); p = next) num++;
        if (num > 0 && !is_word_at(p, end))
            return run_begin > start ? run_begin : match_number(start, end, num % 3 ? num % 3 : 3);
        if (p < end) (void)properties_at(p, end, &p);
    }
    return end;
}

/* Where the first three begins of a run of decimals of which num begin at p; the run's end where none does. */
static position first_three(position p, position end, position run_end, int num)
{
    return num < 3 ? run_end : num % 3 ? match_number(p, end, num % 3) : p;
}

/* (?=(\d{3})+(?!\d)): in front of each three decimals, counted from a run's end; all between in one. */
static position match_decimal_threes(position begin, position p, position end)
{
    position start = p, next;
    const bool is_within = p > begin && is_decimal_at(utf8_previous(begin, p), end, &next);
    if (is_within && p < end && is_decimal_at(p, end, &next)) { /* at a three */
        p = match_number(p, end, 3);
        if (p < end && is_decimal_at(p, end, &next)) return p;
    }
    while (p < end) {
        int num = 0;
        position run_begin = p;
        for (; p < end && is_decimal_at(p, end, &next); p = next) num++;
        position three = first_three(run_begin, end, p, num);
        if (three == start && num > 3) three = match_number(start, end, 3);
        if (three < p && three > start) return three;
        if (p < end) (void)properties_at(p, end, &p);
    }
    return end;
}

static bool is_meta(position p, position end)
{
    return end - p >= 3 && memcmp(p, "\u2581", 3) == 0;
}

static position match_metaspace(position p, position end, bool runs)
{
    if (runs) {
        while (is_meta(p, end)) p += 3;
    } else if (is_meta(p, end)) {
        p += 3;
    }
    while (p < end && !is_meta(p, end)) p++;
    return p;
}

static unsigned bert_class_at(position p, position end, position *next)
{
    int num_bytes;
    unsigned properties = bert_properties_at(p, end, &num_bytes);
    *next = p + num_bytes;
    return properties & (BERT_PUNCTUATION | BERT_GAP);
}

static position match_bert(position p, position end)
{
    position next;
    const unsigned class = bert_class_at(p, end, &next);
    for (p = next; p < end && class != BERT_PUNCTUATION; p = next)
        if (bert_class_at(p, end, &next) != class) break;
    return p;
}

static position match_punctuation(position p, position end, bool is_run)
{
    position next;
    const bool is_punctuation = bert_class_at(p, end, &next) == BERT_PUNCTUATION;
    if (is_punctuation && !is_run) return next;
    for (p = next; p < end; p = next)
        if ((bert_class_at(p, end, &next) == BERT_PUNCTUATION) != is_punctuation) break;
    return p;
}

static position try_three_digits(const struct char_run *run, position p, position end)
{
    (void)run;
    if (end - p < 3) return NULL;
    for (int i = 0; i < 3; i++)
        if (p[i] < '0' || p[i] > '9') return NULL;
    return p + 3;
}

/* begin: of the whole text. */
static position match(const struct pretokenizer *t, int stage, position begin, position p, position end)
{
    switch (t->stages[stage]) {
    case PRETOKENIZE_GPT2:
        return match_gpt2(p, end);
    case PRETOKENIZE_LLAMA3:
        return match_llama3(p, end, LETTER, 3, "\r\n");
    case PRETOKENIZE_QWEN2:
        return match_llama3(p, end, LETTER, 1, "\r\n");
    case PRETOKENIZE_MINICPM5:
        return match_llama3(p, end, LETTER, INT32_MAX, "\r\n");
    case PRETOKENIZE_QWEN35:
        return match_llama3(p, end, LETTER | MARK, 1, "\r\n");
    case PRETOKENIZE_TEKKEN:
        return match_tekken(p, end, false, 1);
    case PRETOKENIZE_O200K:
        return match_tekken(p, end, true, 3);
    case PRETOKENIZE_YOUTU:
        return match_tekken(p, end, true, 1);
    case PRETOKENIZE_KIMI:
        return match_kimi(p, end);
    case PRETOKENIZE_EXAONE_MOE:
        return match_exaone_moe(p, end);
    case PRETOKENIZE_UFAKZEKA:
        return match_ufakzeka(p, end);
    case PRETOKENIZE_JAIS2:
        return match_jais2(begin, p, end);
    case PRETOKENIZE_SEED:
        return match_llama3(p, end, LETTER, 1, "");
    case PRETOKENIZE_DEEPSEEK3:
        return match_or_gap(try_deepseek3_of, NULL, p, end);
    case PRETOKENIZE_SPARK:
        return match_or_gap(try_spark, NULL, p, end);
    case PRETOKENIZE_RUN:
        return match_or_gap(try_run, &t->runs[stage], p, end);
    case PRETOKENIZE_SPACES_END:
        return match_spaces_end(p, end);
    case PRETOKENIZE_DIGITS:
        return match_digits(p, end, true);
    case PRETOKENIZE_NUMBERS:
        return match_digits(p, end, false);
    case PRETOKENIZE_THREES:
        return match_threes(begin, p, end);
    case PRETOKENIZE_DECIMAL_THREES:
        return match_decimal_threes(begin, p, end);
    case PRETOKENIZE_WORD_THREES:
        return match_word_threes(begin, p, end);
    case PRETOKENIZE_THREE_DIGITS:
        return match_or_gap(try_three_digits, NULL, p, end);
    case PRETOKENIZE_PUNCTUATION:
        return match_punctuation(p, end, false);
    case PRETOKENIZE_PUNCTUATION_RUNS:
        return match_punctuation(p, end, true);
    case PRETOKENIZE_METASPACE:
        return match_metaspace(p, end, false);
    case PRETOKENIZE_META_WORDS:
        return match_metaspace(p, end, true);
    case PRETOKENIZE_BERT:
        return match_bert(p, end);
    }
    return end;
}

struct piece_walk piece_walk_start(const struct pretokenizer *p, const char *text, size_t num_bytes)
{
    struct piece_walk w = {.pretokenizer = p, .begin = (position)text, .at = (position)text};
    w.ends[0] = w.at + num_bytes;
    for (int stage = 1; stage <= p->num_stages; stage++) w.ends[stage] = w.at;
    return w;
}

bool piece_walk_next(struct piece_walk *w, const char **piece, size_t *num_bytes)
{
    int num_stages = w->pretokenizer->num_stages;
    if (w->at == w->ends[0]) return false;
    for (int stage = 1; stage <= num_stages; stage++) {
        if (w->ends[stage] == w->at)
            w->ends[stage] = match(w->pretokenizer, stage - 1, w->begin, w->at, w->ends[stage - 1]);
    }
    position end = w->ends[num_stages];
    *piece = (const char *)w->at;
    *num_bytes = (size_t)(end - w->at);
    w->at = end;
    return true;
}

/* ---- regular expressions by their spelling ---- */

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SYMBOLS_AND_BREAKS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
#define SYMBOLS_AND_SPACES SYMBOLS_AND_BREAKS "|\\s+(?!\\S)|\\s+"
#define TEKKEN_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define TEKKEN_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define KIMI_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define KIMI_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define TEKKEN_WORDS(behind)                                                                                 \
    "[^\\r\\n\\p{L}\\p{N}]?" TEKKEN_UPPER "*" TEKKEN_LOWER "+" behind "|[^\\r\\n\\p{L}\\p{N}]?" TEKKEN_UPPER \
    "+" TEKKEN_LOWER "*" behind
#define TEKKEN_SYMBOLS_AND_SPACES "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct {
    enum pretokenizer_kind kind;
    const char *regex;
} known_regexes[] = {
    {PRETOKENIZE_GPT2, "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
    {PRETOKENIZE_LLAMA3, CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" SYMBOLS_AND_SPACES},
    {PRETOKENIZE_QWEN2, CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" SYMBOLS_AND_SPACES},
    {PRETOKENIZE_MINICPM5, CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}+" SYMBOLS_AND_SPACES},
    {PRETOKENIZE_QWEN35,
     CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*"
                  "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    {PRETOKENIZE_TEKKEN, TEKKEN_WORDS("") "|\\p{N}" TEKKEN_SYMBOLS_AND_SPACES},
    {PRETOKENIZE_YOUTU, TEKKEN_WORDS(CONTRACTIONS "?") "|\\p{N}" TEKKEN_SYMBOLS_AND_SPACES},
    {PRETOKENIZE_O200K, TEKKEN_WORDS(CONTRACTIONS "?") "|\\p{N}{1,3}" TEKKEN_SYMBOLS_AND_SPACES},
    {PRETOKENIZE_KIMI, "[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?" KIMI_UPPER "*" KIMI_LOWER "+" CONTRACTIONS
                       "?|[^\\r\\n\\p{L}\\p{N}]?" KIMI_UPPER "+" KIMI_LOWER "*" CONTRACTIONS
                       "?|\\p{N}{1,3}" SYMBOLS_AND_SPACES},
    {PRETOKENIZE_QWEN2,
     "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
     "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"},
    {PRETOKENIZE_EXAONE_MOE, CONTRACTIONS
     "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?"
     "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"},
    {PRETOKENIZE_SEED, CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+"
                                    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    {PRETOKENIZE_DEEPSEEK3,
     "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
     "| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    {PRETOKENIZE_SPARK,
     "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
     "| ?[\\p{P}\\p{S}]+|[\\r\\n]|\\s+(?!\\S)|\\s+"},
    {PRETOKENIZE_UFAKZEKA, "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" SYMBOLS_AND_SPACES},
    {PRETOKENIZE_JAIS2, CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" SYMBOLS_AND_BREAKS
                                     "|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)"
                                     "|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)"
                                     "|\\s{1,2}(?!\\S)|\\s{1}"},
    {PRETOKENIZE_DECIMAL_THREES, "(?=(\\d{3})+(?!\\d))"},
    {PRETOKENIZE_WORD_THREES, "\\d{1,3}(?=(?:\\d{3})*\\b)"},
    {PRETOKENIZE_SPACES_END, "\\s+$"},
    {PRETOKENIZE_THREE_DIGITS, "[0-9][0-9][0-9]"},
};

/* Line breaks may stand in it as they are, or as \r and \n. */
static bool is_spelled(const char *regex, const char *known)
{
    for (; *regex; regex++) {
        bool is_raw = is_break((unsigned char)*regex);
        const char escaped[] = {'\\', *regex == '\r' ? 'r' : 'n'};
        if (is_raw ? strncmp(known, escaped, 2) != 0 : *known != *regex) return false;
        known += is_raw ? 2 : 1;
    }
    return !*known;
}

/* Whether no piece has a line break beside anything else: \s+$ would match in front of one. */
static bool has_breaks_apart(const struct pretokenizer *p)
{
    for (int i = 0; i < p->num_stages; i++) {
        if (p->stages[i] == PRETOKENIZE_RUN && p->runs[i].num_max == 1 && char_run_has(&p->runs[i], '\n'))
            return true;
    }
    return false;
}

bool pretokenizer_add(struct pretokenizer *p, enum pretokenizer_kind kind)
{
    if (p->num_stages == PRETOKENIZER_STAGES_MAX) return false;
    p->stages[p->num_stages++] = kind;
    return true;
}

bool pretokenizer_add_regex(struct pretokenizer *p, const char *regex)
{
    if (p->num_stages == PRETOKENIZER_STAGES_MAX) return false;
    if (char_run_parse(regex, &p->runs[p->num_stages])) return pretokenizer_add(p, PRETOKENIZE_RUN);
    for (size_t i = 0; i < array_length(known_regexes); i++) {
        enum pretokenizer_kind kind = known_regexes[i].kind;
        if (!is_spelled(regex, known_regexes[i].regex)) continue;
        return (kind != PRETOKENIZE_SPACES_END || has_breaks_apart(p)) && pretokenizer_add(p, kind);
    }
    return false;
}

bool pretokenizer_leaves_nothing(const struct pretokenizer *p)
{
    enum pretokenizer_kind kind = p->stages[p->num_stages - 1];
    return kind != PRETOKENIZE_DECIMAL_THREES && kind != PRETOKENIZE_RUN && kind != PRETOKENIZE_DEEPSEEK3 &&
           kind != PRETOKENIZE_SPARK && kind != PRETOKENIZE_SPACES_END && kind != PRETOKENIZE_THREE_DIGITS &&
           kind != PRETOKENIZE_WORD_THREES;
}
