/* openapi.h - GET /openapi.json: the server's routes and their bodies, as OpenAPI 3.1 describes them.
 *
 * openapi.json beside this file has what is written by hand: what each route is for, what its answers look like, and
 * those members of bodies that have a shape of their own. The rest is made of the tables that the server itself goes
 * by: which fields a body has, their types and ranges (params.h), what a protocol calls them (codec.h), which routes
 * need a key and in which shape they tell errors (routes.c). tests/unit/server/test_openapi.c holds the one against
 * the other. Thread: the loop's. */
#ifndef SERVER_OPENAPI_OPENAPI_H
#define SERVER_OPENAPI_OPENAPI_H

#include <cjson/cJSON.h>

#include "server/exchange.h"
#include "server/router.h"

/* The whole document; the caller deletes it. NULL: out of memory. */
cJSON *openapi_make(void);
/* The operation of a document that tells of the route; NULL: none does. */
cJSON *openapi_find(const cJSON *document, const struct route *route);

void endpoint_openapi(struct exchange *x);

#endif
