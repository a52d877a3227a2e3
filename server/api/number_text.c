#include "server/api/number_text.h"

#include <math.h>
#include <string.h>

#include "base/check.h"

static const double powers_of_ten[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10,
                                       1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21,
                                       1e22, 1e23, 1e24, 1e25, 1e26, 1e27, 1e28, 1e29, 1e30, 1e31, 1e32,
                                       1e33, 1e34, 1e35, 1e36, 1e37, 1e38, 1e39, 1e40, 1e41, 1e42, 1e43,
                                       1e44, 1e45, 1e46, 1e47, 1e48, 1e49, 1e50, 1e51, 1e52, 1e53};

static double scaled(double x, int exponent)
{
    assert_debug(exponent < (int)array_length(powers_of_ten) && -exponent < (int)array_length(powers_of_ten));
    return exponent >= 0 ? x * powers_of_ten[exponent] : x / powers_of_ten[-exponent];
}

/* x > 0 as digits * 10^(*exponent - 8), digits of 9 places. */
static int64_t nine_digits(double x, int *exponent)
{
    int64_t digits;
    *exponent = (int)floor(log10(x));
    digits = llrint(scaled(x, 8 - *exponent));
    if (digits < 100000000) digits = llrint(scaled(x, 8 - --*exponent));
    if (digits < 1000000000) return digits;
    ++*exponent;
    return digits / 10;
}

/* The digits without zeros at their end; returns how many. */
static int write_digits(char out[9], int64_t digits)
{
    int num = 9;
    for (int i = 8; i >= 0; i--, digits /= 10) out[i] = (char)('0' + digits % 10);
    while (num > 1 && out[num - 1] == '0') num--;
    return num;
}

static size_t write_exponent(char *out, int exponent)
{
    size_t n = 0;
    out[n++] = 'e';
    if (exponent < 0) out[n++] = '-';
    if (exponent < 0) exponent = -exponent;
    if (exponent >= 10) out[n++] = (char)('0' + exponent / 10);
    out[n++] = (char)('0' + exponent % 10);
    return n;
}

/* exponent from -5 to 8. */
static size_t write_plain(char *out, const char *digits, int num, int exponent)
{
    size_t n = 0;
    int whole = max_of(exponent + 1, 0);
    if (whole == 0) out[n++] = '0';
    for (int i = 0; i < whole; i++) out[n++] = i < num ? digits[i] : '0';
    if (num <= whole) return n;
    out[n++] = '.';
    for (int i = exponent + 1; i < 0; i++) out[n++] = '0';
    memcpy(out + n, digits + whole, (size_t)(num - whole));
    return n + (size_t)(num - whole);
}

static size_t write_scientific(char *out, const char *digits, int num, int exponent)
{
    size_t n = 0;
    out[n++] = digits[0];
    if (num > 1) out[n++] = '.';
    memcpy(out + n, digits + 1, (size_t)num - 1);
    n += (size_t)num - 1;
    return n + write_exponent(out + n, exponent);
}

size_t number_write_float(char out[NUMBER_CHARS_MAX], float x)
{
    char digits[9];
    int exponent = 0;
    size_t n = 0;
    if (signbit(x)) out[n++] = '-';
    if (x == 0) {
        out[n++] = '0';
        return n;
    }
    int num = write_digits(digits, nine_digits(fabs((double)x), &exponent));
    bool is_plain = exponent >= -5 && exponent <= 8;
    return n + (is_plain ? write_plain : write_scientific)(out + n, digits, num, exponent);
}

size_t number_write_count(char out[NUMBER_CHARS_MAX], uint32_t x)
{
    char digits[NUMBER_CHARS_MAX];
    size_t n = 0;
    do {
        digits[n++] = (char)('0' + x % 10);
        x /= 10;
    } while (x > 0);
    for (size_t i = 0; i < n; i++) out[i] = digits[n - 1 - i];
    return n;
}

void number_append_float(struct buffer *out, float x)
{
    char *at = buffer_reserve(out, NUMBER_CHARS_MAX);
    if (at) buffer_commit(out, number_write_float(at, x));
}

void number_append_count(struct buffer *out, uint32_t x)
{
    char *at = buffer_reserve(out, NUMBER_CHARS_MAX);
    if (at) buffer_commit(out, number_write_count(at, x));
}
