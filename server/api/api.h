/* api.h - what the generation endpoints share: everything in flight, and the clockwork around it.
 * Thread: the loop's. */
#ifndef SERVER_API_API_H
#define SERVER_API_API_H

#include "server/api/admission.h"
#include "server/api/metrics_page.h"
#include "server/api/tenant.h"
#include "server/server.h"

struct generation;
struct response_store;

struct api {
    struct server *server;
    struct generation *generations; /* every one not freed yet, newest first */
    int num_generations;
    int num_admitted;           /* of those: admitted and not ended, the ledger's in_flight */
    struct admission admission; /* what waits */
    int num_keys;
    struct key_use *key_use;       /* [num_keys + 1]: the first is of requests without a key */
    uint64_t num_unseeded;         /* requests that brought no seed: each gets the next one */
    uint64_t id_key;               /* random: ids of answers cannot be guessed */
    uint64_t chain_id;             /* random: of all chains of receipts in this process */
    size_t num_unread_bytes;       /* of slots that were given back, in copies (choice.c) */
    int num_kept_slots;            /* that choices keep, as there was no room for such copies */
    size_t num_record_bytes;       /* bodies of running streams (stream_record.h) */
    struct generation *offered;    /* to the process that takes over: it rests meanwhile; NULL: none */
    struct generation *readmitted; /* from the process before, not this one's yet; NULL: none */
    void (*on_prepared)(void *context, bool is_ready); /* of it */
    void *prepared_context;
    int num_jobs; /* job.h: those that are not answered */
    struct response_store *responses;
    struct metrics_page metrics, openmetrics;
    struct buffer event; /* scratch for one write */
    uv_timer_t ping_timer;
};

/* Ends the requests with the adapter in this place, which is lost (loras.h); those that are prepared find out. */
void api_abort_lora(struct server *server, int place);

/* A stream began: looks for silent ones until nothing is in flight. */
void api_start_pings(struct api *api);

#endif
