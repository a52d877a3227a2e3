/* scheduler_internal.h - what the scheduler's files share: its state, and lists of sequences in one array.
 *
 *   scheduler.c        life, and giving back what a sequence held
 *   scheduler_plan.c   the policy
 *   scheduler_check.c  the invariants */
#ifndef SCHEDULER_SCHEDULER_INTERNAL_H
#define SCHEDULER_SCHEDULER_INTERNAL_H

#include "scheduler/scheduler.h"

struct sequence_list {
    int32_t head, tail, count;
};

struct scheduler {
    struct scheduler_options options;
    struct block_manager *blocks;
    struct prefix_cache *prefixes; /* NULL: off */
    int32_t num_sequences, table_stride;
    struct sequence *sequences; /* [num_sequences] */
    int32_t *block_tables;      /* [num_batch_slots][table_stride] */
    int32_t *free_batch_slots;  /* a stack */
    int32_t num_free_batch_slots;
    struct sequence_list free, waiting, running, closing; /* running: oldest first */
    int32_t num_steps_in_flight;
    uint64_t num_arrivals, prefix_query_tokens, prefix_hit_tokens, num_preemptions;
};

static inline int32_t id_of(const struct scheduler *s, const struct sequence *seq)
{
    return (int32_t)(seq - s->sequences);
}

static inline int32_t *table_of(const struct scheduler *s, int32_t batch_slot)
{
    return s->block_tables + (size_t)batch_slot * (size_t)s->table_stride;
}

/* after: NO_SEQUENCE for the front. */
void sequence_list_insert(struct scheduler *s, struct sequence_list *list, int32_t id, int32_t after);
void sequence_list_remove(struct scheduler *s, struct sequence_list *list, int32_t id);

/* Tells the prefix cache about every block that is full of known tokens by now. */
void scheduler_hash_full_blocks(struct scheduler *s, struct sequence *seq);
/* Takes everything from a running sequence that no step in flight names and puts it at the front of the
 * queue. */
void scheduler_preempt(struct scheduler *s, struct sequence *seq);

#endif
