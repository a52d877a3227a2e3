/* text_methods.c - the methods of Python's str that make or ask about text (text_search.c: find and split).
 */
#include <utf8proc.h>

#include "text/jinja/run.h"

static const struct text *self_text(const struct call *c)
{
    return c->self.text;
}

static struct value slice_value(struct call *c, const struct text *t, size_t begin, size_t end)
{
    return value_text(text_slice(c->heap, t, begin, end));
}

/* ---- case ---- */

static struct value change_case(struct call *c, enum text_case change)
{
    run_charge(c->run, self_text(c)->num_bytes * 32);
    return value_text(text_change_case(c->heap, self_text(c), change));
}

static struct value text_method_upper(struct call *c)
{
    return change_case(c, CASE_UPPER);
}

static struct value text_method_lower(struct call *c)
{
    return change_case(c, CASE_LOWER);
}

static struct value text_method_title(struct call *c)
{
    return change_case(c, CASE_TITLE);
}

static struct value text_method_capitalize(struct call *c)
{
    return change_case(c, CASE_CAPITALIZE);
}

static struct value text_method_swapcase(struct call *c)
{
    return change_case(c, CASE_SWAP);
}

/* ---- stripping ---- */

static struct value strip(struct call *c, bool left, bool right)
{
    const struct text *chars = call_text(c, 0, NULL);
    size_t begin, end;
    text_strip_bounds(self_text(c), chars, left, right, &begin, &end);
    run_charge(c->run, (self_text(c)->num_bytes - (end - begin)) * 16 * (1 + (chars ? chars->num_bytes : 0)));
    return slice_value(c, self_text(c), begin, end);
}

static struct value text_method_strip(struct call *c)
{
    return strip(c, true, true);
}

static struct value text_method_lstrip(struct call *c)
{
    return strip(c, true, false);
}

static struct value text_method_rstrip(struct call *c)
{
    return strip(c, false, true);
}

static struct value text_method_removeprefix(struct call *c)
{
    const struct text *t = self_text(c), *prefix = call_text(c, 0, &text_empty);
    return slice_value(c, t, text_starts_with(t, prefix) ? prefix->num_bytes : 0, t->num_bytes);
}

static struct value text_method_removesuffix(struct call *c)
{
    const struct text *t = self_text(c), *suffix = call_text(c, 0, &text_empty);
    return slice_value(c, t, 0, text_ends_with(t, suffix) ? t->num_bytes - suffix->num_bytes : t->num_bytes);
}

/* ---- building ---- */

static struct value text_method_join(struct call *c)
{
    const struct text *separator = self_text(c);
    const struct list *l = run_iterate(c->run, c->args[0]);
    struct text_builder b;
    text_builder_init(&b, c->heap);
    for (int i = 0; i < l->num && run_charge(c->run, 64); i++) {
        if (l->items[i].kind != VALUE_TEXT) {
            return call_fail(c, "sequence item %d: expected str instance, %s found", i,
                             value_type_name(l->items[i]));
        }
        const struct text *item = l->items[i].text;
        if (i > 0) text_builder_append_text(&b, separator);
        text_builder_append_text(&b, separator->markup ? text_escape_html(c->heap, item) : item);
    }
    return value_text(text_as_markup(c->heap, text_builder_take(&b), separator->markup));
}

/* An empty old text is found before each character and at the end. */
static struct value replace_empty(struct call *c, const struct text *new_text, int64_t limit)
{
    const struct text *t = self_text(c);
    struct text_builder b;
    text_builder_init(&b, c->heap);
    size_t at = 0, size;
    for (; limit-- != 0 && at <= t->num_bytes && run_charge(c->run, 64); at += size) {
        text_builder_append_text(&b, new_text);
        if (at == t->num_bytes) break;
        text_char_at(t, at, &size);
        text_builder_append_slice(&b, t, at, at + size);
    }
    text_builder_append_slice(&b, t, at, t->num_bytes);
    return value_text(text_as_markup(c->heap, text_builder_take(&b), t->markup));
}

static struct value text_method_replace(struct call *c)
{
    const struct text *t = self_text(c), *old = call_text(c, 0, &text_empty),
                      *new_text = call_text(c, 1, &text_empty);
    int64_t limit = call_int(c, 2, -1);
    if (t->markup) new_text = text_escape_html(c->heap, new_text);
    if (old->num_bytes == 0) return replace_empty(c, new_text, limit);
    run_charge(c->run, t->num_bytes);
    struct text_builder b;
    text_builder_init(&b, c->heap);
    size_t from = 0;
    for (; limit-- != 0 && run_charge(c->run, 64);) {
        size_t at = text_find(t, old, from, t->num_bytes);
        if (at == SIZE_MAX) break;
        text_builder_append_slice(&b, t, from, at);
        text_builder_append_text(&b, new_text);
        from = at + old->num_bytes;
    }
    if (from == 0) return c->self;
    text_builder_append_slice(&b, t, from, t->num_bytes);
    return value_text(text_as_markup(c->heap, text_builder_take(&b), t->markup));
}

static struct value pad(struct call *c, int64_t left, int64_t right, const struct text *fill)
{
    struct text_builder b;
    text_builder_init(&b, c->heap);
    for (int64_t i = 0; i < left && run_charge(c->run, 8); i++) text_builder_append_text(&b, fill);
    text_builder_append_text(&b, self_text(c));
    for (int64_t i = 0; i < right && run_charge(c->run, 8); i++) text_builder_append_text(&b, fill);
    return value_text(text_as_markup(c->heap, text_builder_take(&b), self_text(c)->markup));
}

static int64_t missing_width(struct call *c)
{
    return max_of(call_int(c, 0, 0) - (int64_t)text_num_chars(self_text(c)), (int64_t)0);
}

static const struct text space = {.bytes = " ", .num_bytes = 1};

static struct value text_method_ljust(struct call *c)
{
    return pad(c, 0, missing_width(c), call_text(c, 1, &space));
}

static struct value text_method_rjust(struct call *c)
{
    return pad(c, missing_width(c), 0, call_text(c, 1, &space));
}

static struct value text_method_center(struct call *c)
{
    int64_t missing = missing_width(c), width = call_int(c, 0, 0);
    int64_t left = missing / 2 + (missing & width & 1);
    return pad(c, left, missing - left, call_text(c, 1, &space));
}

static struct value text_method_zfill(struct call *c)
{
    static const struct text zero = {.bytes = "0", .num_bytes = 1};
    const struct text *t = self_text(c);
    int64_t missing = missing_width(c);
    bool sign = t->num_bytes > 0 && (t->bytes[0] == '-' || t->bytes[0] == '+');
    if (!sign || missing == 0) return pad(c, missing, 0, &zero);
    struct call digits = *c;
    digits.self = slice_value(c, t, 1, t->num_bytes);
    struct value padded = pad(&digits, missing, 0, &zero);
    return value_text(text_concat(c->heap, text_slice(c->heap, t, 0, 1), padded.text));
}

static struct value text_method_expandtabs(struct call *c)
{
    const struct text *t = self_text(c);
    int64_t width = call_int(c, 0, 8), column = 0;
    struct text_builder b;
    text_builder_init(&b, c->heap);
    size_t size;
    for (size_t at = 0; at < t->num_bytes && run_charge(c->run, 64); at += size) {
        int32_t ch = text_char_at(t, at, &size);
        if (ch != '\t') {
            text_builder_append_slice(&b, t, at, at + size);
            column = ch == '\n' || ch == '\r' ? 0 : column + 1;
            continue;
        }
        int64_t spaces = width > 0 ? width - column % width : 0;
        for (int64_t i = 0; i < spaces && run_charge(c->run, 8); i++) text_builder_append(&b, " ", 1, false);
        column += spaces;
    }
    return value_text(text_builder_take(&b));
}

static struct value text_method_format(struct call *c)
{
    return text_format(c->run, self_text(c), c->all);
}

/* ---- questions ---- */

enum char_class { CLASS_SPACE, CLASS_ALPHA, CLASS_DIGIT, CLASS_ALNUM, CLASS_ASCII };

static bool in_class(int32_t c, enum char_class class)
{
    utf8proc_category_t category = utf8proc_category(c);
    bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
    switch (class) {
    case CLASS_SPACE:
        return char_is_space(c);
    case CLASS_ALPHA:
        return letter;
    case CLASS_DIGIT:
        return category == UTF8PROC_CATEGORY_ND;
    case CLASS_ALNUM:
        return letter || (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
    default:
        return c < 0x80;
    }
}

static struct value all_in_class(struct call *c, enum char_class class, bool when_empty)
{
    const struct text *t = self_text(c);
    size_t size;
    run_charge(c->run, t->num_bytes * 8);
    for (size_t at = 0; at < t->num_bytes; at += size) {
        if (!in_class(text_char_at(t, at, &size), class)) return value_bool(false);
    }
    return value_bool(t->num_bytes > 0 || when_empty);
}

static struct value text_method_isspace(struct call *c)
{
    return all_in_class(c, CLASS_SPACE, false);
}

static struct value text_method_isalpha(struct call *c)
{
    return all_in_class(c, CLASS_ALPHA, false);
}

static struct value text_method_isdigit(struct call *c)
{
    return all_in_class(c, CLASS_DIGIT, false);
}

static struct value text_method_isalnum(struct call *c)
{
    return all_in_class(c, CLASS_ALNUM, false);
}

static struct value text_method_isascii(struct call *c)
{
    return all_in_class(c, CLASS_ASCII, true);
}

/* At least one cased character, and none of the other case. */
static struct value is_all_case(struct call *c, utf8proc_category_t wanted, utf8proc_category_t other)
{
    const struct text *t = self_text(c);
    bool any = false;
    size_t size;
    run_charge(c->run, t->num_bytes * 8);
    for (size_t at = 0; at < t->num_bytes; at += size) {
        utf8proc_category_t category = utf8proc_category(text_char_at(t, at, &size));
        if (category == other || category == UTF8PROC_CATEGORY_LT) return value_bool(false);
        any |= category == wanted;
    }
    return value_bool(any);
}

static struct value text_method_isupper(struct call *c)
{
    return is_all_case(c, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LL);
}

static struct value text_method_islower(struct call *c)
{
    return is_all_case(c, UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LU);
}

const struct builtin text_methods[] = {
    {"strip", text_method_strip, {"chars"}, 0, false},
    {"lstrip", text_method_lstrip, {"chars"}, 0, false},
    {"rstrip", text_method_rstrip, {"chars"}, 0, false},
    {"replace", text_method_replace, {"old", "new", "count"}, 2, false},
    {"upper", text_method_upper, {NULL}, 0, false},
    {"lower", text_method_lower, {NULL}, 0, false},
    {"casefold", text_method_lower, {NULL}, 0, false},
    {"title", text_method_title, {NULL}, 0, false},
    {"capitalize", text_method_capitalize, {NULL}, 0, false},
    {"swapcase", text_method_swapcase, {NULL}, 0, false},
    {"join", text_method_join, {"iterable"}, 1, false},
    {"format", text_method_format, {NULL}, 0, true},
    {"removeprefix", text_method_removeprefix, {"prefix"}, 1, false},
    {"removesuffix", text_method_removesuffix, {"suffix"}, 1, false},
    {"ljust", text_method_ljust, {"width", "fillchar"}, 1, false},
    {"rjust", text_method_rjust, {"width", "fillchar"}, 1, false},
    {"center", text_method_center, {"width", "fillchar"}, 1, false},
    {"zfill", text_method_zfill, {"width"}, 1, false},
    {"expandtabs", text_method_expandtabs, {"tabsize"}, 0, false},
    {"isspace", text_method_isspace, {NULL}, 0, false},
    {"isalpha", text_method_isalpha, {NULL}, 0, false},
    {"isdigit", text_method_isdigit, {NULL}, 0, false},
    {"isdecimal", text_method_isdigit, {NULL}, 0, false},
    {"isnumeric", text_method_isdigit, {NULL}, 0, false},
    {"isalnum", text_method_isalnum, {NULL}, 0, false},
    {"isascii", text_method_isascii, {NULL}, 0, false},
    {"isupper", text_method_isupper, {NULL}, 0, false},
    {"islower", text_method_islower, {NULL}, 0, false},
};
const size_t num_text_methods = array_length(text_methods);
