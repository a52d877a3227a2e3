#include "server/proxies.h"

#include <stdlib.h>
#include <string.h>

int proxies_init(struct proxies *p, const struct text_list *texts, struct error *err)
{
    *p = (struct proxies){.networks = calloc((size_t)texts->num_items + 1, sizeof *p->networks)};
    if (!p->networks) return error_set(err, STATUS_NO_MEMORY, "out of memory");
    for (int i = 0; i < texts->num_items; i++) {
        const char *text = texts->items[i];
        if (!strcmp(text, "unix"))
            p->unix_socket = true;
        else if (!ip_network_parse(text, strlen(text), &p->networks[p->num_networks++]))
            return error_set(
                err, STATUS_INVALID,
                "--trusted-proxies %s: an IP address, a network like 10.0.0.0/8 without bits behind "
                "its prefix, or unix is expected",
                text);
    }
    return STATUS_OK;
}

void proxies_deinit(struct proxies *p)
{
    free(p->networks);
}

bool proxies_trust(const struct proxies *p, const struct ip_address *a)
{
    static const struct ip_address none;
    if (ip_address_is_same(a, &none)) return p->unix_socket;
    for (int i = 0; i < p->num_networks; i++)
        if (ip_network_has(&p->networks[i], a)) return true;
    return false;
}

/* ---- entries, from the last to the first ---- */

struct entries {
    const struct http_request_header *headers;
    int header; /* before this one are those that were not looked at, but for */
    const char *value;
    size_t num_bytes; /* the first ones of this value */
};

static bool next_line(struct entries *e)
{
    while (e->header-- > 0) {
        if (strcmp(e->headers[e->header].name, "x-forwarded-for") != 0) continue;
        e->value = e->headers[e->header].value;
        e->num_bytes = strlen(e->value);
        return true;
    }
    return false;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Without blanks around it; false: there is none. */
static bool next_entry(struct entries *e, const char **text, size_t *n)
{
    if (!e->value && !next_line(e)) return false;
    size_t end = e->num_bytes, begin;
    for (begin = end; begin > 0 && e->value[begin - 1] != ',';) begin--;
    const char *value = e->value;
    e->num_bytes = begin > 0 ? begin - 1 : 0;
    if (begin == 0) e->value = NULL;
    while (begin < end && is_blank(value[begin])) begin++;
    while (end > begin && is_blank(value[end - 1])) end--;
    *text = value + begin;
    *n = end - begin;
    return true;
}

static bool is_port(const char *text, size_t n)
{
    if (n < 2 || n > 6 || text[0] != ':') return false;
    for (size_t i = 1; i < n; i++)
        if (text[i] < '0' || text[i] > '9') return false;
    return true;
}

/* "192.0.2.1", "192.0.2.1:80", "2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:80". */
static bool parse_entry(const char *text, size_t n, struct ip_address *out)
{
    const char *end = n > 0 && text[0] == '[' ? memchr(text, ']', n) : NULL;
    if (end) {
        size_t after = n - (size_t)(end + 1 - text);
        return (after == 0 || is_port(end + 1, after)) &&
               ip_address_parse(text + 1, (size_t)(end - text - 1), out);
    }
    const char *colon = memchr(text, ':', n);
    if (colon && is_port(colon, n - (size_t)(colon - text))) n = (size_t)(colon - text);
    return ip_address_parse(text, n, out);
}

struct ip_address proxies_find_client(const struct proxies *p, const struct ip_address *peer,
                                      const struct http_request_header *headers, int num_headers)
{
    struct entries entries = {.headers = headers, .header = num_headers};
    struct ip_address client = *peer;
    const char *text;
    size_t n;
    while (proxies_trust(p, &client) && next_entry(&entries, &text, &n))
        if (!parse_entry(text, n, &client)) return *peer;
    return client;
}
