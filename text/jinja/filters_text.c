/* filters_text.c - filters that give text. */
#include "text/jinja/run.h"

/* The filter is str(self).method(...). */
static struct value apply_method(struct call *c, const char *method)
{
    struct text name = {.bytes = method, .num_bytes = strlen(method)};
    return builtin_call(c->run, method_find(VALUE_TEXT, &name), value_text(call_self_text(c)), c->all);
}

static struct value filter_upper(struct call *c)
{
    return apply_method(c, "upper");
}

static struct value filter_lower(struct call *c)
{
    return apply_method(c, "lower");
}

static struct value filter_capitalize(struct call *c)
{
    return apply_method(c, "capitalize");
}

static struct value filter_trim(struct call *c)
{
    return apply_method(c, "strip");
}

/* str(): markup becomes plain text here, and old and new are made texts, unlike in the method. */
static struct value filter_replace(struct call *c)
{
    int depth = c->run->depth_left;
    struct value texts[3] = {value_text(value_to_text(c->heap, c->args[0], depth)),
                             value_text(value_to_text(c->heap, c->args[1], depth)), c->args[2]};
    struct arguments all = {.positional = texts, .num_positional = c->args[2].kind == VALUE_MISSING ? 2 : 3};
    struct text name = {.bytes = "replace", .num_bytes = 7};
    const struct text *plain = text_as_markup(c->heap, call_self_text(c), false);
    return builtin_call(c->run, method_find(VALUE_TEXT, &name), value_text(plain), &all);
}

/* A word starts after white space or one of -({[<. */
static struct value filter_title(struct call *c)
{
    const struct text *t = call_self_text(c);
    struct text_builder b;
    text_builder_init(&b, c->heap);
    bool in_word = false;
    size_t size;
    for (size_t at = 0; at < t->num_bytes && run_charge(c->run, 64); at += size) {
        int32_t ch = text_char_at(t, at, &size);
        bool between = char_is_space(ch) || (ch > 0 && ch < 0x80 && strchr("-({[<", ch));
        const struct text *one = text_slice(c->heap, t, at, at + size);
        text_builder_append_text(
            &b, text_change_case(c->heap, one, in_word || between ? CASE_LOWER : CASE_UPPER));
        in_word = !between;
    }
    return value_text(text_builder_take(&b));
}

static struct value filter_string(struct call *c)
{
    return value_text(call_self_text(c));
}

static struct value filter_safe(struct call *c)
{
    return value_text(text_as_markup(c->heap, call_self_text(c), true));
}

static struct value filter_escape(struct call *c)
{
    return value_text(text_escape_html(c->heap, call_self_text(c)));
}

static struct value filter_forceescape(struct call *c)
{
    return value_text(text_escape_html(c->heap, text_as_markup(c->heap, call_self_text(c), false)));
}

static struct value filter_center(struct call *c)
{
    struct value width = value_int(call_int(c, 0, 80));
    struct arguments all = {.positional = &width, .num_positional = 1};
    struct text name = {.bytes = "center", .num_bytes = 6};
    return builtin_call(c->run, method_find(VALUE_TEXT, &name), value_text(call_self_text(c)), &all);
}

static struct value filter_format(struct call *c)
{
    struct list positional = {.items = c->all->positional, .num = c->all->num_positional};
    struct value args = {.kind = VALUE_TUPLE, .list = &positional};
    if (c->all->num_keywords > 0) {
        args = value_dict(VALUE_DICT, dict_create(c->heap, c->all->num_keywords));
        for (int i = 0; i < c->all->num_keywords && args.kind == VALUE_DICT; i++) {
            dict_append(c->heap, args.dict, value_text(c->all->keywords[i].name), c->all->keywords[i].value);
        }
    }
    return text_percent(c->run, call_self_text(c), args);
}

static struct value filter_join(struct call *c)
{
    int depth = c->run->depth_left;
    struct value separator = c->args[0].kind == VALUE_MISSING ? value_text(&text_empty) : c->args[0];
    const struct text *between = value_to_text(c->heap, separator, depth);
    const struct list *l = call_self_list(c);
    struct text_builder b;
    text_builder_init(&b, c->heap);
    for (int i = 0; i < l->num && run_charge(c->run, 64); i++) {
        if (i > 0) text_builder_append_text(&b, between);
        value_print(&b, call_attribute(c, l->items[i], c->args[1]), depth);
    }
    return value_text(text_builder_take(&b));
}

/* width (spaces, or a text), first: also the first line, blank: also empty lines. */
static struct value filter_indent(struct call *c)
{
    if (c->self.kind != VALUE_TEXT)
        return call_fail(c, "indent needs a string, not %s", value_type_name(c->self));
    const struct text *t = c->self.text;
    bool by_text = c->args[0].kind == VALUE_TEXT, first = call_bool(c, 1, false),
         blank = call_bool(c, 2, false);
    int64_t width = by_text ? 0 : call_int(c, 0, 4);
    struct text_builder b, indent;
    text_builder_init(&b, c->heap);
    text_builder_init(&indent, c->heap);
    if (by_text) text_builder_append_text(&indent, c->args[0].text);
    for (int64_t i = 0; i < width && run_charge(c->run, 8); i++) text_builder_append(&indent, " ", 1, false);
    const struct text *indention = text_builder_take(&indent);

    struct text split = {.bytes = "splitlines", .num_bytes = 10};
    struct arguments none = {0};
    static const struct text newline = {.bytes = "\n", .num_bytes = 1};
    struct value with_newline = value_text(text_concat(c->heap, t, &newline));
    struct value lines = builtin_call(c->run, method_find(VALUE_TEXT, &split), with_newline, &none);
    if (lines.kind != VALUE_LIST) return value_undefined();
    if (first) text_builder_append_text(&b, indention);
    for (int i = 0; i < lines.list->num && run_charge(c->run, 64); i++) {
        const struct text *line = lines.list->items[i].text;
        if (i > 0) text_builder_append_literal(&b, "\n");
        if (i > 0 && (blank || line->num_bytes > 0)) text_builder_append_text(&b, indention);
        text_builder_append_text(&b, line);
    }
    return value_text(text_as_markup(c->heap, text_builder_take(&b), t->markup));
}

static struct value filter_truncate(struct call *c)
{
    static const struct text dots = {.bytes = "...", .num_bytes = 3}, space = {.bytes = " ", .num_bytes = 1};
    const struct text *t = call_self_text(c), *end = call_text(c, 2, &dots);
    int64_t length = call_int(c, 0, 255), leeway = call_int(c, 3, 5),
            end_chars = (int64_t)text_num_chars(end);
    if (length < end_chars) return call_fail(c, "expected length >= %d", (int)end_chars);
    if ((int64_t)text_num_chars(t) <= length + leeway) return value_text(t);
    size_t cut = text_byte_of_char(t, (size_t)(length - end_chars));
    if (!call_bool(c, 1, false)) {
        size_t at = text_find_last(t, &space, 0, cut);
        if (at != SIZE_MAX) cut = at;
    }
    return value_text(text_concat(c->heap, text_slice(c->heap, t, 0, cut), end));
}

static struct value filter_tojson(struct call *c)
{
    static const struct text colon = {.bytes = ": ", .num_bytes = 2}, comma = {.bytes = ",", .num_bytes = 1},
                             comma_space = {.bytes = ", ", .num_bytes = 2};
    struct json_style style = {.ensure_ascii = call_bool(c, 0, false), .sort_keys = call_bool(c, 3, false)};
    struct value indent = c->args[1], separators = c->args[2];
    if (indent.kind == VALUE_TEXT) style.indent = indent.text;
    if (value_is_integral(indent)) {
        struct text_builder b;
        text_builder_init(&b, c->heap);
        for (int64_t i = 0; i < value_as_int(indent) && run_charge(c->run, 8); i++) {
            text_builder_append(&b, " ", 1, false);
        }
        style.indent = text_builder_take(&b);
    }
    style.item_separator = style.indent ? &comma : &comma_space;
    style.key_separator = &colon;
    if (separators.kind == VALUE_TUPLE || separators.kind == VALUE_LIST) {
        const struct value *pair = separators.list->items;
        if (separators.list->num != 2 || pair[0].kind != VALUE_TEXT || pair[1].kind != VALUE_TEXT) {
            return call_fail(c, "separators must be two strings");
        }
        style.item_separator = pair[0].text;
        style.key_separator = pair[1].text;
    }
    return value_to_json(c->run, c->self, &style);
}

static struct value filter_from_json(struct call *c)
{
    return value_parse_json(c->run, call_self_text(c));
}

static struct value filter_urlencode(struct call *c)
{
    static const char hex[] = "0123456789ABCDEF";
    const struct text *t = call_self_text(c);
    struct text_builder b;
    text_builder_init(&b, c->heap);
    for (size_t at = 0; at < t->num_bytes && run_charge(c->run, 8); at++) {
        unsigned char byte = (unsigned char)t->bytes[at];
        bool plain = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                     (byte >= '0' && byte <= '9') || (byte && strchr("_.-~/", byte));
        char escaped[3] = {'%', hex[byte >> 4], hex[byte & 15]};
        if (plain) {
            text_builder_append_slice(&b, t, at, at + 1);
        } else {
            text_builder_append(&b, escaped, 3, text_is_untrusted_at(t, at));
        }
    }
    return value_text(text_builder_take(&b));
}

const struct builtin filters_of_text[] = {
    {"tojson", filter_tojson, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0, false},
    {"trim", filter_trim, {"chars"}, 0, false},
    {"string", filter_string, {NULL}, 0, false},
    {"join", filter_join, {"d", "attribute"}, 0, false},
    {"upper", filter_upper, {NULL}, 0, false},
    {"lower", filter_lower, {NULL}, 0, false},
    {"capitalize", filter_capitalize, {NULL}, 0, false},
    {"title", filter_title, {NULL}, 0, false},
    {"replace", filter_replace, {"old", "new", "count"}, 2, false},
    {"safe", filter_safe, {NULL}, 0, false},
    {"escape", filter_escape, {NULL}, 0, false},
    {"e", filter_escape, {NULL}, 0, false},
    {"forceescape", filter_forceescape, {NULL}, 0, false},
    {"indent", filter_indent, {"width", "first", "blank"}, 0, false},
    {"format", filter_format, {NULL}, 0, true},
    {"center", filter_center, {"width"}, 0, false},
    {"truncate", filter_truncate, {"length", "killwords", "end", "leeway"}, 0, false},
    {"urlencode", filter_urlencode, {NULL}, 0, false},
    {"from_json", filter_from_json, {NULL}, 0, false},
};
const size_t num_filters_of_text = array_length(filters_of_text);
