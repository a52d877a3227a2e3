/* parse_expression.c - expressions by precedence climbing, loosest first:
 *
 *   a if b else c | or | and | not | comparisons, in | + - | ~ | * / // % | ** | unary - + | . [] () | | is
 *
 * as jinja2 has them: `~` binds tighter than `+`, filters and tests tighter than any operator, and a
 * minus sign tighter than a filter. */
#include "text/jinja/builtins.h"
#include "text/jinja/parser.h"

static struct node *parse_unary(struct parser *p, bool with_filters);

struct level_operator {
    const char *op;
    char code;
};

/* Binary operators of one level, left to right. */
static const struct level_operator operators_of_level[][5] = {
    {{"+", OPERATOR_ADD}, {"-", OPERATOR_SUBTRACT}},
    {{NULL, 0}}, /* ~, which takes a list */
    {{"*", OPERATOR_MULTIPLY}, {"/", OPERATOR_DIVIDE}, {"//", OPERATOR_FLOOR_DIVIDE}, {"%", OPERATOR_MODULO}},
    {{"**", OPERATOR_POWER}},
};
enum { LEVEL_SUM, LEVEL_CONCAT, LEVEL_PRODUCT, LEVEL_POWER, NUM_LEVELS };

static char skip_operator(struct parser *p, const struct level_operator *operators)
{
    for (; operators->op; operators++) {
        if (parser_skip_op(p, operators->op)) return operators->code;
    }
    return 0;
}

static struct node *parse_level(struct parser *p, int level);

static struct node *parse_concat(struct parser *p)
{
    struct node *first = parse_level(p, LEVEL_PRODUCT);
    if (!parser_is_op(p, "~")) return first;
    struct node *n = parser_node(p, NODE_CONCAT);
    struct node_list list;
    node_list_init(&list);
    node_list_add(&list, first);
    while (parser_skip_op(p, "~")) node_list_add(&list, parse_level(p, LEVEL_PRODUCT));
    n->list = list.first;
    return n;
}

static struct node *parse_level(struct parser *p, int level)
{
    if (level == NUM_LEVELS) return parse_unary(p, true);
    if (level == LEVEL_CONCAT) return parse_concat(p);
    struct node *left = parse_level(p, level + 1);
    char op;
    while ((op = skip_operator(p, operators_of_level[level])) != 0) {
        struct node *n = parser_node(p, NODE_BINARY);
        n->op = op;
        n->a = left;
        n->b = parse_level(p, level + 1);
        left = n;
    }
    return left;
}

static char skip_comparison(struct parser *p)
{
    static const struct level_operator comparisons[] = {
        {"==", OPERATOR_EQUAL},
        {"!=", OPERATOR_NOT_EQUAL},
        {"<=", OPERATOR_LESS_EQUAL},
        {">=", OPERATOR_GREATER_EQUAL},
        {"<", OPERATOR_LESS},
        {">", OPERATOR_GREATER},
        {NULL, 0},
    };
    char op = skip_operator(p, comparisons);
    if (op != 0) return op;
    if (parser_skip_name(p, "in")) return OPERATOR_IN;
    if (parser_is_name(p, "not") && parser_peek_is_name(p, "in")) {
        parser_next(p);
        parser_next(p);
        return OPERATOR_NOT_IN;
    }
    return 0;
}

static struct node *parse_compare(struct parser *p)
{
    struct node *first = parse_level(p, LEVEL_SUM);
    char op = skip_comparison(p);
    if (op == 0) return first;
    struct node *n = parser_node(p, NODE_COMPARE);
    struct node_list list;
    node_list_init(&list);
    for (; op != 0; op = skip_comparison(p)) {
        struct node *operand = parser_node(p, NODE_OPERAND);
        operand->op = op;
        operand->a = parse_level(p, LEVEL_SUM);
        node_list_add(&list, operand);
    }
    n->a = first;
    n->list = list.first;
    return n;
}

static struct node *parse_not(struct parser *p)
{
    if (!parser_is_name(p, "not")) return parse_compare(p);
    if (!parser_enter(p)) return &p->nowhere;
    struct node *n = parser_node(p, NODE_NOT);
    parser_next(p);
    n->a = parse_not(p);
    p->depth--;
    return n;
}

static struct node *parse_and(struct parser *p)
{
    struct node *left = parse_not(p);
    while (parser_skip_name(p, "and")) {
        struct node *n = parser_node(p, NODE_AND);
        n->a = left;
        n->b = parse_not(p);
        left = n;
    }
    return left;
}

static struct node *parse_or(struct parser *p)
{
    struct node *left = parse_and(p);
    while (parser_skip_name(p, "or")) {
        struct node *n = parser_node(p, NODE_OR);
        n->a = left;
        n->b = parse_and(p);
        left = n;
    }
    return left;
}

static struct node *parse_condition(struct parser *p)
{
    struct node *value = parse_or(p);
    while (parser_skip_name(p, "if")) {
        struct node *n = parser_node(p, NODE_CONDITION);
        p->num_conditions++;
        n->a = value;
        n->b = parse_or(p);
        if (parser_skip_name(p, "else")) n->c = parse_expression(p, true);
        p->num_conditions--;
        value = n;
    }
    return value;
}

struct node *parse_expression(struct parser *p, bool with_condition)
{
    if (!parser_enter(p)) return &p->nowhere;
    struct node *n = with_condition ? parse_condition(p) : parse_or(p);
    p->depth--;
    return n;
}

/* ---- primaries ---- */

static struct node *constant_node(struct parser *p, struct value v)
{
    struct node *n = parser_node(p, NODE_CONSTANT);
    n->constant = v;
    return n;
}

static struct node *parse_name(struct parser *p)
{
    static const struct {
        const char *word;
        struct value value;
    } words[] = {
        {"true", {.kind = VALUE_BOOL, .boolean = true}},
        {"True", {.kind = VALUE_BOOL, .boolean = true}},
        {"false", {.kind = VALUE_BOOL, .boolean = false}},
        {"False", {.kind = VALUE_BOOL, .boolean = false}},
        {"none", {.kind = VALUE_NONE}},
        {"None", {.kind = VALUE_NONE}},
    };
    for (size_t i = 0; i < array_length(words); i++) {
        if (parser_skip_name(p, words[i].word)) return constant_node(p, words[i].value);
    }
    struct node *n = parser_node(p, NODE_NAME);
    n->name = parser_expect_any_name(p);
    return n;
}

/* 'a' 'b' is one string, as in Python. */
static struct node *parse_string(struct parser *p)
{
    struct text_builder b;
    text_builder_init(&b, &p->template->heap);
    struct node *n = parser_node(p, NODE_CONSTANT);
    while (parser_token(p)->kind == TOKEN_STRING) {
        const struct token *t = parser_next(p);
        text_builder_append(&b, t->bytes, t->num_bytes, false);
    }
    n->constant = value_text(text_builder_take(&b));
    return n;
}

static struct node *parse_list_literal(struct parser *p)
{
    struct node *n = parser_node(p, NODE_LIST);
    struct node_list list;
    node_list_init(&list);
    parser_expect_op(p, "[");
    while (p->status == 0 && !parser_is_op(p, "]")) {
        node_list_add(&list, parse_expression(p, true));
        if (!parser_skip_op(p, ",")) break;
    }
    parser_expect_op(p, "]");
    n->list = list.first;
    return n;
}

static struct node *parse_dict_literal(struct parser *p)
{
    struct node *n = parser_node(p, NODE_DICT);
    struct node_list list;
    node_list_init(&list);
    parser_expect_op(p, "{");
    while (p->status == 0 && !parser_is_op(p, "}")) {
        struct node *pair = parser_node(p, NODE_PAIR);
        pair->a = parse_expression(p, true);
        parser_expect_op(p, ":");
        pair->b = parse_expression(p, true);
        node_list_add(&list, pair);
        if (!parser_skip_op(p, ",")) break;
    }
    parser_expect_op(p, "}");
    n->list = list.first;
    return n;
}

static struct node *parse_primary(struct parser *p)
{
    const struct token *t = parser_token(p);
    switch (t->kind) {
    case TOKEN_NAME:
        return parse_name(p);
    case TOKEN_STRING:
        return parse_string(p);
    case TOKEN_INTEGER:
        return constant_node(p, value_int(parser_next(p)->integer));
    case TOKEN_FLOAT:
        return constant_node(p, value_float(parser_next(p)->real));
    default:
        break;
    }
    if (parser_is_op(p, "[")) return parse_list_literal(p);
    if (parser_is_op(p, "{")) return parse_dict_literal(p);
    if (!parser_skip_op(p, "(")) {
        parser_fail(p, "expected an expression");
        return &p->nowhere;
    }
    struct node *n = parse_tuple(p, true, true);
    parser_expect_op(p, ")");
    return n;
}

static bool at_tuple_end(const struct parser *p)
{
    enum token_kind kind = parser_token(p)->kind;
    return kind == TOKEN_VARIABLE_END || kind == TOKEN_BLOCK_END || kind == TOKEN_END || parser_is_op(p, ")");
}

struct node *parse_tuple(struct parser *p, bool with_condition, bool parenthesised)
{
    struct node_list list;
    node_list_init(&list);
    bool is_tuple = false;
    while (p->status == 0 && !at_tuple_end(p)) {
        if (list.first && parser_is_name(p, "recursive")) break;
        node_list_add(&list, parse_expression(p, with_condition));
        if (!parser_skip_op(p, ",")) break;
        is_tuple = true;
    }
    if (!is_tuple && list.first) return list.first;
    if (!is_tuple && !parenthesised) parser_fail(p, "expected an expression");
    struct node *n = parser_node(p, NODE_TUPLE);
    n->list = list.first;
    return n;
}

static struct node *parse_one_target(struct parser *p, bool with_namespace)
{
    if (parser_skip_op(p, "(")) {
        struct node *n = parse_target(p, with_namespace);
        parser_expect_op(p, ")");
        return n;
    }
    struct node *n = parser_node(p, NODE_NAME);
    n->name = parser_expect_any_name(p);
    if (with_namespace && parser_skip_op(p, ".")) {
        n->kind = NODE_NAMESPACE_TARGET;
        const struct name *attribute = parser_expect_any_name(p);
        n->attribute = attribute ? &attribute->text : &text_empty;
    }
    return n;
}

struct node *parse_target(struct parser *p, bool with_namespace)
{
    if (!parser_enter(p)) return &p->nowhere;
    struct node *n = parse_one_target(p, with_namespace);
    if (parser_is_op(p, ",")) {
        struct node_list list;
        node_list_init(&list);
        node_list_add(&list, n);
        while (p->status == 0 && parser_skip_op(p, ",") && !parser_is_name(p, "in") &&
               !parser_is_op(p, "=")) {
            node_list_add(&list, parse_one_target(p, with_namespace));
        }
        n = parser_node(p, NODE_TUPLE);
        n->list = list.first;
    }
    p->depth--;
    return n;
}

/* ---- what follows a primary ---- */

static bool at_keyword_argument(const struct parser *p)
{
    if (parser_token(p)->kind != TOKEN_NAME || p->at + 1 >= p->num_tokens) return false;
    const struct token *after = &p->tokens[p->at + 1];
    return after->kind == TOKEN_OPERATOR && strcmp(after->op, "=") == 0;
}

static struct node *parse_argument(struct parser *p)
{
    struct node *n;
    if (parser_skip_op(p, "*")) {
        n = parser_node(p, NODE_SPREAD);
    } else if (parser_skip_op(p, "**")) {
        n = parser_node(p, NODE_SPREAD_MAP);
    } else if (at_keyword_argument(p)) {
        n = parser_node(p, NODE_KEYWORD);
        n->name = parser_expect_any_name(p);
        parser_expect_op(p, "=");
    } else {
        return parse_expression(p, true);
    }
    n->a = parse_expression(p, true);
    return n;
}

static struct node *parse_arguments(struct parser *p)
{
    struct node_list list;
    node_list_init(&list);
    parser_expect_op(p, "(");
    bool named = false;
    while (p->status == 0 && !parser_is_op(p, ")")) {
        struct node *n = parse_argument(p);
        bool positional = n->kind != NODE_KEYWORD && n->kind != NODE_SPREAD && n->kind != NODE_SPREAD_MAP;
        if (positional && named) parser_fail(p, "a positional argument follows a named one");
        named |= !positional;
        node_list_add(&list, n);
        if (!parser_skip_op(p, ",")) break;
    }
    parser_expect_op(p, ")");
    return list.first;
}

static struct node *parse_call(struct parser *p, struct node *callee)
{
    struct node *n = parser_node(p, NODE_CALL);
    n->a = callee;
    n->list = parse_arguments(p);
    return n;
}

/* What stands between [ and ]: an index, or start:stop:step. */
static struct node *parse_subscript(struct parser *p, struct node *object)
{
    struct node *n = parser_node(p, NODE_ITEM);
    n->a = object;
    if (!parser_is_op(p, ":")) {
        n->b = parse_tuple(p, true, false);
        if (!parser_is_op(p, ":")) return n;
    }
    parser_expect_op(p, ":");
    n->kind = NODE_SLICE;
    if (!parser_is_op(p, ":") && !parser_is_op(p, "]")) n->c = parse_expression(p, true);
    if (parser_skip_op(p, ":") && !parser_is_op(p, "]")) n->d = parse_expression(p, true);
    return n;
}

static struct node *parse_dot(struct parser *p, struct node *object)
{
    struct node *n = parser_node(p, NODE_ATTRIBUTE);
    n->a = object;
    if (parser_token(p)->kind == TOKEN_INTEGER) {
        n->kind = NODE_ITEM;
        n->b = constant_node(p, value_int(parser_next(p)->integer));
        return n;
    }
    const struct name *name = parser_expect_any_name(p);
    n->attribute = name ? &name->text : &text_empty;
    return n;
}

static struct node *parse_postfix(struct parser *p, struct node *n)
{
    while (p->status == 0) {
        if (parser_skip_op(p, ".")) {
            n = parse_dot(p, n);
        } else if (parser_skip_op(p, "[")) {
            n = parse_subscript(p, n);
            parser_expect_op(p, "]");
        } else if (parser_is_op(p, "(")) {
            n = parse_call(p, n);
        } else {
            break;
        }
    }
    return n;
}

/* `name` or `a.b`, looked up in a table. */
static void parse_builtin(struct parser *p, struct node *n,
                          const struct builtin *(*find)(const struct text *), const char *what)
{
    n->name = parser_expect_any_name(p);
    if (!n->name) return;
    n->builtin = find(&n->name->text);
    if (!n->builtin && p->num_conditions == 0) {
        parser_fail(p, "no %s named '%.*s'", what, (int)n->name->text.num_bytes, n->name->text.bytes);
    }
}

struct node *parse_filters(struct parser *p, struct node *input, bool at_name)
{
    while (at_name || parser_skip_op(p, "|")) {
        at_name = false;
        struct node *n = parser_node(p, NODE_FILTER);
        parse_builtin(p, n, filter_find, "filter");
        n->a = input;
        if (parser_is_op(p, "(")) n->list = parse_arguments(p);
        input = n;
    }
    return input;
}

/* An argument of a test may stand without parentheses: `x is divisibleby 3`. */
static bool at_bare_argument(const struct parser *p)
{
    switch (parser_token(p)->kind) {
    case TOKEN_NAME:
        return !parser_is_name(p, "else") && !parser_is_name(p, "or") && !parser_is_name(p, "and");
    case TOKEN_STRING:
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
        return true;
    default:
        return parser_is_op(p, "[") || parser_is_op(p, "{");
    }
}

static struct node *parse_test(struct parser *p, struct node *input)
{
    bool negated = parser_skip_name(p, "not");
    struct node *n = parser_node(p, NODE_TEST);
    parse_builtin(p, n, test_find, "test");
    n->a = input;
    if (parser_is_op(p, "(")) {
        n->list = parse_arguments(p);
    } else if (at_bare_argument(p)) {
        if (parser_is_name(p, "is")) parser_fail(p, "tests cannot be chained with `is`");
        n->list = parse_postfix(p, parse_primary(p));
    }
    if (!negated) return n;
    struct node *not = parser_node(p, NODE_NOT);
    not ->a = n;
    return not ;
}

static struct node *parse_filters_and_tests(struct parser *p, struct node *n)
{
    while (p->status == 0) {
        if (parser_is_op(p, "|")) {
            n = parse_filters(p, n, false);
        } else if (parser_skip_name(p, "is")) {
            n = parse_test(p, n);
        } else if (parser_is_op(p, "(")) {
            n = parse_call(p, n);
        } else {
            break;
        }
    }
    return n;
}

static struct node *parse_unary(struct parser *p, bool with_filters)
{
    if (!parser_enter(p)) return &p->nowhere;
    struct node *n;
    bool negative = parser_is_op(p, "-");
    if (negative || parser_is_op(p, "+")) {
        n = parser_node(p, negative ? NODE_NEGATIVE : NODE_POSITIVE);
        parser_next(p);
        n->a = parse_unary(p, false);
    } else {
        n = parse_primary(p);
    }
    n = parse_postfix(p, n);
    if (with_filters) n = parse_filters_and_tests(p, n);
    p->depth--;
    return n;
}
