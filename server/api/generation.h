/* generation.h - one generation request from its body to its last byte: prompts times n choices, each in a
 * slot.
 *
 *   preparing --> refused                                   (400, 404, 429, 503; never admitted)
 *       |
 *       v
 *   admitted ---> answered to the end   OUTCOME_DONE
 *       |-------> client went away      OUTCOME_CLIENT_GONE
 *       |-------> the engine failed it  OUTCOME_ENGINE_FAULT
 *       |-------> it went on elsewhere  OUTCOME_MOVED          (moving.h)
 *       `-------> the server ended it   OUTCOME_ABORTED
 *
 * An admitted request reaches exactly one outcome, and leaves one log line and one count there. Its memory
 * and slots outlive the answer until the engine has let go of every slot (a cancelled sequence finishes
 * within a step) and the worker has let go of the body. Thousands may wait at once, so that what only
 * preparing needs is not kept here. Thread: the loop's; preparing a chat or a long body runs on the worker
 * pool and touches nothing but the arena, params and the server's immutable tables. So does composing a whole answer with many log
 * probabilities, which reads complete choices: until it is over nothing of the generation changes, whoever leaves. */
#ifndef SERVER_API_GENERATION_H
#define SERVER_API_GENERATION_H

#include "server/api/api.h"
#include "server/api/codec.h"
#include "server/api/prepare.h"
#include "server/api/request_metrics.h"
#include "server/api/stream_record.h"
#include "server/ip_address.h"

struct replay;
struct request_trace;
struct moved_stream;

struct generation {
    struct api *api;
    struct generation *next, *previous; /* in api->generations */
    struct exchange *x;                 /* NULL: answered, in the background, or the client is gone */
    uint64_t serial;                    /* the exchange's id */
    int api_key_idx, num_choices;
    bool preparing, composing, admitted, streaming;
    bool counts_for_key;      /* tenant.h */
    bool blocked;             /* the client does not read: wait for on_writable */
    bool begun;               /* the stream's first event was written */
    bool broken;              /* out of memory in the middle of a stream: it must not go on with a gap */
    bool stays;               /* the process that takes over has refused it */
    bool in_background;       /* nobody waits for it: its codec keeps the answer */
    struct ip_address client; /* whose it is (exchange.h) */
    uint64_t arrival_ns, submitted_ns;
    uint64_t tenant, deadline_ns; /* deadline_ns: of x-request-timeout; 0: none */
    struct request_trace *trace;  /* in the arena; NULL: none */

    struct arena arena;
    struct params params; /* input: until the slots are filled in */

    struct answer answer;
    struct choice_context context;
    struct choice *choices;
    const struct replay *replay; /* in the arena; NULL: an answer of its own */
    struct buffer *receipt;      /* in the arena, once it is complete (receipt.h); NULL: none, or not yet */
    uint64_t last_write_ns;
    struct stream_record *record; /* NULL: none, the stream cannot move */
    struct moved_stream *moved;   /* readmitted: what it goes on from; NULL: it goes on, or has begun here */
    char request_id[];
};

/* Somebody wants its answer. */
static inline bool generation_is_live(const struct generation *g)
{
    return g->x || g->in_background;
}

/* The endpoints' common body. */
void generation_start(struct exchange *x, const struct codec *codec);

/* An answer in the background as it stands, to who asks for it. */
void generation_tell_unfinished(struct generation *g, struct exchange *x);

/* Moves what the engine published towards the client, and frees the generation once all is over. */
void generation_pump(struct generation *g);

/* Ends the answer with an error (an event if it is a stream). */
void generation_abort(struct generation *g, const struct api_error *error, enum outcome outcome);

/* Ends it, if the time that x-request-timeout allows has passed. */
void generation_check_deadline(struct generation *g, uint64_t now_ns);

/* ---- moving.c's ---- */

/* Prepares a stream of another process once more, from moved, which it takes over. moved->on_prepared gets it with its
 * slots filled in and not submitted; then generation_go_on or generation_drop is due. NULL: no memory. */
struct generation *generation_readmit(struct exchange *x, const struct codec *codec,
                                      struct moved_stream *moved) must_check;
/* It is this process's from now on. */
void generation_go_on(struct generation *g);
/* It never was: its exchange is let go of, generation_pump frees it. */
void generation_drop(struct generation *g);
/* It is another process's from now on; frees it. */
void generation_leave(struct generation *g);

/* Some sign of life, if the stream has been silent for this long. */
void generation_ping(struct generation *g, uint64_t now_ns, uint64_t interval_ns);

#endif
