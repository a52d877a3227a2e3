/* builtins.c - looking names up in the tables, and the functions that a template may call. */
#include "text/jinja/builtins.h"

#include <time.h>

#include "text/jinja/run.h"

enum { RANGE_MAX = 100000, TIME_TEXT_BYTES = 1024 };

const struct builtin *builtin_find(const struct builtin *rows, size_t num_rows, const struct text *name)
{
    for (size_t i = 0; i < num_rows; i++) {
        if (text_is(name, rows[i].name)) return &rows[i];
    }
    return NULL;
}

const struct builtin *filter_find(const struct text *name)
{
    const struct builtin *b = builtin_find(filters_of_text, num_filters_of_text, name);
    if (!b) b = builtin_find(filters_of_lists, num_filters_of_lists, name);
    return b ? b : builtin_find(filters_of_values, num_filters_of_values, name);
}

static const struct builtin *text_method_find(const struct text *name)
{
    const struct builtin *b = builtin_find(text_search_methods, num_text_search_methods, name);
    return b ? b : builtin_find(text_methods, num_text_methods, name);
}

const struct builtin *method_find(enum value_kind kind, const struct text *name)
{
    switch (kind) {
    case VALUE_TEXT:
        return text_method_find(name);
    case VALUE_LIST:
        return builtin_find(list_methods, num_list_methods, name);
    case VALUE_DICT:
        return builtin_find(dict_methods, num_dict_methods, name);
    case VALUE_LOOP:
        return builtin_find(loop_methods, num_loop_methods, name);
    case VALUE_CYCLER:
        return builtin_find(cycler_methods, num_cycler_methods, name);
    default:
        return NULL;
    }
}

static struct value function_raise_exception(struct call *c)
{
    return run_raise(c->run, value_to_text(c->heap, c->args[0], c->run->depth_left));
}

/* strftime, without what a naive Python datetime does not have (%Z and %z give nothing, %f six digits). */
static struct value function_strftime_now(struct call *c)
{
    const struct text *format = call_text(c, 0, &text_empty);
    char pattern[TIME_TEXT_BYTES / 4], text[TIME_TEXT_BYTES];
    size_t n = 0;
    for (size_t i = 0; i < format->num_bytes && n + 8 < sizeof pattern; i++) {
        char letter = format->bytes[i] == '%' && i + 1 < format->num_bytes ? format->bytes[i + 1] : '\0';
        if (letter == 'Z' || letter == 'z' || letter == 'f') {
            if (letter == 'f') memcpy(pattern + n, "000000", 6);
            n += letter == 'f' ? 6 : 0;
            i++;
        } else {
            pattern[n++] = format->bytes[i];
            if (letter == '%') pattern[n++] = format->bytes[++i];
        }
    }
    pattern[n] = '\0';
    if (n == 0) return value_text(&text_empty);
    time_t now = (time_t)c->run->now_seconds;
    struct tm parts;
    if (!gmtime_r(&now, &parts)) return call_fail(c, "the time is out of range");
    n = strftime(text, sizeof text, pattern, &parts);
    char *copy = heap_alloc(c->heap, n + 1);
    if (!copy) return value_undefined();
    memcpy(copy, text, n);
    return value_text(text_wrap(c->heap, copy, n, false));
}

static struct value function_range(struct call *c)
{
    bool one = c->args[1].kind == VALUE_MISSING;
    int64_t start = one ? 0 : call_int(c, 0, 0), stop = call_int(c, one ? 0 : 1, 0), step = call_int(c, 2, 1);
    if (step == 0) return call_fail(c, "range() arg 3 must not be zero");
    uint64_t distance = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    bool empty = step > 0 ? start >= stop : start <= stop;
    uint64_t num = empty ? 0 : (distance - 1) / stride + 1;
    if (num > RANGE_MAX) return call_fail(c, "Range too big. At most %d numbers.", RANGE_MAX);
    struct list *l = list_create(c->heap, (int)num);
    run_charge(c->run, num * 16);
    for (uint64_t i = 0; l && i < num; i++) {
        l->items[l->num++] = value_int((int64_t)((uint64_t)start + i * (uint64_t)step));
    }
    if (!l) return value_undefined();
    l->start = start;
    l->stop = stop;
    l->step = step;
    return value_list(VALUE_RANGE, l);
}

/* What dict() and namespace() take: a mapping or pairs, then keywords. */
static struct dict *make_dict(struct call *c)
{
    struct dict *d = dict_create(c->heap, c->all->num_keywords);
    for (int i = 0; i < c->all->num_positional; i++) {
        struct value from = c->all->positional[i];
        if (from.kind == VALUE_DICT) {
            for (int k = 0; k < from.dict->num && run_charge(c->run, 8); k++) {
                dict_set(c->heap, d, from.dict->pairs[k].key, from.dict->pairs[k].value);
            }
            continue;
        }
        const struct list *pairs = run_iterate(c->run, from);
        for (int k = 0; k < pairs->num && run_charge(c->run, 64); k++) {
            const struct list *pair = run_iterate(c->run, pairs->items[k]);
            if (pair->num != 2 || !value_is_hashable(pair->items[0])) {
                call_fail(c, "a dict is made of pairs");
                break;
            }
            dict_set(c->heap, d, pair->items[0], pair->items[1]);
        }
    }
    for (int i = 0; i < c->all->num_keywords; i++) {
        dict_set(c->heap, d, value_text(c->all->keywords[i].name), c->all->keywords[i].value);
    }
    return d;
}

static struct value function_dict(struct call *c)
{
    return value_dict(VALUE_DICT, make_dict(c));
}

static struct value function_namespace(struct call *c)
{
    return value_dict(VALUE_NAMESPACE, make_dict(c));
}

static struct value function_joiner(struct call *c)
{
    static const struct text comma = {.bytes = ", ", .num_bytes = 2};
    struct joiner *j = heap_alloc(c->heap, sizeof *j);
    if (!j) return value_undefined();
    j->separator = call_text(c, 0, &comma);
    return (struct value){.kind = VALUE_JOINER, .joiner = j};
}

static struct value function_cycler(struct call *c)
{
    if (c->all->num_positional == 0) return call_fail(c, "at least one item has to be provided");
    struct cycler *cycler = heap_alloc(c->heap, sizeof *cycler);
    struct list *l = list_create(c->heap, c->all->num_positional);
    if (!cycler || !l) return value_undefined();
    for (int i = 0; i < c->all->num_positional; i++) list_append(c->heap, l, c->all->positional[i]);
    cycler->items = l;
    return (struct value){.kind = VALUE_CYCLER, .cycler = cycler};
}

static const struct builtin functions[] = {
    {"raise_exception", function_raise_exception, {"message"}, 1, false},
    {"strftime_now", function_strftime_now, {"format"}, 1, false},
    {"range", function_range, {"start", "stop", "step"}, 1, false},
    {"namespace", function_namespace, {NULL}, 0, true},
    {"dict", function_dict, {NULL}, 0, true},
    {"joiner", function_joiner, {"sep"}, 0, false},
    {"cycler", function_cycler, {NULL}, 0, true},
};

const struct builtin *function_find(const struct text *name)
{
    return builtin_find(functions, array_length(functions), name);
}
