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

bool unique_text_in_number(char c)
{
    return (c >= '0' && c <= '9') || c == '.' || c == '+' || c == '-' || c == 'e' || c == 'E';
}

size_t unique_text_begin(const char *text, size_t end, bool is_string)
{
    if (is_string) return string_begin(text, end);
    if (end > 0 && text[end - 1] == '"') return string_begin(text, end - 1);
    while (end > 0 &&
           (unique_text_in_number(text[end - 1]) || (text[end - 1] >= 'a' && text[end - 1] <= 'z')))
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

/* A number's digits without zeros at either end, and the power of ten of the first. */
struct decimal {
    const char *text;
    size_t at, num_bytes; /* of what is left of it; digits alone are read, up to the exponent */
    int64_t power;
    bool negative;
};

enum { POWER_MAX = 1 << 30 }; /* beyond it all are one */

static int64_t read_exponent(const char *text, size_t n)
{
    int64_t value = 0;
    bool negative = n > 0 && *text == '-';
    for (size_t i = 0; i < n; i++)
        if (text[i] >= '0' && text[i] <= '9' && value < POWER_MAX) value = value * 10 + (text[i] - '0');
    return negative ? -value : value;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static struct decimal read_decimal(const char *text, size_t n)
{
    struct decimal d = {.text = text, .negative = n > 0 && *text == '-'};
    size_t end = 0, point;
    while (end < n && text[end] != 'e' && text[end] != 'E') end++;
    if (end < n) d.power = read_exponent(text + end + 1, n - end - 1);
    for (point = 0; point < end && text[point] != '.';) point++;
    while (d.at < end && (!is_digit(text[d.at]) || text[d.at] == '0')) d.at++;
    while (end > d.at && (!is_digit(text[end - 1]) || text[end - 1] == '0')) end--;
    d.num_bytes = end;
    d.power += d.at < point ? (int64_t)(point - d.at) - 1 : -(int64_t)(d.at - point);
    return d;
}

/* The next digit, '\0' behind the last. */
static char next_digit(struct decimal *d)
{
    while (d->at < d->num_bytes && !is_digit(d->text[d->at])) d->at++;
    return d->at < d->num_bytes ? d->text[d->at++] : '\0';
}

static bool numbers_equal(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    struct decimal x = read_decimal(a, a_bytes), y = read_decimal(b, b_bytes);
    bool is_zero = x.at == x.num_bytes;
    if (is_zero || y.at == y.num_bytes) return is_zero && y.at == y.num_bytes;
    if (x.negative != y.negative || x.power != y.power) return false;
    char digit, other;
    do {
        digit = next_digit(&x);
        other = next_digit(&y);
    } while (digit && digit == other);
    return digit == other;
}

static bool is_number(const char *text, size_t n)
{
    return n > 0 && (*text == '-' || is_digit(*text));
}

bool unique_text_equal(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    if (is_number(a, a_bytes) && is_number(b, b_bytes)) return numbers_equal(a, a_bytes, b, b_bytes);
    return a_bytes == b_bytes && memcmp(a, b, a_bytes) == 0;
}

bool unique_text_is_new(const char *text, size_t end)
{
    size_t own = unique_text_begin(text, end, false), begin = own, other_end;
    while (unique_text_previous(text, &begin, &other_end))
        if (unique_text_equal(text + own, end - own, text + begin, other_end - begin)) return false;
    return true;
}
