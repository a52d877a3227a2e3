/* content_format.c - whether a template takes message content apart by itself.
 *
 * A template wants parts when it loops over the content of a message and shows no strings (content_probe.c); otherwise the server
 * joins the parts into one string. Found on the tree, without running it: names are sorted into what they may hold (the
 * messages, a message, a content), following assignments, loops and the arguments of macros, until nothing
 * new turns up. Names are taken template-wide, scopes are not looked at: a name that means two things means
 * both. */
#include "text/jinja/ast.h"
#include "text/jinja/builtins.h"

enum { HOLDS_MESSAGES = 1, HOLDS_MESSAGE = 2, HOLDS_CONTENT = 4 };

struct finder {
    const struct template *template;
    unsigned char *holds; /* by name idx */
    bool changed;
};

static unsigned held_by(const struct finder *f, const struct node *n);

/* What object.key holds. */
static unsigned held_by_member(const struct finder *f, const struct node *object, const struct text *key)
{
    return text_is(key, "content") && (held_by(f, object) & HOLDS_MESSAGE) ? HOLDS_CONTENT : 0;
}

static unsigned held_by_item(const struct finder *f, const struct node *n)
{
    if (n->b->kind == NODE_CONSTANT && n->b->constant.kind == VALUE_TEXT) {
        return held_by_member(f, n->a, n->b->constant.text);
    }
    return held_by(f, n->a) & HOLDS_MESSAGES ? HOLDS_MESSAGE : 0;
}

/* message.get('content') */
static unsigned held_by_call(const struct finder *f, const struct node *n)
{
    const struct node *callee = n->a, *first = n->list;
    bool get = callee->kind == NODE_ATTRIBUTE && text_is(callee->attribute, "get");
    if (!get || !first || first->kind != NODE_CONSTANT || first->constant.kind != VALUE_TEXT) return 0;
    return held_by_member(f, callee->a, first->constant.text);
}

static unsigned held_by(const struct finder *f, const struct node *n)
{
    if (!n) return 0;
    switch (n->kind) {
    case NODE_NAME:
        return f->holds[n->name->idx];
    case NODE_ATTRIBUTE:
        return held_by_member(f, n->a, n->attribute);
    case NODE_ITEM:
        return held_by_item(f, n);
    case NODE_CALL:
        return held_by_call(f, n);
    case NODE_SLICE:
    case NODE_FILTER:
        return held_by(f, n->a);
    case NODE_CONDITION:
        return held_by(f, n->a) | held_by(f, n->c);
    case NODE_AND:
    case NODE_OR:
        return held_by(f, n->a) | held_by(f, n->b);
    default:
        return 0;
    }
}

static void add(struct finder *f, const struct node *target, unsigned holds)
{
    if (target->kind != NODE_NAME || (f->holds[target->name->idx] | holds) == f->holds[target->name->idx])
        return;
    f->holds[target->name->idx] |= (unsigned char)holds;
    f->changed = true;
}

static const struct node *find_macro(const struct finder *f, const struct name *name)
{
    for (const struct node *n = f->template->nodes; n; n = n->created) {
        if (n->kind == NODE_MACRO && n->name == name) return n;
    }
    return NULL;
}

static void pass_arguments(struct finder *f, const struct node *call)
{
    const struct node *macro = call->a->kind == NODE_NAME ? find_macro(f, call->a->name) : NULL;
    const struct node *parameter = macro ? macro->a : NULL;
    for (const struct node *n = call->list; n && parameter; n = n->next, parameter = parameter->next) {
        struct node target = {.kind = NODE_NAME, .name = n->kind == NODE_KEYWORD ? n->name : parameter->name};
        add(f, &target, held_by(f, n->kind == NODE_KEYWORD ? n->a : n));
    }
}

/* Returns true at a loop over content. */
static bool visit(struct finder *f, const struct node *n)
{
    unsigned over;
    switch (n->kind) {
    case NODE_SET:
        add(f, n->a, held_by(f, n->b));
        return false;
    case NODE_CALL:
        pass_arguments(f, n);
        return false;
    case NODE_FOR:
        over = held_by(f, n->b);
        if (over & HOLDS_MESSAGES) add(f, n->a, HOLDS_MESSAGE);
        return over & HOLDS_CONTENT;
    default:
        return false;
    }
}

bool template_loops_over_content(const struct template *t)
{
    const struct name *messages = template_find_name(t, "messages", 8);
    struct finder f = {.template = t, .holds = calloc((size_t)t->num_names + 1, 1), .changed = true};
    bool found = false;
    if (f.holds && messages) f.holds[messages->idx] = HOLDS_MESSAGES;
    while (f.holds && messages && f.changed && !found) {
        f.changed = false;
        for (const struct node *n = t->nodes; n && !found; n = n->created) found = visit(&f, n);
    }
    free(f.holds);
    return found;
}
