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

static bool among(const struct schema_list *l, const cJSON *value)
{
    for (int i = 0; i < l->count; i++)
        if (cJSON_Compare(l->nodes[i], value, true)) return true;
    return false;
}

static bool node_accepts(struct compiler *c, const cJSON *schema, const cJSON *value)
{
    struct conjunction k = conjunction_of(c, schema);
    return schema_accepts(c, &k, value);
}

static bool has_equal_items(const cJSON *array)
{
    for (const cJSON *a = array->child; a; a = a->next)
        for (const cJSON *b = a->next; b; b = b->next)
            if (cJSON_Compare(a, b, true)) return true;
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
    if (s->unique_items && has_equal_items(value)) return false;
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
    bool fits = !c->status && s->types & type && !among(&s->excluded, value);
    if (fits && s->has_literals && !has_value) fits = among(&s->literals, value);
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
