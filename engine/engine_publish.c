/* engine_publish.c - results into request slots, and how a request ends.
 *
 * The order of stores is the contract with the loop: first what is published, then the count that publishes
 * it (release), and finish_reason last of all (release). After that store the slot is the loop's and the
 * engine does not look at it again, even if a step that drew one token too many is still in flight for its
 * sequence. */
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/id_list.h"
#include "engine/engine_internal.h"

/* Of arrival, for a step of priority: who is so much less urgent goes before one that comes so much later. */
enum { PRIORITY_US = 10000000 };

static const char NOT_A_NUMBER[] = "the model's output is not a number for this request";

static void finish_slot(struct engine *e, struct request_slot *slot, enum finish_reason reason,
                        const char *error_text)
{
    if (slot->scheduled_ns == 0) engine_count_dequeued(e, slot);
    slot->finish_ns = clock_monotonic_ns();
    request_slot_finish(slot, reason, error_text);
    e->published = true;
}

void engine_finish(struct engine *e, int32_t seq_id, enum finish_reason reason, const char *error_text)
{
    engine_energy_settle(e);
    const struct sequence *seq = scheduler_sequence(e->scheduler, seq_id);
    int32_t slot_idx = seq->slot_idx;
    struct request_slot *slot = request_slots_get(e->slots, slot_idx);
    slot->num_preemptions = seq->num_preemptions;
    scheduler_finish(e->scheduler, seq_id, reason != FINISH_ERROR);
    e->seq_of_slot[slot_idx] = NO_SEQUENCE;
    finish_slot(e, slot, reason, error_text);
}

void engine_finish_all(struct engine *e, enum finish_reason reason, const char *error_text)
{
    int32_t seq_id;
    while ((seq_id = scheduler_next(e->scheduler, NO_SEQUENCE)) != NO_SEQUENCE)
        engine_finish(e, seq_id, reason, error_text);
}

static const char *pooling_problem(const struct engine *e, const struct request_slot_input *input)
{
    if (input->max_tokens > 0 || input->prompt_logprobs || input->constrained)
        return "a row of floats has no answer beside it";
    if (input->pooling != POOLING_LOGITS && model_config(e->model)->hidden_size > ROW_FLOATS_MAX)
        return "the model's hidden states are too wide";
    if (input->num_row_logits < 0 || input->num_row_logits > ROW_LOGITS_MAX)
        return "too many logits are wanted";
    if (input->scores_pair && (input->pooling != model_config(e->model)->score_pooling ||
                               !model_config(e->model)->family->scores_pairs))
        return "the model does not score pairs";
    if (input->second_begin < 0 || input->second_begin > input->num_prompt_tokens ||
        (input->second_begin > 0 && !model_config(e->model)->has_second_type))
        return "the model has no second type of tokens there";
    return NULL;
}

/* The API's validator has checked all of this; a request that slips past it must not hang or hurt others. */
static const char *input_problem(const struct engine *e, const struct request_slot_input *input)
{
    if (input->num_prompt_tokens < 1 || input->max_tokens < 0) return "the request has no prompt";
    if ((int64_t)input->num_prompt_tokens + input->max_tokens > e->options.max_model_len)
        return "prompt and answer together exceed the model's context";
    if (input->num_predicted < 0 || input->num_predicted > e->options.max_model_len)
        return "more is predicted than the model's context has room for";
    if (input->num_logprob_ids < 0 || input->num_logprob_ids > TOP_LOGPROBS_MAX)
        return "too many log probabilities are wanted";
    if (e->options.whole_prompts && (!input->pooling || input->pooling == POOLING_LOGITS))
        return "the model makes embeddings and nothing else";
    return input->pooling ? pooling_problem(e, input) : NULL;
}

static bool is_stop(const struct engine *e, const struct request_slot_input *input, int32_t token_id)
{
    if (!input->ignore_eos && id_list_has(e->eos_ids, e->num_eos_ids, token_id)) return true;
    return id_list_has(input->stop_token_ids, input->num_stop_token_ids, token_id);
}

/* What the last generated token means for the answer; FINISH_NONE: it goes on. */
static enum finish_reason finish_of(const struct engine *e, struct request_slot *slot, int32_t num_generated,
                                    int32_t last_token)
{
    if (is_stop(e, &slot->input, last_token)) {
        slot->stop_token_id = last_token;
        return FINISH_STOP;
    }
    return num_generated == slot->input.max_tokens ? FINISH_LENGTH : FINISH_NONE;
}

/* An engine may have died between an answer's last token and its end. */
static enum finish_reason finish_left_over(const struct engine *e, int32_t slot_idx, int32_t num_generated)
{
    struct request_slot *slot = request_slots_get(e->slots, slot_idx);
    if (num_generated == 0) return FINISH_NONE;
    int32_t last =
        request_slots_tokens(e->slots, slot_idx)[slot->input.num_prompt_tokens + num_generated - 1];
    return finish_of(e, slot, num_generated, last);
}

static enum drafter_source source_of_drafts(const struct request_slot *slot)
{
    bool was_begun = slot->scheduled_ns > 0; /* by another engine */
    if (was_begun) return DRAFTER_OFF;
    return slot->input.constrained ? DRAFTER_IS_TOLD : DRAFTER_LOOKS_UP;
}

/* The mask of the next token, whoever has drawn the last, and what is guessed of it. */
static void want_first_mask(struct engine *e, int32_t slot_idx)
{
    if (e->drafters[slot_idx].source == DRAFTER_IS_TOLD)
        engine_want_guess(e, scheduler_sequence(e->scheduler, e->seq_of_slot[slot_idx]),
                          e->options.num_draft_tokens);
    link_want_mask(e->link, slot_idx);
}

static void add_sequence(struct engine *e, int32_t slot_idx, int32_t num_generated)
{
    struct request_slot *slot = request_slots_get(e->slots, slot_idx);
    const struct request_slot_input *input = &slot->input;
    drafter_init(&e->drafters[slot_idx], source_of_drafts(slot));
    drafter_predict(&e->drafters[slot_idx], request_slots_predicted(e->slots, slot_idx), input->num_predicted,
                    input->num_prompt_tokens);
    struct sequence_input sequence = {
        .slot_idx = slot_idx,
        .tokens = request_slots_tokens(e->slots, slot_idx),
        .num_prompt = input->num_prompt_tokens,
        .max_tokens = input->max_tokens,
        .num_generated = num_generated,
        .num_scored = atomic_load_explicit(&slot->num_prompt_published, memory_order_relaxed),
        .prompt_logprobs = input->prompt_logprobs,
        .pooling = input->pooling,
        .salt = input->cache_salt,
        .salt_bytes = sizeof(input->cache_salt),
        .num_beside = input->num_tokens_beside,
        .tenant_id = input->tenant_id,
        .owner_id = input->owner_id,
        .weight = input->weight,
        .leaves_places = input->leaves_places,
        .owner_leaves_places = input->owner_leaves_places,
        .arrival_us = input->arrival_ns / 1000,
        .patience_us = input->priority * (int64_t)PRIORITY_US,
        .deadline_us = input->deadline_ns / 1000};
    if (scheduler_add(e->scheduler, &sequence, &e->seq_of_slot[slot_idx]) != 0)
        finish_slot(e, slot, FINISH_ERROR, "the request needs more K/V blocks than there are");
    else if (input->constrained)
        want_first_mask(e, slot_idx);
}

void engine_accept(struct engine *e, int32_t slot_idx)
{
    struct request_slot *slot = request_slots_get(e->slots, slot_idx);
    const char *problem = input_problem(e, &slot->input);
    int32_t num_generated = atomic_load_explicit(&slot->num_published, memory_order_relaxed);
    enum finish_reason left_over;
    if (e->failed) {
        if (!e->options.leaves_requests) finish_slot(e, slot, FINISH_DEVICE, "the device failed");
    } else if (atomic_load_explicit(&slot->cancel, memory_order_acquire)) {
        finish_slot(e, slot, FINISH_CANCELLED, NULL);
    } else if (problem) {
        finish_slot(e, slot, FINISH_ERROR, problem);
    } else if ((left_over = finish_left_over(e, slot_idx, num_generated)) != FINISH_NONE) {
        finish_slot(e, slot, left_over, NULL);
    } else {
        add_sequence(e, slot_idx, num_generated);
    }
}

static void publish_prompt(struct engine *e, struct request_slot *slot, int32_t slot_idx,
                           const struct plan_entry *entry, const struct sample_result *rows)
{
    int32_t computed = min_of(entry->position + entry->num_tokens, slot->input.num_prompt_tokens);
    int32_t before = atomic_load_explicit(&slot->num_prompt_computed, memory_order_relaxed);
    if (computed > before) {
        /* What was cached was not computed; what a preemption makes compute again is not counted again. */
        counter_add(&e->counters->prompt_tokens,
                    (uint64_t)(computed - max_of(before, slot->num_cached_tokens)));
        atomic_store_explicit(&slot->num_prompt_computed, computed, memory_order_release);
    }
    if (!slot->input.prompt_logprobs) return;
    struct token_logprobs *logprobs = request_slots_logprobs(e->slots, slot_idx) + entry->score_position + 1;
    for (int32_t i = 0; i < entry->num_score_rows; i++) logprobs[i] = rows[i].logprobs;
    /* The first token has none and is known when anything is. */
    int32_t known = min_of(entry->position + entry->num_tokens + 1, slot->input.num_prompt_tokens);
    if (known <= atomic_load_explicit(&slot->num_prompt_published, memory_order_relaxed)) return;
    atomic_store_explicit(&slot->num_prompt_published, known, memory_order_release);
    e->published = true;
}

/* Returns whether the answer goes on. */
static bool publish_token(struct engine *e, struct request_slot *slot, int32_t seq_id,
                          const struct sample_result *row)
{
    const struct sequence *seq = scheduler_sequence(e->scheduler, seq_id);
    int32_t position = seq->num_tokens, slot_idx = seq->slot_idx;
    request_slots_tokens(e->slots, slot_idx)[position] = row->token_id;
    if (slot->input.sampling.num_logprobs >= 0)
        request_slots_logprobs(e->slots, slot_idx)[position] = row->logprobs;
    scheduler_append_token(e->scheduler, seq_id);
    int32_t num_generated = seq->num_tokens - seq->num_prompt;
    uint64_t now_ns = clock_monotonic_ns();
    if (num_generated == 1) slot->first_token_ns = now_ns;
    atomic_store_explicit(&slot->last_token_ns, now_ns, memory_order_relaxed);
    /* Side by side: a token is counted when it is published, or an engine that dies here is off by one. */
    counter_add(&e->counters->generated_tokens, 1);
    atomic_store_explicit(&slot->num_published, num_generated, memory_order_release);
    e->published = true;
    enum finish_reason finish = finish_of(e, slot, num_generated, row->token_id);
    if (finish != FINISH_NONE) engine_finish(e, seq_id, finish, NULL);
    return finish == FINISH_NONE;
}

/* The prompt is computed, and what pooling has left of it goes into the slot. */
static void publish_row(struct engine *e, struct request_slot *slot, const struct sequence *seq)
{
    bool is_logits = slot->input.pooling == POOLING_LOGITS;
    float *row = request_slots_row(e->slots, seq->slot_idx);
    if (slot->input.scores_pair) {
        slot->num_row_floats = 1;
        row[0] = model_score(e->model, seq->batch_slot);
        return;
    }
    slot->num_row_floats =
        is_logits ? slot->input.num_row_logits : model_config_embedding_size(model_config(e->model));
    const float *from =
        is_logits ? model_row(e->model, seq->batch_slot) : model_embedding(e->model, seq->batch_slot);
    memcpy(row, from, (size_t)slot->num_row_floats * sizeof(float));
}

static void end_without_tokens(struct engine *e, struct request_slot *slot, int32_t seq_id)
{
    if (slot->input.pooling) publish_row(e, slot, scheduler_sequence(e->scheduler, seq_id));
    engine_finish(e, seq_id, FINISH_LENGTH, NULL);
}

/* The rows that drew, up to the first that had drawn something else than its draft; each row behind a failed one is in vain. */
static void publish_tokens(struct engine *e, struct request_slot *slot, const struct plan_entry *entry,
                           const struct sample_result *rows)
{
    const struct sequence *seq = scheduler_sequence(e->scheduler, entry->seq_id);
    if (e->options.num_draft_tokens > 0 && slot->input.constrained) (void)engine_hear_guess(e, seq);
    for (int32_t i = 0; i <= entry->num_accepted; i++) {
        if (rows[i].failed) {
            engine_finish(e, entry->seq_id, FINISH_ERROR, NOT_A_NUMBER);
            return;
        }
        if (!publish_token(e, slot, entry->seq_id, &rows[i])) return;
    }
    if (!slot->input.constrained) return;
    if (e->options.num_draft_tokens > 0) engine_offer_guess(e, seq);
    link_want_mask(e->link, seq->slot_idx);
}

/* How far the rows have drawn what was drafted. */
static int32_t num_accepted(const struct engine *e, const struct plan_entry *entry,
                            const struct sample_result *rows)
{
    const struct sequence *seq = scheduler_sequence(e->scheduler, entry->seq_id);
    int32_t i = 0, first = entry->position + entry->num_tokens - entry->num_drafted;
    if (seq->state != SEQUENCE_RUNNING) return 0;
    while (i < entry->num_verified && !rows[i].failed && rows[i].token_id == seq->tokens[first + i]) i++;
    return i;
}

/* Of the entry's draft, what the client had predicted. Behind the answer's end nothing has come true. */
static void count_predicted(const struct engine *e, struct request_slot *slot, const struct plan_entry *entry,
                            const struct sequence *seq, const struct sample_result *drawn)
{
    int32_t num = min_of(e->drafters[seq->slot_idx].num_predicted, entry->num_verified);
    int32_t num_true = 0, most = min_of(num, entry->num_accepted);
    if (entry->num_drafted == 0 || num == 0) return;
    while (num_true < most && !is_stop(e, &slot->input, drawn[num_true++].token_id)) continue;
    atomic_fetch_add_explicit(&slot->num_predicted_accepted, num_true, memory_order_relaxed);
    atomic_fetch_add_explicit(&slot->num_predicted_rejected, num - num_true, memory_order_relaxed);
}

void engine_publish_entry(struct engine *e, struct plan_entry *entry, const struct sample_result *rows)
{
    bool draws = entry->samples && !entry->withheld;
    const struct sample_result *drawn = rows + entry->num_score_rows;
    entry->num_accepted = num_accepted(e, entry, drawn);
    counter_add(&e->counters->draft_tokens, (uint64_t)entry->num_drafted);
    counter_add(&e->counters->accepted_tokens, (uint64_t)entry->num_accepted);
    if (!scheduler_end_entry(e->scheduler, entry)) {
        if (draws && !drawn->failed) {
            counter_add(&e->counters->generated_tokens, 1);
            counter_add(&e->counters->discarded_tokens, 1);
        }
        return;
    }
    const struct sequence *seq = scheduler_sequence(e->scheduler, entry->seq_id);
    struct request_slot *slot = request_slots_get(e->slots, seq->slot_idx);
    for (int32_t i = 0; i < entry->num_score_rows + draws; i++) {
        if (!rows[i].failed) continue;
        engine_finish(e, entry->seq_id, FINISH_ERROR, NOT_A_NUMBER);
        return;
    }
    publish_prompt(e, slot, seq->slot_idx, entry, rows);
    count_predicted(e, slot, entry, seq, drawn);
    if (draws)
        publish_tokens(e, slot, entry, drawn);
    else if (entry->withheld)
        engine_end_if_masked(e, entry->seq_id);
    else if (seq->max_tokens == 0 && entry->position + entry->num_tokens == seq->num_prompt)
        end_without_tokens(e, slot, entry->seq_id);
}
