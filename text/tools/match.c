#include "text/tools/match.h"

#include <string.h>

#include "text/tools/format.h"

static bool is_punctuation(char c)
{
    return c && strchr("{}[]:,", c);
}

static bool is_id_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

size_t match_count_spaces(struct span at)
{
    size_t n = 0;
    while (n < at.num_bytes && n <= MATCH_SPACES_MAX && match_is_space(at.bytes[n])) n++;
    return n;
}

ssize_t match_spaces(struct span at)
{
    const size_t n = match_count_spaces(at);
    return n < at.num_bytes || n > MATCH_SPACES_MAX || at.is_whole ? (ssize_t)n : MATCH_MORE;
}

ssize_t match_exact(const char *text, size_t num_bytes, struct span at)
{
    size_t known = num_bytes < at.num_bytes ? num_bytes : at.num_bytes;
    if (memcmp(text, at.bytes, known) != 0) return MATCH_NOT;
    return known == num_bytes ? (ssize_t)num_bytes : match_more(at);
}

enum { FENCE_WORD_MAX = 16 };

ssize_t match_fence(struct span at)
{
    ssize_t n = match_exact("```", 3, at);
    if (n < 0) return n == MATCH_NOT ? 0 : n;
    size_t end = (size_t)n;
    while (end < at.num_bytes && end < 3 + FENCE_WORD_MAX && (is_id_byte(at.bytes[end]))) end++;
    const ssize_t spaces = match_spaces(span_from(at, end));
    return spaces < 0 ? spaces : (ssize_t)end + spaces;
}

static size_t skip_spaces(struct span at)
{
    size_t n = 0;
    while (n < at.num_bytes && n < MATCH_SPACES_MAX && match_is_space(at.bytes[n])) n++;
    return n;
}

static bool is_slot(char c)
{
    return c == SLOT_ID || c == SLOT_INDEX || c == SLOT_TYPE;
}

static bool is_slot_byte(char slot, char c)
{
    if (slot == SLOT_ID) return is_id_byte(c);
    return slot == SLOT_INDEX ? c >= '0' && c <= '9' : c >= 'a' && c <= 'z';
}

enum { WORDS_BYTES_MAX = 48 };

/* Bytes up to where the rest of the text matches, none included. */
static ssize_t match_words(const char *rest, struct span at, struct match_id *id)
{
    for (size_t n = 0; n <= WORDS_BYTES_MAX; n++) {
        ssize_t length = match_text(rest, span_from(at, n), id);
        if (length != MATCH_NOT) return length < 0 ? length : (ssize_t)n + length;
        if (n == at.num_bytes) return match_more(at);
        if (strchr("{}[]\"\n", at.bytes[n])) return MATCH_NOT; /* NUL, too */
    }
    return MATCH_NOT;
}

/* An id, a number or a word; at least one byte, and the byte behind it must be known. */
static ssize_t match_slot(char slot, struct span at, struct match_id *id)
{
    size_t n = 0;
    while (n < at.num_bytes && n < MATCH_ID_MAX && is_slot_byte(slot, at.bytes[n])) n++;
    if (n == at.num_bytes) return match_more(at);
    if (n > 0 && slot == SLOT_ID && id) {
        memcpy(id->text, at.bytes, n);
        id->text[n] = '\0';
    }
    return n > 0 ? (ssize_t)n : MATCH_NOT;
}

/* Whether white space may stand in front of this byte of a text: where the text has some, next to JSON's punctuation, and
 * in front of a mark. */
static bool is_loose(const char *text, size_t i)
{
    if (match_is_space(text[i])) return true;
    return i > 0 && (is_punctuation(text[i]) || is_punctuation(text[i - 1]) || text[i] == '<');
}

ssize_t match_text(const char *text, struct span at, struct match_id *id)
{
    size_t j = 0, n = strlen(text);
    while (n > 0 && match_is_space(text[n - 1])) n--;
    for (size_t i = 0; i < n; i++) {
        if (is_loose(text, i)) j += skip_spaces(span_from(at, j));
        if (match_is_space(text[i])) continue;
        if (text[i] == SLOT_WORDS) {
            ssize_t length = match_words(text + i + 1, span_from(at, j), id);
            return length < 0 ? length : (ssize_t)j + length;
        }
        if (j == at.num_bytes) return match_more(at);
        if (is_slot(text[i])) {
            ssize_t length = match_slot(text[i], span_from(at, j), id);
            if (length < 0) return length;
            j += (size_t)length;
        } else if (at.bytes[j++] != text[i]) {
            return MATCH_NOT;
        }
    }
    return (ssize_t)j;
}
