/* parse_statement.c - tags and the text between them. One row of `tags` is one tag. */
#include <stdarg.h>
#include <stdio.h>

#include "text/jinja/parser.h"

/* ---- the parser's own tools ---- */

void node_list_init(struct node_list *l)
{
    l->first = NULL;
    l->end = &l->first;
}

void node_list_add(struct node_list *l, struct node *n)
{
    if (!n) return;
    *l->end = n;
    l->end = &n->next;
}

void parser_fail(struct parser *p, const char *format, ...)
{
    if (p->status != 0) return;
    char sentence[256];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    const struct token *t = parser_token(p);
    bool shown = t->kind == TOKEN_NAME || t->kind == TOKEN_STRING;
    p->status =
        error_set(p->err, STATUS_INVALID, "chat template, line %d: %s near '%.*s'", t->line, sentence,
                  (int)min_of(shown ? t->num_bytes : strlen(t->op), (size_t)40), shown ? t->bytes : t->op);
    p->at = p->num_tokens - 1;
}

bool parser_enter(struct parser *p)
{
    if (p->template->heap.failed) parser_fail(p, "the template is too large");
    if (p->depth >= PARSE_DEPTH_MAX) parser_fail(p, "nested deeper than %d", PARSE_DEPTH_MAX);
    if (p->status != 0) return false;
    p->depth++;
    return true;
}

struct node *parser_node(struct parser *p, enum node_kind kind)
{
    struct node *n = heap_alloc(&p->template->heap, sizeof *n);
    if (!n) {
        parser_fail(p, "the template is too large");
        n = &p->nowhere;
    }
    *n = (struct node){.kind = kind, .line = parser_token(p)->line};
    if (n == &p->nowhere) return n;
    n->created = p->template->nodes;
    p->template->nodes = n;
    return n;
}

const struct token *parser_token(const struct parser *p)
{
    return &p->tokens[p->at];
}

const struct token *parser_next(struct parser *p)
{
    const struct token *t = parser_token(p);
    if (p->at + 1 < p->num_tokens) p->at++;
    return t;
}

bool parser_is_op(const struct parser *p, const char *op)
{
    const struct token *t = parser_token(p);
    return t->kind == TOKEN_OPERATOR && strcmp(t->op, op) == 0;
}

static bool token_is_name(const struct token *t, const char *name)
{
    return t->kind == TOKEN_NAME && t->num_bytes == strlen(name) && memcmp(t->bytes, name, t->num_bytes) == 0;
}

bool parser_is_name(const struct parser *p, const char *name)
{
    return token_is_name(parser_token(p), name);
}

bool parser_peek_is_name(const struct parser *p, const char *name)
{
    return p->at + 1 < p->num_tokens && token_is_name(&p->tokens[p->at + 1], name);
}

bool parser_skip_op(struct parser *p, const char *op)
{
    if (!parser_is_op(p, op)) return false;
    parser_next(p);
    return true;
}

bool parser_skip_name(struct parser *p, const char *name)
{
    if (!parser_is_name(p, name)) return false;
    parser_next(p);
    return true;
}

void parser_expect_op(struct parser *p, const char *op)
{
    if (!parser_skip_op(p, op)) parser_fail(p, "expected '%s'", op);
}

void parser_expect_name(struct parser *p, const char *name)
{
    if (!parser_skip_name(p, name)) parser_fail(p, "expected '%s'", name);
}

const struct name *parser_expect_any_name(struct parser *p)
{
    const struct token *t = parser_token(p);
    if (t->kind != TOKEN_NAME) {
        parser_fail(p, "expected a name");
        return NULL;
    }
    parser_next(p);
    return template_intern(p->template, t->bytes, t->num_bytes);
}

static void expect(struct parser *p, enum token_kind kind, const char *what)
{
    if (parser_token(p)->kind == kind) {
        parser_next(p);
    } else {
        parser_fail(p, "expected %s", what);
    }
}

/* ---- statements ---- */

static struct node *parse_nodes(struct parser *p, const char *const *ends);

/* The rest of a tag, then everything up to one of the tags in ends, whose name is then the current token. */
static struct node *parse_body(struct parser *p, const char *const *ends)
{
    parser_skip_op(p, ":");
    expect(p, TOKEN_BLOCK_END, "'%}'");
    return parse_nodes(p, ends);
}

static struct node *parse_body_to(struct parser *p, const char *end)
{
    const char *const ends[] = {end, NULL};
    struct node *body = parse_body(p, ends);
    parser_expect_name(p, end);
    return body;
}

static struct node *parse_if(struct parser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct node *first = NULL, **place = &first;
    p->num_conditions++;
    do {
        struct node *n = parser_node(p, NODE_IF);
        n->a = parse_tuple(p, false, false);
        n->list = parse_body(p, ends);
        *place = n;
        place = &n->b;
        if (!parser_is_name(p, "else")) continue;
        parser_next(p);
        n->c = parse_body_to(p, "endif");
        p->num_conditions--;
        return first;
    } while (p->status == 0 && parser_skip_name(p, "elif"));
    parser_expect_name(p, "endif");
    p->num_conditions--;
    return first;
}

static struct node *parse_for(struct parser *p)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    struct node *n = parser_node(p, NODE_FOR);
    n->a = parse_target(p, false);
    parser_expect_name(p, "in");
    n->b = parse_tuple(p, false, false);
    if (parser_skip_name(p, "if")) n->c = parse_expression(p, true);
    n->flag = parser_skip_name(p, "recursive");
    p->num_loops++;
    n->list = parse_body(p, ends);
    p->num_loops--;
    if (parser_skip_name(p, "else")) {
        n->d = parse_body_to(p, "endfor");
    } else {
        parser_expect_name(p, "endfor");
    }
    return n;
}

static struct node *parse_set(struct parser *p)
{
    struct node *n = parser_node(p, NODE_SET);
    n->a = parse_target(p, true);
    if (parser_skip_op(p, "=")) {
        n->b = parse_tuple(p, true, false);
        return n;
    }
    n->kind = NODE_SET_BLOCK;
    n->b = parse_filters(p, NULL, false);
    n->list = parse_body_to(p, "endset");
    return n;
}

static struct node *parse_parameters(struct parser *p)
{
    struct node_list list;
    node_list_init(&list);
    bool defaults = false;
    parser_expect_op(p, "(");
    while (p->status == 0 && !parser_is_op(p, ")")) {
        struct node *n = parser_node(p, NODE_PARAMETER);
        n->name = parser_expect_any_name(p);
        if (parser_skip_op(p, "=")) {
            n->a = parse_expression(p, true);
            defaults = true;
        } else if (defaults) {
            parser_fail(p, "a parameter without a default follows one with");
        }
        node_list_add(&list, n);
        if (!parser_skip_op(p, ",")) break;
    }
    parser_expect_op(p, ")");
    return list.first;
}

/* jinja2 passes `caller`, `varargs` and `kwargs` only to macros whose bodies mention them. */
static void parse_macro_body(struct parser *p, struct node *n, const char *end)
{
    struct node *before = p->template->nodes;
    int num_loops = p->num_loops;
    p->num_loops = 0;
    n->list = parse_body_to(p, end);
    p->num_loops = num_loops;
    for (const struct node *i = p->template->nodes; i && i != before; i = i->created) {
        if (i->kind != NODE_NAME || !i->name) continue;
        n->takes_caller |= text_is(&i->name->text, "caller");
        n->takes_varargs |= text_is(&i->name->text, "varargs");
        n->takes_kwargs |= text_is(&i->name->text, "kwargs");
    }
}

static struct node *parse_macro(struct parser *p)
{
    struct node *n = parser_node(p, NODE_MACRO);
    n->name = parser_expect_any_name(p);
    n->a = parse_parameters(p);
    parse_macro_body(p, n, "endmacro");
    return n;
}

static struct node *parse_call_block(struct parser *p)
{
    struct node *n = parser_node(p, NODE_CALL_BLOCK), *caller = parser_node(p, NODE_MACRO);
    caller->name = template_intern(p->template, "caller", 6);
    if (parser_is_op(p, "(")) caller->a = parse_parameters(p);
    n->a = parse_expression(p, true);
    if (p->status == 0 && n->a->kind != NODE_CALL) parser_fail(p, "expected a call");
    parse_macro_body(p, caller, "endcall");
    n->b = caller;
    return n;
}

static struct node *parse_filter_block(struct parser *p)
{
    struct node *n = parser_node(p, NODE_FILTER_BLOCK);
    n->a = parse_filters(p, NULL, true);
    n->list = parse_body_to(p, "endfilter");
    return n;
}

static struct node *parse_with(struct parser *p)
{
    struct node *n = parser_node(p, NODE_WITH);
    struct node_list list;
    node_list_init(&list);
    while (p->status == 0 && parser_token(p)->kind == TOKEN_NAME) {
        struct node *set = parser_node(p, NODE_SET);
        set->a = parse_target(p, false);
        parser_expect_op(p, "=");
        set->b = parse_expression(p, true);
        node_list_add(&list, set);
        if (!parser_skip_op(p, ",")) break;
    }
    n->a = list.first;
    n->list = parse_body_to(p, "endwith");
    return n;
}

/* Marks what the assistant said, for training; here it is a scope, as the macro it is in Hugging Face's
 * tracker. */
static struct node *parse_generation(struct parser *p)
{
    struct node *n = parser_node(p, NODE_SCOPE);
    n->list = parse_body_to(p, "endgeneration");
    return n;
}

static struct node *parse_print(struct parser *p)
{
    struct node_list list;
    node_list_init(&list);
    do {
        struct node *n = parser_node(p, NODE_OUTPUT);
        n->a = parse_expression(p, true);
        node_list_add(&list, n);
    } while (parser_skip_op(p, ","));
    return list.first;
}

static struct node *parse_loop_control(struct parser *p, enum node_kind kind)
{
    if (p->num_loops == 0) parser_fail(p, "break or continue outside of a loop");
    return parser_node(p, kind);
}

static struct node *parse_break(struct parser *p)
{
    return parse_loop_control(p, NODE_BREAK);
}

static struct node *parse_continue(struct parser *p)
{
    return parse_loop_control(p, NODE_CONTINUE);
}

static const struct {
    const char *name;
    struct node *(*parse)(struct parser *p);
} tags[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"with", parse_with},
    {"break", parse_break},
    {"continue", parse_continue},
    {"print", parse_print},
    {"generation", parse_generation},
};

static struct node *parse_tag(struct parser *p)
{
    for (size_t i = 0; i < array_length(tags); i++) {
        if (parser_skip_name(p, tags[i].name)) return tags[i].parse(p);
    }
    parser_fail(p, "unknown or unsupported tag");
    return NULL;
}

static bool at_end_tag(const struct parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++) {
        if (parser_is_name(p, *ends)) return true;
    }
    return false;
}

static struct node *parse_data(struct parser *p)
{
    struct node *n = parser_node(p, NODE_DATA);
    const struct token *t = parser_next(p);
    n->constant = value_text(text_wrap(&p->template->heap, t->bytes, t->num_bytes, false));
    return n;
}

static struct node *parse_output(struct parser *p)
{
    struct node *n = parser_node(p, NODE_OUTPUT);
    n->a = parse_tuple(p, true, false);
    expect(p, TOKEN_VARIABLE_END, "'}}'");
    return n;
}

/* A statement may be several nodes (print, a target list): all of them are added. */
static void add_all(struct node_list *list, struct node *n)
{
    node_list_add(list, n);
    while (n && n->next && n->next != n) {
        n = n->next;
        list->end = &n->next;
    }
}

static struct node *parse_nodes(struct parser *p, const char *const *ends)
{
    struct node_list list;
    node_list_init(&list);
    if (!parser_enter(p)) return NULL;
    while (p->status == 0 && parser_token(p)->kind != TOKEN_END) {
        if (parser_token(p)->kind == TOKEN_DATA) {
            node_list_add(&list, parse_data(p));
        } else if (parser_token(p)->kind == TOKEN_VARIABLE_BEGIN) {
            parser_next(p);
            node_list_add(&list, parse_output(p));
        } else {
            expect(p, TOKEN_BLOCK_BEGIN, "'{%'");
            if (at_end_tag(p, ends)) break;
            add_all(&list, parse_tag(p));
            expect(p, TOKEN_BLOCK_END, "'%}'");
        }
    }
    if (ends && parser_token(p)->kind == TOKEN_END)
        parser_fail(p, "expected a tag '%s' before the end", ends[0]);
    p->depth--;
    return list.first;
}

int template_parse(struct template *t, const char *source, size_t num_bytes, struct error *err)
{
    struct token *tokens;
    struct parser p = {.template = t, .err = err};
    int status = lexer_run(&t->heap, source, num_bytes, &tokens, &p.num_tokens, err);
    if (status != 0) return status;
    p.tokens = tokens;
    t->body = parse_nodes(&p, NULL);
    if (t->heap.failed) parser_fail(&p, "the template is too large");
    return p.status;
}

/* ---- names ---- */

static unsigned bucket_of(const char *bytes, size_t n)
{
    unsigned hash = 2166136261u;
    for (size_t i = 0; i < n; i++) hash = (hash ^ (unsigned char)bytes[i]) * 16777619u;
    return hash % NAME_BUCKETS;
}

const struct name *template_find_name(const struct template *t, const char *bytes, size_t n)
{
    for (const struct name *i = t->buckets[bucket_of(bytes, n)]; i; i = i->next) {
        if (i->text.num_bytes == n && memcmp(i->text.bytes, bytes, n) == 0) return i;
    }
    return NULL;
}

const struct name *template_intern(struct template *t, const char *bytes, size_t n)
{
    const struct name *there = template_find_name(t, bytes, n);
    if (there) return there;
    struct name *name = heap_alloc(&t->heap, sizeof *name);
    char *copy = heap_alloc(&t->heap, n + 1);
    if (!name || !copy) return NULL;
    memcpy(copy, bytes, n);
    unsigned bucket = bucket_of(bytes, n);
    *name = (struct name){
        .text = {.bytes = copy, .num_bytes = n}, .idx = t->num_names++, .next = t->buckets[bucket]};
    t->buckets[bucket] = name;
    return name;
}
