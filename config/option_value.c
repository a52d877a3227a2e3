/* option_value.c - from the text of a value to a field of the config, or to a sentence. */
#include "config/option_table.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"

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
    uint64_t factor = 1;
    if (end == value || errno) return false;
    if (with_suffix ? !parse_bytes_suffix(end, &factor) : *end != '\0') return false;
    return !__builtin_mul_overflow(number, (int64_t)factor, out);
}

/* A unit in the plural is what the number counts; port, ordinal and number only stand for it in the help. */
static int refuse_whole_number(const struct option *o, const char *value, const char *source,
                               struct error *err)
{
    size_t n = strlen(o->unit);
    bool counts = strchr(o->unit, '/') || (n > 0 && o->unit[n - 1] == 's');
    if (o->min_int == o->max_int)
        return error_set(err, STATUS_INVALID, "%s: %s must be %lld, got \"%s\"", source, o->name,
                         (long long)o->min_int, value);
    return error_set(err, STATUS_INVALID, "%s: %s must be a whole number%s%s from %lld to %lld%s, got \"%s\"",
                     source, o->name, counts ? " of " : "", counts ? o->unit : "", (long long)o->min_int,
                     (long long)o->max_int, o->type == OPTION_BYTES ? " (or like 64K, 64MiB, 4G)" : "",
                     value);
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
        *(double *)option_field(c, o) = number;
        return STATUS_OK;
    }
    int64_t number;
    if (!parse_whole_number(value, o->type == OPTION_BYTES, &number) || number < o->min_int ||
        number > o->max_int)
        return refuse_whole_number(o, value, source, err);
    if (o->type == OPTION_BYTES)
        *(uint64_t *)option_field(c, o) = (uint64_t)number;
    else
        *(int64_t *)option_field(c, o) = number;
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
    *(bool *)option_field(c, o) = on;
    return STATUS_OK;
}

/* What reaches logs, metrics and answers, or names a file, is UTF-8 without control characters. */
static bool is_printable(const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + n;
    for (int num_bytes; p < end; p += num_bytes) {
        uint32_t c = utf8_decode(p, end, &num_bytes);
        if (c < 0x20 || (c >= 0x7F && c < 0xA0) || (c == 0xFFFD && num_bytes == 1)) return false;
    }
    return true;
}

static int check_text(const char *name, const char *value, size_t n, const char *source, struct error *err)
{
    if (n == 0)
        return error_set(err, STATUS_INVALID, "%s: %s is empty; leave it out or give it a value", source,
                         name);
    if (!is_printable(value, n))
        return error_set(err, STATUS_INVALID, "%s: %s must be UTF-8 without control characters", source,
                         name);
    return STATUS_OK;
}

static int replace_text(char **field, const char *value)
{
    char *copy = strdup(value);
    if (!copy) return STATUS_NO_MEMORY;
    free(*field);
    *field = copy;
    return STATUS_OK;
}

int option_set_text(char **field, const char *name, const char *value, const char *source, struct error *err)
{
    int status = check_text(name, value, strlen(value), source, err);
    if (status) return status;
    return replace_text(field, value) ? error_set(err, STATUS_NO_MEMORY, "out of memory") : STATUS_OK;
}

/* Entries are separated by commas, whatever the source. */
static int append_entries(struct text_list *list, const char *name, const char *value, const char *source,
                          struct error *err)
{
    for (const char *at = value;; at++) {
        size_t n = strcspn(at, ",");
        int status = check_text(name, at, n, source, err);
        if (status) return status;
        if (at[0] == ' ' || at[n - 1] == ' ')
            return error_set(err, STATUS_INVALID, "%s: an entry of %s begins or ends with a blank", source,
                             name);
        if (text_list_append_from(list, at, n, source))
            return error_set(err, STATUS_NO_MEMORY, "out of memory");
        at += n;
        if (!*at) return STATUS_OK;
    }
}

int option_set(struct config *c, const struct option *o, const char *value, const char *source,
               struct error *err)
{
    switch (o->type) {
    case OPTION_TEXT:
        if (!is_allowed_choice(o->unit, value))
            return error_set(err, STATUS_INVALID, "%s: %s must be one of %s, got \"%s\"", source, o->name,
                             o->unit, value);
        return option_set_text(option_field(c, o), o->name, value, source, err);
    case OPTION_LIST:
        return append_entries(option_field(c, o), o->name, value, source, err);
    case OPTION_FLAG:
        return set_flag(c, o, value, source, err);
    default:
        return set_number(c, o, value, source, err);
    }
}
