/* generation_output.h - how a generation's tokens reach the client; generation.c is the only caller of most
 * of it. Thread: the loop's. */
#ifndef SERVER_API_GENERATION_OUTPUT_H
#define SERVER_API_GENERATION_OUTPUT_H

#include "server/api/generation.h"

/* Move what the engine published. They may end the request: g->x is NULL then. */
void generation_pump_stream(struct generation *g);
void generation_pump_whole(struct generation *g);

/* The stream's first event, where it does not wait for the first token. */
void generation_write_start(struct generation *g);

/* Makes the events of a moved stream again, for their digest (g->record) and for what follows from them; they are not
 * sent. */
void generation_replay(struct generation *g, const uint8_t *steps, size_t num_bytes);

/* Writes the event that was put into api->event. */
void generation_flush_event(struct generation *g);

/* The last thing a client hears of a request that was admitted and failed. x is gone afterwards. */
void generation_reply_error(struct generation *g, struct exchange *x, const struct api_error *error);

/* ---- generation.c, for the above ---- */

void generation_sum_usage(const struct generation *g, struct usage *u);
/* The one terminal record. The exchange is no longer the generation's afterwards. */
void generation_conclude(struct generation *g, enum outcome outcome, int http_status);

#endif
