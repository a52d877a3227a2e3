#include "text/grammar/ebnf.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/grammar/builder.h"
#include "text/grammar/code_points.h"
#include "text/grammar/names.h"
#include "text/grammar/regex.h"
#include "text/grammar/repetition.h"
#include "text/grammar/schema.h"
#include "text/grammar/symbol_states.h"

enum node_kind {
    NODE_TEXT,      /* begin, length: of bytes */
    NODE_CLASS,     /* begin, length: of the notation */
    NODE_PATTERN,   /* likewise: a regular expression */
    NODE_NAME,      /* rule */
    NODE_SEQUENCE,  /* first: linked by next */
    NODE_ALTERNATE, /* first */
    NODE_REPEAT,    /* first, min, max */
};

struct node {
    enum node_kind kind;
    uint32_t begin, length;
    uint32_t rule, first, next; /* nodes: 0 is none */
    uint32_t min, max;
};

struct named_rule {
    const char *name;
    uint32_t length;
    uint32_t node; /* 0: only referred to */
    uint32_t rule; /* of the builder */
};

struct ebnf {
    const char *text;
    size_t at, num_bytes;
    struct pool nodes, bytes, rules;
    struct names names; /* of rules */
    struct builder b;
    const cJSON *schemas; /* what names without a rule stand for; NULL: nothing */
    struct error *err;
    int status, depth;
};

static uint32_t fail(struct ebnf *e, int status, const char *what)
{
    uint32_t line = 1;
    for (size_t i = 0; i < min_of(e->at, e->num_bytes); i++) line += e->text[i] == '\n';
    if (e->status == 0) e->status = error_set(e->err, status, "line %u of the grammar: %s", line, what);
    return 0;
}

static uint32_t add_node(struct ebnf *e, struct node node)
{
    struct node *n = pool_push(&e->nodes, 1);
    if (!n) return fail(e, e->nodes.status, "the grammar has too many parts");
    *n = node;
    return e->nodes.count - 1;
}

static struct node *node_at(struct ebnf *e, uint32_t node)
{
    return pool_items(struct node, &e->nodes) + node;
}

/* ---- words ---- */

static bool looking_at(const struct ebnf *e, const char *text)
{
    size_t n = strlen(text);
    return e->num_bytes - e->at >= n && !memcmp(e->text + e->at, text, n);
}

static bool skip(struct ebnf *e, const char *text)
{
    bool found = looking_at(e, text);
    if (found) e->at += strlen(text);
    return found;
}

static void skip_space(struct ebnf *e)
{
    while (e->at < e->num_bytes) {
        char c = e->text[e->at];
        if (c == '#')
            while (e->at < e->num_bytes && e->text[e->at] != '\n') e->at++;
        else if (c == ' ' || c == '\t' || c == '\n' || c == '\r')
            e->at++;
        else
            return;
    }
}

static size_t name_length(const struct ebnf *e)
{
    size_t n = 0;
    while (e->at + n < e->num_bytes) {
        char c = e->text[e->at + n];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && !(n > 0 && ((c >= '0' && c <= '9') || c == '-'))) break;
        n++;
    }
    return n;
}

/* Whether a name and ::= stand here. */
static bool at_rule(struct ebnf *e)
{
    size_t begin = e->at, n = name_length(e);
    if (n == 0) return false;
    e->at += n;
    skip_space(e);
    bool found = looking_at(e, "::=");
    e->at = begin;
    return found;
}

static uint32_t find_rule(struct ebnf *e, const char *name, size_t n)
{
    uint32_t number = names_find(&e->names, name, n, e->rules.count);
    if (number < e->rules.count) return number;
    struct named_rule *r = number == NAMES_FULL ? NULL : pool_push(&e->rules, 1);
    if (!r) return fail(e, e->rules.status ?: STATUS_NO_MEMORY, "the grammar has too many rules");
    *r = (struct named_rule){name, (uint32_t)n, 0, builder_rule(&e->b)};
    return number;
}

/* ---- parsing ---- */

static uint32_t parse_alternatives(struct ebnf *e);

static void append_byte(struct ebnf *e, char c)
{
    char *byte = pool_push(&e->bytes, 1);
    if (byte) *byte = c;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

static void read_hex(struct ebnf *e, int num_digits)
{
    uint32_t value = 0;
    char bytes[4];
    for (int i = 0; i < num_digits; i++, e->at++) {
        int digit = e->at < e->num_bytes ? hex_value(e->text[e->at]) : -1;
        if (digit < 0) {
            fail(e, STATUS_INVALID, "a bad \\x or \\u escape");
            return;
        }
        value = value * 16 + (uint32_t)digit;
    }
    if (value > CODE_POINT_MAX || (value >= 0xD800 && value < 0xE000)) {
        fail(e, STATUS_INVALID, "an escape that is no character");
        return;
    }
    int n = code_point_write(value, bytes);
    for (int i = 0; i < n; i++) append_byte(e, bytes[i]);
}

static void read_escape(struct ebnf *e)
{
    static const char names[] = "nrtfv\\\"'[]/-^", values[] = "\n\r\t\f\v\\\"'[]/-^";
    char c = e->at < e->num_bytes ? e->text[e->at++] : '\0';
    const char *known = c ? strchr(names, c) : NULL;
    if (known)
        append_byte(e, values[known - names]);
    else if (c == 'x' || c == 'u' || c == 'U')
        read_hex(e, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    else
        fail(e, STATUS_INVALID, "an escape that is not known");
}

static uint32_t parse_text(struct ebnf *e, char quote)
{
    uint32_t begin = e->bytes.count;
    for (e->at++; e->at < e->num_bytes && e->text[e->at] != quote && !e->status;) {
        char c = e->text[e->at++];
        if (c == '\n') return fail(e, STATUS_INVALID, "a text without its closing quote");
        if (c == '\\')
            read_escape(e);
        else
            append_byte(e, c);
    }
    if (e->status) return 0;
    if (e->at >= e->num_bytes) return fail(e, STATUS_INVALID, "a text without its closing quote");
    e->at++;
    return add_node(e, (struct node){.kind = NODE_TEXT, .begin = begin, .length = e->bytes.count - begin});
}

static uint32_t parse_class(struct ebnf *e)
{
    size_t begin = e->at;
    for (e->at++; e->at < e->num_bytes && e->text[e->at] != ']'; e->at++)
        if (e->text[e->at] == '\\') e->at++;
    if (e->at >= e->num_bytes) return fail(e, STATUS_INVALID, "a [ without its ]");
    e->at++;
    return add_node(
        e, (struct node){.kind = NODE_CLASS, .begin = (uint32_t)begin, .length = (uint32_t)(e->at - begin)});
}

/* The whole of what stands between the slashes. */
static uint32_t parse_pattern(struct ebnf *e)
{
    size_t begin = ++e->at;
    for (; e->at < e->num_bytes && e->text[e->at] != '/'; e->at++)
        if (e->text[e->at] == '\\') e->at++;
    if (e->at >= e->num_bytes) return fail(e, STATUS_INVALID, "a / without its /");
    return add_node(
        e,
        (struct node){.kind = NODE_PATTERN, .begin = (uint32_t)begin, .length = (uint32_t)(e->at++ - begin)});
}

static uint32_t parse_item(struct ebnf *e)
{
    char c = e->text[e->at];
    if (c == '/') return parse_pattern(e);
    if (c == '"' || c == '\'') return parse_text(e, c);
    if (c == '[') return parse_class(e);
    if (c == '.') {
        e->at++;
        return add_node(e, (struct node){.kind = NODE_CLASS, .begin = (uint32_t)e->at - 1, .length = 1});
    }
    if (c == '(') {
        e->at++;
        if (++e->depth > EBNF_DEPTH_MAX) return fail(e, STATUS_LIMIT, "groups are nested too deeply");
        uint32_t node = parse_alternatives(e);
        e->depth--;
        if (!e->status && !skip(e, ")")) return fail(e, STATUS_INVALID, "a ( without its )");
        return node;
    }
    size_t n = name_length(e);
    if (n == 0) return fail(e, STATUS_INVALID, "a text, a class, a name or a group was expected");
    uint32_t rule = find_rule(e, e->text + e->at, n);
    e->at += n;
    return add_node(e, (struct node){.kind = NODE_NAME, .rule = rule});
}

static bool read_number(struct ebnf *e, uint32_t *out)
{
    uint32_t value = 0;
    skip_space(e);
    size_t begin = e->at;
    for (; e->at < e->num_bytes && e->text[e->at] >= '0' && e->text[e->at] <= '9'; e->at++)
        value = min_of(value * 10 + (uint32_t)(e->text[e->at] - '0'), (uint32_t)REGEX_REPEAT_MAX + 1);
    bool found = e->at > begin;
    *out = value;
    skip_space(e);
    return found;
}

static uint32_t parse_counts(struct ebnf *e, uint32_t node)
{
    uint32_t min, max;
    bool has_min = read_number(e, &min);
    max = min;
    if (skip(e, ",") && !read_number(e, &max)) max = NO_LIMIT;
    if (!skip(e, "}") || (!has_min && max == NO_LIMIT)) return fail(e, STATUS_INVALID, "a bad repetition");
    const uint32_t most = node_at(e, node)->kind == NODE_CLASS ? REGEX_REPEAT_MAX : EBNF_REPEAT_MAX;
    if (min > most || (max != NO_LIMIT && max > most))
        return fail(e, STATUS_LIMIT, "a repetition that is too large");
    if (max < min) return fail(e, STATUS_INVALID, "a repetition out of order");
    return add_node(e, (struct node){.kind = NODE_REPEAT, .first = node, .min = min, .max = max});
}

static uint32_t parse_suffixes(struct ebnf *e, uint32_t node)
{
    int num_suffixes = 0;
    while (!e->status && e->at < e->num_bytes) {
        struct node repeat = {.kind = NODE_REPEAT, .first = node, .max = NO_LIMIT};
        if (++num_suffixes > EBNF_DEPTH_MAX)
            return fail(e, STATUS_LIMIT, "repetitions are nested too deeply");
        if (skip(e, "{")) {
            node = parse_counts(e, node);
            continue;
        }
        if (skip(e, "+"))
            repeat.min = 1;
        else if (skip(e, "?"))
            repeat.max = 1;
        else if (!skip(e, "*"))
            break;
        node = add_node(e, repeat);
    }
    return node;
}

static bool ends_sequence(struct ebnf *e)
{
    skip_space(e);
    return e->status || e->at >= e->num_bytes || looking_at(e, "|") || looking_at(e, ")") || at_rule(e);
}

static uint32_t parse_sequence(struct ebnf *e)
{
    uint32_t sequence = add_node(e, (struct node){.kind = NODE_SEQUENCE}), last = 0;
    while (!ends_sequence(e)) {
        uint32_t item = parse_suffixes(e, parse_item(e));
        if (e->status) return 0;
        /* A node of its own, since an item may stand in a group that is linked already. */
        uint32_t link = add_node(e, (struct node){.kind = NODE_REPEAT, .first = item, .min = 1, .max = 1});
        if (e->status) return 0;
        if (last)
            node_at(e, last)->next = link;
        else
            node_at(e, sequence)->first = link;
        last = link;
    }
    return sequence;
}

static uint32_t parse_alternatives(struct ebnf *e)
{
    uint32_t first = parse_sequence(e), last = first;
    uint32_t node = add_node(e, (struct node){.kind = NODE_ALTERNATE, .first = first});
    while (!e->status && skip(e, "|")) {
        uint32_t other = parse_sequence(e);
        if (e->status) return 0;
        node_at(e, last)->next = other;
        last = other;
    }
    return node;
}

static void parse_rule(struct ebnf *e)
{
    size_t n = name_length(e);
    uint32_t rule = find_rule(e, e->text + e->at, n);
    e->at += n;
    skip_space(e);
    (void)skip(e, "::=");
    uint32_t node = parse_alternatives(e);
    if (e->status) return;
    struct named_rule *r = pool_items(struct named_rule, &e->rules) + rule;
    if (r->node) fail(e, STATUS_INVALID, "a rule of this name stands there already");
    r->node = node;
}

static void parse(struct ebnf *e)
{
    skip_space(e);
    while (!e->status && e->at < e->num_bytes) {
        if (!at_rule(e)) fail(e, STATUS_INVALID, "a rule (name ::= ...) was expected");
        if (!e->status) parse_rule(e);
        skip_space(e);
    }
    if (!e->status && e->rules.count == 0) fail(e, STATUS_INVALID, "the grammar has no rule");
}

/* ---- states ---- */

/* The state that takes a node and goes on in next. */
static uint32_t node_state(struct ebnf *e, uint32_t node, uint32_t next);

static uint32_t node_rule(struct ebnf *e, uint32_t node)
{
    if (node_at(e, node)->kind == NODE_NAME)
        return pool_items(struct named_rule, &e->rules)[node_at(e, node)->rule].rule;
    uint32_t rule = builder_rule(&e->b);
    builder_set_start(&e->b, rule, node_state(e, node, BUILDER_FINAL));
    return rule;
}

static uint32_t call_state(struct ebnf *e, uint32_t rule, uint32_t next)
{
    uint32_t s = builder_state(&e->b, 0);
    builder_set_call(&e->b, s, rule, next);
    return s;
}

/* As a regular expression has it. */
static const char *class_text(const struct ebnf *e, const struct node *n, size_t *length)
{
    static const char any[] = "[\\s\\S]";
    const char *text = e->text + n->begin;
    const bool is_any = n->kind == NODE_CLASS && *text == '.';
    *length = is_any ? sizeof any - 1 : n->length;
    return is_any ? any : text;
}

static uint32_t class_state(struct ebnf *e, const struct node *n, uint32_t next)
{
    const struct regex_options options = {.text = REGEX_UTF8, .whole = true, .work_left = &e->b.regex_work};
    uint32_t start;
    size_t length;
    const char *text = class_text(e, n, &length);
    e->status = symbol_states_of_pattern(&e->b, text, length, &options, -1, BUILDER_FINAL, &start, e->err);
    if (e->status) return STATE_DEAD;
    uint32_t rule = builder_rule(&e->b);
    builder_set_start(&e->b, rule, start);
    return call_state(e, rule, next);
}

static uint32_t alternate_state(struct ebnf *e, uint32_t first, uint32_t next)
{
    struct pool calls;
    if (node_at(e, first)->next == 0) return node_state(e, first, next);
    pool_init(&calls, sizeof(struct rule_call), UINT16_MAX);
    for (uint32_t i = first; i && !e->status; i = node_at(e, i)->next) {
        uint32_t rule = node_rule(e, i);
        struct rule_call *call = pool_push(&calls, 1);
        if (!call) break;
        *call = (struct rule_call){rule, next};
    }
    uint32_t s = builder_state(&e->b, 0);
    if (calls.status) e->b.calls.status = calls.status;
    builder_set_calls(&e->b, s, calls.items, calls.count);
    pool_deinit(&calls);
    return s;
}

/* A set of characters so and so many times. False: it is not one set. */
static bool find_repetition(struct ebnf *e, const struct node *n, struct regex_repetition *out)
{
    const struct node *set = node_at(e, n->first);
    size_t length;
    if (set->kind != NODE_CLASS || n->max <= 1) return false;
    const char *text = class_text(e, set, &length);
    char *repeated = malloc(length + 1);
    if (!repeated) return false;
    memcpy(repeated, text, length);
    repeated[length] = '*';
    bool found = regex_is_repetition(repeated, length + 1, REGEX_UTF8, true, out);
    free(repeated);
    out->min = n->min;
    out->max = n->max == NO_LIMIT ? REGEX_ANY : n->max;
    return found;
}

static uint32_t repeat_state(struct ebnf *e, const struct node *n, uint32_t next)
{
    struct regex_repetition repetition;
    if (n->min == 1 && n->max == 1) return node_state(e, n->first, next);
    if (find_repetition(e, n, &repetition)) {
        const uint32_t own = builder_rule(&e->b);
        builder_set_start(&e->b, own, repetition_state(&e->b, &repetition));
        dfa_deinit(&repetition.one);
        return call_state(e, own, next);
    }
    uint32_t rule = node_rule(e, n->first), s = next;
    if (n->max == NO_LIMIT) {
        uint32_t loop = builder_state(&e->b, 0);
        const struct rule_call calls[] = {{rule, loop}, {RULE_EMPTY, next}};
        builder_set_calls(&e->b, loop, calls, 2);
        s = loop;
    } else {
        for (uint32_t i = n->min; i < n->max; i++) {
            const struct rule_call calls[] = {{rule, s}, {RULE_EMPTY, next}};
            s = builder_state(&e->b, 0);
            builder_set_calls(&e->b, s, calls, 2);
        }
    }
    for (uint32_t i = 0; i < n->min; i++) s = call_state(e, rule, s);
    return s;
}

/* From the last item to the first. */
static uint32_t sequence_state(struct ebnf *e, uint32_t first, uint32_t next)
{
    struct pool items;
    pool_init(&items, sizeof(uint32_t), EBNF_NODES_MAX);
    for (uint32_t i = first; i; i = node_at(e, i)->next) {
        uint32_t *item = pool_push(&items, 1);
        if (item) *item = i;
    }
    if (items.status) e->b.calls.status = items.status;
    for (uint32_t i = items.count; i-- > 0 && !e->status;)
        next = node_state(e, pool_items(uint32_t, &items)[i], next);
    pool_deinit(&items);
    return next;
}

static uint32_t node_state(struct ebnf *e, uint32_t node, uint32_t next)
{
    struct node n = *node_at(e, node);
    if (e->status || builder_status(&e->b)) return STATE_DEAD;
    switch (n.kind) {
    case NODE_TEXT:
        return builder_text(&e->b, pool_items(char, &e->bytes) + n.begin, n.length, next);
    case NODE_CLASS:
    case NODE_PATTERN:
        return class_state(e, &n, next);
    case NODE_NAME:
        return call_state(e, pool_items(struct named_rule, &e->rules)[n.rule].rule, next);
    case NODE_SEQUENCE:
        return sequence_state(e, n.first, next);
    case NODE_ALTERNATE:
        return alternate_state(e, n.first, next);
    case NODE_REPEAT:
        return repeat_state(e, &n, next);
    }
    return STATE_DEAD;
}

/* A name that is a schema's: whether it is one. */
static bool build_schema(struct ebnf *e, const struct named_rule *r)
{
    const cJSON *schema;
    uint32_t rule = RULE_NEVER;
    cJSON_ArrayForEach(schema, e->schemas)
    {
        if (strlen(schema->string) != r->length || memcmp(schema->string, r->name, r->length) != 0) continue;
        struct error why = {0};
        e->status = schema_compile_into(&e->b, schema, &rule, &why);
        if (e->status) error_set(e->err, e->status, "%s: %s", schema->string, why.text);
        if (!e->status) builder_set_start(&e->b, r->rule, call_state(e, rule, BUILDER_FINAL));
        return true;
    }
    return false;
}

static uint32_t build(struct ebnf *e)
{
    uint32_t root = 0;
    for (uint32_t i = 0; i < e->rules.count && !e->status; i++) {
        struct named_rule r = pool_items(struct named_rule, &e->rules)[i];
        if (!r.node && build_schema(e, &r)) continue;
        if (!r.node) {
            e->status = error_set(e->err, STATUS_INVALID, "the grammar has no rule \"%.*s\"",
                                  (int)min_of(r.length, 100u), r.name);
            return 0;
        }
        if (r.length == 4 && !memcmp(r.name, "root", 4)) root = i;
        /* A bare final start would be left before it is entered. */
        builder_set_start(&e->b, r.rule, node_state(e, r.node, BUILDER_FINAL));
    }
    return pool_items(struct named_rule, &e->rules)[root].rule;
}

int grammar_from_ebnf(const char *text, size_t num_bytes, struct grammar **out, struct error *err)
{
    const struct grammar_options options = {.max_spaces = 0};
    return grammar_from_ebnf_with_schemas(text, num_bytes, NULL, &options, out, err);
}

int grammar_from_ebnf_with_schemas(const char *text, size_t num_bytes, const cJSON *schemas,
                                   const struct grammar_options *options, struct grammar **out,
                                   struct error *err)
{
    struct ebnf e = {.text = text, .num_bytes = num_bytes, .schemas = schemas, .err = err};
    *out = NULL;
    e.status = builder_init_for(&e.b, options, err);
    json_add_classes(&e.b);
    pool_init(&e.nodes, sizeof(struct node), EBNF_NODES_MAX);
    pool_init(&e.bytes, 1, 1 << 24);
    pool_init(&e.rules, sizeof(struct named_rule), EBNF_RULES_MAX);
    names_init(&e.names, EBNF_RULES_MAX);
    (void)add_node(&e, (struct node){0}); /* node 0 is none */
    if (!e.status) parse(&e);
    if (!e.status && e.bytes.status) fail(&e, e.bytes.status, "its texts are too long");
    uint32_t root = e.status ? 0 : build(&e);
    e.b.is_recursive = true;
    int status = e.status ? e.status : builder_finish(&e.b, root, true, out, err);
    pool_deinit(&e.nodes);
    pool_deinit(&e.bytes);
    pool_deinit(&e.rules);
    names_deinit(&e.names);
    builder_deinit(&e.b);
    return status;
}
