/* Which alternatives of a oneOf cannot meet. Most are told apart by their types, by their constants, or by a property that
 * each requires and that has other constants in each (pydantic's discriminator): that is seen by sorting the constants.
 * What is left is compared in pairs. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/grammar/schema.h"

enum { TAGS_MAX = 8, CHECKS_AN_ATOM = 64 };

/* A constant of an alternative's tag. */
struct tag_value {
    const cJSON *value;
    enum tag tag;
    int alternative;
};

struct tag_values {
    struct tag_value *items;
    int count, capacity;
};

/* ---- what each alternative says by itself ---- */

static struct shape limits_of(struct compiler *c, const struct conjunction *from)
{
    struct shape s;
    struct conjunction k = conjunction_flatten(c, from);
    k.origin = NULL;
    shape_read_limits(c, &k, &s);
    return s;
}

static bool is_required(const struct shape *s, const char *name)
{
    for (int i = 0; i < s->required.count; i++)
        if (!strcmp(s->required.nodes[i]->valuestring, name)) return true;
    return false;
}

/* ---- tags ---- */

static int order_of_type(const cJSON *v)
{
    return v->type & 0xFF;
}

static int compare_values(const void *a, const void *b)
{
    const struct tag_value *x = a, *y = b;
    int order = (int)x->tag - (int)y->tag;
    if (order == 0) order = order_of_type(x->value) - order_of_type(y->value);
    if (order == 0 && cJSON_IsString(x->value)) order = strcmp(x->value->valuestring, y->value->valuestring);
    if (order == 0 && cJSON_IsNumber(x->value))
        order =
            (x->value->valuedouble > y->value->valuedouble) - (x->value->valuedouble < y->value->valuedouble);
    return order ? order : x->alternative - y->alternative;
}

static void add_value(struct compiler *c, struct tag_values *v, struct tag_value value)
{
    if (v->count == v->capacity) {
        int capacity = max_of(2 * v->capacity, 64);
        struct tag_value *items = schema_alloc(c, (size_t)capacity * sizeof *items);
        if (c->status) return;
        if (v->count > 0) memcpy(items, v->items, (size_t)v->count * sizeof *items);
        v->items = items;
        v->capacity = capacity;
    }
    v->items[v->count++] = value;
}

/* The constants of a shape as a tag's. False: there are none, or they are no plain ones. */
static bool add_values(struct compiler *c, struct tag_values *v, const struct shape *s, enum tag tag,
                       int alternative)
{
    bool ok = s->has_literals;
    for (int i = 0; i < s->literals.count && ok; i++)
        ok = !cJSON_IsArray(s->literals.nodes[i]) && !cJSON_IsObject(s->literals.nodes[i]);
    for (int i = 0; i < s->literals.count && ok; i++)
        add_value(c, v, (struct tag_value){s->literals.nodes[i], tag, alternative});
    return ok;
}

static enum tag add_tag(struct compiler *c, struct tag_values *v, const struct shape *s, const char *name,
                        int alternative)
{
    if (add_values(c, v, s, TAG_ITSELF, alternative)) return TAG_ITSELF;
    if (!name || !(s->types & TYPE_OBJECT) || !is_required(s, name)) return TAG_NONE;
    struct conjunction k = schema_property(c, s, name);
    struct shape value = limits_of(c, &k);
    return add_values(c, v, &value, TAG_PROPERTY, alternative) ? TAG_PROPERTY : TAG_NONE;
}

static bool same_value(const struct tag_value *a, const struct tag_value *b)
{
    struct tag_value x = *a, y = *b;
    x.alternative = y.alternative;
    return compare_values(&x, &y) == 0;
}

/* Those whose constants are no other's are told apart from all that have the tag. */
static void tell_apart(struct tag_values *v, struct one_of *o)
{
    if (v->count > 1) qsort(v->items, (size_t)v->count, sizeof *v->items, compare_values);
    for (int i = 0; i < o->count; i++) o->parts[i].is_told = o->parts[i].tag != TAG_NONE;
    for (int i = 1; i < v->count; i++) {
        const struct tag_value *a = &v->items[i - 1], *b = &v->items[i];
        if (a->alternative == b->alternative || !same_value(a, b)) continue;
        o->parts[a->alternative].is_told = o->parts[b->alternative].is_told = false;
    }
}

/* name: of the property that may be the tag of objects, or NULL. How many it tells from all others that have one. */
static int read_tag(struct compiler *c, struct one_of *o, const struct shape *shapes, const char *name)
{
    struct tag_values values = {0};
    int num_told = 0;
    for (int i = 0; i < o->count && !c->status; i++)
        o->parts[i].tag = add_tag(c, &values, &shapes[i], name, i);
    tell_apart(&values, o);
    for (int i = 0; i < o->count; i++) num_told += o->parts[i].is_told;
    return num_told;
}

/* The tag that tells most of them: one of the properties that the first object requires. */
static void find_tag(struct compiler *c, struct one_of *o, const struct shape *shapes)
{
    const char *best = NULL;
    int first = 0, most = read_tag(c, o, shapes, NULL);
    while (first < o->count && (!(o->parts[first].types & TYPE_OBJECT) || shapes[first].required.count == 0))
        first++;
    for (int i = 0; first < o->count && i < min_of(shapes[first].required.count, (int)TAGS_MAX); i++) {
        const char *name = shapes[first].required.nodes[i]->valuestring;
        int num_told = read_tag(c, o, shapes, name);
        if (num_told > most) best = name;
        most = max_of(most, num_told);
        if (most == o->count) return;
    }
    (void)read_tag(c, o, shapes, best);
}

static unsigned types_of(const struct shape *s)
{
    unsigned types = 0;
    if (!s->has_literals) return s->types;
    for (int i = 0; i < s->literals.count; i++) types |= schema_type_of(s->literals.nodes[i]);
    return s->types & types;
}

static void read_parts(struct compiler *c, struct one_of *o)
{
    int count = cJSON_GetArraySize(o->keyword);
    struct shape *shapes = schema_alloc(c, (size_t)count * sizeof *shapes);
    if (!c->status) o->parts = schema_alloc(c, (size_t)count * sizeof *o->parts);
    if (c->status) return;
    for (const cJSON *part = o->keyword->child; part; part = part->next) {
        struct conjunction k = conjunction_of(c, part);
        shapes[o->count] = limits_of(c, &k);
        o->parts[o->count] = (struct one_of_part){.node = part, .types = types_of(&shapes[o->count])};
        o->count++;
    }
    find_tag(c, o, shapes);
}

struct one_of *schema_one_of(struct compiler *c, const cJSON *keyword)
{
    static _Thread_local struct one_of none;
    uint32_t hash = (uint32_t)((uintptr_t)keyword * 0x9E3779B97F4A7C15u >> 32);
    for (struct schema_entry *e = schema_table_find(&c->one_ofs, hash); e; e = e->next)
        if (((struct one_of *)e)->keyword == keyword) return (struct one_of *)e;
    struct one_of *o = schema_alloc(c, sizeof *o);
    if (c->status) return &none;
    *o = (struct one_of){.entry.hash = hash, .keyword = keyword};
    read_parts(c, o);
    schema_table_add(c, &c->one_ofs, &o->entry);
    return o;
}

bool schema_may_meet(struct compiler *c, struct one_of *o, int a, int b)
{
    const struct one_of_part *x = &o->parts[a], *y = &o->parts[b];
    const unsigned common = x->types & y->types;
    if (o->num_checks++ % CHECKS_AN_ATOM == 0) c->work++;
    bool has_tags = x->tag != TAG_NONE && x->tag == y->tag && (x->tag == TAG_ITSELF || common == TYPE_OBJECT);
    if (common == 0 || (has_tags && (x->is_told || y->is_told))) return false;
    c->negated = x->node;
    return !schema_disjoint(c, x->node, y->node);
}
