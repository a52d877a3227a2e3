/* text_search.c - the methods of Python's str that find and split. Positions that a template sees count code
 * points; inside they are bytes. */
#include "text/jinja/run.h"

static const struct text *self_text(const struct call *c)
{
    return c->self.text;
}

/* ---- finding ---- */

/* Arguments start and stop as a part of the text, as in s[start:stop]. */
static const struct text *searched_part(struct call *c, size_t *begin)
{
    *begin = 0;
    if (c->args[1].kind == VALUE_MISSING && c->args[2].kind == VALUE_MISSING) return self_text(c);
    struct value none = value_none();
    struct value start = c->args[1].kind == VALUE_MISSING ? none : c->args[1];
    struct value stop = c->args[2].kind == VALUE_MISSING ? none : c->args[2];
    struct value part = get_slice(c->run, c->self, start, stop, none);
    if (part.kind != VALUE_TEXT) return &text_empty;
    struct value before = get_slice(c->run, c->self, none, start, none);
    if (before.kind == VALUE_TEXT && start.kind != VALUE_NONE) *begin = before.text->num_bytes;
    return part.text;
}

static struct value starts_or_ends(struct call *c, bool starts)
{
    size_t begin;
    const struct text *t = searched_part(c, &begin);
    struct value wanted = c->args[0];
    struct list one = {.items = &wanted, .num = 1};
    const struct list *choices = wanted.kind == VALUE_TUPLE ? wanted.list : &one;
    for (int i = 0; i < choices->num && run_charge(c->run, 64); i++) {
        if (choices->items[i].kind != VALUE_TEXT) {
            return call_fail(c, "%s first arg must be str or a tuple of str, not %s",
                             starts ? "startswith" : "endswith", value_type_name(choices->items[i]));
        }
        const struct text *choice = choices->items[i].text;
        if (starts ? text_starts_with(t, choice) : text_ends_with(t, choice)) return value_bool(true);
    }
    return value_bool(false);
}

static struct value text_method_startswith(struct call *c)
{
    return starts_or_ends(c, true);
}

static struct value text_method_endswith(struct call *c)
{
    return starts_or_ends(c, false);
}

static struct value find(struct call *c, bool last, bool must_be_there)
{
    size_t begin;
    const struct text *t = searched_part(c, &begin), *needle = call_text(c, 0, &text_empty);
    run_charge(c->run, t->num_bytes * (last ? needle->num_bytes : 1));
    size_t at = last ? text_find_last(t, needle, 0, t->num_bytes) : text_find(t, needle, 0, t->num_bytes);
    if (at != SIZE_MAX) return value_int((int64_t)text_char_of_byte(self_text(c), begin + at));
    return must_be_there ? call_fail(c, "substring not found") : value_int(-1);
}

static struct value text_method_find(struct call *c)
{
    return find(c, false, false);
}

static struct value text_method_rfind(struct call *c)
{
    return find(c, true, false);
}

static struct value text_method_index(struct call *c)
{
    return find(c, false, true);
}

static struct value text_method_rindex(struct call *c)
{
    return find(c, true, true);
}

static struct value text_method_count(struct call *c)
{
    size_t begin;
    const struct text *t = searched_part(c, &begin), *needle = call_text(c, 0, &text_empty);
    run_charge(c->run, t->num_bytes);
    if (needle->num_bytes == 0) return value_int((int64_t)text_num_chars(t) + 1);
    int64_t num = 0;
    for (size_t at = 0; (at = text_find(t, needle, at, t->num_bytes)) != SIZE_MAX; at += needle->num_bytes)
        num++;
    return value_int(num);
}

/* ---- splitting ---- */

static void add_slice(struct call *c, struct list *l, const struct text *t, size_t begin, size_t end)
{
    list_append(c->heap, l, value_text(text_slice(c->heap, t, begin, end)));
}

static size_t skip_spaces(const struct text *t, size_t at, bool spaces)
{
    size_t size;
    while (at < t->num_bytes && char_is_space(text_char_at(t, at, &size)) == spaces) at += size;
    return at;
}

static void split_spaces(struct call *c, struct list *l, int64_t limit)
{
    const struct text *t = self_text(c);
    for (size_t at = skip_spaces(t, 0, true); at < t->num_bytes && run_charge(c->run, 64);) {
        size_t end = skip_spaces(t, at, false), next = skip_spaces(t, end, true);
        if (limit-- == 0) {
            add_slice(c, l, t, at, t->num_bytes);
            return;
        }
        add_slice(c, l, t, at, end);
        at = next;
    }
}

static void rsplit_spaces(struct call *c, struct list *l, int64_t limit)
{
    const struct text *t = self_text(c);
    size_t end = t->num_bytes, size, ignored;
    while (run_charge(c->run, 64)) {
        struct text head = {.bytes = t->bytes, .num_bytes = end};
        text_strip_bounds(&head, NULL, false, true, &ignored, &end);
        if (end == 0) return;
        size_t begin = limit-- == 0 ? 0 : end;
        while (begin > 0) {
            size_t before = text_char_before(t, begin);
            if (char_is_space(text_char_at(t, before, &size))) break;
            begin = before;
        }
        add_slice(c, l, t, begin, end);
        end = begin;
    }
}

static void split_at(struct call *c, struct list *l, const struct text *separator, int64_t limit)
{
    const struct text *t = self_text(c);
    size_t from = 0;
    while (limit-- != 0 && run_charge(c->run, 64)) {
        size_t at = text_find(t, separator, from, t->num_bytes);
        if (at == SIZE_MAX) break;
        add_slice(c, l, t, from, at);
        from = at + separator->num_bytes;
    }
    add_slice(c, l, t, from, t->num_bytes);
}

static void rsplit_at(struct call *c, struct list *l, const struct text *separator, int64_t limit)
{
    const struct text *t = self_text(c);
    size_t to = t->num_bytes;
    while (limit-- != 0 && run_charge(c->run, 64)) {
        size_t at = text_find_last(t, separator, 0, to);
        if (at == SIZE_MAX) break;
        add_slice(c, l, t, at + separator->num_bytes, to);
        to = at;
    }
    add_slice(c, l, t, 0, to);
}

static void reverse(struct list *l)
{
    for (int i = 0; l && i < l->num / 2; i++) {
        struct value v = l->items[i];
        l->items[i] = l->items[l->num - 1 - i];
        l->items[l->num - 1 - i] = v;
    }
}

static struct value split(struct call *c, bool from_right)
{
    const struct text *separator = call_text(c, 0, NULL);
    int64_t limit = call_int(c, 1, -1);
    struct list *l = list_create(c->heap, 0);
    run_charge(c->run, self_text(c)->num_bytes * (from_right && separator ? separator->num_bytes : 2));
    if (separator && separator->num_bytes == 0) return call_fail(c, "empty separator");
    if (separator) {
        (from_right ? rsplit_at : split_at)(c, l, separator, limit);
    } else {
        (from_right ? rsplit_spaces : split_spaces)(c, l, limit);
    }
    if (from_right) reverse(l);
    return value_list(VALUE_LIST, l);
}

static struct value text_method_split(struct call *c)
{
    return split(c, false);
}

static struct value text_method_rsplit(struct call *c)
{
    return split(c, true);
}

static bool is_line_break(int32_t c)
{
    return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

static struct value text_method_splitlines(struct call *c)
{
    const struct text *t = self_text(c);
    bool keep = call_bool(c, 0, false);
    struct list *l = list_create(c->heap, 0);
    size_t from = 0, size;
    for (size_t at = 0; at < t->num_bytes && run_charge(c->run, 8); at += size) {
        int32_t ch = text_char_at(t, at, &size);
        if (!is_line_break(ch)) continue;
        if (ch == '\r' && at + 1 < t->num_bytes && t->bytes[at + 1] == '\n') size = 2;
        add_slice(c, l, t, from, keep ? at + size : at);
        from = at + size;
    }
    if (from < t->num_bytes) add_slice(c, l, t, from, t->num_bytes);
    return value_list(VALUE_LIST, l);
}

static struct value partition(struct call *c, bool last)
{
    const struct text *t = self_text(c), *separator = call_text(c, 0, &text_empty);
    if (separator->num_bytes == 0) return call_fail(c, "empty separator");
    run_charge(c->run, t->num_bytes * (last ? separator->num_bytes : 1));
    size_t at =
        last ? text_find_last(t, separator, 0, t->num_bytes) : text_find(t, separator, 0, t->num_bytes);
    size_t n = separator->num_bytes, end = t->num_bytes;
    struct list *l = list_create(c->heap, 3);
    if (at != SIZE_MAX) {
        add_slice(c, l, t, 0, at);
        add_slice(c, l, t, at, at + n);
        add_slice(c, l, t, at + n, end);
    } else {
        add_slice(c, l, t, 0, last ? 0 : end);
        add_slice(c, l, t, 0, 0);
        add_slice(c, l, t, 0, last ? end : 0);
    }
    return value_list(VALUE_TUPLE, l);
}

static struct value text_method_partition(struct call *c)
{
    return partition(c, false);
}

static struct value text_method_rpartition(struct call *c)
{
    return partition(c, true);
}

const struct builtin text_search_methods[] = {
    {"split", text_method_split, {"sep", "maxsplit"}, 0, false},
    {"startswith", text_method_startswith, {"prefix", "start", "end"}, 1, false},
    {"endswith", text_method_endswith, {"suffix", "start", "end"}, 1, false},
    {"find", text_method_find, {"sub", "start", "end"}, 1, false},
    {"rfind", text_method_rfind, {"sub", "start", "end"}, 1, false},
    {"index", text_method_index, {"sub", "start", "end"}, 1, false},
    {"rindex", text_method_rindex, {"sub", "start", "end"}, 1, false},
    {"count", text_method_count, {"sub", "start", "end"}, 1, false},
    {"rsplit", text_method_rsplit, {"sep", "maxsplit"}, 0, false},
    {"splitlines", text_method_splitlines, {"keepends"}, 0, false},
    {"partition", text_method_partition, {"sep"}, 1, false},
    {"rpartition", text_method_rpartition, {"sep"}, 1, false},
};
const size_t num_text_search_methods = array_length(text_search_methods);
