/* sequence.h - one prompt and what was generated after it, as the scheduler sees it.
 *
 *            add                admit                    finish
 *   free ----------> waiting ----------> running ---------------------> free
 *                      ^  \                | |                            ^
 *                      |   \ finish        | | finish while a step that   |
 *                      |    `-> free       | | names it is in flight      |
 *                      `------ preempt ----'  `---------> closing --------'
 *                                                                 that step ended
 *
 * A sequence is a list of tokens and a mark in it: tokens before num_computed have their K and V in the
 * sequence's blocks, or will have when the steps in flight have run.
 *
 *   tokens:  0 ......... num_prompt ......... num_tokens ... + num_pending
 *            prompt      generated, known     drawn by steps in flight, not known yet
 *   marks:   num_computed <= num_tokens + num_pending
 *
 * What remains to be computed decides what happens next, whether it is a prompt, a prompt whose beginning was
 * found in the prefix cache, a sequence that was preempted, or one more token: there is no other difference.
 * Thread: the engine's. */
#ifndef SCHEDULER_SEQUENCE_H
#define SCHEDULER_SEQUENCE_H

#include "kvcache/host_blocks.h"
#include "kvcache/prefix_cache.h"
#include "link/sampling.h"
#include "scheduler/answer_rule.h"

enum { NO_SEQUENCE = -1 };

enum sequence_state { SEQUENCE_FREE, SEQUENCE_WAITING, SEQUENCE_RUNNING, SEQUENCE_CLOSING };

/* What the scheduler needs to know of a request. */
struct sequence_input {
    int32_t slot_idx;      /* the request slot; the scheduler only carries it */
    const int32_t *tokens; /* the slot's; known ones are read only until the sequence is finished */
    int32_t num_prompt, max_tokens;
    int32_t num_generated; /* known already, after the prompt: another engine has drawn them */
    int32_t num_scored;    /* prompt tokens whose log probabilities are known already */
    bool prompt_logprobs;  /* a row of logits for each prompt token but the first */
    enum pooling pooling;  /* rows that leave something; with max_tokens 0 */
    const void *salt;
    int32_t salt_bytes;
    uint64_t tenant_id;
    uint64_t owner_id;        /* of the tenant, and of others perhaps; 0: of this one alone */
    double weight;            /* its owner's, > 0; 0: 1 */
    bool leaves_places;       /* to other tenants of its owner, that may come, */
    bool owner_leaves_places; /* and so does its owner to other owners */
    uint64_t arrival_us;      /* on any clock that does not go back */
    int64_t patience_us;      /* a class of priority, as a head start (below 0) or a handicap */
    uint64_t deadline_us;     /* on the same clock: nobody waits for it later; 0: none */
    int64_t num_beside;       /* tokens of its request's other prompts: together they are as one long one */
};

struct sequence {
    enum sequence_state state;
    int32_t prev, next;  /* in the list of its state */
    uint64_t arrival;    /* ascending; decides who is older */
    uint64_t due_us;     /* virtual deadline: who waits goes in this order within a tenant */
    int32_t tenant;      /* index */
    int32_t next_prompt; /* while a plan is made: in its tenant's chain */
    int32_t slot_idx;
    const int32_t *tokens;
    int32_t num_prompt, max_tokens;
    bool prompt_logprobs;
    enum pooling pooling;
    int64_t num_beside;

    int32_t num_tokens, num_pending, num_computed;
    int32_t num_scored;          /* prompt tokens whose log probabilities are known or on their way */
    int32_t num_steps_in_flight; /* steps begun and not ended that name this sequence */
    /* Drafted tokens, which may turn out to follow: behind the known ones in tokens. For the next plan; of the step in
     * flight, until whose end nothing else of the sequence is planned. */
    int32_t num_drafted, num_draft_pending;
    /* where prefill and decode differ in bits */
    struct answer_run run; /* of the prompt: the one that is computed next */
    int32_t
        num_by_rule; /* tokens that are computed as the answer rule says, all of the prompt's among them */
    bool in_answer;  /* those leave an answer open */

    /* while running or closing */
    bool is_entered;           /* a step has named it since it was admitted */
    int32_t batch_slot;        /* the device's name for it, and its row of the scheduler's block tables */
    int32_t num_hashed_blocks; /* the first ones, that the prefix cache was told about */
    struct block_hash hash;    /* of the last hashed block */
    struct block_hash root;

    /* where layers have a state (scheduler_states.c); ids of block_manager.h */
    int32_t
        from_state; /* held, until it goes on from there: NO_BLOCK, or while waiting what num_saved_tokens have left, while
                           running what its first step begins with */
    int32_t branch;     /* a state is kept here, where another prompt went on differently; 0: nowhere */
    int32_t last_state; /* it has kept last of what it generated; may be somebody else's by now; NO_BLOCK */
    struct block_hash last_state_hash;

    int32_t num_bypassed;         /* sequences admitted after this one had been refused in the same plan */
    uint64_t refused_plan;        /* the last plan that had no blocks for it */
    uint64_t admitted_plan;       /* the last that had */
    uint64_t displaced_plan;      /* the last plan that chose it to be displaced */
    uint64_t plan_left_out;       /* the last plan that had no time for its next token */
    int32_t available_at_refusal; /* blocks; tried again when there are more */
    int32_t num_cached_tokens;    /* found in the prefix cache when first admitted; -1: not admitted yet */
    struct cache_miss cache_miss; /* why no more were */
    int32_t num_preemptions;

    /* while waiting, since it was preempted: K and V of the first tokens, in host memory */
    int32_t saved; /* a chain of host blocks; NO_HOST_BLOCK: none */
    int32_t num_saved_tokens;
};

void sequence_init(struct sequence *seq, const struct sequence_input *input, uint64_t arrival,
                   const struct block_hash *root);

/* Back to a sequence of which nothing is computed. Its blocks were released. */
void sequence_forget_computed(struct sequence *seq);

/* Tokens whose K and V it can ever need: the last one's are never computed. */
int32_t sequence_num_places_max(int32_t num_prompt, int32_t max_tokens);

static inline int32_t sequence_num_generated(const struct sequence *seq)
{
    return seq->num_tokens + seq->num_pending - seq->num_prompt;
}

/* Tokens whose K and V are neither computed nor in flight. */
static inline int32_t sequence_num_uncomputed(const struct sequence *seq)
{
    return seq->num_tokens + seq->num_pending - seq->num_computed;
}

/* Every token of the prompt has a row, or the first one: blocks of the prefix cache would leave some out. */
static inline bool sequence_wants_all_rows(const struct sequence *seq)
{
    return seq->prompt_logprobs || (seq->pooling && pooling_begin(seq->pooling, seq->num_prompt) == 0);
}

/* What others see of it: its request's other prompts are counted as long as one is left. */
static inline int64_t sequence_num_left(const struct sequence *seq)
{
    return sequence_num_uncomputed(seq) + seq->num_beside;
}

/* False once the steps in flight draw all that was asked for, or while nobody knows how many of the tokens that they draw
 * count: nothing is left to schedule. */
static inline bool sequence_wants_step(const struct sequence *seq)
{
    return seq->num_draft_pending == 0 &&
           (seq->num_computed < seq->num_prompt || sequence_num_generated(seq) < seq->max_tokens);
}

/* One generated token to compute and one to draw after it. */
static inline bool sequence_is_decoding(const struct sequence *seq)
{
    return seq->num_computed >= seq->num_prompt && sequence_num_uncomputed(seq) == 1;
}

/* Tokens that may be drafted for the next plan: the last one that was asked for is always drawn. */
static inline int32_t sequence_num_drafted_max(const struct sequence *seq)
{
    return seq->max_tokens - sequence_num_generated(seq) - 1;
}

#endif
