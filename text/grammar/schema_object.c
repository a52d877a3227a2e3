/* Objects. Properties come in the order of the schema, then those that it only requires, then others: so
 * where an answer stands in an object is one number (program.h). The names are a tree of their letters; a
 * name that leaves the tree is one of the others. Where patternProperties or propertyNames tell the others
 * apart, these are an automaton beside the tree. Whether there are others at all is decided here, where all
 * that applies to the object is known: what one schema leaves open another may list (is_closed). */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/grammar/names.h"
#include "text/grammar/schema.h"
#include "text/grammar/text_dfa.h"

enum { PATTERNS_MAX = 20 };

struct property {
    const char *name, *text; /* as it is; as it is written between quotes */
    size_t num_bytes;        /* of text */
    uint32_t rule;           /* of its value; RULE_NEVER: it must not be there */
    uint32_t key;            /* its place in the order */
    bool required;
};

struct patterns {
    const char *texts[PATTERNS_MAX]; /* all that occur in patternProperties */
    int count;
};

struct object {
    struct compiler *c;
    const struct shape *s;
    struct property *properties; /* in their order, then by text */
    uint32_t num_properties, capacity;
    struct names names; /* of properties */
    struct patterns patterns;
    uint32_t table;        /* index of the key_table */
    uint32_t extra_rule;   /* of other properties' values, where their names do not matter */
    uint32_t extra_body;   /* state in a name that is not listed, or STATE_DEAD */
    uint32_t extra_end;    /* state behind such a name */
    uint32_t continued[3]; /* states that miss 1 or 2 more bytes of a character of such a name */
    uint32_t behind;       /* state behind a value */
    bool is_open;          /* the tree may be left into extra_body */
    bool is_closed;        /* other names are those of patternProperties alone */
    bool any_order;        /* key_table */
};

/* ---- what a property must fulfil ---- */

static bool matches(struct compiler *c, const char *pattern, const char *text, size_t n)
{
    const struct dfa *d = schema_regex(c, &(struct pattern){.text = pattern});
    return d && dfa_run(d, text, n) != 0;
}

static void add_to(struct compiler *c, struct conjunction *k, const cJSON *node, bool *is_first)
{
    if (*is_first)
        *k = conjunction_of(c, node);
    else
        conjunction_add(c, k, node, false);
    *is_first = false;
}

/* text: the name as it is written, or NULL: one that matches exactly the patterns of the mask. */
static struct conjunction property_of(struct compiler *c, const struct shape *s, const char *name,
                                      const char *text, size_t n, const struct patterns *patterns,
                                      uint32_t mask)
{
    struct conjunction k = {0};
    bool is_first = true, is_evaluated = false;
    for (int i = 0; i < s->objects.count && !c->status; i++) {
        const cJSON *node = s->objects.nodes[i];
        const cJSON *own = name ? schema_get(schema_get(node, "properties"), name) : NULL;
        const cJSON *map = schema_get(node, "patternProperties");
        bool is_listed = own != NULL;
        if (own) add_to(c, &k, own, &is_first);
        for (const cJSON *p = map ? map->child : NULL; p; p = p->next) {
            bool fits = false;
            if (text) fits = matches(c, p->string, text, n);
            for (int j = 0; !text && patterns && j < patterns->count; j++)
                if (!strcmp(patterns->texts[j], p->string)) fits = mask >> j & 1;
            if (!fits) continue;
            add_to(c, &k, p, &is_first);
            is_listed = true;
        }
        const cJSON *others = schema_get(node, "additionalProperties");
        if (!is_listed && others) add_to(c, &k, others, &is_first);
        is_evaluated |= is_listed || others;
    }
    if (!is_evaluated && s->unevaluated_properties) add_to(c, &k, s->unevaluated_properties, &is_first);
    return k;
}

struct conjunction schema_property(struct compiler *c, const struct shape *s, const char *name)
{
    size_t n;
    const char *text = schema_escape(c, name, &n);
    return property_of(c, s, name, text, n, NULL, 0);
}

/* ---- the listed properties ---- */

static void add_property(struct object *o, const char *name)
{
    struct compiler *c = o->c;
    if (o->num_properties == SCHEMA_KEYS_MAX || strlen(name) > SCHEMA_KEY_BYTES_MAX)
        schema_fail(c, STATUS_LIMIT, "an object has more than %d properties or a name of more than %d bytes",
                    SCHEMA_KEYS_MAX, SCHEMA_KEY_BYTES_MAX);
    if (o->num_properties == o->capacity) {
        uint32_t capacity = max_of(2 * o->capacity, 8u);
        struct property *properties = schema_alloc(c, capacity * sizeof *properties);
        if (c->status) return;
        if (o->num_properties > 0) memcpy(properties, o->properties, o->num_properties * sizeof *properties);
        o->properties = properties;
        o->capacity = capacity;
    }
    if (c->status) return;
    struct property *p = &o->properties[o->num_properties++];
    *p = (struct property){.name = name};
    p->text = schema_escape(c, name, &p->num_bytes);
}

static bool name_allowed(struct compiler *c, const struct shape *s, const char *name)
{
    cJSON value = {.type = cJSON_String, .valuestring = (char *)name};
    for (int i = 0; i < s->names.count; i++) {
        struct conjunction k = conjunction_of(c, s->names.nodes[i]);
        if (!schema_accepts(c, &k, &value)) return false;
    }
    return true;
}

/* The property of this name, which is added where there is none. */
static struct property *list_property(struct object *o, const char *name)
{
    uint32_t i = names_find(&o->names, name, strlen(name), o->num_properties);
    if (i == NAMES_FULL) schema_fail(o->c, STATUS_NO_MEMORY, "no memory for the names of an object");
    if (i == o->num_properties) add_property(o, name);
    return o->c->status ? NULL : &o->properties[i];
}

static void list_properties(struct object *o)
{
    const struct shape *s = o->s;
    for (int i = 0; i < s->objects.count; i++) {
        const cJSON *map = schema_get(s->objects.nodes[i], "properties");
        for (const cJSON *p = map ? map->child : NULL; p && !o->c->status; p = p->next)
            (void)list_property(o, p->string);
    }
    for (int i = 0; i < s->required.count && !o->c->status; i++) {
        struct property *p = list_property(o, s->required.nodes[i]->valuestring);
        if (p) p->required = true;
    }
}

/* What propertyNames says of names together. */
static struct shape shape_of_names(struct object *o)
{
    struct shape s;
    struct conjunction k = {0};
    for (int i = 0; i < o->s->names.count; i++) conjunction_add(o->c, &k, o->s->names.nodes[i], false);
    k = conjunction_flatten(o->c, &k);
    shape_read(o->c, &k, &s);
    return s;
}

/* Where propertyNames names them all, the others are listed, too, so that each stands once: in any order, if that can be told
 * and nothing else is listed. False: it does not. */
static bool list_named(struct object *o)
{
    enum { ANY_ORDER_MAX = 32 };
    const uint32_t num_listed = o->num_properties;
    struct shape s = shape_of_names(o);
    if (o->c->status || s.has_choice || !s.has_literals) return false;
    for (int i = 0; i < s.literals.count && !o->c->status; i++) {
        const cJSON *name = s.literals.nodes[i];
        if (cJSON_IsString(name) && schema_literal_fits(o->c, &s, name))
            (void)list_property(o, name->valuestring);
    }
    o->any_order = num_listed == 0 && o->num_properties <= ANY_ORDER_MAX;
    return true;
}

static void list_patterns(struct object *o)
{
    for (int i = 0; i < o->s->objects.count; i++) {
        const cJSON *map = schema_get(o->s->objects.nodes[i], "patternProperties");
        for (const cJSON *p = map ? map->child : NULL; p; p = p->next) {
            int j = 0;
            while (j < o->patterns.count && strcmp(o->patterns.texts[j], p->string) != 0) j++;
            if (j < o->patterns.count) continue;
            if (j == PATTERNS_MAX) {
                schema_fail(o->c, STATUS_LIMIT, "an object has more than %d patternProperties", PATTERNS_MAX);
                return;
            }
            o->patterns.texts[o->patterns.count++] = p->string;
        }
    }
}

/* Values' rules from the first one on; false when a required property cannot be. */
static bool make_values(struct object *o, uint32_t first)
{
    for (uint32_t i = first; i < o->num_properties && !o->c->status; i++) {
        struct property *p = &o->properties[i];
        struct conjunction k = property_of(o->c, o->s, p->name, p->text, p->num_bytes, NULL, 0);
        p->rule = schema_rule(o->c, &k);
        if (p->rule != RULE_NEVER && o->s->names.count > 0 && !name_allowed(o->c, o->s, p->name))
            p->rule = RULE_NEVER;
        if (p->rule == RULE_NEVER && p->required) return false;
    }
    return !o->c->status;
}

/* Whether properties are listed, nothing is said of others, and the listed ones are enough. */
static bool is_closed(const struct object *o, const struct conjunction *k)
{
    bool lists = false;
    uint32_t count = 0;
    if (!o->c->b.closes_objects) return false;
    for (int i = 0; i < k->num_atoms; i++) {
        const cJSON *node = k->atoms[i].negated ? NULL : k->atoms[i].node;
        const cJSON *own = schema_get(node, "properties");
        if (schema_get(node, "additionalProperties") || schema_get(node, "unevaluatedProperties"))
            return false;
        lists |= (own && !schema_is_made(own)) || schema_get(node, "patternProperties");
    }
    for (uint32_t i = 0; i < o->num_properties; i++) count += o->properties[i].rule != RULE_NEVER;
    return lists && (o->patterns.count > 0 || count >= o->s->min_properties);
}

static bool requires(const cJSON *node, const char *name)
{
    const cJSON *required = schema_get(node, "required"), *item;
    cJSON_ArrayForEach(item, required)
    {
        if (cJSON_IsString(item) && !strcmp(item->valuestring, name)) return !schema_is_made(required);
    }
    return false;
}

/* Whether the schema itself lists the property or requires it. */
static bool is_written(const struct conjunction *k, const char *name)
{
    for (int i = 0; i < k->num_atoms; i++) {
        const cJSON *node = k->atoms[i].negated ? NULL : k->atoms[i].node;
        const cJSON *own = schema_get(node, "properties");
        if (requires(node, name) || (own && !schema_is_made(own) && schema_get(own, name))) return true;
    }
    return false;
}

/* Of an object that is closed: a property that is listed by what another schema does not allow alone (schema_not.c), as an
 * alternative of a oneOf that this object is none of, is none of its own. False when it would have to be there. */
static bool drop_those_of_others(struct object *o, const struct conjunction *k)
{
    for (int i = 0; i < k->num_atoms; i++) {
        const cJSON *made = schema_get(k->atoms[i].negated ? NULL : k->atoms[i].node, "properties"), *other;
        if (!made || !schema_is_made(made)) continue;
        cJSON_ArrayForEach(other, made)
        {
            struct property *p = is_written(k, other->string) ? NULL : list_property(o, other->string);
            if (!p || p->rule == RULE_NEVER) continue;
            if (p->required) return false;
            p->rule = RULE_NEVER;
        }
    }
    return true;
}

/* ---- the table ---- */

static uint32_t add_keys(struct object *o, uint32_t n)
{
    uint32_t begin = o->c->b.keys.count;
    return pool_push(&o->c->b.keys, n) ? begin : 0;
}

static void make_table(struct object *o, bool has_extra)
{
    struct builder *b = &o->c->b;
    uint32_t num_keys = 0;
    for (uint32_t i = 0; i < o->num_properties; i++)
        if (o->properties[i].rule != RULE_NEVER) o->properties[i].key = num_keys++;
    uint32_t required = add_keys(o, num_keys + 1), num_required = add_keys(o, num_keys + 1);
    struct key_table *t = pool_push(&b->objects, 1);
    if (builder_status(b) || !t) return;
    uint32_t *keys = b->keys.items, next = num_keys, count = 0, key = num_keys;
    keys[required + num_keys] = num_keys;
    keys[num_required + num_keys] = 0;
    for (uint32_t i = o->num_properties; i-- > 0;) {
        if (o->properties[i].rule == RULE_NEVER) continue;
        key--;
        if (o->properties[i].required) {
            next = key;
            count++;
        }
        keys[required + key] = next;
        keys[num_required + key] = count;
    }
    o->table = b->objects.count - 1;
    *t = (struct key_table){.num_keys = num_keys,
                            .required = required,
                            .num_required = num_required,
                            .min = o->s->min_properties,
                            .max = o->s->max_properties,
                            .has_extra = has_extra,
                            .any_order = o->any_order};
    t->counts = t->max != NO_LIMIT || t->min > count;
    if (t->min > count + 1 && has_extra)
        schema_fail(
            o->c, STATUS_UNSUPPORTED,
            "\"minProperties\" %u is not supported beside properties that are not listed: they could repeat",
            t->min);
}

static struct entry entry_of(const struct object *o, enum entry_kind kind, uint32_t a, uint32_t b)
{
    return (struct entry){.kind = kind, .object = o->table, .a = a, .b = b};
}

/* ---- the tree of names ---- */

static int compare_properties(const void *a, const void *b)
{
    const struct property *x = a, *y = b;
    size_t n = min_of(x->num_bytes, y->num_bytes);
    int order = n ? memcmp(x->text, y->text, n) : 0;
    return order ? order : x->num_bytes < y->num_bytes ? -1 : x->num_bytes > y->num_bytes;
}

static int compare_keys(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* State behind a name: the colon and the value. */
static uint32_t value_state(struct object *o, uint32_t rule, struct entry entry)
{
    struct builder *b = &o->c->b;
    uint32_t colon = builder_state(b, STATE_SPACES), value = builder_state(b, STATE_SPACES);
    builder_set_entry(b, colon, entry);
    builder_set_edge(b, colon, ':', value);
    builder_set_call(b, value, rule, o->behind);
    return colon;
}

/* The keys of properties p[0 .. n - 1], ascending, as a range of the program's keys. */
static struct entry keys_below(struct object *o, const struct property *p, uint32_t n)
{
    uint32_t begin = o->c->b.keys.count, count = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (p[i].rule == RULE_NEVER) continue;
        uint32_t *key = pool_push(&o->c->b.keys, 1);
        if (!key) break;
        *key = p[i].key;
        count++;
    }
    if (count > 1) qsort(pool_items(uint32_t, &o->c->b.keys) + begin, count, sizeof(uint32_t), compare_keys);
    return entry_of(o, o->is_open ? ENTRY_KEYS : ENTRY_LISTED, begin, begin + count);
}

/* How many bytes a character misses behind text[0 .. depth - 1]; the limits of the next one. */
static uint32_t missing_bytes(const char *text, size_t depth, uint8_t *lo, uint8_t *hi)
{
    size_t back = 0;
    while (back < depth && ((unsigned char)text[depth - 1 - back] & 0xC0) == 0x80) back++;
    if (back == depth) return 0;
    uint8_t lead = (uint8_t)text[depth - 1 - back];
    uint32_t length = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
    *lo = back == 0 && lead == 0xE0 ? 0xA0 : back == 0 && lead == 0xF0 ? 0x90 : 0x80;
    *hi = back == 0 && lead == 0xED ? 0x9F : back == 0 && lead == 0xF4 ? 0x8F : 0xBF;
    return length > back ? length - (uint32_t)back : 0;
}

static bool in_escape(const char *text, size_t depth)
{
    size_t slashes = 0;
    while (slashes < depth && text[depth - 1 - slashes] == '\\') slashes++;
    if (slashes & 1) return true;
    for (size_t back = 1; back <= 4 && back < depth; back++) /* within \u00XX */
        if (text[depth - back] == 'u' && in_escape(text, depth - back)) return back < 5;
    return false;
}

/* A state of a name that is not listed, which misses bytes of a character. */
static uint32_t continued(struct object *o, uint32_t missing)
{
    if (missing == 0) return o->extra_body;
    if (o->continued[missing] == STATE_DEAD) {
        uint32_t next = continued(o, missing - 1), s = builder_state(&o->c->b, 0);
        builder_set_edges(&o->c->b, s, &(struct byte_edge){0x80, 0xBF, next}, 1);
        o->continued[missing] = s;
    }
    return o->continued[missing];
}

/* Adds ranges of lo .. hi that no edge has yet (edges ascend and lie within). */
static uint32_t fill_gaps(struct byte_edge *edges, uint32_t n, uint8_t lo, uint8_t hi, uint32_t target)
{
    struct byte_edge out[256];
    uint32_t count = 0;
    int next = lo;
    for (uint32_t i = 0; i < n; i++) {
        if (edges[i].lo > next)
            out[count++] = (struct byte_edge){(uint8_t)next, (uint8_t)(edges[i].lo - 1), target};
        out[count++] = edges[i];
        next = edges[i].hi + 1;
    }
    if (next <= hi) out[count++] = (struct byte_edge){(uint8_t)next, hi, target};
    memcpy(edges, out, count * sizeof *out);
    return count;
}

static uint32_t tree(struct object *o, const struct property *p, uint32_t n, size_t depth, struct entry keys);

static uint32_t tree_edges(struct object *o, const struct property *p, uint32_t n, size_t depth,
                           struct entry keys, struct byte_edge *edges)
{
    uint32_t num_edges = 0, i = 0, quote = o->is_open ? o->extra_end : STATE_DEAD;
    if (p[0].num_bytes == depth) {
        quote = STATE_DEAD;
        if (p[0].rule != RULE_NEVER) quote = value_state(o, p[0].rule, entry_of(o, ENTRY_KEY, p[0].key, 0));
        i = 1;
    }
    bool has_quote = false;
    while (i < n) {
        uint8_t byte = (uint8_t)p[i].text[depth];
        uint32_t begin = i;
        while (i < n && (uint8_t)p[i].text[depth] == byte) i++;
        if (!has_quote && byte > '"') {
            edges[num_edges++] = (struct byte_edge){'"', '"', quote};
            has_quote = true;
        }
        struct entry below = i - begin == n ? keys : keys_below(o, p + begin, i - begin);
        if (o->c->status || builder_status(&o->c->b)) return 0;
        edges[num_edges++] = (struct byte_edge){byte, byte, tree(o, p + begin, i - begin, depth + 1, below)};
    }
    if (!has_quote) edges[num_edges++] = (struct byte_edge){'"', '"', quote};
    return num_edges;
}

/* The state behind the first depth bytes of p[0 .. n - 1], which share them. */
static uint32_t tree(struct object *o, const struct property *p, uint32_t n, size_t depth, struct entry keys)
{
    struct builder *b = &o->c->b;
    struct byte_edge edges[258];
    uint8_t lo, hi;
    uint32_t missing = missing_bytes(p[0].text, depth, &lo, &hi), num_edges;
    bool within = missing > 0 || in_escape(p[0].text, depth);
    if (keys.a == keys.b && !o->is_open) return STATE_DEAD;
    if (within) {
        num_edges = 0;
        for (uint32_t i = 0, begin; i < n;) {
            uint8_t byte = (uint8_t)p[i].text[depth];
            for (begin = i; i < n && (uint8_t)p[i].text[depth] == byte;) i++;
            struct entry below = i - begin == n ? keys : keys_below(o, p + begin, i - begin);
            edges[num_edges++] =
                (struct byte_edge){byte, byte, tree(o, p + begin, i - begin, depth + 1, below)};
        }
        if (missing > 0 && o->is_open)
            num_edges = fill_gaps(edges, num_edges, lo, hi, continued(o, missing - 1));
    } else {
        num_edges = tree_edges(o, p, n, depth, keys, edges);
    }
    uint32_t s = builder_state(b, 0);
    builder_set_edges(b, s, edges, num_edges);
    builder_set_entry(b, s, keys);
    if (!within && o->is_open)
        builder_set_loop(b, s, (struct char_loop){CLASS_CANONICAL, false, o->extra_body, 0, 0});
    return s;
}

/* ---- the other properties ---- */

/* Names do not matter: a body that any character leads into. */
static void make_open_names(struct object *o)
{
    struct conjunction k = property_of(o->c, o->s, NULL, NULL, 0, &o->patterns, 0);
    o->extra_rule = schema_rule(o->c, &k);
    if (o->extra_rule == RULE_NEVER || o->c->status) return;
    o->is_open = true;
}

static void make_open_states(struct object *o)
{
    struct builder *b = &o->c->b;
    if (!o->is_open) return;
    o->extra_end = value_state(o, o->extra_rule, entry_of(o, ENTRY_EXTRA_KEY, 0, 0));
    o->extra_body = builder_state(b, 0);
    builder_set_edge(b, o->extra_body, '"', o->extra_end);
    builder_set_entry(b, o->extra_body, entry_of(o, ENTRY_EXTRA, 0, 0));
    builder_set_loop(b, o->extra_body, (struct char_loop){CLASS_ANY, false, o->extra_body, 0, 0});
}

/* Which patterns a name matches (bit i of the label's number), of names that are allowed and not listed. */
struct name_labels {
    int num_patterns;
    bool has_listed; /* the last part: names that are listed */
    uint32_t *masks; /* masks[label - 1] */
    uint32_t num_masks;
};

enum { MASKS_MAX = 256 };

static uint32_t label_names(const uint32_t *labels, int num_parts, const void *context)
{
    struct name_labels *l = (struct name_labels *)context;
    uint32_t mask = 0, i = 0;
    if (!labels[0] || (l->has_listed && labels[num_parts - 1])) return 0;
    for (int p = 0; p < l->num_patterns; p++)
        if (labels[1 + p]) mask |= 1u << p;
    while (i < l->num_masks && l->masks[i] != mask) i++;
    if (i == MASKS_MAX) return MASKS_MAX + 1; /* too many: found out by the caller */
    if (i == l->num_masks) l->masks[l->num_masks++] = mask;
    return i + 1;
}

static void listed_dfa(struct object *o, struct dfa *out)
{
    const char **texts = schema_alloc(o->c, (o->num_properties + 1) * sizeof *texts);
    size_t *sizes = schema_alloc(o->c, (o->num_properties + 1) * sizeof *sizes);
    if (o->c->status) return;
    for (uint32_t i = 0; i < o->num_properties; i++) {
        texts[i] = o->properties[i].text;
        sizes[i] = o->properties[i].num_bytes;
    }
    if (text_dfa_of(texts, sizes, (int)o->num_properties, out))
        schema_fail(o->c, STATUS_LIMIT, "an object has too many properties beside patterns");
}

/* What propertyNames allows, or any text. */
static void names_dfa(struct object *o, struct dfa *out)
{
    struct shape s = shape_of_names(o);
    if (o->c->status) return;
    if (s.has_choice)
        schema_fail(o->c, STATUS_UNSUPPORTED,
                    "\"propertyNames\" at %s is not supported with anyOf, oneOf, not or if",
                    schema_path(o->c, o->s->names.nodes[0]));
    else if (s.has_literals || !(s.types & TYPE_STRING))
        schema_literal_names_dfa(o->c, &s, out);
    else
        (void)schema_string_dfa(o->c, &s, out);
}

/* The automaton of the other names, its accepting states labelled; false: there are none. */
static bool make_names(struct object *o, struct name_labels *labels, struct dfa *out)
{
    const struct dfa *parts[DFA_PARTS_MAX];
    struct dfa allowed = {0}, listed = {0};
    int n = 0;
    names_dfa(o, &allowed);
    parts[n++] = &allowed;
    for (int i = 0; i < o->patterns.count && !o->c->status; i++)
        parts[n++] = schema_regex(o->c, &(struct pattern){.text = o->patterns.texts[i]});
    if (o->num_properties > 0 && !o->c->status) {
        listed_dfa(o, &listed);
        parts[n++] = &listed;
    }
    labels->num_patterns = o->patterns.count;
    labels->has_listed = o->num_properties > 0;
    if (!o->c->status) {
        int status = dfa_product(parts, n, label_names, labels, out, o->c->err);
        if (status) o->c->status = status;
    }
    dfa_deinit(&allowed);
    dfa_deinit(&listed);
    return !o->c->status && out->start != DFA_DEAD;
}

struct named_extras {
    struct dfa dfa;
    uint32_t masks[MASKS_MAX + 1], rules[MASKS_MAX + 1];
    bool has_any;
};

/* Rules of the other properties by which patterns they match; names that lead to none are taken away. */
static void make_named_extras(struct object *o, struct named_extras *e)
{
    struct name_labels labels = {.masks = e->masks};
    if (!make_names(o, &labels, &e->dfa)) return;
    for (uint32_t i = 0; i < labels.num_masks && !o->c->status; i++) {
        if (o->is_closed && e->masks[i] == 0) continue; /* RULE_NEVER */
        struct conjunction k = property_of(o->c, o->s, NULL, NULL, 0, &o->patterns, e->masks[i]);
        e->rules[i] = schema_rule(o->c, &k);
        e->has_any |= e->rules[i] != RULE_NEVER;
    }
    for (uint32_t s = 0; s < e->dfa.num_states && !o->c->status; s++) {
        if (e->dfa.labels[s] > MASKS_MAX)
            schema_fail(o->c, STATUS_LIMIT, "the patternProperties of an object overlap in too many ways");
        else if (e->dfa.labels[s] && e->rules[e->dfa.labels[s] - 1] == RULE_NEVER)
            e->dfa.labels[s] = 0;
    }
    if (!o->c->status && dfa_trim(&e->dfa)) schema_fail(o->c, STATUS_NO_MEMORY, "no memory for an object");
    if (e->dfa.start == DFA_DEAD) e->has_any = false;
}

static uint32_t named_state(struct object *o, struct named_extras *e)
{
    uint32_t exits[MASKS_MAX + 1] = {0};
    for (uint32_t i = 0; i < MASKS_MAX; i++)
        if (e->rules[i] != RULE_NEVER)
            exits[i + 1] = value_state(o, e->rules[i], entry_of(o, ENTRY_EXTRA_KEY, 0, 0));
    uint32_t start = builder_dfa(&o->c->b, &e->dfa, '"', exits, MASKS_MAX + 1),
             guard = builder_state(&o->c->b, 0);
    builder_set_call(&o->c->b, guard, RULE_EMPTY, start);
    builder_set_entry(&o->c->b, guard, entry_of(o, ENTRY_EXTRA, 0, 0));
    return guard;
}

/* ---- the object ---- */

/* The state behind the quote that opens a name. */
static uint32_t name_state(struct object *o, struct named_extras *e, struct entry all)
{
    struct builder *b = &o->c->b;
    uint32_t listed = STATE_DEAD;
    if (o->num_properties > 0) {
        qsort(o->properties, o->num_properties, sizeof *o->properties, compare_properties);
        listed = tree(o, o->properties, o->num_properties, 0, all);
    } else if (o->is_open) {
        listed = o->extra_body;
    }
    if (!e->has_any) return listed;
    uint32_t named = named_state(o, e);
    if (listed == STATE_DEAD) return named;
    uint32_t s = builder_state(b, 0);
    const struct rule_call calls[] = {{RULE_EMPTY, listed}, {RULE_EMPTY, named}};
    all.kind = ENTRY_KEYS;
    builder_set_calls(b, s, calls, 2);
    builder_set_entry(b, s, all);
    return s;
}

/* The rules of required values, for whoever asks whether the object can be finished. */
static void list_values(struct object *o)
{
    uint32_t begin = o->c->b.keys.count, count = 0;
    for (uint32_t i = 0; i < o->num_properties; i++) {
        uint32_t *value = o->properties[i].required ? pool_push(&o->c->b.keys, 1) : NULL;
        if (!value) continue;
        *value = o->properties[i].rule;
        count++;
    }
    if (builder_status(&o->c->b)) return;
    struct key_table *t = pool_items(struct key_table, &o->c->b.objects) + o->table;
    t->values = begin;
    t->num_values = count;
}

static uint32_t object_states(struct object *o, struct named_extras *e)
{
    struct builder *b = &o->c->b;
    bool has_extra = o->is_open || e->has_any;
    make_table(o, has_extra);
    if (o->c->status || builder_status(b)) return STATE_DEAD;
    const struct key_table *t = pool_items(struct key_table, &b->objects) + o->table;
    if (pool_items(uint32_t, &b->keys)[t->num_required] > t->max || t->min > t->max) return STATE_DEAD;
    if (!has_extra && t->min > t->num_keys) return STATE_DEAD;
    uint32_t close = builder_final_if(b, entry_of(o, ENTRY_CLOSE, 0, 0)),
             open = builder_state(b, STATE_SPACES);
    if (!has_extra && t->num_keys == 0) { /* no state is left that nothing leads out of */
        builder_set_edge(b, open, '}', close);
        return builder_text(b, "{", 1, open);
    }
    uint32_t next = builder_state(b, STATE_SPACES);
    o->behind = builder_state(b, STATE_SPACES);
    make_open_states(o);
    struct entry all = keys_below(o, o->properties, o->num_properties);
    uint32_t name = name_state(o, e, all);
    all.kind = has_extra ? ENTRY_KEYS : ENTRY_LISTED;
    list_values(o);
    const struct byte_edge first[] = {{'"', '"', name}, {'}', '}', close}};
    const struct byte_edge behind[] = {{',', ',', next}, {'}', '}', close}};
    builder_set_edges(b, open, first, 2);
    builder_set_edges(b, o->behind, behind, 2);
    builder_set_edge(b, next, '"', name);
    builder_set_entry(b, next, all);
    return builder_text(b, "{", 1, open);
}

/* The properties that are not listed. */
static void make_others(struct object *o, struct named_extras *e)
{
    const uint32_t num_listed = o->num_properties;
    bool has_names = o->s->names.count > 0 && !o->is_closed;
    if (has_names && list_named(o))
        (void)make_values(o, num_listed);
    else if (o->patterns.count > 0 || has_names)
        make_named_extras(o, e);
    else if (!o->is_closed)
        make_open_names(o);
}

uint32_t schema_object_state(struct compiler *c, const struct conjunction *k, const struct shape *s)
{
    struct object o = {.c = c, .s = s};
    struct named_extras e = {0};
    uint32_t state = STATE_DEAD;
    if (s->objects.count == 0 && s->required.count == 0 && s->names.count == 0 && s->min_properties <= 1 &&
        s->max_properties == NO_LIMIT && !s->unevaluated_properties && s->min_properties == 0) {
        (void)schema_any_rule(c);
        return builder_status(&c->b) ? STATE_DEAD : pool_items(struct rule, &c->b.rules)[c->any.object].start;
    }
    names_init(&o.names, SCHEMA_KEYS_MAX + 1);
    list_properties(&o);
    list_patterns(&o);
    if (!c->status && make_values(&o, 0)) {
        o.is_closed = is_closed(&o, k);
        bool can_be = !o.is_closed || drop_those_of_others(&o, k);
        if (can_be) make_others(&o, &e);
        if (can_be && !c->status) state = object_states(&o, &e);
    }
    names_deinit(&o.names);
    dfa_deinit(&e.dfa);
    return state;
}
