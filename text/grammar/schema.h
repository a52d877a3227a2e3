/* schema.h - a JSON schema on its way to a program.
 *
 * What a value must fulfil is a conjunction of atoms: places in the schema document, each as written or
 * negated. $ref and allOf add atoms. anyOf, oneOf, if and their like are choices: one of them is made at a
 * time, which gives a conjunction for each alternative, with the keyword marked as done in its atom. A
 * conjunction without choices is a shape: per type of value, what it must fulfil. Equal conjunctions share a
 * rule, so that a recursive schema becomes a recursive rule.
 *
 * Everything here lives in the compiler's arena for as long as one schema is compiled. Failures are sticky:
 * the first one is kept in status and err, and every function then returns quickly. Thread: none of its own.
 */
#ifndef TEXT_GRAMMAR_SCHEMA_H
#define TEXT_GRAMMAR_SCHEMA_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "base/arena.h"
#include "text/grammar/builder.h"
#include "text/grammar/json_text.h"

enum {
    SCHEMA_ARENA_BYTES = 16 << 20,
    SCHEMA_WORK_MAX = 60000, /* atoms looked at */
    SCHEMA_DEPTH_MAX = 160,
    SCHEMA_KEYS_MAX = 20000, /* properties of an object */
    SCHEMA_KEY_BYTES_MAX = 1024,
};

/* Choices of an atom that are made. */
enum choice {
    CHOICE_ANY_OF = 1,
    CHOICE_ONE_OF = 2,
    CHOICE_IF = 4,
    CHOICE_NEGATION = 8, /* of a negated atom */
    CHOICE_FLAT = 16,    /* $ref and allOf were followed */
    CHOICE_NOT = 32,
    CHOICE_DEPENDENCY = 64, /* times the number of dependencies that are decided */
};

struct atom {
    const cJSON *node;
    bool negated;
    uint32_t done;
};

struct conjunction {
    struct atom *atoms; /* no two of the same node and sign; copies of a conjunction share them */
    int num_atoms;
    const cJSON *origin; /* the schema that all atoms come from, NULL when there are several */
};

enum value_type {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INTEGER = 4,
    TYPE_FRACTION = 8, /* numbers that are not integers */
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_NUMBER = TYPE_INTEGER | TYPE_FRACTION,
    TYPE_ALL = 127,
};

struct schema_list {
    const cJSON **nodes;
    int count, capacity;
};

struct pattern {
    const char *text;
    bool negated, is_format;
    bool drops_lengths; /* regex_look_lengths of it are the shape's */
};

struct pattern_list {
    struct pattern *items;
    int count, capacity;
};

struct alternative_list {
    struct conjunction *items;
    int count;
};

struct shape {
    unsigned types;
    bool has_literals;
    struct schema_list literals, excluded; /* enum and const; what not allows not */
    long double min, max;                  /* whole numbers up to 2^64 exactly */
    bool min_open, max_open;
    struct schema_list multiples, not_multiples;
    uint32_t min_length, max_length;
    struct pattern_list patterns;
    uint32_t min_items, max_items;
    struct schema_list arrays;   /* atoms that have items, prefixItems or additionalItems */
    struct schema_list contains; /* atoms that have contains */
    uint32_t min_properties, max_properties;
    struct schema_list objects;  /* atoms that have properties, patternProperties or additionalProperties */
    struct schema_list names;    /* values of propertyNames */
    struct schema_list required; /* strings */
    const cJSON *unevaluated_properties, *unevaluated_items, *unique_items;

    /* The first choice that is open: its alternatives are atoms to add. */
    bool has_choice;
    struct conjunction rest; /* all atoms, the choice marked as done */
    struct alternative_list alternatives;
};

/* What was made once, by hash; the first member of whatever is kept so. The slots grow. */
struct schema_entry {
    struct schema_entry *next; /* in its slot */
    uint32_t hash;
};

struct schema_table {
    struct schema_entry **slots; /* NULL: still empty */
    uint32_t num_slots, count;
};

/* What an alternative of a oneOf is told by. */
enum tag { TAG_NONE, TAG_ITSELF, TAG_PROPERTY };

struct one_of_part {
    const cJSON *node;
    unsigned types;
    enum tag tag;
    bool is_told; /* no other one has its tag's constants */
};

struct one_of {
    struct schema_entry entry;
    const cJSON *keyword;
    struct one_of_part *parts;
    int count;
    uint32_t num_checks;
};

struct compiler {
    struct builder b;
    struct arena arena;
    const cJSON *root;
    struct error *err;
    int status;
    int work, depth;
    uint64_t num_steps;               /* that are no atom's worth of work yet */
    const cJSON *negated;             /* the last that had to be told from others; NULL: none had */
    bool leaves_out;                  /* an alternative of what is not allowed could not be written down */
    struct json_any any;              /* made when first needed */
    uint32_t string, integer, number; /* likewise */
    struct schema_table memos;        /* conjunctions and their rules */
    struct schema_table schemas;      /* nodes and the keywords that they have */
    struct schema_table one_ofs;      /* by their keywords */
    struct regex_memo *regexes;
    struct number_memo *numbers;
    struct negation_memo *negations;
    struct schema_resources *resources;
};

/* Records the first failure. */
int schema_fail(struct compiler *c, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Where a node stands, as a JSON pointer ("#/properties/a"), for such a sentence. */
const char *schema_path(struct compiler *c, const cJSON *node);
void *schema_alloc(struct compiler *c, size_t bytes); /* never NULL: a failure gives scratch */

const cJSON *schema_get(const cJSON *object, const char *key);
/* The entries of a hash, and some others behind them. */
struct schema_entry *schema_table_find(const struct schema_table *t, uint32_t hash);
void schema_table_add(struct compiler *c, struct schema_table *t, struct schema_entry *entry);
void schema_list_add(struct compiler *c, struct schema_list *l, const cJSON *node);

/* conjunction.c */
struct conjunction conjunction_of(struct compiler *c, const cJSON *node);
void conjunction_add(struct compiler *c, struct conjunction *to, const cJSON *node, bool negated);
/* Follows $ref and allOf, drops what says nothing. */
struct conjunction conjunction_flatten(struct compiler *c, const struct conjunction *from);
bool conjunction_is_never(const struct conjunction *k); /* holds the schema false */
bool conjunction_equal(const struct conjunction *a, const struct conjunction *b);
/* Counts comparisons of values or names as work, before they are made. False: it is too much, or something has failed. */
bool schema_charge(struct compiler *c, size_t num_steps);

/* shape.c: of a flattened conjunction. */
void shape_read(struct compiler *c, const struct conjunction *k, struct shape *out);
/* Whether the schema at node by itself limits a value, the choices done left out (enum choice). */
bool shape_limits(struct compiler *c, const cJSON *node, uint32_t done);
/* The same without its choices: what holds whatever is chosen. */
void shape_read_limits(struct compiler *c, const struct conjunction *k, struct shape *out);

/* schema_not.c: the alternatives of what the schema at node does not allow. */
struct alternative_list schema_negate(struct compiler *c, const cJSON *node);
/* {"properties": {name: false}}, and {"type": "object", "required": [...]} of a dependency's name and names.
 */
const cJSON *schema_make_without(struct compiler *c, const char *name);
const cJSON *schema_make_required(struct compiler *c, const cJSON *dependency);
/* An object that has the property, not of the schema. */
const cJSON *schema_make_unlike(struct compiler *c, const char *name, const cJSON *schema);
bool schema_is_made(const cJSON *node); /* nobody wrote it: it says what a negation or a dependency means */
/* Whether no value can fulfil both (when in doubt: no). */
bool schema_disjoint(struct compiler *c, const cJSON *a, const cJSON *b);

/* schema_one_of.c: the alternatives of a oneOf, a list; whether a value may fulfil both of two of them. Never NULL. */
struct one_of *schema_one_of(struct compiler *c, const cJSON *keyword);
bool schema_may_meet(struct compiler *c, struct one_of *o, int a, int b);

/* json_schema.c: a schema as a rule of a program that is being built and has JSON's classes (json_text.h). */
int schema_compile_into(struct builder *b, const cJSON *schema, uint32_t *rule, struct error *err) must_check;

/* references.c: NULL and a failure when there is nothing. */
const cJSON *schema_resolve(struct compiler *c, const cJSON *node, const char *reference);
void schema_free_resources(struct compiler *c);

/* schema_value.c */
unsigned schema_type_of(const cJSON *value);
/* False also where comparing is too much work. */
bool schema_equal(struct compiler *c, const cJSON *a, const cJSON *b);
/* Whether a value that stands in the schema fulfils a conjunction. */
bool schema_accepts(struct compiler *c, const struct conjunction *k, const cJSON *value);
/* The same for one of the literals of a shape. */
bool schema_literal_fits(struct compiler *c, const struct shape *s, const cJSON *value);

/* schema_rule.c: RULE_NEVER when nothing fulfils it. */
uint32_t schema_rule(struct compiler *c, const struct conjunction *k);
uint32_t schema_any_rule(struct compiler *c); /* any value */

/* Start states of what has one type; STATE_DEAD when nothing fulfils the shape. */
uint32_t schema_number_state(struct compiler *c, const struct shape *s);
uint32_t schema_string_state(struct compiler *c, const struct shape *s);
uint32_t schema_array_state(struct compiler *c, const struct conjunction *k, const struct shape *s);
uint32_t schema_object_state(struct compiler *c, const struct conjunction *k, const struct shape *s);
uint32_t schema_unique_state(struct compiler *c, const struct shape *s); /* an array with uniqueItems */
/* Elements of one rule, around which states have these flags (STATE_UNIQUE_...). */
uint32_t schema_unlike_state(struct compiler *c, const struct shape *s, uint32_t rule, unsigned unique);
uint32_t schema_literals_state(struct compiler *c, const struct shape *s);
/* What takes exactly the value and goes on in next; the text of one that is no array and no object. */
uint32_t schema_literal_state(struct compiler *c, const cJSON *value, uint32_t next);
const char *schema_literal_text(struct compiler *c, const cJSON *value, size_t *num_bytes);

/* What the element at index, the property of a name must fulfil. */
struct conjunction schema_element(struct compiler *c, const struct shape *s, int index);
bool schema_has_prefix(const struct shape *s); /* of elements of their own */
struct conjunction schema_property(struct compiler *c, const struct shape *s, const char *name);

/* schema_string.c */
const struct dfa *schema_regex(struct compiler *c,
                               const struct pattern *p); /* kept until the end; NULL: failure */
void schema_free_regexes(struct compiler *c);
/* The insides of strings that fulfil the shape; the caller frees it. */
bool schema_string_dfa(struct compiler *c, const struct shape *s, struct dfa *out);
/* The same for an enum or const: the strings among them. */
void schema_literal_names_dfa(struct compiler *c, const struct shape *s, struct dfa *out);
bool schema_string_fits(struct compiler *c, const struct shape *s, const char *text);
/* The canonical inside of a JSON string. */
const char *schema_escape(struct compiler *c, const char *text, size_t *num_bytes);

/* schema_number.c */
bool schema_number_fits(struct compiler *c, const struct shape *s, double value);
/* The shortest decimal text that is read back as value; false when none is exact enough. */
bool schema_number_text(double value, char out[32]);

/* formats.c: a regular expression that matches the whole text; NULL for a format that is only a remark. */
const char *schema_format_pattern(const char *name);

#endif
