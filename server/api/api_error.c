#include "server/api/api_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* Quoting the client, "%.60s" may have cut a character anywhere in the text: what is left of it goes. */
static void drop_partial_characters(char *text)
{
    char *to = text;
    const unsigned char *end = (const unsigned char *)text + strlen(text);
    for (const char *from = text; *from;) {
        size_t length = (size_t)utf8_length((const unsigned char *)from, end);
        memmove(to, from, length);
        to += length;
        from += length > 0 ? length : 1;
    }
    *to = '\0';
}

int api_error_set(struct api_error *e, int http_status, const char *type, const char *code, const char *param,
                  const char *format, ...)
{
    *e = (struct api_error){.http_status = http_status, .type = type, .code = code};
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    va_list args;
    va_start(args, format);
    vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    drop_partial_characters(e->param);
    drop_partial_characters(e->text);
    return STATUS_INVALID;
}

struct failure api_error_failure(const struct api_error *e, const char *request_id)
{
    return (struct failure){.http_status = e->http_status,
                            .type = e->type,
                            .code = e->code,
                            .param = e->param[0] ? e->param : NULL,
                            .message = e->text,
                            .request_id = request_id};
}
