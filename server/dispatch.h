/* dispatch.h - from a checked head to the endpoint: host, origin, key, route, state, content type, body,
 * in this order.
 *
 * Everything that can be refused without the body is refused before it is read. Thread: the loop's, but
 * dispatch_check_body. */
#ifndef SERVER_DISPATCH_H
#define SERVER_DISPATCH_H

#include "server/http_request.h"
#include "server/listener.h"

/* Returns true to go on with the body and dispatch_run; false when the request was answered (and is gone). */
bool dispatch_head(struct listener *l, struct http_request *r);

/* The strict JSON check, where the route wants JSON, of r's body, in which json_gate_mend mends what it does. Any thread, one at a
 * time. Returns 0 or -1 with why. */
int dispatch_check_body(const struct listener *l, const struct http_request *r, struct buffer *body,
                        struct refusal *why) must_check;

/* Hands the request to its endpoint. */
void dispatch_run(struct http_request *r);

#endif
