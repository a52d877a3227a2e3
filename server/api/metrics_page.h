/* metrics_page.h - what /metrics says. To make it takes the loop half a millisecond, and whoever reaches the server may ask for
 * it as often as he likes: of each of its two formats a few are made in a tenth of a second, and the last of them is
 * what is told for the rest of it. Thread: the loop's. */
#ifndef SERVER_API_METRICS_PAGE_H
#define SERVER_API_METRICS_PAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"

struct server;

struct metrics_page {
    struct buffer text;
    uint64_t since_ns; /* monotonic: when the tenth of a second began, */
    int num_made;      /* and how many were made in it */
};

void metrics_page_init(struct metrics_page *page);
void metrics_page_deinit(struct metrics_page *page);

/* Its text until the next call; failed where there was no memory. openmetrics: always the same of one page. */
const struct buffer *metrics_page_text(struct metrics_page *page, struct server *server, bool openmetrics);

#endif
