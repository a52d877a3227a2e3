/* Arrays whose elements differ (uniqueItems). What came before is compared where an element is one of a list of
 * values: enum, const, booleans, null, integers within bounds. The values are the keys of a table, as the
 * names of an object are, and the counter says which of them may still come. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/grammar/schema.h"

enum { VALUES_MAX = 1000, COMPOSITES_MAX = 16, CHOICES_DEPTH_MAX = 8 };

/* A value as it is written; text NULL: an array or an object. */
struct item {
    const cJSON *value;
    const char *text;
    size_t num_bytes;
    uint32_t key; /* its place in the schema's order */
};

struct unique {
    struct compiler *c;
    struct schema_list values; /* no two are equal */
    uint32_t table;
    uint32_t next, close; /* the states behind a comma and behind the array */
};

/* ---- the values ---- */

static void add_value(struct unique *u, const cJSON *value)
{
    for (int i = 0; i < u->values.count; i++)
        if (cJSON_Compare(u->values.nodes[i], value, true)) return;
    if (u->values.count < VALUES_MAX) schema_list_add(u->c, &u->values, value);
}

static void add_simple(struct unique *u, const struct shape *s, cJSON value)
{
    cJSON *node = schema_alloc(u->c, sizeof *node);
    if (u->c->status) return;
    *node = value;
    if (schema_literal_fits(u->c, s, node)) add_value(u, node);
}

/* null, booleans and integers within bounds; false: there are too many. */
static bool add_types(struct unique *u, const struct shape *s)
{
    bool has_integers = s->types & TYPE_INTEGER;
    if (s->types & ~(unsigned)(TYPE_NULL | TYPE_BOOLEAN | TYPE_INTEGER)) return false;
    if (has_integers && !(s->max - s->min < VALUES_MAX && fabsl(s->min) < 1e15L)) return false;
    if (s->types & TYPE_NULL) add_simple(u, s, (cJSON){.type = cJSON_NULL});
    if (s->types & TYPE_BOOLEAN) {
        add_simple(u, s, (cJSON){.type = cJSON_False});
        add_simple(u, s, (cJSON){.type = cJSON_True});
    }
    int64_t first = has_integers ? (int64_t)ceill(s->min) : 1,
            last = has_integers ? (int64_t)floorl(s->max) : 0;
    for (int64_t value = first; value <= last; value++)
        add_simple(u, s, (cJSON){.type = cJSON_Number, .valuedouble = (double)value, .valueint = (int)value});
    return true;
}

/* What fulfils a shape and an alternative of its choice. */
static struct conjunction with_alternative(struct compiler *c, const struct shape *s, int i)
{
    const struct conjunction *own = &s->alternatives.items[i];
    struct conjunction with = s->rest;
    with.origin = NULL;
    for (int j = 0; j < own->num_atoms; j++)
        conjunction_add(c, &with, own->atoms[j].node, own->atoms[j].negated);
    return with;
}

/* Whether what fulfils the conjunction is a list of values, which are added. */
static bool add_values(struct unique *u, const struct conjunction *from, int depth)
{
    struct shape s;
    struct conjunction k = conjunction_flatten(u->c, from);
    shape_read(u->c, &k, &s);
    if (u->c->status || depth == 0) return false;
    for (int i = 0; s.has_choice && i < s.alternatives.count; i++) {
        struct conjunction with = with_alternative(u->c, &s, i);
        if (!add_values(u, &with, depth - 1)) return false;
    }
    if (s.has_choice) return true;
    if (!s.has_literals) return add_types(u, &s);
    for (int i = 0; i < s.literals.count; i++)
        if (schema_literal_fits(u->c, &s, s.literals.nodes[i])) add_value(u, s.literals.nodes[i]);
    return u->values.count < VALUES_MAX;
}

/* ---- the table ---- */

/* Up to 32 values come in any order, more of them in the order of the schema. None is required. */
static void make_table(struct unique *u, const struct shape *s)
{
    struct builder *b = &u->c->b;
    uint32_t n = (uint32_t)u->values.count, begin = b->keys.count;
    uint32_t *keys = pool_push(&b->keys, 2 * (n + 1));
    struct key_table *t = pool_push(&b->objects, 1);
    if (!keys || !t) return;
    for (uint32_t i = 0; i <= n; i++) keys[i] = n;
    for (uint32_t i = 0; i <= n; i++) keys[n + 1 + i] = 0;
    u->table = b->objects.count - 1;
    *t = (struct key_table){.num_keys = n,
                            .required = begin,
                            .num_required = begin + n + 1,
                            .min = s->min_items,
                            .max = s->max_items,
                            .counts = true,
                            .any_order = n <= 32};
}

static struct entry entry_of(const struct unique *u, enum entry_kind kind, uint32_t a, uint32_t b)
{
    return (struct entry){.kind = kind, .object = u->table, .a = a, .b = b};
}

/* One of the items may come next. */
static struct entry one_of(struct unique *u, const struct item *items, uint32_t n)
{
    uint32_t begin = u->c->b.keys.count, *keys = pool_push(&u->c->b.keys, n);
    for (uint32_t i = 0; keys && i < n; i++) keys[i] = items[i].key;
    return entry_of(u, ENTRY_LISTED, begin, begin + n);
}

/* ---- states ---- */

static uint32_t state_behind(struct unique *u, const struct item *item)
{
    struct builder *b = &u->c->b;
    const struct byte_edge edges[] = {{',', ',', u->next}, {']', ']', u->close}};
    uint32_t behind = builder_state(b, STATE_SPACES);
    builder_set_edges(b, behind, edges, 2);
    builder_set_entry(b, behind, entry_of(u, ENTRY_KEY, item->key, 0));
    return behind;
}

/* The texts of items[0 .. n - 1], which ascend and share their first depth bytes. */
static uint32_t tree(struct unique *u, const struct item *items, uint32_t n, size_t depth)
{
    struct builder *b = &u->c->b;
    struct byte_edge edges[256];
    uint32_t num_edges = 0, i = 0, state;
    struct entry some = one_of(u, items, n);
    if (u->c->status || builder_status(b)) return STATE_DEAD;
    bool ends = items[0].num_bytes == depth;
    uint32_t behind = ends || n == 1 ? state_behind(u, &items[0]) : STATE_DEAD;
    if (n == 1) {
        state = builder_text(b, items[0].text + depth, items[0].num_bytes - depth, behind);
        if (!ends) builder_set_entry(b, state, some);
        return state;
    }
    for (i = ends; i < n;) {
        uint8_t byte = (uint8_t)items[i].text[depth];
        uint32_t begin = i;
        while (i < n && (uint8_t)items[i].text[depth] == byte) i++;
        edges[num_edges++] = (struct byte_edge){byte, byte, tree(u, items + begin, i - begin, depth + 1)};
    }
    state = builder_state(b, 0);
    builder_set_edges(b, state, edges, num_edges);
    if (ends) builder_set_call(b, state, RULE_EMPTY, behind);
    builder_set_entry(b, state, some);
    return state;
}

/* An array or an object among the values. */
static uint32_t composite_state(struct unique *u, const struct item *item)
{
    struct builder *b = &u->c->b;
    uint32_t state = builder_state(b, 0),
             text = schema_literal_state(u->c, item->value, state_behind(u, item));
    builder_set_call(b, state, RULE_EMPTY, text);
    builder_set_entry(b, state, one_of(u, item, 1));
    return state;
}

static int compare_items(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (!x->text || !y->text) return (x->text == NULL) - (y->text == NULL);
    int order = memcmp(x->text, y->text, min_of(x->num_bytes, y->num_bytes));
    return order ? order : x->num_bytes < y->num_bytes ? -1 : x->num_bytes > y->num_bytes;
}

/* The items, those with a text first and ascending; how many have one. */
static uint32_t make_items(struct unique *u, struct item *items)
{
    uint32_t n = (uint32_t)u->values.count, num_texts = 0;
    for (uint32_t i = 0; i < n && !u->c->status; i++) {
        const cJSON *value = u->values.nodes[i];
        items[i] = (struct item){.value = value, .key = i};
        if (cJSON_IsArray(value) || cJSON_IsObject(value)) continue;
        items[i].text = schema_literal_text(u->c, value, &items[i].num_bytes);
        num_texts++;
    }
    qsort(items, n, sizeof *items, compare_items);
    return num_texts;
}

/* Calls of what takes one of the values; returns how many. */
static uint32_t make_calls(struct unique *u, struct rule_call *calls)
{
    uint32_t n = (uint32_t)u->values.count, count = 0;
    struct item *items = schema_alloc(u->c, (n + 1) * sizeof *items);
    uint32_t num_texts = u->c->status ? 0 : make_items(u, items);
    if (n - num_texts > COMPOSITES_MAX)
        schema_fail(u->c, STATUS_LIMIT,
                    "a list without equal elements has more than %d arrays and objects to choose from",
                    COMPOSITES_MAX);
    if (u->c->status) return 0;
    if (num_texts > 0) calls[count++] = (struct rule_call){RULE_EMPTY, tree(u, items, num_texts, 0)};
    for (uint32_t i = num_texts; i < n; i++)
        calls[count++] = (struct rule_call){RULE_EMPTY, composite_state(u, &items[i])};
    return count;
}

static uint32_t unique_states(struct unique *u, const struct shape *s)
{
    struct builder *b = &u->c->b;
    struct rule_call calls[COMPOSITES_MAX + 1];
    struct item *all = schema_alloc(u->c, (size_t)(u->values.count + 1) * sizeof *all);
    for (uint32_t i = 0; !u->c->status && i < (uint32_t)u->values.count; i++) all[i].key = i;
    make_table(u, s);
    if (u->c->status || builder_status(b)) return STATE_DEAD;
    uint32_t open = builder_state(b, STATE_SPACES);
    u->next = builder_state(b, STATE_SPACES);
    u->close = builder_final_if(b, entry_of(u, ENTRY_CLOSE, 0, 0));
    builder_set_entry(b, u->next, one_of(u, all, (uint32_t)u->values.count));
    uint32_t n = make_calls(u, calls);
    if (s->min_items == 0) builder_set_edge(b, open, ']', u->close);
    builder_set_calls(b, open, calls, n);
    builder_set_calls(b, u->next, calls, n);
    return builder_text(b, "[", 1, open);
}

/* ---- free strings, numbers ---- */

/* Whether a shape without choices allows none but strings, booleans, null, and numbers of any value: one that has been there can
 * go on to another. */
static bool allows_scalars(const struct shape *s)
{
    bool ok = true;
    for (int i = 0; i < s->literals.count; i++)
        ok &= cJSON_IsNull(s->literals.nodes[i]) || cJSON_IsBool(s->literals.nodes[i]);
    if (s->has_literals) return ok;
    bool is_limited = !isinf(s->min) || !isinf(s->max) || s->multiples.count > 0 ||
                      s->not_multiples.count > 0 || s->excluded.count > 0 ||
                      ((s->types & TYPE_FRACTION) && !(s->types & TYPE_INTEGER));
    return !(s->types & (TYPE_ARRAY | TYPE_OBJECT)) && !(s->types & TYPE_NUMBER && is_limited);
}

static bool are_scalars(struct compiler *c, const struct conjunction *from, int depth)
{
    struct shape s;
    struct conjunction k = conjunction_flatten(c, from);
    shape_read(c, &k, &s);
    if (c->status || depth == 0) return false;
    for (int i = 0; s.has_choice && i < s.alternatives.count; i++) {
        struct conjunction with = with_alternative(c, &s, i);
        if (!are_scalars(c, &with, depth - 1)) return false;
    }
    return s.has_choice || allows_scalars(&s);
}

/* The flag of states around elements that are compared by their text; 0: they cannot be. Such strings have no needless escapes,
 * as where a pattern decides. */
static unsigned compared_by_text(struct compiler *c, struct conjunction *element)
{
    static const cJSON pattern = {.type = cJSON_String, .valuestring = "", .string = "pattern"};
    static const cJSON canonical = {.type = cJSON_Object, .child = (cJSON *)(uintptr_t)&pattern};
    struct shape s;
    struct conjunction k = conjunction_flatten(c, element);
    shape_read_limits(c, &k, &s);
    if (c->status) return 0;
    if (s.types == TYPE_INTEGER) return STATE_UNIQUE_INTEGERS;
    unsigned unique = STATE_UNIQUE_STRINGS;
    if (s.types != TYPE_STRING && s.types != (TYPE_STRING | TYPE_NULL))
        unique = are_scalars(c, element, CHOICES_DEPTH_MAX) ? STATE_UNIQUE : 0;
    if (unique) conjunction_add(c, element, &canonical, false);
    return unique;
}

uint32_t schema_unique_state(struct compiler *c, const struct shape *s)
{
    struct unique u = {.c = c};
    struct conjunction element = schema_element(c, s, 0);
    bool is_plain = s->contains.count == 0 && !s->unevaluated_items && !schema_has_prefix(s);
    bool is_listed = is_plain && add_values(&u, &element, CHOICES_DEPTH_MAX);
    unsigned unique = is_plain && !is_listed && !c->status ? compared_by_text(c, &element) : 0;
    if (unique) return schema_unlike_state(c, s, schema_rule(c, &element), unique);
    if (!is_listed) {
        schema_fail(c, STATUS_UNSUPPORTED,
                    "\"uniqueItems\" at %s is not supported for elements that are arrays, objects or numbers "
                    "with limits (but for integers alone, and at most %d listed values): what came before is "
                    "not compared",
                    schema_path(c, s->unique_items), VALUES_MAX - 1);
        return STATE_DEAD;
    }
    if (s->min_items > (uint32_t)u.values.count) return STATE_DEAD;
    if (u.values.count > 0 && s->max_items > 0) return unique_states(&u, s);
    uint32_t empty = builder_state(&c->b, STATE_SPACES);
    builder_set_edge(&c->b, empty, ']', BUILDER_FINAL);
    return builder_text(&c->b, "[", 1, empty);
}
