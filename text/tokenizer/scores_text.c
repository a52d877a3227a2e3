#include "text/tokenizer/scores_text.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POWERS = 309, EXPONENT_MAX = 100000 };

struct powers {
    double of_ten[POWERS];
};

static const char *skip_space(const char *p)
{
    return p + strspn(p, " \t\r\n");
}

/* Behind the string that begins at p. */
static const char *skip_string(const char *p)
{
    for (p++; *p && *p != '"'; p++)
        if (*p == '\\' && p[1]) p++;
    return *p ? p + 1 : p;
}

/* Behind the value that begins at p. */
static const char *skip_value(const char *p)
{
    int depth = 0;
    do {
        if (*p == '"') {
            p = skip_string(p);
            continue;
        }
        if (*p == '{' || *p == '[') depth++;
        if (*p == '}' || *p == ']') depth--;
        if (depth < 0) return p;
        p++;
    } while (*p && (depth > 0 || !strchr(",]}", *p)));
    return p;
}

/* The value of the object's first member of this name, or NULL. */
static const char *find_member(const char *p, const char *name)
{
    const size_t name_bytes = strlen(name);
    p = skip_space(p);
    if (*p != '{') return NULL;
    for (p = skip_space(p + 1); *p == '"'; p = skip_space(p + 1)) {
        const char *key = p + 1, *end = skip_string(p);
        p = skip_space(end);
        if (*p != ':') return NULL;
        p = skip_space(p + 1);
        if ((size_t)(end - key) == name_bytes + 1 && memcmp(key, name, name_bytes) == 0) return p;
        p = skip_space(skip_value(p));
        if (*p != ',') return NULL;
    }
    return NULL;
}

/* Digits from p on; those that do not fit are counted. */
static const char *read_digits(const char *p, uint64_t *digits, int *num_read, int *num_left)
{
    for (; *p >= '0' && *p <= '9'; p++) {
        const uint64_t digit = (uint64_t)(*p - '0');
        const bool fits = *num_left == 0 && (*digits < UINT64_MAX / 10 ||
                                             (*digits == UINT64_MAX / 10 && digit <= UINT64_MAX % 10));
        if (!fits) {
            ++*num_left;
            continue;
        }
        *digits = *digits * 10 + digit;
        ++*num_read;
    }
    return p;
}

static double scale(double x, int exponent, const struct powers *powers)
{
    for (; exponent < -(POWERS - 1) && x != 0; exponent += POWERS - 1) x /= powers->of_ten[POWERS - 1];
    if (exponent < -(POWERS - 1)) return x;
    if (exponent < 0) return x / powers->of_ten[-exponent];
    if (exponent >= POWERS) return x == 0 ? 0 : INFINITY;
    return x * powers->of_ten[exponent];
}

static const char *read_number(const char *p, const struct powers *powers, double *x)
{
    const bool is_negative = *p == '-';
    uint64_t digits = 0;
    int num_whole = 0, num_left = 0, num_fraction = 0, rest = 0;
    p = read_digits(p + is_negative, &digits, &num_whole, &num_left);
    if (*p == '.') {
        rest = num_left;
        p = read_digits(p + 1, &digits, &num_fraction, &rest);
    }
    long exponent = 0;
    if (*p == 'e' || *p == 'E') exponent = strtol(p + 1, (char **)&p, 10);
    if (exponent > EXPONENT_MAX) exponent = EXPONENT_MAX;
    if (exponent < -EXPONENT_MAX) exponent = -EXPONENT_MAX;
    *x = scale((double)digits, (int)exponent + num_left - num_fraction, powers);
    if (is_negative) *x = -*x;
    return p;
}

bool scores_text_read(const char *json, double *scores, int32_t num)
{
    const char *model = find_member(json, "model"), *p = model ? find_member(model, "vocab") : NULL;
    struct powers powers;
    for (int i = 0; i < POWERS; i++) {
        char power[16];
        snprintf(power, sizeof power, "1e%d", i);
        powers.of_ten[i] = strtod(power, NULL);
    }
    for (int32_t i = 0; i < num; i++) {
        if (!p || (*p != '[' && *p != ',')) return false;
        p = skip_space(p + 1);
        if (*p != '[' || *(p = skip_space(p + 1)) != '"' || *(p = skip_space(skip_string(p))) != ',')
            return false;
        p = skip_space(read_number(skip_space(p + 1), &powers, &scores[i]));
        if (*p != ']' || !isfinite(scores[i])) return false;
        p = skip_space(p + 1);
    }
    return num > 0 && *p == ']';
}
