#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *status_text(int status)
{
    switch (status) {
#define X(name, value, text)                                                                                 \
    case value:                                                                                              \
        return text;
        STATUS_LIST(X)
#undef X
    }
    return "unknown status";
}

/* Cuts a partial UTF-8 sequence off the end of a string that snprintf truncated. */
static void trim_partial_utf8(char *text)
{
    size_t n = strlen(text), start = n;
    while (start > 0 && ((unsigned char)text[start - 1] & 0xC0) == 0x80) start--;
    if (start == 0) return;
    unsigned char lead = (unsigned char)text[start - 1];
    size_t want = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    if (lead >= 0x80 && n - (start - 1) < want) text[start - 1] = '\0';
}

int error_set(struct error *err, int status, const char *format, ...)
{
    if (!err) return status;
    err->status = status;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    if (n >= (int)sizeof err->text) trim_partial_utf8(err->text);
    return status;
}
