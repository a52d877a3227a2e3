#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"

enum { LINE_BYTES_MAX = 16384 };

static const char *const level_names[] = {"debug", "info", "warning", "error"};
static _Atomic int least_level = LOG_INFO;
static _Atomic bool json_lines;

void log_configure(enum log_level least, bool json)
{
    atomic_store(&least_level, least);
    atomic_store(&json_lines, json);
}

static void line_begin(struct buffer *line, enum log_level level, const char *message, size_t n)
{
    char when[32];
    clock_format_wall(clock_wall_ns(), when);
    buffer_init(line, LINE_BYTES_MAX);
    if (atomic_load(&json_lines)) {
        buffer_printf(line, "{\"ts\":\"%s\",\"level\":\"%s\",\"msg\":", when, level_names[level]);
        buffer_append_json(line, message, n);
    } else {
        buffer_printf(line, "%s %s ", when, level_names[level]);
        buffer_append(line, message, n);
    }
}

static void line_end(struct buffer *line)
{
    buffer_append_text(line, atomic_load(&json_lines) ? "}\n" : "\n");
    if (!buffer_failed(line)) {
        ssize_t ignored = write(STDERR_FILENO, line->data, line->num_bytes);
        (void)ignored; /* a log that cannot be written must not stop the server */
    }
    buffer_deinit(line);
}

void log_write(enum log_level level, const char *format, ...)
{
    if ((int)level < atomic_load(&least_level)) return;
    struct buffer message, line;
    buffer_init(&message, LINE_BYTES_MAX / 2);
    va_list args;
    va_start(args, format);
    buffer_vprintf(&message, format, args);
    va_end(args);
    line_begin(&line, level, message.data ? message.data : "", message.num_bytes);
    line_end(&line);
    buffer_deinit(&message);
}

static void append_value(struct buffer *line, const struct log_field *f, bool json)
{
    switch (f->type) {
    case LOG_FIELD_TEXT:
        if (json || strpbrk(f->text, " \"\\=\n\r\t") || !f->text[0])
            buffer_append_json(line, f->text, strlen(f->text));
        else
            buffer_append_text(line, f->text);
        break;
    case LOG_FIELD_INT:
        buffer_printf(line, "%lld", (long long)f->integer);
        break;
    case LOG_FIELD_REAL:
        buffer_printf(line, "%.3f", f->real);
        break;
    }
}

void log_fields(enum log_level level, const char *message, const struct log_field *fields, int num_fields)
{
    if ((int)level < atomic_load(&least_level)) return;
    bool json = atomic_load(&json_lines);
    struct buffer line;
    line_begin(&line, level, message, strlen(message));
    for (int i = 0; i < num_fields; i++) {
        const struct log_field *f = &fields[i];
        if (f->type == LOG_FIELD_TEXT && !f->text) continue;
        buffer_printf(&line, json ? ",\"%s\":" : " %s=", f->key);
        append_value(&line, f, json);
    }
    line_end(&line);
}
