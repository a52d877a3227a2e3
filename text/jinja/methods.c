/* methods.c - the methods of lists, dicts, loops and cyclers.
 *
 * Those that change a list or dict are allowed, unlike in Hugging Face's immutable sandbox, where a template
 * that uses them fails to render: every rendering has its own copy of the request, so nothing leaks. */
#include "text/jinja/run.h"

/* ---- list ---- */

static struct value list_method_append(struct call *c)
{
    list_append(c->heap, c->self.list, c->args[0]);
    return value_none();
}

static struct value list_method_extend(struct call *c)
{
    const struct list *more = run_iterate(c->run, c->args[0]);
    int num = more->num; /* the list may be extended by itself */
    for (int i = 0; i < num && run_charge(c->run, 64); i++)
        list_append(c->heap, c->self.list, more->items[i]);
    return value_none();
}

static struct value list_method_insert(struct call *c)
{
    struct list *l = c->self.list;
    int64_t at = call_int(c, 0, 0);
    if (at < 0) at = max_of(at + l->num, (int64_t)0);
    at = min_of(at, (int64_t)l->num);
    int num = l->num;
    list_append(c->heap, l, c->args[1]);
    run_charge(c->run, (size_t)num * 4);
    if (l->num == num) return value_none();
    memmove(l->items + at + 1, l->items + at, (size_t)(num - at) * sizeof *l->items);
    l->items[at] = c->args[1];
    return value_none();
}

static struct value list_method_pop(struct call *c)
{
    struct list *l = c->self.list;
    int64_t at = call_int(c, 0, -1);
    if (at < 0) at += l->num;
    if (at < 0 || at >= l->num)
        return call_fail(c, l->num ? "pop index out of range" : "pop from empty list");
    struct value v = l->items[at];
    memmove(l->items + at, l->items + at + 1, (size_t)(l->num - at - 1) * sizeof *l->items);
    l->num--;
    run_charge(c->run, (size_t)l->num * 4);
    return v;
}

static struct value list_method_index(struct call *c)
{
    const struct list *l = c->self.list;
    for (int i = 0; i < l->num && run_charge(c->run, 8); i++) {
        if (value_equal(c->heap, l->items[i], c->args[0], c->run->depth_left)) return value_int(i);
    }
    return call_fail(c, "the value is not in list");
}

static struct value list_method_count(struct call *c)
{
    const struct list *l = c->self.list;
    int64_t num = 0;
    for (int i = 0; i < l->num && run_charge(c->run, 8); i++) {
        num += value_equal(c->heap, l->items[i], c->args[0], c->run->depth_left);
    }
    return value_int(num);
}

static struct value list_method_copy(struct call *c)
{
    struct list *l = list_create(c->heap, c->self.list->num);
    run_charge(c->run, (size_t)c->self.list->num * 16);
    for (int i = 0; i < c->self.list->num; i++) list_append(c->heap, l, c->self.list->items[i]);
    return value_list(VALUE_LIST, l);
}

static struct value list_method_reverse(struct call *c)
{
    struct list *l = c->self.list;
    for (int i = 0; i < l->num / 2; i++) {
        struct value v = l->items[i];
        l->items[i] = l->items[l->num - 1 - i];
        l->items[l->num - 1 - i] = v;
    }
    return value_none();
}

const struct builtin list_methods[] = {
    {"append", list_method_append, {"object"}, 1, false},
    {"extend", list_method_extend, {"iterable"}, 1, false},
    {"insert", list_method_insert, {"index", "object"}, 2, false},
    {"pop", list_method_pop, {"index"}, 0, false},
    {"index", list_method_index, {"value"}, 1, false},
    {"count", list_method_count, {"value"}, 1, false},
    {"copy", list_method_copy, {NULL}, 0, false},
    {"reverse", list_method_reverse, {NULL}, 0, false},
};
const size_t num_list_methods = array_length(list_methods);

/* ---- dict ---- */

static struct value view(struct call *c, enum value_kind kind)
{
    run_charge(c->run, (size_t)c->self.dict->num * 32);
    return value_list(kind, dict_list(c->heap, c->self.dict, kind));
}

static struct value dict_method_items(struct call *c)
{
    return view(c, VALUE_ITEMS);
}

static struct value dict_method_keys(struct call *c)
{
    return view(c, VALUE_KEYS);
}

static struct value dict_method_values(struct call *c)
{
    return view(c, VALUE_VALUES);
}

static struct value *find_key(struct call *c)
{
    return dict_find(c->heap, c->self.dict, c->args[0]);
}

static struct value otherwise(struct call *c)
{
    return c->args[1].kind == VALUE_MISSING ? value_none() : c->args[1];
}

static struct value dict_method_get(struct call *c)
{
    const struct value *there = find_key(c);
    return there ? *there : otherwise(c);
}

static struct value dict_method_setdefault(struct call *c)
{
    const struct value *there = find_key(c);
    if (there) return *there;
    if (!value_is_hashable(c->args[0]))
        return call_fail(c, "unhashable type: '%s'", value_type_name(c->args[0]));
    dict_append(c->heap, c->self.dict, c->args[0], otherwise(c));
    return otherwise(c);
}

static struct value dict_method_pop(struct call *c)
{
    struct dict *d = c->self.dict;
    struct value *there = find_key(c);
    if (!there) return c->args[1].kind == VALUE_MISSING ? call_fail(c, "pop: no such key") : c->args[1];
    struct value v = *there;
    int at = 0;
    while (&d->pairs[at].value != there) at++;
    memmove(d->pairs + at, d->pairs + at + 1, (size_t)(d->num - at - 1) * sizeof *d->pairs);
    d->num--;
    return v;
}

static struct value dict_method_update(struct call *c)
{
    for (int i = 0; i < c->all->num_positional; i++) {
        struct value from = c->all->positional[i];
        if (from.kind != VALUE_DICT) return call_fail(c, "update() takes a dict");
        int num = from.dict->num;
        for (int k = 0; k < num && run_charge(c->run, 64); k++) {
            dict_set(c->heap, c->self.dict, from.dict->pairs[k].key, from.dict->pairs[k].value);
        }
    }
    for (int i = 0; i < c->all->num_keywords; i++) {
        dict_set(c->heap, c->self.dict, value_text(c->all->keywords[i].name), c->all->keywords[i].value);
    }
    return value_none();
}

static struct value dict_method_copy(struct call *c)
{
    struct dict *d = dict_create(c->heap, c->self.dict->num);
    run_charge(c->run, (size_t)c->self.dict->num * 32);
    for (int i = 0; i < c->self.dict->num; i++) {
        dict_append(c->heap, d, c->self.dict->pairs[i].key, c->self.dict->pairs[i].value);
    }
    return value_dict(VALUE_DICT, d);
}

const struct builtin dict_methods[] = {
    {"get", dict_method_get, {"key", "default"}, 1, false},
    {"items", dict_method_items, {NULL}, 0, false},
    {"keys", dict_method_keys, {NULL}, 0, false},
    {"values", dict_method_values, {NULL}, 0, false},
    {"pop", dict_method_pop, {"key", "default"}, 1, false},
    {"setdefault", dict_method_setdefault, {"key", "default"}, 1, false},
    {"update", dict_method_update, {NULL}, 0, true},
    {"copy", dict_method_copy, {NULL}, 0, false},
};
const size_t num_dict_methods = array_length(dict_methods);

/* ---- loop and cycler ---- */

static struct value loop_method_cycle(struct call *c)
{
    int num = c->all->num_positional;
    if (num == 0) return call_fail(c, "no items for cycling given");
    return c->all->positional[c->self.loop->at % num];
}

static struct value loop_method_changed(struct call *c)
{
    struct list *l = list_create(c->heap, c->all->num_positional);
    for (int i = 0; i < c->all->num_positional; i++) list_append(c->heap, l, c->all->positional[i]);
    struct value now = value_list(VALUE_TUPLE, l);
    bool changed = !value_equal(c->heap, now, c->self.loop->changed, c->run->depth_left);
    c->self.loop->changed = now;
    return value_bool(changed);
}

const struct builtin loop_methods[] = {
    {"cycle", loop_method_cycle, {NULL}, 0, true},
    {"changed", loop_method_changed, {NULL}, 0, true},
};
const size_t num_loop_methods = array_length(loop_methods);

static struct value cycler_method_next(struct call *c)
{
    struct cycler *cycler = c->self.cycler;
    struct value v = cycler->items->items[cycler->at];
    cycler->at = (cycler->at + 1) % cycler->items->num;
    return v;
}

static struct value cycler_method_reset(struct call *c)
{
    c->self.cycler->at = 0;
    return value_none();
}

const struct builtin cycler_methods[] = {
    {"next", cycler_method_next, {NULL}, 0, false},
    {"reset", cycler_method_reset, {NULL}, 0, false},
};
const size_t num_cycler_methods = array_length(cycler_methods);
