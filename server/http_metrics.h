/* http_metrics.h - what the transport counts. Before http_metrics_register (in unit tests) counting does
 * nothing. Thread: the loop's. */
#ifndef SERVER_HTTP_METRICS_H
#define SERVER_HTTP_METRICS_H

#include <stdint.h>

#include "server/router.h"

/* routes: as router.h has them; they outlive the metrics. */
void http_metrics_register(const struct route *routes);

void http_metrics_count_response(int http_status); /* one answer begun */
/* One that was answered is over. route: what it asked for; NULL: nothing that is served. Probes and the metrics
 * page itself are left out, as vLLM leaves them out. */
void http_metrics_observe_request(const struct route *route, int http_status, uint64_t duration_ns);
void http_metrics_count_disconnect(void);      /* a client went away before its answer was complete */
void http_metrics_count_cut_off(void);         /* we closed: it did not read in time, or not enough */
void http_metrics_count_overflow(void);        /* no place: --max-connections, -per-address */
void http_metrics_count_displaced(void);       /* an idle connection closed for a new one */
void http_metrics_add_connections(int amount); /* +1, -1 */
void http_metrics_add_buffered_bytes(int64_t amount);

#endif
