#include "config/config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "config/config_file.h"

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
static const struct option options[] = {OPTION_TABLE(SECTION, X)};
#undef X
#undef SECTION

static void *field_of(struct config *c, const struct option *o)
{
    return (char *)c + o->field_offset;
}

static const struct option *find_option(const char *name, size_t n)
{
    for (size_t i = 0; i < array_length(options); i++)
        if (options[i].type != OPTION_SECTION && strlen(options[i].name) == n &&
            !strncmp(options[i].name, name, n))
            return &options[i];
    return NULL;
}

static int set_text(char **field, const char *value)
{
    char *copy = value ? strdup(value) : NULL;
    if (value && !copy) return STATUS_NO_MEMORY;
    free(*field);
    *field = copy;
    return STATUS_OK;
}

void text_list_deinit(struct text_list *list)
{
    for (int i = 0; i < list->num_items; i++) free(list->items[i]);
    free(list->items);
    *list = (struct text_list){0};
}

int text_list_append(struct text_list *list, const char *text, size_t n)
{
    char **items = realloc(list->items, (size_t)(list->num_items + 1) * sizeof *items);
    if (!items) return STATUS_NO_MEMORY;
    list->items = items;
    items[list->num_items] = text ? strndup(text, n) : NULL;
    if (text && !items[list->num_items]) return STATUS_NO_MEMORY;
    list->num_items++;
    return STATUS_OK;
}

int config_init(struct config *c, struct error *err)
{
    memset(c, 0, sizeof *c);
    for (size_t i = 0; i < array_length(options); i++) {
        const struct option *o = &options[i];
        void *field = field_of(c, o);
        switch (o->type) {
        case OPTION_TEXT:
            if (set_text(field, o->default_text)) return error_set(err, STATUS_NO_MEMORY, "out of memory");
            break;
        case OPTION_INT:
            *(int64_t *)field = o->default_int;
            break;
        case OPTION_BYTES:
            *(uint64_t *)field = (uint64_t)o->default_int;
            break;
        case OPTION_REAL:
            *(double *)field = o->default_number;
            break;
        case OPTION_FLAG:
            *(bool *)field = o->default_int != 0;
            break;
        case OPTION_LIST:
        case OPTION_SECTION:
            break;
        }
    }
    return STATUS_OK;
}

void config_deinit(struct config *c)
{
    for (size_t i = 0; i < array_length(options); i++) {
        if (options[i].type == OPTION_TEXT) free(*(char **)field_of(c, &options[i]));
        if (options[i].type == OPTION_LIST) text_list_deinit(field_of(c, &options[i]));
    }
    free(c->model);
    memset(c, 0, sizeof *c);
}

/* A choice like "auto|cpu|cuda" in the unit column limits a TEXT to its words. */
static bool is_allowed_choice(const char *choices, const char *value)
{
    if (!strchr(choices, '|')) return true;
    size_t n = strlen(value);
    for (const char *word = choices; word;) {
        const char *bar = strchr(word, '|');
        size_t word_bytes = bar ? (size_t)(bar - word) : strlen(word);
        if (word_bytes == n && !memcmp(word, value, n)) return true;
        word = bar ? bar + 1 : NULL;
    }
    return false;
}

static bool parse_bytes_suffix(const char *suffix, uint64_t *factor)
{
    static const struct {
        const char *text;
        uint64_t factor;
    } suffixes[] = {{"", 1},      {"K", KIB}, {"KiB", KIB}, {"M", MIB},
                    {"MiB", MIB}, {"G", GIB}, {"GiB", GIB}, {"B", 1}};
    for (size_t i = 0; i < array_length(suffixes); i++)
        if (!strcasecmp(suffix, suffixes[i].text)) {
            *factor = suffixes[i].factor;
            return true;
        }
    return false;
}

static bool parse_whole_number(const char *value, bool with_suffix, int64_t *out)
{
    char *end;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    uint64_t factor = 1, product;
    if (end == value || errno || number < 0) return false;
    if (with_suffix ? !parse_bytes_suffix(end, &factor) : *end != '\0') return false;
    if (!checked_mul((uint64_t)number, factor, &product) || product > INT64_MAX) return false;
    *out = (int64_t)product;
    return true;
}

static int set_number(struct config *c, const struct option *o, const char *value, const char *source,
                      struct error *err)
{
    if (o->type == OPTION_REAL) {
        char *end;
        double number = strtod(value, &end);
        if (end == value || *end || !isfinite(number) || number < o->min || number > o->max)
            return error_set(err, STATUS_INVALID, "%s: %s must be a number from %g to %g, got \"%s\"", source,
                             o->name, o->min, o->max, value);
        *(double *)field_of(c, o) = number;
        return STATUS_OK;
    }
    int64_t number;
    if (!parse_whole_number(value, o->type == OPTION_BYTES, &number) || number < o->min_int ||
        number > o->max_int)
        return error_set(err, STATUS_INVALID,
                         "%s: %s must be a whole number of %s from %lld to %lld, got \"%s\"", source, o->name,
                         o->unit, (long long)o->min_int, (long long)o->max_int, value);
    if (o->type == OPTION_BYTES)
        *(uint64_t *)field_of(c, o) = (uint64_t)number;
    else
        *(int64_t *)field_of(c, o) = number;
    return STATUS_OK;
}

static int set_flag(struct config *c, const struct option *o, const char *value, const char *source,
                    struct error *err)
{
    bool on = !strcasecmp(value, "true") || !strcmp(value, "1") || !strcasecmp(value, "yes");
    bool off = !strcasecmp(value, "false") || !strcmp(value, "0") || !strcasecmp(value, "no");
    if (!on && !off)
        return error_set(err, STATUS_INVALID, "%s: %s must be true or false, got \"%s\"", source, o->name,
                         value);
    *(bool *)field_of(c, o) = on;
    return STATUS_OK;
}

static int set_option(struct config *c, const struct option *o, const char *value, const char *source,
                      struct error *err)
{
    switch (o->type) {
    case OPTION_TEXT:
        if (!is_allowed_choice(o->unit, value))
            return error_set(err, STATUS_INVALID, "%s: %s must be one of %s, got \"%s\"", source, o->name,
                             o->unit, value);
        if (set_text(field_of(c, o), value)) return error_set(err, STATUS_NO_MEMORY, "out of memory");
        return STATUS_OK;
    case OPTION_LIST:
        if (text_list_append(field_of(c, o), value, strlen(value)))
            return error_set(err, STATUS_NO_MEMORY, "out of memory");
        return STATUS_OK;
    case OPTION_FLAG:
        return set_flag(c, o, value, source, err);
    default:
        return set_number(c, o, value, source, err);
    }
}

int config_set(struct config *c, const char *name, const char *value, const char *source, struct error *err)
{
    if (!strcmp(name, "model")) {
        if (set_text(&c->model, value)) return error_set(err, STATUS_NO_MEMORY, "out of memory");
        return STATUS_OK;
    }
    const struct option *o = find_option(name, strlen(name));
    if (!o)
        return error_set(err, STATUS_INVALID, "%s: there is no option \"%s\"; flashd --help lists them",
                         source, name);
    return set_option(c, o, value, source, err);
}

/* FLASHD_MAX_NUM_SEQS for max-num-seqs. */
static void environment_name(const struct option *o, char *out, size_t capacity)
{
    size_t n = (size_t)snprintf(out, capacity, "FLASHD_%s", o->name);
    for (size_t i = 0; i < n && i < capacity; i++)
        out[i] = out[i] == '-' ? '_' : (char)(out[i] >= 'a' && out[i] <= 'z' ? out[i] - 32 : out[i]);
}

static int set_list_from_commas(struct config *c, const struct option *o, const char *value)
{
    struct text_list *list = field_of(c, o);
    text_list_deinit(list);
    while (*value) {
        size_t n = strcspn(value, ",");
        if (n > 0 && text_list_append(list, value, n)) return STATUS_NO_MEMORY;
        value += n + (value[n] == ',');
    }
    return STATUS_OK;
}

static int load_environment(struct config *c, char *const *environment, struct error *err)
{
    for (; environment && *environment; environment++) {
        const char *equals = strchr(*environment, '=');
        if (!equals) continue;
        size_t n = (size_t)(equals - *environment);
        for (size_t i = 0; i < array_length(options); i++) {
            char name[64];
            if (options[i].type == OPTION_SECTION) continue;
            environment_name(&options[i], name, sizeof name);
            if (strlen(name) != n || strncmp(name, *environment, n) != 0) continue;
            int status = options[i].type == OPTION_LIST ? set_list_from_commas(c, &options[i], equals + 1)
                                                        : set_option(c, &options[i], equals + 1, name, err);
            if (status) return status;
        }
    }
    return STATUS_OK;
}

/* One argument (and perhaps its value) from the command line; returns how many were used, or a status. */
static int load_argument(struct config *c, int num_args, char *const *args, bool *list_seen,
                         struct error *err)
{
    const char *arg = args[0];
    if (strncmp(arg, "--", 2) != 0) {
        if (c->model && list_seen[array_length(options)])
            return error_set(err, STATUS_INVALID, "one MODEL is expected, got \"%s\" and \"%s\"", c->model,
                             arg);
        list_seen[array_length(options)] = true;
        return set_text(&c->model, arg) ? STATUS_NO_MEMORY : 1;
    }
    const char *name = arg + 2, *equals = strchr(name, '=');
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    if (n == 6 && !strncmp(name, "config", n)) return equals ? 1 : 2; /* read before */
    const struct option *o = find_option(name, n);
    if (!o && !equals && !strncmp(name, "no-", 3)) {
        o = find_option(name + 3, n - 3);
        if (o && o->type == OPTION_FLAG) {
            *(bool *)field_of(c, o) = false;
            return 1;
        }
        o = NULL;
    }
    if (!o) return error_set(err, STATUS_INVALID, "there is no option \"%s\"; flashd --help lists them", arg);
    if (o->type == OPTION_FLAG && !equals) {
        *(bool *)field_of(c, o) = true;
        return 1;
    }
    if (!equals && num_args < 2) return error_set(err, STATUS_INVALID, "%s needs a value (%s)", arg, o->unit);
    size_t idx = (size_t)(o - options);
    if (o->type == OPTION_LIST && !list_seen[idx])
        text_list_deinit(field_of(c, o)); /* the later source wins */
    list_seen[idx] = true;
    int status = set_option(c, o, equals ? equals + 1 : args[1], "command line", err);
    return status ? status : equals ? 1 : 2;
}

static const char *find_config_path(int num_args, char *const *args)
{
    for (int i = 0; i < num_args; i++) {
        if (!strncmp(args[i], "--config=", 9)) return args[i] + 9;
        if (!strcmp(args[i], "--config") && i + 1 < num_args) return args[i + 1];
    }
    return NULL;
}

int config_load(struct config *c, int num_args, char *const *args, char *const *environment,
                struct error *err)
{
    const char *path = find_config_path(num_args, args);
    int status = path ? config_file_load(c, path, err) : STATUS_OK;
    if (!status) status = load_environment(c, environment, err);
    if (status) return status;
    bool list_seen[array_length(options) + 1] = {false}; /* the last: MODEL on the command line */
    for (int i = 0; i < num_args;) {
        int used = load_argument(c, num_args - i, args + i, list_seen, err);
        if (used < 0) return used;
        i += used;
    }
    return STATUS_OK;
}

static void format_default(const struct option *o, char *out, size_t capacity)
{
    switch (o->type) {
    case OPTION_TEXT:
        snprintf(out, capacity, "%s", o->default_text ? o->default_text : "");
        break;
    case OPTION_INT:
        snprintf(out, capacity, "%lld", (long long)o->default_int);
        break;
    case OPTION_REAL:
        snprintf(out, capacity, "%g", o->default_number);
        break;
    case OPTION_FLAG:
        snprintf(out, capacity, "%s", o->default_int ? "true" : "false");
        break;
    case OPTION_BYTES:
        if (o->default_int && o->default_int % MIB == 0)
            snprintf(out, capacity, "%lldMiB", (long long)(o->default_int / MIB));
        else if (o->default_int && o->default_int % KIB == 0)
            snprintf(out, capacity, "%lldKiB", (long long)(o->default_int / KIB));
        else
            snprintf(out, capacity, "%lld", (long long)o->default_int);
        break;
    default:
        snprintf(out, capacity, "%s", "");
        break;
    }
}

void config_print_help(FILE *out)
{
    fprintf(out, "      --config <file>\n          YAML file of options: name: value\n");
    for (size_t i = 0; i < array_length(options); i++) {
        const struct option *o = &options[i];
        if (o->type == OPTION_SECTION) {
            fprintf(out, "\n%s:\n", o->name);
            continue;
        }
        char text[64];
        format_default(o, text, sizeof text);
        if (o->type == OPTION_FLAG)
            fprintf(out, "      --%s, --no-%s\n          %s", o->name, o->name, o->help);
        else
            fprintf(out, "      --%s <%s>\n          %s", o->name, o->unit, o->help);
        fprintf(out, text[0] ? " [%s]\n" : "%s\n", text);
    }
}

void config_print_example(FILE *out)
{
    fprintf(out,
            "# flashd.example.yaml - every option at its default; made by `flashd --print-example-config`.\n"
            "# Start with `flashd serve --config flashd.yaml`.\n\n#model: /models/model.gguf\n");
    for (size_t i = 0; i < array_length(options); i++) {
        const struct option *o = &options[i];
        if (o->type == OPTION_SECTION) {
            fprintf(out, "\n# ---- %s ----\n", o->name);
            continue;
        }
        char text[64];
        format_default(o, text, sizeof text);
        fprintf(out, "\n# %s%s%s%s\n#%s: %s\n", o->help, o->unit[0] ? " (" : "", o->unit,
                o->unit[0] ? ")" : "", o->name, text);
    }
}
