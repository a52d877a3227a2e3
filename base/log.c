#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/log_line.h"
#include "base/log_writer.h"

static _Atomic int least_level = LOG_INFO;

void log_configure(enum log_level least, bool json)
{
    log_set_level(least);
    log_line_choose_format(json);
}

void log_set_level(enum log_level least)
{
    atomic_store(&least_level, least);
}

enum log_level log_level_of(const char *name)
{
    static const char *const names[] = {"debug", "info", "warning", "error"};
    for (int i = 0; i < 4; i++)
        if (!strcmp(name, names[i])) return (enum log_level)i;
    return LOG_INFO;
}

static void write_line(struct log_line *line)
{
    log_line_end(line);
    log_writer_put(line->bytes, line->num_bytes);
}

void log_write(enum log_level level, const char *format, ...)
{
    if ((int)level < atomic_load(&least_level)) return;
    char message[LOG_LINE_BYTES_MAX]; /* one that is cut here does not fit into the line either */
    struct log_line line;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(message, sizeof message, format, args);
    va_end(args);
    log_line_begin(&line, level, message, min_of((size_t)max_of(n, 0), sizeof message - 1));
    write_line(&line);
}

void log_fields(enum log_level level, const char *message, const struct log_field *fields, int num_fields)
{
    if ((int)level < atomic_load(&least_level)) return;
    struct log_line line;
    log_line_begin(&line, level, message, strlen(message));
    for (int i = 0; i < num_fields; i++) log_line_add(&line, &fields[i]);
    write_line(&line);
}
