/* endpoint_response_items.h - the items that a stored response was an answer to. Thread: the loop's. */
#ifndef SERVER_API_ENDPOINT_RESPONSE_ITEMS_H
#define SERVER_API_ENDPOINT_RESPONSE_ITEMS_H

#include "server/api/api_error.h"
#include "server/exchange.h"

/* Answers GET /v1/responses/ID/input_items (order, limit, after) out of the response's RESPONSE_HISTORY, now or later. */
void response_items_reply(struct exchange *x, const char *id);
/* endpoint_responses.c's: there is none of this id. Returns what a refusal does. */
int response_unknown(struct api_error *err, const char *id);

#endif
