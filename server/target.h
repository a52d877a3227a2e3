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

struct target {
    const char *path;   /* decoded: valid UTF-8 without control characters */
    size_t plain_bytes; /* of path, before the first slash that was sent as %2F: that one ends no segment */
    const char *query;  /* raw, without '?', "" if none */
    const char *authority; /* of the absolute form, in the target that was parsed; NULL: none */
    size_t authority_bytes;
};

/* Allocates in arena, NUL-terminated. text is what gate_check let through. Returns 0 or -1. */
int target_parse(const char *text, size_t n, enum http_method method, struct arena *arena, struct target *out,
                 struct refusal *why) must_check;

enum { TARGET_SHORT_BYTES = 128 };
/* The path for a log or a sentence, cut between characters. */
void target_shorten(const char *path, char text[TARGET_SHORT_BYTES]);

#endif
