#include "scheduler/sequence.h"

#include "base/check.h"

void sequence_init(struct sequence *seq, const struct sequence_input *input, uint64_t arrival,
                   const struct block_hash *root)
{
    assert_always(input->num_prompt >= 1 && input->max_tokens >= 0);
    assert_always(input->num_generated >= 0 && input->num_generated <= input->max_tokens);
    *seq = (struct sequence){
        .state = SEQUENCE_WAITING,
        .prev = NO_SEQUENCE,
        .next = NO_SEQUENCE,
        .arrival = arrival,
        .slot_idx = input->slot_idx,
        .tokens = input->tokens,
        .num_prompt = input->num_prompt,
        .max_tokens = input->max_tokens,
        .prompt_logprobs = input->prompt_logprobs,
        .pooling = input->pooling,
        .num_beside = input->num_beside,
        .num_tokens = input->num_prompt + input->num_generated,
        .num_by_rule = input->num_prompt,
        .num_scored = max_of(input->num_scored, 1), /* nothing comes before the first token to predict it */
        .batch_slot = -1,
        .hash = *root,
        .root = *root,
        .available_at_refusal = -1,
        .num_cached_tokens = -1,
        .from_state = NO_BLOCK,
        .last_state = NO_BLOCK,
        .saved = NO_HOST_BLOCK,
        .next_prompt = NO_SEQUENCE,
    };
}

void sequence_forget_computed(struct sequence *seq)
{
    assert_always(seq->num_pending == 0 && seq->num_steps_in_flight == 0);
    seq->num_computed = seq->num_drafted = 0;
    seq->num_hashed_blocks = 0;
    seq->hash = seq->root;
}

int32_t sequence_num_places_max(int32_t num_prompt, int32_t max_tokens)
{
    return num_prompt + max_of(max_tokens - 1, 0);
}
