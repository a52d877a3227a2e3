/* scope.c - names: scopes from the inside out, then the request's context, then the built-in functions. */
#include <cjson/cJSON.h>

#include "text/jinja/run.h"

struct scope *scope_create(struct run *r, struct scope *parent)
{
    struct scope *s = heap_alloc(&r->heap, sizeof *s);
    if (s) s->parent = parent;
    return s;
}

void scope_set(struct run *r, struct scope *s, const struct name *name, struct value v)
{
    if (!s) return;
    for (int i = 0; i < s->num; i++) {
        if (s->bindings[i].name != name) continue;
        s->bindings[i].value = v;
        return;
    }
    if (s->num == s->capacity &&
        !heap_grow(&r->heap, (void **)&s->bindings, s->num, &s->capacity, sizeof *s->bindings)) {
        return;
    }
    s->bindings[s->num++] = (struct binding){name, v};
}

static bool is_trusted(const struct run *r, const char *member)
{
    for (const char *const *name = r->trusted; name && *name; name++) {
        if (strcmp(*name, member) == 0) return true;
    }
    return false;
}

static struct value look_up_global(struct run *r, const struct name *name)
{
    const cJSON *member = NULL;
    cJSON_ArrayForEach(member, r->context)
    {
        if (member->string && text_is(&name->text, member->string)) {
            return value_from_json(r, member, !is_trusted(r, member->string), false);
        }
    }
    const struct builtin *function = function_find(&name->text);
    if (function) return (struct value){.kind = VALUE_FUNCTION, .function = function};
    return (struct value){.kind = VALUE_UNDEFINED, .owner = VALUE_MISSING, .text = &name->text};
}

struct value scope_get(struct run *r, const struct name *name)
{
    for (const struct scope *s = r->scope; s; s = s->parent) {
        for (int i = 0; i < s->num; i++) {
            if (s->bindings[i].name == name) return s->bindings[i].value;
        }
    }
    struct value *global = &r->globals[name->idx];
    if (global->kind == VALUE_MISSING) *global = look_up_global(r, name);
    return *global;
}
