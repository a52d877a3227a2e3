/* text_format.c - '%s' % x and '{}'.format(x).
 *
 * Both read a specification (flags, width, precision, type) and share what they do with one value. Of the
 * format mini-language: fill, alignment, sign, #, 0, width, comma or underscore, precision, and the types
 * s d x X o b e E f F g G % c. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>

#include "text/jinja/run.h"

enum { NUMBER_TEXT_BYTES = 512, WIDTH_MAX = 300 };

struct specification {
    int32_t fill;
    char align; /* < > ^ =, or 0 */
    char sign;  /* + - or space */
    bool alternate;
    char grouping;
    int64_t width, precision; /* precision -1: not given */
    char type;                /* 0: not given */
};

static void append_padded(struct text_builder *b, const struct text *t, const struct specification *s,
                          char align)
{
    int64_t missing = s->width - (int64_t)text_num_chars(t);
    int64_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
    for (int64_t i = 0; i < left && !b->heap->failed; i++) text_builder_append_char(b, s->fill, false);
    text_builder_append_text(b, t);
    for (int64_t i = max_of(left, (int64_t)0); i < missing && !b->heap->failed; i++)
        text_builder_append_char(b, s->fill, false);
}

/* Puts separators between groups of three (four for x o b) digits of the whole part. */
static void group_digits(char text[NUMBER_TEXT_BYTES], char separator, int size)
{
    char out[NUMBER_TEXT_BYTES];
    size_t whole = strspn(text, "0123456789abcdefABCDEF"), n = 0;
    if (separator == '\0' || strlen(text) + whole >= NUMBER_TEXT_BYTES) return;
    for (size_t i = 0; i < whole; i++) {
        if (i > 0 && (whole - i) % (size_t)size == 0) out[n++] = separator;
        out[n++] = text[i];
    }
    snprintf(out + n, sizeof out - n, "%s", text + whole);
    memcpy(text, out, sizeof out);
}

static void print_binary(uint64_t u, char text[NUMBER_TEXT_BYTES])
{
    int num = 1;
    while (num < 64 && u >> num != 0) num++;
    for (int i = 0; i < num; i++) text[i] = (u >> (num - 1 - i)) & 1 ? '1' : '0';
    text[num] = '\0';
}

static const char *print_magnitude_int(uint64_t u, char type, char text[NUMBER_TEXT_BYTES])
{
    switch (type) {
    case 'x':
        snprintf(text, NUMBER_TEXT_BYTES, "%" PRIx64, u);
        return "0x";
    case 'X':
        snprintf(text, NUMBER_TEXT_BYTES, "%" PRIX64, u);
        return "0X";
    case 'o':
        snprintf(text, NUMBER_TEXT_BYTES, "%" PRIo64, u);
        return "0o";
    case 'b':
        print_binary(u, text);
        return "0b";
    default:
        snprintf(text, NUMBER_TEXT_BYTES, "%" PRIu64, u);
        return "";
    }
}

static bool print_magnitude_float(double d, const struct specification *s, char text[NUMBER_TEXT_BYTES])
{
    int precision = s->precision < 0 ? 6 : (int)s->precision;
    if (precision > 100) return false;
    switch (s->type) {
    case 'e':
        snprintf(text, NUMBER_TEXT_BYTES, "%.*e", precision, d);
        return true;
    case 'E':
        snprintf(text, NUMBER_TEXT_BYTES, "%.*E", precision, d);
        return true;
    case 'f':
    case 'F':
        snprintf(text, NUMBER_TEXT_BYTES, "%.*f", precision, d);
        return true;
    case 'g':
        snprintf(text, NUMBER_TEXT_BYTES, "%.*g", precision, d);
        return true;
    case 'G':
        snprintf(text, NUMBER_TEXT_BYTES, "%.*G", precision, d);
        return true;
    case '%':
        snprintf(text, NUMBER_TEXT_BYTES, "%.*f", precision, d * 100);
        strncat(text, "%", NUMBER_TEXT_BYTES - strlen(text) - 1);
        return true;
    default:
        if (s->precision < 0) {
            float_repr(d, text);
        } else {
            snprintf(text, NUMBER_TEXT_BYTES, "%.*g", max_of(precision, 1), d);
        }
        return true;
    }
}

static bool is_float_type(char type)
{
    return type != '\0' && strchr("eEfFgG%", type);
}

static struct value append_number(struct run *r, struct text_builder *b, struct value v,
                                  const struct specification *s)
{
    char digits[NUMBER_TEXT_BYTES], text[2 * NUMBER_TEXT_BYTES];
    const char *prefix = "";
    bool negative, floating = !value_is_integral(v) || is_float_type(s->type);
    run_charge(r, floating ? 4096 : 256);
    if (floating) {
        double d = value_as_float(v);
        negative = d < 0;
        if (!print_magnitude_float(negative ? -d : d, s, digits)) {
            return run_fail(r, STATUS_TEMPLATE, "precision too large in a format");
        }
    } else {
        int64_t i = value_as_int(v);
        negative = i < 0;
        prefix = print_magnitude_int(negative ? 0 - (uint64_t)i : (uint64_t)i, s->type, digits);
    }
    bool in_fours = s->type != '\0' && strchr("xXob", s->type);
    group_digits(digits, s->grouping, in_fours ? 4 : 3);
    const char *sign = negative ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "";
    if (!s->alternate) prefix = "";
    char align = s->align ? s->align : '>';
    int64_t zeros = s->width - (int64_t)(strlen(digits) + strlen(sign) + strlen(prefix));
    int n = snprintf(text, sizeof text, "%s%s", sign, prefix);
    for (; align == '=' && zeros > 0 && n < WIDTH_MAX; zeros--) text[n++] = (char)s->fill;
    n += snprintf(text + n, sizeof text - (size_t)n, "%s", digits);
    struct text t = {.bytes = text, .num_bytes = (size_t)n};
    append_padded(b, &t, s, align == '=' ? '>' : align);
    return value_none();
}

static void append_text_spec(struct run *r, struct text_builder *b, const struct text *t,
                             const struct specification *s)
{
    if (s->precision >= 0) t = text_slice(&r->heap, t, 0, text_byte_of_char(t, (size_t)s->precision));
    append_padded(b, t, s, s->align ? s->align : '<');
}

/* Up to 9 digits at *at. */
static int64_t read_count(const struct text *t, size_t *at)
{
    int64_t n = 0;
    for (int i = 0; i < 9 && *at < t->num_bytes && isdigit((unsigned char)t->bytes[*at]); i++) {
        n = n * 10 + (t->bytes[(*at)++] - '0');
    }
    return n;
}

static char char_of(const struct text *t, size_t at)
{
    return at < t->num_bytes ? t->bytes[at] : '\0';
}

/* ---- % ---- */

struct percent {
    struct run *run;
    struct value args;
    int at; /* of a tuple */
};

static struct value next_argument(struct percent *p)
{
    struct run *r = p->run;
    bool tuple = p->args.kind == VALUE_TUPLE;
    if (p->at >= (tuple ? p->args.list->num : 1)) {
        return run_fail(r, STATUS_TEMPLATE, "not enough arguments for format string");
    }
    return tuple ? p->args.list->items[p->at++] : (p->at++, p->args);
}

static size_t read_percent(const struct text *f, size_t at, struct specification *s)
{
    *s = (struct specification){.fill = ' ', .precision = -1};
    for (; char_of(f, at) != '\0' && strchr("-+ #0", char_of(f, at)); at++) {
        char flag = char_of(f, at);
        if (flag == '-') s->align = '<';
        if (flag == '+' || (flag == ' ' && s->sign != '+')) s->sign = flag;
        if (flag == '#') s->alternate = true;
        if (flag != '0' || s->align == '<') continue;
        s->fill = '0';
        s->align = '=';
    }
    if (s->align == '<') s->fill = ' ';
    s->width = read_count(f, &at);
    if (char_of(f, at) == '.') {
        at++;
        s->precision = read_count(f, &at);
    }
    s->type = char_of(f, at);
    return at + 1;
}

static void append_percent(struct percent *p, struct text_builder *b, struct value v, struct specification *s)
{
    struct run *r = p->run;
    if (s->type == 's' || s->type == 'r' || s->type == 'c') {
        struct text_builder one;
        text_builder_init(&one, &r->heap);
        (s->type == 'r' ? value_repr : value_print)(&one, v, r->depth_left);
        if (s->align != '<') s->align = '>';
        s->fill = ' ';
        append_text_spec(r, b, text_builder_take(&one), s);
        return;
    }
    if (s->type == 'i' || s->type == 'u') s->type = 'd';
    bool known = s->type != '\0' && strchr("dxXoeEfFgG", s->type);
    if (!known || !value_is_number(v)) {
        run_fail(r, STATUS_TEMPLATE, "%%%c format: a number is required, not %s", s->type ? s->type : ' ',
                 value_type_name(v));
        return;
    }
    if (!value_is_integral(v) && !is_float_type(s->type))
        v = value_int((int64_t)max_of(min_of(value_as_float(v), 9e18), -9e18));
    append_number(r, b, v, s);
}

struct value text_percent(struct run *r, const struct text *format, struct value args)
{
    struct percent p = {r, args, 0};
    struct text_builder b;
    text_builder_init(&b, &r->heap);
    for (size_t at = 0; at < format->num_bytes && run_charge(r, 64);) {
        const char *found = memchr(format->bytes + at, '%', format->num_bytes - at);
        size_t stop = found ? (size_t)(found - format->bytes) : format->num_bytes;
        text_builder_append_slice(&b, format, at, stop);
        at = stop + 1;
        if (!found) break;
        struct value v = {.kind = VALUE_MISSING};
        if (char_of(format, at) == '(') {
            struct text close = {.bytes = ")", .num_bytes = 1};
            size_t end = min_of(text_find(format, &close, at, format->num_bytes), format->num_bytes);
            v = get_item(r, args, value_text(text_slice(&r->heap, format, at + 1, end)));
            p.at = 1;
            at = end + 1;
        }
        struct specification s;
        at = read_percent(format, at, &s);
        if (s.type == '%') {
            text_builder_append_char(&b, '%', false);
            continue;
        }
        if (v.kind == VALUE_MISSING) v = next_argument(&p);
        if (r->status == 0) append_percent(&p, &b, v, &s);
    }
    bool left = args.kind == VALUE_TUPLE ? p.at < args.list->num : p.at == 0 && args.kind != VALUE_DICT;
    if (left) return run_fail(r, STATUS_TEMPLATE, "not all arguments converted during string formatting");
    return value_text(text_as_markup(&r->heap, text_builder_take(&b), format->markup));
}

/* ---- .format() ---- */

static bool is_align(char c)
{
    return c == '<' || c == '>' || c == '^' || c == '=';
}

static struct specification read_specification(const struct text *t)
{
    struct specification s = {.fill = ' ', .precision = -1};
    size_t at = 0, size = 0;
    int32_t first = t->num_bytes > 0 ? text_char_at(t, 0, &size) : 0;
    if (size > 0 && is_align(char_of(t, size))) {
        s.fill = first;
        s.align = char_of(t, size);
        at = size + 1;
    } else if (is_align(char_of(t, 0))) {
        s.align = char_of(t, at++);
    }
    if (char_of(t, at) == '+' || char_of(t, at) == '-' || char_of(t, at) == ' ') s.sign = char_of(t, at++);
    if (char_of(t, at) == '#') s.alternate = char_of(t, at++);
    if (char_of(t, at) == '0') {
        at++;
        s.fill = '0';
        if (!s.align) s.align = '=';
    }
    s.width = read_count(t, &at);
    if (char_of(t, at) == ',' || char_of(t, at) == '_') s.grouping = char_of(t, at++);
    if (char_of(t, at) == '.') {
        at++;
        s.precision = read_count(t, &at);
    }
    s.type = char_of(t, at);
    return s;
}

static void append_field(struct run *r, struct text_builder *b, struct value v, char conversion,
                         const struct text *spec)
{
    struct specification s = read_specification(spec);
    bool number = value_is_number(v) && v.kind != VALUE_LONG && conversion == '\0' &&
                  (v.kind != VALUE_BOOL || s.type != '\0');
    if (number && s.type != 's') {
        if (v.kind == VALUE_FLOAT && s.type != '\0' && !is_float_type(s.type)) {
            run_fail(r, STATUS_TEMPLATE, "Unknown format code '%c' for object of type 'float'", s.type);
        } else {
            append_number(r, b, v, &s);
        }
        return;
    }
    if (s.type != '\0' && s.type != 's') {
        run_fail(r, STATUS_TEMPLATE, "Unknown format code '%c' for object of type '%s'", s.type,
                 value_type_name(v));
        return;
    }
    struct text_builder one;
    text_builder_init(&one, &r->heap);
    (conversion == 'r' ? value_repr : value_print)(&one, v, r->depth_left);
    append_text_spec(r, b, text_builder_take(&one), &s);
}

/* The argument that a field's name or number means; *next_idx counts the fields without either. */
static struct value find_argument(const struct text *head, const struct arguments *args, int *next_idx)
{
    size_t digits = 0;
    int64_t idx = read_count(head, &digits);
    if (head->num_bytes == 0) idx = (*next_idx)++;
    if (digits == head->num_bytes && idx < args->num_positional) return args->positional[idx];
    for (int i = 0; i < args->num_keywords; i++) {
        if (text_equal(args->keywords[i].name, head)) return args->keywords[i].value;
    }
    return (struct value){.kind = VALUE_MISSING};
}

/* The value of `name.attribute[item]`. */
static struct value find_field(struct run *r, const struct text *path, const struct arguments *args,
                               int *next_idx)
{
    size_t at = 0, digits;
    while (at < path->num_bytes && path->bytes[at] != '.' && path->bytes[at] != '[') at++;
    struct value v = find_argument(text_slice(&r->heap, path, 0, at), args, next_idx);
    if (v.kind == VALUE_MISSING) return run_fail(r, STATUS_TEMPLATE, "a field of format() has no argument");
    while (at < path->num_bytes && r->status == 0) {
        bool item = path->bytes[at++] == '[';
        size_t end = at;
        while (end < path->num_bytes && (item ? path->bytes[end] != ']' : !strchr(".[", path->bytes[end])))
            end++;
        const struct text *key = text_slice(&r->heap, path, at, end);
        digits = 0;
        int64_t idx = read_count(key, &digits);
        bool by_index = item && digits == key->num_bytes && digits > 0;
        v = item ? get_item(r, v, by_index ? value_int(idx) : value_text(key)) : get_attribute(r, v, key);
        at = end + item;
    }
    return v;
}

/* What stands between the braces: name, `!` conversion, `:` specification. */
static void append_replacement(struct run *r, struct text_builder *b, const struct text *inside,
                               const struct arguments *args, int *next_idx)
{
    size_t name_end = 0;
    while (name_end < inside->num_bytes && inside->bytes[name_end] != ':' && inside->bytes[name_end] != '!') {
        name_end++;
    }
    char conversion = char_of(inside, name_end) == '!' ? char_of(inside, name_end + 1) : '\0';
    size_t spec = name_end + (conversion ? 2 : 0);
    spec = min_of(spec + (char_of(inside, spec) == ':'), inside->num_bytes);
    struct value v = find_field(r, text_slice(&r->heap, inside, 0, name_end), args, next_idx);
    if (r->status != 0) return;
    append_field(r, b, v, conversion, text_slice(&r->heap, inside, spec, inside->num_bytes));
}

struct value text_format(struct run *r, const struct text *f, const struct arguments *args)
{
    struct text_builder b;
    text_builder_init(&b, &r->heap);
    struct text close = {.bytes = "}", .num_bytes = 1};
    int next_idx = 0;
    for (size_t at = 0; at < f->num_bytes && run_charge(r, 64);) {
        size_t stop = at;
        while (stop < f->num_bytes && f->bytes[stop] != '{' && f->bytes[stop] != '}') stop++;
        text_builder_append_slice(&b, f, at, stop);
        if (stop == f->num_bytes) break;
        at = stop + 1;
        if (char_of(f, at) == f->bytes[stop]) {
            text_builder_append_slice(&b, f, at, at + 1);
            at++;
            continue;
        }
        size_t end = text_find(f, &close, at, f->num_bytes);
        if (f->bytes[stop] == '}' || end == SIZE_MAX) {
            return run_fail(r, STATUS_TEMPLATE, "unmatched brace in a format");
        }
        append_replacement(r, &b, text_slice(&r->heap, f, at, end), args, &next_idx);
        at = end + 1;
    }
    return value_text(text_as_markup(&r->heap, text_builder_take(&b), f->markup));
}
