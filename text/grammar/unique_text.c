#include "text/grammar/unique_text.h"

#include <string.h>

#include "text/grammar/spaces.h"

static size_t string_begin(const char *text, size_t end)
{
    while (end > 0) {
        size_t at = --end, num_backslashes = 0;
        if (text[at] != '"') continue;
        while (at > num_backslashes && text[at - 1 - num_backslashes] == '\\') num_backslashes++;
        if (num_backslashes % 2 == 0) return at;
    }
    return 0;
}

size_t unique_text_begin(const char *text, size_t end, bool is_string)
{
    if (is_string) return string_begin(text, end);
    if (end > 0 && text[end - 1] == '"') return string_begin(text, end - 1);
    while (end > 0 && (text[end - 1] == '-' || (text[end - 1] >= '0' && text[end - 1] <= '9') ||
                       (text[end - 1] >= 'a' && text[end - 1] <= 'z')))
        end--;
    return end;
}

bool unique_text_previous(const char *text, size_t *begin, size_t *end)
{
    size_t at = *begin;
    while (at > 0 && is_space((uint8_t)text[at - 1])) at--;
    if (at == 0 || text[at - 1] != ',') return false;
    at--;
    while (at > 0 && is_space((uint8_t)text[at - 1])) at--;
    *end = at;
    *begin = unique_text_begin(text, at, false);
    return *begin < *end;
}

/* The one value with two texts. */
static bool is_zero(const char *text, size_t n)
{
    return (n == 1 && text[0] == '0') || (n == 2 && !memcmp(text, "-0", 2));
}

bool unique_text_equal(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    if (is_zero(a, a_bytes)) return is_zero(b, b_bytes);
    return a_bytes == b_bytes && memcmp(a, b, a_bytes) == 0;
}

bool unique_text_is_new(const char *text, size_t end)
{
    size_t own = unique_text_begin(text, end, false), begin = own, other_end;
    while (unique_text_previous(text, &begin, &other_end))
        if (unique_text_equal(text + own, end - own, text + begin, other_end - begin)) return false;
    return true;
}
