/* filters_list.c - filters over sequences. What is a generator in Python is computed at once and handed on
 * as an iterator. Sorting is a stable merge sort, so that equal keys keep their order. */
#include "text/jinja/run.h"

static struct value iterator(struct list *l)
{
    return value_list(VALUE_ITERATOR, l);
}

static struct value filter_length(struct call *c)
{
    struct value v = c->self;
    if (v.kind == VALUE_TEXT) return value_int((int64_t)text_num_chars(call_self_text(c)));
    if (v.kind == VALUE_DICT) return value_int(v.dict->num);
    if (v.kind == VALUE_UNDEFINED) return value_int(0);
    if (v.kind == VALUE_LOOP) return value_int(loop_length(c->run, v.loop));
    if (value_is_list(v) && v.kind != VALUE_ITERATOR) return value_int(v.list->num);
    return call_fail(c, "object of type '%s' has no len()", value_type_name(v));
}

static struct value filter_list(struct call *c)
{
    const struct list *from = call_self_list(c);
    struct list *l = list_create(c->heap, from->num);
    for (int i = 0; i < from->num; i++) list_append(c->heap, l, from->items[i]);
    return value_list(VALUE_LIST, l);
}

static struct value end_item(struct call *c, bool last)
{
    if (last && c->self.kind == VALUE_ITERATOR) return call_fail(c, "'generator' object is not reversible");
    const struct list *l = call_self_list(c);
    if (l->num == 0) return value_undefined();
    return l->items[last ? l->num - 1 : 0];
}

static struct value filter_first(struct call *c)
{
    return end_item(c, false);
}

static struct value filter_last(struct call *c)
{
    return end_item(c, true);
}

static struct value filter_reverse(struct call *c)
{
    if (c->self.kind == VALUE_TEXT) {
        return get_slice(c->run, c->self, value_none(), value_none(), value_int(-1));
    }
    const struct list *from = call_self_list(c);
    struct list *l = list_create(c->heap, from->num);
    for (int i = from->num; i-- > 0;) list_append(c->heap, l, from->items[i]);
    return c->self.kind == VALUE_ITERATOR ? value_list(VALUE_LIST, l) : iterator(l);
}

static struct value filter_items(struct call *c)
{
    if (c->self.kind == VALUE_UNDEFINED) return iterator(list_create(c->heap, 0));
    if (c->self.kind != VALUE_DICT) return call_fail(c, "Can only get item pairs from a mapping.");
    run_charge(c->run, (size_t)c->self.dict->num * 32);
    return iterator(dict_list(c->heap, c->self.dict, VALUE_ITEMS));
}

/* ---- sorting ---- */

struct keyed {
    struct value key, value;
};

static struct value fold_case(struct call *c, struct value v, bool case_sensitive)
{
    if (case_sensitive || v.kind != VALUE_TEXT) return v;
    run_charge(c->run, v.text->num_bytes * 32);
    return value_text(text_change_case(c->heap, v.text, CASE_LOWER));
}

static struct value key_of(struct call *c, struct value v, struct value attribute, bool case_sensitive)
{
    return fold_case(c, call_attribute(c, v, attribute), case_sensitive);
}

static int compare_keys(struct call *c, struct value a, struct value b)
{
    int order = 0;
    run_charge(c->run, 64);
    if (c->run->status == 0 && !value_compare(c->heap, a, b, c->run->depth_left, &order)) {
        if (a.kind == VALUE_UNDEFINED) fail_undefined(c->run, a);
        call_fail(c, "'<' not supported between instances of '%s' and '%s'", value_type_name(a),
                  value_type_name(b));
    }
    return order;
}

/* Merges the sorted halves of items through spare. */
static void merge_sort(struct call *c, struct keyed *items, struct keyed *spare, int num, bool descending)
{
    if (num < 2 || c->run->status != 0) return;
    int half = num / 2, a = 0, b = half, n = 0;
    merge_sort(c, items, spare, half, descending);
    merge_sort(c, items + half, spare, num - half, descending);
    while (a < half && b < num) {
        int order = compare_keys(c, items[a].key, items[b].key);
        bool take_b = descending ? order < 0 : order > 0;
        spare[n++] = take_b ? items[b++] : items[a++];
    }
    while (a < half) spare[n++] = items[a++];
    memcpy(items, spare, (size_t)n * sizeof *items);
}

static struct list *sort_keyed(struct call *c, struct keyed *items, int num, bool descending)
{
    struct keyed *spare = heap_alloc_array(c->heap, (size_t)num, sizeof *spare);
    struct list *l = list_create(c->heap, num);
    if (!spare || !l) return NULL;
    merge_sort(c, items, spare, num, descending);
    for (int i = 0; i < num; i++) list_append(c->heap, l, items[i].value);
    return l;
}

static struct value sort_by(struct call *c, struct value (*key)(struct call *c, struct value item),
                            bool descending)
{
    const struct list *from = call_self_list(c);
    struct keyed *items = heap_alloc_array(c->heap, (size_t)from->num, sizeof *items);
    if (!items) return value_undefined();
    for (int i = 0; i < from->num && c->run->status == 0; i++)
        items[i] = (struct keyed){key(c, from->items[i]), from->items[i]};
    return value_list(VALUE_LIST, sort_keyed(c, items, from->num, descending));
}

/* A list, of one key or of one for each attribute: keys that are equal need no order, as None has none. */
static struct value sort_keys(struct call *c, struct value item)
{
    const struct text comma = {.bytes = ",", .num_bytes = 1};
    const struct value attribute = c->args[2];
    const bool case_sensitive = call_bool(c, 1, false);
    const struct text *names = attribute.kind == VALUE_TEXT ? attribute.text : &text_empty;
    struct list *keys = list_create(c->heap, 1);
    if (attribute.kind != VALUE_TEXT) list_append(c->heap, keys, key_of(c, item, attribute, case_sensitive));
    for (size_t begin = 0;
         attribute.kind == VALUE_TEXT && begin <= names->num_bytes && run_charge(c->run, 64);) {
        const size_t end = min_of(text_find(names, &comma, begin, names->num_bytes), names->num_bytes);
        const struct value name = value_text(text_slice(c->heap, names, begin, end));
        list_append(c->heap, keys, key_of(c, item, name, case_sensitive));
        begin = end + 1;
    }
    return value_list(VALUE_LIST, keys);
}

static struct value filter_sort(struct call *c)
{
    return sort_by(c, sort_keys, call_bool(c, 0, false));
}

static struct value name_of_pair(struct call *c, struct value pair)
{
    return fold_case(c, pair.list->items[0], call_bool(c, 0, false));
}

static struct value value_of_pair(struct call *c, struct value pair)
{
    return fold_case(c, pair.list->items[1], call_bool(c, 0, false));
}

static struct value filter_dictsort(struct call *c)
{
    if (c->self.kind == VALUE_UNDEFINED) return fail_undefined(c->run, c->self);
    if (c->self.kind != VALUE_DICT)
        return call_fail(c, "dictsort needs a mapping, not %s", value_type_name(c->self));
    const struct text *by = call_text(c, 1, NULL);
    if (by && !text_is(by, "key") && !text_is(by, "value")) return call_fail(c, "dictsort: by key or value");
    struct call items = *c;
    items.self = value_list(VALUE_ITEMS, dict_list(c->heap, c->self.dict, VALUE_ITEMS));
    return sort_by(&items, by && text_is(by, "value") ? value_of_pair : name_of_pair, call_bool(c, 2, false));
}

static struct value extreme(struct call *c, int wanted)
{
    const struct list *l = call_self_list(c);
    struct value best = value_undefined(), best_key = value_undefined();
    for (int i = 0; i < l->num && c->run->status == 0; i++) {
        struct value key = key_of(c, l->items[i], c->args[1], call_bool(c, 0, false));
        if (i > 0 && compare_keys(c, key, best_key) * wanted <= 0) continue;
        best = l->items[i];
        best_key = key;
    }
    return best;
}

static struct value filter_min(struct call *c)
{
    return extreme(c, -1);
}

static struct value filter_max(struct call *c)
{
    return extreme(c, 1);
}

static bool key_is_in(struct call *c, const struct list *keys, struct value key)
{
    for (int i = 0; i < keys->num && run_charge(c->run, 8); i++) {
        if (value_equal(c->heap, keys->items[i], key, c->run->depth_left)) return true;
    }
    return false;
}

static struct value filter_unique(struct call *c)
{
    const struct list *from = call_self_list(c);
    struct list *l = list_create(c->heap, 0), *keys = list_create(c->heap, 0);
    for (int i = 0; l && keys && i < from->num && c->run->status == 0; i++) {
        struct value key = key_of(c, from->items[i], c->args[1], call_bool(c, 0, false));
        if (key_is_in(c, keys, key)) continue;
        list_append(c->heap, keys, key);
        list_append(c->heap, l, from->items[i]);
    }
    return iterator(l);
}

static struct value group_name(struct call *c, struct value item)
{
    return call_attribute_or(c, item, c->args[0], c->args[1]);
}

static struct value group_key(struct call *c, struct value item)
{
    return fold_case(c, group_name(c, item), call_bool(c, 2, false));
}

static struct value filter_groupby(struct call *c)
{
    struct value sorted = sort_by(c, group_key, false);
    struct list *groups = list_create(c->heap, 0), *group = NULL;
    if (sorted.kind != VALUE_LIST) return value_undefined();
    struct value last = value_undefined();
    for (int i = 0; i < sorted.list->num && run_charge(c->run, 64); i++) {
        struct value item = sorted.list->items[i], key = group_key(c, item);
        if (!group || !value_equal(c->heap, key, last, c->run->depth_left)) {
            group = list_create(c->heap, 0);
            list_append(c->heap, groups,
                        value_tuple2(c->heap, group_name(c, item), value_list(VALUE_LIST, group)));
            last = key;
        }
        list_append(c->heap, group, item);
    }
    return value_list(VALUE_LIST, groups);
}

/* ---- map, select, reject ---- */

/* The arguments behind the first skip. */
static struct arguments rest_of(const struct arguments *all, int skip)
{
    struct arguments rest = *all;
    rest.positional += skip;
    rest.num_positional -= skip;
    return rest;
}

static const struct keyword *keyword_of(const struct arguments *all, const char *name)
{
    for (int i = 0; i < all->num_keywords; i++) {
        if (text_is(all->keywords[i].name, name)) return &all->keywords[i];
    }
    return NULL;
}

/* These filters give nothing for anything that is false, None included. */
static const struct list *list_if_true(struct call *c)
{
    static const struct list nothing;
    return value_is_true(c->self) ? call_self_list(c) : &nothing;
}

static struct value map_attribute(struct call *c, const struct keyword *attribute)
{
    const struct keyword *keyword = keyword_of(c->all, "default");
    const struct value otherwise = keyword ? keyword->value : (struct value){.kind = VALUE_MISSING};
    const struct list *from = list_if_true(c);
    struct list *l = list_create(c->heap, from->num);
    for (int i = 0; i < from->num && c->run->status == 0; i++)
        list_append(c->heap, l, call_attribute_or(c, from->items[i], attribute->value, otherwise));
    return iterator(l);
}

static struct value filter_map(struct call *c)
{
    const struct keyword *attribute = keyword_of(c->all, "attribute");
    if (c->all->num_positional == 0 && attribute) return map_attribute(c, attribute);
    if (c->all->num_positional == 0 || c->all->positional[0].kind != VALUE_TEXT) {
        return call_fail(c, "map requires a filter argument");
    }
    const struct builtin *filter = filter_find(c->all->positional[0].text);
    if (!filter) return call_fail(c, "map: no such filter");
    struct arguments rest = rest_of(c->all, 1);
    const struct list *from = list_if_true(c);
    struct list *l = list_create(c->heap, from->num);
    for (int i = 0; i < from->num && c->run->status == 0; i++) {
        list_append(c->heap, l, builtin_call(c->run, filter, from->items[i], &rest));
    }
    return iterator(l);
}

/* Those items whose test (of an attribute) comes out as wanted; without a test, by their truth. */
static struct value choose(struct call *c, bool by_attribute, bool wanted)
{
    const struct arguments *all = c->all;
    struct value attribute = {.kind = VALUE_MISSING};
    int skip = 0;
    if (by_attribute) {
        if (all->num_positional == 0) return call_fail(c, "Missing parameter for attribute name");
        attribute = all->positional[skip++];
    }
    const struct builtin *test = NULL;
    if (all->num_positional > skip) {
        if (all->positional[skip].kind == VALUE_TEXT) test = test_find(all->positional[skip].text);
        if (!test) return call_fail(c, "no such test");
        skip++;
    }
    struct arguments rest = rest_of(all, skip);
    const struct list *from = list_if_true(c);
    struct list *l = list_create(c->heap, 0);
    for (int i = 0; i < from->num && run_charge(c->run, 64); i++) {
        struct value v = call_attribute(c, from->items[i], attribute);
        if (c->run->status == 0 && test) v = builtin_call(c->run, test, v, &rest);
        if (value_is_true(v) == wanted) list_append(c->heap, l, from->items[i]);
    }
    return iterator(l);
}

static struct value filter_select(struct call *c)
{
    return choose(c, false, true);
}

static struct value filter_reject(struct call *c)
{
    return choose(c, false, false);
}

static struct value filter_selectattr(struct call *c)
{
    return choose(c, true, true);
}

static struct value filter_rejectattr(struct call *c)
{
    return choose(c, true, false);
}

/* ---- others ---- */

static struct value filter_sum(struct call *c)
{
    const struct list *l = call_self_list(c);
    struct value total = c->args[1].kind == VALUE_MISSING ? value_int(0) : c->args[1];
    if (total.kind == VALUE_TEXT) return call_fail(c, "sum() can't sum strings");
    for (int i = 0; i < l->num && run_charge(c->run, 64); i++) {
        total = apply_binary(c->run, OPERATOR_ADD, total, call_attribute(c, l->items[i], c->args[0]));
    }
    return total;
}

static struct value filter_batch(struct call *c)
{
    int64_t size = call_int(c, 0, 1);
    const struct list *from = call_self_list(c);
    struct list *batches = list_create(c->heap, 0), *batch = NULL;
    for (int i = 0; i < from->num && run_charge(c->run, 64); i++) {
        if (!batch || batch->num == size) {
            batch = list_create(c->heap, 0);
            list_append(c->heap, batches, value_list(VALUE_LIST, batch));
        }
        list_append(c->heap, batch, from->items[i]);
    }
    bool fills = c->args[1].kind != VALUE_MISSING && c->args[1].kind != VALUE_NONE;
    while (fills && batch && batch->num < size && run_charge(c->run, 64))
        list_append(c->heap, batch, c->args[1]);
    return iterator(batches);
}

static struct value filter_slice(struct call *c)
{
    int64_t num = call_int(c, 0, 1);
    const struct list *from = call_self_list(c);
    struct list *slices = list_create(c->heap, 0);
    if (num <= 0) return call_fail(c, "slice needs a positive number");
    int64_t each = from->num / num, extra = from->num % num, at = 0;
    bool fills = c->args[1].kind != VALUE_MISSING && c->args[1].kind != VALUE_NONE;
    for (int64_t i = 0; i < num && run_charge(c->run, 64); i++) {
        struct list *l = list_create(c->heap, (int)each + 1);
        for (int64_t end = at + each + (i < extra); at < end; at++) list_append(c->heap, l, from->items[at]);
        if (fills && i >= extra) list_append(c->heap, l, c->args[1]);
        list_append(c->heap, slices, value_list(VALUE_LIST, l));
    }
    return iterator(slices);
}

const struct builtin filters_of_lists[] = {
    {"length", filter_length, {NULL}, 0, false},
    {"count", filter_length, {NULL}, 0, false},
    {"list", filter_list, {NULL}, 0, false},
    {"items", filter_items, {NULL}, 0, false},
    {"first", filter_first, {NULL}, 0, false},
    {"last", filter_last, {NULL}, 0, false},
    {"reverse", filter_reverse, {NULL}, 0, false},
    {"sort", filter_sort, {"reverse", "case_sensitive", "attribute"}, 0, false},
    {"dictsort", filter_dictsort, {"case_sensitive", "by", "reverse"}, 0, false},
    {"map", filter_map, {NULL}, 0, true},
    {"select", filter_select, {NULL}, 0, true},
    {"reject", filter_reject, {NULL}, 0, true},
    {"selectattr", filter_selectattr, {NULL}, 0, true},
    {"rejectattr", filter_rejectattr, {NULL}, 0, true},
    {"unique", filter_unique, {"case_sensitive", "attribute"}, 0, false},
    {"groupby", filter_groupby, {"attribute", "default", "case_sensitive"}, 1, false},
    {"min", filter_min, {"case_sensitive", "attribute"}, 0, false},
    {"max", filter_max, {"case_sensitive", "attribute"}, 0, false},
    {"sum", filter_sum, {"attribute", "start"}, 0, false},
    {"batch", filter_batch, {"linecount", "fill_with"}, 1, false},
    {"slice", filter_slice, {"slices", "fill_with"}, 1, false},
};
const size_t num_filters_of_lists = array_length(filters_of_lists);
