/* parser.h - shared by the two halves of the parser: statements (parse_statement.c), expressions
 * (parse_expression.c). A failure is sticky: it moves the parser to the end of the tokens, so that every loop
 * ends, and the first sentence wins. */
#ifndef TEXT_JINJA_PARSER_H
#define TEXT_JINJA_PARSER_H

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

enum { PARSE_DEPTH_MAX = 150 };

struct parser {
    struct template *template;
    const struct token *tokens;
    int num_tokens, at;
    int depth;          /* of nesting of expressions and statements */
    int num_conditions; /* inside so many ifs: an unknown filter is an error only when it is reached */
    int num_loops;      /* break and continue are allowed */
    struct error *err;
    int status;
    struct node nowhere; /* stands in for a node when the heap failed */
};

/* A list of nodes being built. */
struct node_list {
    struct node *first, **end;
};

void node_list_init(struct node_list *l);
void node_list_add(struct node_list *l, struct node *n);

void parser_fail(struct parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool parser_enter(struct parser *p); /* false: too deep, failed; else pair with p->depth-- */
struct node *parser_node(struct parser *p, enum node_kind kind);

const struct token *parser_token(const struct parser *p);
const struct token *parser_next(struct parser *p); /* the current one; moves on */
bool parser_is_op(const struct parser *p, const char *op);
bool parser_is_name(const struct parser *p, const char *name);
bool parser_peek_is_name(const struct parser *p, const char *name); /* the token after the current one */
bool parser_skip_op(struct parser *p, const char *op);
bool parser_skip_name(struct parser *p, const char *name);
void parser_expect_op(struct parser *p, const char *op);
void parser_expect_name(struct parser *p, const char *name);
const struct name *parser_expect_any_name(struct parser *p);

struct node *parse_expression(struct parser *p, bool with_condition);
/* Expressions separated by commas give a tuple; one alone gives itself. parenthesised: () is allowed. */
struct node *parse_tuple(struct parser *p, bool with_condition, bool parenthesised);
/* A name, ns.attribute (if allowed), or a tuple of them. */
struct node *parse_target(struct parser *p, bool with_namespace);
/* Filters from `|` on, applied to input (NULL in blocks). at_name: the first one has no `|`. */
struct node *parse_filters(struct parser *p, struct node *input, bool at_name);

#endif
