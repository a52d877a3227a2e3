/* log.h - one line an event, to stderr: text for a person, or JSON lines with --log-format json.
 *
 * Lines of different threads never mix; how they reach stderr is log_writer.h's, what they may hold
 * log_line.h's. Prompts and generated text never go into a log. Thread: any, after log_configure. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR };

void log_configure(enum log_level least, bool json);
void log_set_level(enum log_level least);
/* "debug", "info", "warning", "error"; LOG_INFO of anything else. */
enum log_level log_level_of(const char *name);

/* Free text, one sentence. */
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)
#define log_warning(...) log_write(LOG_WARNING, __VA_ARGS__)
#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)

/* A line of named fields. Text form: `msg key=value ...`; JSON form: an object. */
enum log_field_type { LOG_FIELD_TEXT, LOG_FIELD_INT, LOG_FIELD_REAL };

struct log_field {
    const char *key;
    enum log_field_type type;
    union {
        const char *text; /* NULL: the field is left out */
        int64_t integer;
        double real;
    };
};

void log_fields(enum log_level level, const char *message, const struct log_field *fields, int num_fields);

#endif
