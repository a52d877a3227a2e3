/* config_file.c - drives libyaml's event parser: a mapping of scalars and of sequences of scalars. */
#include "config/config_file.h"

#include <errno.h>
#include <string.h>
#include <yaml.h>

#include "base/check.h"
#include "config/option_table.h"

enum { KEY_BYTES_MAX = 64, SOURCE_BYTES_MAX = 300 };

struct reader {
    struct config *config;
    const char *path;
    bool in_mapping, in_sequence, sequence_is_empty, done;
    char key[KEY_BYTES_MAX];         /* empty: the next scalar is a key */
    size_t line_of[NUM_OPTIONS + 1]; /* where an option stands, and the model; 0: nowhere yet */
};

static int fail(const struct reader *r, const yaml_event_t *event, struct error *err, const char *what)
{
    return error_set(err, STATUS_INVALID, "%s:%zu: %s; a flat list of `name: value` is expected", r->path,
                     event->start_mark.line + 1, what);
}

/* What YAML takes for no value at all; in quotes it is a text. */
static bool is_null(const yaml_event_t *event)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    if (event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return false;
    for (size_t i = 0; i < array_length(nulls); i++)
        if (!strcmp((const char *)event->data.scalar.value, nulls[i])) return true;
    return false;
}

/* Of two values one would be lost. A name that there is not is refused with its value. */
static int note_line(struct reader *r, const yaml_event_t *event, struct error *err)
{
    const struct option *o = option_find(r->key, strlen(r->key));
    size_t *line = &r->line_of[o ? o - options : NUM_OPTIONS], here = event->start_mark.line + 1;
    if (!o && strcmp(r->key, "model") != 0) return STATUS_OK;
    if (*line > 0)
        return error_set(err, STATUS_INVALID, "%s:%zu: %s stands in line %zu, too", r->path, here, r->key,
                         *line);
    *line = here;
    return STATUS_OK;
}

static int take_key(struct reader *r, const yaml_event_t *event, struct error *err)
{
    const char *text = (const char *)event->data.scalar.value;
    size_t n = event->data.scalar.length;
    if (n == 0 || n >= sizeof r->key) return fail(r, event, err, "a name that is empty or too long");
    if (memchr(text, '\0', n)) return fail(r, event, err, "a NUL character");
    memcpy(r->key, text, n + 1);
    for (char *p = r->key; *p; p++)
        if (*p == '_') *p = '-';
    return note_line(r, event, err);
}

static int take_scalar(struct reader *r, const yaml_event_t *event, struct error *err)
{
    const char *text = (const char *)event->data.scalar.value;
    size_t n = event->data.scalar.length;
    if (!r->in_mapping) return fail(r, event, err, "a value without a name");
    if (!r->key[0]) return take_key(r, event, err);
    if (memchr(text, '\0', n)) return fail(r, event, err, "a NUL character");
    if (is_null(event))
        return fail(r, event, err, "a name without a value (leave the line out for the default)");
    char source[SOURCE_BYTES_MAX];
    snprintf(source, sizeof source, "%s:%zu", r->path, event->start_mark.line + 1);
    r->sequence_is_empty = false;
    int status = config_set(r->config, r->key, text, source, err);
    if (!r->in_sequence) r->key[0] = '\0';
    return status;
}

static int take_event(struct reader *r, const yaml_event_t *event, struct error *err)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return take_scalar(r, event, err);
    case YAML_MAPPING_START_EVENT:
        if (r->in_mapping) return fail(r, event, err, "a nested mapping");
        r->in_mapping = true;
        return STATUS_OK;
    case YAML_SEQUENCE_START_EVENT:
        if (!r->key[0] || r->in_sequence) return fail(r, event, err, "a sequence in the wrong place");
        if (!config_is_list(r->key)) return fail(r, event, err, "a sequence where one value belongs");
        r->in_sequence = r->sequence_is_empty = true;
        return STATUS_OK;
    case YAML_SEQUENCE_END_EVENT:
        if (r->sequence_is_empty) return fail(r, event, err, "an empty sequence");
        r->in_sequence = false;
        r->key[0] = '\0';
        return STATUS_OK;
    case YAML_ALIAS_EVENT:
        return fail(r, event, err, "an alias");
    case YAML_STREAM_END_EVENT:
        r->done = true;
        return STATUS_OK;
    default:
        return STATUS_OK;
    }
}

static int read_events(struct reader *r, yaml_parser_t *parser, struct error *err)
{
    while (!r->done) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event))
            return error_set(err, STATUS_INVALID, "%s:%zu: %s", r->path, parser->problem_mark.line + 1,
                             parser->problem ? parser->problem : "not YAML");
        int status = take_event(r, &event, err);
        yaml_event_delete(&event);
        if (status) return status;
    }
    return STATUS_OK;
}

int config_file_load(struct config *c, const char *path, struct error *err)
{
    FILE *file = fopen(path, "rb");
    if (!file) return error_set(err, STATUS_IO, "--config %s: %s", path, strerror(errno));
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser)) {
        fclose(file);
        return error_set(err, STATUS_NO_MEMORY, "out of memory");
    }
    yaml_parser_set_input_file(&parser, file);
    struct reader r = {.config = c, .path = path};
    int first = fgetc(file), status = STATUS_OK; /* the parser does not say why it cannot read, of a folder */
    if (first == EOF && ferror(file))
        status = error_set(err, STATUS_IO, "--config %s: %s", path, strerror(errno));
    else if (first != EOF)
        (void)ungetc(first, file);
    if (!status) status = read_events(&r, &parser, err);
    yaml_parser_delete(&parser);
    fclose(file);
    return status;
}
