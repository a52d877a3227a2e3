/* option_table.h - the table of options.h as data, for what is inside this folder. */
#ifndef CONFIG_OPTION_TABLE_H
#define CONFIG_OPTION_TABLE_H

#include "config/config.h"

enum option_type {
    OPTION_TEXT,
    OPTION_LIST,
    OPTION_INT,
    OPTION_REAL,
    OPTION_BYTES,
    OPTION_FLAG,
    OPTION_SECTION
};

struct option {
    enum option_type type;
    const char *name, *unit, *help;
    size_t field_offset;
    const char *default_text; /* TEXT */
    double default_number, min, max;
    int64_t default_int, min_int, max_int;
};

#define SECTION(title) +1
#define X(type, field, name, def, min, max, unit, help) +1
enum { NUM_OPTIONS = OPTION_TABLE(SECTION, X) };
#undef X
#undef SECTION

extern const struct option options[NUM_OPTIONS]; /* sections are among them */

void *option_field(struct config *c, const struct option *o);

/* NULL: there is none of that name. */
const struct option *option_find(const char *name, size_t n);

/* value as every source has it. A LIST is appended to; the entries of a value are separated by commas. */
int option_set(struct config *c, const struct option *o, const char *value, const char *source,
               struct error *err) must_check;

/* A text that is not empty and printable. The name is for the message. */
int option_set_text(char **field, const char *name, const char *value, const char *source,
                    struct error *err) must_check;

/* The name that a mistyped one may stand for; NULL: none is near. */
const char *option_closest_name(const char *name, size_t n);

/* The sentence about a name of n bytes that there is not; prefix stands before it where it came from ("--").
 */
int option_fail_unknown(const char *source, const char *prefix, const char *name, size_t n,
                        struct error *err);

#endif
