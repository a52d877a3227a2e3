/* target.h - what a request asks for: the decoded path and the raw query of a request target.
 *
 *   /v1/models/a%2Fb?x=1         origin form
 *   http://host:8000/v1/models   absolute form: scheme and authority are checked and dropped
 *   *                            asterisk form: path "*" (OPTIONS only)
 *
 * Routing, authorization and logs all use this one reading; the Host header is never used for any of them. */
#ifndef SERVER_TARGET_H
#define SERVER_TARGET_H

#include "base/arena.h"
#include "base/status.h"
#include "server/exchange.h"
#include "server/refusal.h"

/* path and query are allocated in arena, NUL-terminated. path is valid UTF-8 without control characters.
 * target is what gate_check let through. Returns 0 or -1. */
int target_parse(const char *target, size_t n, enum http_method method, struct arena *arena,
                 const char **path, const char **query, struct refusal *why) must_check;

#endif
