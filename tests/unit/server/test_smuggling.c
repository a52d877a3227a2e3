/* test_smuggling.c - requests that two servers in a row could read differently, over real sockets.
 *
 * Behind each one stands a second request on the same connection. It must never be answered: after an error
 * the connection is closed and nothing more is parsed. Sources: RFC 9112 section 11.2, the advisories named
 * beside the rows, llhttp's and h2o's own tests. */
#include "tests/unit/server/http_rig.h"

#define G "GET /open HTTP/1.1\r\n"
#define P "POST /raw HTTP/1.1\r\nHost: a\r\n"
#define H "Host: a\r\n"
#define E "\r\n"
#define NEXT "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"

struct attack {
    const char *bytes;
    int status;
    size_t num_bytes; /* 0: up to the NUL */
};

static const struct attack attacks[] = {
    /* line ends */
    {"GET /open HTTP/1.1\nHost: a\n\n", 400, 0},
    {G "Host: a\n" E, 400, 0},
    {G H "X: a\rGET /smuggled HTTP/1.1" E E, 400, 0}, /* CVE-2023-30589 */
    {P "X-Abc:\rxTransfer-Encoding: chunked\r\n" E "0\r\n\r\n", 400, 0},
    {G H "\r\rX", 400, 0}, /* CVE-2025-23167 */
    {G H "X: a\r\r\n" E, 400, 0},
    {"\n" G H E, 400, 0},
    {"\r\n\r\n" G H E, 400, 0},
    {"\r" G H E, 400, 0},
    {" " G H E, 400, 0},
    {"\t" G H E, 400, 0},
    /* folded headers, control characters */
    {"GET /open HTTP/1.1\r\nHost: a\r\n Content-Length: 5\r\n" E "hello", 400, 0}, /* CVE-2024-27982 */
    {P "Transfer-Encoding:\r\n chunked\r\n" E "0\r\n\r\n", 400, 0},                /* CVE-2022-32215 */
    {P "Transfer-Encoding: chunked\r\n\tx\r\n" E "0\r\n\r\n", 400, 0},
    {"GET /open HTTP/1.1\r\n Host: a\r\n" E, 400, 0},
    {G "Host: a\0b\r\n" E, 400, sizeof(G "Host: a\0b\r\n" E) - 1},
    {G H "X: \x01\r\n" E, 400, 0},
    {G H "X: \x7f\r\n" E, 400, 0},
    {G H "X\x0b: a\r\n" E, 400, 0},
    {P "Transfer-Encoding: \x0b"
       "chunked\r\n" E "0\r\n\r\n",
     400, 0},
    /* header names */
    {P "Content-Length : 3\r\n" E "abc", 400, 0}, /* CVE-2021-22959 */
    {P "Transfer-Encoding : chunked\r\n" E "0\r\n\r\n", 400, 0},
    {P "Content Length: 3\r\n" E "abc", 400, 0},
    {G H ": a\r\n" E, 400, 0},
    {G H "no colon\r\n" E, 400, 0},
    {G H "X\xff: a\r\n" E, 400, 0},
    {G H "(X): a\r\n" E, 400, 0},
    /* Host */
    {G E, 400, 0},
    {G H H E, 400, 0},
    {G "Host: a\r\nhost: b\r\n" E, 400, 0},
    {G "Host:\r\n" E, 400, 0},
    {G "Host: a/?x=\r\n" E, 400, 0}, /* CVE-2026-48710 */
    {G "Host: a b\r\n" E, 400, 0},
    {G "Host: u@a\r\n" E, 400, 0},
    {G "Host: a:80:80\r\n" E, 400, 0},
    {G "Host: a:port\r\n" E, 400, 0},
    {G "Host: a:800000\r\n" E, 400, 0},
    {G "Host: [::1\r\n" E, 400, 0},
    {G "Host: a,b#\r\n" E, 400, 0},
    {"GET /open HTTP/1.0\r\n" H H E, 400, 0},
    /* versions */
    {"GET /open\r\n" E, 400, 0},
    {"GET /open\r\nHost: a\r\nContent-Length: 5\r\n" E "hello", 400, 0},
    {"GET /open HTTP/0.9\r\n" H E, 505, 0},
    {"GET /open HTTP/2.0\r\n" H E, 505, 0},
    {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 501, 0},
    {"GET /open HTTP/1.1 \r\n" H E, 400, 0},
    {"GET /open HTTP/1.10\r\n" H E, 400, 0},
    {"GET /open http/1.1\r\n" H E, 400, 0},
    {"GET /open HTTP/11\r\n" H E, 400, 0},
    {"GET /open RTSP/1.0\r\n" H E, 400, 0},
    {"GET /open HTTP/1.1, HTTP/1.0\r\n" H E, 400, 0},
    /* methods */
    {"DESCRIBE /open HTTP/1.1\r\n" H E, 501, 0},
    {"get /open HTTP/1.1\r\n" H E, 501, 0},
    {"CONNECT a:80 HTTP/1.1\r\n" H E, 405, 0},
    {"G@T /open HTTP/1.1\r\n" H E, 400, 0},
    {"GETGETGETGETGETGETGET /open HTTP/1.1\r\n" H E, 501, 0},
    /* targets */
    {"GET  /open HTTP/1.1\r\n" H E, 400, 0},
    {"GET /open  HTTP/1.1\r\n" H E, 400, 0},
    {"GET\t/open HTTP/1.1\r\n" H E, 400, 0},
    {"GET /open\tHTTP/1.1\r\n" H E, 400, 0},
    {"GET open HTTP/1.1\r\n" H E, 400, 0},
    {"GET * HTTP/1.1\r\n" H E, 400, 0},
    {"GET http://a@b@c/open HTTP/1.1\r\n" H E, 400, 0},
    {"GET http://user:pass@a/open HTTP/1.1\r\n" H E, 400, 0},
    {"GET /open#frag HTTP/1.1\r\n" H E, 400, 0},
    {"GET /o\xc3\xa9 HTTP/1.1\r\n" H E, 400, 0},
    {"GET /%00 HTTP/1.1\r\n" H E, 400, 0},
    {"GET /%0d%0aX:%20y HTTP/1.1\r\n" H E, 400, 0},
    {"GET /%zz HTTP/1.1\r\n" H E, 400, 0},
    {"GET /\\open HTTP/1.1\r\n" H E, 400, 0},
    /* Content-Length */
    {P "Content-Length: 3\r\nContent-Length: 3\r\n" E "abc", 400, 0},
    {P "Content-Length: 3\r\nContent-Length: 4\r\n" E "abcd", 400, 0},
    {P "Content-Length: 3, 3\r\n" E "abc", 400, 0},
    {P "Content-Length: +3\r\n" E "abc", 400, 0},
    {P "Content-Length: -3\r\n" E "abc", 400, 0},
    {P "Content-Length: 0x3\r\n" E "abc", 400, 0},
    {P "Content-Length: 3 4\r\n" E "abc", 400, 0},
    {P "Content-Length: 3_0\r\n" E "abc", 400, 0},
    {P "Content-Length:\r\n" E "abc", 400, 0},
    {P "Content-Length: 18446744073709551616\r\n" E, 400, 0},
    {P "Content-Length: 99999999999999999999999999\r\n" E, 400, 0},
    {P "Content-Length: 9223372036854775808\r\n" E, 413, 0},
    {P "Content-Length: 8388609\r\n" E, 413, 0},
    {G H "Content-Length: 5\r\n" E "hello", 400, 0},
    {"HEAD /open HTTP/1.1\r\n" H "Content-Length: 5\r\n" E "hello", 400, 0},
    {G H "Transfer-Encoding: chunked\r\n" E "0\r\n\r\n", 400, 0},
    {"OPTIONS * HTTP/1.1\r\n" H "Content-Length: 1\r\n" E "x", 400, 0},
    /* Transfer-Encoding */
    {P "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n" E "0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n" E "0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n" E "0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n" E "0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: gzip, chunked\r\n" E "0\r\n\r\n", 501, 0},
    {P "Transfer-Encoding: chunked, chunked\r\n" E "0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked, identity\r\n" E "0\r\n\r\n", 400, 0}, /* CVE-2022-32213 */
    {P "Transfer-Encoding: identity\r\n" E "0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: xchunked\r\n" E "0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: \"chunked\"\r\n" E "0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked;q=1\r\n" E "0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding:\r\n" E "0\r\n\r\n", 400, 0},
    {"POST /raw HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n" E "0\r\n\r\n", 400, 0},
    /* chunks */
    {P "Transfer-Encoding: chunked\r\n" E "0x3\r\nabc\r\n0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked\r\n" E "3\nabc\n0\n\n", 400, 0}, /* CVE-2022-32214 */
    {P "Transfer-Encoding: chunked\r\n" E "3\r\nabcX0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked\r\n" E "3\r\nabc0\r\n\r\n", 400, 0}, /* CVE-2022-35256 */
    {P "Transfer-Encoding: chunked\r\n" E "3;a\nb\r\nabc\r\n0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked\r\n" E "3;\"\r\n\"\r\nabc\r\n0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked\r\n" E "ffffffffffffffff3\r\nabc\r\n0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked\r\n" E "ffffffff\r\nabc\r\n0\r\n\r\n", 413, 0},
    {P "Transfer-Encoding: chunked\r\n" E "0\r\n X: y\r\n\r\n", 400, 0},
    /* more line ends and controls */
    {G H "X: a\n\r\n" E, 400, 0},
    {G H "X: a\r\n\n", 400, 0},
    {G H "\n" E, 400, 0},
    {G H "X:\ra\r\n" E, 400, 0},
    {G H "X: \x1b[31m\r\n" E, 400, 0},
    {"GET\r\n/open HTTP/1.1\r\n" H E, 400, 0},
    {"GET /open\r HTTP/1.1\r\n" H E, 400, 0},
    {"\0GET /open HTTP/1.1\r\n" H E, 400, sizeof("\0GET /open HTTP/1.1\r\n" H E) - 1},
    {"\xef\xbb\xbfGET /open HTTP/1.1\r\n" H E, 400, 0},
    {"HTTP/1.1 200 OK\r\n" H E, 400, 0},
    /* more folds: the header that frames, in two lines */
    {P "Content-Length: 3\r\n 5\r\n" E "abc", 400, 0},
    {P "Content-Length:\r\n 3\r\n" E "abc", 400, 0},
    {P "X: y\r\n\tTransfer-Encoding: chunked\r\n" E "0\r\n\r\n", 400, 0},
    {G "Host: a\r\n b\r\n" E, 400, 0},
    {G H "X: y\r\n \r\n" E, 400, 0},
    /* names that some reader takes for another */
    {P "Content-Length\t: 3\r\n" E "abc", 400, 0},
    {P "Content-Length\0: 3\r\n" E "abc", 400, sizeof(P "Content-Length\0: 3\r\n" E "abc") - 1},
    {P "\"Content-Length\": 3\r\n" E "abc", 400, 0},
    {P "Transfer-Encoding\x0b: chunked\r\n" E "0\r\n\r\n", 400, 0},
    {P "Transfer\\Encoding: chunked\r\nX[: a\r\n" E "0\r\n\r\n", 400, 0},
    {P "Transfer Encoding: chunked\r\n" E "0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding; chunked\r\n" E "0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding=chunked\r\n" E "0\r\n\r\n", 400, 0},
    {P "Content-Length: 3\r\nTransfer-Encoding\r\n" E "abc", 400, 0},
    /* more lengths */
    {P "Content-Length: 3;\r\n" E "abc", 400, 0},
    {P "Content-Length: \"3\"\r\n" E "abc", 400, 0},
    {P "Content-Length: 3.0\r\n" E "abc", 400, 0},
    {P "Content-Length: 3e0\r\n" E "abc", 400, 0},
    {P "Content-Length: 3,\r\n" E "abc", 400, 0},
    {P "Content-Length: ,3\r\n" E "abc", 400, 0},
    {P "Content-Length: 3\0\r\n" E "abc", 400, sizeof(P "Content-Length: 3\0\r\n" E "abc") - 1},
    {P "Content-Length: \xd9\xa3\r\n" E "abc", 400, 0}, /* the digit three, in Arabic */
    {P "Content-Length: 3\r\ncontent-length: 0\r\n" E "abc", 400, 0},
    {P "Content-Length: 0\r\nContent-Length: 44\r\n" E, 400, 0},
    {P "Content-Length: 3\r\nTransfer-Encoding: identity\r\n" E "abc", 400, 0},
    {P "Content-Length: 6\r\ntransfer-encoding: CHUNKED\r\n" E "0\r\n\r\nX", 400, 0},
    {"OPTIONS /open HTTP/1.1\r\n" H "Content-Length: 3\r\n" E "abc", 400, 0},
    {"DELETE /open HTTP/1.1\r\n" H "Content-Length: 3\r\n" E "abc", 405, 0},
    {"GET /open HTTP/1.0\r\n" H "Content-Length: 3\r\n" E "abc", 400, 0},
    /* more encodings */
    {P "Transfer-Encoding: chunked\r\nTransfer-encoding: x\r\n" E "0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: x, chunked\r\n" E "0\r\n\r\n", 501, 0},
    {P "Transfer-Encoding: chunkedchunked\r\n" E "0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: 'chunked'\r\n" E "0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: chun ked\r\n" E "0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked \x0c\r\n" E "0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: \xe3\x85\xa3"
       "chunked\r\n" E "0\r\n\r\n",
     400, 0},
    {P "Transfer-Encoding: deflate\r\n" E "abc", 400, 0},
    /* more chunks */
    {P "Transfer-Encoding: chunked\r\n" E " 3\r\nabc\r\n0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked\r\n" E "3 \r\nabc\r\n0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked\r\n" E "+3\r\nabc\r\n0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked\r\n" E "-3\r\nabc\r\n0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked\r\n" E "3_\r\nabc\r\n0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked\r\n" E "\r\nabc\r\n0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked\r\n" E ";x\r\nabc\r\n0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked\r\n" E "g\r\nabc\r\n0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked\r\n" E "3\r\nabc\r\n0\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked\r\n" E "3\r\nabc\n0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked\r\n" E "3\rabc\r\n0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked\r\n" E "3;a\rb\r\nabc\r\n0\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked\r\n" E "3;\0\r\nabc\r\n0\r\n\r\n", 400,
     sizeof(P "Transfer-Encoding: chunked\r\n" E "3;\0\r\nabc\r\n0\r\n\r\n") - 1},
    {P "Transfer-Encoding: chunked\r\n" E "0\r\nX: y\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked\r\n" E "0\r\nX y: z\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked\r\n" E "0\r\nno colon\r\n\r\n", 400, 0},
    {P "Transfer-Encoding: chunked\r\n" E "0\r\nX: \x01\r\n\r\n", 400, 0},
    /* more hosts and targets */
    {G "Host: a\r\nHost:\r\n" E, 400, 0},
    {G "Host : a\r\n" E, 400, 0},
    {G "Host: http://a\r\n" E, 400, 0},
    {G "Host: a\\b\r\n" E, 400, 0},
    {G "Host: a:-1\r\n" E, 400, 0},
    {G "Host: \xc3\xa9\r\n" E, 400, 0},
    {"GET http:///open HTTP/1.1\r\n" H E, 400, 0},
    {"GET http://a:port/open HTTP/1.1\r\n" H E, 400, 0},
    {"GET ftp://a/open HTTP/1.1\r\n" H E, 400, 0},
    {"GET ? HTTP/1.1\r\n" H E, 400, 0},
    {"GET /%ff HTTP/1.1\r\n" H E, 400, 0},
    {"GET /open HTTP/1.1 HTTP/1.1\r\n" H E, 400, 0},
    {"GET /open HTTP/1.\r\n" H E, 400, 0},
    {"GET /open HTTP/1,1\r\n" H E, 400, 0},
    {"GET /open HTTP/01.1\r\n" H E, 400, 0},
    {"GET /open HTTP/1.1\x0b\r\n" H E, 400, 0},
    /* who is asking, what is it */
    {G H "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n" E, 400, 0},
    {G H "x-api-key: a\r\nX-API-Key: b\r\n" E, 400, 0},
    {P "Content-Type: a/b\r\nContent-Type: application/json\r\nContent-Length: 2\r\n" E "{}", 400, 0},
    /* Expect */
    {P "Content-Length: 3\r\nExpect: 200-ok\r\n" E "abc", 417, 0},
    {P "Content-Length: 3\r\nExpect: 100-continue, x\r\n" E "abc", 417, 0},
};

static int count_responses(const char *text)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, "HTTP/1.1 ")); at += 9)
        count += at[9] >= '0' && at[9] <= '9';
    return count;
}

static void check_attack(const struct rig *rig, const struct attack *attack)
{
    char bytes[4096];
    size_t n = attack->num_bytes ? attack->num_bytes : strlen(attack->bytes);
    memcpy(bytes, attack->bytes, n);
    memcpy(bytes + n, NEXT, sizeof NEXT);
    char *answer = client_ask(rig, bytes, n + sizeof NEXT - 1);
    if (status_of(answer) != attack->status || count_responses(answer) != 1 || num_smuggled || num_handled)
        fail_msg("expected one %d for:\n%s\ngot:\n%s", attack->status, attack->bytes, answer);
    assert_non_null(strstr(answer, "\r\nConnection: close\r\n"));
    assert_non_null(strstr(answer, "\r\nx-request-id: "));
    bool to_head = !strncmp(attack->bytes, "HEAD ", 5);
    assert_int_equal(strstr(answer, "{\"error\":{\"message\":\"") != NULL, !to_head);
    free(answer);
}

static void test_attacks(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig_start(&rig);
    assert_true(array_length(attacks) >= 150);
    for (size_t i = 0; i < array_length(attacks); i++) check_attack(&rig, &attacks[i]);
    rig_end(&rig);
}

/* The same connection, byte by byte: what is refused does not depend on how it arrives. */
static void test_attacks_in_pieces(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig_start(&rig);
    int one = 1;
    for (size_t i = 0; i < array_length(attacks); i += 5) {
        const struct attack *attack = &attacks[i];
        size_t n = attack->num_bytes ? attack->num_bytes : strlen(attack->bytes);
        int fd = client_connect(&rig);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        for (size_t k = 0; k < n; k++) client_send(fd, attack->bytes + k, 1);
        client_send_text(fd, NEXT);
        char *answer = client_read(fd, NULL);
        if (status_of(answer) != attack->status || num_smuggled)
            fail_msg("expected %d for:\n%s\ngot:\n%s", attack->status, attack->bytes, answer);
        free(answer);
        close(fd);
    }
    rig_end(&rig);
}

/* What a strict reader accepts, and where one request ends and the next begins. */
static void test_honest_neighbours(void **state)
{
    (void)state;
    static const char *const requests[] = {
        P "Content-Length: 35\r\n" E NEXT NEXT,
        P "Transfer-Encoding: chunked\r\n" E "23\r\n" NEXT "\r\n0\r\n\r\n" NEXT,
        P "Transfer-Encoding: Chunked\r\n" E "23;x=y\r\n" NEXT "\r\n0\r\nX-T: a\r\n\r\n" NEXT,
        P "Transfer-Encoding: chunked\r\n" E
          "0\r\nContent-Length: 35\r\n\r\n" NEXT, /* trailers are dropped */
        P "Content-Length: 0\r\n" E NEXT,
        P "Transfer-Encoding: , chunked,\r\n" E "23;x=\"\\\"\"\r\n" NEXT "\r\n0\r\n\r\n" NEXT,
        "\r\n" G H E "\r\n" NEXT,
    };
    struct rig rig;
    rig_init(&rig);
    rig_start(&rig);
    for (size_t i = 0; i < array_length(requests); i++) {
        num_smuggled = num_handled = 0;
        int fd = client_connect(&rig);
        client_send_text(fd, requests[i]);
        shutdown(fd, SHUT_WR);
        char *answer = client_read(fd, NULL);
        if (count_responses(answer) != 2 || num_handled != 1 || num_smuggled != 1)
            fail_msg("row %zu: got:\n%s", i, answer);
        free(answer);
        close(fd);
    }
    rig_end(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attacks),
        cmocka_unit_test(test_attacks_in_pieces),
        cmocka_unit_test(test_honest_neighbours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
