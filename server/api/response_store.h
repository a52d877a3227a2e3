/* response_store.h - finished responses that clients may name again, within a limit of bytes: of the key that holds most, and of
 * its tenants (tenant.h) the one that does, the oldest makes room, so that nobody loses more than what is beyond its part to who
 * floods the store. A response is found by the key that it was made with and by no other. Thread: any; it has a lock. */
#ifndef SERVER_API_RESPONSE_STORE_H
#define SERVER_API_RESPONSE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct response_store;

/* NULL: out of memory. max_bytes 0: it keeps nothing. */
struct response_store *response_store_create(size_t max_bytes);
void response_store_destroy(struct response_store *s);

enum { RESPONSE_ID_BYTES = 48 };

enum response_text {
    RESPONSE_BODY, /* the response object */
    RESPONSE_HISTORY, /* the messages up to its answer, as a JSON array; none where it has not ended, in another process */
    NUM_RESPONSE_TEXTS
};

struct response_texts {
    const char *bytes[NUM_RESPONSE_TEXTS];
    size_t num_bytes[NUM_RESPONSE_TEXTS];
};

/* Copies. What is larger than the store, or more than any other key or tenant holds and finds no room, or no memory, is not
 * kept. */
void response_store_put(struct response_store *s, int api_key_idx, uint64_t tenant, const char *id,
                        const struct response_texts *texts);

/* A copy with a NUL behind it (free it); NULL: there is none, or an empty one (or no memory). */
char *response_store_get(struct response_store *s, int api_key_idx, const char *id, enum response_text which,
                         size_t *num_bytes);

/* It is there, without a history. */
bool response_store_is_unfinished(struct response_store *s, int api_key_idx, const char *id);

/* False: there is none. */
bool response_store_remove(struct response_store *s, int api_key_idx, const char *id);

/* ---- for another process (moved_responses.h) ---- */

struct stored_response {
    int api_key_idx;
    uint64_t tenant; /* one that shares its part of the store */
    char id[RESPONSE_ID_BYTES];
    size_t num_bytes[NUM_RESPONSE_TEXTS];
    char *bytes; /* the texts, one behind the other: free them */
};

/* A copy of the oldest that somebody holds and that was not taken since it was put. False: there is none (or no memory). */
bool response_store_take(struct response_store *s, struct stored_response *out) must_check;
int64_t response_store_num_untaken(struct response_store *s);
/* Without a history: they end in the process before this one. */
int64_t response_store_num_unfinished(struct response_store *s);

#endif
