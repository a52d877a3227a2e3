/* stream_record.h - what it takes to make a running stream's bytes again in another process (moving.h): the body it
 * came from, how its choices' tokens were cut into events, and a digest of the bytes of these, the times in them left out.
 *
 * A pair of bytes is a step and how often it was taken in a row, so that a stream of single tokens costs two bytes for
 * 255 of them; where another choice's steps follow, a pair says whose. Bodies are kept up to a sum over all streams; a stream without a record ends where it began. Owner: a
 * generation. Thread: the loop's. */
#ifndef SERVER_API_STREAM_RECORD_H
#define SERVER_API_STREAM_RECORD_H

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

struct api;

/* Up to STEP_TOKENS_MAX: an event behind so many more tokens, perhaps none. STEP_CHOICE: not a count stands behind it, but
 * the choice that the steps after it are of; before the first it is choice 0. */
enum { STEP_TOKENS_MAX = 64, STEP_CHOICE = 253, STEP_PING = 254, STEP_START = 255, RECORD_CHOICES_MAX = 256 };

struct stream_record {
    uint64_t digest;
    struct buffer *steps; /* NULL: there was none yet */
    int choice;           /* whose the last step was */
    size_t body_bytes;
    char body[]; /* and a NUL */
};

/* NULL: the body is too long, there is no room left for it, or no memory. */
struct stream_record *stream_record_create(struct api *api, const char *body, size_t body_bytes);
void stream_record_free(struct api *api, struct stream_record *r); /* NULL is fine */

/* One that cannot take any more is freed, and *r becomes NULL; *r may be NULL. choice: below RECORD_CHOICES_MAX. */
void stream_record_step(struct api *api, struct stream_record **r, int choice, int step);
void stream_record_bytes(struct stream_record *r, const char *bytes, size_t n); /* NULL is fine */

#endif
