/* test_http_cases.c - RFC 9110 and RFC 9112, case by case over real sockets: status, framing of the answer,
 * and what becomes of the connection. The table is http_cases.h; here are the cases that are made: limits at
 * their edges, every byte where the grammar names some, and methods, versions and framings in all
 * combinations.
 *
 * Behind each request stands another one. It must be answered exactly when the connection is to be kept, and
 * whatever is sent as an answer must itself be a good one (check_response). */
#include "tests/unit/server/http_rig.h"

#include "tests/unit/server/http_cases.h"

static const char next_request[] = "GET /smuggled HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

enum { WIRE_BYTES_MAX = 64 * 1024, ANSWERS_MAX = 8 };

/* ---- answers ---- */

struct answer {
    int status;
    const char *head, *body;
    size_t head_bytes, body_bytes;
    bool closes;
};

struct answers {
    int num;
    struct answer answer[ANSWERS_MAX];
    char *text;
    const char *rest; /* not consumed by an answer */
};

/* The only line of this name in the head, NULL if there is none. */
static const char *field_of(const struct answer *a, const char *name)
{
    const char *found = NULL;
    size_t n = strlen(name);
    for (const char *line = strstr(a->head, "\r\n") + 2; line < a->head + a->head_bytes - 2;
         line = strstr(line, "\r\n") + 2) {
        if (strncasecmp(line, name, n) != 0 || line[n] != ':') continue;
        assert_null(found);
        found = line + n + 2;
    }
    return found;
}

/* Sun, 06 Nov 1994 08:49:37 GMT */
static bool is_date(const char *text)
{
    struct tm tm;
    const char *end = strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    return end == text + 29 && end[0] == '\r' && end[1] == '\n';
}

/* Rules for any answer of a server that has a clock and persistent connections. */
static void check_response(const struct answer *a, bool to_head)
{
    const char *length = field_of(a, "Content-Length"), *coding = field_of(a, "Transfer-Encoding");
    assert_true(a->status >= 200 && a->status <= 599);
    assert_true(field_of(a, "Date") && is_date(field_of(a, "Date")));
    assert_non_null(field_of(a, "x-request-id"));
    assert_true(!(length && coding));
    if (a->status == 204) assert_true(!length && !coding && a->body_bytes == 0);
    if (to_head) assert_int_equal(a->body_bytes, 0);
    if (a->status == 405) assert_non_null(field_of(a, "Allow"));
    if (a->status == 401) assert_non_null(field_of(a, "WWW-Authenticate"));
    if (a->status == 429 || a->status == 503) assert_non_null(field_of(a, "Retry-After"));
    if (a->status >= 400 && !to_head) {
        assert_non_null(strstr(field_of(a, "Content-Type"), "application/json\r\n"));
        assert_memory_equal(a->body, "{\"error\":{\"message\":\"", 21);
    }
}

/* The size of the body at text, with its framing. */
static size_t body_size(const struct answer *a, const char *text, bool to_head)
{
    const char *length = field_of(a, "Content-Length"), *coding = field_of(a, "Transfer-Encoding");
    if (to_head || a->status < 200 || a->status == 204) return 0;
    if (length) return strtoul(length, NULL, 10);
    if (!coding) return strlen(text); /* up to the end of the connection */
    const char *at = text;
    for (size_t n = 1; n > 0;) {
        char *end;
        n = strtoul(at, &end, 16);
        assert_memory_equal(end, "\r\n", 2);
        at = end + 2 + n;
        assert_memory_equal(at, "\r\n", 2);
        at += 2;
    }
    return (size_t)(at - text);
}

/* first_to_head: the first request's method is HEAD. */
static struct answers read_answers(char *text, bool first_to_head)
{
    struct answers all = {.text = text, .rest = text};
    int num_final = 0;
    while (*all.rest && all.num < ANSWERS_MAX) {
        struct answer *a = &all.answer[all.num];
        const char *end = strstr(all.rest, "\r\n\r\n");
        bool to_head = first_to_head && num_final == 0;
        if (!end || sscanf(all.rest, "HTTP/1.1 %d ", &a->status) != 1) break;
        a->head = all.rest;
        a->head_bytes = (size_t)(end + 4 - all.rest);
        a->body = end + 4;
        const char *connection = field_of(a, "Connection");
        a->closes = connection && !strncmp(connection, "close\r\n", 7);
        a->body_bytes = body_size(a, a->body, to_head);
        if (strlen(a->body) < a->body_bytes) break;
        if (a->status >= 200) {
            check_response(a, to_head);
            num_final++;
        }
        all.rest = a->body + a->body_bytes;
        all.num++;
    }
    return all;
}

/* ---- cases ---- */

struct wire {
    char bytes[WIRE_BYTES_MAX];
    size_t n;
};

static void put(struct wire *w, const char *bytes, size_t n)
{
    assert_true(w->n + n < sizeof w->bytes);
    memcpy(w->bytes + w->n, bytes, n);
    w->n += n;
    w->bytes[w->n] = '\0';
}

/* As http_cases.h writes them. */
static void put_case(struct wire *w, const char *text)
{
    for (; *text; text++) {
        if (*text == '\n')
            put(w, "\r\n", 2);
        else if (*text == '\f')
            put(w, "\n", 1);
        else
            put(w, *text == '\x1a' ? "" : text, 1);
    }
}

static bool begins_with_head(const struct wire *w)
{
    const char *at = w->bytes + strspn(w->bytes, "\r\n");
    return !strncmp(at, "HEAD ", 5);
}

static char *exchange_wire(const struct rig *rig, const struct wire *w, bool in_pieces)
{
    int fd = client_connect(rig), one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (size_t i = 0; in_pieces && i < w->n; i++) client_send(fd, w->bytes + i, 1);
    if (!in_pieces) client_send(fd, w->bytes, w->n);
    client_send(fd, next_request, sizeof next_request - 1);
    char *text = client_read(fd, NULL);
    close(fd);
    return text;
}

/* NULL, or what is wrong. */
static const char *judge(const struct http_case *c, const struct answers *all)
{
    int num_interim = 0;
    while (num_interim < all->num && all->answer[num_interim].status < 200) num_interim++;
    int num_final = all->num - num_interim;
    const struct answer *a = &all->answer[num_interim];
    char *copy;
    if (num_final == 0) return "no answer";
    if (*all->rest) return "bytes that are no answer";
    if (num_interim != c->num_interim) return "another number of interim answers";
    if (a->status != c->status) return "another status";
    if (a->closes != (c->after == CLOSED)) return "Connection: close, or its absence";
    if (num_final != (c->after == KEPT ? 2 : 1)) return "what became of the connection";
    if (c->after == KEPT && strcmp(a[1].body, "smuggled") != 0) return "the answer to the next request";
    copy = strndup(a->head, a->head_bytes + a->body_bytes);
    bool has = !c->has || strstr(copy, c->has), lacks = !c->lacks || !strstr(copy, c->lacks);
    free(copy);
    return has && lacks ? NULL : "what must (or must not) be in the answer";
}

static int num_wrong;

static void end(struct rig *rig)
{
    rig_end(rig);
    assert_int_equal(num_wrong, 0);
}

static void check_wire(const struct rig *rig, const char *section, const struct http_case *c,
                       const struct wire *w, bool in_pieces)
{
    struct answers all = read_answers(exchange_wire(rig, w, in_pieces), begins_with_head(w));
    const char *wrong = judge(c, &all);
    if (wrong && ++num_wrong <= 20)
        print_error("%s: expected %d, %s; wrong: %s\n%s\ngot:\n%s", section, c->status,
                    c->after == KEPT ? "kept" : "closed", wrong, w->bytes, all.text);
    free(all.text);
}

static void check_table(bool in_pieces, size_t step)
{
    struct rig rig;
    static struct wire w;
    const char *section = "";
    int num_cases = 0;
    num_wrong = 0;
    rig_init(&rig);
    rig_start(&rig);
    for (size_t i = 0; i < array_length(http_cases); i++) {
        const struct http_case *c = &http_cases[i];
        if (!c->bytes) section = c->has;
        if (!c->bytes || i % step != 0) continue;
        w.n = 0;
        put_case(&w, c->bytes);
        check_wire(&rig, section, c, &w, in_pieces);
        num_cases++;
    }
    end(&rig);
    if (step == 1) assert_true(num_cases >= 450);
    print_message("%d cases%s\n", num_cases, in_pieces ? ", byte by byte" : "");
}

static void test_table(void **state)
{
    (void)state;
    check_table(false, 1);
}

static void test_table_byte_by_byte(void **state)
{
    (void)state;
    check_table(true, 3);
}

/* ---- limits: one less, exactly that many, one more ---- */

/* "GET /ok?qqq HTTP/1.1" with a target of target_bytes, num_fields in all, head_bytes in all (0: as it
 * comes).
 */
static void put_head(struct wire *w, size_t target_bytes, int num_fields, size_t head_bytes)
{
    static const char last[] = "Z: ";
    w->n = 0;
    put(w, "GET /ok?", 8);
    for (size_t i = 4; i < target_bytes; i++) put(w, "q", 1);
    put_case(w, " HTTP/1.1\nHost: a\n");
    for (int i = 2; i < num_fields; i++) put_case(w, "A: b\n");
    put_case(w, last);
    size_t end_bytes = 4;
    while (head_bytes > 0 && w->n + end_bytes < head_bytes) put(w, "z", 1);
    put_case(w, "\n\n");
}

static void test_limits(void **state)
{
    (void)state;
    struct rig rig;
    static struct wire w;
    char text[64];
    num_wrong = 0;
    rig_init(&rig);
    rig.config.max_body_bytes = 1000;
    rig.config.max_requests_per_connection = 2;
    rig_start(&rig);
    for (int d = -1; d <= 1; d++) {
        put_head(&w, (size_t)(8192 + d), 2, 0);
        check_wire(&rig, "target of 8,192 bytes", &(struct http_case){"", d > 0 ? 414 : 200, d > 0, NULL}, &w,
                   false);
        put_head(&w, 4, 100 + d, 0);
        check_wire(&rig, "100 fields", &(struct http_case){"", d > 0 ? 431 : 200, d > 0, NULL}, &w, false);
        put_head(&w, 4, 2, (size_t)(16384 + d));
        check_wire(&rig, "head of 16,384 bytes", &(struct http_case){"", d > 0 ? 431 : 200, d > 0, NULL}, &w,
                   false);
        w.n = 0;
        snprintf(text, sizeof text, "POST /raw HTTP/1.1\nHost: a\nContent-Length: %d\n\n", 1000 + d);
        put_case(&w, text);
        for (int i = 0; i < 1000 + d; i++) put(&w, "x", 1);
        check_wire(&rig, "body of 1,000 bytes", &(struct http_case){"", d > 0 ? 413 : 200, d > 0, NULL}, &w,
                   false);
        w.n = 0;
        put_case(&w, "POST /raw HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n3e7\n");
        for (int i = 0; i < 999; i++) put(&w, "x", 1);
        put_case(&w, d < 0 ? "\n0\n\n" : d == 0 ? "\n1\ny\n0\n\n" : "\n2\nyy\n0\n\n");
        check_wire(&rig, "chunks of 1,000 bytes", &(struct http_case){"", d > 0 ? 413 : 200, d > 0, NULL}, &w,
                   false);
        w.n = 0; /* at most 4,096 bytes of trailers, the empty line included */
        put_case(&w, "POST /raw HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n0\nT: ");
        for (int i = 0; i < 4096 + d - 3 - 4; i++) put(&w, "t", 1);
        put_case(&w, "\n\n");
        check_wire(&rig, "trailers of 4,096 bytes", &(struct http_case){"", d > 0 ? 431 : 200, d > 0, NULL},
                   &w, false);
        w.n = 0; /* sixteen digits of a chunk's size */
        put_case(&w, "POST /raw HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n");
        for (int i = 0; i < 15 + d; i++) put(&w, "0", 1);
        put_case(&w, "3\nabc\n0\n\n");
        check_wire(&rig, "sixteen digits", &(struct http_case){"", d > 0 ? 400 : 200, d > 0, NULL}, &w,
                   false);
    }
    end(&rig);
}

/* RFC 9112, 3: a request line of 8,000 octets should be supported. */
static void test_a_request_line_of_8000_bytes(void **state)
{
    (void)state;
    struct rig rig;
    static struct wire w;
    num_wrong = 0;
    rig_init(&rig);
    rig_start(&rig);
    put_head(&w, 8000 - strlen("GET  HTTP/1.1"), 2, 0);
    assert_int_equal(strcspn(w.bytes, "\r"), 8000);
    check_wire(&rig, "8,000", &(struct http_case){"", 200, KEPT, NULL}, &w, false);
    end(&rig);
}

static void test_requests_of_a_connection(void **state)
{
    (void)state;
    for (int limit = 1; limit <= 2; limit++) {
        struct rig rig;
        static struct wire w;
        num_wrong = 0;
        rig_init(&rig);
        rig.config.max_requests_per_connection = limit;
        rig_start(&rig);
        w.n = 0;
        put_case(&w, "GET /ok HTTP/1.1\nHost: a\n\n");
        check_wire(&rig, "requests of a connection",
                   &(struct http_case){"", 200, limit == 1 ? CLOSED : KEPT, NULL}, &w, false);
        end(&rig);
    }
}

/* ---- every byte, where the grammar names those that may stand ---- */

static bool is_alpha_or_digit(int c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* RFC 9110, 5.6.2 */
static bool is_tchar(int c)
{
    return is_alpha_or_digit(c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* RFC 9110, 5.5: VCHAR, obs-text, and blanks, which may stand anywhere but are not the value's at its ends.
 */
static bool is_field_char(int c)
{
    return c == '\t' || (c >= ' ' && c != 0x7f);
}

/* RFC 3986, 2.2 and 3.3: pchar, and what else a path and a query may hold; '%' only with two digits behind
 * it.
 */
static bool is_path_char(int c)
{
    return is_alpha_or_digit(c) || (c && strchr("-._~!$&'()*+,;=:@/?", c));
}

static bool is_hex_digit(int c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* Puts each of the 256 bytes between the two texts. expected tells the status; what is not 200 closes. */
static int check_every_byte(const struct rig *rig, const char *what, const char *before, const char *after,
                            int (*expected)(int c))
{
    static struct wire w;
    int num_cases = 0;
    for (int c = 0; c < 256; c++) {
        char byte = (char)c;
        int status = expected(c);
        if (status == 0) continue;
        w.n = 0;
        put_case(&w, before);
        put(&w, &byte, 1);
        put_case(&w, after);
        check_wire(rig, what,
                   &(struct http_case){"", status, status == 400 || status == 501 ? CLOSED : KEPT, NULL}, &w,
                   false);
        num_cases++;
    }
    return num_cases;
}

static int in_method(int c)
{
    return c == ' ' || is_tchar(c) ? 501 : 400; /* "GE T": the method GE */
}

static int in_target(int c)
{
    if (c == ' ') return 400;
    return is_path_char(c) ? 200 : 400;
}

/* Brackets, too, as browsers send them. */
static int in_query(int c)
{
    return c == '[' || c == ']' ? 200 : in_target(c);
}

static int in_field_name(int c)
{
    return is_tchar(c) || c == ':' ? 200 : 400; /* "X:Y: z" is the field X */
}

static int in_field_value(int c)
{
    return is_field_char(c) ? 200 : 400;
}

static int in_escape(int c)
{
    return is_hex_digit(c) ? 200 : 400;
}

/* A digit longer is another size: not looked at. */
static int in_chunk_size(int c)
{
    return is_hex_digit(c) || c == ';' ? 0 : 400;
}

static int in_extension_name(int c)
{
    return is_tchar(c) || c == ';' || c == '=' ? 200 : 400;
}

static int in_extension_value(int c)
{
    return is_tchar(c) || c == ';' ? 200 : 400;
}

/* A quotation mark would end the string, a backslash quotes what follows. */
static int in_quoted_string(int c)
{
    return c == '"' ? 400 : is_field_char(c) ? 200 : 400;
}

static int after_backslash(int c)
{
    return is_field_char(c) ? 200 : 400;
}

static void test_every_byte(void **state)
{
    (void)state;
    static const char chunked[] = "POST /raw HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n3";
    char before[256];
    struct rig rig;
    int num_cases = 0;
    num_wrong = 0;
    rig_init(&rig);
    rig_start(&rig);
#define chunk(text) (snprintf(before, sizeof before, "%s%s", chunked, text), before)
    num_cases += check_every_byte(&rig, "method", "GE", "T /ok HTTP/1.1\nHost: a\n\n", in_method);
    num_cases += check_every_byte(&rig, "path", "GET /path/x", "y HTTP/1.1\nHost: a\n\n", in_target);
    num_cases += check_every_byte(&rig, "query", "GET /path/x?x", "y HTTP/1.1\nHost: a\n\n", in_query);
    num_cases += check_every_byte(&rig, "escape", "GET /path/%4", " HTTP/1.1\nHost: a\n\n", in_escape);
    num_cases +=
        check_every_byte(&rig, "field name", "GET /ok HTTP/1.1\nHost: a\nX", "Y: z\n\n", in_field_name);
    num_cases +=
        check_every_byte(&rig, "field value", "GET /ok HTTP/1.1\nHost: a\nX: y", "z\n\n", in_field_value);
    num_cases += check_every_byte(&rig, "chunk size", chunked, "\nabc\n0\n\n", in_chunk_size);
    num_cases += check_every_byte(&rig, "extension name", chunk(";a"), "b\nabc\n0\n\n", in_extension_name);
    num_cases +=
        check_every_byte(&rig, "extension value", chunk(";a=b"), "c\nabc\n0\n\n", in_extension_value);
    num_cases +=
        check_every_byte(&rig, "quoted string", chunk(";a=\"b"), "c\"\nabc\n0\n\n", in_quoted_string);
    num_cases += check_every_byte(&rig, "quoted pair", chunk(";a=\"b\\"), "c\"\nabc\n0\n\n", after_backslash);
#undef chunk
    end(&rig);
    print_message("%d cases\n", num_cases);
}

/* ---- methods, versions, framings, persistence ---- */

/* What RFC 9110 and 9112 say to a request of this method (defined for /raw: POST alone), version and framing.
 */
static struct http_case expectation(const char *method, int minor, const char *framing,
                                    const char *connection)
{
    bool is_post = !strcmp(method, "POST"), chunked = strstr(framing, "chunked"),
         counted = strstr(framing, "3");
    bool defines_content =
        is_post || !strcmp(method, "PUT") || !strcmp(method, "PATCH") || !strcmp(method, "DELETE");
    bool keep = minor ? !strstr(connection, "close") : strstr(connection, "keep-alive") != NULL;
    struct http_case c = {.status = is_post                      ? 200
                                    : !strcmp(method, "OPTIONS") ? 204
                                                                 : 405,
                          .after = keep ? KEPT : CLOSED};
    bool faulty = (chunked && minor == 0) || (chunked && counted) || strstr(framing, "gzip");
    if (faulty || ((chunked || counted) && !defines_content)) {
        c.status = 400;
        c.after = CLOSED;
    } else if ((chunked || counted) && !is_post) {
        c.after = CLOSED; /* refused before its content is read */
    }
    return c;
}

static void test_combinations(void **state)
{
    (void)state;
    static const char *const methods[] = {"GET",   "HEAD",   "POST",    "PUT",
                                          "PATCH", "DELETE", "OPTIONS", "TRACE"};
    static const struct {
        const char *fields, *body;
    } framings[] = {{"", ""},
                    {"Content-Length: 0\n", ""},
                    {"Content-Length: 3\n", "abc"},
                    {"Transfer-Encoding: chunked\n", "3\nabc\n0\n\n"},
                    {"Transfer-Encoding: gzip\n", "abc"},
                    {"Transfer-Encoding: chunked\nContent-Length: 3\n", "abc"},
                    {"Content-Length: 3\nTransfer-Encoding: chunked\n", "3\nabc\n0\n\n"}};
    static const char *const connections[] = {"", "Connection: close\n", "Connection: keep-alive\n"};
    struct rig rig;
    static struct wire w;
    char text[256];
    int num_cases = 0;
    num_wrong = 0;
    rig_init(&rig);
    rig_start(&rig);
    for (size_t m = 0; m < array_length(methods); m++)
        for (int minor = 0; minor < 3; minor++)
            for (size_t f = 0; f < array_length(framings); f++)
                for (size_t k = 0; k < array_length(connections); k++) {
                    struct http_case c = expectation(methods[m], minor, framings[f].fields, connections[k]);
                    snprintf(text, sizeof text, "%s /raw HTTP/1.%d\nHost: a\n%s%s\n%s", methods[m], minor,
                             framings[f].fields, connections[k], framings[f].body);
                    w.n = 0;
                    put_case(&w, text);
                    check_wire(&rig, "combination", &c, &w, false);
                    num_cases++;
                }
    end(&rig);
    print_message("%d cases\n", num_cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_table_byte_by_byte),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_a_request_line_of_8000_bytes),
        cmocka_unit_test(test_requests_of_a_connection),
        cmocka_unit_test(test_every_byte),
        cmocka_unit_test(test_combinations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
