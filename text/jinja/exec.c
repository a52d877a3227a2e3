/* exec.c - statements. break and continue travel up as the flow that a body ends with. */
#include "text/jinja/run.h"

static void assign(struct run *r, const struct node *target, struct value v);

static void assign_tuple(struct run *r, const struct node *target, struct value v)
{
    const struct list *items = run_iterate(r, v);
    int num = 0, at = 0;
    for (const struct node *n = target->list; n; n = n->next) num++;
    if (r->status != 0) return;
    if (items->num != num) {
        run_fail(r, STATUS_TEMPLATE, "%d values to unpack into %d names", items->num, num);
        return;
    }
    for (const struct node *n = target->list; n; n = n->next) assign(r, n, items->items[at++]);
}

static void assign(struct run *r, const struct node *target, struct value v)
{
    if (!run_enter(r)) return;
    if (target->kind == NODE_NAME) {
        scope_set(r, r->scope, target->name, v);
    } else if (target->kind == NODE_TUPLE) {
        assign_tuple(r, target, v);
    } else {
        struct value object = scope_get(r, target->name);
        if (object.kind == VALUE_NAMESPACE) {
            dict_set(&r->heap, object.dict, value_text(target->attribute), v);
        } else {
            run_fail(r, STATUS_TEMPLATE, "cannot assign attribute on non-namespace object");
        }
    }
    run_leave(r);
}

const struct text *exec_capture(struct run *r, const struct node *body, enum flow *flow)
{
    struct text_builder b, *outer = r->out;
    text_builder_init(&b, &r->heap);
    r->out = &b;
    *flow = exec_body(r, body);
    r->out = outer;
    return text_builder_take(&b);
}

/* A body in a scope of its own. */
static const struct text *capture_scoped(struct run *r, const struct node *body, enum flow *flow)
{
    struct scope *outer = r->scope;
    r->scope = scope_create(r, outer);
    const struct text *t = exec_capture(r, body, flow);
    r->scope = outer;
    return t;
}

static enum flow exec_scoped(struct run *r, const struct node *body)
{
    struct scope *outer = r->scope;
    r->scope = scope_create(r, outer);
    enum flow flow = exec_body(r, body);
    r->scope = outer;
    return flow;
}

static enum flow exec_if(struct run *r, const struct node *n)
{
    for (; n; n = n->b) {
        r->line = n->line;
        if (value_is_true(eval(r, n->a))) return exec_body(r, n->list);
        if (r->status != 0) return FLOW_NEXT;
        if (!n->b) return exec_body(r, n->c);
    }
    return FLOW_NEXT;
}

/* ---- loops ---- */

/* Keeps an item for which the loop's `if` is true; the target's names are seen by it alone. */
static void look_at_next(struct run *r, struct loop *l)
{
    struct scope *inner = r->scope;
    const struct value item = l->source->items[l->num_seen++];
    r->scope = scope_create(r, l->scope);
    assign(r, l->filter->a, item);
    if (value_is_true(eval(r, l->filter->c))) list_append(&r->heap, l->items, item);
    r->scope = inner;
}

bool loop_has(struct run *r, struct loop *l, int idx)
{
    while (l->items->num <= idx && l->source && l->num_seen < l->source->num && run_charge(r, WORK_OF_NODE))
        look_at_next(r, l);
    return idx < l->items->num;
}

/* Whether any of them came to the end of the body. */
static bool exec_iterations(struct run *r, const struct node *n, struct loop *loop)
{
    bool any = false;
    const struct name *loop_name = template_find_name(r->template, "loop", 4);
    for (; loop_has(r, loop, loop->at) && r->status == 0; loop->at++) {
        r->scope->num = 0; /* names set in one iteration are gone in the next */
        if (loop_name) scope_set(r, r->scope, loop_name, (struct value){.kind = VALUE_LOOP, .loop = loop});
        assign(r, n->a, loop->items->items[loop->at]);
        const enum flow flow = exec_body(r, n->list);
        any |= flow == FLOW_NEXT;
        if (flow == FLOW_BREAK) break;
    }
    return any;
}

/* As in jinja2, `else` is also for a loop of which every iteration ends with break or continue. */
static enum flow run_loop(struct run *r, const struct node *n, struct value iterable, int depth)
{
    struct list *all = run_iterate(r, iterable), *items = n->c ? list_create(&r->heap, 0) : all;
    struct scope *outer = r->scope;
    struct loop *loop = heap_alloc(&r->heap, sizeof *loop);
    r->scope = scope_create(r, outer);
    bool any = false;
    if (loop && items && r->scope) {
        *loop = (struct loop){.items = items, .depth = depth, .node = n->flag ? n : NULL, .scope = outer};
        if (n->c) {
            loop->source = all;
            loop->filter = n;
        }
        any = exec_iterations(r, n, loop);
        r->scope->num = 0;
    }
    const enum flow flow = !any && r->status == 0 && n->d ? exec_body(r, n->d) : FLOW_NEXT;
    r->scope = outer;
    return flow;
}

const struct text *exec_loop(struct run *r, const struct node *n, struct value items, int depth,
                             struct scope *scope)
{
    struct text_builder b, *outer = r->out;
    struct scope *caller = r->scope;
    if (!run_enter(r)) return &text_empty;
    text_builder_init(&b, &r->heap);
    r->out = &b;
    r->scope = scope;
    run_loop(r, n, items, depth);
    r->out = outer;
    r->scope = caller;
    run_leave(r);
    return text_builder_take(&b);
}

/* ---- the others ---- */

static enum flow exec_set_block(struct run *r, const struct node *n)
{
    enum flow flow;
    struct value v = value_text(capture_scoped(r, n->list, &flow));
    if (flow != FLOW_NEXT) return flow;
    if (n->b) v = eval_filters(r, n->b, v);
    assign(r, n->a, v);
    return flow;
}

static struct value make_macro(struct run *r, const struct node *n)
{
    struct macro *m = heap_alloc(&r->heap, sizeof *m);
    if (!m) return value_undefined();
    *m = (struct macro){n, r->scope};
    return (struct value){.kind = VALUE_MACRO, .macro = m};
}

static void exec_call_block(struct run *r, const struct node *n)
{
    struct value callee = eval(r, n->a->a);
    struct arguments all;
    if (!eval_arguments(r, n->a->list, &all)) return;
    struct keyword *keywords = heap_alloc_array(&r->heap, (size_t)all.num_keywords + 1, sizeof *keywords);
    if (!keywords) return;
    for (int i = 0; i < all.num_keywords; i++) keywords[i] = all.keywords[i];
    keywords[all.num_keywords++] = (struct keyword){&n->b->name->text, make_macro(r, n->b)};
    all.keywords = keywords;
    value_print(r->out, call_value(r, callee, &all), r->depth_left);
}

static enum flow exec_filter_block(struct run *r, const struct node *n)
{
    enum flow flow;
    const struct text *body = capture_scoped(r, n->list, &flow);
    if (flow != FLOW_NEXT) return flow;
    struct value v = eval_filters(r, n->a, value_text(body));
    if (r->status == 0) value_print(r->out, v, r->depth_left);
    return flow;
}

/* All values are computed before the first of the names is set. */
static enum flow exec_with(struct run *r, const struct node *n)
{
    struct scope *outer = r->scope, *inner = scope_create(r, outer);
    for (const struct node *set = n->a; set && inner; set = set->next) {
        struct value v = eval(r, set->b);
        r->scope = inner;
        assign(r, set->a, v);
        r->scope = outer;
    }
    r->scope = inner;
    enum flow flow = exec_body(r, n->list);
    r->scope = outer;
    return flow;
}

static enum flow exec(struct run *r, const struct node *n)
{
    switch (n->kind) {
    case NODE_DATA:
        text_builder_append_text(r->out, n->constant.text);
        return FLOW_NEXT;
    case NODE_OUTPUT: {
        struct value v = eval(r, n->a);
        if (r->status == 0) value_print(r->out, v, r->depth_left);
        return FLOW_NEXT;
    }
    case NODE_IF:
        return exec_if(r, n);
    case NODE_FOR:
        return run_loop(r, n, eval(r, n->b), 0);
    case NODE_SET: {
        struct value v = eval(r, n->b);
        if (r->status == 0) assign(r, n->a, v);
        return FLOW_NEXT;
    }
    case NODE_SET_BLOCK:
        return exec_set_block(r, n);
    case NODE_MACRO:
        scope_set(r, r->scope, n->name, make_macro(r, n));
        return FLOW_NEXT;
    case NODE_CALL_BLOCK:
        exec_call_block(r, n);
        return FLOW_NEXT;
    case NODE_FILTER_BLOCK:
        return exec_filter_block(r, n);
    case NODE_WITH:
        return exec_with(r, n);
    case NODE_SCOPE:
        return exec_scoped(r, n->list);
    case NODE_BREAK:
        return FLOW_BREAK;
    case NODE_CONTINUE:
        return FLOW_CONTINUE;
    default:
        return FLOW_NEXT;
    }
}

enum flow exec_body(struct run *r, const struct node *body)
{
    if (!run_enter(r)) return FLOW_NEXT;
    enum flow flow = FLOW_NEXT;
    for (const struct node *n = body; n && flow == FLOW_NEXT && run_charge(r, WORK_OF_NODE); n = n->next) {
        r->line = n->line;
        flow = exec(r, n);
    }
    run_leave(r);
    return flow;
}
