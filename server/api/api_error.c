#include "server/api/api_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "server/response.h"

/* A text that snprintf may have cut inside a character loses the rest of that character. */
static void trim_partial_character(char *text)
{
    size_t n = strlen(text), begin = n;
    while (begin > 0 && ((unsigned char)text[begin - 1] & 0xC0) == 0x80) begin--;
    if (begin == 0) return;
    unsigned char lead = (unsigned char)text[begin - 1];
    size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (n - (begin - 1) < length) text[begin - 1] = '\0';
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
    trim_partial_character(e->param);
    trim_partial_character(e->text);
    return STATUS_INVALID;
}

void api_error_append(struct buffer *out, const struct api_error *e)
{
    response_append_error(out, e->type, e->code, e->param[0] ? e->param : NULL, e->text);
}
