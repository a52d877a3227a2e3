/* process_metrics.h - what the system knows of the two processes: process_... are the front's, under the names
 * that every Prometheus client has, flashd_engine_... those of the engine where it is a process of its own.
 * Thread: the loop's. */
#ifndef SERVER_PROCESS_METRICS_H
#define SERVER_PROCESS_METRICS_H

#include "server/engine_host.h"

/* host: outlives the metrics. */
void process_metrics_register(const struct engine_host *host);

#endif
