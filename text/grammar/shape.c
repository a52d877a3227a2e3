/* One handler for each keyword; those of choices and of negated atoms are at the end. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "text/grammar/schema.h"
#include "text/json_numbers.h"

struct reader {
    struct compiler *c;
    bool only_limits; /* choices are passed over */
    const struct conjunction *k;
    const struct atom *atom;
    struct shape *s;
};

typedef void read_keyword(struct reader *r, const cJSON *keyword);

static void bad_value(struct reader *r, const cJSON *keyword, const char *expected)
{
    schema_fail(r->c, STATUS_INVALID, "\"%s\" at %s must be %s", keyword->string,
                schema_path(r->c, r->atom->node), expected);
}

static void unsupported(struct reader *r, const cJSON *keyword, const char *why)
{
    schema_fail(r->c, STATUS_UNSUPPORTED, "\"%s\" at %s is not supported%s%s", keyword->string,
                schema_path(r->c, r->atom->node), *why ? ": " : "", why);
}

/* ---- types and literals ---- */

static unsigned type_of_name(const char *name)
{
    static const struct {
        const char *name;
        unsigned types;
    } names[] = {{"null", TYPE_NULL},     {"boolean", TYPE_BOOLEAN}, {"integer", TYPE_INTEGER},
                 {"number", TYPE_NUMBER}, {"string", TYPE_STRING},   {"array", TYPE_ARRAY},
                 {"object", TYPE_OBJECT}, {"any", TYPE_ALL},         {"!fraction", TYPE_FRACTION}};
    for (size_t i = 0; i < array_length(names); i++)
        if (!strcmp(names[i].name, name)) return names[i].types;
    return 0;
}

static void read_type(struct reader *r, const cJSON *keyword)
{
    unsigned types = 0;
    if (cJSON_IsString(keyword)) types = type_of_name(keyword->valuestring);
    for (const cJSON *t = cJSON_IsArray(keyword) ? keyword->child : NULL; t; t = t->next) {
        unsigned one = cJSON_IsString(t) ? type_of_name(t->valuestring) : 0;
        if (one == 0) bad_value(r, keyword, "names of types");
        types |= one;
    }
    if (types == 0 && !cJSON_IsArray(keyword)) bad_value(r, keyword, "the name of a type or a list of them");
    r->s->types &= types;
}

static void keep_common(struct reader *r, const struct schema_list *list)
{
    struct shape *s = r->s;
    if (!s->has_literals) {
        s->has_literals = true;
        s->literals = *list;
        return;
    }
    int n = 0;
    for (int i = 0; i < s->literals.count && !r->c->status; i++)
        for (int j = 0; j < list->count && !r->c->status; j++)
            if (schema_equal(r->c, s->literals.nodes[i], list->nodes[j])) {
                s->literals.nodes[n++] = s->literals.nodes[i];
                break;
            }
    s->literals.count = n;
}

static void read_enum(struct reader *r, const cJSON *keyword)
{
    struct schema_list list = {0};
    if (!cJSON_IsArray(keyword)) bad_value(r, keyword, "a list");
    for (const cJSON *v = keyword->child; v; v = v->next) schema_list_add(r->c, &list, v);
    keep_common(r, &list);
}

static void read_const(struct reader *r, const cJSON *keyword)
{
    struct schema_list list = {0};
    schema_list_add(r->c, &list, keyword);
    keep_common(r, &list);
}

/* ---- numbers and strings ---- */

static void limit_min(struct shape *s, long double value, bool open)
{
    if (value > s->min || (value == s->min && open)) {
        s->min = value;
        s->min_open = open;
    }
}

static void limit_max(struct shape *s, long double value, bool open)
{
    if (value < s->max || (value == s->max && open)) {
        s->max = value;
        s->max_open = open;
    }
}

static long double exact_value(const cJSON *number)
{
    const char *text = json_long_integer(number);
    return text ? strtold(text, NULL) : number->valuedouble;
}

static void read_bound(struct reader *r, const cJSON *keyword)
{
    bool is_min = strstr(keyword->string, "inimum"), is_exclusive = keyword->string[0] == 'e';
    if (is_exclusive && cJSON_IsBool(keyword)) return; /* draft 4: read with minimum and maximum */
    if (!cJSON_IsNumber(keyword)) {
        bad_value(r, keyword, "a number");
        return;
    }
    const cJSON *flag = schema_get(r->atom->node, is_min ? "exclusiveMinimum" : "exclusiveMaximum");
    bool open = is_exclusive || cJSON_IsTrue(flag);
    if (is_min)
        limit_min(r->s, exact_value(keyword), open);
    else
        limit_max(r->s, exact_value(keyword), open);
}

static void read_multiple_of(struct reader *r, const cJSON *keyword)
{
    if (!cJSON_IsNumber(keyword) || !(keyword->valuedouble > 0)) bad_value(r, keyword, "a number above 0");
    schema_list_add(r->c, keyword->string[0] == '!' ? &r->s->not_multiples : &r->s->multiples, keyword);
}

static uint32_t read_count(struct reader *r, const cJSON *keyword)
{
    double value = keyword->valuedouble;
    if (!cJSON_IsNumber(keyword) || value < 0 || value != floor(value)) {
        bad_value(r, keyword, "a whole number of at least 0");
        return 0;
    }
    return value < 0x7FFFFFFF ? (uint32_t)value : 0x7FFFFFFF;
}

static void read_least(struct reader *r, const cJSON *keyword)
{
    uint32_t value = read_count(r, keyword);
    char what = keyword->string[3];
    uint32_t *field = what == 'L'   ? &r->s->min_length
                      : what == 'I' ? &r->s->min_items
                                    : &r->s->min_properties;
    *field = max_of(*field, value);
}

static void read_most(struct reader *r, const cJSON *keyword)
{
    uint32_t value = read_count(r, keyword);
    char what = keyword->string[3];
    uint32_t *field = what == 'L'   ? &r->s->max_length
                      : what == 'I' ? &r->s->max_items
                                    : &r->s->max_properties;
    *field = min_of(*field, value);
}

static void add_pattern(struct compiler *c, struct shape *s, struct pattern p)
{
    struct pattern_list *l = &s->patterns;
    for (int i = 0; i < l->count; i++)
        if (l->items[i].negated == p.negated && l->items[i].is_format == p.is_format &&
            !strcmp(l->items[i].text, p.text))
            return;
    if (l->count == l->capacity) {
        int capacity = max_of(2 * l->capacity, 4);
        struct pattern *items = schema_alloc(c, (size_t)capacity * sizeof *items);
        if (c->status) return;
        if (l->count > 0) memcpy(items, l->items, (size_t)l->count * sizeof *items);
        l->items = items;
        l->capacity = capacity;
    }
    l->items[l->count++] = p;
}

static void read_pattern(struct reader *r, const cJSON *keyword)
{
    if (!cJSON_IsString(keyword))
        bad_value(r, keyword, "a regular expression");
    else
        add_pattern(r->c, r->s,
                    (struct pattern){.text = keyword->valuestring, .negated = keyword->string[0] == '!'});
}

static void read_format(struct reader *r, const cJSON *keyword)
{
    if (!cJSON_IsString(keyword)) {
        bad_value(r, keyword, "a string");
        return;
    }
    const char *pattern = schema_format_pattern(keyword->valuestring);
    if (pattern)
        add_pattern(
            r->c, r->s,
            (struct pattern){.text = pattern, .is_format = true, .negated = keyword->string[0] == '!'});
}

/* ---- arrays and objects ---- */

static void read_array_part(struct reader *r, const cJSON *keyword)
{
    (void)keyword;
    schema_list_add(r->c, &r->s->arrays, r->atom->node);
}

static void read_contains(struct reader *r, const cJSON *keyword)
{
    (void)keyword;
    schema_list_add(r->c, &r->s->contains, r->atom->node);
}

static void read_unique(struct reader *r, const cJSON *keyword)
{
    if (cJSON_IsTrue(keyword) && r->s->types & TYPE_ARRAY) r->s->unique_items = keyword;
}

static void read_object_part(struct reader *r, const cJSON *keyword)
{
    if (keyword->string[0] == 'p' && !cJSON_IsObject(keyword)) bad_value(r, keyword, "an object");
    schema_list_add(r->c, &r->s->objects, r->atom->node);
}

static void read_names(struct reader *r, const cJSON *keyword)
{
    schema_list_add(r->c, &r->s->names, keyword);
}

static void read_required(struct reader *r, const cJSON *keyword)
{
    if (cJSON_IsBool(keyword)) return; /* draft 3 wrote it into the property */
    if (!cJSON_IsArray(keyword)) bad_value(r, keyword, "a list of names");
    for (const cJSON *name = keyword->child; name; name = name->next) {
        if (!cJSON_IsString(name))
            bad_value(r, keyword, "a list of names");
        else
            schema_list_add(r->c, &r->s->required, name);
    }
}

static void read_unevaluated(struct reader *r, const cJSON *keyword)
{
    if (r->only_limits) return;
    if (cJSON_IsTrue(keyword) || (cJSON_IsObject(keyword) && !keyword->child)) return;
    const cJSON **field =
        strstr(keyword->string, "Items") ? &r->s->unevaluated_items : &r->s->unevaluated_properties;
    if (*field && *field != keyword) unsupported(r, keyword, "it stands twice in one place");
    if (r->k->origin && r->k->origin != r->atom->node)
        unsupported(r, keyword, "other schemas apply to the same value from outside");
    if (!r->k->origin) unsupported(r, keyword, "other schemas apply to the same value from outside");
    *field = keyword;
}

static void read_recursive_ref(struct reader *r, const cJSON *keyword)
{
    unsupported(r, keyword, "write $ref");
}

/* ---- choices ---- */

static bool take_choice(struct reader *r, uint32_t done)
{
    struct shape *s = r->s;
    if (s->has_choice || r->only_limits) return false;
    s->has_choice = true;
    s->rest = (struct conjunction){.origin = r->k->origin, .num_atoms = r->k->num_atoms};
    s->rest.atoms = schema_alloc(r->c, (size_t)r->k->num_atoms * sizeof *s->rest.atoms);
    if (r->c->status) return false;
    memcpy(s->rest.atoms, r->k->atoms, (size_t)r->k->num_atoms * sizeof *s->rest.atoms);
    struct atom *own = &s->rest.atoms[r->atom - r->k->atoms];
    own->done = done >= CHOICE_DEPENDENCY ? own->done + done : own->done | done;
    return true;
}

static struct conjunction *add_alternative(struct reader *r)
{
    struct alternative_list *l = &r->s->alternatives;
    struct conjunction *items = schema_alloc(r->c, (size_t)(l->count + 1) * sizeof *items);
    if (l->count > 0 && !r->c->status) memcpy(items, l->items, (size_t)l->count * sizeof *items);
    items[r->c->status ? 0 : l->count] = (struct conjunction){0};
    if (r->c->status) return items;
    l->items = items;
    return &items[l->count++];
}

static void read_any_of(struct reader *r, const cJSON *keyword)
{
    if (!cJSON_IsArray(keyword) || !keyword->child) {
        bad_value(r, keyword, "a list of schemas");
        return;
    }
    if (r->atom->done & CHOICE_ANY_OF || !take_choice(r, CHOICE_ANY_OF)) return;
    int n = cJSON_GetArraySize(keyword), i = 0;
    r->s->alternatives.items = schema_alloc(r->c, (size_t)n * sizeof(struct conjunction));
    if (r->c->status) return;
    for (const cJSON *part = keyword->child; part; part = part->next)
        r->s->alternatives.items[i++] = conjunction_of(r->c, part);
    r->s->alternatives.count = n;
}

/* Whether an atom before that at end lists the name, too. */
static bool is_listed_before(const struct reader *r, int end, const char *name)
{
    for (int i = 0; i < end; i++)
        if (!r->k->atoms[i].negated && schema_get(schema_get(r->k->atoms[i].node, "properties"), name))
            return true;
    return false;
}

/* Of a negation: a property that "!properties" does not list is not of the schema: one of those that others list. Where they
 * leave more open that is lost. */
static void read_others(struct reader *r, const cJSON *keyword)
{
    const cJSON *own = schema_get(r->atom->node, "!properties");
    bool is_closed = r->c->b.closes_objects;
    if (r->atom->done & CHOICE_ANY_OF || !take_choice(r, CHOICE_ANY_OF)) return;
    for (int i = 0; i < r->k->num_atoms && !r->c->status; i++) {
        const cJSON *node = r->k->atoms[i].negated ? NULL : r->k->atoms[i].node,
                    *listed = schema_get(node, "properties");
        is_closed |= cJSON_IsFalse(schema_get(node, "additionalProperties"));
        for (const cJSON *p = listed ? listed->child : NULL; p && !r->c->status; p = p->next)
            if (!schema_get(own, p->string) && !is_listed_before(r, i, p->string))
                conjunction_add(r->c, add_alternative(r), schema_make_unlike(r->c, p->string, keyword),
                                false);
    }
    r->c->leaves_out |= !is_closed;
}

/* Each alternative holds alone: it, and not those of the others that it could meet. */
static void read_one_of(struct reader *r, const cJSON *keyword)
{
    if (!cJSON_IsArray(keyword) || !keyword->child) {
        bad_value(r, keyword, "a list of schemas");
        return;
    }
    if (r->atom->done & CHOICE_ONE_OF || !take_choice(r, CHOICE_ONE_OF)) return;
    struct one_of *o = schema_one_of(r->c, keyword);
    r->s->alternatives.items = schema_alloc(r->c, (size_t)o->count * sizeof(struct conjunction));
    for (int i = 0; i < o->count && !r->c->status; i++) {
        struct conjunction alone = conjunction_of(r->c, o->parts[i].node);
        for (int other = 0; other < o->count; other++)
            if (other != i && schema_may_meet(r->c, o, i, other))
                conjunction_add(r->c, &alone, o->parts[other].node, true);
        alone.origin = NULL;
        r->s->alternatives.items[r->s->alternatives.count++] = alone;
    }
}

static void read_if(struct reader *r, const cJSON *keyword)
{
    const cJSON *then = schema_get(r->atom->node, "then"), *otherwise = schema_get(r->atom->node, "else");
    if (!then && !otherwise) return;
    if (r->atom->done & CHOICE_IF || !take_choice(r, CHOICE_IF)) return;
    struct conjunction yes = conjunction_of(r->c, keyword), no = {0};
    if (then) conjunction_add(r->c, &yes, then, false);
    conjunction_add(r->c, &no, keyword, true);
    if (otherwise) conjunction_add(r->c, &no, otherwise, false);
    *add_alternative(r) = yes;
    *add_alternative(r) = no;
}

static void read_not(struct reader *r, const cJSON *keyword)
{
    if (cJSON_IsBool(keyword) || !(r->atom->done & CHOICE_NOT)) {
        if (!take_choice(r, CHOICE_NOT)) return;
        conjunction_add(r->c, add_alternative(r), keyword, true);
    }
}

/* {"a": ["b"]} or {"a": schema}: without a, or with a and what it brings. One after the other. */
static void read_dependencies(struct reader *r, const cJSON *keyword)
{
    if (!cJSON_IsObject(keyword)) {
        bad_value(r, keyword, "an object");
        return;
    }
    uint32_t num_done = r->atom->done / CHOICE_DEPENDENCY, i = 0;
    for (const cJSON *other = r->atom->node->child; other != keyword; other = other->next)
        if (!strncmp(other->string, "depend", 6)) i += (uint32_t)cJSON_GetArraySize(other);
    for (const cJSON *d = keyword->child; d; d = d->next, i++) {
        if (i < num_done) continue;
        if (!take_choice(r, CHOICE_DEPENDENCY)) return;
        const cJSON *without = schema_make_without(r->c, d->string), *with = schema_make_required(r->c, d);
        struct conjunction no = {0}, yes = {0};
        conjunction_add(r->c, &no, without, false);
        conjunction_add(r->c, &yes, with, false);
        if (!cJSON_IsArray(d) && !cJSON_IsString(d)) conjunction_add(r->c, &yes, d, false);
        *add_alternative(r) = no;
        *add_alternative(r) = yes;
        return;
    }
}

static void read_excluded(struct reader *r, const cJSON *keyword)
{
    for (const cJSON *v = keyword->child; v; v = v->next) schema_list_add(r->c, &r->s->excluded, v);
}

/* ---- all of them ---- */

/* In the order of strcmp. Those with ! are made by schema_not.c alone: a client's own key of that name would
 * only limit its own answer. */
static const struct {
    const char *name;
    read_keyword *read;
} keywords[] = {
    {"!additionalProperties", read_others},
    {"!enum", read_excluded},
    {"!format", read_format},
    {"!multipleOf", read_multiple_of},
    {"!pattern", read_pattern},
    {"$recursiveRef", read_recursive_ref},
    {"additionalItems", read_array_part},
    {"additionalProperties", read_object_part},
    {"anyOf", read_any_of},
    {"const", read_const},
    {"contains", read_contains},
    {"dependencies", read_dependencies},
    {"dependentRequired", read_dependencies},
    {"dependentSchemas", read_dependencies},
    {"enum", read_enum},
    {"exclusiveMaximum", read_bound},
    {"exclusiveMinimum", read_bound},
    {"format", read_format},
    {"if", read_if},
    {"items", read_array_part},
    {"maxItems", read_most},
    {"maxLength", read_most},
    {"maxProperties", read_most},
    {"maximum", read_bound},
    {"minItems", read_least},
    {"minLength", read_least},
    {"minProperties", read_least},
    {"minimum", read_bound},
    {"multipleOf", read_multiple_of},
    {"not", read_not},
    {"oneOf", read_one_of},
    {"pattern", read_pattern},
    {"patternProperties", read_object_part},
    {"prefixItems", read_array_part},
    {"properties", read_object_part},
    {"propertyNames", read_names},
    {"required", read_required},
    {"type", read_type},
    {"unevaluatedItems", read_unevaluated},
    {"unevaluatedProperties", read_unevaluated},
    {"uniqueItems", read_unique},
};

static read_keyword *find_keyword(const char *name)
{
    size_t lo = 0, hi = array_length(keywords);
    while (lo < hi) {
        size_t middle = (lo + hi) / 2;
        int order = strcmp(keywords[middle].name, name);
        if (order == 0) return keywords[middle].read;
        if (order < 0)
            lo = middle + 1;
        else
            hi = middle;
    }
    return NULL;
}

/* ---- which keywords a schema has, looked up once ---- */

struct known_keyword {
    const cJSON *keyword;
    read_keyword *read;
};

struct known_schema {
    struct schema_entry entry;
    const cJSON *node;
    uint32_t choices; /* anyOf, oneOf, if, not (then and else do with if only) */
    bool has_limits;  /* other keywords that we know */
    int num_keywords;
    struct known_keyword keywords[];
};

static uint32_t choice_of(read_keyword *read)
{
    return read == read_any_of   ? CHOICE_ANY_OF
           : read == read_others ? CHOICE_ANY_OF
           : read == read_one_of ? CHOICE_ONE_OF
           : read == read_if     ? CHOICE_IF
           : read == read_not    ? CHOICE_NOT
                                 : 0;
}

static void learn_schema(struct known_schema *known)
{
    for (const cJSON *k = known->node->child; k; k = k->next) {
        read_keyword *read = k->string ? find_keyword(k->string) : NULL;
        if (!read) continue;
        known->keywords[known->num_keywords++] = (struct known_keyword){k, read};
        known->choices |= choice_of(read);
        known->has_limits |= !choice_of(read);
    }
}

static const struct known_schema *know_schema(struct compiler *c, const cJSON *node)
{
    static const struct known_schema nothing = {0};
    uint32_t hash = (uint32_t)((uintptr_t)node * 0x9E3779B97F4A7C15u >> 32);
    for (const struct schema_entry *e = schema_table_find(&c->schemas, hash); e; e = e->next) {
        const struct known_schema *known = (const struct known_schema *)e;
        if (known->node == node) return known;
    }
    size_t num_children = (size_t)cJSON_GetArraySize(node);
    struct known_schema *known = schema_alloc(c, sizeof *known + num_children * sizeof *known->keywords);
    if (c->status) return &nothing;
    known->entry.hash = hash;
    known->node = node;
    learn_schema(known);
    schema_table_add(c, &c->schemas, &known->entry);
    return known;
}

bool shape_limits(struct compiler *c, const cJSON *node, uint32_t done)
{
    const struct known_schema *known = know_schema(c, node);
    return known->has_limits || known->choices & ~done;
}

static void read_negated(struct reader *r)
{
    if (r->atom->done & CHOICE_NEGATION || !take_choice(r, CHOICE_NEGATION)) return;
    r->s->alternatives = schema_negate(r->c, r->atom->node);
}

static void read_shape(struct compiler *c, const struct conjunction *k, bool only_limits, struct shape *out)
{
    *out = (struct shape){.types = TYPE_ALL,
                          .min = -INFINITY,
                          .max = INFINITY,
                          .max_length = NO_LIMIT,
                          .max_items = NO_LIMIT,
                          .max_properties = NO_LIMIT};
    struct reader r = {.c = c, .only_limits = only_limits, .k = k, .s = out};
    if (conjunction_is_never(k)) {
        out->types = 0;
        return;
    }
    for (int i = 0; i < k->num_atoms && !c->status; i++) {
        r.atom = &k->atoms[i];
        if (r.atom->negated) {
            read_negated(&r);
            continue;
        }
        const struct known_schema *known = know_schema(c, r.atom->node);
        for (int j = 0; j < known->num_keywords && !c->status; j++)
            known->keywords[j].read(&r, known->keywords[j].keyword);
    }
}

void shape_read_limits(struct compiler *c, const struct conjunction *k, struct shape *out)
{
    read_shape(c, k, true, out);
}

void shape_read(struct compiler *c, const struct conjunction *k, struct shape *out)
{
    read_shape(c, k, false, out);
}
