/* json_gate.h - the strict check that a body passes before cJSON sees it.
 *
 * cJSON takes invalid UTF-8, a byte order mark, raw control characters, `01`, `1.`, trailing bytes and
 * duplicate keys, and needs about 40 times the text's size. The gate reads the text once, allocates nothing
 * but a table of the keys of open objects, does not recurse, and lets through only RFC 8259 JSON with valid
 * UTF-8, no duplicate keys (compared after unescaping) and no lone surrogates, within the limits. What passes
 * is safe to hand to cJSON, by way of nul_text_parse, as cJSON cuts a string at \u0000.
 *
 * Thread: any; no shared state. */
#ifndef SERVER_API_JSON_GATE_H
#define SERVER_API_JSON_GATE_H

#include <stddef.h>

#include "base/status.h"

struct json_gate_limits {
    int max_depth; /* arrays and objects open at once; at most JSON_GATE_DEPTH_MAX */
    int max_nodes; /* values: objects, arrays, strings, numbers, literals (keys do not count) */
    int max_keys;  /* of one object */
};

enum { JSON_GATE_DEPTH_MAX = 512 };

/* Returns 0, or leaves a sentence with the byte offset in err and returns STATUS_INVALID (not JSON as
 * described above), STATUS_LIMIT (a limit, named with its option) or STATUS_NO_MEMORY. text needs no NUL. */
int json_gate_check(const char *text, size_t n, const struct json_gate_limits *limits,
                    struct error *err) must_check;

/* Halves of surrogate pairs that are escaped become \ufffd, in place: clients leave them that cut a text within a character. Other
 * text stays, JSON or not. For what is about to be checked. */
void json_gate_mend(char *text, size_t n);

#endif
