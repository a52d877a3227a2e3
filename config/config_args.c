#include "config/config_args.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static int append(struct text_list *args, const char *format, ...)
{
    char *text;
    va_list values;
    va_start(values, format);
    int n = vasprintf(&text, format, values);
    va_end(values);
    if (n < 0) return STATUS_NO_MEMORY;
    int status = text_list_append(args, text, (size_t)n);
    free(text);
    return status;
}

static int add_TEXT(struct text_list *args, const char *name, const char *value, const char *usual)
{
    if (!value || (usual && !strcmp(value, usual))) return 0;
    return append(args, "--%s=%s", name, value);
}

static int add_LIST(struct text_list *args, const char *name, struct text_list value, struct text_list usual)
{
    int status = 0;
    (void)usual; /* empty */
    for (int i = 0; i < value.num_items && !status; i++)
        status = append(args, "--%s=%s", name, value.items[i]);
    return status;
}

static int add_INT(struct text_list *args, const char *name, int64_t value, int64_t usual)
{
    return value == usual ? 0 : append(args, "--%s=%" PRId64, name, value);
}

static int add_BYTES(struct text_list *args, const char *name, uint64_t value, uint64_t usual)
{
    return value == usual ? 0 : append(args, "--%s=%" PRIu64, name, value);
}

static int add_REAL(struct text_list *args, const char *name, double value, double usual)
{
    return value == usual ? 0 : append(args, "--%s=%.17g", name, value);
}

static int add_FLAG(struct text_list *args, const char *name, bool value, bool usual)
{
    return value == usual ? 0 : append(args, "--%s%s", value ? "" : "no-", name);
}

static bool is_secret(const char *name)
{
    return !strncmp(name, "api-key", 7);
}

static int append_options(const struct config *c, const struct config *usual, struct text_list *args)
{
    int status = 0;
#define SECTION(title)
#define X(type, field, name, def, min, max, unit, help)                                                      \
    if (!status && !is_secret(name)) status = add_##type(args, name, c->field, usual->field);
    OPTION_TABLE(SECTION, X)
#undef X
#undef SECTION
    return status || !c->model ? status : append(args, "%s", config_model_path(c));
}

int config_append_args(const struct config *c, struct text_list *args, struct error *err)
{
    struct config usual;
    int status = config_init(&usual, err);
    if (status) return status;
    status = append_options(c, &usual, args);
    config_deinit(&usual);
    return status ? error_set(err, status, "out of memory") : 0;
}
