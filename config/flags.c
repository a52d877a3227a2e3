#include "config/flags.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/closest.h"

enum { FLAGS_MAX = 32 };

static bool named(const struct flag *f, const char *name, size_t n)
{
    return strlen(f->name) == n && !strncmp(f->name, name, n);
}

static const struct flag *find(const struct flag *flags, const char *name, size_t n, bool *negated)
{
    *negated = false;
    for (const struct flag *f = flags; f->name; f++)
        if (named(f, name, n)) return f;
    *negated = n > 3 && !strncmp(name, "no-", 3);
    for (const struct flag *f = flags; *negated && f->name; f++)
        if (f->type == FLAG_SWITCH && named(f, name + 3, n - 3)) return f;
    return NULL;
}

static int fail_unknown(const struct flag *flags, const char *command, const char *arg, struct error *err)
{
    const char *names[FLAGS_MAX];
    size_t count = 0, skip = strspn(arg, "-");
    for (const struct flag *f = flags; f->name && count < FLAGS_MAX; f++) names[count++] = f->name;
    const char *meant = skip ? closest_word(arg + skip, strcspn(arg + skip, "="), names, count) : NULL;
    return error_set(err, STATUS_INVALID, "%s: \"%s\" is not understood%s%s%s", command, arg,
                     meant ? "; did you mean \"--" : "", meant ? meant : "", meant ? "\"?" : "");
}

static bool is_choice(const char *choices, const char *value)
{
    size_t n = strlen(value);
    for (const char *at = choices; at; at = strchr(at, '|')) {
        if (*at == '|') at++;
        if (strcspn(at, "|") == n && !strncmp(at, value, n)) return true;
    }
    return false;
}

static int set_text(const struct flag *f, const char **to, const char *value, struct error *err)
{
    if (!value[0]) return error_set(err, STATUS_INVALID, "--%s: the value is empty", f->name);
    if (strchr(f->unit, '|') && !is_choice(f->unit, value))
        return error_set(err, STATUS_INVALID, "--%s: one of %s is expected, not \"%s\"", f->name, f->unit,
                         value);
    *to = value;
    return STATUS_OK;
}

static int set_number(const struct flag *f, void *to, const char *value, struct error *err)
{
    char *end;
    double number = strtod(value, &end);
    bool whole = f->type != FLAG_COUNT || number == floor(number);
    if (!value[0] || *end || !whole || !(number >= f->least && number <= f->most))
        return error_set(err, STATUS_INVALID, "--%s: a %snumber from %.10g to %.10g is expected, not \"%s\"",
                         f->name, f->type == FLAG_COUNT ? "whole " : "", f->least, f->most, value);
    if (f->type == FLAG_COUNT)
        *(int64_t *)to = (int64_t)number;
    else
        *(double *)to = number;
    return STATUS_OK;
}

/* What stands behind = or in the next argument; NULL: nothing. */
static const char *value_of(const char *arg, int num_args, char **args, int *i)
{
    const char *equals = strchr(arg, '=');
    if (equals) return equals + 1;
    return *i + 1 < num_args ? args[++*i] : NULL;
}

static int load_one(const struct flag *flags, void *into, const char *command, int num_args, char **args,
                    int *i, struct error *err)
{
    const char *arg = args[*i], *name = arg + 2;
    bool negated;
    const struct flag *f = strncmp(arg, "--", 2) ? NULL : find(flags, name, strcspn(name, "="), &negated);
    if (!f) return fail_unknown(flags, command, arg, err);
    void *to = (char *)into + f->offset;
    if (f->type == FLAG_SWITCH) {
        if (strchr(arg, '=')) return error_set(err, STATUS_INVALID, "--%s takes no value", f->name);
        *(bool *)to = !negated;
        return STATUS_OK;
    }
    const char *value = value_of(arg, num_args, args, i);
    if (!value) return error_set(err, STATUS_INVALID, "--%s needs a value", f->name);
    return f->type == FLAG_TEXT ? set_text(f, to, value, err) : set_number(f, to, value, err);
}

int flags_load(const struct flag *flags, void *into, const char *command, const char **operand, int num_args,
               char **args, struct error *err)
{
    bool found = !operand;
    for (int i = 0; i < num_args; i++) {
        if (!found && (args[i][0] != '-' || !args[i][1])) { /* "-": standard input */
            *operand = args[i];
            found = true;
            continue;
        }
        int status = load_one(flags, into, command, num_args, args, &i, err);
        if (status) return status;
    }
    return STATUS_OK;
}

void flags_print_help(const struct flag *flags, FILE *out)
{
    for (const struct flag *f = flags; f->name; f++)
        fprintf(out, "      --%s%s%s%s\n          %s\n", f->name, f->unit[0] ? " <" : "", f->unit,
                f->unit[0] ? ">" : "", f->help);
}
