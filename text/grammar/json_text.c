#include "text/grammar/json_text.h"

#include <string.h>

#include "text/grammar/byte_group.h"

/* ---- characters of a string ---- */

static uint32_t state_with(struct builder *b, const struct byte_edge *edges, uint32_t n)
{
    uint32_t s = builder_state(b, 0);
    builder_set_edges(b, s, edges, n);
    return s;
}

#define STATE_WITH(b, ...)                                                                                   \
    state_with(b, (struct byte_edge[]){__VA_ARGS__},                                                         \
               sizeof((struct byte_edge[]){__VA_ARGS__}) / sizeof(struct byte_edge))

/* Appends the lead bytes of UTF-8; returns how many edges. */
static uint32_t utf8_edges(struct builder *b, struct byte_edge *edges)
{
    uint32_t one = STATE_WITH(b, {0x80, 0xBF, BUILDER_FINAL}), two = STATE_WITH(b, {0x80, 0xBF, one});
    uint32_t three = STATE_WITH(b, {0x80, 0xBF, two});
    const struct byte_edge all[] = {{0xC2, 0xDF, one},   {0xE0, 0xE0, STATE_WITH(b, {0xA0, 0xBF, one})},
                                    {0xE1, 0xEC, two},   {0xED, 0xED, STATE_WITH(b, {0x80, 0x9F, one})},
                                    {0xEE, 0xEF, two},   {0xF0, 0xF0, STATE_WITH(b, {0x90, 0xBF, two})},
                                    {0xF1, 0xF3, three}, {0xF4, 0xF4, STATE_WITH(b, {0x80, 0x8F, two})}};
    memcpy(edges, all, sizeof all);
    return sizeof all / sizeof *all;
}

static uint32_t hex_state(struct builder *b, uint32_t next)
{
    return STATE_WITH(b, {'0', '9', next}, {'A', 'F', next}, {'a', 'f', next});
}

/* Four hexadecimal digits that are no half of a surrogate pair, or a whole pair of escapes. */
static uint32_t any_unicode_escape(struct builder *b)
{
    uint32_t last = hex_state(b, BUILDER_FINAL), third = hex_state(b, last), second = hex_state(b, third);
    uint32_t low_second = STATE_WITH(b, {'C', 'F', third}, {'c', 'f', third});
    uint32_t low_first = STATE_WITH(b, {'D', 'D', low_second}, {'d', 'd', low_second});
    uint32_t low = builder_text(b, "\\u", 2, low_first);
    uint32_t high = hex_state(b, hex_state(b, low));
    uint32_t behind_d =
        STATE_WITH(b, {'0', '7', third}, {'8', '9', high}, {'A', 'B', high}, {'a', 'b', high});
    return STATE_WITH(b, {'0', '9', second}, {'A', 'C', second}, {'D', 'D', behind_d}, {'E', 'F', second},
                      {'a', 'c', second}, {'d', 'd', behind_d}, {'e', 'f', second});
}

static uint32_t any_escape(struct builder *b)
{
    const uint32_t f = BUILDER_FINAL;
    return STATE_WITH(b, {'"', '"', f}, {'/', '/', f}, {'\\', '\\', f}, {'b', 'b', f}, {'f', 'f', f},
                      {'n', 'n', f}, {'r', 'r', f}, {'t', 't', f}, {'u', 'u', any_unicode_escape(b)});
}

/* Only what has to be escaped, with the short escape where there is one. */
static uint32_t canonical_escape(struct builder *b)
{
    const uint32_t f = BUILDER_FINAL;
    uint32_t low = STATE_WITH(b, {'0', '7', f}, {'B', 'B', f}, {'E', 'F', f}, {'b', 'b', f}, {'e', 'f', f});
    uint32_t hex = STATE_WITH(b, {'0', '0', low}, {'1', '1', hex_state(b, f)});
    uint32_t unicode = builder_text(b, "00", 2, hex);
    return STATE_WITH(b, {'"', '"', f}, {'\\', '\\', f}, {'b', 'b', f}, {'f', 'f', f}, {'n', 'n', f},
                      {'r', 'r', f}, {'t', 't', f}, {'u', 'u', unicode});
}

static void add_class(struct builder *b, uint32_t escape)
{
    struct byte_edge edges[9] = {{'\\', '\\', escape}};
    uint32_t n = 1 + utf8_edges(b, edges + 1), more = builder_state(b, 0);
    builder_set_edges(b, more, edges, n);
    struct char_class *c = pool_push(&b->classes, 1);
    if (!c) return;
    *c = (struct char_class){.more = more};
    byte_set_add_range(&c->single, 0x20, 0x21);
    byte_set_add_range(&c->single, 0x23, 0x5B);
    byte_set_add_range(&c->single, 0x5D, 0x7F);
    byte_set_add(&c->lead, '\\');
    byte_set_add_range(&c->lead, 0xC2, 0xF4);
    c->groups = byte_groups_inside(&c->single) | 1u << GROUP_UTF8;
}

void json_add_classes(struct builder *b)
{
    add_class(b, any_escape(b));       /* CLASS_ANY */
    add_class(b, canonical_escape(b)); /* CLASS_CANONICAL */
}

uint32_t json_string_rule(struct builder *b, uint32_t min, uint32_t max)
{
    uint32_t rule = builder_rule(b), body = builder_state(b, 0), end = BUILDER_FINAL;
    if (min > 0) end = builder_final_if(b, (struct entry){.kind = ENTRY_AT_LEAST, .a = min});
    builder_set_edge(b, body, '"', end);
    bool counts = min > 0 || max != NO_LIMIT;
    builder_set_loop(b, body, (struct char_loop){CLASS_ANY, counts, body, max, min});
    builder_set_start(b, rule, builder_text(b, "\"", 1, body));
    return rule;
}

/* ---- numbers ---- */

static void set_digits(struct builder *b, uint32_t state, uint32_t target)
{
    builder_set_edges(b, state, &(struct byte_edge){'0', '9', target}, 1);
}

uint32_t json_integer_rule(struct builder *b)
{
    uint32_t rule = builder_rule(b), digits = builder_state(b, STATE_FINAL);
    set_digits(b, digits, digits);
    uint32_t first = STATE_WITH(b, {'0', '0', BUILDER_FINAL}, {'1', '9', digits});
    builder_set_start(b, rule,
                      STATE_WITH(b, {'-', '-', first}, {'0', '0', BUILDER_FINAL}, {'1', '9', digits}));
    return rule;
}

uint32_t json_number_rule(struct builder *b)
{
    uint32_t rule = builder_rule(b);
    uint32_t exponent_digits = builder_state(b, STATE_FINAL), fraction_digits = builder_state(b, STATE_FINAL);
    uint32_t digits = builder_state(b, STATE_FINAL), zero = builder_state(b, STATE_FINAL);
    set_digits(b, exponent_digits, exponent_digits);
    uint32_t exponent_first = STATE_WITH(b, {'0', '9', exponent_digits});
    uint32_t exponent =
        STATE_WITH(b, {'+', '+', exponent_first}, {'-', '-', exponent_first}, {'0', '9', exponent_digits});
    const struct byte_edge in_fraction[] = {
        {'0', '9', fraction_digits}, {'E', 'E', exponent}, {'e', 'e', exponent}};
    builder_set_edges(b, fraction_digits, in_fraction, 3);
    uint32_t fraction = STATE_WITH(b, {'0', '9', fraction_digits});
    const struct byte_edge behind_zero[] = {{'.', '.', fraction}, {'E', 'E', exponent}, {'e', 'e', exponent}};
    builder_set_edges(b, zero, behind_zero, 3);
    const struct byte_edge in_digits[] = {
        {'.', '.', fraction}, {'0', '9', digits}, {'E', 'E', exponent}, {'e', 'e', exponent}};
    builder_set_edges(b, digits, in_digits, 4);
    uint32_t first = STATE_WITH(b, {'0', '0', zero}, {'1', '9', digits});
    builder_set_start(b, rule, STATE_WITH(b, {'-', '-', first}, {'0', '0', zero}, {'1', '9', digits}));
    return rule;
}

/* ---- any value ---- */

static uint32_t any_array_rule(struct builder *b, uint32_t value)
{
    uint32_t rule = builder_rule(b), behind = builder_state(b, STATE_SPACES),
             next = builder_state(b, STATE_SPACES);
    uint32_t first = builder_state(b, STATE_SPACES);
    const struct byte_edge go_on[] = {{',', ',', next}, {']', ']', BUILDER_FINAL}};
    builder_set_edges(b, behind, go_on, 2);
    builder_set_call(b, next, value, behind);
    builder_set_edge(b, first, ']', BUILDER_FINAL);
    builder_set_call(b, first, value, behind);
    builder_set_start(b, rule, builder_text(b, "[", 1, first));
    return rule;
}

static uint32_t any_object_rule(struct builder *b, uint32_t value, uint32_t string)
{
    uint32_t rule = builder_rule(b), behind = builder_state(b, STATE_SPACES),
             next = builder_state(b, STATE_SPACES);
    uint32_t first = builder_state(b, STATE_SPACES), colon = builder_state(b, STATE_SPACES);
    uint32_t member = builder_state(b, STATE_SPACES);
    const struct byte_edge go_on[] = {{',', ',', next}, {'}', '}', BUILDER_FINAL}};
    builder_set_edges(b, behind, go_on, 2);
    builder_set_call(b, member, value, behind);
    builder_set_edge(b, colon, ':', member);
    builder_set_call(b, next, string, colon);
    builder_set_edge(b, first, '}', BUILDER_FINAL);
    builder_set_call(b, first, string, colon);
    builder_set_start(b, rule, builder_text(b, "{", 1, first));
    return rule;
}

static uint32_t word_rule(struct builder *b, const char *word)
{
    uint32_t rule = builder_rule(b);
    builder_set_start(b, rule, builder_text(b, word, strlen(word), BUILDER_FINAL));
    return rule;
}

struct json_any json_any_rules(struct builder *b)
{
    uint32_t value = builder_rule(b), start = builder_state(b, 0), string = json_string_rule(b, 0, NO_LIMIT);
    uint32_t object = any_object_rule(b, value, string);
    const struct rule_call calls[] = {{string, BUILDER_FINAL},
                                      {json_number_rule(b), BUILDER_FINAL},
                                      {object, BUILDER_FINAL},
                                      {any_array_rule(b, value), BUILDER_FINAL},
                                      {word_rule(b, "true"), BUILDER_FINAL},
                                      {word_rule(b, "false"), BUILDER_FINAL},
                                      {word_rule(b, "null"), BUILDER_FINAL}};
    builder_set_calls(b, start, calls, sizeof calls / sizeof *calls);
    builder_set_start(b, value, start);
    return (struct json_any){value, object};
}
