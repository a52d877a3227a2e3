#include "server/http_metrics.h"

#include <stddef.h>

#include "base/metrics.h"

enum { NUM_CLASSES = 4 };

static struct metric *responses[NUM_CLASSES]; /* 2xx 3xx 4xx 5xx */
static struct metric *disconnects, *cut_offs, *overflows, *displaced, *connections, *buffered;

void http_metrics_register(void)
{
    static const char *const labels[NUM_CLASSES] = {"status=\"2xx\"", "status=\"3xx\"", "status=\"4xx\"",
                                                    "status=\"5xx\""};
    for (int i = 0; i < NUM_CLASSES; i++)
        responses[i] = metric_register(METRIC_COUNTER, "flashd_http_requests_total",
                                       "Requests answered, by class of status.", labels[i], NULL, 0);
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

void http_metrics_count_response(int http_status)
{
    int class = http_status / 100 - 2;
    if (class >= 0 && class < NUM_CLASSES) count(responses[class], 1);
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
