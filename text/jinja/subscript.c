/* subscript.c - x.name, x[key] and x[start:stop:step].
 *
 * As jinja2 does: a dot asks for a method first and then for a key, brackets ask for a key first and then for
 * a method; neither found gives an undefined value that remembers the question. Names that start with an
 * underscore are nobody's attributes (the sandbox). Slices are plain Python and raise. */
#include <inttypes.h>

#include "text/jinja/run.h"

struct value fail_undefined(struct run *r, struct value v)
{
    const struct text *name = v.text ? v.text : &text_empty;
    int n = (int)min_of(name->num_bytes, (size_t)200);
    if (v.owner == VALUE_UNDEFINED) return run_fail(r, STATUS_TEMPLATE, "%.*s", n, name->bytes);
    if (v.owner == VALUE_MISSING && v.text)
        return run_fail(r, STATUS_TEMPLATE, "'%.*s' is undefined", n, name->bytes);
    if (v.owner == VALUE_MISSING) return run_fail(r, STATUS_TEMPLATE, "an undefined value is used");
    const char *type = value_type_name((struct value){.kind = v.owner});
    if (!v.text) return run_fail(r, STATUS_TEMPLATE, "%s object has no such element", type);
    return run_fail(r, STATUS_TEMPLATE, "'%s object' has no attribute '%.*s'", type, n, name->bytes);
}

static struct value lacks(struct value object, const struct text *name)
{
    return (struct value){.kind = VALUE_UNDEFINED, .owner = object.kind, .text = name};
}

static struct value undefined_because(struct run *r, const char *sentence)
{
    struct value v = value_literal(&r->heap, sentence);
    return (struct value){.kind = VALUE_UNDEFINED, .owner = VALUE_UNDEFINED, .text = v.text};
}

static struct value loop_member(struct run *r, struct loop *l, const struct text *name)
{
    int at = l->at;
    if (text_is(name, "index")) return value_int(at + 1);
    if (text_is(name, "index0")) return value_int(at);
    if (text_is(name, "first")) return value_bool(at == 0);
    if (text_is(name, "last")) return value_bool(!loop_has(r, l, at + 1));
    if (text_is(name, "length")) return value_int(loop_length(r, l));
    if (text_is(name, "revindex")) return value_int(loop_length(r, l) - at);
    if (text_is(name, "revindex0")) return value_int(loop_length(r, l) - at - 1);
    if (text_is(name, "depth")) return value_int(l->depth + 1);
    if (text_is(name, "depth0")) return value_int(l->depth);
    if (text_is(name, "previtem")) {
        return at > 0 ? l->items->items[at - 1] : undefined_because(r, "there is no previous item");
    }
    if (text_is(name, "nextitem")) {
        return loop_has(r, l, at + 1) ? l->items->items[at + 1]
                                      : undefined_because(r, "there is no next item");
    }
    return (struct value){.kind = VALUE_MISSING};
}

static struct value macro_member(struct run *r, const struct macro *m, const struct text *name)
{
    if (text_is(name, "name")) return value_text(&m->node->name->text);
    if (!text_is(name, "arguments")) return (struct value){.kind = VALUE_MISSING};
    struct list *l = list_create(&r->heap, 0);
    for (const struct node *n = m->node->a; n; n = n->next)
        list_append(&r->heap, l, value_text(&n->name->text));
    return value_list(VALUE_TUPLE, l);
}

/* What Python's getattr gives: VALUE_MISSING for an AttributeError. */
static struct value own_attribute(struct run *r, struct value object, const struct text *name)
{
    struct value missing = {.kind = VALUE_MISSING};
    if (name->num_bytes > 0 && name->bytes[0] == '_') return missing;
    const struct builtin *builtin = method_find(object.kind, name);
    if (builtin) {
        struct method *m = heap_alloc(&r->heap, sizeof *m);
        if (!m) return value_undefined();
        *m = (struct method){object, builtin};
        return (struct value){.kind = VALUE_METHOD, .method = m};
    }
    switch (object.kind) {
    case VALUE_NAMESPACE: {
        const struct value *v = dict_find_text(&r->heap, object.dict, name);
        return v ? *v : missing;
    }
    case VALUE_LOOP:
        return loop_member(r, object.loop, name);
    case VALUE_MACRO:
        return macro_member(r, object.macro, name);
    case VALUE_CYCLER:
        return text_is(name, "current") ? object.cycler->items->items[object.cycler->at] : missing;
    default:
        return missing;
    }
}

struct value get_attribute(struct run *r, struct value object, const struct text *name)
{
    if (object.kind == VALUE_UNDEFINED) return fail_undefined(r, object);
    struct value v = own_attribute(r, object, name);
    if (v.kind != VALUE_MISSING) return v;
    if (object.kind == VALUE_DICT) {
        const struct value *there = dict_find_text(&r->heap, object.dict, name);
        if (there) return *there;
    }
    return lacks(object, name);
}

static bool is_indexable(struct value v)
{
    return v.kind == VALUE_LIST || v.kind == VALUE_TUPLE || v.kind == VALUE_RANGE;
}

static struct value get_char(struct run *r, struct value object, int64_t idx)
{
    const struct text *t = object.text;
    int64_t num = (int64_t)text_num_chars(t);
    run_charge(r, t->num_bytes * 4);
    if (idx < 0) idx += num;
    if (idx < 0 || idx >= num) return lacks(object, NULL);
    size_t at = text_byte_of_char(t, (size_t)idx), size;
    text_char_at(t, at, &size);
    return value_text(text_slice(&r->heap, t, at, at + size));
}

struct value get_item(struct run *r, struct value object, struct value key)
{
    if (object.kind == VALUE_UNDEFINED) return fail_undefined(r, object);
    if (value_is_integral(key)) {
        int64_t idx = value_as_int(key);
        if (object.kind == VALUE_TEXT) return get_char(r, object, idx);
        if (is_indexable(object)) {
            if (idx < 0) idx += object.list->num;
            return idx >= 0 && idx < object.list->num ? object.list->items[idx] : lacks(object, NULL);
        }
    }
    if (object.kind == VALUE_DICT) {
        const struct value *there = dict_find(&r->heap, object.dict, key);
        if (there) return *there;
    }
    if (key.kind != VALUE_TEXT) return lacks(object, NULL);
    struct value v = own_attribute(r, object, key.text);
    return v.kind == VALUE_MISSING ? lacks(object, key.text) : v;
}

/* ---- slices ---- */

struct span {
    int64_t start, stop, step, num;
};

static bool slice_bound(struct run *r, struct value v, int64_t otherwise, int64_t *out)
{
    *out = otherwise;
    if (v.kind == VALUE_NONE) return true;
    if (!value_is_integral(v)) {
        run_fail(r, STATUS_TEMPLATE, "slice indices must be integers or None, not %s", value_type_name(v));
        return false;
    }
    *out = value_as_int(v);
    return true;
}

static int64_t clamp_bound(int64_t bound, int64_t num, bool backwards)
{
    if (bound < 0) bound = bound < -num ? -1 : bound + num;
    if (bound < 0) return backwards ? -1 : 0;
    return bound >= num ? (backwards ? num - 1 : num) : bound;
}

/* As Python's slice.indices: which of num items are meant. */
static bool slice_span(struct run *r, int64_t num, const struct value bounds[3], struct span *s)
{
    if (!slice_bound(r, bounds[2], 1, &s->step)) return false;
    if (s->step == 0) {
        run_fail(r, STATUS_TEMPLATE, "slice step cannot be zero");
        return false;
    }
    bool backwards = s->step < 0;
    if (!slice_bound(r, bounds[0], 0, &s->start) || !slice_bound(r, bounds[1], 0, &s->stop)) return false;
    s->start =
        bounds[0].kind == VALUE_NONE ? (backwards ? num - 1 : 0) : clamp_bound(s->start, num, backwards);
    s->stop = bounds[1].kind == VALUE_NONE ? (backwards ? -1 : num) : clamp_bound(s->stop, num, backwards);
    int64_t distance = backwards ? s->start - s->stop : s->stop - s->start;
    uint64_t stride = backwards ? 0 - (uint64_t)s->step : (uint64_t)s->step;
    s->num = distance > 0 ? (int64_t)(((uint64_t)distance - 1) / stride) + 1 : 0;
    return true;
}

static struct value slice_list(struct run *r, struct value object, const struct span *s)
{
    struct list *l = list_create(&r->heap, (int)s->num);
    run_charge(r, (size_t)s->num * sizeof(struct value));
    for (int64_t i = 0; l && i < s->num; i++) {
        l->items[l->num++] = object.list->items[s->start + i * s->step];
    }
    if (l && object.kind == VALUE_RANGE) {
        uint64_t first = (uint64_t)object.list->start, stride = (uint64_t)object.list->step;
        l->start = (int64_t)(first + (uint64_t)s->start * stride);
        l->stop = (int64_t)(first + (uint64_t)s->stop * stride);
        l->step = (int64_t)(stride * (uint64_t)s->step);
    }
    return value_list(object.kind, l);
}

static struct value slice_text(struct run *r, const struct text *t, const struct span *s)
{
    run_charge(r, t->num_bytes * 4);
    if (s->step == 1) {
        size_t begin = text_byte_of_char(t, (size_t)s->start);
        size_t end = s->num > 0 ? text_byte_of_char(t, (size_t)(s->start + s->num)) : begin;
        return value_text(text_slice(&r->heap, t, begin, end));
    }
    struct text_builder b;
    text_builder_init(&b, &r->heap);
    size_t at = s->num > 0 ? text_byte_of_char(t, (size_t)s->start) : 0, size;
    for (int64_t i = 0; i < s->num; i++) {
        text_char_at(t, at, &size);
        text_builder_append_slice(&b, t, at, at + size);
        if (i + 1 == s->num) break;
        for (int64_t k = 0; k < s->step; k++, at += size) text_char_at(t, at, &size);
        for (int64_t k = 0; k > s->step; k--) at = text_char_before(t, at);
    }
    return value_text(text_as_markup(&r->heap, text_builder_take(&b), t->markup));
}

struct value get_slice(struct run *r, struct value object, struct value start, struct value stop,
                       struct value step)
{
    struct value bounds[3] = {start, stop, step};
    struct span s;
    if (object.kind == VALUE_UNDEFINED) return fail_undefined(r, object);
    if (object.kind == VALUE_TEXT) {
        if (!slice_span(r, (int64_t)text_num_chars(object.text), bounds, &s)) return value_undefined();
        return slice_text(r, object.text, &s);
    }
    if (!is_indexable(object)) {
        return run_fail(r, STATUS_TEMPLATE, "'%s' object is not subscriptable", value_type_name(object));
    }
    if (!slice_span(r, object.list->num, bounds, &s)) return value_undefined();
    return slice_list(r, object, &s);
}
