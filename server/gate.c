/* gate.c - which heads are let through.
 *
 * The rule behind each refusal: wherever two readers of HTTP are known to disagree (request smuggling), there
 * is one accepted reading and everything else is 400. A header that decides framing, routing or identity may
 * occur once. Sources: RFC 9112 sections 2, 3, 5, 6 and 11.2; the advisories about llhttp, Node and HAProxy
 * since 2021. */
#include "server/gate.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"

enum { REQUEST_LINE_REST_BYTES = 32 }; /* a method, two spaces and the version */

bool gate_is_token_char(unsigned char c)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr(others, c) != NULL);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool equals_nocase(const char *bytes, size_t n, const char *text)
{
    return n == strlen(text) && !strncasecmp(bytes, text, n);
}

/* ---- scanning ---- */

static int too_large(const struct gate_scan *scan, const struct gate_limits *limits, struct refusal *why)
{
    if (scan->num_lines == 0)
        return refuse(why, 414, "the request target is longer than %zu bytes (--max-url-bytes)",
                      limits->max_url_bytes);
    return refuse(why, 431, "the request line and headers are longer than %zu bytes (--max-header-bytes)",
                  limits->max_header_bytes);
}

/* The line that ends at offset end (its CR). Returns 1 when it is the empty line that ends the head. */
static int end_line(struct gate_scan *scan, size_t end, const struct gate_limits *limits, struct refusal *why)
{
    bool empty = end == scan->line_start;
    if (empty && scan->num_lines == 0) {
        if (scan->head_start > 0) return refuse(why, 400, "more than one empty line before the request line");
        scan->head_start = end + 2;
    } else if (empty) {
        return 1;
    } else if (++scan->num_lines > 1 + limits->max_headers) {
        return refuse(why, 431, "more than %d headers (--max-headers)", limits->max_headers);
    }
    scan->line_start = end + 2;
    return 0;
}

static int check_byte(const struct gate_scan *scan, const char *bytes, size_t i, struct refusal *why)
{
    enum { TLS_HANDSHAKE = 0x16 };
    unsigned char c = (unsigned char)bytes[i];
    if (c == TLS_HANDSHAKE && i == 0)
        return refuse(why, 400,
                      "TLS begins here, and this server speaks plain HTTP: ask http://, or a proxy "
                      "that ends TLS");
    if (c == '\n') return refuse(why, 400, "a line ends with a bare LF; CR LF is expected");
    if ((c < ' ' && c != '\t') || c == 0x7f)
        return refuse(why, 400, "the request head holds a control character");
    if (i != scan->line_start) return 0;
    if (scan->num_lines > 0 && is_blank((char)c))
        return refuse(why, 400, "a header line begins with a blank (folded headers are not accepted)");
    if (scan->num_lines == 0 && !gate_is_token_char(c))
        return refuse(why, 400, "an HTTP/1.1 request line is expected");
    return 0;
}

int64_t gate_scan(struct gate_scan *scan, const char *bytes, size_t n, const struct gate_limits *limits,
                  struct refusal *why)
{
    size_t i = scan->num_scanned;
    for (; i < n; i++) {
        size_t line_max = limits->max_url_bytes + REQUEST_LINE_REST_BYTES;
        if (i >= limits->max_header_bytes || (scan->num_lines == 0 && i - scan->line_start > line_max))
            return too_large(scan, limits, why);
        if (bytes[i] != '\r') {
            if (check_byte(scan, bytes, i, why)) return -1;
            continue;
        }
        if (i + 1 == n) break; /* the LF has not arrived yet */
        if (bytes[i + 1] != '\n') return refuse(why, 400, "a CR is not followed by LF");
        if (i + 2 > limits->max_header_bytes) return too_large(scan, limits, why);
        int ended = end_line(scan, i, limits, why);
        if (ended < 0) return -1;
        i++;
        if (ended) {
            scan->num_scanned = i + 1;
            return (int64_t)(i + 1);
        }
    }
    scan->num_scanned = i;
    return 0;
}

/* ---- the request line ---- */

static bool equals(const char *bytes, size_t n, const char *text)
{
    return n == strlen(text) && !memcmp(bytes, text, n);
}

static int check_method(const char *bytes, size_t n, enum http_method *out, struct refusal *why)
{
    static const struct {
        const char *name;
        enum http_method method;
    } known[] = {{"GET", HTTP_METHOD_GET},         {"HEAD", HTTP_METHOD_HEAD},     {"POST", HTTP_METHOD_POST},
                 {"OPTIONS", HTTP_METHOD_OPTIONS}, {"DELETE", HTTP_METHOD_DELETE}, {"PUT", HTTP_METHOD_PUT},
                 {"PATCH", HTTP_METHOD_PATCH},     {"TRACE", HTTP_METHOD_TRACE}};
    for (size_t i = 0; i < array_length(known); i++) {
        if (!equals(bytes, n, known[i].name)) continue;
        *out = known[i].method;
        return 0;
    }
    if (equals(bytes, n, "CONNECT")) return refuse(why, 405, "this server is no proxy");
    for (size_t i = 0; i < n; i++)
        if (!gate_is_token_char((unsigned char)bytes[i]))
            return refuse(why, 400, "the method holds a character that methods cannot have");
    return refuse(why, n > 0 ? 501 : 400, "the method is not one of GET, HEAD, POST, OPTIONS, DELETE");
}

/* A higher minor version is read as the highest known one (RFC 9110, 2.5). */
static int check_version(const char *bytes, size_t n, struct gate_head *out, struct refusal *why)
{
    if (n != 8 || memcmp(bytes, "HTTP/", 5) != 0 || !is_digit(bytes[5]) || bytes[6] != '.' ||
        !is_digit(bytes[7]))
        return refuse(why, 400, "the request line does not end in HTTP/1.1 or HTTP/1.0");
    if (bytes[5] != '1') return refuse(why, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    out->version_digit = bytes + 7;
    out->version_minor = bytes[7] > '0';
    return 0;
}

static int check_target(const char *bytes, size_t n, const struct gate_limits *limits, struct refusal *why)
{
    if (n > limits->max_url_bytes)
        return refuse(why, 414, "the request target is longer than %zu bytes (--max-url-bytes)",
                      limits->max_url_bytes);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c <= ' ' || c >= 0x7f || strchr("\"<>\\^`{|}#", c))
            return refuse(why, 400, "the request target holds a character that must be percent-encoded");
    }
    return n == 0 ? refuse(why, 400, "the request line has no target") : 0;
}

static int check_request_line(const char *line, size_t n, const struct gate_limits *limits,
                              struct gate_head *out, struct refusal *why)
{
    const char *first = memchr(line, ' ', n);
    if (!first) return refuse(why, 400, "an HTTP/1.1 request line is expected");
    if (check_method(line, (size_t)(first - line), &out->method, why)) return -1;
    out->target = first + 1;
    size_t rest = n - (size_t)(out->target - line);
    const char *second = memchr(out->target, ' ', rest);
    if (!second) return refuse(why, 400, "the request line has no HTTP version");
    out->target_bytes = (size_t)(second - out->target);
    if (check_target(out->target, out->target_bytes, limits, why)) return -1;
    return check_version(second + 1, rest - out->target_bytes - 1, out, why);
}

/* ---- headers ---- */

static int split_header(const char *line, size_t n, struct gate_header *out, struct refusal *why)
{
    size_t name_bytes = 0;
    while (name_bytes < n && gate_is_token_char((unsigned char)line[name_bytes])) name_bytes++;
    if (name_bytes == 0 || name_bytes == n || line[name_bytes] != ':')
        return refuse(why, 400, "a header line is not of the form name: value");
    size_t begin = name_bytes + 1, end = n;
    while (begin < end && is_blank(line[begin])) begin++;
    while (end > begin && is_blank(line[end - 1])) end--;
    *out = (struct gate_header){line, line + begin, (uint32_t)name_bytes, (uint32_t)(end - begin)};
    return 0;
}

static int split_headers(const char *head, size_t n, const struct gate_limits *limits, struct gate_head *out,
                         struct refusal *why)
{
    out->num_headers = 0;
    for (size_t at = 0; at + 2 < n;) {
        const char *end = memmem(head + at, n - at, "\r\n", 2);
        assert_always(end && out->num_headers < limits->max_headers); /* gate_scan has counted them */
        size_t line_bytes = (size_t)(end - head) - at;
        if (split_header(head + at, line_bytes, &out->headers[out->num_headers], why)) return -1;
        out->num_headers++;
        at += line_bytes + 2;
    }
    return 0;
}

/* The only header of this name, NULL if there is none. */
static int find_single(const struct gate_head *head, const char *name, struct gate_header **out,
                       struct refusal *why)
{
    *out = NULL;
    for (int i = 0; i < head->num_headers; i++) {
        struct gate_header *h = &head->headers[i];
        if (!equals_nocase(h->name, h->name_bytes, name)) continue;
        if (*out) return refuse(why, 400, "the header %s occurs more than once", name);
        *out = h;
    }
    return 0;
}

/* ---- lists ---- */

/* The next member of a comma-separated list that is not empty, without the blanks around it. False: no more.
 * *at moves behind it. */
static bool next_member(const char **at, const char *end, const char **member, size_t *n)
{
    while (*at < end) {
        const char *begin = *at, *comma = memchr(begin, ',', (size_t)(end - begin));
        const char *stop = comma ? comma : end;
        *at = comma ? comma + 1 : end;
        while (begin < stop && is_blank(*begin)) begin++;
        while (stop > begin && is_blank(stop[-1])) stop--;
        *member = begin;
        *n = (size_t)(stop - begin);
        if (*n > 0) return true;
    }
    return false;
}

/* ---- hosts ---- */

static bool is_address_v6(const char *text, size_t n)
{
    char copy[INET6_ADDRSTRLEN];
    struct in6_addr address;
    if (n >= sizeof copy) return false;
    memcpy(copy, text, n);
    copy[n] = '\0';
    return inet_pton(AF_INET6, copy, &address) == 1;
}

/* reg-name: also IPv4 addresses look like one. */
static bool is_name(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '%') {
            if (n - i < 3 || !is_hex(text[i + 1]) || !is_hex(text[i + 2])) return false;
            i += 2;
        } else if (!is_letter(text[i]) && !is_digit(text[i]) && !strchr("-._~!$&'()*+,;=", text[i])) {
            return false;
        }
    }
    return n > 0;
}

size_t gate_host_bytes(const char *text, size_t n)
{
    const char *end = n > 0 && text[0] == '[' ? memchr(text, ']', n) : NULL;
    if (end) return (size_t)(end + 1 - text);
    const char *colon = memchr(text, ':', n);
    return colon ? (size_t)(colon - text) : n;
}

/* A name, an IPv4 address or an [IPv6 address], and a port of up to five digits. */
bool gate_is_host(const char *text, size_t n)
{
    if (memchr(text, '\0', n)) return false;
    size_t host_bytes = gate_host_bytes(text, n);
    bool bracketed = host_bytes > 1 && text[0] == '[';
    if (bracketed ? !is_address_v6(text + 1, host_bytes - 2) : !is_name(text, host_bytes)) return false;
    if (host_bytes == n) return true;
    if (text[host_bytes] != ':' || n - host_bytes > 6) return false;
    for (size_t i = host_bytes + 1; i < n; i++)
        if (!is_digit(text[i])) return false;
    return true;
}

static int check_host(struct gate_head *head, struct refusal *why)
{
    struct gate_header *host;
    if (find_single(head, "host", &host, why)) return -1;
    if (!host && head->version_minor == 1) return refuse(why, 400, "an HTTP/1.1 request needs a Host header");
    if (host && !gate_is_host(host->value, host->value_bytes))
        return refuse(why, 400, "the Host header is not a host name or address with an optional port");
    return 0;
}

static int parse_content_length(const struct gate_header *h, const struct gate_limits *limits, uint64_t *out,
                                struct refusal *why)
{
    uint64_t value = 0;
    bool ok = h->value_bytes > 0;
    for (uint32_t i = 0; i < h->value_bytes && ok; i++)
        ok = is_digit(h->value[i]) && checked_mul(value, 10, &value) &&
             checked_add(value, (uint64_t)(h->value[i] - '0'), &value);
    if (!ok) return refuse(why, 400, "Content-Length is not a decimal number of bytes");
    if (value > limits->max_body_bytes)
        return refuse(why, 413, "the body is longer than %llu bytes (--max-body-bytes)",
                      (unsigned long long)limits->max_body_bytes);
    *out = value;
    return 0;
}

/* A body whose last coding is not chunked has no end that could be relied on (RFC 9112, 6.3). */
static int check_transfer_encoding(struct gate_header *h, struct gate_head *head, struct refusal *why)
{
    if (head->version_minor == 0) return refuse(why, 400, "Transfer-Encoding does not exist in HTTP/1.0");
    const char *at = h->value, *end = at + h->value_bytes, *member;
    size_t n;
    int num_members = 0, num_chunked = 0;
    bool last_is_chunked = false;
    while (next_member(&at, end, &member, &n)) {
        last_is_chunked = equals_nocase(member, n, "chunked");
        num_chunked += last_is_chunked;
        num_members++;
        h->value = member;
        h->value_bytes = (uint32_t)n;
    }
    if (!last_is_chunked) return refuse(why, 400, "the last Transfer-Encoding is not chunked");
    if (num_chunked > 1) return refuse(why, 400, "Transfer-Encoding: chunked more than once");
    if (num_members > 1) return refuse(why, 501, "the only Transfer-Encoding understood is chunked");
    head->chunked = true;
    return 0;
}

/* One of DELETE says nothing that is read here, but clients send it. */
static bool may_have_body(enum http_method method)
{
    return method == HTTP_METHOD_POST || method == HTTP_METHOD_PUT || method == HTTP_METHOD_PATCH ||
           method == HTTP_METHOD_DELETE;
}

static int check_framing(struct gate_head *head, const struct gate_limits *limits, struct refusal *why)
{
    struct gate_header *length, *encoding;
    if (find_single(head, "content-length", &length, why)) return -1;
    if (find_single(head, "transfer-encoding", &encoding, why)) return -1;
    head->chunked = false;
    head->framing = encoding ? encoding : length;
    head->content_length = 0;
    if (length && encoding)
        return refuse(why, 400, "Content-Length and Transfer-Encoding exclude each other");
    if (encoding && check_transfer_encoding(encoding, head, why)) return -1;
    if (length && parse_content_length(length, limits, &head->content_length, why)) return -1;
    bool has_body = head->chunked || head->content_length > 0;
    if (has_body && !may_have_body(head->method))
        return refuse(why, 400, "a request of this method has no body");
    return 0;
}

static int check_expect(struct gate_head *head, struct refusal *why)
{
    bool wants_continue = false;
    for (int i = 0; i < head->num_headers; i++) {
        const struct gate_header *h = &head->headers[i];
        if (!equals_nocase(h->name, h->name_bytes, "expect")) continue;
        const char *at = h->value, *end = at + h->value_bytes, *member;
        for (size_t n; next_member(&at, end, &member, &n); wants_continue = true)
            if (!equals_nocase(member, n, "100-continue"))
                return refuse(why, 417, "the only Expect understood is 100-continue");
    }
    bool has_body = head->chunked || head->content_length > 0;
    head->expect_continue = wants_continue && has_body && head->version_minor > 0;
    return 0;
}

static bool has_member(const struct gate_header *h, const char *text)
{
    const char *at = h->value, *end = at + h->value_bytes, *member;
    size_t n;
    while (next_member(&at, end, &member, &n))
        if (equals_nocase(member, n, text)) return true;
    return false;
}

/* Upgrade is not looked at: a server that does not change the protocol answers in this one. */
static void read_connection(struct gate_head *head)
{
    bool close = false, keep = false;
    for (int i = 0; i < head->num_headers; i++) {
        const struct gate_header *h = &head->headers[i];
        if (!equals_nocase(h->name, h->name_bytes, "connection")) continue;
        close = close || has_member(h, "close");
        keep = keep || has_member(h, "keep-alive");
    }
    head->keep_alive = !close && (head->version_minor > 0 || keep);
}

/* Headers that say who is asking or what the body is: the first reader and the last must see the same one. */
static int check_singles(const struct gate_head *head, struct refusal *why)
{
    static const char *const names[] = {"authorization", "x-api-key", "content-type", "content-encoding"};
    struct gate_header *ignored;
    for (size_t i = 0; i < array_length(names); i++)
        if (find_single(head, names[i], &ignored, why)) return -1;
    return 0;
}

int gate_check(const char *head, size_t n, const struct gate_limits *limits, struct gate_head *out,
               struct refusal *why)
{
    const char *end = memmem(head, n, "\r\n", 2);
    if (!end) return refuse(why, 400, "an HTTP/1.1 request line is expected");
    size_t line_bytes = (size_t)(end - head);
    if (check_request_line(head, line_bytes, limits, out, why)) return -1;
    if (split_headers(end + 2, n - line_bytes - 2, limits, out, why)) return -1;
    if (check_host(out, why) || check_framing(out, limits, why) || check_expect(out, why)) return -1;
    if (check_singles(out, why)) return -1;
    read_connection(out);
    return 0;
}
