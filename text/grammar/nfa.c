#include "text/grammar/nfa.h"

#include "base/check.h"

static uint32_t add_state(struct nfa *n, struct nfa_state state)
{
    struct nfa_state *s = pool_push(&n->states, 1);
    if (!s) {
        n->status = n->states.status;
        return 0;
    }
    *s = state;
    return n->states.count - 1;
}

static uint32_t add_split(struct nfa *n, uint32_t a, uint32_t b)
{
    return add_state(n, (struct nfa_state){.kind = NFA_SPLIT, .a = a, .b = b});
}

static uint32_t build(struct nfa *n, const struct regex_tree *tree, uint32_t node, uint32_t next);

static uint32_t build_repeat(struct nfa *n, const struct regex_tree *tree, const struct regex_node *node,
                             uint32_t next)
{
    uint32_t tail = next;
    if (node->max == REGEX_UNBOUNDED) {
        uint32_t loop = add_split(n, next, next);
        uint32_t body = build(n, tree, node->a, loop);
        if (n->status) return 0;
        pool_items(struct nfa_state, &n->states)[loop].a = body;
        tail = loop;
    } else {
        for (int32_t i = node->min; i < node->max && !n->status; i++)
            tail = add_split(n, build(n, tree, node->a, tail), next);
    }
    for (int32_t i = 0; i < node->min && !n->status; i++) tail = build(n, tree, node->a, tail);
    return tail;
}

static uint32_t build_alternate(struct nfa *n, const struct regex_tree *tree, const struct regex_node *node,
                                uint32_t next)
{
    const struct regex_node *nodes = tree->nodes.items;
    uint32_t tail = build(n, tree, node->b, next), first = node->a;
    for (; nodes[first].kind == REGEX_ALTERNATE && !n->status; first = nodes[first].a)
        tail = add_split(n, build(n, tree, nodes[first].b, next), tail);
    return add_split(n, build(n, tree, first, next), tail);
}

/* The number of a look's body, which is built when it is first met. */
static uint32_t look_body(struct nfa *n, const struct regex_tree *tree, uint32_t node, bool is_behind)
{
    for (int i = 0; i < n->num_looks; i++)
        if (n->looks[i].node == node && n->looks[i].is_behind == is_behind) return n->looks[i].number;
    uint32_t number = build(n, tree, node, is_behind ? n->found : n->match);
    if (n->status) return 0;
    if (is_behind) {
        n->behinds[n->num_behinds] = number;
        number = (uint32_t)n->num_behinds++;
    }
    n->looks[n->num_looks++] = (struct nfa_look){node, is_behind, number};
    return number;
}

static uint32_t build_look(struct nfa *n, const struct regex_tree *tree, const struct regex_node *node,
                           uint32_t next)
{
    bool is_behind = node->kind == REGEX_BEHIND;
    return add_state(n, (struct nfa_state){.kind = is_behind ? NFA_BEHIND : NFA_AHEAD,
                                           .negative = node->min != 0,
                                           .a = next,
                                           .b = look_body(n, tree, node->a, is_behind)});
}

/* Depth: groups are nested REGEX_DEPTH_MAX deep at most, but a sequence is a chain to the left. */
static uint32_t build(struct nfa *n, const struct regex_tree *tree, uint32_t node, uint32_t next)
{
    const struct regex_node *nodes = tree->nodes.items;
    while (!n->status && nodes[node].kind == REGEX_CONCAT) {
        next = build(n, tree, nodes[node].b, next);
        node = nodes[node].a;
    }
    if (n->status) return 0;
    switch (nodes[node].kind) {
    case REGEX_SET:
        return add_state(n, (struct nfa_state){.kind = NFA_SET, .set = nodes[node].a, .a = next});
    case REGEX_REPEAT:
        return build_repeat(n, tree, &nodes[node], next);
    case REGEX_BEGIN:
        return add_state(n, (struct nfa_state){.kind = NFA_BEGIN, .a = next});
    case REGEX_END:
        return add_state(n, (struct nfa_state){.kind = NFA_END, .a = next});
    case REGEX_ALTERNATE:
        return build_alternate(n, tree, &nodes[node], next);
    case REGEX_AHEAD:
    case REGEX_BEHIND:
        return build_look(n, tree, &nodes[node], next);
    default:
        return next;
    }
}

int nfa_make(const struct regex_tree *tree, uint32_t node, bool whole, struct nfa *out)
{
    *out = (struct nfa){0};
    pool_init(&out->states, sizeof(struct nfa_state), NFA_STATES_MAX);
    out->match = add_state(out, (struct nfa_state){.kind = NFA_MATCH});
    out->found = add_state(out, (struct nfa_state){.kind = NFA_FOUND});
    if (whole) {
        uint32_t end = add_state(out, (struct nfa_state){.kind = NFA_END, .a = out->match});
        uint32_t first = build(out, tree, node, end);
        out->start = add_state(out, (struct nfa_state){.kind = NFA_BEGIN, .a = first});
    } else {
        uint32_t first = build(out, tree, node, out->match);
        out->start = add_split(out, first, first);
        uint32_t any = add_state(out, (struct nfa_state){.kind = NFA_ANY, .a = out->start});
        if (!out->status) pool_items(struct nfa_state, &out->states)[out->start].a = any;
    }
    return out->status;
}

void nfa_deinit(struct nfa *n)
{
    pool_deinit(&n->states);
}
