/* slow_readers.h - places that the unread answers of slow readers keep (choice.h) are given to who needs them.
 *
 * A stream that its client reads slowly, or never, keeps its slots once the copies of what is unread are as many bytes as they may.
 * When another client's request finds no room, streams that have taken nothing for five seconds end with an error: of the client
 * that has most in flight, and more than the one that asks will have, the one that has rested longest first. Thread: the loop's. */
#ifndef SERVER_API_SLOW_READERS_H
#define SERVER_API_SLOW_READERS_H

#include <stdint.h>

struct api;

/* For so many sequences of a tenant of this key (tenant.h), as far as there are such streams. */
void slow_readers_make_room(struct api *api, int api_key_idx, uint64_t tenant, int32_t num_sequences);

#endif
