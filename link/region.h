/* region.h - how the shared mapping begins, and one side's view of it; the link's own files only. */
#ifndef LINK_REGION_H
#define LINK_REGION_H

#include <stdatomic.h>

#include "base/ring.h"
#include "link/link.h"

enum { ERROR_TEXT_BYTES = 512 };

struct region {
    struct link_facts facts; /* valid once num_opened > 0 */
    _Atomic int32_t num_opened;
    _Atomic int32_t state; /* enum link_state */
    _Atomic int32_t tokenizer_eos_id;
    _Atomic bool fault;
    double phase_seconds[LOAD_PHASES];
    char error_text[ERROR_TEXT_BYTES]; /* written before the state */
    struct link_counters counters;

    /* from the loop */
    _Atomic uint32_t num_calls, sleeping; /* link_calls.c: "Sleeping" */
    _Atomic bool stopping;
    struct ring_ends submitted;
};

struct link {
    int fd;
    char *base;
    uint64_t bytes; /* mapped */
    struct region *region;
    struct ring submitted;
    _Atomic uint64_t *cancel_bits; /* one a slot: look at its cancel flag */
    uint64_t *silent_ids;          /* [vocab_size bits] */
    struct request_slots *slots;
    void (*wake_front)(void *context);
    void *wake_context;
    bool inherited;
    /* the front's */
    int32_t *listed; /* [num_slots]: a walk over what waits; link_next_waiting */
    int32_t num_listed, list_at;
    uint64_t last_serial;
    bool holding;
};

#endif
