/* engine_publish.c - results into request slots, and how a request ends.
 *
 * The order of stores is the contract with the loop: first what is published, then the count that publishes
 * it (release), and finish_reason last of all (release). After that store the slot is the loop's and the
 * engine does not look at it again, even if a step that drew one token too many is still in flight for its
 * sequence. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "engine/engine_internal.h"

static void finish_slot(struct engine *e, struct request_slot *slot, enum finish_reason reason,
                        const char *error_text)
{
    slot->finish_ns = clock_monotonic_ns();
    if (error_text) snprintf(slot->error_text, sizeof(slot->error_text), "%s", error_text);
    atomic_store_explicit(&slot->finish_reason, reason, memory_order_release);
    e->published = true;
}

void engine_finish(struct engine *e, int32_t seq_id, enum finish_reason reason, const char *error_text)
{
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

/* The API's validator has checked all of this; a request that slips past it must not hang or hurt others. */
static const char *input_problem(const struct engine *e, const struct request_slot_input *input)
{
    if (input->num_prompt_tokens < 1 || input->max_tokens < 0) return "the request has no prompt";
    if ((int64_t)input->num_prompt_tokens + input->max_tokens > e->options.max_model_len)
        return "prompt and answer together exceed the model's context";
    return NULL;
}

void engine_accept(struct engine *e, int32_t slot_idx)
{
    struct request_slot *slot = request_slots_get(e->slots, slot_idx);
    const struct request_slot_input *input = &slot->input;
    const char *problem = input_problem(e, input);
    if (atomic_load_explicit(&e->failed, memory_order_relaxed)) {
        finish_slot(e, slot, FINISH_DEVICE, "the device failed");
    } else if (atomic_load_explicit(&slot->cancel, memory_order_acquire)) {
        finish_slot(e, slot, FINISH_CANCELLED, NULL);
    } else if (problem) {
        finish_slot(e, slot, FINISH_ERROR, problem);
    } else {
        struct sequence_input sequence = {.slot_idx = slot_idx,
                                          .tokens = request_slots_tokens(e->slots, slot_idx),
                                          .num_prompt = input->num_prompt_tokens,
                                          .max_tokens = input->max_tokens,
                                          .prompt_logprobs = input->prompt_logprobs,
                                          .salt = input->cache_salt,
                                          .salt_bytes = sizeof(input->cache_salt)};
        if (scheduler_add(e->scheduler, &sequence, &e->seq_of_slot[slot_idx]) != 0)
            finish_slot(e, slot, FINISH_ERROR, "the request needs more K/V blocks than there are");
    }
}

static void copy_logprobs(struct token_logprobs *out, const struct sample_result *row)
{
    assert_always(row->num_top >= 0 && row->num_top <= TOP_LOGPROBS_MAX);
    out->logprob = row->logprob;
    out->num_top = row->num_top;
    memcpy(out->top_ids, row->top_ids, (size_t)row->num_top * sizeof(out->top_ids[0]));
    memcpy(out->top_logprobs, row->top_logprobs, (size_t)row->num_top * sizeof(out->top_logprobs[0]));
}

static void publish_prompt(struct engine *e, struct request_slot *slot, int32_t slot_idx,
                           const struct plan_entry *entry, const struct sample_result *rows)
{
    int32_t computed = min_of(entry->position + entry->num_tokens, slot->input.num_prompt_tokens);
    int32_t before = atomic_load_explicit(&slot->num_prompt_computed, memory_order_relaxed);
    if (computed > before) {
        /* What was cached was not computed; what a preemption makes compute again is not counted again. */
        counter_add(&e->counters.prompt_tokens,
                    (uint64_t)(computed - max_of(before, slot->num_cached_tokens)));
        atomic_store_explicit(&slot->num_prompt_computed, computed, memory_order_release);
    }
    if (!slot->input.prompt_logprobs) return;
    struct token_logprobs *logprobs = request_slots_logprobs(e->slots, slot_idx) + entry->score_position + 1;
    for (int32_t i = 0; i < entry->num_score_rows; i++) copy_logprobs(&logprobs[i], &rows[i]);
    /* The first token has none and is known when anything is. */
    int32_t known = min_of(entry->position + entry->num_tokens + 1, slot->input.num_prompt_tokens);
    if (known <= atomic_load_explicit(&slot->num_prompt_published, memory_order_relaxed)) return;
    atomic_store_explicit(&slot->num_prompt_published, known, memory_order_release);
    e->published = true;
}

static bool contains(const int32_t *ids, int32_t num_ids, int32_t id)
{
    for (int32_t i = 0; i < num_ids; i++)
        if (ids[i] == id) return true;
    return false;
}

static bool is_stop(const struct engine *e, const struct request_slot_input *input, int32_t token_id)
{
    const struct model_config *model = model_config(e->model);
    if (!input->ignore_eos && contains(model->eos_ids, model->num_eos_ids, token_id)) return true;
    return contains(input->stop_token_ids, input->num_stop_token_ids, token_id);
}

static void publish_token(struct engine *e, struct request_slot *slot, int32_t seq_id,
                          const struct sample_result *row)
{
    const struct sequence *seq = scheduler_sequence(e->scheduler, seq_id);
    int32_t position = seq->num_tokens, slot_idx = seq->slot_idx;
    request_slots_tokens(e->slots, slot_idx)[position] = row->token_id;
    if (slot->input.num_logprobs >= 0)
        copy_logprobs(&request_slots_logprobs(e->slots, slot_idx)[position], row);
    scheduler_append_token(e->scheduler, seq_id);
    counter_add(&e->counters.generated_tokens, 1);
    int32_t num_generated = seq->num_tokens - seq->num_prompt;
    if (num_generated == 1) slot->first_token_ns = clock_monotonic_ns();
    atomic_store_explicit(&slot->num_published, num_generated, memory_order_release);
    e->published = true;
    if (is_stop(e, &slot->input, row->token_id)) {
        slot->stop_token_id = row->token_id;
        engine_finish(e, seq_id, FINISH_STOP, NULL);
    } else if (num_generated == seq->max_tokens) {
        engine_finish(e, seq_id, FINISH_LENGTH, NULL);
    }
}

void engine_publish_entry(struct engine *e, const struct plan_entry *entry, const struct sample_result *rows)
{
    const struct sample_result *drawn = entry->samples ? &rows[entry->num_score_rows] : NULL;
    if (!scheduler_end_entry(e->scheduler, entry)) {
        if (drawn && !drawn->failed) {
            counter_add(&e->counters.generated_tokens, 1);
            counter_add(&e->counters.discarded_tokens, 1);
        }
        return;
    }
    const struct sequence *seq = scheduler_sequence(e->scheduler, entry->seq_id);
    struct request_slot *slot = request_slots_get(e->slots, seq->slot_idx);
    for (int32_t i = 0; i < entry->num_score_rows + entry->samples; i++) {
        if (!rows[i].failed) continue;
        engine_finish(e, entry->seq_id, FINISH_ERROR, "the model's output is not a number for this request");
        return;
    }
    publish_prompt(e, slot, seq->slot_idx, entry, rows);
    if (drawn)
        publish_token(e, slot, entry->seq_id, drawn);
    else if (seq->max_tokens == 0 && entry->position + entry->num_tokens == seq->num_prompt)
        engine_finish(e, entry->seq_id, FINISH_LENGTH, NULL);
}
