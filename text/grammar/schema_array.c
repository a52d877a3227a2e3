#include <string.h>

#include "base/check.h"
#include "text/grammar/schema.h"

enum { PREFIX_MAX = 2000, CONTAINS_MAX = 64, CONTAINS_KINDS_MAX = 3 };

/* Whether items of this node is a list, as up to draft 2019-09. */
static const cJSON *prefix_of(const cJSON *node)
{
    const cJSON *prefix = schema_get(node, "prefixItems"), *items = schema_get(node, "items");
    return prefix ? prefix : cJSON_IsArray(items) ? items : NULL;
}

static const cJSON *rest_of(const cJSON *node)
{
    const cJSON *items = schema_get(node, "items");
    return cJSON_IsArray(items) ? schema_get(node, "additionalItems") : items;
}

/* What the element at index must fulfil. */
struct conjunction schema_element(struct compiler *c, const struct shape *s, int index)
{
    struct conjunction k = {0};
    bool is_first = true, is_evaluated = false;
    for (int i = 0; i < s->arrays.count; i++) {
        const cJSON *node = s->arrays.nodes[i], *prefix = prefix_of(node);
        const cJSON *own =
            prefix && index < cJSON_GetArraySize(prefix) ? cJSON_GetArrayItem(prefix, index) : rest_of(node);
        if (!own) continue;
        is_evaluated = true;
        if (is_first) k = conjunction_of(c, own);
        if (!is_first) conjunction_add(c, &k, own, false);
        is_first = false;
    }
    if (!is_evaluated && s->unevaluated_items) k = conjunction_of(c, s->unevaluated_items);
    return k;
}

static int prefix_length(const struct shape *s)
{
    int n = 0;
    for (int i = 0; i < s->arrays.count; i++) {
        const cJSON *prefix = prefix_of(s->arrays.nodes[i]);
        if (prefix) n = max_of(n, cJSON_GetArraySize(prefix));
    }
    return n;
}

bool schema_has_prefix(const struct shape *s)
{
    return prefix_length(s) > 0;
}

struct array {
    struct compiler *c;
    const struct shape *s;
    uint32_t rest; /* the rule of the elements behind the prefix */
    uint32_t num_prefix;
    uint32_t min, max;
    unsigned unique; /* flags of states between elements that differ */
};

/* The elements behind the prefix: counted, so that their number costs no states. Writes where a first such
 * element would begin and returns where one comes behind a comma. */
static uint32_t rest_states(struct array *a, uint32_t close, uint32_t *first)
{
    struct builder *b = &a->c->b;
    uint32_t behind = builder_state(b, STATE_SPACES | a->unique),
             next = builder_state(b, STATE_SPACES | a->unique);
    uint32_t least = a->min > a->num_prefix ? a->min - a->num_prefix : 0;
    uint32_t most = a->max == NO_LIMIT ? NO_LIMIT : a->max - a->num_prefix;
    const struct entry counts = {.kind = ENTRY_COUNT,
                                 .a = most,
                                 .b = most == NO_LIMIT ? least : most}; /* no further than it matters */
    if (least > 0) close = builder_final_if(b, (struct entry){.kind = ENTRY_AT_LEAST, .a = least});
    const struct byte_edge edges[] = {{',', ',', next}, {']', ']', close}};
    builder_set_edges(b, behind, edges, 2);
    builder_set_call(b, next, a->rest, behind);
    builder_set_entry(b, next, counts);
    *first = next;
    return next;
}

/* States from the last element of the prefix to the first. */
static uint32_t array_states(struct array *a, const uint32_t *prefix_rules)
{
    struct builder *b = &a->c->b;
    uint32_t next = STATE_DEAD, first_rest = STATE_DEAD;
    bool has_rest = a->rest != RULE_NEVER && a->max > a->num_prefix;
    if (has_rest) next = rest_states(a, BUILDER_FINAL, &first_rest);
    for (uint32_t i = a->num_prefix; i-- > 0;) {
        uint32_t behind = builder_state(b, STATE_SPACES), value = builder_state(b, STATE_SPACES), n = 0;
        struct byte_edge edges[2];
        if (next != STATE_DEAD) edges[n++] = (struct byte_edge){',', ',', next};
        if (i + 1 >= a->min) edges[n++] = (struct byte_edge){']', ']', BUILDER_FINAL};
        builder_set_edges(b, behind, edges, n);
        builder_set_call(b, value, prefix_rules[i], behind);
        if (n > 0) next = value;
        first_rest = STATE_DEAD;
    }
    uint32_t open = builder_state(b, STATE_SPACES | a->unique);
    if (a->min == 0) builder_set_edge(b, open, ']', BUILDER_FINAL);
    if (a->num_prefix > 0 && next != STATE_DEAD)
        builder_set_call(b, open, RULE_EMPTY, next);
    else if (has_rest)
        builder_set_call(b, open, RULE_EMPTY, first_rest);
    else if (a->min > 0)
        return STATE_DEAD;
    return builder_text(b, "[", 1, open);
}

uint32_t schema_unlike_state(struct compiler *c, const struct shape *s, uint32_t rule, unsigned unique)
{
    struct array a = {
        .c = c, .s = s, .rest = rule, .min = s->min_items, .max = s->max_items, .unique = unique};
    if (a.rest == RULE_NEVER) a.max = 0;
    return a.min > a.max || c->status ? STATE_DEAD : array_states(&a, NULL);
}

/* ---- contains ---- */

/* Some elements, anywhere, fulfil more than the others. How many were found is which step of a chain an answer
 * is on; how many elements there were is the counter. A step is taken only where the elements that are still
 * needed have room. */
struct contains {
    struct array *a;
    uint32_t other, special; /* rules: of any element (with a limit: of one that is not to be counted) */
    uint32_t min_found, max_found; /* max_found NO_LIMIT: those beyond min_found are like the others */
};

static uint32_t count_limit(const cJSON *keyword, uint32_t otherwise)
{
    return cJSON_IsNumber(keyword) ? (uint32_t)min_of(max_of(keyword->valuedouble, 0.0), 1e9) : otherwise;
}

static void refuse_contains(struct array *a, const cJSON *node)
{
    schema_fail(
        a->c, STATUS_UNSUPPORTED,
        "\"contains\" at %s is not supported beside prefixItems or unevaluatedItems, with limits above %d, "
        "nor among more than %d or with minContains or maxContains among several",
        schema_path(a->c, node), CONTAINS_MAX, CONTAINS_KINDS_MAX);
}

static void read_contains(struct contains *k)
{
    struct compiler *c = k->a->c;
    const cJSON *node = k->a->s->contains.nodes[0], *own = schema_get(node, "contains");
    struct conjunction other = schema_element(c, k->a->s, 0), special = other;
    k->min_found = count_limit(schema_get(node, "minContains"), 1);
    k->max_found = count_limit(schema_get(node, "maxContains"), NO_LIMIT);
    if (k->min_found > CONTAINS_MAX || schema_has_prefix(k->a->s) ||
        (k->max_found > CONTAINS_MAX && k->max_found != NO_LIMIT) || k->a->s->unevaluated_items)
        refuse_contains(k->a, node);
    if (special.num_atoms == 0)
        special = conjunction_of(c, own);
    else
        conjunction_add(c, &special, own, false);
    if (k->max_found != NO_LIMIT) conjunction_add(c, &other, own, true);
    k->special = schema_rule(c, &special);
    k->other = schema_rule(c, &other);
}

/* An element of a rule, as the first to most-th of the array, and then behind. */
static struct rule_call element_call(struct array *a, uint32_t rule, uint32_t most, uint32_t behind)
{
    struct builder *b = &a->c->b;
    uint32_t state = builder_state(b, STATE_SPACES), least = a->min;
    builder_set_call(b, state, rule, behind);
    builder_set_entry(b, state,
                      (struct entry){.kind = ENTRY_COUNT, .a = most, .b = most == NO_LIMIT ? least : most});
    return (struct rule_call){RULE_EMPTY, state};
}

/* Behind an element, when as many as wanted may have been found. */
static uint32_t closing_state(struct array *a)
{
    struct entry enough = {.kind = ENTRY_AT_LEAST, .a = a->min};
    return a->min > 0 ? builder_final_if(&a->c->b, enough) : BUILDER_FINAL;
}

/* One step: found so many; the states behind an element and where the next one begins. */
static void contains_step(struct contains *k, uint32_t found, uint32_t last, uint32_t *behind,
                          uint32_t *value)
{
    struct builder *b = &k->a->c->b;
    uint32_t missing = found < k->min_found ? k->min_found - found : 0, n = 0, later = *behind;
    uint32_t most = k->a->max == NO_LIMIT ? NO_LIMIT : k->a->max - missing;
    struct rule_call calls[2];
    *behind = builder_state(b, STATE_SPACES);
    *value = builder_state(b, STATE_SPACES);
    if (k->other != RULE_NEVER) calls[n++] = element_call(k->a, k->other, most, *behind);
    if (found < last) calls[n++] = element_call(k->a, k->special, k->a->max, later);
    builder_set_calls(b, *value, calls, n);
    struct byte_edge edges[2];
    uint32_t num_edges = 0;
    if (n > 0) edges[num_edges++] = (struct byte_edge){',', ',', *value};
    if (missing == 0) edges[num_edges++] = (struct byte_edge){']', ']', closing_state(k->a)};
    builder_set_edges(b, *behind, edges, num_edges);
    if (missing == 0) /* a comma only where an element may follow */
        builder_set_entry(b, *value, (struct entry){.kind = ENTRY_BELOW, .a = k->a->max});
}

static uint32_t contains_state(struct array *a)
{
    struct contains k = {.a = a};
    struct builder *b = &a->c->b;
    uint32_t behind = STATE_DEAD, value = STATE_DEAD;
    read_contains(&k);
    uint32_t last = k.max_found == NO_LIMIT ? k.min_found : k.max_found; /* step of the chain */
    if (a->c->status || k.min_found > last || k.min_found > a->max) return STATE_DEAD;
    if (k.special == RULE_NEVER && k.min_found > 0) return STATE_DEAD;
    if (k.special == RULE_NEVER) last = 0;
    if (k.other == RULE_NEVER && last < a->min) return STATE_DEAD;
    for (uint32_t found = last + 1; found-- > 0;) contains_step(&k, found, last, &behind, &value);
    uint32_t open = builder_state(b, STATE_SPACES);
    builder_set_call(b, open, RULE_EMPTY, value);
    if (k.min_found == 0 && a->min == 0) builder_set_edge(b, open, ']', BUILDER_FINAL);
    return builder_text(b, "[", 1, open);
}

/* ---- several contains ---- */

enum { CONTAINS_SETS = 1 << CONTAINS_KINDS_MAX };

/* Which kinds of elements are still missing is where an answer is: a set, a bit a kind. An element may be of several kinds. */
struct missing {
    struct array *a;
    uint32_t all;
    uint32_t rules[CONTAINS_SETS];  /* by set: of an element that is of all these kinds; of any element */
    uint32_t needed[CONTAINS_SETS]; /* elements that make up for these; NO_LIMIT: none can */
    uint32_t behind[CONTAINS_SETS],
        value[CONTAINS_SETS]; /* states: behind an element, and where one begins */
};

static uint32_t rule_of_kinds(const struct missing *m, uint32_t kinds)
{
    struct compiler *c = m->a->c;
    struct conjunction k = schema_element(c, m->a->s, 0);
    for (int i = 0; i < m->a->s->contains.count; i++) {
        if (!(kinds >> i & 1)) continue;
        const cJSON *own = schema_get(m->a->s->contains.nodes[i], "contains");
        if (k.num_atoms == 0)
            k = conjunction_of(c, own);
        else
            conjunction_add(c, &k, own, false);
    }
    return schema_rule(c, &k);
}

static void read_kinds(struct missing *m)
{
    const struct shape *s = m->a->s;
    bool is_plain = !schema_has_prefix(s) && !s->unevaluated_items && s->contains.count <= CONTAINS_KINDS_MAX;
    for (int i = 0; i < s->contains.count && !m->a->c->status; i++) {
        const cJSON *node = s->contains.nodes[i];
        if (!is_plain || schema_get(node, "minContains") || schema_get(node, "maxContains"))
            refuse_contains(m->a, node);
    }
    if (m->a->c->status) return;
    m->all = (1u << s->contains.count) - 1;
    for (uint32_t set = 0; set <= m->all; set++) {
        m->rules[set] = rule_of_kinds(m, set);
        m->needed[set] = set == 0 ? 0 : NO_LIMIT;
        for (uint32_t found = set; found > 0; found = (found - 1) & set)
            if (m->rules[found] != RULE_NEVER && m->needed[set & ~found] != NO_LIMIT)
                m->needed[set] = min_of(m->needed[set], m->needed[set & ~found] + 1);
    }
}

/* The next element is of some of the kinds that are missing, and those that it leaves have room behind it. */
static void set_missing_states(struct missing *m, uint32_t set)
{
    struct builder *b = &m->a->c->b;
    struct rule_call calls[CONTAINS_SETS];
    struct byte_edge edges[2];
    uint32_t num_calls = 0, num_edges = 0, max = m->a->max;
    for (uint32_t left = set;; left = (left - 1) & set) {
        uint32_t needed = m->needed[left], rule = m->rules[set & ~left];
        if (rule != RULE_NEVER && needed < max)
            calls[num_calls++] =
                element_call(m->a, rule, max == NO_LIMIT ? NO_LIMIT : max - needed, m->behind[left]);
        if (left == 0) break;
    }
    builder_set_calls(b, m->value[set], calls, num_calls);
    if (num_calls > 0) edges[num_edges++] = (struct byte_edge){',', ',', m->value[set]};
    if (set == 0) edges[num_edges++] = (struct byte_edge){']', ']', closing_state(m->a)};
    builder_set_edges(b, m->behind[set], edges, num_edges);
    if (set == 0) builder_set_entry(b, m->value[set], (struct entry){.kind = ENTRY_BELOW, .a = max});
}

static uint32_t several_contains_state(struct array *a)
{
    struct missing m = {.a = a};
    struct builder *b = &a->c->b;
    read_kinds(&m);
    if (a->c->status || m.needed[m.all] == NO_LIMIT || m.needed[m.all] > a->max) return STATE_DEAD;
    for (uint32_t set = 0; set <= m.all; set++) {
        m.behind[set] = builder_state(b, STATE_SPACES);
        m.value[set] = builder_state(b, STATE_SPACES);
    }
    for (uint32_t set = 0; set <= m.all; set++) set_missing_states(&m, set);
    uint32_t open = builder_state(b, STATE_SPACES);
    builder_set_call(b, open, RULE_EMPTY, m.value[m.all]);
    return builder_text(b, "[", 1, open);
}

uint32_t schema_array_state(struct compiler *c, const struct conjunction *k, const struct shape *s)
{
    struct array a = {.c = c, .s = s, .min = s->min_items, .max = s->max_items};
    int num_prefix = prefix_length(s);
    (void)k;
    if (a.min > a.max) return STATE_DEAD;
    if (s->unique_items && s->max_items > 1) return schema_unique_state(c, s);
    if (s->contains.count > 1) return several_contains_state(&a);
    if (s->contains.count > 0) return contains_state(&a);
    if (num_prefix > PREFIX_MAX) {
        schema_fail(c, STATUS_LIMIT, "an array has %d listed elements; at most %d are supported", num_prefix,
                    PREFIX_MAX);
        return STATE_DEAD;
    }
    a.num_prefix = min_of((uint32_t)num_prefix, a.max);
    uint32_t *rules = schema_alloc(c, (a.num_prefix + 1) * sizeof *rules);
    for (uint32_t i = 0; i < a.num_prefix && !c->status; i++) {
        struct conjunction own = schema_element(c, s, (int)i);
        rules[i] = schema_rule(c, &own);
        if (rules[i] == RULE_NEVER) a.num_prefix = a.max = i; /* the array ends before it */
    }
    if (a.min > a.max || c->status) return STATE_DEAD;
    struct conjunction rest = schema_element(c, s, num_prefix);
    a.rest = a.max > a.num_prefix ? schema_rule(c, &rest) : RULE_NEVER;
    if (a.rest == RULE_NEVER) a.max = min_of(a.max, a.num_prefix);
    if (a.min > a.max || c->status) return STATE_DEAD;
    return array_states(&a, rules);
}
