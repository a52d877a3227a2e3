/* engine_internal.h - what the engine's files share.
 *
 *   engine.c          life, thread, sleeping and waking
 *   engine_step.c     the turn: drain, schedule, forward, publish
 *   engine_publish.c  results into request slots, and how a request ends
 *   engine_stats.c    the counters */
#ifndef ENGINE_ENGINE_INTERNAL_H
#define ENGINE_ENGINE_INTERNAL_H

#include <pthread.h>

#include "base/ring.h"
#include "engine/engine.h"
#include "scheduler/scheduler.h"
#include "engine/step_builder.h"

enum { FLIGHTS_MAX = 2 };

/* A step that was begun and not ended; its index is also that of its step buffer. */
struct flight {
    struct plan plan;
    uint64_t begin_ns;
};

/* Written by the engine thread, read by any; relaxed. */
struct engine_counters {
    _Atomic int32_t num_running, num_waiting, num_free_blocks, num_cached_blocks, num_held_blocks;
    _Atomic uint64_t num_steps, last_step_end_ns, prompt_tokens, generated_tokens, prefix_query_tokens,
        prefix_hit_tokens, num_preemptions, discarded_tokens;
    _Atomic double tokens_per_second;
};

struct engine {
    struct model *model;
    struct request_slots *slots;
    struct engine_options options;
    struct step_limits limits;

    struct scheduler *scheduler;
    struct step_builder *builder;
    struct sample_result *results; /* [limits.num_logits] */
    struct flight flights[FLIGHTS_MAX];
    int oldest_flight, num_in_flight;
    int32_t *seq_of_slot; /* NO_SEQUENCE: not the engine's */
    bool published;       /* something the loop has not been woken for */
    struct engine_counters counters;
    _Atomic(struct metric *) iteration_metric;

    /* from the loop */
    struct ring submitted;
    uint32_t *submitted_items;
    _Atomic uint64_t *cancel_bits; /* one a slot: look at its cancel flag */
    int32_t num_cancel_words;
    _Atomic bool stopping, failed;

    _Atomic uint32_t num_calls, sleeping; /* engine.c: "Sleeping" */
    pthread_t thread;
    bool thread_started;
};

/* engine_step.c */
void engine_drain(struct engine *e);
/* Ends the steps in flight, or forgets them when the device is dead; what they drew goes nowhere. */
void engine_abandon_flights(struct engine *e);

/* engine_publish.c */
/* Takes a slot in: queues a sequence for it, or finishes it at once. */
void engine_accept(struct engine *e, int32_t slot_idx);
/* What one entry of a step brought: rows are its rows of results. */
void engine_publish_entry(struct engine *e, const struct plan_entry *entry, const struct sample_result *rows);
/* Hands the sequence's slot back to the loop. error_text: NULL for none. */
void engine_finish(struct engine *e, int32_t seq_id, enum finish_reason reason, const char *error_text);
void engine_finish_all(struct engine *e, enum finish_reason reason, const char *error_text);

/* engine_stats.c */
void engine_count_step(struct engine *e, const struct flight *flight);
void engine_copy_scheduler_stats(struct engine *e);

static inline void counter_add(_Atomic uint64_t *counter, uint64_t amount)
{
    /* One writer: no need for a locked add. */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + amount,
                          memory_order_relaxed);
}

#endif
