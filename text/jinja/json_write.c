/* json_write.c - values as Python's json.dumps writes them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "text/jinja/run.h"

struct writer {
    struct run *run;
    struct text_builder out;
    const struct json_style *style;
    int level;
    bool untrusted; /* some text in it came from the request */
};

static void put(struct writer *w, const char *literal)
{
    text_builder_append_literal(&w->out, literal);
}

/* What stands for this character inside the quotes; 0: itself. */
static int escape_char(int32_t c, bool ensure_ascii, char out[16])
{
    static const char plain[] = "\"\"\\\\\nn\rr\tt\bb\ff";
    for (const char *p = plain; *p; p += 2) {
        if (*p == c) return snprintf(out, 16, "\\%c", p[1]);
    }
    if (c >= 0x20 && (c < 0x7F || !ensure_ascii)) return 0;
    if (c < 0x10000) return c == 0x7F ? 0 : snprintf(out, 16, "\\u%04x", (unsigned)c);
    unsigned rest = (unsigned)c - 0x10000;
    return snprintf(out, 16, "\\u%04x\\u%04x", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
}

static void write_text(struct writer *w, const struct text *t)
{
    w->untrusted |= t->num_untrusted > 0;
    run_charge(w->run, t->num_bytes);
    put(w, "\"");
    size_t from = 0, size;
    for (size_t at = 0; at < t->num_bytes; at += size) {
        char escaped[16];
        unsigned char byte = (unsigned char)t->bytes[at];
        size = 1;
        if (byte >= 0x80 && !w->style->ensure_ascii) continue;
        if (byte >= ' ' && byte < 0x80 && byte != '"' && byte != '\\') continue;
        int n = escape_char(text_char_at(t, at, &size), w->style->ensure_ascii, escaped);
        if (n == 0) continue;
        text_builder_append(&w->out, t->bytes + from, at - from, false);
        text_builder_append(&w->out, escaped, (size_t)n, false);
        from = at + size;
    }
    text_builder_append(&w->out, t->bytes + from, t->num_bytes - from, false);
    put(w, "\"");
}

static void write_number(struct writer *w, struct value v)
{
    char text[FLOAT_TEXT_BYTES];
    run_charge(w->run, v.kind == VALUE_INT ? 64 : 1024);
    if (v.kind == VALUE_INT) {
        snprintf(text, sizeof text, "%" PRId64, v.integer);
    } else if (isnan(v.real) || isinf(v.real)) {
        snprintf(text, sizeof text, isnan(v.real) ? "NaN" : v.real > 0 ? "Infinity" : "-Infinity");
    } else {
        float_repr(v.real, text);
    }
    put(w, text);
}

static void write_value(struct writer *w, struct value v);

/* A new line at the current level, if the style has lines. */
static void write_line(struct writer *w)
{
    if (!w->style->indent) return;
    put(w, "\n");
    for (int i = 0; i < w->level; i++) text_builder_append_text(&w->out, w->style->indent);
    w->untrusted |= w->style->indent->num_untrusted > 0;
}

static void write_separator(struct writer *w, const struct text *separator)
{
    text_builder_append(&w->out, separator->bytes, separator->num_bytes, false);
    w->untrusted |= separator->num_untrusted > 0;
}

static void write_list(struct writer *w, const struct list *l)
{
    put(w, "[");
    w->level++;
    for (int i = 0; i < l->num; i++) {
        if (i > 0) write_separator(w, w->style->item_separator);
        write_line(w);
        write_value(w, l->items[i]);
    }
    w->level--;
    if (l->num > 0) write_line(w);
    put(w, "]");
}

/* Keys that are not texts become texts, as in Python. */
static void write_key(struct writer *w, struct value key)
{
    if (key.kind == VALUE_TEXT) {
        write_text(w, key.text);
        return;
    }
    if (key.kind != VALUE_NONE && !value_is_number(key)) {
        run_fail(w->run, STATUS_TEMPLATE, "keys must be str, int, float, bool or None, not %s",
                 value_type_name(key));
        return;
    }
    put(w, "\"");
    write_value(w, key);
    put(w, "\"");
}

/* The pairs in the order of their keys. Insertion sort: few of them. */
static const struct dict *sort_pairs(struct writer *w, const struct dict *d)
{
    struct dict *sorted = dict_create(&w->run->heap, d->num);
    for (int i = 0; sorted && i < d->num; i++) {
        int at = sorted->num++;
        for (; at > 0 && run_charge(w->run, 32); at--) {
            int order = 0;
            if (!value_compare(&w->run->heap, sorted->pairs[at - 1].key, d->pairs[i].key, 8, &order)) {
                run_fail(w->run, STATUS_TEMPLATE, "keys of different types cannot be sorted");
            }
            if (order <= 0) break;
            sorted->pairs[at] = sorted->pairs[at - 1];
        }
        sorted->pairs[at] = d->pairs[i];
    }
    return sorted ? sorted : d;
}

static void write_dict(struct writer *w, const struct dict *d)
{
    if (w->style->sort_keys) d = sort_pairs(w, d);
    put(w, "{");
    w->level++;
    for (int i = 0; i < d->num; i++) {
        if (i > 0) write_separator(w, w->style->item_separator);
        write_line(w);
        write_key(w, d->pairs[i].key);
        write_separator(w, w->style->key_separator);
        write_value(w, d->pairs[i].value);
    }
    w->level--;
    if (d->num > 0) write_line(w);
    put(w, "}");
}

static void write_value(struct writer *w, struct value v)
{
    if (!run_enter(w->run)) return;
    switch (v.kind) {
    case VALUE_NONE:
        put(w, "null");
        break;
    case VALUE_BOOL:
        put(w, v.boolean ? "true" : "false");
        break;
    case VALUE_INT:
    case VALUE_FLOAT:
        write_number(w, v);
        break;
    case VALUE_LONG:
        text_builder_append(&w->out, v.text->bytes, v.text->num_bytes, false);
        break;
    case VALUE_TEXT:
        write_text(w, v.text);
        break;
    case VALUE_LIST:
    case VALUE_TUPLE:
        write_list(w, v.list);
        break;
    case VALUE_DICT:
        write_dict(w, v.dict);
        break;
    default:
        run_fail(w->run, STATUS_TEMPLATE, "Object of type %s is not JSON serializable", value_type_name(v));
    }
    run_leave(w->run);
}

struct value value_to_json(struct run *r, struct value v, const struct json_style *style)
{
    struct writer w = {.run = r, .style = style};
    text_builder_init(&w.out, &r->heap);
    write_value(&w, v);
    return value_text(text_wrap(&r->heap, w.out.bytes, w.out.num_bytes, w.untrusted));
}
