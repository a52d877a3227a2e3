/* Whether a value that stands in a schema (enum, const) fulfils the rest of it. In doubt the schema is
 * refused. */
#include <math.h>
#include <string.h>

#include "text/grammar/schema.h"

unsigned schema_type_of(const cJSON *v)
{
    if (cJSON_IsNull(v)) return TYPE_NULL;
    if (cJSON_IsBool(v)) return TYPE_BOOLEAN;
    if (cJSON_IsNumber(v)) return v->valuedouble == floor(v->valuedouble) ? TYPE_INTEGER : TYPE_FRACTION;
    if (cJSON_IsString(v)) return TYPE_STRING;
    return cJSON_IsArray(v) ? TYPE_ARRAY : TYPE_OBJECT;
}

/* Whether each member of a is b's, too. */
static bool has_members_of(struct compiler *c, const cJSON *a, const cJSON *b, size_t num_members)
{
    for (const cJSON *member = a->child; member; member = member->next) {
        const cJSON *other = schema_charge(c, num_members) ? schema_get(b, member->string) : NULL;
        if (!other || !schema_equal(c, member, other)) return false;
    }
    return true;
}

bool schema_equal(struct compiler *c, const cJSON *a, const cJSON *b)
{
    if (!schema_charge(c, 1) || (a->type & 0xFF) != (b->type & 0xFF)) return false;
    if (!cJSON_IsArray(a) && !cJSON_IsObject(a)) return cJSON_Compare(a, b, true);
    const size_t num_a = (size_t)cJSON_GetArraySize(a), num_b = (size_t)cJSON_GetArraySize(b);
    if (num_a != num_b || !schema_charge(c, num_a)) return false;
    if (cJSON_IsObject(a)) return has_members_of(c, a, b, num_b) && has_members_of(c, b, a, num_a);
    const cJSON *x = a->child, *y = b->child;
    for (; x && schema_equal(c, x, y); x = x->next) y = y->next;
    return !x;
}

static bool among(struct compiler *c, const struct schema_list *l, const cJSON *value)
{
    for (int i = 0; i < l->count && !c->status; i++)
        if (schema_equal(c, l->nodes[i], value)) return true;
    return false;
}

static bool node_accepts(struct compiler *c, const cJSON *schema, const cJSON *value)
{
    struct conjunction k = conjunction_of(c, schema);
    return schema_accepts(c, &k, value);
}

static bool has_equal_items(struct compiler *c, const cJSON *array)
{
    for (const cJSON *a = array->child; a && !c->status; a = a->next)
        for (const cJSON *b = a->next; b && !c->status; b = b->next)
            if (schema_equal(c, a, b)) return true;
    return false;
}

static bool array_fits(struct compiler *c, const struct shape *s, const cJSON *value)
{
    uint32_t n = (uint32_t)cJSON_GetArraySize(value);
    if (n < s->min_items || n > s->max_items) return false;
    if (s->contains.count > 0 || s->unevaluated_items) {
        schema_fail(c, STATUS_UNSUPPORTED, "a constant array together with contains or unevaluatedItems");
        return false;
    }
    if (s->unique_items && has_equal_items(c, value)) return false;
    int index = 0;
    for (const cJSON *item = value->child; item; item = item->next, index++) {
        struct conjunction k = schema_element(c, s, index);
        if (!schema_accepts(c, &k, item)) return false;
    }
    return true;
}

static bool object_fits(struct compiler *c, const struct shape *s, const cJSON *value)
{
    uint32_t n = (uint32_t)cJSON_GetArraySize(value);
    if (n < s->min_properties || n > s->max_properties) return false;
    for (int i = 0; i < s->required.count; i++)
        if (!schema_get(value, s->required.nodes[i]->valuestring)) return false;
    for (const cJSON *p = value->child; p; p = p->next) {
        cJSON name = {.type = cJSON_String, .valuestring = p->string};
        for (int i = 0; i < s->names.count; i++)
            if (!node_accepts(c, s->names.nodes[i], &name)) return false;
        struct conjunction k = schema_property(c, s, p->string);
        if (!schema_accepts(c, &k, p)) return false;
    }
    return true;
}

static bool some_alternative(struct compiler *c, const struct shape *s, const cJSON *value)
{
    for (int i = 0; i < s->alternatives.count && !c->status; i++) {
        struct conjunction k = s->rest;
        k.origin = NULL;
        for (int j = 0; j < s->alternatives.items[i].num_atoms; j++)
            conjunction_add(c, &k, s->alternatives.items[i].atoms[j].node,
                            s->alternatives.items[i].atoms[j].negated);
        if (schema_accepts(c, &k, value)) return true;
    }
    return false;
}

/* has_value: what the literals say is known. */
static bool shape_fits(struct compiler *c, const struct shape *s, const cJSON *value, bool has_value)
{
    unsigned type = schema_type_of(value);
    bool fits = !c->status && s->types & type && !among(c, &s->excluded, value);
    if (fits && s->has_literals && !has_value) fits = among(c, &s->literals, value);
    if (fits && type & TYPE_NUMBER) fits = schema_number_fits(c, s, value->valuedouble);
    if (fits && type == TYPE_STRING) fits = schema_string_fits(c, s, value->valuestring);
    if (fits && type == TYPE_ARRAY) fits = array_fits(c, s, value);
    if (fits && type == TYPE_OBJECT) fits = object_fits(c, s, value);
    if (fits && s->has_choice) fits = some_alternative(c, s, value);
    return fits && !c->status;
}

bool schema_literal_fits(struct compiler *c, const struct shape *s, const cJSON *value)
{
    return shape_fits(c, s, value, true);
}

bool schema_accepts(struct compiler *c, const struct conjunction *from, const cJSON *value)
{
    struct shape s;
    if (c->status) return false;
    if (++c->depth > SCHEMA_DEPTH_MAX) schema_fail(c, STATUS_LIMIT, "the schema is nested too deeply");
    struct conjunction k = conjunction_flatten(c, from);
    shape_read(c, &k, &s);
    bool fits = shape_fits(c, &s, value, false);
    c->depth--;
    return fits;
}
