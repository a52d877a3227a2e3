#include "server/browser_gate.h"

#include <string.h>
#include <strings.h>

#include "server/gate.h"
#include "server/ip_address.h"

static bool is_loopback(const struct sockaddr *bound)
{
    struct ip_address address;
    return ip_address_of(bound, &address) && ip_address_is_loopback(&address);
}

static const char *find(const struct text_list *list, const char *text, size_t n)
{
    for (int i = 0; i < list->num_items; i++)
        if (strlen(list->items[i]) == n && !strncasecmp(list->items[i], text, n)) return list->items[i];
    return NULL;
}

/* scheme://host[:port], as browsers write it; "null" is that of sandboxed pages. */
static bool is_origin(const char *text)
{
    if (!strcmp(text, "*") || !strcmp(text, "null")) return true;
    const char *authority = strstr(text, "://");
    return authority && authority > text && gate_is_host(authority + 3, strlen(authority + 3));
}

/* A name may end with the root's dot. */
static size_t without_dot(const char *host, size_t n)
{
    return n > 1 && host[n - 1] == '.' ? n - 1 : n;
}

/* As the Host header names it, but for a port. */
static bool is_host(const char *text)
{
    size_t n = strlen(text);
    return !strcmp(text, "*") ||
           (n > 0 && gate_host_bytes(text, n) == n && !strchr(text, '*') && gate_is_host(text, n));
}

static bool has_host(const struct text_list *hosts, const char *host, size_t n)
{
    n = without_dot(host, n);
    for (int i = 0; i < hosts->num_items; i++) {
        const char *name = hosts->items[i];
        if (without_dot(name, strlen(name)) == n && !strncasecmp(name, host, n)) return true;
    }
    return false;
}

static int check_hosts(const struct text_list *hosts, struct error *err)
{
    for (int i = 0; i < hosts->num_items; i++)
        if (!is_host(hosts->items[i]))
            return error_set(err, STATUS_INVALID,
                             "--allowed-host %s: a name or an address as in http://NAME, without scheme and "
                             "port, or * for any, is "
                             "expected",
                             hosts->items[i]);
    return STATUS_OK;
}

int browser_gate_init(struct browser_gate *g, const struct config *config, const struct sockaddr *bound,
                      struct error *err)
{
    *g = (struct browser_gate){.origins = &config->allowed_origin, .hosts = &config->allowed_host};
    for (int i = 0; i < g->origins->num_items; i++)
        if (!is_origin(g->origins->items[i]))
            return error_set(err, STATUS_INVALID,
                             "--allowed-origin %s: scheme://host[:port] without a slash behind it, or *, is "
                             "expected",
                             g->origins->items[i]);
    if (check_hosts(g->hosts, err)) return STATUS_INVALID;
    bool has_keys = config->api_key.num_items > 0;
    g->any_origin = find(g->origins, "*", 1) || (has_keys && g->origins->num_items == 0);
    g->varies = !g->any_origin && g->origins->num_items > 0;
    g->any_host = find(g->hosts, "*", 1) || has_keys || !is_loopback(bound);
    g->shows_page = has_keys || is_loopback(bound);
    return STATUS_OK;
}

static bool is_loopback_name(const char *host, size_t n)
{
    static const char name[] = "localhost";
    size_t name_bytes = sizeof name - 1;
    n = without_dot(host, n);
    if (n < name_bytes || strncasecmp(host + n - name_bytes, name, name_bytes) != 0) return false;
    return n == name_bytes || host[n - name_bytes - 1] == '.';
}

static bool is_loopback_address(const char *host, size_t n)
{
    struct ip_address address;
    bool bracketed = n > 2 && host[0] == '[';
    return ip_address_parse(host + bracketed, n - 2 * bracketed, &address) &&
           ip_address_is_loopback(&address) && bracketed == (memchr(host, ':', n) != NULL);
}

bool browser_gate_takes_host(const struct browser_gate *g, const char *host, size_t n)
{
    if (g->any_host || n == 0) return true;
    n = gate_host_bytes(host, n);
    return is_loopback_name(host, n) || is_loopback_address(host, n) || has_host(g->hosts, host, n);
}

/* The server's own pages, whatever stands before it: https://host for one that is asked as host. */
static bool is_same_site(const char *origin, const char *host, size_t host_bytes)
{
    const char *authority = strstr(origin, "://");
    if (!authority || host_bytes == 0) return false;
    authority += 3;
    return strlen(authority) == host_bytes && !strncasecmp(authority, host, host_bytes);
}

bool browser_gate_takes_origin(const struct browser_gate *g, const char *origin, const char *host,
                               size_t host_bytes, const char **allow)
{
    *allow = g->any_origin ? "*" : NULL;
    if (!origin || g->any_origin) return true;
    *allow = find(g->origins, origin, strlen(origin));
    return *allow || is_same_site(origin, host, host_bytes);
}
