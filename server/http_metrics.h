/* http_metrics.h - what the transport counts. Before http_metrics_register (in unit tests) counting does
 * nothing. Thread: the loop's. */
#ifndef SERVER_HTTP_METRICS_H
#define SERVER_HTTP_METRICS_H

#include <stdint.h>

#include "config/config.h"
#include "server/router.h"

/* routes: as router.h has them; they outlive the metrics. Keys of config that have a name are counted by it. */
void http_metrics_register(const struct route *routes, const struct config *config);

/* Below, route is what a request asked for; NULL: nothing that is served. Probes and the metrics page itself are left out, as
 * vLLM leaves them out. */

void http_metrics_count_response(const struct route *route, int http_status); /* one answer begun */
/* One client was told of an error, in a stream that has begun, too. code: as in the answer, or NULL. key_name: of the key that the
 * request came with, or NULL; one that is new since the start is counted from now on. */
void http_metrics_count_error(const struct route *route, int http_status, const char *code,
                              const char *key_name);
/* One that was answered is over. */
void http_metrics_observe_request(const struct route *route, int http_status, uint64_t duration_ns);
void http_metrics_count_disconnect(void); /* a client went away before its answer was complete */
void http_metrics_count_cut_off(void);    /* we closed: it did not read in time, or not enough */
void http_metrics_count_overflow(void);   /* no place: --max-connections, -per-address */
void http_metrics_count_displaced(void);  /* an idle connection, or a slow upload, closed for another one */
void http_metrics_add_connections(int amount); /* +1, -1 */
void http_metrics_add_buffered_bytes(int64_t amount);

#endif
