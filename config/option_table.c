#include "config/option_table.h"

#include <string.h>

#include "base/check.h"
#include "config/closest.h"

#define DEFAULT_TEXT_TEXT(d) .default_text = d
#define DEFAULT_TEXT_LIST(d) .default_text = d
#define DEFAULT_TEXT_INT(d) .default_int = d
#define DEFAULT_TEXT_REAL(d) .default_number = d
#define DEFAULT_TEXT_BYTES(d) .default_int = d
#define DEFAULT_TEXT_FLAG(d) .default_int = d
#define SECTION(title) {.type = OPTION_SECTION, .name = title},
#define X(type_, field, name_, def, min_, max_, unit_, help_)                                                \
    {.type = OPTION_##type_,                                                                                 \
     .name = name_,                                                                                          \
     .unit = unit_,                                                                                          \
     .help = help_,                                                                                          \
     .field_offset = offsetof(struct config, field),                                                         \
     .min = (double)(min_),                                                                                  \
     .max = (double)(max_),                                                                                  \
     .min_int = (int64_t)(min_),                                                                             \
     .max_int = (int64_t)(max_),                                                                             \
     DEFAULT_TEXT_##type_(def)},
const struct option options[NUM_OPTIONS] = {OPTION_TABLE(SECTION, X)};
#undef X
#undef SECTION

void *option_field(struct config *c, const struct option *o)
{
    return (char *)c + o->field_offset;
}

const struct option *option_find(const char *name, size_t n)
{
    for (size_t i = 0; i < NUM_OPTIONS; i++)
        if (options[i].type != OPTION_SECTION && strlen(options[i].name) == n &&
            !strncmp(options[i].name, name, n))
            return &options[i];
    return NULL;
}

const char *option_closest_name(const char *name, size_t n)
{
    const char *names[NUM_OPTIONS];
    for (size_t i = 0; i < NUM_OPTIONS; i++)
        names[i] = options[i].type == OPTION_SECTION ? NULL : options[i].name;
    return closest_word(name, n, names, NUM_OPTIONS);
}

int option_fail_unknown(const char *source, const char *prefix, const char *name, size_t n, struct error *err)
{
    const char *meant = option_closest_name(name, n);
    if (meant)
        return error_set(err, STATUS_INVALID, "%s: there is no option \"%s%.*s\"; did you mean \"%s%s\"?",
                         source, prefix, (int)n, name, prefix, meant);
    return error_set(err, STATUS_INVALID, "%s: there is no option \"%s%.*s\"; flashd --help lists them",
                     source, prefix, (int)n, name);
}
