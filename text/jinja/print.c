/* print.c - values as Python prints them: str() for what a template prints, repr() inside containers. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <utf8proc.h>

#include "text/jinja/run.h"

/* Writes d as d.ddde+xx with the fewest digits that read back the same, and returns how many. Whatever 15
 * digits tell apart, 15 digits without their trailing zeros do, except among the subnormal numbers. */
static int shortest_digits(double d, char digits[FLOAT_TEXT_BYTES])
{
    int num = fabs(d) < 2.3e-308 ? 1 : 15;
    for (; num <= 17; num++) {
        snprintf(digits, FLOAT_TEXT_BYTES, "%.*e", num - 1, d);
        if (num == 17 || strtod(digits, NULL) == d) break;
    }
    char *exponent = strchr(digits, 'e'), *end = exponent;
    while (end[-1] == '0' && num > 1) end--, num--;
    if (end[-1] == '.') end--;
    memmove(end, exponent, strlen(exponent) + 1);
    return num;
}

/* Python: exponent form below 1e-4 and from 1e16. */
int float_repr(double d, char text[FLOAT_TEXT_BYTES])
{
    if (isnan(d)) return snprintf(text, FLOAT_TEXT_BYTES, "nan");
    if (isinf(d)) return snprintf(text, FLOAT_TEXT_BYTES, d > 0 ? "inf" : "-inf");
    char digits[FLOAT_TEXT_BYTES];
    int precision = shortest_digits(d, digits);
    int exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
    if (exponent < -4 || exponent >= 16) {
        *strchr(digits, 'e') = '\0';
        return snprintf(text, FLOAT_TEXT_BYTES, "%se%+03d", digits, exponent);
    }
    int decimals = max_of(precision - 1 - exponent, 1);
    return snprintf(text, FLOAT_TEXT_BYTES, "%.*f", decimals, d);
}

/* Whether repr shows the character as it is. */
static bool is_printable(int32_t c)
{
    if (c >= ' ' && c < 0x7F) return true;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    default:
        return true;
    }
}

static int escape_char(int32_t c, char quote, char out[16])
{
    if (c == '\n') return snprintf(out, 16, "\\n");
    if (c == '\r') return snprintf(out, 16, "\\r");
    if (c == '\t') return snprintf(out, 16, "\\t");
    if (c == '\\' || c == quote) return snprintf(out, 16, "\\%c", (char)c);
    if (is_printable(c)) return 0;
    unsigned code = (unsigned)c;
    return snprintf(out, 16, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", code);
}

static void repr_text(struct text_builder *b, const struct text *t)
{
    bool has_single = memchr(t->bytes, '\'', t->num_bytes), has_double = memchr(t->bytes, '"', t->num_bytes);
    char quote = has_single && !has_double ? '"' : '\'';
    if (t->markup) text_builder_append_literal(b, "Markup(");
    text_builder_append_char(b, quote, false);
    size_t from = 0, size;
    for (size_t at = 0; at < t->num_bytes; at += size) {
        char escaped[16];
        int n = escape_char(text_char_at(t, at, &size), quote, escaped);
        if (n == 0) continue;
        text_builder_append_slice(b, t, from, at);
        text_builder_append(b, escaped, (size_t)n, text_is_untrusted_at(t, at));
        from = at + size;
    }
    text_builder_append_slice(b, t, from, t->num_bytes);
    text_builder_append_char(b, quote, false);
    if (t->markup) text_builder_append_literal(b, ")");
}

static void repr_items(struct text_builder *b, const struct list *l, const char *open, const char *close,
                       int depth)
{
    text_builder_append_literal(b, open);
    for (int i = 0; i < l->num; i++) {
        if (i > 0) text_builder_append_literal(b, ", ");
        value_repr(b, l->items[i], depth - 1);
    }
    text_builder_append_literal(b, close);
}

static void repr_dict(struct text_builder *b, const struct dict *d, int depth)
{
    text_builder_append_literal(b, "{");
    for (int i = 0; i < d->num; i++) {
        if (i > 0) text_builder_append_literal(b, ", ");
        value_repr(b, d->pairs[i].key, depth - 1);
        text_builder_append_literal(b, ": ");
        value_repr(b, d->pairs[i].value, depth - 1);
    }
    text_builder_append_literal(b, "}");
}

static void repr_range(struct text_builder *b, const struct list *l)
{
    char text[80];
    int n = snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64, l->start, l->stop);
    if (l->step != 1) n += snprintf(text + n, sizeof text - (size_t)n, ", %" PRId64, l->step);
    text_builder_append(b, text, (size_t)n, false);
    text_builder_append_literal(b, ")");
}

static void repr_number(struct text_builder *b, struct value v)
{
    char text[FLOAT_TEXT_BYTES];
    int n =
        v.kind == VALUE_INT ? snprintf(text, sizeof text, "%" PRId64, v.integer) : float_repr(v.real, text);
    heap_charge(b->heap, v.kind == VALUE_INT ? 64 : 1024);
    text_builder_append(b, text, (size_t)n, false);
}

void value_repr(struct text_builder *b, struct value v, int depth)
{
    if (depth <= 0) {
        b->heap->failed = true;
        return;
    }
    switch (v.kind) {
    case VALUE_UNDEFINED:
        text_builder_append_literal(b, "Undefined");
        break;
    case VALUE_NONE:
        text_builder_append_literal(b, "None");
        break;
    case VALUE_BOOL:
        text_builder_append_literal(b, v.boolean ? "True" : "False");
        break;
    case VALUE_INT:
    case VALUE_FLOAT:
        repr_number(b, v);
        break;
    case VALUE_LONG:
        text_builder_append_text(b, v.text);
        break;
    case VALUE_TEXT:
        repr_text(b, v.text);
        break;
    case VALUE_LIST:
        repr_items(b, v.list, "[", "]", depth);
        break;
    case VALUE_TUPLE:
        repr_items(b, v.list, "(", v.list->num == 1 ? ",)" : ")", depth);
        break;
    case VALUE_KEYS:
        repr_items(b, v.list, "dict_keys([", "])", depth);
        break;
    case VALUE_VALUES:
        repr_items(b, v.list, "dict_values([", "])", depth);
        break;
    case VALUE_ITEMS:
        repr_items(b, v.list, "dict_items([", "])", depth);
        break;
    case VALUE_RANGE:
        repr_range(b, v.list);
        break;
    case VALUE_DICT:
        repr_dict(b, v.dict, depth);
        break;
    case VALUE_NAMESPACE:
        text_builder_append_literal(b, "<Namespace ");
        repr_dict(b, v.dict, depth);
        text_builder_append_literal(b, ">");
        break;
    case VALUE_MACRO:
        text_builder_append_literal(b, "<Macro ");
        repr_text(b, &v.macro->node->name->text);
        text_builder_append_literal(b, ">");
        break;
    default:
        text_builder_append_literal(b, "<");
        text_builder_append_literal(b, value_type_name(v));
        text_builder_append_literal(b, " object>");
    }
}

void value_print(struct text_builder *b, struct value v, int depth)
{
    if (v.kind == VALUE_TEXT) {
        text_builder_append_text(b, v.text);
    } else if (v.kind != VALUE_UNDEFINED) {
        value_repr(b, v, depth);
    }
}

const struct text *value_to_text(struct heap *h, struct value v, int depth)
{
    if (v.kind == VALUE_TEXT) return v.text;
    struct text_builder b;
    text_builder_init(&b, h);
    value_print(&b, v, depth);
    return text_builder_take(&b);
}
