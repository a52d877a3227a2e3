/* scheduler.h - which sequences compute which tokens in the next step. Policy and bookkeeping only: no
 * thread, no device, no clock; the same calls give the same plans.
 *
 * A plan is made in this order, each line with what the lines above left of the step:
 *
 *   1. room     every running sequence, oldest first, gets the blocks that its next token needs; when there
 *               are none, the youngest running sequence is preempted: its blocks go, it waits before all
 *               others, and will compute its prompt and what it generated again; unless what it has computed
 *               is saved to host memory, where there is room and the prices call that cheaper
 *   2. parts    where who is first of those who wait finds no place, or no blocks, other owners' youngest may have to wait for it
 *   3. decode   one token of every decoding sequence; where what several tenants want, prompts counted, takes longer than a step
 *               should, each gets time by weight, what one does not need goes to the others, and its decoding sequences take turns
 *   4. prompts  of running sequences and of waiting ones, which are admitted for it, in the order below
 *
 * A step has so many tokens, so many rows of logits, and so much time: target_us at most as the prices say
 * (step_cost.h), less what they are known not to know, twice that when nobody decodes and a long prompt is alone; prompts get a quarter of it whatever
 * decoding takes, and where decoding leaves less than a step's fixed cost more, so that this stays the smaller part.
 * Prices come in as numbers; at zero time does not matter.
 *
 * The order. Among tenants the one goes first that has received least, in microseconds by weight: deficit
 * round robin without the rounds. Who comes, or comes back, starts where those are that are being served, so
 * nobody saves up. Within a tenant goes first what is due first. A sequence is due some time after it has
 * come, PATIENCE times what its prompt will take: so short ones pass long ones, and no longer than that.
 * Where the first does not fit into the step, a quarter of the step goes to shorter ones before it; at most
 * these two kinds are in a step, so that long prompts are not all begun and none ended. Prompts of one request are as one
 * long prompt to others: all of them are due when it would be, and shorter is who has less left than all of them have.
 *
 * Where others may come, an owner that has sequences running takes a place only if it leaves as many free as it has, at most
 * one in PLACES_PER_FREE: an owner that has nothing running finds one, however long the others' answers are, and however many
 * tenants these name. So do an owner's tenants find one, where it may have several: one leaves as many for the others, too. With fewer places than
 * PLACES_SHARED_FROM none is left.
 *
 * Where there is no place left, or there are no blocks, an owner that has less than its part by weight gets them from the one
 * that has most: the youngest of that one's is displaced, which is a preemption after which it waits in its tenant's line. Its
 * owner keeps as much by weight as the other one then has, or at least its oldest where the other one had nothing running: so nothing
 * goes back and forth. Only what can be
 * saved is displaced, and no more often than that the copies take an eighth of all time.
 *
 * A sequence is admitted when all tokens that it has, or of a group with a window as many as it ever holds, fit
 * into blocks and one more block of each group remains for each that runs already, so that an admission is not followed by a preemption at once. One that does not fit may be
 * bypassed by others (nothing idles that somebody could use), but only BYPASS_MAX times: then it is urgent,
 * as preempted ones are at once, and those that another engine has begun to answer, and nobody else is admitted until all urgent ones are, but for who has nothing running where
 * the urgent one's owner has. A preempted one comes
 * back when ROOM_BLOCKS remain for each, as far as it can need them: where all grow alike, none is preempted
 * again soon.
 *
 * Promise: the oldest running sequence can always finish, since the blocks of all others can be had for it
 * and scheduler_add refuses what does not fit into the whole pool. So does, in turn, everyone.
 *
 * Layers with a state. Others can go on from what a sequence has computed only where its state was kept: at multiples of
 * STATE_STRIDE tokens, so that a device may compute as many together and give the same bits. A state is large, so few are
 * kept: at the last multiple in a prompt, for who asks the same and for the next turn of a conversation; at the newest
 * multiple of what was generated, for the same; and at the last multiple before a prompt leaves what is cached, as many
 * begin with one system prompt. A step's part of a prompt ends there, and before its next the state is kept.
 * Kept states are evicted as blocks are, and with the block that they stand behind. A preempted sequence that is saved has
 * its state in one of their places; where all are held it computes again.
 *
 * Steps in flight: plans may be made while earlier ones still run. What the scheduler takes for computed is
 * then only begun, so nothing is taken from a sequence that a step in flight names: a finished one keeps its
 * blocks until that step has ended (closing), a window moves on with the steps that end, and before a preemption scheduler_plan asks for an empty
 * device.
 *
 * Drafts. Tokens that somebody expects to follow a sequence's known ones go through its next step with the last known one, as
 * decoding rows, and each of them draws. The row behind a drafted token counts if the row before it drew that token, so that
 * drafts change how many tokens a step brings and never which. Until the step ends nothing else of the sequence is planned;
 * then its marks go back to behind what counted, and K and V beyond are written again. Drafts take the rows, logits and
 * blocks that the step's sequences leave, and end where a state is to be kept.
 *
 * Where the device's prefill and decode differ in bits, generated tokens are computed as decode does, again after
 * a preemption or an engine's death too. What is known already need not wait for
 * the token before it: with decode_runs a step replays as many tokens of a sequence as it has rows left, each of them
 * a sequence of the device's. A block is shared where how its tokens were computed follows from the tokens alone: prompts are
 * computed by the answer rule (answer_rule.h), answers of earlier turns replayed, runs of both kinds in one step; generated
 * tokens are shared as far as the rule has them go through decode. So a hit changes no bit. Nothing is replayed in
 * a step without prompts that writes what it has just found. Without decode_runs, or without a rule,
 * prompts go through prefill and only they are shared. Thread: the engine's. */
#ifndef SCHEDULER_SCHEDULER_H
#define SCHEDULER_SCHEDULER_H

#include "kvcache/kv_tables.h"
#include "scheduler/sequence.h"
#include "scheduler/step_cost.h"

enum { PATIENCE = 4, ROOM_BLOCKS = 4 };
enum { PLACES_PER_FREE = 16, PLACES_SHARED_FROM = 8 }; /* of max_num_seqs */
enum { STATE_STRIDE = 64 };
enum { BYPASS_MAX = 16, BYPASS_LOOK_AHEAD = 32 };
enum { LOOK_AHEAD_SEQUENCES = 1024 }; /* that are due at so many times */

struct scheduler_options {
    int32_t max_num_seqs; /* running */
    int32_t max_num_rows; /* S of a step (step.h) at most, replayed tokens among them; >= max_num_seqs */
    int32_t max_num_batched_tokens; /* >= max_num_seqs */
    int32_t max_num_logits;         /* >= max_num_seqs */
    int32_t max_num_prefill_keys;   /* as struct device, prefill_keys_max, says; 0: any */
    int32_t max_model_len;
    int32_t num_batch_slots;   /* max_num_seqs times the steps in flight */
    int32_t max_num_sequences; /* in all states but free; closing ones come on top */
    struct kv_groups kv_groups;
    int32_t num_blocks; /* for all groups */
    int32_t num_states; /* places for kept ones; 0: no layer has a state, or nothing is cached or saved */
    int32_t num_host_blocks; /* for what preempted sequences have computed; 0: they compute it again */
    double target_us;        /* that a step may take; 0: any */
    bool enable_prefix_caching, prefill_decode_equal;
    bool
        decode_runs; /* a step may have several decoding rows of one sequence, beside drafts; not where layers have a state */
    bool
        whole_prompts; /* a prompt comes in one step; max_num_batched_tokens and max_num_logits >= max_model_len, nothing is
                           generated, and no prefix caching */
    const void *model_key; /* for the prefix cache; not kept */
    size_t model_key_bytes;
};

/* Tokens of an entry that go through one half of the step: through decode, each by itself, or through prefill. */
struct plan_run {
    int32_t num_tokens;
    bool decodes;
};

/* A sequence's part of a step. Rows of logits, in this order: for each prompt token that is reported on the
 * row before it, then the row that draws the next token. Of a sequence with pooling: the rows that it wants, of which
 * none draws. Where there are other rows than the last token's, there is one run. */
struct plan_entry {
    int32_t seq_id;
    int32_t position, num_tokens; /* computes tokens [position, position + num_tokens), */
    int32_t first_run, num_runs;  /* which are these of the plan's runs, one after the other */
    int32_t score_position,
        num_score_rows; /* rows at [score_position, + num_score_rows) score the token that follows, or pool */
    bool samples;       /* the last token's row draws, and so do those before it of the */
    int32_t num_drafted;  /* last tokens: drafts */
    int32_t num_verified; /* the first of them, behind which rows draw: all, unless some are withheld */
    int32_t num_accepted; /* the first of those, that followed: known when the step has ended */
    bool withheld;        /* draws, but not in this step: scheduler_withhold */
    bool admitted;        /* this is the first entry since the sequence got its batch_slot */
};

/* What was done about the sequence of this slot, and what both ways were expected to take. */
struct preemption {
    int32_t slot_idx, num_tokens; /* computed */
    bool has_state;               /* there is a place for its state, or it has none */
    bool saved;
    bool displaced;                /* its place or its blocks are for another owner's */
    double restore_us, compute_us; /* to the host and back; again */
};

/* Block block_ids[i] to host block host_ids[i], or back. */
struct block_copies {
    int32_t count;
    int32_t *block_ids, *host_ids; /* [num_host_blocks] each */
};

/* What is to be copied is copied before the step begins, saves before loads, states in their order. */
struct plan {
    int32_t num_prefills, num_decodes; /* entries, by their last run */
    int32_t num_runs, num_prefill_runs;
    int32_t num_tokens, num_prefill_tokens, num_logits;
    int32_t num_drafted;      /* tokens of drafts */
    int32_t num_prefill_keys; /* that its prompts see: max_num_prefill_keys */
    struct step_work work;
    double us;                             /* that it will take, as the prices say */
    double us_left;                        /* for prompts: what nobody needed */
    struct plan_entry *prefills, *decodes; /* [max_num_seqs] each */
    struct plan_run *runs;                 /* [max_num_rows] */
    int32_t num_preemptions;
    struct preemption *preemptions; /* [max_num_seqs] */
    struct block_copies saves, loads;
    int32_t num_state_copies;
    struct state_copy *state_copies; /* [2 max_num_seqs] */
};

/* S of the step (step.h): each token that decodes is a sequence of its own. */
static inline int32_t plan_num_step_seqs(const struct plan *plan)
{
    return plan->num_prefill_runs + plan->num_tokens - plan->num_prefill_tokens;
}

/* All entries, in the order of their rows of logits. */
static inline int32_t plan_num_entries(const struct plan *plan)
{
    return plan->num_prefills + plan->num_decodes;
}

static inline struct plan_entry *plan_get_entry(const struct plan *plan, int32_t i)
{
    return i < plan->num_prefills ? &plan->prefills[i] : &plan->decodes[i - plan->num_prefills];
}

static inline int32_t plan_entry_num_draws(const struct plan_entry *e)
{
    return e->samples ? e->num_drafted + 1 : 0;
}

/* Rows of logits. */
static inline int32_t plan_entry_num_logits(const struct plan_entry *e)
{
    return e->num_score_rows + plan_entry_num_draws(e);
}

enum schedule_result {
    SCHEDULE_IDLE, /* nothing can run before a step in flight ends, or nothing is there */
    SCHEDULE_STEP, /* the plan is made and counts as begun */
    SCHEDULE_DRAIN /* end all steps in flight, then ask again: blocks must be taken from a running sequence */
};

struct scheduler_stats {
    int32_t num_running, num_waiting;
    int32_t num_blocks, num_free_blocks, num_cached_blocks, num_held_blocks;
    int32_t num_free_host_blocks;
    uint64_t num_preemptions, num_saved; /* num_saved: of them, those whose work was */
};

struct scheduler;

int scheduler_create(const struct scheduler_options *options, struct scheduler **out,
                     struct error *err) must_check;
void scheduler_destroy(struct scheduler *s);

/* STATUS_NO_MEMORY */
int plan_init(struct plan *plan, int32_t max_num_seqs, int32_t max_num_rows,
              int32_t num_host_blocks) must_check;
void plan_deinit(struct plan *plan);

/* Queues a sequence and writes its id. STATUS_NO_BLOCKS: the whole pool would be too small for it. */
int scheduler_add(struct scheduler *s, const struct sequence_input *input, int32_t *seq_id) must_check;
struct sequence *scheduler_sequence(struct scheduler *s, int32_t seq_id);

/* Before the first sequence. Taken where prefill and decode differ and decode_runs are possible. */
void scheduler_set_answer_rule(struct scheduler *s, const struct answer_rule *rule);

/* For the plans from now on, and for sequences that are added. */
void scheduler_set_prices(struct scheduler *s, const struct step_prices *prices);

enum schedule_result scheduler_plan(struct scheduler *s, struct plan *plan);
/* Running sequences' blocks, by batch_slot. */
const struct kv_tables *scheduler_tables(const struct scheduler *s);

/* The sequence decodes, nothing of it is in flight, and tokens[num_tokens, + num_drafted) hold a draft, at most
 * sequence_num_drafted_max: for the next plan, which takes as many of them as there is room for. */
void scheduler_draft(struct scheduler *s, int32_t seq_id, int32_t num_drafted);

/* Of an entry that samples, in the newest step in flight, the first num_rows rows alone draw. 0: none does after all, the
 * sequence's last known token will be computed again, and its row then draws. */
void scheduler_withhold(struct scheduler *s, struct plan_entry *entry, int32_t num_rows);

/* The oldest step in flight ended. */
void scheduler_end_step(struct scheduler *s);
/* This entry of it ended; num_accepted tokens of its draft followed, and are to be appended, with one more. False when its sequence finished meanwhile: the results go nowhere, and the
 * sequence, if nothing else names it, is gone. */
bool scheduler_end_entry(struct scheduler *s, const struct plan_entry *entry) must_check;
/* The entry that ended last for it drew this token: tokens[num_tokens] holds it. */
void scheduler_append_token(struct scheduler *s, int32_t seq_id);

/* The sequence is done, for whatever reason. Its tokens are not read after this. reusable: false when its K
 * and V may be wrong (NaN), so that the prefix cache forgets them. */
void scheduler_finish(struct scheduler *s, int32_t seq_id, bool reusable);

/* The next sequence that is not finished, running ones before waiting ones; start with NO_SEQUENCE. */
int32_t scheduler_next(const struct scheduler *s, int32_t seq_id);
/* No sequence in any state, closing ones included. */
bool scheduler_is_empty(const struct scheduler *s);

void scheduler_stats(const struct scheduler *s, struct scheduler_stats *out);
/* Walks everything down to each block's references and asserts the invariants. */
void scheduler_check(const struct scheduler *s);

#endif
