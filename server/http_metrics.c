#include "server/http_metrics.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/metrics.h"
#include "config/api_keys.h"

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

/* What an answer's error says. Of a pair that is not here the status counts alone, and of a status that is not here nothing. */
struct error_kind {
    int http_status;
    const char *code; /* NULL: none, or another one */
};
static const struct error_kind error_kinds[] = {
    {400, NULL},
    {400, "context_length_exceeded"},
    {400, "form_out_of_reach"},
    {400, "form_too_large"},
    {400, "invalid_type"},
    {400, "invalid_value"},
    {400, "item_not_found"},
    {400, "missing_required_parameter"},
    {400, "previous_response_not_found"},
    {400, "unsupported_parameter"},
    {400, "unsupported_value"},
    {401, "invalid_api_key"},
    {403, NULL},
    {403, "admin_only"},
    {403, "cancelled"},
    {403, "origin_not_allowed"},
    {404, "model_not_found"},
    {404, "request_not_found"},
    {404, "response_lost"},
    {404, "response_not_found"},
    {404, "unknown_url"},
    {405, NULL},
    {408, NULL},
    {409, "cancelled"},
    {409, NULL},
    {412, "precondition_failed"},
    {413, NULL},
    {414, NULL},
    {415, NULL},
    {417, NULL},
    {421, "unknown_host"},
    {429, NULL},
    {429, "rate_limit_exceeded"},
    {429, "slow_reader"},
    {431, NULL},
    {500, NULL},
    {501, NULL},
    {503, NULL},
    {504, "deadline_exceeded"},
    {505, NULL},
};
enum { NUM_ERROR_KINDS = array_length(error_kinds) };
static struct metric *errors[NUM_ERROR_KINDS];

/* Of the requests with keys of one name. */
enum { KEY_429, KEY_4XX, KEY_5XX, NUM_KEY_ERRORS };
struct key_errors {
    char name[sizeof((struct api_key_terms *)NULL)->name];
    struct metric *counts[NUM_KEY_ERRORS];
    struct key_errors *next;
};
static struct key_errors *first_key;

static struct metric *disconnects, *cut_offs, *overflows, *displaced, *connections, *buffered;

/* Probes and monitoring are not what a server is for. */
static bool is_shown(const struct route *route)
{
    return !route || !(route->flags & ROUTE_ALWAYS) || !strcmp(route->pattern, "/");
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
        if (!is_shown(route)) continue;
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

static void register_errors(void)
{
    for (int i = 0; i < NUM_ERROR_KINDS; i++) {
        char labels[96];
        const char *code = error_kinds[i].code;
        snprintf(labels, sizeof labels, "status=\"%d\",code=\"%s\"", error_kinds[i].http_status,
                 code ? code : "none");
        errors[i] = metric_register(METRIC_COUNTER, "flashd_errors_total",
                                    "Errors that clients were told of, in streams that had begun, too.",
                                    labels, NULL, 0);
    }
}

/* NULL: there is no memory, and it is not counted. */
static struct key_errors *add_key(const char *name)
{
    static const char *const statuses[NUM_KEY_ERRORS] = {"429", "4xx", "5xx"};
    struct key_errors *key = calloc(1, sizeof *key);
    if (!key) return NULL;
    snprintf(key->name, sizeof key->name, "%s", name);
    for (int i = 0; i < NUM_KEY_ERRORS; i++) {
        char labels[96];
        snprintf(labels, sizeof labels, "key=\"%s\",status=\"%s\"", name, statuses[i]);
        key->counts[i] = metric_add_counter("flashd_key_errors_total",
                                            "Errors that the clients of a named API key were told of: 429, "
                                            "others of 4xx, 5xx.",
                                            labels);
    }
    key->next = first_key;
    return first_key = key;
}

static struct key_errors *find_key(const char *name)
{
    struct key_errors *key = first_key;
    while (key && strcmp(key->name, name) != 0) key = key->next;
    return key ? key : add_key(name);
}

static void register_keys(const struct config *config)
{
    for (struct key_errors *next; first_key; first_key = next) {
        next = first_key->next;
        free(first_key);
    }
    for (int i = 0; i < config->api_key.num_items; i++)
        if (api_keys_name(config, i)) find_key(api_keys_name(config, i));
}

void http_metrics_register(const struct route *routes, const struct config *config)
{
    memset(handlers, 0, sizeof handlers);
    register_handlers(routes);
    register_errors();
    register_keys(config);
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
    displaced = metric_register(
        METRIC_COUNTER, "flashd_http_displaced_connections_total",
        "Connections closed, idle ones or slow uploads, because another one needed the room.", "", NULL, 0);
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

void http_metrics_count_response(const struct route *route, int http_status)
{
    if (is_shown(route) && class_of(http_status) >= 0) count(responses[class_of(http_status)], 1);
}

static struct metric *find_error(int http_status, const char *code)
{
    struct metric *found = NULL;
    for (int i = 0; i < NUM_ERROR_KINDS; i++) {
        const struct error_kind *kind = &error_kinds[i];
        if (kind->http_status != http_status) continue;
        if (kind->code ? code && !strcmp(kind->code, code) : !found) found = errors[i];
    }
    return found;
}

void http_metrics_count_error(const struct route *route, int http_status, const char *code,
                              const char *key_name)
{
    if (!first_route || !is_shown(route)) return;
    count(find_error(http_status, code), 1);
    const struct key_errors *key = key_name ? find_key(key_name) : NULL;
    if (key) count(key->counts[http_status == 429 ? KEY_429 : http_status < 500 ? KEY_4XX : KEY_5XX], 1);
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
