#include "server/http_log.h"

#include <stdio.h>

#include "base/check.h"
#include "base/log.h"

enum { PATH_BYTES_MAX = 128 };

/* The path, cut at a character's edge. */
static void shorten_path(const char *path, char text[PATH_BYTES_MAX])
{
    int n = snprintf(text, PATH_BYTES_MAX, "%s", path);
    if (n < PATH_BYTES_MAX) return;
    n = PATH_BYTES_MAX - 1;
    while (n > 0 && ((unsigned char)path[n] & 0xc0) == 0x80) n--;
    text[n] = '\0';
}

void http_log_refusal(const struct http_log_refusal *r)
{
    static const char *const methods[] = {"GET", "HEAD", "POST", "OPTIONS", "DELETE"};
    char path[PATH_BYTES_MAX];
    if (r->x) shorten_path(r->x->path, path);
    struct log_field fields[] = {
        {"request_id", LOG_FIELD_TEXT, .text = r->request_id},
        {"client", LOG_FIELD_TEXT, .text = r->client},
        {"method", LOG_FIELD_TEXT, .text = r->x ? methods[r->x->method] : NULL},
        {"path", LOG_FIELD_TEXT, .text = r->x ? path : NULL},
        {"status", LOG_FIELD_INT, .integer = r->http_status},
        {"code", LOG_FIELD_TEXT, .text = r->code},
        {"param", LOG_FIELD_TEXT, .text = r->param},
        {"reason", LOG_FIELD_TEXT, .text = r->reason},
    };
    log_fields(r->http_status == 500 ? LOG_WARNING : LOG_INFO, "request refused", fields,
               array_length(fields));
}
