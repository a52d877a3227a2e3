#include "server/http_metrics.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/metrics.h"

enum { NUM_CLASSES = 4 };

static const char *const class_labels[NUM_CLASSES] = {"status=\"2xx\"", "status=\"3xx\"", "status=\"4xx\"",
                                                      "status=\"5xx\""};
static struct metric *responses[NUM_CLASSES];
enum { ROUTES_MAX = 64 };

/* By route, as prometheus-fastapi-instrumentator names them; the last is of what is not served. */
struct handler {
    struct metric *requests[NUM_CLASSES], *duration;
};
static const struct route *first_route;
static int num_routes;
static struct handler handlers[ROUTES_MAX + 1];

static struct metric *disconnects, *cut_offs, *overflows, *displaced, *connections, *buffered;

/* Probes and monitoring are not what a server is for. */
static bool is_shown(const struct route *route)
{
    return !(route->flags & ROUTE_ALWAYS) || !strcmp(route->pattern, "/");
}

static void name_handler(const struct route *route, char *text, size_t n)
{
    static const char *const methods[] = {"GET",    "HEAD", "POST",  "OPTIONS",
                                          "DELETE", "PUT",  "PATCH", "TRACE"};
    snprintf(text, n, "handler=\"%s\",method=\"%s\"", route ? route->pattern : "none",
             route ? methods[route->method] : "none");
}

static void register_handlers(const struct route *routes)
{
    static const double bounds[] = {.1, .5, 1, 2.5, 5, 10, 30, 60, 120, 300};
    char name[160], labels[192];
    first_route = routes;
    for (num_routes = 0; routes[num_routes].pattern; num_routes++) assert_always(num_routes < ROUTES_MAX);
    for (int i = 0; i <= num_routes; i++) {
        const struct route *route = i < num_routes ? &routes[i] : NULL;
        if (route && !is_shown(route)) continue;
        name_handler(route, name, sizeof name);
        for (int class = 0; class < NUM_CLASSES; class ++) {
            snprintf(labels, sizeof labels, "%s,%s", name, class_labels[class]);
            handlers[i].requests[class] = metric_register(METRIC_COUNTER, "http_requests_total",
                                                          "Requests answered, by route.", labels, NULL, 0);
        }
    }
    for (int i = 0; i <= num_routes; i++) {
        const struct route *route = i < num_routes ? &routes[i] : NULL;
        if (!handlers[i].requests[0]) continue;
        name_handler(route, name, sizeof name);
        handlers[i].duration = metric_register(METRIC_HISTOGRAM, "http_request_duration_seconds",
                                               "From a request's first byte to its answer's last.", name,
                                               bounds, (int)array_length(bounds));
    }
}

void http_metrics_register(const struct route *routes)
{
    memset(handlers, 0, sizeof handlers);
    register_handlers(routes);
    for (int i = 0; i < NUM_CLASSES; i++)
        responses[i] = metric_register(METRIC_COUNTER, "flashd_http_requests_total",
                                       "Requests answered, by class of status.", class_labels[i], NULL, 0);
    disconnects = metric_register(METRIC_COUNTER, "flashd_http_disconnects_total",
                                  "Clients that went away before their answer was complete.", "", NULL, 0);
    cut_offs = metric_register(METRIC_COUNTER, "flashd_http_slow_clients_total",
                               "Connections closed because the client did not read.", "", NULL, 0);
    overflows = metric_register(METRIC_COUNTER, "flashd_http_refused_connections_total",
                                "Connections and requests refused because of --max-connections or "
                                "--max-connections-per-address.",
                                "", NULL, 0);
    displaced = metric_register(METRIC_COUNTER, "flashd_http_displaced_connections_total",
                                "Idle connections closed because a new one needed the place.", "", NULL, 0);
    connections = metric_register(METRIC_GAUGE, "flashd_http_connections", "Open connections.", "", NULL, 0);
    buffered = metric_register(METRIC_GAUGE, "flashd_http_buffered_bytes",
                               "Bytes of requests and unsent answers held for clients.", "", NULL, 0);
}

static void count(struct metric *m, double amount)
{
    if (m) metric_add(m, amount);
}

/* -1: it has none. */
static int class_of(int http_status)
{
    int class = http_status / 100 - 2;
    return class >= 0 && class < NUM_CLASSES ? class : -1;
}

void http_metrics_count_response(int http_status)
{
    if (class_of(http_status) >= 0) count(responses[class_of(http_status)], 1);
}

void http_metrics_observe_request(const struct route *route, int http_status, uint64_t duration_ns)
{
    if (!first_route || class_of(http_status) < 0) return;
    const struct handler *h = &handlers[route ? route - first_route : num_routes];
    if (!h->duration) return;
    metric_add(h->requests[class_of(http_status)], 1);
    metric_observe(h->duration, (double)duration_ns / 1e9);
}

void http_metrics_count_disconnect(void)
{
    count(disconnects, 1);
}

void http_metrics_count_cut_off(void)
{
    count(cut_offs, 1);
}

void http_metrics_count_overflow(void)
{
    count(overflows, 1);
}

void http_metrics_count_displaced(void)
{
    count(displaced, 1);
}

void http_metrics_add_buffered_bytes(int64_t amount)
{
    count(buffered, (double)amount);
}

void http_metrics_add_connections(int amount)
{
    count(connections, amount);
}
