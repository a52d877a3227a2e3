/* Bytes of a connection through the gate and llhttp, as connection_input.c drives them. What is read, and
 * what is refused with which status, must not depend on how the bytes arrive; and an accepted head must also
 * pass a second, naive reading. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "server/http_reader.h"
#include "server/http_request.h"

enum { HEADERS_MAX = 16, BODY_BYTES_MAX = 4096, RECORD_BYTES_MAX = 1 << 20, WHOLE = 1 << 30 };

static const struct gate_limits limits = {.max_header_bytes = 1024,
                                          .max_url_bytes = 128,
                                          .max_headers = HEADERS_MAX,
                                          .max_body_bytes = BODY_BYTES_MAX};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* One reading of a connection. */
struct reading {
    struct gate_scan scan;
    struct http_reader reader;
    struct gate_header headers[HEADERS_MAX];
    struct buffer body;
    bool in_body;
    struct buffer record; /* everything that was read, in order */
};

static size_t count_lines_with(const char *head, size_t n, const char *name)
{
    size_t count = 0, name_bytes = strlen(name);
    const char *end = head + n;
    for (const char *line = head; line < end;
         line = (const char *)memchr(line, '\n', (size_t)(end - line)) + 1)
        if ((size_t)(end - line) > name_bytes && !strncasecmp(line, name, name_bytes)) count++;
    return count;
}

/* What must hold for every request that is served. */
static void check_head(const char *head, size_t n, const struct gate_head *checked)
{
    assert_always(n >= 4 && !memcmp(head + n - 4, "\r\n\r\n", 4));
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)head[i];
        assert_always(c >= ' ' || c == '\t' || c == '\r' || c == '\n');
        assert_always((c == '\r') == (i + 1 < n && head[i + 1] == '\n'));
    }
    size_t num_lengths = count_lines_with(head, n, "content-length:");
    size_t num_encodings = count_lines_with(head, n, "transfer-encoding:");
    assert_always(count_lines_with(head, n, "host:") <= 1 && num_lengths <= 1 && num_encodings <= 1);
    assert_always(num_lengths + num_encodings <= 1);
    if (checked->version_minor == 1) assert_always(count_lines_with(head, n, "host:") == 1);
    assert_always(checked->chunked == (num_encodings == 1));
    assert_always(checked->content_length <= limits.max_body_bytes && checked->num_headers <= HEADERS_MAX);
}

static void record_request(struct reading *r, const struct gate_head *head)
{
    struct http_request *request;
    struct refusal why = {0};
    buffer_printf(&r->record, "%d %.*s 1.%d keep %d body %llu%s headers %d\n", head->method,
                  (int)head->target_bytes, head->target, head->version_minor, head->keep_alive,
                  (unsigned long long)head->content_length, head->chunked ? " chunked" : "",
                  head->num_headers);
    if (http_request_create(head, NULL, NULL, 1, 0, 1 << 20, &request, &why)) {
        assert_always(why.http_status >= 400 && why.message[0]);
        buffer_printf(&r->record, "refused %d\n", why.http_status);
        return;
    }
    buffer_printf(&r->record, "path %s query %s id %s\n", request->x.path, request->x.query,
                  request->x.request_id);
    http_request_destroy(request);
}

static void end_request(struct reading *r)
{
    buffer_append(&r->record, "body ", 5);
    buffer_append(&r->record, r->body.num_bytes ? r->body.data : "", r->body.num_bytes);
    buffer_append(&r->record, "\n", 1);
    assert_always(r->body.num_bytes <= limits.max_body_bytes);
    buffer_clear(&r->body);
    r->in_body = false;
    memset(&r->scan, 0, sizeof r->scan);
}

static int64_t read_head(struct reading *r, const char *bytes, size_t n, struct refusal *why)
{
    struct gate_head head = {.headers = r->headers};
    int64_t size = gate_scan(&r->scan, bytes, n, &limits, why);
    if (size <= 0) return size;
    const char *start = bytes + r->scan.head_start;
    size_t head_bytes = (size_t)size - r->scan.head_start;
    if (gate_check(start, head_bytes, &limits, &head, why) ||
        http_reader_begin(&r->reader, start, head_bytes, &head, why))
        return -1;
    check_head(start, head_bytes, &head);
    record_request(r, &head);
    r->in_body = true;
    if (http_reader_done(&r->reader)) end_request(r);
    return size;
}

static int64_t read_body(struct reading *r, const char *bytes, size_t n, struct refusal *why)
{
    int64_t used = http_reader_feed(&r->reader, bytes, n, limits.max_body_bytes, &r->body, why);
    if (used >= 0 && http_reader_done(&r->reader)) end_request(r);
    return used;
}

static bool consume(struct reading *r, const char *bytes, size_t n, size_t *used)
{
    struct refusal why = {0};
    while (*used < n) {
        int64_t step = r->in_body ? read_body(r, bytes + *used, n - *used, &why)
                                  : read_head(r, bytes + *used, n - *used, &why);
        if (step < 0) {
            assert_always(why.http_status >= 400 && why.http_status < 600 && why.message[0]);
            /* of a body the gate reads ahead of llhttp, and which of two faults is found first depends on how
             * far */
            buffer_printf(&r->record, "refused %d\n", r->in_body ? 0 : why.http_status);
            return false;
        }
        *used += (size_t)step;
        if (step == 0) return true;
    }
    return true;
}

/* bytes arrive in pieces of that size. */
static struct buffer read_all(const char *bytes, size_t n, size_t piece)
{
    struct reading r = {0};
    buffer_init(&r.body, BODY_BYTES_MAX);
    buffer_init(&r.record, RECORD_BYTES_MAX);
    size_t used = 0, arrived = 0;
    do {
        arrived = min_of(n, arrived + piece);
    } while (consume(&r, bytes, arrived, &used) && arrived < n);
    buffer_deinit(&r.body);
    return r.record;
}

static void assert_equal(const struct buffer *a, const struct buffer *b)
{
    bool equal =
        a->num_bytes == b->num_bytes && (a->num_bytes == 0 || !memcmp(a->data, b->data, a->num_bytes));
    if (!equal)
        fprintf(stderr, "at once:\n%s\nin pieces:\n%s\n", a->data ? a->data : "", b->data ? b->data : "");
    assert_always(equal);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t pieces[] = {1, 3, 64};
    struct buffer whole = read_all((const char *)data, size, WHOLE);
    for (size_t i = 0; i < array_length(pieces); i++) {
        struct buffer other = read_all((const char *)data, size, pieces[i]);
        assert_equal(&whole, &other);
        buffer_deinit(&other);
    }
    buffer_deinit(&whole);
    return 0;
}
