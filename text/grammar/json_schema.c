#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "text/grammar/schema.h"

enum { SLOTS_MIN = 1024, ENTRIES_A_SLOT = 2, SLOTS_GROWTH = 8 };

/* A conjunction that has a rule; is_open: its states are being made. */
struct memo {
    struct schema_entry entry;
    struct conjunction k;
    uint32_t rule;
    bool is_open;
};

/* ---- failures and memory ---- */

int schema_fail(struct compiler *c, int status, const char *format, ...)
{
    va_list args;
    char text[sizeof((struct error){0}.text)];
    if (c->status) return c->status;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    c->status = status;
    return error_set(c->err, status, "%s", text);
}

void *schema_alloc(struct compiler *c, size_t bytes)
{
    static _Thread_local char scratch[4096];
    void *memory = arena_alloc(&c->arena, bytes);
    if (memory) return memory;
    schema_fail(c, STATUS_LIMIT, "the schema needs more memory to compile than %d MiB%s",
                SCHEMA_ARENA_BYTES >> 20,
                c->negated ? "; much of it must be told apart for oneOf, not or if" : "");
    return scratch;
}

const cJSON *schema_get(const cJSON *object, const char *key)
{
    if (!cJSON_IsObject(object)) return NULL;
    for (const cJSON *k = object->child; k; k = k->next)
        if (k->string[0] == key[0] && !strcmp(k->string, key)) return k;
    return NULL;
}

void schema_list_add(struct compiler *c, struct schema_list *l, const cJSON *node)
{
    if (l->count > 0 && l->nodes[l->count - 1] == node) return;
    if (l->count == l->capacity) {
        int capacity = max_of(2 * l->capacity, 4);
        const cJSON **nodes = schema_alloc(c, (size_t)capacity * sizeof *nodes);
        if (c->status) return;
        if (l->count > 0) memcpy(nodes, l->nodes, (size_t)l->count * sizeof *nodes);
        l->nodes = nodes;
        l->capacity = capacity;
    }
    l->nodes[l->count++] = node;
}

struct schema_entry *schema_table_find(const struct schema_table *t, uint32_t hash)
{
    return t->slots ? t->slots[hash % t->num_slots] : NULL;
}

static void grow_table(struct compiler *c, struct schema_table *t)
{
    uint32_t num_slots = t->slots ? t->num_slots * SLOTS_GROWTH : SLOTS_MIN;
    struct schema_entry **slots = schema_alloc(c, num_slots * sizeof *slots);
    if (c->status) return;
    for (uint32_t i = 0; i < t->num_slots; i++) {
        for (struct schema_entry *e = t->slots[i], *next; e; e = next) {
            next = e->next;
            e->next = slots[e->hash % num_slots];
            slots[e->hash % num_slots] = e;
        }
    }
    t->slots = slots;
    t->num_slots = num_slots;
}

void schema_table_add(struct compiler *c, struct schema_table *t, struct schema_entry *entry)
{
    if (t->count++ >= ENTRIES_A_SLOT * t->num_slots) grow_table(c, t);
    if (c->status) return;
    struct schema_entry **slot = &t->slots[entry->hash % t->num_slots];
    entry->next = *slot;
    *slot = entry;
}

/* ---- where a node stands ---- */

static bool find_path(const cJSON *node, const cJSON *wanted, char *path, size_t n, size_t max, int depth)
{
    path[n] = '\0';
    if (node == wanted) return true;
    int index = 0;
    for (const cJSON *k = node->child; k && depth > 0; k = k->next, index++) {
        int length = k->string ? snprintf(path + n, max - n, "/%s", k->string)
                               : snprintf(path + n, max - n, "/%d", index);
        if (length < 0 || (size_t)length >= max - n) continue;
        if (find_path(k, wanted, path, n + (size_t)length, max, depth - 1)) return true;
    }
    return false;
}

const char *schema_path(struct compiler *c, const cJSON *node)
{
    enum { PATH_MAX_BYTES = 200, PATH_DEPTH = 64 };
    char *path = schema_alloc(c, PATH_MAX_BYTES + 1);
    path[0] = '#';
    if (!find_path(c->root, node, path, 1, PATH_MAX_BYTES, PATH_DEPTH)) return "a part of the schema";
    return path[1] ? path : "the top";
}

/* ---- rules ---- */

static uint32_t hash_conjunction(const struct conjunction *k)
{
    uint64_t h = (uint64_t)(uintptr_t)k->origin *
                 0x9E3779B97F4A7C15u; /* often the only atom's node: ^ would leave nothing */
    for (int i = 0; i < k->num_atoms; i++)
        h = (h ^ ((uint64_t)(uintptr_t)k->atoms[i].node + k->atoms[i].done * 2u + k->atoms[i].negated)) *
            0x9E3779B97F4A7C15u;
    return (uint32_t)(h >> 32);
}

static struct memo *find_memo(struct compiler *c, const struct conjunction *k, bool *is_new)
{
    uint32_t hash = hash_conjunction(k);
    *is_new = false;
    for (struct schema_entry *e = schema_table_find(&c->memos, hash); e; e = e->next) {
        struct memo *known = (struct memo *)e;
        if (e->hash == hash && conjunction_equal(&known->k, k)) return known;
    }
    struct memo *m = schema_alloc(c, sizeof *m);
    if (c->status) return NULL;
    *m = (struct memo){.entry.hash = hash, .k = *k, .rule = builder_rule(&c->b), .is_open = true};
    schema_table_add(c, &c->memos, &m->entry);
    *is_new = true;
    return m;
}

struct calls {
    struct pool items; /* of struct rule_call, all tail calls */
};

static void add_call(struct calls *l, uint32_t rule)
{
    struct rule_call *calls = l->items.items;
    if (rule == RULE_NEVER) return;
    for (uint32_t i = 0; i < l->items.count; i++)
        if (calls[i].rule == rule) return;
    struct rule_call *call = pool_push(&l->items, 1);
    if (call) *call = (struct rule_call){rule, BUILDER_FINAL};
}

static void add_state(struct compiler *c, struct calls *l, uint32_t state)
{
    if (state == STATE_DEAD || c->status) return;
    uint32_t rule = builder_rule(&c->b);
    builder_set_start(&c->b, rule, state);
    add_call(l, rule);
}

/* A state that is one of the rules. */
static uint32_t choose(struct compiler *c, struct calls *l)
{
    uint32_t start = STATE_DEAD;
    const struct rule_call *calls = l->items.items;
    if (l->items.status) schema_fail(c, STATUS_LIMIT, "a value has too many alternatives");
    const struct rule *rules = c->b.rules.items;
    if (l->items.count == 1 && rules[calls[0].rule].start != STATE_DEAD) {
        start = rules[calls[0].rule].start;
    } else if (l->items.count > 0) {
        start = builder_state(&c->b, 0);
        builder_set_calls(&c->b, start, calls, l->items.count);
    }
    pool_deinit(&l->items);
    return start;
}

static uint32_t choice_state(struct compiler *c, const struct shape *s)
{
    struct calls calls;
    const struct conjunction rest = conjunction_flatten(c, &s->rest);
    pool_init(&calls.items, sizeof(struct rule_call), UINT16_MAX);
    for (int i = 0; i < s->alternatives.count && !c->status; i++) {
        const struct conjunction *more = &s->alternatives.items[i];
        struct conjunction flat = rest;
        if (i > 0) c->work += s->rest.num_atoms;
        if (flat.num_atoms == 0) flat.origin = more->origin;
        const cJSON *origin = flat.origin;
        for (int j = 0; j < more->num_atoms; j++)
            conjunction_add(c, &flat, more->atoms[j].node, more->atoms[j].negated);
        flat.origin = origin;
        add_call(&calls, schema_rule(c, &flat));
    }
    return choose(c, &calls);
}

static uint32_t word_state(struct compiler *c, const char *word)
{
    return builder_text(&c->b, word, strlen(word), BUILDER_FINAL);
}

/* What not, if and oneOf rule out is put in words of our own, which would count as evaluated. */
static void refuse_unevaluated_beside_not(struct compiler *c, const struct conjunction *k,
                                          const struct shape *s)
{
    const cJSON *keyword = s->unevaluated_properties ? s->unevaluated_properties : s->unevaluated_items;
    for (int i = 0; keyword && i < k->num_atoms; i++)
        if (k->atoms[i].negated || k->atoms[i].done & (CHOICE_NOT | CHOICE_IF))
            schema_fail(c, STATUS_UNSUPPORTED, "\"%s\" at %s is not supported beside not, if or oneOf",
                        keyword->string, schema_path(c, keyword));
}

/* An empty array or object is one that has too few; of others nothing can be said but that they have too few or too many. */
static void exclude_whole(struct compiler *c, struct shape *s, const cJSON *value)
{
    bool is_array = cJSON_IsArray(value);
    uint32_t *least = is_array ? &s->min_items : &s->min_properties,
             size = (uint32_t)cJSON_GetArraySize(value);
    if (cJSON_IsNull(value)) s->types &= ~(unsigned)TYPE_NULL;
    if (!(s->types & (is_array ? TYPE_ARRAY : TYPE_OBJECT)) || (!is_array && !cJSON_IsObject(value))) return;
    if (size == 0)
        *least = max_of(*least, 1u);
    else if (size >= *least && size <= (is_array ? s->max_items : s->max_properties))
        schema_fail(c, STATUS_UNSUPPORTED, "not of an array or an object as a whole (%s) is not supported",
                    schema_path(c, value));
}

static uint32_t shape_state(struct compiler *c, const struct conjunction *k, struct shape *s)
{
    struct calls calls;
    if (s->has_choice) return choice_state(c, s);
    refuse_unevaluated_beside_not(c, k, s);
    if (s->has_literals) return schema_literals_state(c, s);
    pool_init(&calls.items, sizeof(struct rule_call), UINT16_MAX);
    for (int i = 0; i < s->excluded.count; i++) exclude_whole(c, s, s->excluded.nodes[i]);
    if (s->types & TYPE_NULL) add_state(c, &calls, word_state(c, "null"));
    if (s->types & TYPE_BOOLEAN) {
        bool no_true = false, no_false = false;
        for (int i = 0; i < s->excluded.count; i++) {
            no_true |= cJSON_IsTrue(s->excluded.nodes[i]);
            no_false |= cJSON_IsFalse(s->excluded.nodes[i]);
        }
        if (!no_true) add_state(c, &calls, word_state(c, "true"));
        if (!no_false) add_state(c, &calls, word_state(c, "false"));
    }
    if (s->types & TYPE_NUMBER) add_state(c, &calls, schema_number_state(c, s));
    if (s->types & TYPE_STRING) add_state(c, &calls, schema_string_state(c, s));
    if (s->types & TYPE_ARRAY) add_state(c, &calls, schema_array_state(c, k, s));
    if (s->types & TYPE_OBJECT) add_state(c, &calls, schema_object_state(c, k, s));
    return choose(c, &calls);
}

uint32_t schema_any_rule(struct compiler *c)
{
    if (c->any.value == RULE_NEVER) {
        c->any = json_any_rules(&c->b);
    }
    return c->any.value;
}

uint32_t schema_rule(struct compiler *c, const struct conjunction *from)
{
    struct shape s;
    bool is_new;
    if (c->status) return RULE_NEVER;
    struct conjunction k = conjunction_flatten(c, from);
    if (k.num_atoms == 0) return schema_any_rule(c);
    if (conjunction_is_never(&k)) return RULE_NEVER;
    struct memo *m = find_memo(c, &k, &is_new);
    if (!m) return RULE_NEVER;
    if (!is_new) {
        if (m->is_open) c->b.is_recursive = true;
        return m->rule;
    }
    if (++c->depth > SCHEMA_DEPTH_MAX) schema_fail(c, STATUS_LIMIT, "the schema is nested too deeply");
    shape_read(c, &k, &s);
    uint32_t rule = m->rule, start = c->status ? STATE_DEAD : shape_state(c, &k, &s);
    c->depth--;
    m->is_open = false;
    builder_set_start(&c->b, rule, start);
    if (start == STATE_DEAD) m->rule = RULE_NEVER;
    return m->rule;
}

/* ---- the whole ---- */

static int finish(struct compiler *c, uint32_t rule, struct grammar **out)
{
    if (c->status) return c->status;
    int status = builder_status(&c->b);
    if (status == 0 && rule == RULE_NEVER && c->leaves_out)
        return schema_fail(c, STATUS_UNSUPPORTED,
                           "what not, oneOf or if leave of the schema cannot be expressed");
    if (status == 0 && rule == RULE_NEVER)
        return schema_fail(c, STATUS_INVALID, "no value fulfils the schema");
    return builder_finish(&c->b, rule, false, out, c->err);
}

/* b is the compiler's until release_compiler. */
static void init_compiler(struct compiler *c, const struct builder *b, const cJSON *schema, struct error *err)
{
    *c = (struct compiler){.root = schema, .err = err, .b = *b};
    arena_init(&c->arena, SCHEMA_ARENA_BYTES);
}

static void start_compiler(struct compiler *c, const cJSON *schema, const struct grammar_options *options,
                           struct error *err)
{
    struct builder b;
    int status = builder_init_for(&b, options, err);
    json_add_classes(&b);
    init_compiler(c, &b, schema, err);
    if (status) c->status = status;
}

/* All but the builder. */
static void release_compiler(struct compiler *c)
{
    schema_free_regexes(c);
    schema_free_resources(c);
    arena_deinit(&c->arena);
}

static void deinit_compiler(struct compiler *c)
{
    release_compiler(c);
    builder_deinit(&c->b);
}

static uint32_t compile_root(struct compiler *c, const cJSON *schema)
{
    struct conjunction k = conjunction_of(c, schema);
    if (!cJSON_IsBool(schema) && !cJSON_IsObject(schema))
        schema_fail(c, STATUS_INVALID, "a schema must be an object or a boolean");
    return schema_rule(c, &k);
}

int schema_compile_into(struct builder *b, const cJSON *schema, uint32_t *rule, struct error *err)
{
    struct compiler c;
    init_compiler(&c, b, schema, err);
    *rule = compile_root(&c, schema);
    if (*rule == RULE_NEVER && !builder_status(&c.b)) /* else its failure is told when it finishes */
        schema_fail(&c, STATUS_INVALID, "no value fulfils the schema");
    c.b.schema_work -= min_of(c.work, c.b.schema_work);
    *b = c.b;
    release_compiler(&c);
    return c.status;
}

int grammar_from_json_schema(const cJSON *schema, const struct grammar_options *options, struct grammar **out,
                             struct error *err)
{
    struct compiler c;
    *out = NULL;
    start_compiler(&c, schema, options, err);
    uint32_t rule = compile_root(&c, schema);
    int status = finish(&c, rule, out);
    deinit_compiler(&c);
    return status;
}

int grammar_from_json_object(const struct grammar_options *options, struct grammar **out, struct error *err)
{
    struct compiler c;
    *out = NULL;
    start_compiler(&c, NULL, options, err);
    (void)schema_any_rule(&c);
    int status = finish(&c, c.any.object, out);
    deinit_compiler(&c);
    return status;
}
