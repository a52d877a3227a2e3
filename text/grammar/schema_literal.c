/* Values that stand in the schema: enum and const. Scalars become a tree of their texts, so that a long enum
 * is one state per letter. */
#include <string.h>

#include "base/check.h"
#include "text/grammar/schema.h"
#include "text/grammar/text_tree.h"
#include "text/json_numbers.h"

/* The text of a scalar; false when there is no exact one. */
static bool literal_text(struct compiler *c, const cJSON *value, struct tree_text *out)
{
    static const char *const words[] = {"false", "true", "null"};
    if (cJSON_IsString(value)) {
        size_t n;
        const char *inside = schema_escape(c, value->valuestring, &n);
        char *text = schema_alloc(c, n + 3);
        if (c->status) return false;
        text[0] = text[n + 1] = '"';
        memcpy(text + 1, inside, n);
        *out = (struct tree_text){text, n + 2};
        return true;
    }
    const char *digits = json_long_integer(value);
    if (digits) {
        *out = (struct tree_text){digits, strlen(digits)};
        return true;
    }
    if (cJSON_IsNumber(value)) {
        char *text = schema_alloc(c, 32);
        if (c->status || !schema_number_text(value->valuedouble, text)) return false;
        *out = (struct tree_text){text, strlen(text)};
        return true;
    }
    const char *word = words[cJSON_IsNull(value) ? 2 : cJSON_IsTrue(value)];
    *out = (struct tree_text){word, strlen(word)};
    return true;
}

static uint32_t value_state(struct compiler *c, const cJSON *value, uint32_t next, int depth);

static uint32_t composite_state(struct compiler *c, const cJSON *value, uint32_t next, int depth)
{
    struct builder *b = &c->b;
    bool is_object = cJSON_IsObject(value);
    uint32_t close = builder_state(b, STATE_SPACES), state;
    builder_set_edge(b, close, is_object ? '}' : ']', next);
    int n = cJSON_GetArraySize(value);
    state = close;
    const cJSON *item = n > 0 ? value->child->prev : NULL; /* the last */
    for (int i = n; i-- > 0 && !c->status; item = item->prev) {
        if (i + 1 < n) {
            uint32_t comma = builder_state(b, STATE_SPACES);
            builder_set_edge(b, comma, ',', state);
            state = comma;
        }
        uint32_t spaced = builder_state(b, STATE_SPACES), first = value_state(c, item, state, depth + 1);
        builder_set_call(b, spaced, RULE_EMPTY, first);
        state = spaced;
        if (!is_object) continue;
        size_t length;
        const char *name = schema_escape(c, item->string, &length);
        uint32_t colon = builder_state(b, STATE_SPACES), key = builder_state(b, STATE_SPACES);
        builder_set_edge(b, colon, ':', state);
        builder_set_edge(b, key, '"', builder_text(b, name, length, builder_text(b, "\"", 1, colon)));
        state = key;
    }
    return builder_text(b, is_object ? "{" : "[", 1, state);
}

static void refuse_number(struct compiler *c, const cJSON *value)
{
    schema_fail(c, STATUS_UNSUPPORTED, "the number at %s is too large to be a constant",
                schema_path(c, value));
}

/* States that take exactly the value and go on in next. */
static uint32_t value_state(struct compiler *c, const cJSON *value, uint32_t next, int depth)
{
    struct tree_text l;
    if (depth > SCHEMA_DEPTH_MAX) schema_fail(c, STATUS_LIMIT, "a constant is nested too deeply");
    if (c->status) return STATE_DEAD;
    if (cJSON_IsArray(value) || cJSON_IsObject(value)) return composite_state(c, value, next, depth);
    if (!literal_text(c, value, &l)) {
        refuse_number(c, value);
        return STATE_DEAD;
    }
    return builder_text(&c->b, l.bytes, l.num_bytes, next);
}

uint32_t schema_literal_state(struct compiler *c, const cJSON *value, uint32_t next)
{
    return value_state(c, value, next, 0);
}

const char *schema_literal_text(struct compiler *c, const cJSON *value, size_t *num_bytes)
{
    struct tree_text l = {"", 0};
    if (!literal_text(c, value, &l)) refuse_number(c, value);
    *num_bytes = l.num_bytes;
    return l.bytes;
}

static uint32_t choose(struct compiler *c, const uint32_t *states, uint32_t n)
{
    if (n <= 1) return n ? states[0] : STATE_DEAD;
    struct rule_call *calls = schema_alloc(c, n * sizeof *calls);
    if (c->status) return STATE_DEAD;
    for (uint32_t i = 0; i < n; i++) {
        calls[i] = (struct rule_call){builder_rule(&c->b), BUILDER_FINAL};
        builder_set_start(&c->b, calls[i].rule, states[i]);
    }
    uint32_t state = builder_state(&c->b, 0);
    builder_set_calls(&c->b, state, calls, n);
    return state;
}

uint32_t schema_literals_state(struct compiler *c, const struct shape *s)
{
    uint32_t num_states = 0, num_scalars = 0, n = (uint32_t)s->literals.count;
    uint32_t *states = schema_alloc(c, (n + 1) * sizeof *states);
    struct tree_text *scalars = schema_alloc(c, (n + 1) * sizeof *scalars);
    for (uint32_t i = 0; i < n && !c->status; i++) {
        const cJSON *value = s->literals.nodes[i];
        if (!schema_literal_fits(c, s, value)) continue;
        if (cJSON_IsArray(value) || cJSON_IsObject(value))
            states[num_states++] = value_state(c, value, BUILDER_FINAL, 0);
        else if (!literal_text(c, value, &scalars[num_scalars++]) && !c->status)
            refuse_number(c, value);
    }
    if (c->status) return STATE_DEAD;
    if (num_scalars > 0) {
        states[num_states++] = text_tree_state(&c->b, scalars, num_scalars);
    }
    return choose(c, states, num_states);
}
