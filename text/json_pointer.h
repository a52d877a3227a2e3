/* json_pointer.h - what a JSON pointer (RFC 6901) leads to, as it stands in a reference's fragment: percent signs are decoded, then
 * ~0 and ~1. Thread: a pure function. */
#ifndef TEXT_JSON_POINTER_H
#define TEXT_JSON_POINTER_H

#include <stddef.h>

struct cJSON;

/* "" is node itself. NULL: there is nothing, or the pointer begins with something else than a slash. *num_seen, where it is not NULL,
 * grows by the members and elements that were looked at. */
const struct cJSON *json_pointer_follow(const struct cJSON *node, const char *pointer, size_t *num_seen);

#endif
