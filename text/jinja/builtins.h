/* builtins.h - filters, tests, methods and functions: tables of one kind of row.
 *
 * Adding one is adding a row {name, function, {parameters}, num_required} to its table. The caller binds the
 * arguments to the parameters by position and by name; one that was not given has kind VALUE_MISSING. A
 * variadic one looks at all itself. A failure is told by call_fail and its result is then not used. */
#ifndef TEXT_JINJA_BUILTINS_H
#define TEXT_JINJA_BUILTINS_H

#include "text/jinja/value.h"

enum { PARAMETERS_MAX = 5 };

struct run;

struct keyword {
    const struct text *name;
    struct value value;
};

struct arguments {
    struct value *positional;
    struct keyword *keywords;
    int num_positional, num_keywords;
};

struct call {
    struct run *run;
    struct heap *heap;
    struct value self; /* what the filter, test or method is applied to */
    struct value args[PARAMETERS_MAX];
    const struct arguments *all;
};

struct builtin {
    const char *name;
    struct value (*apply)(struct call *c);
    const char *parameters[PARAMETERS_MAX];
    int num_required;
    bool variadic;
};

/* NULL when there is none. */
const struct builtin *filter_find(const struct text *name);
const struct builtin *test_find(const struct text *name);
const struct builtin *function_find(const struct text *name);
const struct builtin *method_find(enum value_kind kind, const struct text *name);
const struct builtin *builtin_find(const struct builtin *rows, size_t num_rows, const struct text *name);

/* The tables, one file each. */
extern const struct builtin filters_of_text[], filters_of_lists[], filters_of_values[];
extern const size_t num_filters_of_text, num_filters_of_lists, num_filters_of_values;
extern const struct builtin text_methods[], text_search_methods[], list_methods[], dict_methods[],
    loop_methods[], cycler_methods[];
extern const size_t num_text_methods, num_text_search_methods, num_list_methods, num_dict_methods,
    num_loop_methods, num_cycler_methods;

/* Binds and calls. */
struct value builtin_call(struct run *r, const struct builtin *b, struct value self,
                          const struct arguments *all);

/* ---- for the functions in the tables ---- */

struct value call_fail(struct call *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Argument i, or the default when it is missing (or None). Of the wrong type: fails. */
const struct text *call_text(struct call *c, int i, const struct text *otherwise);
int64_t call_int(struct call *c, int i, int64_t otherwise);
bool call_bool(struct call *c, int i, bool otherwise);
const struct text *call_self_text(struct call *c); /* str(self) */
struct list *call_self_list(struct call *c); /* what iterating self gives; empty on failure, never NULL */
/* `a.b.0` looked up from v, as filters with attribute= do. attribute missing: v itself. */
struct value call_attribute(struct call *c, struct value v, struct value attribute);
/* Each part of it that is undefined is otherwise, unless that is missing or None. */
struct value call_attribute_or(struct call *c, struct value v, struct value attribute,
                               struct value otherwise);

#endif
