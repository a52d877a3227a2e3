/* filters_value.c - filters that give one value: defaults, numbers, attributes. */
#include <errno.h>
#include <math.h>

#include "text/jinja/run.h"

static struct value filter_default(struct call *c)
{
    bool replaced = c->self.kind == VALUE_UNDEFINED || (call_bool(c, 1, false) && !value_is_true(c->self));
    if (!replaced) return c->self;
    return c->args[0].kind == VALUE_MISSING ? value_text(&text_empty) : c->args[0];
}

static struct value filter_attr(struct call *c)
{
    struct value v = get_attribute(c->run, c->self, call_text(c, 0, &text_empty));
    bool only_key = c->self.kind == VALUE_DICT && v.kind != VALUE_METHOD;
    if (!only_key) return v;
    return (struct value){.kind = VALUE_UNDEFINED, .owner = VALUE_DICT, .text = call_text(c, 0, &text_empty)};
}

static struct value filter_abs(struct call *c)
{
    if (c->self.kind == VALUE_FLOAT) return value_float(fabs(c->self.real));
    if (!value_is_integral(c->self))
        return call_fail(c, "bad operand type for abs(): '%s'", value_type_name(c->self));
    int64_t i = value_as_int(c->self);
    return i < 0 ? apply_binary(c->run, OPERATOR_SUBTRACT, value_int(0), c->self) : value_int(i);
}

/* A number's text without the white space around it; false if too long to be one. */
static bool trimmed_number(const struct text *t, char out[128])
{
    size_t begin, end, n = 0;
    text_strip_bounds(t, NULL, true, true, &begin, &end);
    if (end - begin > 127) return false;
    for (size_t i = begin; i < end; i++) {
        if (t->bytes[i] != '_') out[n++] = t->bytes[i];
    }
    out[n] = '\0';
    return n > 0;
}

static bool read_float(const struct text *t, double *out)
{
    char digits[128], *end;
    if (!trimmed_number(t, digits) || strpbrk(digits, "xXpP(")) return false;
    *out = strtod(digits, &end);
    return *end == '\0';
}

static bool read_int(const struct text *t, int base, int64_t *out)
{
    char digits[128], *end;
    if (!trimmed_number(t, digits)) return false;
    const char *from = digits;
    if ((base == 2 || base == 8) && from[0] == '0' && (from[1] | 0x20) == (base == 2 ? 'b' : 'o')) from += 2;
    errno = 0;
    *out = strtoll(from, &end, base);
    return *end == '\0' && end != from && errno == 0;
}

static struct value float_to_int(double d, struct value otherwise)
{
    return isfinite(d) && fabs(d) < 9.2e18 ? value_int((int64_t)d) : otherwise;
}

static struct value filter_int(struct call *c)
{
    struct value otherwise = c->args[0].kind == VALUE_MISSING ? value_int(0) : c->args[0];
    int64_t base = call_int(c, 1, 10), i;
    double d;
    if (value_is_integral(c->self)) return value_int(value_as_int(c->self));
    if (c->self.kind == VALUE_LONG) return c->self;
    if (c->self.kind == VALUE_FLOAT) return float_to_int(c->self.real, otherwise);
    if (c->self.kind == VALUE_UNDEFINED) return fail_undefined(c->run, c->self);
    if (c->self.kind != VALUE_TEXT || base < 0 || base > 36) return otherwise;
    if (read_int(c->self.text, (int)base, &i)) return value_int(i);
    return read_float(c->self.text, &d) ? float_to_int(d, otherwise) : otherwise;
}

static struct value filter_float(struct call *c)
{
    double d;
    if (value_is_number(c->self)) return value_float(value_as_float(c->self));
    if (c->self.kind == VALUE_UNDEFINED) return fail_undefined(c->run, c->self);
    if (c->self.kind == VALUE_TEXT && read_float(c->self.text, &d)) return value_float(d);
    return c->args[0].kind == VALUE_MISSING ? value_float(0) : c->args[0];
}

/* Python's round: the decimal nearest to the exact value, ties to even. printf does just that. */
static double round_decimal(double d, int64_t precision)
{
    char text[512];
    if (precision < 0) {
        double scale = pow(10, (double)-precision);
        return nearbyint(d / scale) * scale;
    }
    if (precision > 100 || !isfinite(d)) return d;
    snprintf(text, sizeof text, "%.*f", (int)precision, d);
    return strtod(text, NULL);
}

static struct value filter_round(struct call *c)
{
    int64_t precision = call_int(c, 0, 0);
    const struct text *method = call_text(c, 1, NULL);
    if (!value_is_number(c->self))
        return call_fail(c, "type %s doesn't define round", value_type_name(c->self));
    double d = value_as_float(c->self), scale = pow(10, (double)precision);
    if (method && text_is(method, "ceil")) return value_float(ceil(d * scale) / scale);
    if (method && text_is(method, "floor")) return value_float(floor(d * scale) / scale);
    if (method && !text_is(method, "common")) return call_fail(c, "method must be common, ceil or floor");
    if (value_is_integral(c->self) && precision >= 0) return value_int(value_as_int(c->self));
    double rounded = round_decimal(d, precision);
    return value_is_integral(c->self) ? float_to_int(rounded, c->self) : value_float(rounded);
}

static struct value filter_wordcount(struct call *c)
{
    const struct text *t = call_self_text(c);
    int64_t num = 0;
    bool in_word = false;
    size_t size;
    for (size_t at = 0; at < t->num_bytes && run_charge(c->run, 8); at += size) {
        int32_t ch = text_char_at(t, at, &size);
        bool word = ch >= 0x80
                        ? !char_is_space(ch)
                        : ch == '_' || (ch >= '0' && ch <= '9') || ((ch | 32) >= 'a' && (ch | 32) <= 'z');
        num += word && !in_word;
        in_word = word;
    }
    return value_int(num);
}

const struct builtin filters_of_values[] = {
    {"default", filter_default, {"default_value", "boolean"}, 0, false},
    {"d", filter_default, {"default_value", "boolean"}, 0, false},
    {"int", filter_int, {"default", "base"}, 0, false},
    {"float", filter_float, {"default"}, 0, false},
    {"abs", filter_abs, {NULL}, 0, false},
    {"round", filter_round, {"precision", "method"}, 0, false},
    {"attr", filter_attr, {"name"}, 1, false},
    {"wordcount", filter_wordcount, {NULL}, 0, false},
};
const size_t num_filters_of_values = array_length(filters_of_values);
