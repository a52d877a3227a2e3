/* field_names.h - members of a body that nothing reads: named in the log, and to the client where one looks like a
 * slip of the pen. Thread: any. */
#ifndef SERVER_API_FIELD_NAMES_H
#define SERVER_API_FIELD_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#include <cjson/cJSON.h>

enum { IGNORED_NAMES_BYTES = 160, MISSPELT_BYTES = 128 };

struct ignored_fields {
    char names[IGNORED_NAMES_BYTES]; /* "user,metadata", as many as fit; "": none */
    /* a sentence about the first of them that is close to a field, if it is one of the first that are unknown; "": none */
    char misspelt[MISSPELT_BYTES];
};

/* known: the fields that are read, num_read of them, and behind them those that other bodies have, up to num_known. */
void field_names_find_ignored(const cJSON *body, const char *const *known, size_t num_read, size_t num_known,
                              struct ignored_fields *out);

#endif
