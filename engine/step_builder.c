#include "engine/step_builder.h"

#include <string.h>

#include "base/check.h"

enum { BANNED_MAX = STOP_TOKEN_IDS_MAX + EOS_IDS_MAX };

/* The part of sample_params that is the same for all rows of a request, and what that points to. */
struct request_sampling {
    struct sample_params params;
    int32_t min_tokens, num_banned, second_begin, lora;
    int32_t banned[BANNED_MAX];
    struct logit_bias logit_bias[LOGIT_BIAS_MAX];
    int32_t row_logits[ROW_LOGITS_MAX];
    int32_t logprob_ids[TOP_LOGPROBS_MAX];
};

struct step_buffer {
    struct step step;
    int32_t *token_ids, *positions, *slot_mapping; /* [num_tokens], [groups][num_tokens] */
    int32_t *cu_seqlens_q, *batch_slots, *loras, *seqlens_k,
        *block_tables;            /* [num_seqs + 1], [num_seqs], [groups][num_seqs][stride] */
    int32_t *logit_rows;          /* [num_logits] */
    struct sample_params *sample; /* [num_logits] */
    int32_t num_constrained;
};

struct step_builder {
    struct step_limits limits;
    int32_t table_stride;
    struct request_sampling *requests; /* [num_batch_slots] */
    struct step_buffer buffers[2];
    /* Of sequences whose tokens see each other, all alike: [max_model_len], its tiles, [num_seqs]; NULL: causal */
    struct mask_rows *keys;
    struct mask_tile *tiles;
    struct sequence_mask *masks;
};

static int buffer_create(struct step_buffer *buf, const struct step_limits *limits, int32_t stride)
{
    size_t tokens = (size_t)limits->num_tokens, seqs = (size_t)limits->num_seqs,
           logits = (size_t)limits->num_logits, groups = (size_t)limits->num_kv_groups;
    buf->token_ids = calloc(tokens, sizeof(int32_t));
    buf->positions = calloc(tokens, sizeof(int32_t));
    buf->slot_mapping = calloc(groups * tokens, sizeof(int32_t));
    buf->cu_seqlens_q = calloc(seqs + 1, sizeof(int32_t));
    buf->batch_slots = calloc(seqs, sizeof(int32_t));
    buf->loras = calloc(seqs, sizeof(int32_t));
    buf->seqlens_k = calloc(seqs, sizeof(int32_t));
    buf->block_tables = calloc(groups * seqs * (size_t)stride, sizeof(int32_t));
    buf->logit_rows = calloc(logits, sizeof(int32_t));
    buf->sample = calloc(logits, sizeof(struct sample_params));
    buf->step = (struct step){.num_kv_groups = limits->num_kv_groups,
                              .block_table_stride = stride,
                              .token_ids = buf->token_ids,
                              .positions = buf->positions,
                              .slot_mapping = buf->slot_mapping,
                              .cu_seqlens_q = buf->cu_seqlens_q,
                              .batch_slots = buf->batch_slots,
                              .seqlens_k = buf->seqlens_k,
                              .block_tables = buf->block_tables,
                              .logit_rows = buf->logit_rows,
                              .sample = buf->sample};
    bool all = buf->token_ids && buf->positions && buf->slot_mapping && buf->cu_seqlens_q &&
               buf->batch_slots && buf->loras && buf->seqlens_k && buf->block_tables && buf->logit_rows &&
               buf->sample;
    return all ? 0 : STATUS_NO_MEMORY;
}

static void buffer_destroy(struct step_buffer *buf)
{
    free(buf->token_ids);
    free(buf->positions);
    free(buf->slot_mapping);
    free(buf->cu_seqlens_q);
    free(buf->batch_slots);
    free(buf->loras);
    free(buf->seqlens_k);
    free(buf->block_tables);
    free(buf->logit_rows);
    free(buf->sample);
}

static int create_masks(struct step_builder *b)
{
    const int32_t num_keys = b->limits.max_model_len;
    b->keys = calloc((size_t)num_keys, sizeof *b->keys);
    b->tiles = calloc((size_t)mask_num_tiles(num_keys), sizeof *b->tiles);
    b->masks = calloc((size_t)b->limits.num_seqs, sizeof *b->masks);
    if (!b->keys || !b->tiles || !b->masks) return STATUS_NO_MEMORY;
    mask_causal(b->keys, num_keys);
    mask_join(b->keys, 0, num_keys);
    mask_fill_tiles(b->keys, num_keys, b->tiles);
    for (int32_t s = 0; s < b->limits.num_seqs; s++) b->masks[s] = (struct sequence_mask){b->keys, b->tiles};
    for (size_t i = 0; i < array_length(b->buffers); i++) b->buffers[i].step.masks = b->masks;
    return STATUS_OK;
}

int step_builder_create(const struct step_limits *limits, struct step_builder **out, struct error *err)
{
    assert_always(limits->num_steps_in_flight >= 1 && limits->num_steps_in_flight <= 2);
    assert_always(limits->num_kv_groups >= 1);
    struct step_builder *b = calloc(1, sizeof(*b));
    int status = b ? 0 : STATUS_NO_MEMORY;
    if (!status) {
        b->limits = *limits;
        b->table_stride = (int32_t)div_up(limits->max_model_len, BLOCK_SIZE);
        b->requests = calloc((size_t)limits->num_batch_slots, sizeof(b->requests[0]));
        if (!b->requests) status = STATUS_NO_MEMORY;
    }
    for (int i = 0; !status && i < limits->num_steps_in_flight; i++)
        status = buffer_create(&b->buffers[i], limits, b->table_stride);
    if (!status && limits->has_masks) status = create_masks(b);
    if (status) {
        step_builder_destroy(b);
        return error_set(err, status, "no memory for the arrays of a step of %d tokens", limits->num_tokens);
    }
    *out = b;
    return 0;
}

void step_builder_destroy(struct step_builder *b)
{
    if (!b) return;
    for (size_t i = 0; i < array_length(b->buffers); i++) buffer_destroy(&b->buffers[i]);
    free(b->requests);
    free(b->keys);
    free(b->tiles);
    free(b->masks);
    free(b);
}

/* Sorted, no duplicates. */
static void ban(struct request_sampling *sampling, int32_t token_id)
{
    int32_t at = sampling->num_banned;
    while (at > 0 && sampling->banned[at - 1] > token_id) at--;
    if (at > 0 && sampling->banned[at - 1] == token_id) return;
    memmove(sampling->banned + at + 1, sampling->banned + at,
            (size_t)(sampling->num_banned - at) * sizeof(int32_t));
    sampling->banned[at] = token_id;
    sampling->num_banned++;
}

void step_builder_set_request(struct step_builder *b, int32_t batch_slot,
                              const struct request_slot_input *input, const struct request_payload *payload,
                              const int32_t *eos_ids, int32_t num_eos_ids)
{
    struct request_sampling *sampling = &b->requests[batch_slot];
    sampling->min_tokens = input->min_tokens;
    sampling->second_begin = input->second_begin;
    sampling->lora = input->lora;
    sampling->num_banned = 0;
    memcpy(sampling->logprob_ids, payload->logprob_ids, (size_t)input->num_logprob_ids * sizeof(int32_t));
    for (int32_t i = 0; i < num_eos_ids && !input->ignore_eos; i++) ban(sampling, eos_ids[i]);
    for (int32_t i = 0; i < input->num_stop_token_ids; i++) ban(sampling, input->stop_token_ids[i]);
    memcpy(sampling->logit_bias, payload->logit_bias,
           (size_t)input->num_logit_bias * sizeof(payload->logit_bias[0]));
    memcpy(sampling->row_logits, payload->row_logits, (size_t)input->num_row_logits * sizeof(int32_t));
    sampling->params = (struct sample_params){
        .batch_slot = batch_slot,
        .score_token_id = -1,
        .sampling = input->sampling,
        .constrained = input->constrained,
        .num_logit_bias = input->num_logit_bias,
        .logit_bias = sampling->logit_bias,
        .num_row_logits = input->num_row_logits,
        .row_logits = sampling->row_logits,
        .num_logprob_ids = input->num_logprob_ids,
        .logprob_ids = sampling->logprob_ids,
    };
    if (input->pooling && input->pooling != POOLING_LOGITS) {
        sampling->params.pool_begin = pooling_begin(input->pooling, input->num_prompt_tokens);
        sampling->params.pool_end = pooling_end(input->pooling, input->num_prompt_tokens);
    }
}

/* ---- prompts of one entry after the other, then what decodes ---- */

static struct sample_params *add_row(struct step_buffer *buf, int32_t token_idx,
                                     const struct request_sampling *sampling)
{
    int32_t row = buf->step.num_logits++;
    buf->logit_rows[row] = token_idx;
    buf->sample[row] = sampling->params;
    return &buf->sample[row];
}

/* Behind the entry's i-th token. */
static void add_drawing_row(struct step_buffer *buf, const struct request_sampling *sampling,
                            const struct sequence *seq, const struct plan_entry *e, int32_t i)
{
    struct sample_params *row = add_row(buf, buf->step.num_tokens - e->num_tokens + i, sampling);
    row->position = e->position + i + 1;
    row->num_drafted = max_of(i + 1 - (e->num_tokens - e->num_drafted), 0);
    buf->num_constrained += row->constrained;
    if (row->position - seq->num_prompt >= sampling->min_tokens) return;
    row->num_banned = sampling->num_banned;
    row->banned = sampling->banned;
}

static void add_rows(struct step_builder *b, struct step_buffer *buf, const struct sequence *seq,
                     const struct plan_entry *e)
{
    const struct request_sampling *sampling = &b->requests[seq->batch_slot];
    int32_t first_token_idx = buf->step.num_tokens - e->num_tokens; /* of one run, where it is asked for */
    for (int32_t i = 0; i < e->num_score_rows; i++) {
        int32_t position = e->score_position + i;
        struct sample_params *row = add_row(buf, first_token_idx + position - e->position, sampling);
        row->position = position + 1;
        row->score_token_id = seq->pooling ? 0 : seq->tokens[position + 1];
        buf->step.num_pooled += sample_pools(row);
        row->constrained = false;
        row->num_logprob_ids = 0;
        row->sampling.num_logprobs = max_of(row->sampling.num_logprobs, 0);
    }
    for (int32_t i = e->num_tokens - plan_entry_num_draws(e); i < e->num_tokens; i++)
        add_drawing_row(buf, sampling, seq, e, i);
}

/* A sequence of the step. */
static void add_seq(struct step_buffer *buf, const struct sequence *seq, int32_t position, int32_t num_tokens)
{
    struct step *step = &buf->step;
    int32_t num_known = seq->num_tokens + seq->num_draft_pending;
    for (int32_t i = position; i < position + num_tokens; i++) {
        int32_t t = step->num_tokens++;
        buf->token_ids[t] = i < num_known ? seq->tokens[i] : ~seq->batch_slot;
        buf->positions[t] = i;
    }
    int32_t s = step->num_seqs++;
    buf->cu_seqlens_q[s + 1] = step->num_tokens;
    buf->batch_slots[s] = seq->batch_slot;
    buf->seqlens_k[s] = position + num_tokens;
}

/* Decoding tokens are sequences of the step each by itself. */
static void add_run(struct step_buffer *buf, const struct sequence *seq, int32_t position,
                    struct plan_run run)
{
    if (!run.decodes) add_seq(buf, seq, position, run.num_tokens);
    for (int32_t i = 0; run.decodes && i < run.num_tokens; i++) add_seq(buf, seq, position + i, 1);
}

/* Of an entry the runs of one kind, and behind its last run its rows of logits. */
static void add_entry(struct step_builder *b, struct step_buffer *buf, const struct sequence *seq,
                      const struct plan *plan, const struct plan_entry *e, bool decodes)
{
    const struct plan_run *runs = plan->runs + e->first_run;
    int32_t position = e->position;
    for (int32_t i = 0; i < e->num_runs; position += runs[i++].num_tokens)
        if (runs[i].decodes == decodes) add_run(buf, seq, position, runs[i]);
    if (runs[e->num_runs - 1].decodes == decodes) add_rows(b, buf, seq, e);
}

/* What lies behind the window is not the sequence's any more: a kernel that reads more than it needs gets a block that is.
 */
static void copy_table(const struct kv_table *table, int32_t num_blocks, int32_t *to)
{
    assert_always(table->begin < num_blocks && num_blocks <= table->end);
    for (int32_t i = 0; i < table->begin; i++) to[i] = table->block_ids[table->begin];
    memcpy(to + table->begin, table->block_ids + table->begin,
           (size_t)(num_blocks - table->begin) * sizeof(to[0]));
}

/* The blocks of sequence s of the step in one group, behind all that the step says of tokens and sequences. */
static void add_blocks(struct step_buffer *buf, int32_t s, int32_t group, const struct kv_table *table)
{
    const struct step *step = &buf->step;
    int32_t *slots = buf->slot_mapping + (int64_t)group * step->num_tokens;
    int64_t row = (int64_t)group * step->num_seqs + s;
    copy_table(table, (int32_t)div_up(buf->seqlens_k[s], BLOCK_SIZE),
               buf->block_tables + row * step->block_table_stride);
    for (int32_t t = buf->cu_seqlens_q[s]; t < buf->cu_seqlens_q[s + 1]; t++) {
        int32_t position = buf->positions[t];
        slots[t] = table->block_ids[position / BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE;
    }
}

/* Tokens of the second type have rows of positions of their own (step.h). Behind the blocks, which go by positions. */
static void move_second(struct step_builder *b, struct step_buffer *buf, int32_t s)
{
    const int32_t begin = buf->cu_seqlens_q[s], second_begin = b->requests[buf->batch_slots[s]].second_begin;
    for (int32_t t = begin; second_begin > 0 && t < buf->cu_seqlens_q[s + 1]; t++)
        if (buf->positions[t] >= second_begin) buf->positions[t] += b->limits.max_model_len;
}

/* Of each sequence, where any has one. */
static void add_loras(struct step_builder *b, struct step_buffer *buf)
{
    struct step *step = &buf->step;
    int32_t any = 0;
    for (int32_t s = 0; s < step->num_seqs; s++) any |= buf->loras[s] = b->requests[buf->batch_slots[s]].lora;
    step->loras = any ? buf->loras : NULL;
}

const struct step *step_builder_build(struct step_builder *b, int buffer_idx, struct scheduler *s,
                                      const struct plan *plan)
{
    struct step_buffer *buf = &b->buffers[buffer_idx];
    struct step *step = &buf->step;
    assert_always(plan->num_tokens <= b->limits.num_tokens && plan->num_logits <= b->limits.num_logits);
    assert_always(plan_num_step_seqs(plan) <= b->limits.num_seqs);
    step->num_tokens = step->num_seqs = step->num_logits = step->num_pooled = 0;
    buf->num_constrained = 0;
    step->num_prefill_tokens = plan->num_prefill_tokens;
    step->num_prefill_seqs = plan->num_prefill_runs;
    for (int decodes = 0; decodes < 2; decodes++)
        for (int32_t i = 0; i < plan_num_entries(plan); i++) {
            const struct plan_entry *e = plan_get_entry(plan, i);
            add_entry(b, buf, scheduler_sequence(s, e->seq_id), plan, e, decodes);
        }
    for (int32_t g = 0; g < step->num_kv_groups; g++)
        for (int32_t i = 0; i < step->num_seqs; i++)
            add_blocks(buf, i, g, kv_tables_get(scheduler_tables(s), buf->batch_slots[i], g));
    for (int32_t i = 0; i < step->num_seqs; i++) move_second(b, buf, i);
    add_loras(b, buf);
    assert_always(step->num_tokens == plan->num_tokens && step->num_logits == plan->num_logits);
    return step;
}

bool step_builder_is_constrained(const struct step_builder *b, int32_t batch_slot)
{
    return b->requests[batch_slot].params.constrained;
}

int32_t step_builder_num_constrained(const struct step_builder *b, int buffer_idx)
{
    return b->buffers[buffer_idx].num_constrained;
}

void step_builder_set_allowed(struct step_builder *b, int buffer_idx, int32_t row, const uint64_t *allowed)
{
    struct sample_params *params = &b->buffers[buffer_idx].sample[row];
    assert_always(params->constrained);
    params->allowed = allowed;
    params->withheld = !allowed;
}
