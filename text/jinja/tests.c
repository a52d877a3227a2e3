/* tests.c - what may follow `is`. */
#include <utf8proc.h>

#include "text/jinja/run.h"

static struct value test_defined(struct call *c)
{
    return value_bool(c->self.kind != VALUE_UNDEFINED);
}

static struct value test_undefined(struct call *c)
{
    return value_bool(c->self.kind == VALUE_UNDEFINED);
}

static struct value test_none(struct call *c)
{
    return value_bool(c->self.kind == VALUE_NONE);
}

static struct value test_boolean(struct call *c)
{
    return value_bool(c->self.kind == VALUE_BOOL);
}

static struct value test_true(struct call *c)
{
    return value_bool(c->self.kind == VALUE_BOOL && c->self.boolean);
}

static struct value test_false(struct call *c)
{
    return value_bool(c->self.kind == VALUE_BOOL && !c->self.boolean);
}

static struct value test_integer(struct call *c)
{
    return value_bool(c->self.kind == VALUE_INT || c->self.kind == VALUE_LONG);
}

static struct value test_float(struct call *c)
{
    return value_bool(c->self.kind == VALUE_FLOAT);
}

static struct value test_number(struct call *c)
{
    return value_bool(value_is_number(c->self));
}

static struct value test_string(struct call *c)
{
    return value_bool(c->self.kind == VALUE_TEXT);
}

static struct value test_mapping(struct call *c)
{
    return value_bool(c->self.kind == VALUE_DICT);
}

static struct value test_iterable(struct call *c)
{
    enum value_kind kind = c->self.kind;
    return value_bool(value_is_list(c->self) || kind == VALUE_TEXT || kind == VALUE_DICT ||
                      kind == VALUE_UNDEFINED || kind == VALUE_LOOP);
}

/* Has a length and can be indexed: Python's views and generators cannot, an undefined value pretends to. */
static struct value test_sequence(struct call *c)
{
    switch (c->self.kind) {
    case VALUE_UNDEFINED:
    case VALUE_TEXT:
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE:
    case VALUE_DICT:
        return value_bool(true);
    default:
        return value_bool(false);
    }
}

static struct value test_callable(struct call *c)
{
    enum value_kind kind = c->self.kind;
    return value_bool(kind == VALUE_UNDEFINED || kind == VALUE_MACRO || kind == VALUE_FUNCTION ||
                      kind == VALUE_METHOD || kind == VALUE_LOOP || kind == VALUE_JOINER);
}

static struct value test_escaped(struct call *c)
{
    return value_bool(c->self.kind == VALUE_TEXT && c->self.text->markup);
}

static struct value test_sameas(struct call *c)
{
    return value_bool(value_is_same(c->self, c->args[0]));
}

static struct value remainder_is(struct call *c, int64_t divisor, int64_t wanted)
{
    struct value rest = apply_binary(c->run, OPERATOR_MODULO, c->self, value_int(divisor));
    return value_bool(value_equal(c->heap, rest, value_int(wanted), 1));
}

static struct value test_odd(struct call *c)
{
    return remainder_is(c, 2, 1);
}

static struct value test_even(struct call *c)
{
    return remainder_is(c, 2, 0);
}

static struct value test_divisibleby(struct call *c)
{
    return remainder_is(c, call_int(c, 0, 1), 0);
}

static struct value ask_text(struct call *c, const char *method)
{
    struct text name = {.bytes = method, .num_bytes = strlen(method)};
    struct arguments none = {0};
    struct value self = value_text(call_self_text(c));
    return builtin_call(c->run, method_find(VALUE_TEXT, &name), self, &none);
}

static struct value test_lower(struct call *c)
{
    return ask_text(c, "islower");
}

static struct value test_upper(struct call *c)
{
    return ask_text(c, "isupper");
}

static struct value test_in(struct call *c)
{
    return value_bool(value_contains(c->run, c->args[0], c->self));
}

static struct value test_eq(struct call *c)
{
    return value_bool(apply_compare(c->run, OPERATOR_EQUAL, c->self, c->args[0]));
}

static struct value test_ne(struct call *c)
{
    return value_bool(apply_compare(c->run, OPERATOR_NOT_EQUAL, c->self, c->args[0]));
}

static struct value test_lt(struct call *c)
{
    return value_bool(apply_compare(c->run, OPERATOR_LESS, c->self, c->args[0]));
}

static struct value test_le(struct call *c)
{
    return value_bool(apply_compare(c->run, OPERATOR_LESS_EQUAL, c->self, c->args[0]));
}

static struct value test_gt(struct call *c)
{
    return value_bool(apply_compare(c->run, OPERATOR_GREATER, c->self, c->args[0]));
}

static struct value test_ge(struct call *c)
{
    return value_bool(apply_compare(c->run, OPERATOR_GREATER_EQUAL, c->self, c->args[0]));
}

static struct value test_filter(struct call *c)
{
    return value_bool(c->self.kind == VALUE_TEXT && filter_find(c->self.text));
}

static struct value test_test(struct call *c)
{
    return value_bool(c->self.kind == VALUE_TEXT && test_find(c->self.text));
}

static const struct builtin tests[] = {
    {"defined", test_defined, {NULL}, 0, false},   {"undefined", test_undefined, {NULL}, 0, false},
    {"none", test_none, {NULL}, 0, false},         {"string", test_string, {NULL}, 0, false},
    {"mapping", test_mapping, {NULL}, 0, false},   {"iterable", test_iterable, {NULL}, 0, false},
    {"sequence", test_sequence, {NULL}, 0, false}, {"boolean", test_boolean, {NULL}, 0, false},
    {"true", test_true, {NULL}, 0, false},         {"false", test_false, {NULL}, 0, false},
    {"integer", test_integer, {NULL}, 0, false},   {"float", test_float, {NULL}, 0, false},
    {"number", test_number, {NULL}, 0, false},     {"odd", test_odd, {NULL}, 0, false},
    {"even", test_even, {NULL}, 0, false},         {"divisibleby", test_divisibleby, {"num"}, 1, false},
    {"callable", test_callable, {NULL}, 0, false}, {"escaped", test_escaped, {NULL}, 0, false},
    {"sameas", test_sameas, {"other"}, 1, false},  {"lower", test_lower, {NULL}, 0, false},
    {"upper", test_upper, {NULL}, 0, false},       {"in", test_in, {"seq"}, 1, false},
    {"eq", test_eq, {"other"}, 1, false},          {"equalto", test_eq, {"other"}, 1, false},
    {"==", test_eq, {"other"}, 1, false},          {"ne", test_ne, {"other"}, 1, false},
    {"!=", test_ne, {"other"}, 1, false},          {"lt", test_lt, {"other"}, 1, false},
    {"lessthan", test_lt, {"other"}, 1, false},    {"<", test_lt, {"other"}, 1, false},
    {"le", test_le, {"other"}, 1, false},          {"<=", test_le, {"other"}, 1, false},
    {"gt", test_gt, {"other"}, 1, false},          {"greaterthan", test_gt, {"other"}, 1, false},
    {">", test_gt, {"other"}, 1, false},           {"ge", test_ge, {"other"}, 1, false},
    {">=", test_ge, {"other"}, 1, false},          {"filter", test_filter, {NULL}, 0, false},
    {"test", test_test, {NULL}, 0, false},
};

const struct builtin *test_find(const struct text *name)
{
    return builtin_find(tests, array_length(tests), name);
}
