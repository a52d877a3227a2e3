#include "server/http_log.h"

#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "server/loop_watch.h"
#include "server/target.h"

enum { INTERVAL_MS = 1000 };

/* ---- how often ---- */

static bool is_same(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

/* The last of the table stands for all that do not fit. */
static struct http_log_kind *find_kind(struct http_log *log, int http_status, const char *code)
{
    for (int i = 0; i < log->num_kinds; i++)
        if (log->kinds[i].http_status == http_status && is_same(log->kinds[i].code, code))
            return &log->kinds[i];
    if (log->num_kinds == HTTP_LOG_KINDS_MAX) return &log->kinds[HTTP_LOG_KINDS_MAX - 1];
    log->kinds[log->num_kinds] = (struct http_log_kind){.http_status = http_status, .code = code};
    return &log->kinds[log->num_kinds++];
}

static void on_timer(uv_timer_t *timer);

/* Whether one more line may be written; *num_left_out: since the last one. */
static bool may_write(struct http_log *log, int http_status, const char *code, int64_t *num_left_out)
{
    *num_left_out = 0;
    if (!log->open) return true;
    struct http_log_kind *kind = find_kind(log, http_status, code);
    uint64_t now_ms = uv_now(log->timer.loop);
    if (kind->written_ms > 0 && now_ms - kind->written_ms < INTERVAL_MS) {
        kind->num_left_out++;
        if (!uv_is_active((uv_handle_t *)&log->timer)) uv_timer_start(&log->timer, on_timer, INTERVAL_MS, 0);
        return false;
    }
    *num_left_out = kind->num_left_out;
    kind->num_left_out = 0;
    kind->written_ms = max_of(now_ms, 1u);
    return true;
}

/* ---- lines ---- */

/* NULL leaves the field out. */
static struct log_field left_out_field(const int64_t *num_left_out)
{
    if (*num_left_out == 0) return (struct log_field){"left_out", LOG_FIELD_TEXT, .text = NULL};
    return (struct log_field){"left_out", LOG_FIELD_INT, .integer = *num_left_out};
}

/* A kind that has stopped: nothing else would say how many there were. */
static void write_left_out(struct http_log_kind *kind)
{
    struct log_field fields[] = {
        {"status", LOG_FIELD_INT, .integer = kind->http_status},
        {"code", LOG_FIELD_TEXT, .text = kind->code},
        left_out_field(&kind->num_left_out),
    };
    bool cut_off = kind->http_status == 0;
    log_fields(LOG_INFO, cut_off ? "slow clients cut off" : "requests refused", fields + cut_off,
               (int)array_length(fields) - cut_off);
    kind->num_left_out = 0;
}

static void on_timer(uv_timer_t *timer)
{
    loop_watch_enter("the log of refusals");
    struct http_log *log = timer->data;
    uint64_t now_ms = uv_now(timer->loop);
    bool again = false;
    for (int i = 0; i < log->num_kinds; i++) {
        struct http_log_kind *kind = &log->kinds[i];
        if (kind->num_left_out == 0) continue;
        again = true;
        if (now_ms - kind->written_ms < INTERVAL_MS) continue;
        write_left_out(kind);
        kind->written_ms = now_ms;
    }
    if (again) uv_timer_start(timer, on_timer, INTERVAL_MS, 0);
}

void http_log_init(struct http_log *log, uv_loop_t *loop)
{
    uv_timer_init(loop, &log->timer);
    log->timer.data = log;
    log->open = true;
}

void http_log_close(struct http_log *log)
{
    if (!log->open) return;
    log->open = false;
    uv_close((uv_handle_t *)&log->timer, NULL);
    for (int i = 0; i < log->num_kinds; i++)
        if (log->kinds[i].num_left_out > 0) write_left_out(&log->kinds[i]);
}

void http_log_refusal(struct http_log *log, const struct http_log_refusal *r)
{
    static const char *const methods[] = {"GET",    "HEAD", "POST",  "OPTIONS",
                                          "DELETE", "PUT",  "PATCH", "TRACE"};
    int64_t num_left_out;
    if (!may_write(log, r->http_status, r->code, &num_left_out)) return;
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
        left_out_field(&num_left_out),
    };
    log_fields(r->http_status == 500 ? LOG_WARNING : LOG_INFO, "request refused", fields,
               array_length(fields));
}

void http_log_cut_off(struct http_log *log, const char *request_id, const char *client, const char *reason,
                      size_t unsent_bytes)
{
    int64_t num_left_out;
    if (!may_write(log, 0, NULL, &num_left_out)) return;
    struct log_field fields[] = {
        {"request_id", LOG_FIELD_TEXT, .text = request_id},
        {"client", LOG_FIELD_TEXT, .text = client},
        {"reason", LOG_FIELD_TEXT, .text = reason},
        {"unsent_bytes", LOG_FIELD_INT, .integer = (int64_t)unsent_bytes},
        left_out_field(&num_left_out),
    };
    log_fields(LOG_INFO, "slow client cut off", fields, array_length(fields));
}
