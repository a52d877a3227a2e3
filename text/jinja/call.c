/* call.c - arguments, and everything that can be called. */
#include <stdarg.h>
#include <stdio.h>

#include "text/jinja/run.h"

struct list *run_iterate(struct run *r, struct value v)
{
    static struct list nothing; /* never written: it has no room and nobody appends to what this gives */
    struct list *l = NULL;
    if (v.kind == VALUE_TEXT) {
        const struct text *t = v.text;
        size_t size;
        l = list_create(&r->heap, 0);
        for (size_t at = 0; at < t->num_bytes && run_charge(r, 64); at += size) {
            text_char_at(t, at, &size);
            list_append(&r->heap, l, value_text(text_slice(&r->heap, t, at, at + size)));
        }
    } else if (v.kind == VALUE_DICT) {
        l = dict_list(&r->heap, v.dict, VALUE_KEYS);
    } else if (v.kind == VALUE_ITERATOR) {
        l = list_create(&r->heap, 0);
        if (l && v.list->num > v.list->cursor)
            *l = (struct list){.items = v.list->items + v.list->cursor, .num = v.list->num - v.list->cursor};
        v.list->cursor = v.list->num;
    } else if (value_is_list(v)) {
        return v.list;
    } else if (v.kind != VALUE_UNDEFINED) {
        run_fail(r, STATUS_TEMPLATE, "'%s' object is not iterable", value_type_name(v));
    }
    return l ? l : &nothing;
}

/* ---- evaluating arguments ---- */

static void spread(struct run *r, const struct node *n, struct arguments *out, int *room)
{
    const struct list *items = run_iterate(r, eval(r, n->a));
    for (int i = 0; i < items->num && r->status == 0; i++) {
        if (out->num_positional == *room && !heap_grow(&r->heap, (void **)&out->positional,
                                                       out->num_positional, room, sizeof(struct value))) {
            return;
        }
        out->positional[out->num_positional++] = items->items[i];
    }
}

static void add_keyword(struct run *r, struct arguments *out, int *room, const struct text *name,
                        struct value v)
{
    if (out->num_keywords == *room &&
        !heap_grow(&r->heap, (void **)&out->keywords, out->num_keywords, room, sizeof(struct keyword))) {
        return;
    }
    out->keywords[out->num_keywords++] = (struct keyword){name, v};
}

static void spread_map(struct run *r, const struct node *n, struct arguments *out, int *room)
{
    struct value map = eval(r, n->a);
    if (r->status != 0) return;
    if (map.kind != VALUE_DICT) {
        run_fail(r, STATUS_TEMPLATE, "argument after ** must be a mapping, not %s", value_type_name(map));
        return;
    }
    for (int i = 0; i < map.dict->num; i++) {
        struct value key = map.dict->pairs[i].key;
        if (key.kind == VALUE_TEXT) add_keyword(r, out, room, key.text, map.dict->pairs[i].value);
    }
}

bool eval_arguments(struct run *r, const struct node *list, struct arguments *out)
{
    *out = (struct arguments){0};
    int positional_room = 0, keyword_room = 0;
    for (const struct node *n = list; n && r->status == 0; n = n->next) {
        if (n->kind == NODE_KEYWORD) {
            add_keyword(r, out, &keyword_room, &n->name->text, eval(r, n->a));
        } else if (n->kind == NODE_SPREAD) {
            spread(r, n, out, &positional_room);
        } else if (n->kind == NODE_SPREAD_MAP) {
            spread_map(r, n, out, &keyword_room);
        } else {
            struct value v = eval(r, n);
            if (out->num_positional < positional_room ||
                heap_grow(&r->heap, (void **)&out->positional, out->num_positional, &positional_room,
                          sizeof v)) {
                out->positional[out->num_positional++] = v;
            }
        }
    }
    return r->status == 0 && !r->heap.failed;
}

/* ---- built-ins ---- */

static bool bind_keyword(struct call *c, const struct builtin *b, const struct keyword *k)
{
    for (int i = 0; i < PARAMETERS_MAX && b->parameters[i]; i++) {
        if (!text_is(k->name, b->parameters[i]) || c->args[i].kind != VALUE_MISSING) continue;
        c->args[i] = k->value;
        return true;
    }
    call_fail(c, "%s() got an unexpected or repeated argument '%.*s'", b->name,
              (int)min_of(k->name->num_bytes, (size_t)80), k->name->bytes);
    return false;
}

static bool bind(struct call *c, const struct builtin *b, const struct arguments *all)
{
    int num = 0;
    while (num < PARAMETERS_MAX && b->parameters[num]) num++;
    if (all->num_positional > num) {
        call_fail(c, "%s() takes %d arguments, %d were given", b->name, num, all->num_positional);
        return false;
    }
    for (int i = 0; i < all->num_positional; i++) c->args[i] = all->positional[i];
    for (int i = 0; i < all->num_keywords; i++) {
        if (!bind_keyword(c, b, &all->keywords[i])) return false;
    }
    for (int i = 0; i < b->num_required; i++) {
        if (c->args[i].kind != VALUE_MISSING) continue;
        call_fail(c, "%s() lacks the argument '%s'", b->name, b->parameters[i]);
        return false;
    }
    return true;
}

struct value builtin_call(struct run *r, const struct builtin *b, struct value self,
                          const struct arguments *all)
{
    struct call c = {.run = r, .heap = &r->heap, .self = self, .all = all};
    if (self.kind == VALUE_TEXT) run_charge(r, self.text->num_bytes / 4);
    if (!b->variadic && !bind(&c, b, all)) return value_undefined();
    struct value v = b->apply(&c);
    return r->status == 0 ? v : value_undefined();
}

struct value call_fail(struct call *c, const char *format, ...)
{
    char sentence[256];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    return run_fail(c->run, STATUS_TEMPLATE, "%s", sentence);
}

const struct text *call_text(struct call *c, int i, const struct text *otherwise)
{
    struct value v = c->args[i];
    if (v.kind == VALUE_MISSING || v.kind == VALUE_NONE) return otherwise;
    if (v.kind == VALUE_TEXT) return v.text;
    call_fail(c, "argument %d must be str, not %s", i + 1, value_type_name(v));
    return &text_empty;
}

int64_t call_int(struct call *c, int i, int64_t otherwise)
{
    struct value v = c->args[i];
    if (v.kind == VALUE_MISSING || v.kind == VALUE_NONE) return otherwise;
    if (value_is_integral(v)) return value_as_int(v);
    call_fail(c, "argument %d must be int, not %s", i + 1, value_type_name(v));
    return otherwise;
}

bool call_bool(struct call *c, int i, bool otherwise)
{
    return c->args[i].kind == VALUE_MISSING ? otherwise : value_is_true(c->args[i]);
}

const struct text *call_self_text(struct call *c)
{
    const struct text *t = value_to_text(c->heap, c->self, c->run->depth_left);
    run_charge(c->run, t->num_bytes * 4);
    return t;
}

struct list *call_self_list(struct call *c)
{
    struct list *l = run_iterate(c->run, c->self);
    run_charge(c->run, (size_t)l->num * 16);
    return l;
}

static bool is_digits(const struct text *t)
{
    for (size_t i = 0; i < t->num_bytes; i++) {
        if (t->bytes[i] < '0' || t->bytes[i] > '9') return false;
    }
    return t->num_bytes > 0 && t->num_bytes < 10;
}

/* v[key], or what stands for it where that is undefined. */
static struct value item_or(struct call *c, struct value v, struct value key, struct value otherwise)
{
    const bool has_other = otherwise.kind != VALUE_MISSING && otherwise.kind != VALUE_NONE;
    v = get_item(c->run, v, key);
    return v.kind == VALUE_UNDEFINED && has_other ? otherwise : v;
}

struct value call_attribute_or(struct call *c, struct value v, struct value attribute, struct value otherwise)
{
    if (attribute.kind == VALUE_MISSING || attribute.kind == VALUE_NONE) return v;
    if (attribute.kind != VALUE_TEXT) return item_or(c, v, attribute, otherwise);
    const struct text *path = attribute.text;
    struct text dot = {.bytes = ".", .num_bytes = 1};
    for (size_t begin = 0; begin <= path->num_bytes && c->run->status == 0;) {
        size_t end = min_of(text_find(path, &dot, begin, path->num_bytes), path->num_bytes);
        const struct text *part = text_slice(c->heap, path, begin, end);
        char digits[16] = "";
        if (is_digits(part)) memcpy(digits, part->bytes, part->num_bytes);
        v = item_or(c, v, digits[0] ? value_int(strtol(digits, NULL, 10)) : value_text(part), otherwise);
        begin = end + 1;
    }
    return v;
}

struct value call_attribute(struct call *c, struct value v, struct value attribute)
{
    return call_attribute_or(c, v, attribute, (struct value){.kind = VALUE_MISSING});
}

/* ---- macros ---- */

static const struct keyword *find_keyword(const struct arguments *all, const struct text *name)
{
    for (int i = 0; i < all->num_keywords; i++) {
        if (text_equal(all->keywords[i].name, name)) return &all->keywords[i];
    }
    return NULL;
}

static bool has_parameter(const struct node *macro, const struct text *name)
{
    for (const struct node *n = macro->a; n; n = n->next) {
        if (text_equal(&n->name->text, name)) return true;
    }
    return false;
}

static struct value missing_parameter(struct run *r, const struct name *name)
{
    struct text_builder b;
    text_builder_init(&b, &r->heap);
    text_builder_append_literal(&b, "parameter '");
    text_builder_append_text(&b, &name->text);
    text_builder_append_literal(&b, "' was not provided");
    return (struct value){.kind = VALUE_UNDEFINED, .owner = VALUE_UNDEFINED, .text = text_builder_take(&b)};
}

/* Named parameters, in the macro's own scope: a default may use the parameters before it. */
static int bind_parameters(struct run *r, const struct node *macro, const struct arguments *all)
{
    int num = 0;
    for (const struct node *n = macro->a; n && r->status == 0; n = n->next, num++) {
        const struct keyword *k = find_keyword(all, &n->name->text);
        struct value v = num < all->num_positional ? all->positional[num]
                         : k                       ? k->value
                         : n->a                    ? eval(r, n->a)
                                                   : missing_parameter(r, n->name);
        scope_set(r, r->scope, n->name, v);
        if (k && num < all->num_positional) {
            run_fail(r, STATUS_TEMPLATE, "macro got two values for '%.*s'", (int)n->name->text.num_bytes,
                     n->name->text.bytes);
        }
    }
    return num;
}

/* caller, varargs and kwargs exist for macros that mention them; otherwise what is left over is an error. */
static void bind_rest(struct run *r, const struct node *macro, const struct arguments *all,
                      int num_parameters)
{
    struct dict *kwargs = dict_create(&r->heap, 0);
    struct list *varargs = list_create(&r->heap, 0);
    struct value caller = {.kind = VALUE_UNDEFINED, .owner = VALUE_MISSING};
    for (int i = num_parameters; i < all->num_positional; i++)
        list_append(&r->heap, varargs, all->positional[i]);
    for (int i = 0; i < all->num_keywords; i++) {
        const struct keyword *k = &all->keywords[i];
        if (has_parameter(macro, k->name)) continue;
        if (macro->takes_caller && text_is(k->name, "caller")) {
            caller = k->value;
        } else {
            dict_append(&r->heap, kwargs, value_text(k->name), k->value);
        }
    }
    if (!kwargs || !varargs) return;
    if ((kwargs->num > 0 && !macro->takes_kwargs) || (varargs->num > 0 && !macro->takes_varargs)) {
        run_fail(r, STATUS_TEMPLATE, "macro '%.*s' was given an argument that it does not take",
                 (int)macro->name->text.num_bytes, macro->name->text.bytes);
        return;
    }
    const struct {
        bool taken;
        const char *name;
        struct value value;
    } rest[] = {
        {macro->takes_caller, "caller", caller},
        {macro->takes_kwargs, "kwargs", value_dict(VALUE_DICT, kwargs)},
        {macro->takes_varargs, "varargs", value_list(VALUE_TUPLE, varargs)},
    };
    for (size_t i = 0; i < array_length(rest); i++) {
        const struct name *name = template_find_name(r->template, rest[i].name, strlen(rest[i].name));
        if (rest[i].taken && !has_parameter(macro, &name->text)) scope_set(r, r->scope, name, rest[i].value);
    }
}

static struct value call_macro(struct run *r, const struct macro *m, const struct arguments *all)
{
    struct scope *caller = r->scope;
    enum flow flow;
    if (!run_enter(r)) return value_undefined();
    r->scope = scope_create(r, m->scope);
    bind_rest(r, m->node, all, bind_parameters(r, m->node, all));
    const struct text *t = exec_capture(r, m->node->list, &flow);
    r->scope = caller;
    run_leave(r);
    return value_text(t);
}

static struct value call_loop(struct run *r, const struct loop *l, const struct arguments *all)
{
    if (!l->node || all->num_positional != 1) {
        return run_fail(r, STATUS_TEMPLATE,
                        "The loop must have the 'recursive' marker to be called recursively.");
    }
    return value_text(exec_loop(r, l->node, all->positional[0], l->depth + 1, l->scope));
}

static struct value call_joiner(struct joiner *j)
{
    const struct text *t = j->used ? j->separator : &text_empty;
    j->used = true;
    return value_text(t);
}

struct value call_value(struct run *r, struct value callee, const struct arguments *all)
{
    switch (callee.kind) {
    case VALUE_MACRO:
        return call_macro(r, callee.macro, all);
    case VALUE_FUNCTION:
        return builtin_call(r, callee.function, value_undefined(), all);
    case VALUE_METHOD:
        return builtin_call(r, callee.method->builtin, callee.method->self, all);
    case VALUE_LOOP:
        return call_loop(r, callee.loop, all);
    case VALUE_JOINER:
        return call_joiner(callee.joiner);
    case VALUE_UNDEFINED:
        return fail_undefined(r, callee);
    default:
        return run_fail(r, STATUS_TEMPLATE, "'%s' object is not callable", value_type_name(callee));
    }
}
