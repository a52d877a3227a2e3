/* value.h - what a template computes with: Python's values, as far as templates can tell.
 *
 * A value is 16 bytes, copied freely; what it points to lives in a heap. Lists, dicts and namespaces are
 * shared by reference, as in Python. The sequence kinds all point to a struct list:
 *
 *   list tuple                as in Python
 *   keys values items         dict views: sized, iterable, not indexable
 *   range                     all its numbers, made at once
 *   iterator                  what lazy filters (map, select, items ...) give: always true, no length,
 *                             used up by being iterated; computed at once all the same
 *
 * An undefined value remembers what was looked for, for the error that using it raises. */
#ifndef TEXT_JINJA_VALUE_H
#define TEXT_JINJA_VALUE_H

#include "text/jinja/text.h"

enum value_kind {
    VALUE_MISSING, /* an argument that was not given; no expression gives it */
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_LONG, /* an integer that does not fit in 64 bits: printed as it was written, computed with as a
                   float */
    VALUE_TEXT,
    VALUE_LIST, /* from here to VALUE_ITERATOR: struct list */
    VALUE_TUPLE,
    VALUE_KEYS,
    VALUE_VALUES,
    VALUE_ITEMS,
    VALUE_RANGE,
    VALUE_ITERATOR,
    VALUE_DICT,
    VALUE_NAMESPACE,
    VALUE_LOOP,
    VALUE_MACRO,
    VALUE_FUNCTION,
    VALUE_METHOD, /* a method with its object */
    VALUE_JOINER,
    VALUE_CYCLER,
};

struct list;
struct dict;
struct loop;
struct macro;
struct method;
struct joiner;
struct cycler;
struct builtin;

struct value {
    enum value_kind kind : 8;
    enum value_kind owner : 8; /* undefined: the kind that lacks the attribute; VALUE_MISSING: a plain name;
                                  VALUE_UNDEFINED: text is the whole sentence */
    union {
        bool boolean;
        int64_t integer;
        double real;
        const struct text *text; /* text; long: its digits; undefined: the name looked for, or NULL */
        struct list *list;
        struct dict *dict; /* dict, namespace */
        struct loop *loop;
        struct macro *macro;
        const struct builtin *function;
        const struct method *method;
        struct joiner *joiner;
        struct cycler *cycler;
    };
};

struct list {
    struct value *items;
    int num, capacity;
    int cursor;                /* iterator: how many were taken */
    int64_t start, stop, step; /* range */
};

struct pair {
    struct value key, value;
};

struct dict {
    struct pair *pairs; /* in order of insertion */
    int num, capacity;
};

struct method {
    struct value self;
    const struct builtin *builtin;
};

struct joiner {
    const struct text *separator;
    bool used;
};

struct cycler {
    struct list *items;
    int at;
};

static inline struct value value_undefined(void)
{
    return (struct value){.kind = VALUE_UNDEFINED, .owner = VALUE_MISSING};
}

static inline struct value value_none(void)
{
    return (struct value){.kind = VALUE_NONE};
}

static inline struct value value_bool(bool b)
{
    return (struct value){.kind = VALUE_BOOL, .boolean = b};
}

static inline struct value value_int(int64_t i)
{
    return (struct value){.kind = VALUE_INT, .integer = i};
}

static inline struct value value_float(double d)
{
    return (struct value){.kind = VALUE_FLOAT, .real = d};
}

static inline struct value value_text(const struct text *t)
{
    return (struct value){.kind = VALUE_TEXT, .text = t};
}

static inline struct value value_literal(struct heap *h, const char *literal)
{
    return value_text(text_wrap(h, literal, strlen(literal), false));
}

/* Undefined when list or dict is NULL (the heap failed). */
static inline struct value value_list(enum value_kind kind, struct list *list)
{
    return list ? (struct value){.kind = kind, .list = list} : value_undefined();
}

static inline struct value value_dict(enum value_kind kind, struct dict *dict)
{
    return dict ? (struct value){.kind = kind, .dict = dict} : value_undefined();
}

static inline bool value_is_list(struct value v)
{
    return v.kind >= VALUE_LIST && v.kind <= VALUE_ITERATOR;
}

/* bool counts as a number, as in Python. */
static inline bool value_is_integral(struct value v)
{
    return v.kind == VALUE_INT || v.kind == VALUE_BOOL;
}

static inline bool value_is_number(struct value v)
{
    return value_is_integral(v) || v.kind == VALUE_FLOAT || v.kind == VALUE_LONG;
}

static inline int64_t value_as_int(struct value v)
{
    return v.kind == VALUE_BOOL ? v.boolean : v.integer;
}

double text_as_float(const struct text *digits);

static inline double value_as_float(struct value v)
{
    if (v.kind == VALUE_LONG) return text_as_float(v.text);
    return v.kind == VALUE_FLOAT ? v.real : (double)value_as_int(v);
}

const char *value_type_name(struct value v); /* as Python's type(v).__name__ */
bool value_is_true(struct value v);
bool value_is_same(struct value a, struct value b); /* Python's `is` */
/* Comparing is charged to the heap. Nested deeper than depth, or past the budget, compares as unequal (and so
 * ends on a list that contains itself, or holds another one a million times). */
bool value_equal(struct heap *h, struct value a, struct value b, int depth);
/* *order < 0, 0, > 0. False when Python would raise TypeError. */
bool value_compare(struct heap *h, struct value a, struct value b, int depth, int *order);
bool value_is_hashable(struct value v);

struct list *list_create(struct heap *h, int capacity);
void list_append(struct heap *h, struct list *l, struct value v); /* l may be NULL */
struct value value_tuple2(struct heap *h, struct value a, struct value b);

struct dict *dict_create(struct heap *h, int capacity);
struct value *dict_find(struct heap *h, const struct dict *d, struct value key); /* NULL: not there */
struct value *dict_find_text(struct heap *h, const struct dict *d, const struct text *key);
void dict_append(struct heap *h, struct dict *d, struct value key,
                 struct value v); /* key is known to be new */
void dict_set(struct heap *h, struct dict *d, struct value key, struct value v);
struct list *dict_list(struct heap *h, const struct dict *d, enum value_kind view);

/* ---- as text (print.c) ---- */

void value_print(struct text_builder *b, struct value v, int depth); /* str(v); nothing for undefined */
void value_repr(struct text_builder *b, struct value v, int depth);
const struct text *value_to_text(struct heap *h, struct value v, int depth); /* a text as it is */
enum { FLOAT_TEXT_BYTES = 40 };
int float_repr(double d, char text[FLOAT_TEXT_BYTES]); /* as Python's repr: shortest that reads back */

#endif
