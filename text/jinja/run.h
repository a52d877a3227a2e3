/* run.h - one rendering: the interpreter's state, and the functions its files call of each other.
 *
 * A failure is sticky: run_fail keeps the first sentence, and from then on every step refuses, so that
 * evaluation unwinds with undefined values that nobody looks at. */
#ifndef TEXT_JINJA_RUN_H
#define TEXT_JINJA_RUN_H

#include <limits.h>

#include "text/chat_template.h"
#include "text/jinja/ast.h"
#include "text/jinja/builtins.h"

struct cJSON;

struct binding {
    const struct name *name;
    struct value value;
};

/* Names set in one place. Looked up from the inside out; a macro's parent is where it was defined. */
struct scope {
    struct scope *parent;
    struct binding *bindings;
    int num, capacity;
};

struct macro {
    const struct node *node;
    struct scope *scope;
};

struct loop {
    struct list *items;        /* of a filtered loop those that are known to be kept */
    const struct list *source; /* filtered: of which the first num_seen are looked at; else NULL */
    const struct node *filter; /* the NODE_FOR whose test it is */
    int num_seen;
    int at;
    int depth;               /* of a recursive loop, from 0 */
    const struct node *node; /* recursive: what loop(...) renders; else NULL */
    struct scope *scope;     /* around the loop */
    struct value changed;    /* what loop.changed was last called with */
};

struct run {
    struct heap heap;
    const struct template *template;
    const struct cJSON *context;
    const char *const *trusted;
    int64_t now_seconds;
    int depth_left;
    int line; /* of the node evaluated last */
    struct text_builder *out;
    struct scope *scope;
    struct value *globals; /* by name idx; VALUE_MISSING: not looked up yet */
    struct error *err;
    int status;
};

/* Sets the status and "chat template, line N: ..." unless it failed before. Gives undefined. */
struct value run_fail(struct run *r, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
struct value run_raise(struct run *r, const struct text *message); /* the template's own words */
bool run_charge(struct run *r, size_t work); /* heap_charge, and the sentence; false: stop */
/* Pair with run_leave when true. */
bool run_enter(struct run *r);
static inline void run_leave(struct run *r)
{
    r->depth_left++;
}

/* ---- names (scope.c) ---- */

struct scope *scope_create(struct run *r, struct scope *parent);
void scope_set(struct run *r, struct scope *s, const struct name *name, struct value v);
struct value scope_get(struct run *r, const struct name *name);

/* ---- statements (exec.c) ---- */

enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };

enum flow exec_body(struct run *r, const struct node *body);
/* Renders a body into a text of its own. */
const struct text *exec_capture(struct run *r, const struct node *body, enum flow *flow);
/* Whether the loop has an item idx, for which no more of a filtered loop's source is looked at than it takes: its test may ask for
 * what the body has set before. */
bool loop_has(struct run *r, struct loop *l, int idx);
static inline int loop_length(struct run *r, struct loop *l)
{
    (void)loop_has(r, l, INT_MAX);
    return l->items->num;
}
const struct text *exec_loop(struct run *r, const struct node *loop, struct value items, int depth,
                             struct scope *scope); /* loop(items) of a recursive loop */

/* ---- expressions (eval.c) ---- */

struct value eval(struct run *r, const struct node *n);
/* A NODE_FILTER chain, whose innermost input is this value. */
struct value eval_filters(struct run *r, const struct node *n, struct value input);
struct value apply_binary(struct run *r, char op, struct value a, struct value b);
bool apply_compare(struct run *r, char op, struct value a, struct value b);
bool value_contains(struct run *r, struct value container, struct value v);
struct value apply_add_texts(struct run *r, const struct text *a, const struct text *b);

/* ---- attributes, items, slices (subscript.c) ---- */

struct value get_attribute(struct run *r, struct value object, const struct text *name);
struct value get_item(struct run *r, struct value object, struct value key);
struct value get_slice(struct run *r, struct value object, struct value start, struct value stop,
                       struct value step);
/* What using an undefined value raises. */
struct value fail_undefined(struct run *r, struct value v);

/* ---- calls (call.c) ---- */

struct value call_value(struct run *r, struct value callee, const struct arguments *all);
bool eval_arguments(struct run *r, const struct node *list, struct arguments *out);
/* What iterating v gives; empty on failure, never NULL. */
struct list *run_iterate(struct run *r, struct value v);

/* ---- JSON (json_read.c, json_write.c) ---- */

struct value value_from_json(struct run *r, const struct cJSON *json, bool untrusted, bool copy);
struct value value_parse_json(struct run *r, const struct text *json);

struct json_style {
    bool ensure_ascii, sort_keys;
    const struct text *indent; /* NULL: on one line */
    const struct text *item_separator, *key_separator;
};
struct value value_to_json(struct run *r, struct value v, const struct json_style *style);

/* ---- text (text_case.c, text_format.c) ---- */

enum text_case { CASE_LOWER, CASE_UPPER, CASE_TITLE, CASE_CAPITALIZE, CASE_SWAP };
const struct text *text_change_case(struct heap *h, const struct text *t, enum text_case change);
int32_t char_to_lower(int32_t c);
const struct text *text_escape_html(struct heap *h, const struct text *t); /* markup already: itself */
struct value text_percent(struct run *r, const struct text *format, struct value args); /* % */
struct value text_format(struct run *r, const struct text *format,
                         const struct arguments *args); /* .format() */

#endif
