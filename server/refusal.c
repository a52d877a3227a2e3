#include "server/refusal.h"

#include <stdarg.h>
#include <stdio.h>

int refuse(struct refusal *r, int http_status, const char *format, ...)
{
    r->http_status = http_status;
    va_list args;
    va_start(args, format);
    vsnprintf(r->message, sizeof r->message, format, args);
    va_end(args);
    return -1;
}
