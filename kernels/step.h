/* step.h - one forward step as the scheduler writes it and as kernels see it, and what comes back.
 *
 * Shapes: T tokens in the step, S sequences, R rows of logits, G groups of layers, which have K/V blocks of
 * their own. Sequences are ordered: first the
 * num_prefill_seqs that compute prompt tokens (any number of tokens each), then the decoding ones,
 * each with exactly one token. Token t belongs to the sequence s with
 * cu_seqlens_q[s] <= t < cu_seqlens_q[s+1].
 *
 *   tokens:   | seq 0: prompt chunk | seq 1: prompt chunk | d | d | d | ...
 *              \___ num_prefill_tokens, num_prefill_seqs _/ \_ one each _/
 *
 * Where prefill and decode differ in bits, several of them may be parts of one sequence, runs of its tokens by turns through
 * prefill and, token by token, through decode: each sees what all those before it write (kernels/README.md, "Runs of both kinds").
 *
 * Ids, positions and lengths were validated by whoever filled the step in; devices only
 * assert_debug them. */
#ifndef KERNELS_STEP_H
#define KERNELS_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bit_set.h"
#include "kernels/mask.h"
#include "link/sampling.h"

enum { BLOCK_SIZE = 16 };    /* tokens in a K/V block */
enum { KV_GROUPS_MAX = 16 }; /* of layers, each with block tables of its own (kvcache/kv_groups.h) */

/* As in vLLM: what a person writes as 0 may arrive as a little more. */
#define SAMPLING_GREEDY_BELOW 1e-5f

enum { DRAW_TRIES = 4 }; /* cpu/sample_row.h, step 9 */

/* What to do with one row of logits. Either sample the next token, or (score_token_id >= 0, for
 * prompt log probabilities) report on a token that is already known, or leave something of it in the floats of its
 * batch_slot (device.h: row):
 *
 *   num_row_logits > 0    its logits of those tokens; score_token_id is >= 0, too
 *   pool_end > 0          nobody wants its logits, but its hidden state behind the final norm, which joins the
 *                         batch_slot's sum: the mean of tokens [pool_begin, pool_end) is known with the last of them. A
 *                         sequence's tokens from pool_begin on come in order, over as many steps as it takes */
struct sample_params {
    int32_t batch_slot;  /* whose history; also where a sampled token is remembered */
    int32_t position;    /* position of the token to draw, counted in the sequence: so long is its history */
    int32_t num_drafted; /* the last so many of these are a draft: the step's tokens up to the row's own */
    int32_t score_token_id;   /* -1: sample */
    struct sampling sampling; /* scored rows report at least their token */
    int32_t num_logit_bias;
    const struct logit_bias *logit_bias; /* sorted by token_id, no duplicates; host memory that stays
                                            valid until step_end */
    int32_t num_banned;    /* tokens that may not be drawn now (min_tokens, ignore_eos does not ban) */
    const int32_t *banned; /* as logit_bias */
    /* What the row may draw is learned while the forward pass runs: allowed and withheld are read by the
     * device's sample and may be set until then; without constrained they are NULL and false. Not with
     * score_token_id. */
    bool constrained;
    bool withheld; /* the row draws nothing in this step */
    const uint64_t
        *allowed; /* a bit_set of ids; NULL: every id. Host memory, not read any more when sample has
                                returned */
    int32_t pool_begin, pool_end; /* positions; pool_end 0: the row is one of logits */
    int32_t num_row_logits;
    const int32_t *row_logits; /* as logit_bias */
    int32_t num_logprob_ids; /* with num_logprobs >= 0: these are reported, in their order, and not the best;
                                  at most TOP_LOGPROBS_MAX; 0: the best */
    const int32_t *logprob_ids; /* as logit_bias */
};

struct sample_result {
    int32_t token_id; /* the drawn token, or score_token_id */
    bool failed;   /* the row held a NaN or an infinity, or nothing could be drawn: token_id is meaningless */
    bool withheld; /* as it was asked: nothing was drawn, and all else here is meaningless */
    struct token_logprobs logprobs; /* logprob 0 and num_top 0 unless asked for */
};

/* The row's hidden state is wanted, not its logits. */
static inline bool sample_pools(const struct sample_params *p)
{
    return p->pool_end > 0;
}

/* Host memory, owned by the caller, valid and unchanged until step_end returns (but see constrained). */
struct step {
    int32_t num_tokens, num_seqs, num_logits; /* T, S, R */
    int32_t num_pooled;                       /* of the R: rows that pool */
    int32_t num_prefill_tokens, num_prefill_seqs;
    int32_t num_kv_groups;       /* G; 0 is 1 */
    int32_t block_table_stride;  /* entries a row of block_tables */
    const int32_t *token_ids;    /* [T]; >= 0 an id; < 0: the token last sampled for batch_slot ~id */
    const int32_t *positions;    /* [T]; of an encoder's tokens of the second type: + max_model_len */
    const int32_t *slot_mapping; /* [G][T] block_id * BLOCK_SIZE + offset: where the token's K and V go */
    const int32_t *cu_seqlens_q; /* [S+1] */
    const int32_t *batch_slots;  /* [S] whose states they go on with (device.h: delta_net); or NULL */
    const int32_t *seqlens_k;    /* [S] tokens of context after this step, the step's own included */
    const int32_t *block_tables; /* [G][S][stride]; what no token of the step sees may be any block */
    const int32_t *logit_rows;   /* [R] token index t in [0, T), strictly ascending */
    const struct sample_params *sample; /* [R] */
    const struct sequence_mask *masks;  /* [S]; NULL: all are causal */
    const int32_t
        *loras; /* [S] the sequence's adapter, from 1 on (device.h: lora_desc); 0: none; NULL: none has one */
};

/* Of one group: [T], [S][stride]. */
static inline const int32_t *step_slot_mapping(const struct step *s, int32_t kv_group)
{
    return s->slot_mapping + (int64_t)kv_group * s->num_tokens;
}

static inline const int32_t *step_block_tables(const struct step *s, int32_t kv_group)
{
    return s->block_tables + (int64_t)kv_group * s->num_seqs * s->block_table_stride;
}

static inline int32_t step_num_kv_groups(const struct step *s)
{
    return s->num_kv_groups > 0 ? s->num_kv_groups : 1;
}

/* Of all layers that have a state (device.h: delta_desc): what the first position tokens of the batch_slot's sequence have
 * left, kept in a place of its own, or back from there for a sequence that goes on behind these tokens. */
struct state_copy {
    int32_t batch_slot, state, position;
    bool keeps; /* false: it comes back */
};

/* The largest step that will ever be asked for: a device allocates for it once. */
struct step_limits {
    int32_t num_tokens, num_seqs, num_logits, num_batch_slots;
    int32_t max_model_len;       /* tokens of one sequence */
    int32_t num_steps_in_flight; /* step_begin calls before the first step_end: 1 or 2 */
    int32_t num_kv_groups;       /* of steps; 0 is 1 */
    int32_t num_states;          /* places for kept states, where layers have one */
    bool has_masks;              /* a step may say which keys its sequences see: step.masks */
    int32_t num_draft_tokens;    /* of a sequence in a step, where layers have a state (state_runs.h) */
};

/* Sequences that may be under way, each with a batch_slot for every step in flight: no more of them decode and draw in a step.
 * Limits without slots say nothing of it. */
static inline int32_t step_limits_num_running(const struct step_limits *l)
{
    int32_t num_running = l->num_batch_slots / (l->num_steps_in_flight > 1 ? l->num_steps_in_flight : 1);
    return num_running > 0 && num_running < l->num_seqs ? num_running : l->num_seqs;
}

#endif
