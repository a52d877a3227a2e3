/* operators.c - Python's arithmetic and comparisons. Integers have 64 bits; what does not fit is an error. */
#include <math.h>

#include "text/jinja/run.h"

static struct value fail_operands(struct run *r, char op, struct value a, struct value b)
{
    if (a.kind == VALUE_UNDEFINED) return fail_undefined(r, a);
    if (b.kind == VALUE_UNDEFINED) return fail_undefined(r, b);
    const char *shown = op == OPERATOR_FLOOR_DIVIDE ? "//" : op == OPERATOR_POWER ? "**" : NULL;
    char single[2] = {op, '\0'};
    return run_fail(r, STATUS_TEMPLATE, "unsupported operand type(s) for %s: '%s' and '%s'",
                    shown ? shown : single, value_type_name(a), value_type_name(b));
}

static struct value fail_overflow(struct run *r)
{
    return run_fail(r, STATUS_TEMPLATE, "an integer does not fit in 64 bits");
}

static struct value int_power(struct run *r, int64_t base, int64_t exponent)
{
    if (exponent < 0) return value_float(pow((double)base, (double)exponent));
    int64_t result = 1;
    for (; exponent > 0; exponent >>= 1) {
        if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) return fail_overflow(r);
        if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return fail_overflow(r);
    }
    return value_int(result);
}

/* Python rounds to minus infinity, and the remainder has the divisor's sign. */
static struct value int_divide(struct run *r, char op, int64_t a, int64_t b)
{
    if (b == 0) return run_fail(r, STATUS_TEMPLATE, "division by zero");
    if (op == OPERATOR_DIVIDE) return value_float((double)a / (double)b);
    if (b == -1)
        return op == OPERATOR_MODULO ? value_int(0)
                                     : apply_binary(r, OPERATOR_SUBTRACT, value_int(0), value_int(a));
    int64_t quotient = a / b, rest = a % b;
    if (rest != 0 && (rest < 0) != (b < 0)) {
        quotient--;
        rest += b;
    }
    return value_int(op == OPERATOR_MODULO ? rest : quotient);
}

static struct value int_binary(struct run *r, char op, int64_t a, int64_t b)
{
    int64_t result;
    bool overflow;
    switch (op) {
    case OPERATOR_ADD:
        overflow = __builtin_add_overflow(a, b, &result);
        break;
    case OPERATOR_SUBTRACT:
        overflow = __builtin_sub_overflow(a, b, &result);
        break;
    case OPERATOR_MULTIPLY:
        overflow = __builtin_mul_overflow(a, b, &result);
        break;
    case OPERATOR_POWER:
        return int_power(r, a, b);
    default:
        return int_divide(r, op, a, b);
    }
    return overflow ? fail_overflow(r) : value_int(result);
}

/* As Python has it: of what fmod leaves, since a / b may have been rounded up to a whole number. */
static double float_modulo(double a, double b)
{
    const double rest = fmod(a, b);
    if (rest == 0) return copysign(0.0, b);
    return (rest < 0) != (b < 0) ? rest + b : rest;
}

static double float_floor_divide(double a, double b)
{
    const double quotient = (a - float_modulo(a, b)) / b, whole = floor(quotient);
    if (quotient == 0) return copysign(0.0, a / b);
    return quotient - whole > 0.5 ? whole + 1 : whole;
}

static struct value float_binary(struct run *r, char op, double a, double b)
{
    bool divides = op == OPERATOR_DIVIDE || op == OPERATOR_FLOOR_DIVIDE || op == OPERATOR_MODULO;
    if (divides && b == 0) return run_fail(r, STATUS_TEMPLATE, "float division by zero");
    switch (op) {
    case OPERATOR_ADD:
        return value_float(a + b);
    case OPERATOR_SUBTRACT:
        return value_float(a - b);
    case OPERATOR_MULTIPLY:
        return value_float(a * b);
    case OPERATOR_DIVIDE:
        return value_float(a / b);
    case OPERATOR_POWER:
        return value_float(pow(a, b));
    case OPERATOR_FLOOR_DIVIDE:
        return value_float(float_floor_divide(a, b));
    default:
        return value_float(float_modulo(a, b));
    }
}

struct value apply_add_texts(struct run *r, const struct text *a, const struct text *b)
{
    struct heap *h = &r->heap;
    bool markup = a->markup || b->markup;
    if (markup) {
        a = text_escape_html(h, a);
        b = text_escape_html(h, b);
    }
    run_charge(r, b->num_bytes);
    return value_text(text_as_markup(h, text_concat(h, a, b), markup));
}

static struct value add_lists(struct run *r, struct value a, struct value b)
{
    struct list *l = list_create(&r->heap, a.list->num + b.list->num);
    run_charge(r, (size_t)(a.list->num + b.list->num) * sizeof(struct value));
    for (int i = 0; i < a.list->num; i++) list_append(&r->heap, l, a.list->items[i]);
    for (int i = 0; i < b.list->num; i++) list_append(&r->heap, l, b.list->items[i]);
    return value_list(a.kind, l);
}

/* Charged before each copy, so that a huge count ends at the step limit. */
static struct value repeat(struct run *r, struct value v, int64_t count)
{
    struct heap *h = &r->heap;
    if (v.kind == VALUE_TEXT) {
        struct text_builder b;
        text_builder_init(&b, h);
        for (int64_t i = 0; v.text->num_bytes > 0 && i < count && run_charge(r, v.text->num_bytes + 64);
             i++) {
            text_builder_append_text(&b, v.text);
        }
        return value_text(text_as_markup(h, text_builder_take(&b), v.text->markup));
    }
    struct list *l = list_create(h, 0);
    for (int64_t i = 0; v.list->num > 0 && i < count && run_charge(r, (size_t)v.list->num * 64); i++) {
        for (int k = 0; k < v.list->num; k++) list_append(h, l, v.list->items[k]);
    }
    return value_list(v.kind, l);
}

static bool is_repeatable(struct value v)
{
    return v.kind == VALUE_TEXT || v.kind == VALUE_LIST || v.kind == VALUE_TUPLE;
}

struct value apply_binary(struct run *r, char op, struct value a, struct value b)
{
    if (value_is_integral(a) && value_is_integral(b))
        return int_binary(r, op, value_as_int(a), value_as_int(b));
    if (value_is_number(a) && value_is_number(b)) {
        return float_binary(r, op, value_as_float(a), value_as_float(b));
    }
    if (op == OPERATOR_ADD && a.kind == b.kind) {
        if (a.kind == VALUE_TEXT) return apply_add_texts(r, a.text, b.text);
        if (a.kind == VALUE_LIST || a.kind == VALUE_TUPLE) return add_lists(r, a, b);
    }
    if (op == OPERATOR_MULTIPLY && is_repeatable(a) && value_is_integral(b))
        return repeat(r, a, value_as_int(b));
    if (op == OPERATOR_MULTIPLY && is_repeatable(b) && value_is_integral(a))
        return repeat(r, b, value_as_int(a));
    if (op == OPERATOR_MODULO && a.kind == VALUE_TEXT) return text_percent(r, a.text, b);
    return fail_operands(r, op, a, b);
}

/* ---- comparisons ---- */

static bool list_contains(struct run *r, const struct list *l, struct value v)
{
    for (int i = 0; i < l->num && r->status == 0; i++) {
        if (value_equal(&r->heap, l->items[i], v, r->depth_left)) return true;
    }
    return false;
}

bool value_contains(struct run *r, struct value container, struct value v)
{
    if (container.kind == VALUE_TEXT) {
        if (v.kind != VALUE_TEXT) {
            run_fail(r, STATUS_TEMPLATE, "'in <string>' requires string as left operand, not %s",
                     value_type_name(v));
            return false;
        }
        run_charge(r, container.text->num_bytes * 4);
        return text_find(container.text, v.text, 0, container.text->num_bytes) != SIZE_MAX;
    }
    if (container.kind == VALUE_DICT) {
        if (value_is_hashable(v)) return dict_find(&r->heap, container.dict, v);
        run_fail(r, STATUS_TEMPLATE, "unhashable type: '%s'", value_type_name(v));
        return false;
    }
    if (value_is_list(container) || container.kind == VALUE_UNDEFINED) {
        return list_contains(r, run_iterate(r, container), v);
    }
    run_fail(r, STATUS_TEMPLATE, "argument of type '%s' is not iterable", value_type_name(container));
    return false;
}

static bool compare_order(struct run *r, char op, struct value a, struct value b)
{
    static const char *const shown[] = {['<'] = "<", ['l'] = "<=", ['>'] = ">", ['g'] = ">="};
    int order;
    if (!value_compare(&r->heap, a, b, r->depth_left, &order)) {
        if (a.kind == VALUE_UNDEFINED || b.kind == VALUE_UNDEFINED) {
            fail_undefined(r, a.kind == VALUE_UNDEFINED ? a : b);
        } else {
            run_fail(r, STATUS_TEMPLATE, "'%s' not supported between instances of '%s' and '%s'",
                     shown[(unsigned char)op], value_type_name(a), value_type_name(b));
        }
        return false;
    }
    bool unordered = (a.kind == VALUE_FLOAT && isnan(a.real)) || (b.kind == VALUE_FLOAT && isnan(b.real));
    if (unordered) return false;
    switch (op) {
    case OPERATOR_LESS:
        return order < 0;
    case OPERATOR_LESS_EQUAL:
        return order <= 0;
    case OPERATOR_GREATER:
        return order > 0;
    default:
        return order >= 0;
    }
}

bool apply_compare(struct run *r, char op, struct value a, struct value b)
{
    switch (op) {
    case OPERATOR_EQUAL:
        return value_equal(&r->heap, a, b, r->depth_left);
    case OPERATOR_NOT_EQUAL:
        return !value_equal(&r->heap, a, b, r->depth_left);
    case OPERATOR_IN:
        return value_contains(r, b, a);
    case OPERATOR_NOT_IN:
        return !value_contains(r, b, a);
    default:
        return compare_order(r, op, a, b);
    }
}
