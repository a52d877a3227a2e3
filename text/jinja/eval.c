/* eval.c - expressions: a tree walk. */
#include "text/jinja/run.h"

static struct list *eval_items(struct run *r, const struct node *first)
{
    struct list *l = list_create(&r->heap, 0);
    for (const struct node *n = first; n; n = n->next) list_append(&r->heap, l, eval(r, n));
    return l;
}

static struct value eval_dict(struct run *r, const struct node *first)
{
    struct dict *d = dict_create(&r->heap, 0);
    for (const struct node *n = first; d && n; n = n->next) {
        struct value key = eval(r, n->a), v = eval(r, n->b);
        if (!value_is_hashable(key))
            return run_fail(r, STATUS_TEMPLATE, "unhashable type: '%s'", value_type_name(key));
        dict_set(&r->heap, d, key, v);
    }
    return value_dict(VALUE_DICT, d);
}

static struct value eval_slice(struct run *r, const struct node *n)
{
    struct value object = eval(r, n->a);
    struct value start = n->b ? eval(r, n->b) : value_none();
    struct value stop = n->c ? eval(r, n->c) : value_none();
    struct value step = n->d ? eval(r, n->d) : value_none();
    return r->status == 0 ? get_slice(r, object, start, stop, step) : value_undefined();
}

/* object.method(...) without making a bound method in between. */
static struct value eval_call(struct run *r, const struct node *n)
{
    struct arguments all;
    if (n->a->kind != NODE_ATTRIBUTE) {
        struct value callee = eval(r, n->a);
        return eval_arguments(r, n->list, &all) ? call_value(r, callee, &all) : value_undefined();
    }
    struct value object = eval(r, n->a->a);
    const struct builtin *method = method_find(object.kind, n->a->attribute);
    struct value callee = method || r->status != 0 ? value_none() : get_attribute(r, object, n->a->attribute);
    if (!eval_arguments(r, n->list, &all)) return value_undefined();
    return method ? builtin_call(r, method, object, &all) : call_value(r, callee, &all);
}

static struct value call_named(struct run *r, const struct node *n, struct value input)
{
    struct arguments all;
    if (!n->builtin) {
        return run_fail(r, STATUS_TEMPLATE, "no %s named '%.*s'", n->kind == NODE_FILTER ? "filter" : "test",
                        (int)n->name->text.num_bytes, n->name->text.bytes);
    }
    if (!eval_arguments(r, n->list, &all)) return value_undefined();
    return builtin_call(r, n->builtin, input, &all);
}

struct value eval_filters(struct run *r, const struct node *n, struct value input)
{
    if (!n) return input;
    if (!run_enter(r)) return value_undefined();
    struct value v = call_named(r, n, eval_filters(r, n->a, input));
    run_leave(r);
    return v;
}

/* A text that grows by one concatenation after the other is not copied by each (text_concat). */
static struct value eval_concat(struct run *r, const struct node *n)
{
    const struct text *t = value_to_text(&r->heap, eval(r, n->list), r->depth_left);
    for (const struct node *part = n->list->next; part; part = part->next) {
        const struct text *more = value_to_text(&r->heap, eval(r, part), r->depth_left);
        run_charge(r, more->num_bytes);
        t = text_concat(&r->heap, t, more);
    }
    return value_text(text_as_markup(&r->heap, t, false));
}

/* a < b < c is a < b and b < c, each evaluated once. */
static struct value eval_compare(struct run *r, const struct node *n)
{
    struct value left = eval(r, n->a);
    for (const struct node *operand = n->list; operand; operand = operand->next) {
        struct value right = eval(r, operand->a);
        if (r->status != 0 || !apply_compare(r, operand->op, left, right)) return value_bool(false);
        left = right;
    }
    return value_bool(true);
}

static struct value eval_sign(struct run *r, const struct node *n)
{
    struct value v = eval(r, n->a);
    if (r->status != 0) return v;
    if (v.kind == VALUE_UNDEFINED) return fail_undefined(r, v);
    bool negative = n->kind == NODE_NEGATIVE;
    if (value_is_integral(v))
        return negative ? apply_binary(r, OPERATOR_SUBTRACT, value_int(0), v) : value_int(value_as_int(v));
    if (value_is_number(v)) return value_float(negative ? -value_as_float(v) : value_as_float(v));
    return run_fail(r, STATUS_TEMPLATE, "bad operand type for unary %c: '%s'", negative ? '-' : '+',
                    value_type_name(v));
}

static struct value eval_condition(struct run *r, const struct node *n)
{
    if (value_is_true(eval(r, n->b))) return eval(r, n->a);
    return n->c ? eval(r, n->c) : value_undefined();
}

static struct value eval_binary(struct run *r, const struct node *n)
{
    struct value a = eval(r, n->a), b = eval(r, n->b);
    return r->status == 0 ? apply_binary(r, n->op, a, b) : value_undefined();
}

static struct value eval_kind(struct run *r, const struct node *n)
{
    struct value v;
    switch (n->kind) {
    case NODE_CONSTANT:
        return n->constant;
    case NODE_NAME:
        return scope_get(r, n->name);
    case NODE_LIST:
        return value_list(VALUE_LIST, eval_items(r, n->list));
    case NODE_TUPLE:
        return value_list(VALUE_TUPLE, eval_items(r, n->list));
    case NODE_DICT:
        return eval_dict(r, n->list);
    case NODE_ATTRIBUTE:
        v = eval(r, n->a);
        return r->status == 0 ? get_attribute(r, v, n->attribute) : v;
    case NODE_ITEM: {
        v = eval(r, n->a);
        struct value key = eval(r, n->b);
        return r->status == 0 ? get_item(r, v, key) : v;
    }
    case NODE_SLICE:
        return eval_slice(r, n);
    case NODE_CALL:
        return eval_call(r, n);
    case NODE_FILTER:
    case NODE_TEST:
        v = eval(r, n->a);
        return r->status == 0 ? call_named(r, n, v) : v;
    case NODE_NOT:
        return value_bool(!value_is_true(eval(r, n->a)));
    case NODE_NEGATIVE:
    case NODE_POSITIVE:
        return eval_sign(r, n);
    case NODE_BINARY:
        return eval_binary(r, n);
    case NODE_CONCAT:
        return eval_concat(r, n);
    case NODE_COMPARE:
        return eval_compare(r, n);
    case NODE_AND:
        v = eval(r, n->a);
        return value_is_true(v) ? eval(r, n->b) : v;
    case NODE_OR:
        v = eval(r, n->a);
        return value_is_true(v) ? v : eval(r, n->b);
    case NODE_CONDITION:
        return eval_condition(r, n);
    default:
        return value_undefined(); /* the parser puts no statement here */
    }
}

struct value eval(struct run *r, const struct node *n)
{
    if (!run_enter(r)) return value_undefined();
    r->line = n->line;
    struct value v = eval_kind(r, n);
    run_leave(r);
    return v;
}
