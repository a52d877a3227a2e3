#include "server/response.h"

#include <time.h>

#include "base/check.h"

const char *response_reason(int http_status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {{200, "OK"},
                   {204, "No Content"},
                   {400, "Bad Request"},
                   {401, "Unauthorized"},
                   {403, "Forbidden"},
                   {404, "Not Found"},
                   {405, "Method Not Allowed"},
                   {408, "Request Timeout"},
                   {409, "Conflict"},
                   {412, "Precondition Failed"},
                   {413, "Content Too Large"},
                   {414, "URI Too Long"},
                   {415, "Unsupported Media Type"},
                   {417, "Expectation Failed"},
                   {421, "Misdirected Request"},
                   {422, "Unprocessable Content"},
                   {429, "Too Many Requests"},
                   {431, "Request Header Fields Too Large"},
                   {500, "Internal Server Error"},
                   {501, "Not Implemented"},
                   {503, "Service Unavailable"},
                   {504, "Gateway Timeout"},
                   {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < array_length(reasons); i++)
        if (reasons[i].status == http_status) return reasons[i].reason;
    return "Unknown";
}

/* Sun, 06 Nov 1994 08:49:37 GMT */
static void append_date(struct buffer *out, int64_t unix_seconds)
{
    static const char days[][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char months[][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t seconds = (time_t)unix_seconds;
    struct tm tm;
    gmtime_r(&seconds, &tm);
    buffer_printf(out, "Date: %s, %02d %s %04d %02d:%02d:%02d GMT\r\n", days[tm.tm_wday], tm.tm_mday,
                  months[tm.tm_mon], tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
}

void response_append_head(struct buffer *out, const struct response_head *h)
{
    buffer_printf(out, "HTTP/1.1 %d %s\r\n", h->http_status, response_reason(h->http_status));
    if (h->content_type) buffer_printf(out, "Content-Type: %s\r\n", h->content_type);
    if (h->chunked)
        buffer_append_text(out, "Transfer-Encoding: chunked\r\n");
    else if (!h->until_close && h->http_status != 204)
        buffer_printf(out, "Content-Length: %zu\r\n", h->content_bytes);
    append_date(out, h->unix_seconds);
    buffer_printf(out, "x-request-id: %s\r\n", h->request_id);
    if (h->allow_origin) buffer_printf(out, "Access-Control-Allow-Origin: %s\r\n", h->allow_origin);
    if (h->varies_by_origin) buffer_append_text(out, "Vary: Origin\r\n");
    if (h->extra) buffer_append_text(out, h->extra);
    if (h->close)
        buffer_append_text(out, "Connection: close\r\n");
    else if (h->keep_alive_1_0)
        buffer_append_text(out, "Connection: keep-alive\r\n");
    buffer_append_text(out, "\r\n");
}

static void append_json_or_null(struct buffer *out, const char *text)
{
    if (text)
        buffer_append_json_text(out, text);
    else
        buffer_append_text(out, "null");
}

void response_append_error(struct buffer *out, const struct failure *f)
{
    buffer_append_text(out, "{\"error\":{\"message\":");
    append_json_or_null(out, f->message);
    buffer_append_text(out, ",\"type\":");
    append_json_or_null(out, f->type);
    buffer_append_text(out, ",\"param\":");
    append_json_or_null(out, f->param);
    buffer_append_text(out, ",\"code\":");
    append_json_or_null(out, f->code);
    buffer_append_text(out, "}}");
}

bool response_error_repeats(int http_status)
{
    if (http_status == 500 || http_status == 501 || http_status == 505) return true;
    return http_status < 500 && http_status != 408 && http_status != 409 && http_status != 429;
}

void response_append_error_headers(struct buffer *out, int http_status, int retry_after_seconds)
{
    if (http_status == 429 || http_status == 503)
        buffer_printf(out, "Retry-After: %d\r\n", max_of(1, min_of(retry_after_seconds, 60)));
    if (http_status == 401) buffer_append_text(out, "WWW-Authenticate: Bearer\r\n");
    if (response_error_repeats(http_status)) buffer_append_text(out, "x-should-retry: false\r\n");
}
