/* ast.h - a parsed template: nodes in a heap, names interned so that looking one up compares pointers. */
#ifndef TEXT_JINJA_AST_H
#define TEXT_JINJA_AST_H

#include "base/status.h"
#include "text/jinja/value.h"

struct name {
    struct text text;
    int idx; /* 0 .. num_names - 1 in its template */
    struct name *next;
};

/* What a, b, c, d and list hold for each kind. A list is linked by next. */
enum node_kind {
    /* statements */
    NODE_DATA,      /* constant: the text */
    NODE_OUTPUT,    /* a: expression */
    NODE_IF,        /* a: test, list: body, b: the NODE_IF of elif or NULL, c: first of the else body */
    NODE_FOR,       /* a: target, b: iterable, c: filter or NULL, list: body, d: first of the else body; flag:
                       recursive */
    NODE_SET,       /* a: target, b: expression */
    NODE_SET_BLOCK, /* a: target, b: outermost NODE_FILTER (whose innermost input is NULL) or NULL, list: body
                     */
    NODE_MACRO,     /* name, a: parameters, list: body; flags */
    NODE_CALL_BLOCK,   /* a: NODE_CALL, b: the NODE_MACRO that `caller` is */
    NODE_FILTER_BLOCK, /* a: outermost NODE_FILTER, list: body */
    NODE_WITH,         /* a: NODE_SETs, list: body */
    NODE_SCOPE,        /* list: body ({% generation %}) */
    NODE_BREAK,
    NODE_CONTINUE,

    /* expressions */
    NODE_CONSTANT,         /* constant */
    NODE_NAME,             /* name */
    NODE_NAMESPACE_TARGET, /* name, attribute: `ns.x` to the left of = */
    NODE_LIST,             /* list */
    NODE_TUPLE,            /* list */
    NODE_DICT,             /* list of NODE_PAIR (a: key, b: value) */
    NODE_PAIR,
    NODE_ATTRIBUTE, /* a: object, attribute */
    NODE_ITEM,      /* a: object, b: key */
    NODE_SLICE,     /* a: object, b c d: start stop step, each may be NULL */
    NODE_CALL,      /* a: callee, list: arguments */
    NODE_FILTER,    /* a: input (NULL: the text of the block), name, builtin, list: arguments */
    NODE_TEST,      /* as NODE_FILTER */
    NODE_NOT,       /* a */
    NODE_NEGATIVE,  /* a */
    NODE_POSITIVE,  /* a */
    NODE_BINARY,    /* op, a, b */
    NODE_CONCAT,    /* list */
    NODE_COMPARE,   /* a, list of NODE_OPERAND (op, a) */
    NODE_OPERAND,
    NODE_AND,       /* a, b */
    NODE_OR,        /* a, b */
    NODE_CONDITION, /* a if b else c; c may be NULL */

    /* in lists of arguments and parameters */
    NODE_KEYWORD,    /* name, a: value */
    NODE_SPREAD,     /* *a */
    NODE_SPREAD_MAP, /* **a */
    NODE_PARAMETER,  /* name, a: default or NULL */
};

struct node {
    enum node_kind kind : 8;
    bool flag;
    bool takes_caller, takes_varargs, takes_kwargs; /* macro: its body mentions these names */
    char op;                                        /* see enum operator_code */
    int line;
    struct node *next, *a, *b, *c, *d, *list;
    struct node *created; /* the node made before this one: all nodes of a template, without recursion */
    const struct name *name;
    union {
        struct value constant;
        const struct text *attribute;
        const struct builtin *builtin; /* NULL: not known; an error if it is reached */
    };
};

enum operator_code {
    OPERATOR_ADD = '+',
    OPERATOR_SUBTRACT = '-',
    OPERATOR_MULTIPLY = '*',
    OPERATOR_DIVIDE = '/',
    OPERATOR_FLOOR_DIVIDE = 'f',
    OPERATOR_MODULO = '%',
    OPERATOR_POWER = 'p',
    OPERATOR_EQUAL = '=',
    OPERATOR_NOT_EQUAL = '!',
    OPERATOR_LESS = '<',
    OPERATOR_LESS_EQUAL = 'l',
    OPERATOR_GREATER = '>',
    OPERATOR_GREATER_EQUAL = 'g',
    OPERATOR_IN = 'i',
    OPERATOR_NOT_IN = 'n',
};

enum { NAME_BUCKETS = 64 };

struct template
{
    struct heap heap;
    struct node *body;
    struct node *nodes; /* the last one created */
    struct name *buckets[NAME_BUCKETS];
    int num_names;
};

/* The one name of this spelling; NULL when the heap failed. */
const struct name *template_intern(struct template *t, const char *bytes, size_t n);
/* The same, without adding it: NULL when the template does not mention it. */
const struct name *template_find_name(const struct template *t, const char *bytes, size_t n);

/* source is copied. On failure err says what and on which line. */
int template_parse(struct template *t, const char *source, size_t num_bytes, struct error *err) must_check;

/* Whether some loop goes over the content of a message (content_format.c). */
bool template_loops_over_content(const struct template *t);
/* Whether content that is a string is shown in every role (content_probe.c); the status of looking. */
struct chat_template;
int template_shows_strings(const struct chat_template *t, bool *out) must_check;

#endif
