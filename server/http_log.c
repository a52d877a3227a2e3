#include "server/http_log.h"

#include "base/check.h"
#include "base/log.h"
#include "server/target.h"

void http_log_refusal(const struct http_log_refusal *r)
{
    static const char *const methods[] = {"GET",    "HEAD", "POST",  "OPTIONS",
                                          "DELETE", "PUT",  "PATCH", "TRACE"};
    char path[TARGET_SHORT_BYTES];
    if (r->x) target_shorten(r->x->path, path);
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
