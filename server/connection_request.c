/* connection_request.c - from a checked head to the endpoint, and refusals of what never gets there. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "server/api/tenant.h"
#include "server/connection.h"
#include "server/dispatch.h"
#include "server/http_log.h"
#include "server/http_metrics.h"
#include "server/loop_watch.h"
#include "server/response.h"
#include "server/server.h"

enum {
    CHECK_ON_LOOP_BYTES = 256 * 1024, /* a larger body is checked by a worker: no callback may take 5 ms */
    ARENA_EXTRA_BYTES = 1 << 20,
};

/* ---- refusing ---- */

static const char *error_type_of(int http_status)
{
    if (http_status == 503) return "service_unavailable_error";
    return http_status == 429 ? "rate_limit_error" : "invalid_request_error";
}

/* The shape of errors of what a head asks for, as far as it was read. */
static append_failure *shape_for(const struct listener *l, const struct gate_head *head)
{
    char path[128];
    size_t n = 0;
    while (n < head->target_bytes && head->target[n] != '?') n++;
    if (n >= sizeof path) return response_append_error;
    memcpy(path, head->target, n);
    path[n] = '\0';
    return router_error_shape(l->routes, path);
}

/* Answers a request that never became one. */
static void refuse_unread(struct connection *c, append_failure *append_error, const struct refusal *why)
{
    struct listener *l = c->listener;
    char request_id[64], client[IP_ADDRESS_CHARS];
    http_request_make_id(l->request_seed, ++l->num_requests, request_id);
    ip_address_write(&c->address, client);
    if (l->config->log_requests)
        http_log_refusal(&l->log, &(struct http_log_refusal){.request_id = request_id,
                                                             .client = client,
                                                             .http_status = why->http_status,
                                                             .reason = why->message});
    struct buffer extra, body, text;
    buffer_init(&extra, 1024);
    buffer_init(&body, 4096);
    buffer_init(&text, 8192);
    if (why->http_status == 405) buffer_append_text(&extra, "Allow: GET, HEAD, POST, OPTIONS\r\n");
    response_append_error_headers(&extra, why->http_status, 1);
    if (append_error == messages_append_error) buffer_printf(&extra, "request-id: %s\r\n", request_id);
    append_error(&body, &(struct failure){.http_status = why->http_status,
                                          .type = error_type_of(why->http_status),
                                          .message = why->message,
                                          .request_id = request_id});
    response_append_head(&text,
                         &(struct response_head){.http_status = why->http_status,
                                                 .content_type = "application/json",
                                                 .request_id = request_id,
                                                 .allow_origin = l->browsers.any_origin ? "*" : NULL,
                                                 .varies_by_origin = l->browsers.varies,
                                                 .unix_seconds = (int64_t)(clock_wall_ns() / 1000000000),
                                                 .extra = extra.data,
                                                 .content_bytes = body.num_bytes,
                                                 .close = true});
    if (!c->wants_head) buffer_append(&text, body.data, body.num_bytes);
    http_metrics_count_response(NULL, why->http_status);
    http_metrics_count_error(NULL, why->http_status, NULL, NULL);
    http_metrics_observe_request(NULL, why->http_status, 0);
    c->closes = true;
    connection_set_state(c, CONNECTION_FLUSHING);
    if (buffer_failed(&text) || buffer_failed(&body))
        connection_close(c);
    else
        connection_send_text(c, text.data);
    buffer_deinit(&extra);
    buffer_deinit(&body);
    buffer_deinit(&text);
    if (c->state == CONNECTION_FLUSHING && output_unsent_bytes(&c->output) == 0) connection_begin_next(c);
}

void connection_refuse(struct connection *c, const struct refusal *why)
{
    c->closes = true;
    if (!c->request) {
        refuse_unread(c, response_append_error, why);
        return;
    }
    exchange_error(&c->request->x, why->http_status, error_type_of(why->http_status), NULL, NULL,
                   why->http_status == 503, "%s", why->message);
}

void connection_refuse_head(struct connection *c, const struct gate_head *head, const struct refusal *why)
{
    c->closes = true;
    refuse_unread(c, head->target ? shape_for(c->listener, head) : response_append_error, why);
}

/* ---- requests ---- */

static void run_request(struct connection *c)
{
    connection_set_state(c, CONNECTION_RESPONDING);
    dispatch_run(c->request);
    if (c->half_closed) connection_probe(c);
}

static void refuse_body(struct connection *c, const struct refusal *why)
{
    exchange_error(&c->request->x, why->http_status, error_type_of(why->http_status), NULL, NULL, 1, "%s",
                   why->message);
}

/* Large bodies are rare and connections many: the worker's part is not in each of them. */
struct body_check {
    struct pool_work work; /* first */
    struct connection *connection;
    int status;
    struct refusal why;
};

static void check_body(struct pool_work *work)
{
    struct body_check *check = (struct body_check *)work;
    struct connection *c = check->connection;
    check->status = dispatch_check_body(c->listener, c->request, &c->body, &check->why);
}

static bool is_wanted(struct pool_work *work)
{
    return ((struct body_check *)work)->connection->state == CONNECTION_CHECKING;
}

static void end_check(struct pool_work *work, bool has_run)
{
    loop_watch_enter("a checked body");
    struct body_check *check = (struct body_check *)work;
    struct connection *c = check->connection;
    if (c->state == CONNECTION_CHECKING && (!has_run || check->status))
        refuse_body(c, &check->why);
    else if (c->state == CONNECTION_CHECKING)
        run_request(c);
    connection_drop_reference(c);
    free(check);
}

static bool check_on_worker(struct connection *c)
{
    struct body_check *check = malloc(sizeof *check);
    if (!check) return false;
    *check = (struct body_check){.work = {.begin = is_wanted,
                                          .run = check_body,
                                          .done = end_check,
                                          .is_long = true,
                                          .api_key_idx = c->request->x.api_key_idx,
                                          .tenant = tenant_read(&c->request->x)},
                                 .connection = c,
                                 .why = {.http_status = 500, .message = "out of memory"}};
    connection_set_state(c, CONNECTION_CHECKING);
    if (!work_queue_put(&c->listener->server->works, c->listener->loop, &check->work)) {
        free(check);
        return false;
    }
    c->num_references++;
    if (c->half_closed) connection_probe(c);
    return true;
}

void connection_end_body(struct connection *c)
{
    struct exchange *x = &c->request->x;
    if (c->body.data) x->body = c->body.data;
    x->body_bytes = c->body.num_bytes;
    if (x->body_bytes > CHECK_ON_LOOP_BYTES && check_on_worker(c)) return;
    connection_set_state(c, CONNECTION_RESPONDING);
    struct refusal why;
    if (dispatch_check_body(c->listener, c->request, &c->body, &why))
        refuse_body(c, &why);
    else
        run_request(c);
}

void connection_begin_request(struct connection *c, const struct gate_head *head)
{
    struct listener *l = c->listener;
    size_t arena_bytes = ARENA_EXTRA_BYTES + 8 * l->config->max_body_bytes;
    struct refusal why;
    c->num_requests++;
    connection_set_state(c, CONNECTION_RESPONDING);
    if (http_request_create(head, l->server, c, ++l->num_requests, l->request_seed, arena_bytes, &c->request,
                            &why)) {
        connection_refuse(c, &why);
        return;
    }
    c->request->x.arrival_ns = c->first_byte_ns;
    bool has_body = !http_reader_done(&c->reader);
    bool last = !head->keep_alive || connection_is_in_reserve(c) ||
                c->num_requests >= l->config->max_requests_per_connection;
    c->closes = last || has_body; /* a body that nobody reads ends the connection */
    if (!dispatch_head(l, c->request)) return;
    connection_note_key(c);
    c->closes = last;
    buffer_init(&c->body, l->config->max_body_bytes);
    if (!has_body) {
        connection_end_body(c);
        return;
    }
    connection_set_state(c, CONNECTION_BODY);
    if (head->expect_continue) connection_send_text(c, "HTTP/1.1 100 Continue\r\n\r\n");
}
