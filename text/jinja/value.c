#include "text/jinja/value.h"

#include <math.h>

const char *value_type_name(struct value v)
{
    static const char *const names[] = {
        [VALUE_MISSING] = "missing",
        [VALUE_UNDEFINED] = "Undefined",
        [VALUE_NONE] = "NoneType",
        [VALUE_BOOL] = "bool",
        [VALUE_INT] = "int",
        [VALUE_FLOAT] = "float",
        [VALUE_LONG] = "int",
        [VALUE_TEXT] = "str",
        [VALUE_LIST] = "list",
        [VALUE_TUPLE] = "tuple",
        [VALUE_KEYS] = "dict_keys",
        [VALUE_VALUES] = "dict_values",
        [VALUE_ITEMS] = "dict_items",
        [VALUE_RANGE] = "range",
        [VALUE_ITERATOR] = "generator",
        [VALUE_DICT] = "dict",
        [VALUE_NAMESPACE] = "Namespace",
        [VALUE_LOOP] = "LoopContext",
        [VALUE_MACRO] = "Macro",
        [VALUE_FUNCTION] = "function",
        [VALUE_METHOD] = "method",
        [VALUE_JOINER] = "Joiner",
        [VALUE_CYCLER] = "Cycler",
    };
    return names[v.kind];
}

double text_as_float(const struct text *digits)
{
    double d = 0;
    for (size_t i = 0; i < digits->num_bytes; i++) {
        if (digits->bytes[i] != '-') d = d * 10 + (digits->bytes[i] - '0');
    }
    return digits->num_bytes > 0 && digits->bytes[0] == '-' ? -d : d;
}

bool value_is_true(struct value v)
{
    switch (v.kind) {
    case VALUE_MISSING:
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return false;
    case VALUE_BOOL:
        return v.boolean;
    case VALUE_INT:
        return v.integer != 0;
    case VALUE_FLOAT:
        return v.real != 0;
    case VALUE_TEXT:
    case VALUE_LONG:
        return v.text->num_bytes > 0;
    case VALUE_DICT:
        return v.dict->num > 0;
    case VALUE_ITERATOR:
        return true;
    default:
        return value_is_list(v) ? v.list->num > 0 : true;
    }
}

bool value_is_same(struct value a, struct value b)
{
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case VALUE_MISSING:
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return true;
    case VALUE_BOOL:
        return a.boolean == b.boolean;
    case VALUE_INT:
        return a.integer == b.integer;
    case VALUE_FLOAT:
        return a.real == b.real;
    case VALUE_LONG:
    case VALUE_TEXT:
        return text_equal(a.text, b.text);
    default:
        return a.list == b.list; /* all the others are pointers */
    }
}

static bool list_equal(struct heap *h, const struct list *a, const struct list *b, int depth)
{
    if (a->num != b->num) return false;
    for (int i = 0; i < a->num; i++) {
        if (!value_equal(h, a->items[i], b->items[i], depth - 1)) return false;
    }
    return true;
}

static bool dict_equal(struct heap *h, const struct dict *a, const struct dict *b, int depth)
{
    if (a->num != b->num) return false;
    for (int i = 0; i < a->num; i++) {
        const struct value *other = dict_find(h, b, a->pairs[i].key);
        if (!other || !value_equal(h, a->pairs[i].value, *other, depth - 1)) return false;
    }
    return true;
}

bool value_equal(struct heap *h, struct value a, struct value b, int depth)
{
    if (depth <= 0 || !heap_charge(h, 8)) return false;
    if (value_is_integral(a) && value_is_integral(b)) return value_as_int(a) == value_as_int(b);
    if (a.kind == VALUE_LONG && b.kind == VALUE_LONG) return text_equal(a.text, b.text);
    if (value_is_number(a) && value_is_number(b)) return value_as_float(a) == value_as_float(b);
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE:
        return a.list == b.list || list_equal(h, a.list, b.list, depth);
    case VALUE_DICT:
        return a.dict == b.dict || dict_equal(h, a.dict, b.dict, depth);
    case VALUE_TEXT:
        heap_charge(h, a.text->num_bytes / 8);
        return text_equal(a.text, b.text);
    default:
        return value_is_same(a, b);
    }
}

static int sign_of(double difference)
{
    return (difference > 0) - (difference < 0);
}

static bool list_compare(struct heap *h, const struct list *a, const struct list *b, int depth, int *order)
{
    for (int i = 0; i < a->num && i < b->num; i++) {
        if (value_equal(h, a->items[i], b->items[i], depth - 1)) continue;
        return value_compare(h, a->items[i], b->items[i], depth - 1, order);
    }
    *order = (a->num > b->num) - (a->num < b->num);
    return true;
}

bool value_compare(struct heap *h, struct value a, struct value b, int depth, int *order)
{
    if (depth <= 0 || !heap_charge(h, 8)) return false;
    if (value_is_integral(a) && value_is_integral(b)) {
        *order = (value_as_int(a) > value_as_int(b)) - (value_as_int(a) < value_as_int(b));
        return true;
    }
    if (value_is_number(a) && value_is_number(b)) {
        *order = sign_of(value_as_float(a) - value_as_float(b));
        return true;
    }
    if (a.kind != b.kind) return false;
    if (a.kind == VALUE_TEXT) {
        heap_charge(h, a.text->num_bytes / 8);
        *order = text_compare(a.text, b.text);
        return true;
    }
    if (a.kind == VALUE_LIST || a.kind == VALUE_TUPLE) return list_compare(h, a.list, b.list, depth, order);
    return false;
}

bool value_is_hashable(struct value v)
{
    return v.kind != VALUE_LIST && v.kind != VALUE_DICT;
}

/* ---- lists ---- */

struct list *list_create(struct heap *h, int capacity)
{
    struct list *l = heap_alloc(h, sizeof *l);
    if (!l || capacity <= 0) return l;
    l->items = heap_alloc_array(h, (size_t)capacity, sizeof *l->items);
    if (!l->items) return NULL;
    l->capacity = capacity;
    return l;
}

void list_append(struct heap *h, struct list *l, struct value v)
{
    if (!l) return;
    if (l->num == l->capacity && !heap_grow(h, (void **)&l->items, l->num, &l->capacity, sizeof *l->items)) {
        return;
    }
    l->items[l->num++] = v;
}

struct value value_tuple2(struct heap *h, struct value a, struct value b)
{
    struct list *l = list_create(h, 2);
    list_append(h, l, a);
    list_append(h, l, b);
    return value_list(VALUE_TUPLE, l);
}

/* ---- dicts: few keys, so a linear search ---- */

enum { KEY_DEPTH = 16, WORK_OF_KEY = 4 };

struct dict *dict_create(struct heap *h, int capacity)
{
    struct dict *d = heap_alloc(h, sizeof *d);
    if (!d || capacity <= 0) return d;
    d->pairs = heap_alloc_array(h, (size_t)capacity, sizeof *d->pairs);
    if (!d->pairs) return NULL;
    d->capacity = capacity;
    return d;
}

struct value *dict_find_text(struct heap *h, const struct dict *d, const struct text *key)
{
    heap_charge(h, (uint64_t)d->num * WORK_OF_KEY);
    for (int i = 0; i < d->num; i++) {
        struct pair *p = &d->pairs[i];
        if (p->key.kind == VALUE_TEXT && text_equal(p->key.text, key)) return &p->value;
    }
    return NULL;
}

struct value *dict_find(struct heap *h, const struct dict *d, struct value key)
{
    if (key.kind == VALUE_TEXT) return dict_find_text(h, d, key.text);
    for (int i = 0; i < d->num; i++) {
        if (value_equal(h, d->pairs[i].key, key, KEY_DEPTH)) return &d->pairs[i].value;
    }
    return NULL;
}

void dict_append(struct heap *h, struct dict *d, struct value key, struct value v)
{
    if (!d) return;
    if (d->num == d->capacity && !heap_grow(h, (void **)&d->pairs, d->num, &d->capacity, sizeof *d->pairs)) {
        return;
    }
    d->pairs[d->num++] = (struct pair){key, v};
}

void dict_set(struct heap *h, struct dict *d, struct value key, struct value v)
{
    struct value *there = d ? dict_find(h, d, key) : NULL;
    if (there) {
        *there = v;
    } else {
        dict_append(h, d, key, v);
    }
}

struct list *dict_list(struct heap *h, const struct dict *d, enum value_kind view)
{
    struct list *l = list_create(h, d->num);
    for (int i = 0; i < d->num; i++) {
        const struct pair *p = &d->pairs[i];
        struct value v = view == VALUE_KEYS     ? p->key
                         : view == VALUE_VALUES ? p->value
                                                : value_tuple2(h, p->key, p->value);
        list_append(h, l, v);
    }
    return l;
}
