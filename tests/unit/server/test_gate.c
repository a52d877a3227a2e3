/* test_gate.c - the head gate, the chunk gate, and their agreement with llhttp, without sockets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rng.h"
#include "server/chunk_gate.h"
#include "server/gate.h"
#include "server/http_reader.h"
#include "server/target.h"

static const struct gate_limits limits = {
    .max_header_bytes = 1024, .max_url_bytes = 128, .max_headers = 10, .max_body_bytes = 1000};
static struct gate_header headers[10];

/* Scans in pieces of step bytes, then checks. Returns 200, or the status of the refusal, or 0 for incomplete.
 */
static int judge(const char *bytes, size_t n, size_t step, struct gate_head *head)
{
    struct gate_scan scan = {0};
    struct refusal why = {0};
    int64_t size = 0;
    for (size_t have = min_of(step, n); size == 0; have = min_of(have + step, n)) {
        size = gate_scan(&scan, bytes, have, &limits, &why);
        if (have == n) break;
    }
    if (size < 0) return why.http_status;
    if (size == 0) return 0;
    struct http_reader reader;
    *head = (struct gate_head){.headers = headers};
    const char *start = bytes + scan.head_start;
    size_t head_bytes = (size_t)size - scan.head_start;
    if (gate_check(start, head_bytes, &limits, head, &why)) return why.http_status;
    if (http_reader_begin(&reader, start, head_bytes, head, &why)) return why.http_status;
    return 200;
}

static int judge_text(const char *text)
{
    struct gate_head head;
    int whole = judge(text, strlen(text), SIZE_MAX / 2, &head);
    for (size_t step = 1; step < 4; step++) assert_int_equal(judge(text, strlen(text), step, &head), whole);
    return whole;
}

static void expect(const char *text, int status)
{
    int got = judge_text(text);
    if (got != status) fail_msg("%d instead of %d for:\n%s", got, status, text);
}

static void test_accepts(void **state)
{
    (void)state;
    expect("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200);
    expect("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 200);
    expect("GET / HTTP/1.0\r\n\r\n", 200);
    expect("GET http://a/v1/models HTTP/1.1\r\nHost: a\r\n\r\n", 200);
    expect("OPTIONS * HTTP/1.1\r\nHost: [::1]:8000\r\n\r\n", 200);
    expect("POST /x HTTP/1.1\r\nHost: a:80\r\nContent-Length: 1000\r\n\r\n", 200);
    expect("POST /x HTTP/1.1\r\nhOST:a\r\ntransfer-encoding:CHUNKED\r\n\r\n", 200);
    expect("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-Continue\r\n\r\n", 200);
    expect(
        "GET / HTTP/1.1\r\nHost: a\r\nX-Empty:\r\nX-Blank: \t \r\nX-Text:  b c\t\r\nX-Utf8: \xc3\xa9\r\n\r\n",
        200);
    expect("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", 200);
    expect("GET / HTTP/1.1\r\nHost: a\r\nConnection: foo, Keep-Alive\r\n\r\n", 200);
    expect("HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 200);
    expect("DELETE / HTTP/1.1\r\nHost: a\r\n\r\n", 200);
}

static void test_reads_what_it_accepts(void **state)
{
    (void)state;
    const char *text = "\r\nPOST /a?b=c HTTP/1.1\r\nHost: h\r\nX-A: one \r\nContent-Length: 7\r\n"
                       "Connection: x , close\r\nExpect: 100-continue\r\n\r\nnot read";
    struct gate_head head;
    assert_int_equal(judge(text, strlen(text), SIZE_MAX / 2, &head), 200);
    assert_int_equal(head.method, HTTP_METHOD_POST);
    assert_int_equal(head.target_bytes, 6);
    assert_memory_equal(head.target, "/a?b=c", 6);
    assert_int_equal(head.content_length, 7);
    assert_false(head.keep_alive);
    assert_true(head.expect_continue);
    assert_false(head.chunked);
    assert_int_equal(head.num_headers, 5);
    assert_int_equal(head.headers[1].value_bytes, 3);
    assert_memory_equal(head.headers[1].value, "one", 3);
}

static void test_incomplete_heads_wait(void **state)
{
    (void)state;
    const char *text = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    struct gate_head head;
    for (size_t n = 1; n < strlen(text); n++) assert_int_equal(judge(text, n, SIZE_MAX / 2, &head), 0);
}

/* A head with a target of url_bytes, num_headers headers, and total_bytes in all (0: as it comes). */
static char *make_head(size_t url_bytes, int num_headers, size_t total_bytes)
{
    char *text = calloc(1, 1 << 16);
    char *at = text + sprintf(text, "GET /");
    memset(at, 'u', url_bytes - 1);
    at += url_bytes - 1;
    at += sprintf(at, " HTTP/1.1\r\nHost: a\r\n");
    for (int i = 2; i < num_headers; i++) at += sprintf(at, "A%d: b\r\n", i);
    if (num_headers > 1) at += sprintf(at, "Z: ");
    size_t rest = total_bytes > 0 ? total_bytes - (size_t)(at - text) - 4 : 1;
    memset(at, 'z', rest);
    sprintf(at + rest, "\r\n\r\n");
    return text;
}

static void expect_head(size_t url_bytes, int num_headers, size_t total_bytes, int status)
{
    char *text = make_head(url_bytes, num_headers, total_bytes);
    expect(text, status);
    free(text);
}

static void test_limits_are_exact(void **state)
{
    (void)state;
    for (int d = -1; d <= 1; d++) {
        expect_head((size_t)(128 + d), 3, 0, d > 0 ? 414 : 200);
        expect_head(1, 10 + d, 0, d > 0 ? 431 : 200);
        expect_head(1, 3, (size_t)(1024 + d), d > 0 ? 431 : 200);
    }
    expect("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 999\r\n\r\n", 200);
    expect("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n", 413);
    expect("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775808\r\n\r\n", 413);
    expect("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551616\r\n\r\n", 400);
}

static void test_endless_heads_are_refused_early(void **state)
{
    (void)state;
    struct gate_scan scan = {0};
    struct refusal why;
    static char text[5000];
    memset(text, 'G', sizeof text);
    assert_int_equal(gate_scan(&scan, text, sizeof text, &limits, &why), -1);
    assert_int_equal(why.http_status, 414);
    assert_non_null(strstr(why.message, "--max-url-bytes"));
    int n = sprintf(text, "GET / HTTP/1.1\r\nX: ");
    memset(text + n, 'x', sizeof text - (size_t)n);
    scan = (struct gate_scan){0};
    assert_int_equal(gate_scan(&scan, text, sizeof text, &limits, &why), -1);
    assert_int_equal(why.http_status, 431);
    assert_non_null(strstr(why.message, "--max-header-bytes"));
    expect("\x16\x03\x01\x02", 400); /* a TLS client */
    expect("{\"a\":1}", 400);
}

/* ---- chunks ---- */

/* Feeds text in pieces of step bytes through http_reader. Returns the decoded size, or -status. */
static int64_t decode(const char *text, size_t n, size_t step, size_t *used_out)
{
    static const char head_text[] = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    struct gate_head head = {.headers = headers};
    struct refusal why = {0};
    struct http_reader reader;
    struct buffer body;
    assert_int_equal(gate_check(head_text, sizeof head_text - 1, &limits, &head, &why), 0);
    assert_int_equal(http_reader_begin(&reader, head_text, sizeof head_text - 1, &head, &why), 0);
    buffer_init(&body, limits.max_body_bytes);
    size_t used = 0;
    int64_t result = 0;
    while (used < n && !http_reader_done(&reader) && result >= 0) {
        result = http_reader_feed(&reader, text + used, min_of(step, n - used), limits.max_body_bytes, &body,
                                  &why);
        if (result >= 0) used += (size_t)result;
    }
    if (result >= 0) result = http_reader_done(&reader) ? (int64_t)body.num_bytes : -1;
    if (result < 0 && why.http_status) result = -why.http_status;
    if (used_out) *used_out = used;
    buffer_deinit(&body);
    return result;
}

static void expect_body(const char *text, int64_t expected)
{
    size_t used;
    for (size_t step = 1; step < 8; step++) {
        int64_t got = decode(text, strlen(text), step, &used);
        if (got != expected)
            fail_msg("%lld instead of %lld for:\n%s", (long long)got, (long long)expected, text);
    }
}

static void test_chunks(void **state)
{
    (void)state;
    expect_body("0\r\n\r\n", 0);
    expect_body("5\r\nhello\r\n0\r\n\r\n", 5);
    expect_body("5\r\nhello\r\n00000005\r\nworld\r\n000\r\n\r\n", 10);
    expect_body("a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\nGET /", 20);
    expect_body("3;a;c=\"d e\"\r\nabc\r\n0\r\n\r\n", 3);
    expect_body("3;a=\"b\\\"c\\\\\";d\r\nabc\r\n0;e\r\n\r\n", 3);
    expect_body("3 ; a = \"\" ;\tb\r\nabc\r\n0\r\n\r\n", 3);
    expect_body("0000000000000003\r\nabc\r\n0\r\n\r\n", 3);
    expect_body("3\r\nabc\r\n0\r\nX-Trailer: v\r\n\r\n", 3);
    expect_body("3\r\nabc\r\n0\r\n", -1); /* not finished */
    static const char *const malformed[] = {
        "\r\n",
        "g\r\n",
        "+3\r\nabc\r\n0\r\n\r\n",
        "-3\r\nabc\r\n0\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        " 3\r\nabc\r\n0\r\n\r\n",
        "3 \r\nabc\r\n0\r\n\r\n",
        "3;\r\nabc\r\n0\r\n\r\n",
        "3;=\r\nabc\r\n0\r\n\r\n",
        "3;a=\r\nabc\r\n0\r\n\r\n",
        "3;a \r\nabc\r\n0\r\n\r\n",
        "3;a=\"b\r\nabc\r\n0\r\n\r\n",
        "3;a=\"b\\\"\r\nabc\r\n0\r\n\r\n",
        "3;a=\"b\"c\r\nabc\r\n0\r\n\r\n",
        "3\nabc\r\n0\r\n\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "3\r\nabc0\r\n\r\n",
        "3\rabc\r\n0\r\n\r\n",
        "00000000000000003\r\nabc\r\n0\r\n\r\n",
        "3;a\nb\r\nabc\r\n0\r\n\r\n",
        "3;a\rb\r\nabc\r\n0\r\n\r\n",
        "3;\x01\r\nabc\r\n0\r\n\r\n",
        "3\r\nabc\r\n0\r\n folded: x\r\n\r\n",
        "3\r\nabc\r\n0\r\nno colon\r\n\r\n",
        "3\r\nabc\r\n0\r\nX : y\r\n\r\n",
        "3\r\nabc\r\n0\r\nX: y\n\r\n",
        "3\r\nabc\r\n0\n\r\n",
        "3\r\nabc\r\n0\r\n\n",
        "1_0\r\n",
    };
    for (size_t i = 0; i < array_length(malformed); i++) expect_body(malformed[i], -400);
}

static void test_chunk_limits(void **state)
{
    (void)state;
    static char text[400 * 1024];
    for (int d = -1; d <= 1; d++) { /* decoded size */
        int n = sprintf(text, "1f4\r\n%0500d\r\n%x\r\n", 0, (unsigned)(500 + d));
        memset(text + n, 'y', (size_t)(500 + d));
        sprintf(text + n + 500 + d, "\r\n0\r\n\r\n");
        expect_body(text, d > 0 ? -413 : 1000 + d);
    }
    int n = sprintf(text, "1;a="); /* an endless extension */
    memset(text + n, 'e', sizeof text - (size_t)n - 1);
    assert_int_equal(decode(text, sizeof text - 1, 4096, NULL), -413);
    n = sprintf(text, "0\r\n");
    for (int d = -1; d <= 1; d++) { /* trailers: 4096 bytes with the last line */
        int m = n + sprintf(text + n, "T: ");
        int fill = 4096 + d - 3 - 4;
        memset(text + m, 't', (size_t)fill);
        sprintf(text + m + fill, "\r\n\r\n");
        assert_int_equal(decode(text, strlen(text), 4096, NULL), d > 0 ? -431 : 0);
    }
    assert_int_equal(decode("ffffffff\r\n", 10, 10, NULL), -413);
}

static void test_many_chunks_are_refused(void **state)
{
    (void)state;
    struct chunk_gate gate = {0};
    struct refusal why = {0};
    int64_t status = 0;
    int count = 0;
    while (status >= 0 && count <= CHUNKS_MAX) {
        status = chunk_gate_feed(&gate, "10\r\n0123456789abcdef\r\n", 22, UINT64_MAX, &why);
        count++;
    }
    assert_int_equal(count, CHUNKS_MAX + 1);
    assert_int_equal(why.http_status, 413);
}

/* ---- targets ---- */

static void expect_target(const char *text, const char *path, const char *query)
{
    struct arena arena;
    struct refusal why;
    struct target target;
    arena_init(&arena, 4096);
    int status = target_parse(text, strlen(text), HTTP_METHOD_GET, &arena, &target, &why);
    if (path) {
        assert_int_equal(status, 0);
        assert_string_equal(target.path, path);
        assert_string_equal(target.query, query);
    } else {
        assert_int_equal(status, -1);
        assert_int_equal(why.http_status, 400);
    }
    arena_deinit(&arena);
}

static void test_targets(void **state)
{
    (void)state;
    expect_target("/", "/", "");
    expect_target("/v1/models?x=1&y=%20", "/v1/models", "x=1&y=%20");
    expect_target("/v1/responses/r?include[]=a&include[]=b", "/v1/responses/r", "include[]=a&include[]=b");
    expect_target("/a%2Fb%c3%A9", "/a/b\xc3\xa9", "");
    expect_target("http://host:80/p?q", "/p", "q");
    expect_target("HTTP://host", "/", "");
    expect_target("http://host?q", "/", "q");
    static const char *const refused[] = {"*",
                                          "host:80",
                                          "http://",
                                          "http:///p",
                                          "http://u@h/p",
                                          "http://a@b@c/",
                                          "/%",
                                          "/%2",
                                          "/%2g",
                                          "/%00",
                                          "/%0a",
                                          "/%7f",
                                          "/%ff",
                                          "/%c0%af",
                                          "/a[b]",
                                          "/[",
                                          "/?%2",
                                          "/?%zz",
                                          "http://[::g]/p",
                                          "http://a%zz/",
                                          "/%ed%a0%80",
                                          "/%c2%85",
                                          "/%f4%90%80%80",
                                          "/%e2%82",
                                          "ftp://h/p"};
    for (size_t i = 0; i < array_length(refused); i++) expect_target(refused[i], NULL, NULL);
}

/* Whatever one byte is put anywhere into a good request: no crash, and what is accepted is read alike by both
 * readers (or judge would have said 400), in one piece or byte by byte. */
static void test_every_single_byte_mutation(void **state)
{
    (void)state;
    static const char good[] =
        "POST /v1/x HTTP/1.1\r\nHost: a:80\r\nContent-Length: 3\r\nConnection: close\r\n\r\n";
    char text[sizeof good];
    struct gate_head head;
    int num_accepted = 0, num_refused = 0;
    for (size_t i = 0; i < sizeof good - 1; i++) {
        for (int byte = 0; byte < 256; byte++) {
            memcpy(text, good, sizeof good);
            text[i] = (char)byte;
            int whole = judge(text, sizeof good - 1, SIZE_MAX / 2, &head);
            assert_int_equal(judge(text, sizeof good - 1, 1, &head), whole);
            num_accepted += whole == 200;
            num_refused += whole >= 400;
        }
    }
    assert_true(num_accepted > 1000 && num_refused > 10000);
}

static void test_random_mutations(void **state)
{
    (void)state;
    static const char *const tokens[] = {"\r\n",
                                         "\n",
                                         "\r",
                                         " ",
                                         "\t",
                                         ":",
                                         "Host: b\r\n",
                                         "Content-Length: 4\r\n",
                                         "Transfer-Encoding: chunked\r\n",
                                         ",",
                                         "chunked",
                                         "0",
                                         "\r\n\r\n",
                                         ";",
                                         "HTTP/1.0",
                                         "%00",
                                         "\x0b",
                                         "\x80",
                                         "Connection: close\r\n"};
    static const char good[] = "POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nX-A: b\r\n\r\n";
    struct gate_head head;
    int num_accepted = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        char text[512];
        size_t n = sizeof good - 1;
        memcpy(text, good, n);
        uint32_t num_edits = 1 + rng_philox(1, i, 0).word[0] % 3;
        for (uint32_t k = 0; k < num_edits; k++) {
            struct rng_block r = rng_philox(2, i, k);
            const char *token = tokens[r.word[0] % array_length(tokens)];
            size_t at = r.word[1] % (n + 1), token_bytes = strlen(token);
            size_t cut = r.word[2] % 3 == 0 ? min_of(n - at, (size_t)(r.word[3] % 8)) : 0;
            memmove(text + at + token_bytes, text + at + cut, n - at - cut);
            memcpy(text + at, token, token_bytes);
            n = n - cut + token_bytes;
        }
        int whole = judge(text, n, SIZE_MAX / 2, &head);
        assert_int_equal(judge(text, n, 1, &head), whole);
        num_accepted += whole == 200;
    }
    assert_true(num_accepted > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepts),
        cmocka_unit_test(test_reads_what_it_accepts),
        cmocka_unit_test(test_incomplete_heads_wait),
        cmocka_unit_test(test_limits_are_exact),
        cmocka_unit_test(test_endless_heads_are_refused_early),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_chunk_limits),
        cmocka_unit_test(test_many_chunks_are_refused),
        cmocka_unit_test(test_targets),
        cmocka_unit_test(test_every_single_byte_mutation),
        cmocka_unit_test(test_random_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
