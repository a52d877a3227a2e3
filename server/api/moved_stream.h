/* moved_stream.h - a running stream on its way from one process to the next: what moving.c makes of a generation, and
 * makes a generation of. Plain bytes in a memory file, for a process of the same build (identity.h): structs are as
 * they are. */
#ifndef SERVER_API_MOVED_STREAM_H
#define SERVER_API_MOVED_STREAM_H

#include "link/request_slots.h"
#include "server/auth.h"
#include "server/connection_move.h"
#include "server/ip_address.h"
#include "server/trace_context.h"

struct generation;

/* One slot, and what was told of it. Behind it stand its tokens and log probabilities. */
struct moved_choice {
    struct request_slot_input input;
    int32_t num_published, num_prompt_published, num_cached_tokens, num_predicted_accepted,
        num_predicted_rejected;
    struct cache_miss cache_miss;
    uint64_t scheduled_ns, first_token_ns, last_token_ns, energy_uj;
    int32_t num_pulled;
    uint64_t last_write_ns, last_pulled_ns;
    int32_t num_tokens;   /* of prompt and answer */
    int32_t num_logprobs; /* 0, or as many */
};

struct moved_head {
    struct moved_connection connection;
    char path[32]; /* the codec's */
    bool has_key;
    uint8_t key_digest[AUTH_DIGEST_BYTES];
    char answer_id[MADE_ID_CHARS];
    int64_t created;
    struct ip_address client;
    uint64_t deadline_ns, tenant, seed; /* times are monotonic: the machine's */
    bool has_trace;
    struct trace_context trace;
    uint64_t digest, last_write_ns; /* of what was told */
    /* what follows, in this order */
    size_t steps_bytes, body_bytes, input_bytes;
    int32_t num_choices;
};

/* In one piece of memory. */
struct moved_stream {
    void (*on_prepared)(struct generation *g, bool is_ready); /* generation_readmit */
    struct moved_head head;
    const uint8_t *steps; /* stream_record.h */
    const char *body;     /* and a NUL */
    const char *input;    /* of the connection, behind the request */
    size_t choices_at;    /* where the first begins in bytes */
    _Alignas(uint64_t) char bytes[];
};

#endif
