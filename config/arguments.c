#include "config/arguments.h"

#include <string.h>

#include "base/check.h"
#include "config/option_table.h"

static const char command_line[] = "command line";

struct arguments {
    int count;
    char *const *items;
    int model_idx; /* of MODEL; -1: none */
    bool list_seen[NUM_OPTIONS];
};

static bool is_option(const char *arg)
{
    return !strncmp(arg, "--", 2);
}

/* name[0..n) of "--name" or "--name=value"; *equals is NULL without a value. */
static const char *split_argument(const char *arg, size_t *n, const char **equals)
{
    const char *name = arg + 2;
    *equals = strchr(name, '=');
    *n = *equals ? (size_t)(*equals - name) : strlen(name);
    return name;
}

static bool is_config(const char *name, size_t n)
{
    return n == 6 && !strncmp(name, "config", n);
}

/* The option and whether it is its --no- form; NULL: there is none. */
static const struct option *find_argument(const char *name, size_t n, bool *negated)
{
    const struct option *o = option_find(name, n);
    *negated = !o && n > 3 && !strncmp(name, "no-", 3);
    if (*negated) o = option_find(name + 3, n - 3);
    return *negated && o && o->type != OPTION_FLAG ? NULL : o;
}

/* How many arguments after this one are its value for certain. */
static int num_values(const char *arg, bool *is_list)
{
    size_t n;
    const char *equals, *name = split_argument(arg, &n, &equals);
    bool negated;
    const struct option *o = find_argument(name, n, &negated);
    *is_list = o && o->type == OPTION_LIST && !equals;
    return !equals && ((o && o->type != OPTION_FLAG) || is_config(name, n));
}

/* The first argument that can be nothing else; else the last that follows a list's values. */
static int find_model(int count, char *const *items)
{
    bool in_list = false;
    int last = -1;
    for (int i = 0; i < count; i++) {
        if (is_option(items[i]))
            i += num_values(items[i], &in_list);
        else if (!in_list)
            return i;
        else
            last = i;
    }
    return last;
}

/* The values of a list from the i-th argument on; returns how many. */
static int load_list(struct config *c, const struct option *o, const struct arguments *args, int i,
                     struct error *err)
{
    int first = i;
    for (; i < args->count && (i == first || !is_option(args->items[i])) && i != args->model_idx; i++) {
        int status = option_set(c, o, args->items[i], command_line, err);
        if (status) return status;
    }
    return i - first;
}

/* The i-th argument with its values; returns how many were used, or a status. */
static int load_option(struct config *c, struct arguments *args, int i, struct error *err)
{
    const char *arg = args->items[i], *equals;
    size_t n;
    const char *name = split_argument(arg, &n, &equals);
    bool negated, has_value = equals || i + 1 < args->count;
    if (is_config(name, n)) /* it was read before */
        return has_value ? equals ? 1 : 2 : error_set(err, STATUS_INVALID, "%s needs a value (file)", arg);
    const struct option *o = find_argument(name, n, &negated);
    if (!o) return option_fail_unknown(command_line, "--", name, n, err);
    if (negated && equals)
        return error_set(err, STATUS_INVALID, "command line: --no-%s takes no value; --%s=true and =false do",
                         o->name, o->name);
    if (o->type == OPTION_FLAG && !equals) {
        *(bool *)option_field(c, o) = !negated;
        return 1;
    }
    if (!has_value) return error_set(err, STATUS_INVALID, "%s needs a value (%s)", arg, o->unit);
    bool *list_seen = &args->list_seen[o - options];
    if (o->type == OPTION_LIST && !*list_seen)
        text_list_deinit(option_field(c, o)); /* the later source wins */
    *list_seen = true;
    if (o->type == OPTION_LIST && !equals) {
        int used = load_list(c, o, args, i + 1, err);
        return used < 0 ? used : 1 + used;
    }
    int status = option_set(c, o, equals ? equals + 1 : args->items[i + 1], command_line, err);
    return status ? status : equals ? 1 : 2;
}

static int load_model(struct config *c, const struct arguments *args, int i, struct error *err)
{
    const char *arg = args->items[i];
    if (arg[0] == '-' && arg[1])
        return error_set(
            err, STATUS_INVALID,
            "command line: there is no option \"%s\", they begin with --; a MODEL of that name is ./%s", arg,
            arg);
    if (i != args->model_idx)
        return error_set(err, STATUS_INVALID, "one MODEL is expected, got \"%s\" and \"%s\"",
                         args->items[args->model_idx], args->items[i]);
    int status = option_set_text(&c->model, "MODEL", args->items[i], command_line, err);
    return status ? status : 1;
}

int arguments_load(struct config *c, int num_args, char *const *items, struct error *err)
{
    struct arguments args = {.count = num_args, .items = items, .model_idx = find_model(num_args, items)};
    for (int i = 0; i < num_args;) {
        int used = is_option(items[i]) ? load_option(c, &args, i, err) : load_model(c, &args, i, err);
        if (used < 0) return used;
        i += used;
    }
    return STATUS_OK;
}
