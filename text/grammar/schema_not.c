/* What a schema does not allow, as schemas. An alternative that cannot be written down may be left out as
 * long as another one remains: then less is allowed, never more. */
#include <string.h>

#include "base/check.h"
#include "text/grammar/schema.h"

enum { PAIRS_MAX = 32 };

struct negation_memo {
    struct negation_memo *next;
    const cJSON *node;
    struct alternative_list list;
};

/* ---- schemas that nobody wrote ---- */

static cJSON *make(struct compiler *c, int type, const char *name)
{
    cJSON *node = schema_alloc(c, sizeof *node);
    *node = (cJSON){.type = type | cJSON_StringIsConst, .string = (char *)name};
    return node;
}

/* A parser's nodes own their names. */
bool schema_is_made(const cJSON *node)
{
    return node->type & cJSON_StringIsConst;
}

static cJSON *append(cJSON *parent, cJSON *child)
{
    cJSON **end = &parent->child;
    while (*end) end = &(*end)->next;
    *end = child;
    return child;
}

static cJSON *make_text(struct compiler *c, const char *name, const char *text)
{
    cJSON *node = make(c, cJSON_String, name);
    node->valuestring = (char *)text;
    return node;
}

static cJSON *make_number(struct compiler *c, const char *name, double value)
{
    cJSON *node = make(c, cJSON_Number, name);
    node->valuedouble = value;
    return node;
}

/* A copy of the node alone; its children stay where they are. */
static cJSON *make_alias(struct compiler *c, const char *name, const cJSON *of)
{
    cJSON *node = make(c, of->type, name);
    char *string = node->string;
    *node = *of;
    node->string = string;
    node->next = node->prev = NULL;
    return node;
}

static cJSON *make_typed(struct compiler *c, const char *type)
{
    cJSON *node = make(c, cJSON_Object, NULL);
    append(node, make_text(c, "type", type));
    return node;
}

const cJSON *schema_make_without(struct compiler *c, const char *name)
{
    cJSON *node = make(c, cJSON_Object, NULL);
    append(append(node, make(c, cJSON_Object, "properties")), make(c, cJSON_False, name));
    return node;
}

const cJSON *schema_make_required(struct compiler *c, const cJSON *dependency)
{
    cJSON *node = make_typed(c, "object"), *list = append(node, make(c, cJSON_Array, "required"));
    append(list, make_text(c, NULL, dependency->string));
    if (cJSON_IsString(dependency)) append(list, make_text(c, NULL, dependency->valuestring));
    for (const cJSON *name = cJSON_IsArray(dependency) ? dependency->child : NULL; name; name = name->next)
        append(list, make_alias(c, NULL, name));
    return node;
}

const cJSON *schema_make_unlike(struct compiler *c, const char *name, const cJSON *schema)
{
    cJSON *node = make_typed(c, "object");
    append(append(node, make(c, cJSON_Array, "required")), make_text(c, NULL, name));
    cJSON *value = append(append(node, make(c, cJSON_Object, "properties")), make(c, cJSON_Object, name));
    append(value, make_alias(c, "not", schema));
    return node;
}

/* ---- negation ---- */

struct negator {
    struct compiler *c;
    struct alternative_list list;
    bool is_partial; /* an alternative was left out */
};

static struct conjunction *add(struct negator *n)
{
    struct conjunction *items = schema_alloc(n->c, (size_t)(n->list.count + 1) * sizeof *items);
    if (n->c->status) return items;
    if (n->list.count > 0) memcpy(items, n->list.items, (size_t)n->list.count * sizeof *items);
    items[n->list.count] = (struct conjunction){0};
    n->list.items = items;
    return &items[n->list.count++];
}

static void add_node(struct negator *n, const cJSON *node)
{
    conjunction_add(n->c, add(n), node, false);
}

static void negate_type(struct negator *n, const cJSON *keyword)
{
    struct shape s;
    cJSON *only = make(n->c, cJSON_Object, NULL);
    append(only, make_alias(n->c, "type", keyword));
    struct conjunction k = conjunction_of(n->c, only);
    shape_read(n->c, &k, &s);
    static const struct {
        const char *name;
        unsigned types;
    } names[] = {{"null", TYPE_NULL},          {"boolean", TYPE_BOOLEAN}, {"integer", TYPE_INTEGER},
                 {"!fraction", TYPE_FRACTION}, {"string", TYPE_STRING},   {"array", TYPE_ARRAY},
                 {"object", TYPE_OBJECT}};
    cJSON *others = make(n->c, cJSON_Object, NULL), *list = append(others, make(n->c, cJSON_Array, "type"));
    for (size_t i = 0; i < array_length(names); i++)
        if (!(s.types & names[i].types)) append(list, make_text(n->c, NULL, names[i].name));
    if (list->child) add_node(n, others);
}

static void negate_literals(struct negator *n, const cJSON *keyword)
{
    cJSON *node = make(n->c, cJSON_Object, NULL);
    if (cJSON_IsArray(keyword) && !strcmp(keyword->string, "enum"))
        append(node, make_alias(n->c, "!enum", keyword));
    else
        append(append(node, make(n->c, cJSON_Array, "!enum")), make_alias(n->c, NULL, keyword));
    add_node(n, node);
}

static void negate_properties(struct negator *n, const cJSON *keyword)
{
    for (const cJSON *p = keyword->child; p; p = p->next) add_node(n, schema_make_unlike(n->c, p->string, p));
}

/* Which others there may be is known where the alternative is put together with other schemas (shape.c). */
static void negate_others(struct negator *n, const cJSON *keyword, const cJSON *node)
{
    const cJSON *listed = schema_get(node, "properties");
    if (cJSON_IsTrue(keyword)) return;
    if (schema_get(node, "patternProperties")) {
        n->is_partial = true;
        return;
    }
    cJSON *others = make_typed(n->c, "object");
    if (listed) append(others, make_alias(n->c, "!properties", listed));
    append(others, make_alias(n->c, "!additionalProperties", keyword));
    add_node(n, others);
}

static void negate_multiple(struct negator *n, const cJSON *keyword)
{
    cJSON *node = make_typed(n->c, "number");
    append(node, make_alias(n->c, "!multipleOf", keyword));
    add_node(n, node);
}

static void negate_required(struct negator *n, const cJSON *keyword)
{
    for (const cJSON *name = keyword->child; name; name = name->next) {
        if (!cJSON_IsString(name)) continue;
        cJSON *node = make_typed(n->c, "object");
        append(append(node, make(n->c, cJSON_Object, "properties")),
               make(n->c, cJSON_False, name->valuestring));
        add_node(n, node);
    }
}

static void negate_bound(struct negator *n, const cJSON *keyword, const cJSON *node)
{
    bool is_min = strstr(keyword->string, "inimum"), is_open = keyword->string[0] == 'e';
    if (!cJSON_IsNumber(keyword)) return;
    is_open = is_open || cJSON_IsTrue(schema_get(node, is_min ? "exclusiveMinimum" : "exclusiveMaximum"));
    const char *other =
        is_min ? (is_open ? "maximum" : "exclusiveMaximum") : (is_open ? "minimum" : "exclusiveMinimum");
    cJSON *result = make_typed(n->c, "number");
    append(result, make_alias(n->c, other, keyword));
    add_node(n, result);
}

/* minX: n becomes maxX: n - 1, and the other way round. */
static void negate_count(struct negator *n, const cJSON *keyword)
{
    static const char *const names[][3] = {{"minLength", "maxLength", "string"},
                                           {"minItems", "maxItems", "array"},
                                           {"minProperties", "maxProperties", "object"}};
    for (size_t i = 0; i < array_length(names); i++) {
        bool is_min = !strcmp(keyword->string, names[i][0]);
        if (!is_min && strcmp(keyword->string, names[i][1]) != 0) continue;
        if (is_min && keyword->valuedouble < 1) return;
        cJSON *result = make_typed(n->c, names[i][2]);
        append(result, make_number(n->c, names[i][is_min], keyword->valuedouble + (is_min ? -1 : 1)));
        add_node(n, result);
    }
}

static void negate_pattern(struct negator *n, const cJSON *keyword)
{
    cJSON *node = make_typed(n->c, "string");
    append(node, make_alias(n->c, "!pattern", keyword));
    add_node(n, node);
}

/* One that is a remark holds of every string. */
static void negate_format(struct negator *n, const cJSON *keyword)
{
    if (!schema_format_pattern(keyword->valuestring)) return;
    cJSON *node = make_typed(n->c, "string");
    append(node, make_alias(n->c, "!format", keyword));
    add_node(n, node);
}

/* An element that is not of the schema at its place. */
static void negate_prefix(struct negator *n, const cJSON *keyword)
{
    int index = 0;
    for (const cJSON *part = keyword->child; part && !n->c->status; part = part->next, index++) {
        if (cJSON_IsTrue(part)) continue;
        cJSON *node = make_typed(n->c, "array");
        append(node, make_number(n->c, "minItems", index + 1));
        cJSON *list = append(node, make(n->c, cJSON_Array, "prefixItems"));
        for (int i = 0; i < index && schema_charge(n->c, (size_t)i); i++)
            append(list, make(n->c, cJSON_True, NULL));
        append(append(list, make(n->c, cJSON_Object, NULL)), make_alias(n->c, "not", part));
        add_node(n, node);
    }
}

/* An element behind those of a list. */
static void negate_rest(struct negator *n, const cJSON *keyword, const cJSON *prefix)
{
    if (!cJSON_IsFalse(keyword)) {
        n->is_partial |= !cJSON_IsTrue(keyword);
        return;
    }
    cJSON *node = make_typed(n->c, "array");
    append(node, make_number(n->c, "minItems", cJSON_GetArraySize(prefix) + 1));
    add_node(n, node);
}

/* Some element that is not of the schema; no element that is. */
static void negate_elements(struct negator *n, const cJSON *keyword, const char *other)
{
    cJSON *node = make_typed(n->c, "array");
    append(append(node, make(n->c, cJSON_Object, other)), make_alias(n->c, "not", keyword));
    add_node(n, node);
}

static void negate_items(struct negator *n, const cJSON *keyword, const cJSON *node)
{
    const cJSON *prefix = schema_get(node, "prefixItems");
    if (cJSON_IsArray(keyword))
        negate_prefix(n, keyword);
    else if (prefix)
        negate_rest(n, keyword, prefix);
    else
        negate_elements(n, keyword, "contains");
}

/* The name, without one that must be beside it. */
static void negate_dependent_names(struct negator *n, const cJSON *keyword)
{
    for (const cJSON *d = keyword->child; d; d = d->next)
        for (const cJSON *name = cJSON_IsArray(d) ? d->child : NULL; name; name = name->next) {
            if (!cJSON_IsString(name)) continue;
            cJSON *node = make_typed(n->c, "object");
            append(append(node, make(n->c, cJSON_Array, "required")), make_text(n->c, NULL, d->string));
            append(append(node, make(n->c, cJSON_Object, "properties")),
                   make(n->c, cJSON_False, name->valuestring));
            add_node(n, node);
        }
}

static void negate_any_of(struct negator *n, const cJSON *keyword)
{
    struct conjunction *all = add(n);
    for (const cJSON *part = keyword->child; part; part = part->next) conjunction_add(n->c, all, part, true);
}

/* None of them, or two at once. */
static void negate_one_of(struct negator *n, const cJSON *keyword)
{
    int num_pairs = 0;
    struct one_of *o = schema_one_of(n->c, keyword);
    negate_any_of(n, keyword);
    for (int a = 0; a < o->count && !n->c->status; a++)
        for (int b = a + 1; b < o->count; b++) {
            if (!schema_may_meet(n->c, o, a, b)) continue;
            if (num_pairs++ == PAIRS_MAX) {
                n->is_partial = true;
                return;
            }
            struct conjunction both = conjunction_of(n->c, o->parts[a].node);
            conjunction_add(n->c, &both, o->parts[b].node, false);
            *add(n) = both;
        }
}

static void negate_if(struct negator *n, const cJSON *keyword, const cJSON *node)
{
    const cJSON *then = schema_get(node, "then"), *otherwise = schema_get(node, "else");
    struct conjunction yes = {0}, no = {0};
    conjunction_add(n->c, &yes, keyword, false);
    conjunction_add(n->c, &no, keyword, true);
    if (then) {
        conjunction_add(n->c, &yes, then, true);
        *add(n) = yes;
    }
    if (otherwise) {
        conjunction_add(n->c, &no, otherwise, true);
        *add(n) = no;
    }
}

static void negate_keyword(struct negator *n, const cJSON *k, const cJSON *node)
{
    static const char *const counts[] = {"minLength", "maxLength",     "minItems",
                                         "maxItems",  "minProperties", "maxProperties"};
    static const char *const remarks[] = {"then", "else", "$defs", "definitions"};
    static const char *const partial[] = {"!additionalProperties",
                                          "patternProperties",
                                          "propertyNames",
                                          "uniqueItems",
                                          "!multipleOf",
                                          "dependencies",
                                          "dependentSchemas",
                                          "unevaluatedProperties",
                                          "unevaluatedItems",
                                          "$recursiveRef",
                                          "!enum",
                                          "!format",
                                          "!pattern"};
    const char *name = k->string;
    for (size_t i = 0; i < array_length(counts); i++)
        if (!strcmp(name, counts[i]) && cJSON_IsNumber(k)) negate_count(n, k);
    for (size_t i = 0; i < array_length(remarks); i++)
        if (!strcmp(name, remarks[i])) return;
    for (size_t i = 0; i < array_length(partial); i++)
        if (!strcmp(name, partial[i])) n->is_partial = true;
    if (!strcmp(name, "type")) negate_type(n, k);
    if (!strcmp(name, "enum") || !strcmp(name, "const")) negate_literals(n, k);
    if (!strcmp(name, "properties")) negate_properties(n, k);
    if (!strcmp(name, "additionalProperties")) negate_others(n, k, node);
    if (!strcmp(name, "required")) negate_required(n, k);
    if (!strcmp(name, "multipleOf")) negate_multiple(n, k);
    if (strstr(name, "inimum") || strstr(name, "aximum")) negate_bound(n, k, node);
    if (!strcmp(name, "pattern") && cJSON_IsString(k)) negate_pattern(n, k);
    if (!strcmp(name, "format") && cJSON_IsString(k)) negate_format(n, k);
    if (!strcmp(name, "dependentRequired")) negate_dependent_names(n, k);
    if (!strcmp(name, "prefixItems")) negate_prefix(n, k);
    if (!strcmp(name, "items")) negate_items(n, k, node);
    if (!strcmp(name, "additionalItems") && cJSON_IsArray(schema_get(node, "items")))
        negate_rest(n, k, schema_get(node, "items"));
    if (!strcmp(name, "anyOf")) negate_any_of(n, k);
    if (!strcmp(name, "oneOf")) negate_one_of(n, k);
    if (!strcmp(name, "not")) add_node(n, k);
    if (!strcmp(name, "if")) negate_if(n, k, node);
    if (!strcmp(name, "contains") && !schema_get(node, "minContains") && !schema_get(node, "maxContains"))
        negate_elements(n, k, "items");
    if (!strcmp(name, "allOf"))
        for (const cJSON *part = k->child; part; part = part->next) conjunction_add(n->c, add(n), part, true);
    if ((!strcmp(name, "$ref") || !strcmp(name, "$dynamicRef")) && cJSON_IsString(k)) {
        const cJSON *target = schema_resolve(n->c, node, k->valuestring);
        if (target) conjunction_add(n->c, add(n), target, true);
    }
}

struct alternative_list schema_negate(struct compiler *c, const cJSON *node)
{
    struct negator n = {.c = c};
    for (struct negation_memo *m = c->negations; m; m = m->next)
        if (m->node == node) return m->list;
    if (cJSON_IsFalse(node)) {
        (void)add(&n);
        return n.list;
    }
    c->negated = node;
    for (const cJSON *k = node->child; k && !c->status; k = k->next) {
        c->work++;
        if (cJSON_IsObject(node)) negate_keyword(&n, k, node);
    }
    if (n.list.count == 0 && n.is_partial)
        schema_fail(c, STATUS_UNSUPPORTED,
                    "what %s does not allow is needed (not, oneOf or if) and cannot be expressed",
                    schema_path(c, node));
    c->leaves_out |= n.is_partial;
    struct negation_memo *m = schema_alloc(c, sizeof *m);
    if (c->status) return n.list;
    *m = (struct negation_memo){c->negations, node, n.list};
    c->negations = m;
    return n.list;
}

/* ---- what cannot meet ---- */

static bool is_required(const struct shape *s, const char *name)
{
    for (int i = 0; i < s->required.count; i++)
        if (!strcmp(s->required.nodes[i]->valuestring, name)) return true;
    return false;
}

static bool literals_meet(struct compiler *c, const struct shape *a, const struct shape *b)
{
    for (int i = 0; i < a->literals.count && !c->status; i++)
        for (int j = 0; j < b->literals.count && !c->status; j++)
            if (schema_equal(c, a->literals.nodes[i], b->literals.nodes[j])) return true;
    return false;
}

static bool disjoint(struct compiler *c, const cJSON *a, const cJSON *b, int depth);

static bool property_disjoint(struct compiler *c, const struct shape *a, const struct shape *b,
                              const char *name, int depth)
{
    for (int i = 0; i < a->objects.count; i++) {
        const cJSON *x = schema_get(schema_get(a->objects.nodes[i], "properties"), name);
        for (int j = 0; x && j < b->objects.count; j++) {
            const cJSON *y = schema_get(schema_get(b->objects.nodes[j], "properties"), name);
            if (y && disjoint(c, x, y, depth - 1)) return true;
        }
    }
    return false;
}

/* Whether some object atom of s forbids a property of this name. */
static bool forbids(const struct shape *s, const char *name)
{
    for (int i = 0; i < s->objects.count; i++) {
        const cJSON *node = s->objects.nodes[i];
        const cJSON *own = schema_get(schema_get(node, "properties"), name);
        if (cJSON_IsFalse(own)) return true;
        if (!own && cJSON_IsFalse(schema_get(node, "additionalProperties")) &&
            !schema_get(node, "patternProperties"))
            return true;
    }
    return false;
}

static bool objects_disjoint(struct compiler *c, const struct shape *a, const struct shape *b, int depth)
{
    for (int i = 0; i < a->required.count; i++) {
        const char *name = a->required.nodes[i]->valuestring;
        if (forbids(b, name)) return true;
        if (is_required(b, name) && property_disjoint(c, a, b, name, depth)) return true;
    }
    for (int i = 0; i < b->required.count; i++)
        if (forbids(a, b->required.nodes[i]->valuestring)) return true;
    return false;
}

static bool numbers_disjoint(const struct shape *a, const struct shape *b)
{
    return a->min > b->max || b->min > a->max || (a->min == b->max && (a->min_open || b->max_open)) ||
           (b->min == a->max && (b->min_open || a->max_open));
}

static bool types_disjoint(struct compiler *c, const struct shape *a, const struct shape *b, unsigned common,
                           int depth)
{
    if (common & (TYPE_NULL | TYPE_BOOLEAN)) return false;
    if (common & TYPE_NUMBER && !numbers_disjoint(a, b)) return false;
    if (common & TYPE_STRING && a->min_length <= b->max_length && b->min_length <= a->max_length)
        return false;
    if (common & TYPE_ARRAY && a->min_items <= b->max_items && b->min_items <= a->max_items) return false;
    return !(common & TYPE_OBJECT) || objects_disjoint(c, a, b, depth);
}

/* Whether no literal of a fulfils what b says about literals' types. */
static bool literals_disjoint(struct compiler *c, const struct shape *a, const cJSON *b)
{
    struct conjunction k = conjunction_of(c, b);
    for (int i = 0; i < a->literals.count; i++)
        if (schema_accepts(c, &k, a->literals.nodes[i])) return false;
    return true;
}

static bool disjoint(struct compiler *c, const cJSON *a, const cJSON *b, int depth)
{
    struct conjunction of_a = conjunction_of(c, a), of_b = conjunction_of(c, b);
    struct shape x, y;
    if (depth == 0 || c->status) return false;
    of_a = conjunction_flatten(c, &of_a);
    of_b = conjunction_flatten(c, &of_b);
    of_a.origin = of_b.origin = NULL;
    for (int i = 0; i < of_a.num_atoms; i++)
        for (int j = 0; j < of_b.num_atoms; j++)
            if (of_a.atoms[i].node == of_b.atoms[j].node && of_a.atoms[i].negated != of_b.atoms[j].negated)
                return true;
    shape_read_limits(c, &of_a, &x);
    shape_read_limits(c, &of_b, &y);
    if (c->status) return false;
    if (x.has_literals && y.has_literals) return !literals_meet(c, &x, &y);
    if (!(x.types & y.types)) return true;
    if (x.has_literals) return literals_disjoint(c, &x, b);
    if (y.has_literals) return literals_disjoint(c, &y, a);
    return types_disjoint(c, &x, &y, x.types & y.types, depth);
}

bool schema_disjoint(struct compiler *c, const cJSON *a, const cJSON *b)
{
    return disjoint(c, a, b, 3);
}
