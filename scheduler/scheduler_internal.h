/* scheduler_internal.h - what the scheduler's files share: its state, and lists of sequences in one array.
 *
 *   scheduler.c          life, and giving back what a sequence held
 *   scheduler_queue.c    tenants, and who waits in which order
 *   scheduler_plan.c     the policy
 *   scheduler_turns.c    who decodes where time is short
 *   scheduler_displace.c who makes room for another owner's
 *   scheduler_preempt.c  what becomes of a preempted sequence's work
 *   scheduler_states.c   which states are kept, and who goes on from them
 *   scheduler_check.c    the invariants */
#ifndef SCHEDULER_SCHEDULER_INTERNAL_H
#define SCHEDULER_SCHEDULER_INTERNAL_H

#include "scheduler/scheduler.h"

struct sequence_list {
    int32_t head, tail, count;
};

/* Whose an entry of a table is, and what keeps it there: one with nothing may be given to another id. */
struct party {
    uint64_t id;
    int32_t num_members; /* an owner's tenants that have some; a tenant's sequences, waiting and running */
};

/* What running sequences hold. */
enum goods { PLACES, BLOCKS, NUM_GOODS };

/* An API key, or a client where there are none: whoever shares with others of its kind, however many tenants it names. */
struct owner {
    struct party party;
    double service_us;   /* received by weight; only differences between owners mean anything */
    double virtual_us;   /* service_us of its tenant that was served last: where others of its come in */
    int32_t num_waiting; /* of theirs, but for urgent ones */
    /* while a plan is made */
    int32_t num_running;         /* sequences */
    int32_t num_held[NUM_GOODS]; /* by them */
    int32_t num_sharing;         /* tenants that want some of the step */
};

/* Whoever shares with others of the same owner. */
struct tenant {
    struct party party;
    int32_t owner; /* index */
    double weight; /* its owner's */
    bool leaves_places, owner_leaves_places;
    double service_us;            /* received by weight; only differences between an owner's mean anything */
    struct sequence_list waiting; /* by due_us, but for urgent ones */
    /* while a plan is made */
    int32_t num_running;
    int32_t prompts;             /* chain of running sequences with more than a token to compute, by due_us */
    double decode_us, prompt_us; /* what its decoding rows take, and its prompts that may be computed */
    double us_granted;           /* that its decoding rows may take */
    uint64_t turn, next_turn;    /* arrival of who decodes first, as the last plan left it; 0: the oldest */
    uint64_t passed_plan;        /* the last plan in which its shorter ones passed a long one */
};

struct scheduler {
    struct scheduler_options options;
    struct block_manager *blocks;
    struct prefix_cache *prefixes; /* NULL: off */
    struct kv_tables *tables;      /* rows: batch slots */
    struct host_blocks *host_blocks;
    int32_t num_sequences;
    struct sequence *sequences; /* [num_sequences] */
    int32_t *free_batch_slots;  /* a stack */
    int32_t num_free_batch_slots;
    struct sequence_list free, urgent, running, closing; /* running: oldest first; urgent: they wait, too */
    int32_t num_waiting;
    struct tenant *tenants; /* [num_sequences] */
    int32_t *active;        /* [num_sequences] tenants that have sequences */
    struct owner *owners;   /* [num_sequences] */
    int32_t num_tenants, num_active, num_owners;
    double virtual_us; /* service_us of the owner that was served last: where others come in */
    struct step_prices prices;
    struct answer_rule answers; /* without a header: off */
    uint64_t num_plans;
    double planned_us, displace_from_us; /* of all plans; none is displaced before they have come to this */
    /* while a plan is made: who did not fit */
    struct sequence *refused[BYPASS_LOOK_AHEAD];
    int32_t num_refused;
    int32_t num_steps_in_flight;
    uint64_t num_arrivals, num_preemptions, num_saved;
};

static inline int32_t id_of(const struct scheduler *s, const struct sequence *seq)
{
    return (int32_t)(seq - s->sequences);
}

/* after: NO_SEQUENCE for the front. */
void sequence_list_insert(struct scheduler *s, struct sequence_list *list, int32_t id, int32_t after);
void sequence_list_remove(struct scheduler *s, struct sequence_list *list, int32_t id);

/* ---- scheduler_queue.c ---- */

/* The input's tenant gets the sequence. */
void scheduler_join_tenant(struct scheduler *s, struct sequence *seq, const struct sequence_input *input);
void scheduler_leave_tenant(struct scheduler *s, struct sequence *seq);
static inline struct tenant *tenant_of(struct scheduler *s, const struct sequence *seq)
{
    return &s->tenants[seq->tenant];
}

static inline struct owner *owner_of(struct scheduler *s, const struct tenant *t)
{
    return &s->owners[t->owner];
}

/* In and out of the list that it waits in: its tenant's or, since it was passed over too often, urgent. */
void scheduler_enqueue(struct scheduler *s, struct sequence *seq);
void scheduler_dequeue(struct scheduler *s, struct sequence *seq);
void scheduler_make_urgent(struct scheduler *s, struct sequence *seq);
static inline bool sequence_is_urgent(const struct sequence *seq)
{
    return seq->num_bypassed >= BYPASS_MAX;
}
static inline bool sequence_is_due_before(const struct sequence *a, const struct sequence *b)
{
    return a->due_us != b->due_us ? a->due_us < b->due_us : a->arrival < b->arrival;
}

/* ---- scheduler.c ---- */

/* Tells the prefix cache about every block that is full of known tokens by now. */
void scheduler_hash_full_blocks(struct scheduler *s, struct sequence *seq);
/* Of the first num_tokens, which are known: those whose K and V have the bits that anybody's have behind the same tokens. */
int32_t scheduler_num_shareable(const struct scheduler *s, struct sequence *seq, int32_t num_tokens);
/* Blocks and batch_slot of a sequence that no step in flight names. */
void scheduler_release(struct scheduler *s, struct sequence *seq);

/* ---- scheduler_plan.c ---- */

/* What a tenant's prompts take that may be computed in this plan: those that run, and of those that wait as many as one looks at. */
double scheduler_prompts_us(struct scheduler *s, const struct tenant *t);
/* Whose turn is earlier: owners' first, then among one's tenants, then by due time. */
bool scheduler_goes_before(struct scheduler *s, const struct sequence *a, const struct sequence *b);
/* Places that stay free for its owner's other tenants and for other owners when this one's next is admitted: as many as it, and
 * as its owner, has taken at most. t: NULL for urgent ones. */
int32_t scheduler_num_left_free(const struct scheduler *s, const struct tenant *t);
/* False: it was refused for want of blocks, and no more are available since. */
bool scheduler_has_hope(const struct scheduler *s, const struct sequence *waiting);
/* No urgent one waits, or its owner has others running and this tenant's owner has none. */
bool scheduler_passes_urgent(const struct scheduler *s, const struct tenant *t);
/* Blocks that must become available before it is admitted: <= 0: none. */
int32_t scheduler_num_blocks_missing(const struct scheduler *s, const struct sequence *waiting);

/* ---- scheduler_displace.c ---- */

/* Where the first of those who wait finds no place or no blocks, and other owners have more than its own has by weight, also after
 * that, the youngest of theirs wait instead; if what they have computed is saved, and no more often than that its copies take one
 * part in eight of all time. False: it must be done, and a step in flight is in the way. */
bool scheduler_displace(struct scheduler *s, struct plan *plan) must_check;

/* ---- scheduler_turns.c ---- */

/* Where several tenants want more of a step than it has time for, marks the decoding rows that this plan leaves out. */
void scheduler_take_turns(struct scheduler *s);

/* ---- scheduler_preempt.c ---- */

/* Takes everything from a running sequence that no step in flight names and puts it before all who wait. What
 * it has computed may be among the plan's saves. */
void scheduler_preempt(struct scheduler *s, struct plan *plan, struct sequence *seq);
/* The same, but it waits in its tenant's line. */
void scheduler_displace_one(struct scheduler *s, struct plan *plan, struct sequence *seq);
/* What would become of its work behind others', that take so much of what there is for this. */
struct saved {
    int32_t num_blocks, num_states;
};
struct preemption scheduler_weigh_preemption(const struct scheduler *s, const struct sequence *seq,
                                             const struct saved *before);
/* An admitted sequence, with blocks in its table for all of its tokens: what was saved goes into those behind the
 * first num_hits, and counts as computed. */
void scheduler_restore(struct scheduler *s, struct plan *plan, struct sequence *seq, int32_t num_hits);
/* Its host blocks. */
void scheduler_forget_saved(struct scheduler *s, struct sequence *seq);
/* Blocks that shall remain when a preempted sequence comes back. */
int32_t scheduler_room(const struct scheduler *s, const struct sequence *preempted);

/* ---- scheduler_states.c ---- */

/* What an admitted sequence goes on from: the hit's state, or what was saved where that reaches farther. */
void scheduler_take_state(struct scheduler *s, struct sequence *seq, const struct state_match *match,
                          int32_t num_hits);
/* Of the sequence's next part of a step: its state comes back before its first, or is kept if it is one to be kept. */
void scheduler_plan_state(struct scheduler *s, struct plan *plan, struct sequence *seq);
/* Tokens up to the next place in its prompt where its state is to be kept; INT32_MAX: there is none. */
int32_t scheduler_num_tokens_to_state(const struct scheduler *s, const struct sequence *seq);
/* Of a sequence that decodes: where in what it generates its state is to be kept next, behind its known tokens; INT32_MAX: nowhere. */
int32_t scheduler_next_generated_state(const struct scheduler *s, const struct sequence *seq);
/* Of a sequence to be preempted: whether there is a place for it behind num_before others', and giving it one. */
bool scheduler_can_save_state(const struct scheduler *s, const struct sequence *seq, int32_t num_before);
void scheduler_save_state(struct scheduler *s, struct plan *plan, struct sequence *seq);
/* What it holds of them. */
void scheduler_release_state(struct scheduler *s, struct sequence *seq);

#endif
