/* test_connection.c - listener, connections and exchanges over loopback sockets: order, keep-alive, limits of
 * time and memory, streams, half-close and reset, drain. */
#include "tests/unit/server/http_rig.h"

#define HOST "Host: a\r\n"
#define CLOSE "Connection: close\r\n"

static void with_defaults(struct rig *rig)
{
    rig_init(rig);
    rig_start(rig);
}

/* Asks with Connection: close and expects this status and every text (up to NULL) in the answer. */
static void expect(const struct rig *rig, const char *request, int status, ...)
{
    char *answer = client_ask_text(rig, request);
    if (status_of(answer) != status) fail_msg("expected %d for:\n%s\ngot:\n%s", status, request, answer);
    va_list args;
    va_start(args, status);
    for (const char *text; (text = va_arg(args, const char *));)
        if (!strstr(answer, text)) fail_msg("expected \"%s\" for:\n%s\ngot:\n%s", text, request, answer);
    va_end(args);
    free(answer);
}

static const char *body_of(const char *answer)
{
    const char *end = strstr(answer, "\r\n\r\n");
    return end ? end + 4 : "";
}

static void test_whole_answers(void **state)
{
    (void)state;
    struct rig rig;
    with_defaults(&rig);
    expect(&rig, "GET /ok HTTP/1.1\r\n" HOST CLOSE "\r\n", 200, "Content-Type: text/plain\r\n",
           "Content-Length: 2\r\n", "Connection: close\r\n", "x-request-id: req-", "\r\n\r\nok", NULL);
    expect(&rig, "GET /ok HTTP/1.1\r\n" HOST CLOSE "X-Request-Id: My.Id_1-2\r\n\r\n", 200,
           "x-request-id: My.Id_1-2\r\n", NULL);
    expect(&rig, "GET /ok HTTP/1.1\r\n" HOST CLOSE "X-Request-Id: not valid\r\n\r\n", 200,
           "x-request-id: req-", NULL);
    expect(&rig, "GET /path/a%2Fb%20c?q=%31 HTTP/1.1\r\n" HOST CLOSE "\r\n", 200,
           "/path/a/b c|a/b c|q=%31|-1", NULL);
    expect(&rig, "GET http://localhost/path/x HTTP/1.1\r\n" HOST CLOSE "\r\n", 200, "/path/x|x||-1", NULL);
    expect(&rig, "GET /none HTTP/1.1\r\n" HOST CLOSE "\r\n", 404, "\"code\":\"unknown_url\"",
           "x-should-retry: false", "there is no /none here. What there is: GET /ok, GET /open, ", NULL);
    expect(&rig, "GET /v1/stream/ HTTP/1.1\r\n" HOST CLOSE "\r\n", 404,
           "there is no /v1/stream/ here; did you mean /stream? What there is: ", NULL);
    expect(&rig, "GET /%22%5c%e2%80%ae HTTP/1.1\r\n" HOST CLOSE "\r\n", 404,
           "there is no /\\\"\\\\\xe2\x80\xae here. ", NULL);
    expect(&rig, "DELETE /ok HTTP/1.1\r\n" HOST CLOSE "\r\n", 405, "Allow: GET, HEAD, OPTIONS\r\n", NULL);
    expect(&rig, "GET /echo HTTP/1.1\r\n" HOST CLOSE "\r\n", 405, "Allow: POST, OPTIONS\r\n", NULL);
    expect(&rig, "PATCH /ok HTTP/1.1\r\n" HOST CLOSE "\r\n", 405, "Allow: ", NULL);
    expect(&rig, "GET /busy HTTP/1.1\r\n" HOST CLOSE "\r\n", 429, "Retry-After: 7\r\n",
           "{\"error\":{\"message\":\"try later: \\\"soon\\\"\",\"type\":\"rate_limit_error\",\"param\":null,"
           "\"code\":\"rate_limit_exceeded\"}}",
           NULL);
    rig_end(&rig);
}

static void test_head_requests_have_no_body(void **state)
{
    (void)state;
    struct rig rig;
    with_defaults(&rig);
    char *answer = client_ask_text(&rig, "HEAD /ok HTTP/1.1\r\n" HOST CLOSE "\r\n");
    assert_int_equal(status_of(answer), 200);
    assert_non_null(strstr(answer, "Content-Length: 2\r\n"));
    assert_string_equal(body_of(answer), "");
    free(answer);
    answer = client_ask_text(&rig, "HEAD /none HTTP/1.1\r\n" HOST CLOSE "\r\n");
    assert_int_equal(status_of(answer), 404);
    assert_string_equal(body_of(answer), "");
    free(answer);
    rig_end(&rig);
}

static void test_options(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    struct error err;
    assert_int_equal(config_set(&rig.config, "api-key", "k", "test", &err), 0);
    rig_start(&rig);
    expect(&rig,
           "OPTIONS /echo HTTP/1.1\r\n" HOST CLOSE
           "Origin: https://page\r\nAccess-Control-Request-Method: POST\r\n"
           "Access-Control-Request-Headers: authorization, content-type\r\n\r\n",
           204, "Access-Control-Allow-Origin: *\r\n", "Access-Control-Allow-Methods: POST, OPTIONS\r\n",
           "Access-Control-Allow-Headers: authorization, content-type\r\n", NULL);
    expect(&rig, "OPTIONS /ok HTTP/1.1\r\n" HOST CLOSE "\r\n", 204, "Allow: GET, HEAD, OPTIONS\r\n", NULL);
    expect(&rig, "OPTIONS * HTTP/1.1\r\n" HOST CLOSE "\r\n", 204, "Allow: GET, HEAD, POST, OPTIONS\r\n",
           NULL);
    expect(&rig, "OPTIONS /none HTTP/1.1\r\n" HOST CLOSE "\r\n", 404, NULL);
    rig_end(&rig);
}

static void test_keys(void **state)
{
    (void)state;
    struct rig rig;
    struct error err;
    rig_init(&rig);
    assert_int_equal(config_set(&rig.config, "api-key", "one", "test", &err), 0);
    assert_int_equal(config_set(&rig.config, "api-key", "two", "test", &err), 0);
    rig_start(&rig);
    expect(&rig, "GET /open HTTP/1.1\r\n" HOST CLOSE "\r\n", 200, NULL);
    expect(&rig, "GET /ok HTTP/1.1\r\n" HOST CLOSE "\r\n", 401, "WWW-Authenticate: Bearer\r\n",
           "\"code\":\"invalid_api_key\"", "x-should-retry: false", NULL);
    expect(&rig, "GET /none HTTP/1.1\r\n" HOST CLOSE "\r\n", 401, NULL);
    expect(&rig, "GET /ok HTTP/1.1\r\n" HOST CLOSE "Authorization: Bearer on\r\n\r\n", 401, NULL);
    expect(&rig, "GET /path/x HTTP/1.1\r\n" HOST CLOSE "Authorization: Bearer one\r\n\r\n", 200, "||0", NULL);
    expect(&rig, "GET /path/x HTTP/1.1\r\n" HOST CLOSE "x-api-key: two\r\n\r\n", 200, "||1", NULL);
    expect(&rig, "GET /ok HTTP/1.1\r\nHost: /open?\r\n" CLOSE "\r\n", 400, NULL);
    /* refused before the body is sent: nothing of it is read as a request */
    expect(&rig,
           "POST /raw HTTP/1.1\r\n" HOST
           "Content-Length: 100\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
           401, "Connection: close", NULL);
    assert_int_equal(num_smuggled, 0);
    rig_end(&rig);
}

static void test_json_bodies(void **state)
{
    (void)state;
    struct rig rig;
    with_defaults(&rig);
#define JSON "Content-Type: application/json\r\n"
    expect(&rig, "POST /echo HTTP/1.1\r\n" HOST CLOSE JSON "Content-Length: 7\r\n\r\n{\"a\":1}", 200,
           "\r\n\r\n{\"a\":1}", NULL);
    expect(&rig, "POST /echo HTTP/1.1\r\n" HOST CLOSE JSON "Content-Length: 7\r\n\r\n{\"a\":01", 400,
           "invalid_request_error", NULL);
    expect(&rig, "POST /echo HTTP/1.1\r\n" HOST CLOSE JSON "\r\n", 400, NULL);
    expect(&rig,
           "POST /echo HTTP/1.1\r\n" HOST CLOSE "Content-Type: Application/JSON ; charset=UTF-8\r\n"
           "Content-Length: 2\r\n\r\n{}",
           200, NULL);
    static const char *const right[] = {"", "Content-Type: application/x-www-form-urlencoded\r\n"};
    for (size_t i = 0; i < array_length(right); i++) { /* what curl -d and others send */
        char text[512];
        snprintf(text, sizeof text, "POST /echo HTTP/1.1\r\n" HOST CLOSE "%sContent-Length: 3\r\n\r\n {}",
                 right[i]);
        expect(&rig, text, 200, "\r\n\r\n {}", NULL);
        snprintf(text, sizeof text, "POST /echo HTTP/1.1\r\n" HOST CLOSE "%sContent-Length: 3\r\n\r\na=b",
                 right[i]);
        expect(&rig, text, 415, "Content-Type: application/json", NULL);
    }
    static const char *const wrong[] = {"Content-Type: text/plain\r\n", "Content-Type: application/jsonp\r\n",
                                        "Content-Type: application/json; charset=utf-16\r\n",
                                        JSON "Content-Encoding: gzip\r\n"};
    for (size_t i = 0; i < array_length(wrong); i++) {
        char text[512];
        snprintf(text, sizeof text, "POST /echo HTTP/1.1\r\n" HOST CLOSE "%sContent-Length: 2\r\n\r\n{}",
                 wrong[i]);
        expect(&rig, text, 415, i < 3 ? "Content-Type: application/json" : "Content-Encoding", NULL);
    }
    rig_end(&rig);
}

static char *make_post(const char *path, size_t body_bytes, size_t *n)
{
    char *text = malloc(body_bytes + 256);
    int head =
        sprintf(text, "POST %s HTTP/1.1\r\n" HOST CLOSE JSON "Content-Length: %zu\r\n\r\n", path, body_bytes);
    memset(text + head, ' ', body_bytes);
    text[head] = '[';
    text[head + (int)body_bytes - 1] = ']';
    *n = (size_t)head + body_bytes;
    return text;
}

/* At the limit, and large enough to be checked by a worker. */
static void test_large_bodies(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig.config.max_body_bytes = 1 << 20;
    rig_start(&rig);
    for (int d = -1; d <= 1; d++) {
        size_t n, body_bytes = (size_t)((1 << 20) + d);
        char *text = make_post("/echo", body_bytes, &n);
        char *answer = client_ask(&rig, text, n);
        assert_int_equal(status_of(answer), d > 0 ? 413 : 200);
        if (d <= 0) assert_int_equal(strlen(body_of(answer)), body_bytes);
        if (d > 0) assert_non_null(strstr(answer, "--max-body-bytes"));
        free(answer);
        text[n - 1] = '}'; /* not JSON: found by the worker */
        if (d <= 0) {
            answer = client_ask(&rig, text, n);
            assert_int_equal(status_of(answer), 400);
            free(answer);
        }
        free(text);
    }
    rig_end(&rig);
}

/* The answer to a body that is too long arrives although the client goes on sending it. */
static void test_early_refusal_is_not_lost(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig.config.max_body_bytes = 1024;
    rig_start(&rig);
    size_t n;
    char *text = make_post("/echo", 8 << 20, &n);
    for (int i = 0; i < 5; i++) {
        char *answer = client_ask(&rig, text, n);
        assert_int_equal(status_of(answer), 413);
        free(answer);
    }
    free(text);
    rig_end(&rig);
}

static void test_expect_continue(void **state)
{
    (void)state;
    struct rig rig;
    with_defaults(&rig);
    int fd = client_connect(&rig);
    client_send_text(fd,
                     "POST /raw HTTP/1.1\r\n" HOST CLOSE "Content-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    char *answer = client_read(fd, "\r\n\r\n");
    assert_string_equal(answer, "HTTP/1.1 100 Continue\r\n\r\n");
    free(answer);
    client_send_text(fd, "abc");
    answer = client_read(fd, NULL);
    assert_int_equal(status_of(answer), 200);
    assert_string_equal(body_of(answer), "abc");
    free(answer);
    close(fd);
    expect(&rig, "POST /none HTTP/1.1\r\n" HOST "Content-Length: 3\r\nExpect: 100-continue\r\n\r\n", 404,
           "Connection: close", NULL);
    rig_end(&rig);
}

static void test_keep_alive_and_http_1_0(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig.config.max_requests_per_connection = 3;
    rig_start(&rig);
    int fd = client_connect(&rig);
    for (int i = 1; i <= 3; i++) {
        client_send_text(fd, "GET /ok HTTP/1.1\r\n" HOST "\r\n");
        char *answer = client_read(fd, "\r\n\r\nok");
        assert_int_equal(status_of(answer), 200);
        assert_int_equal(strstr(answer, "Connection: close") != NULL, i == 3);
        free(answer);
    }
    char *rest = client_read(fd, NULL);
    assert_string_equal(rest, "");
    free(rest);
    close(fd);
    expect(&rig, "GET /ok HTTP/1.0\r\n\r\n", 200, "Connection: close", NULL);
    fd = client_connect(&rig);
    client_send_text(fd, "GET /ok HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    char *answer = client_read(fd, "\r\n\r\nok");
    assert_non_null(strstr(answer, "Connection: keep-alive"));
    free(answer);
    client_send_text(fd, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    answer = client_read(fd, NULL);
    assert_non_null(strstr(answer, "Connection: close"));
    assert_null(strstr(answer, "Transfer-Encoding"));
    assert_string_equal(body_of(answer), ": ping\n\ndata: 1\n\ndata: [DONE]\n\n");
    free(answer);
    close(fd);
    /* an API error keeps the connection */
    fd = client_connect(&rig);
    client_send_text(fd, "GET /busy HTTP/1.1\r\n" HOST "\r\n");
    free(client_read(fd, "}}"));
    client_send_text(fd, "GET /ok HTTP/1.1\r\n" HOST CLOSE "\r\n");
    answer = client_read(fd, NULL);
    assert_int_equal(status_of(answer), 200);
    free(answer);
    close(fd);
    rig_end(&rig);
}

static void test_stream(void **state)
{
    (void)state;
    struct rig rig;
    with_defaults(&rig);
    expect(&rig, "GET /stream HTTP/1.1\r\n" HOST CLOSE "\r\n", 200,
           "Content-Type: text/event-stream; charset=utf-8\r\n", "Cache-Control: no-cache\r\n",
           "X-Accel-Buffering: no\r\n", "Transfer-Encoding: chunked\r\n",
           "\r\n\r\n8\r\n: ping\n\n\r\n9\r\ndata: 1\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n", NULL);
    rig_end(&rig);
}

/* Many requests in one go are answered in their order, a slow one holding up those behind it. */
static void test_pipelining(void **state)
{
    (void)state;
    enum { REQUESTS = 3000 };
    struct rig rig;
    with_defaults(&rig);
    static char requests[REQUESTS * 64];
    size_t n = 0;
    for (int i = 0; i < REQUESTS; i++)
        n += (size_t)sprintf(requests + n, "GET %s%d HTTP/1.1\r\n" HOST "\r\n", "/path/", i);
    n += (size_t)sprintf(requests + n, "GET /ok HTTP/1.1\r\n" HOST CLOSE "\r\n");
    int fd = client_connect(&rig);
    client_send_text(fd, "GET /later HTTP/1.1\r\n" HOST "\r\n");
    client_send(fd, requests, n);
    wait_for(&num_handled, 1);
    uv_async_send(&rig.release);
    char *answer = client_read(fd, NULL);
    const char *at = strstr(answer, "released");
    for (int i = 0; i < REQUESTS && at; i++) {
        char path[32];
        snprintf(path, sizeof path, "\r\n\r\n/path/%d|", i);
        at = strstr(at, path);
        if (!at) fail_msg("no answer %d in its place", i);
    }
    assert_non_null(at);
    assert_int_equal(num_handled, 2);
    free(answer);
    close(fd);
    rig_end(&rig);
}

/* What waits behind a request begins once whoever answers that has returned: an endpoint may end what another holds. */
static void test_no_endpoint_is_called_within_an_answer(void **state)
{
    (void)state;
    static const char *const first[] = {"GET /later HTTP/1.1\r\n" HOST "\r\n",
                                        "GET /held-stream HTTP/1.1\r\n" HOST "\r\n"};
    struct rig rig;
    with_defaults(&rig);
    for (int i = 0; i < 2; i++) {
        int fd = client_connect(&rig);
        client_send_text(fd, first[i]);
        client_send_text(fd, "GET /ok HTTP/1.1\r\n" HOST CLOSE "\r\n");
        wait_for(&num_handled, 2 * i + 1);
        uv_async_send(&rig.release);
        char *answer = client_read(fd, NULL);
        assert_non_null(strstr(answer, "\r\n\r\nok"));
        free(answer);
        close(fd);
    }
    assert_int_equal(num_nested, 0);
    rig_end(&rig);
}

/* A reader that stops: no more than the soft limit waits for it, and every event arrives in order when it
 * goes on. */
static void test_backpressure(void **state)
{
    (void)state;
    struct rig rig;
    with_defaults(&rig);
    int fd = client_connect(&rig);
    client_send_text(fd, "GET /flood HTTP/1.1\r\n" HOST CLOSE "\r\n");
    int before = -1;
    for (int i = 0; i < 200 && before != num_events; i++) { /* until the endpoint stands still */
        before = num_events;
        usleep(50000);
    }
    assert_true(num_events < FLOOD_EVENTS);
    char *answer = client_read(fd, NULL);
    const char *at = body_of(answer);
    for (int i = 0; i < FLOOD_EVENTS; i++) {
        char event[32];
        int n = snprintf(event, sizeof event, "400\r\ndata: ");
        if (strncmp(at, event, (size_t)n) || atoi(at + n) != i) fail_msg("event %d is not in its place", i);
        at += n + FLOOD_EVENT_BYTES - 6 + 2;
    }
    assert_string_equal(at, "0\r\n\r\n");
    assert_int_equal(num_closed, 0);
    free(answer);
    close(fd);
    rig_end(&rig);
}

static void test_hard_limit_cuts_off(void **state)
{
    (void)state;
    struct rig rig;
    with_defaults(&rig);
    int fd = client_connect(&rig);
    client_send_text(fd, "GET /burst HTTP/1.1\r\n" HOST "\r\n");
    wait_for(&num_closed, 1);
    close(fd);
    rig_end(&rig);
}

static void test_write_timeout_cuts_off(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig.config.write_timeout = 1;
    rig_start(&rig);
    int fd = client_connect(&rig);
    client_send_text(fd, "GET /flood HTTP/1.1\r\n" HOST "\r\n");
    wait_for(&num_closed, 1);
    assert_true(num_events < FLOOD_EVENTS);
    close(fd);
    rig_end(&rig);
}

static void read_big_answer(struct rig *rig, const char *request)
{
    int fd = client_connect(rig);
    num_handled = 0;
    client_send_text(fd, request);
    client_send_text(fd, "GET /ok HTTP/1.1\r\n" HOST CLOSE "\r\n");
    usleep(100000);
    assert_int_equal(num_handled, 0); /* the second waits until the first is written */
    char *answer = client_read(fd, NULL);
    assert_int_equal(strspn(body_of(answer), "b"), BIG_BYTES);
    assert_non_null(strstr(answer, "\r\n\r\nok"));
    free(answer);
    close(fd);
}

static void test_big_answer_to_a_slow_reader(void **state)
{
    (void)state;
    struct rig rig;
    with_defaults(&rig);
    read_big_answer(&rig, "GET /big HTTP/1.1\r\n" HOST "\r\n");
    read_big_answer(&rig, "GET /big-json HTTP/1.1\r\n" HOST "\r\n");
    assert_true(took_over); /* not copied */
    rig_end(&rig);
}

static void reset(int fd)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd);
}

/* Gone clients are noticed while nothing is written to them, whatever they have sent behind their request. */
static void test_disconnects_while_pending(void **state)
{
    (void)state;
    static const char *const requests[] = {
        "GET /later HTTP/1.1\r\n" HOST "\r\n",
        "GET /held-stream HTTP/1.1\r\n" HOST "\r\n",
        "POST /later HTTP/1.1\r\n" HOST JSON "Content-Length: 2\r\n\r\n{}",
        "GET /later HTTP/1.0\r\n\r\n",
        "GET /held-stream HTTP/1.0\r\n\r\n",
        "GET /later HTTP/1.1\r\n" HOST "\r\nGET /ok HTTP/1.1\r\n" HOST "\r\n",
    };
    struct rig rig;
    with_defaults(&rig);
    int expected = 0;
    for (int round = 0; round < 4; round++) {
        for (size_t i = 0; i < array_length(requests); i++) {
            int fd = client_connect(&rig);
            client_send_text(fd, requests[i]);
            wait_for(&num_handled, expected + 1);
            if (round >= 2) { /* not even read from: it pipelines too much */
                static char garbage[1 << 18];
                memset(garbage, 'G', sizeof garbage);
                fcntl(fd, F_SETFL, O_NONBLOCK);
                /* an end-of-file arrives only behind what the server's socket takes */
                client_send(fd, garbage, round == 2 ? 3 * CONNECTION_WAITING_BYTES : sizeof garbage);
            }
            if (round % 2)
                reset(fd);
            else
                close(fd);
            wait_for(&num_closed, ++expected);
        }
    }
    rig_end(&rig);
}

/* A client that has said all it will still gets its answer. */
static void test_half_close_keeps_the_answer(void **state)
{
    (void)state;
    struct rig rig;
    with_defaults(&rig);
    int fd = client_connect(&rig);
    client_send_text(fd, "GET /later HTTP/1.1\r\n" HOST "\r\n");
    shutdown(fd, SHUT_WR);
    wait_for(&num_handled, 1);
    char *interim = client_read(fd, "HTTP/1.1 "); /* what any answer begins with */
    assert_string_equal(interim, "HTTP/1.1 ");
    free(interim);
    uv_async_send(&rig.release);
    char *answer = client_read(fd, NULL);
    assert_int_equal(strncmp(answer, "200 OK\r\n", 8), 0);
    assert_string_equal(body_of(answer), "released");
    free(answer);
    close(fd);

    fd = client_connect(&rig);
    client_send_text(fd, "GET /held-stream HTTP/1.1\r\n" HOST "\r\n");
    shutdown(fd, SHUT_WR);
    wait_for(&num_handled, 2);
    answer = client_read(fd, "3\r\n:\n\n\r\n");
    assert_non_null(strstr(answer, "data: first"));
    free(answer);
    uv_async_send(&rig.release);
    answer = client_read(fd, NULL);
    assert_string_equal(answer, "0\r\n\r\n");
    free(answer);
    close(fd);
    assert_int_equal(num_closed, 0);
    rig_end(&rig);
}

/* The same of HTTP/1.0, whose clients know no interim answers. */
static void test_half_close_keeps_an_answer_of_1_0(void **state)
{
    (void)state;
    struct rig rig;
    with_defaults(&rig);
    int fd = client_connect(&rig);
    client_send_text(fd, "GET /later HTTP/1.0\r\n\r\n");
    shutdown(fd, SHUT_WR);
    wait_for(&num_handled, 1);
    uv_async_send(&rig.release);
    char *answer = client_read(fd, NULL);
    assert_int_equal(status_of(answer), 200);
    assert_string_equal(body_of(answer), "released");
    free(answer);
    close(fd);
    assert_int_equal(num_closed, 0);
    rig_end(&rig);
}

/* A client that goes while its first request is answered does not get its second one computed. */
static void test_a_client_that_went_during_an_earlier_request(void **state)
{
    (void)state;
    static const char *const versions[] = {"1.1\r\n" HOST, "1.0\r\nConnection: keep-alive\r\n"};
    struct rig rig;
    with_defaults(&rig);
    for (int i = 0; i < 2; i++) {
        char text[256];
        snprintf(text, sizeof text, "GET /later HTTP/%s\r\nGET /later HTTP/%s\r\n", versions[i], versions[i]);
        int fd = client_connect(&rig), before = num_handled, closed_before = num_closed;
        client_send_text(fd, text);
        shutdown(fd, SHUT_WR); /* may still read */
        wait_for(&num_handled, before + 1);
        free(client_read(fd, "HTTP/1.1 "));
        uv_async_send(&rig.release);
        wait_for(&num_handled, before + 2);
        close(fd);
        wait_for(&num_closed, closed_before + 1);
    }
    rig_end(&rig);
}

static void test_cut_requests(void **state)
{
    (void)state;
    static const char *const requests[] = {
        "G",
        "GET /ok HTTP/1.1\r\n" HOST,
        "POST /raw HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\nabc",
        "POST /raw HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\r\nabc",
    };
    struct rig rig;
    with_defaults(&rig);
    for (size_t i = 0; i < array_length(requests); i++) {
        int fd = client_connect(&rig);
        client_send_text(fd, requests[i]);
        shutdown(fd, SHUT_WR);
        char *answer = client_read(fd, NULL);
        assert_int_equal(status_of(answer), 400);
        free(answer);
        close(fd);
    }
    int fd = client_connect(&rig);
    shutdown(fd, SHUT_WR);
    char *answer = client_read(fd, NULL);
    assert_string_equal(answer, "");
    free(answer);
    close(fd);
    assert_int_equal(num_handled, 0);
    rig_end(&rig);
}

static void test_timeouts(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig.config.header_timeout = rig.config.body_timeout = rig.config.idle_timeout = 1;
    rig_start(&rig);
    expect(&rig, "GET /ok HTTP/1.1\r\nHo", 408, "--header-timeout", "Connection: close", NULL);
    expect(&rig, "POST /raw HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\nabc", 408, "--body-timeout", NULL);
    char *answer = client_ask_text(&rig, "");
    assert_string_equal(answer, "");
    free(answer);
    int fd = client_connect(&rig); /* idle after an answer: closed without a word */
    client_send_text(fd, "GET /ok HTTP/1.1\r\n" HOST "\r\n");
    answer = client_read(fd, NULL);
    assert_int_equal(status_of(answer), 200);
    assert_null(strstr(answer, "HTTP/1.1 408")); /* an id may hold the number */
    free(answer);
    close(fd);
    rig_end(&rig);
}

static void test_slow_body(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig.config.body_min_rate = 1 << 20;
    rig_start(&rig);
    expect(&rig, "POST /raw HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\nabc", 408, "--body-min-rate", NULL);
    rig_end(&rig);
}

static void test_states(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig_start(&rig);
    rig.server.state = SERVER_LOADING;
    expect(&rig, "GET /ok HTTP/1.1\r\n" HOST CLOSE "\r\n", 503, "Retry-After: 1\r\n",
           "\"type\":\"service_unavailable_error\"", "loading", NULL);
    expect(&rig, "GET /open HTTP/1.1\r\n" HOST CLOSE "\r\n", 200, NULL);
    rig.server.state = SERVER_READY;
    expect(&rig, "GET /ok HTTP/1.1\r\n" HOST CLOSE "\r\n", 200, NULL);
    rig_end(&rig);
}

static _Atomic int num_quiet;

static void count_quiet(void *context)
{
    (void)context;
    num_quiet++;
}

/* Draining: the idle connection ends, the stream finishes, new requests are told to go elsewhere. */
static void test_drain(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig_start(&rig);
    rig.listener.on_quiet = count_quiet;
    int idle = client_connect(&rig), busy = client_connect(&rig), late = client_connect(&rig);
    client_send_text(idle, "GET /ok HTTP/1.1\r\n" HOST "\r\n");
    free(client_read(idle, "\r\n\r\nok"));
    client_send_text(busy, "GET /held-stream HTTP/1.1\r\n" HOST "\r\n");
    free(client_read(busy, "data: first\n\n\r\n"));
    client_send_text(late,
                     "GET /later HTTP/1.1\r\n" HOST "\r\n"); /* becomes `kept`; busy's stream stays open */
    wait_for(&num_handled, 3);
    num_quiet = 0;
    uv_async_send(&rig.drain);
    char *answer = client_read(idle, NULL);
    assert_string_equal(answer, "");
    free(answer);
    expect(&rig, "GET /ok HTTP/1.1\r\n" HOST "\r\n", 503, "shutting down", "Connection: close", NULL);
    assert_int_equal(num_quiet, 0);
    uv_async_send(&rig.release);
    answer = client_read(late, NULL);
    assert_int_equal(status_of(answer), 200);
    assert_non_null(strstr(answer, "Connection: close"));
    free(answer);
    close(late);
    close(busy); /* its client leaves */
    wait_for(&num_closed, 1);
    wait_for(&num_quiet, 1);
    close(idle);
    rig_end(&rig);
}

/* Those that are at work are closed, too, however many there are: nobody waits for their clients. */
static void test_close_ends_all(void **state)
{
    (void)state;
    enum { BUSY = 4 };
    struct rig rig;
    int busy[BUSY];
    rig_init(&rig);
    rig_start(&rig);
    for (int i = 0; i < BUSY; i++) {
        busy[i] = client_connect(&rig);
        client_send_text(busy[i], "GET /later HTTP/1.1\r\n" HOST "\r\n");
        wait_for(&num_handled, i + 1);
    }
    uv_async_send(&rig.stop);
    wait_for(&num_closed, BUSY);
    for (int i = 0; i < BUSY; i++) close(busy[i]);
    rig_end(&rig);
}

static void test_unix_socket(void **state)
{
    (void)state;
    char folder[] = "/tmp/flashd-test-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/s", folder);
    for (int round = 0; round < 2; round++) {
        if (round == 1) { /* a killed server's socket is in the way */
            int stale = socket(AF_UNIX, SOCK_STREAM, 0);
            struct sockaddr_un left = {.sun_family = AF_UNIX};
            snprintf(left.sun_path, sizeof left.sun_path, "%s", path);
            assert_int_equal(bind(stale, (struct sockaddr *)&left, sizeof left), 0);
            close(stale);
        }
        struct rig rig;
        struct error err;
        rig_init(&rig);
        assert_int_equal(config_set(&rig.config, "uds", path, "test", &err), 0);
        rig_start(&rig);
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        client_set_timeouts(fd);
        assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
        client_send_text(fd, "GET /ok HTTP/1.1\r\n" HOST "\r\n");
        free(client_read(fd, "\r\n\r\nok"));
        struct listener second; /* a living server's socket is not taken away */
        assert_int_equal(listener_open(&second, &rig.server, rig_routes, &err), STATUS_IO);
        listener_deinit(&second);
        client_send_text(fd, "GET /later HTTP/1.1\r\n" HOST "\r\n");
        wait_for(&num_handled, 2);
        close(fd);
        wait_for(&num_closed, 1);
        rig_end(&rig);
        assert_int_equal(access(path, F_OK), -1);
    }
    rmdir(folder);
}

/* Nothing that clients do leaves memory, a descriptor or a busy connection behind (rig_end checks the rest).
 */
static void test_random_disconnects(void **state)
{
    (void)state;
    static const char *const requests[] = {
        "GET /ok HTTP/1.1\r\n" HOST "\r\nGET /stream HTTP/1.1\r\n" HOST "\r\n",
        "GET /later HTTP/1.1\r\n" HOST "\r\n",
        "GET /flood HTTP/1.1\r\n" HOST "\r\n",
        "GET /big HTTP/1.1\r\n" HOST "\r\nGET /big HTTP/1.1\r\n" HOST "\r\n",
        "POST /echo HTTP/1.1\r\n" HOST JSON "Content-Length: 9\r\n\r\n[1,2,3,4]",
        "POST /raw HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "garbage \x01\r\n\r\n",
    };
    struct rig rig;
    with_defaults(&rig);
    unsigned seed = 1;
    for (int i = 0; i < 2000; i++) {
        const char *text = requests[(unsigned)rand_r(&seed) % array_length(requests)];
        int fd = client_connect(&rig);
        size_t n = strlen(text), cut = (unsigned)rand_r(&seed) % 3 ? n : (unsigned)rand_r(&seed) % (n + 1);
        client_send(fd, text, cut);
        char byte;
        if (rand_r(&seed) % 2) (void)!recv(fd, &byte, 1, cut == n && text != requests[1] ? 0 : MSG_DONTWAIT);
        if (rand_r(&seed) % 4 == 0) shutdown(fd, SHUT_WR);
        if (rand_r(&seed) % 2)
            reset(fd);
        else
            close(fd);
    }
    expect(&rig, "GET /ok HTTP/1.1\r\n" HOST CLOSE "\r\n", 200, NULL);
    rig_end(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_answers),
        cmocka_unit_test(test_head_requests_have_no_body),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_json_bodies),
        cmocka_unit_test(test_large_bodies),
        cmocka_unit_test(test_early_refusal_is_not_lost),
        cmocka_unit_test(test_expect_continue),
        cmocka_unit_test(test_keep_alive_and_http_1_0),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_pipelining),
        cmocka_unit_test(test_no_endpoint_is_called_within_an_answer),
        cmocka_unit_test(test_backpressure),
        cmocka_unit_test(test_hard_limit_cuts_off),
        cmocka_unit_test(test_write_timeout_cuts_off),
        cmocka_unit_test(test_big_answer_to_a_slow_reader),
        cmocka_unit_test(test_disconnects_while_pending),
        cmocka_unit_test(test_half_close_keeps_the_answer),
        cmocka_unit_test(test_half_close_keeps_an_answer_of_1_0),
        cmocka_unit_test(test_a_client_that_went_during_an_earlier_request),
        cmocka_unit_test(test_cut_requests),
        cmocka_unit_test(test_timeouts),
        cmocka_unit_test(test_slow_body),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_close_ends_all),
        cmocka_unit_test(test_unix_socket),
        cmocka_unit_test(test_random_disconnects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
