/* model_session.h - a model opened for tests and benchmarks, one step at a time, below the scheduler.
 *
 * Sequence s owns the blocks [s * seq_blocks, (s + 1) * seq_blocks) of the pool, by default as many as the
 * longest takes; with groups of layers (kvcache/kv_groups.h) so many in each, and where a window has passed there are others in
 * its table. A step is a list of parts; the prefill parts stand first, as kernels/step.h wants it. */
#ifndef TESTS_MODEL_SESSION_H
#define TESTS_MODEL_SESSION_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "group_members.h"
#include "kvcache/kv_groups.h"
#include "model/kv_layout.h"
#include "model/model.h"

struct session_options {
    const char *model_path, *load_format, *device, *isa;
    int threads;
    int num_devices; /* of a group; 0: test_num_members */
    enum dtype kv_dtype;
    int32_t num_seqs, max_model_len, num_batched_tokens, num_logits;
    int32_t num_blocks; /* of the pool, for each group; 0: room for num_seqs of the longest */
    bool has_groups;    /* of layers, as the engine has them; else all share one table */
    bool keeps_copies;  /* of weights of four bits as bf16 */
};

struct session {
    struct device *device;
    struct model_files *files;
    struct model *model;
    struct session_options options;
    struct kv_layout layout;
    int32_t num_groups;
    int32_t stride, seq_blocks; /* seq_blocks may change between tests, not while sequences live */
    struct sampling sampling;   /* of every row; greedy at first */
    uint64_t free_bytes;        /* of the device, before any step */
    const uint64_t *masks;      /* of every sequence, one after another: what its rows may draw; NULL: all */
    int32_t *token_ids, *positions, *slot_mapping, *cu_seqlens_q, *batch_slots, *seqlens_k, *block_tables,
        *logit_rows;
    struct sample_params *sample;
    struct sample_result *results;
    struct step step;
};

/* Tokens of one sequence to compute now; num_done are in the pool already. */
struct session_part {
    int32_t seq, num_done, num_tokens;
    const int32_t *tokens;
    bool decode;     /* one generated token */
    bool all_logits; /* else of the last token only */
    bool no_logits;
};

static inline void session_check(int status, const struct error *err)
{
    if (!status) return;
    fprintf(stderr, "%s: %s\n", status_text(status), err->text);
    exit(1);
}

static inline void session_open(struct session *s, const struct session_options *o)
{
    struct error err = {0};
    *s = (struct session){.options = *o,
                          .stride = (int32_t)div_up(o->max_model_len, BLOCK_SIZE),
                          .sampling = {.top_p = 1, .repetition_penalty = 1, .num_logprobs = -1}};
    s->seq_blocks = s->stride;
    if (s->options.num_blocks == 0) s->options.num_blocks = o->num_seqs * s->stride;
    struct device_options device_options = {.cpu_isa = o->isa,
                                            .num_threads = o->threads,
                                            .num_devices =
                                                o->num_devices ? o->num_devices : test_num_members(),
                                            .on_one_gpu = test_on_one_gpu(),
                                            .cuda_portable = getenv("FLASHD_TEST_CUDA_PORTABLE") != NULL};
    session_check(device_open(o->device, &device_options, &s->device, &err), &err);
    s->device->keeps_copies = o->keeps_copies;
    session_check(model_files_open(o->model_path, o->load_format ? o->load_format : "auto", &s->files, &err),
                  &err);
    const struct model_config *config = model_files_config(s->files);
    s->layout = o->has_groups ? kv_layout_of(config, INT32_MAX) : kv_layout_single(config);
    s->num_groups = max_of(kv_layout_num_groups(&s->layout), 1);
    struct step_limits limits = {.num_tokens = o->num_batched_tokens,
                                 .num_seqs = o->num_seqs,
                                 .num_logits = o->num_logits,
                                 .num_batch_slots = o->num_seqs,
                                 .max_model_len = o->max_model_len,
                                 .num_steps_in_flight = 1,
                                 .num_kv_groups = s->num_groups};
    session_check(model_create(s->device, s->files, &limits, o->max_model_len, NULL, NULL, &s->model, &err),
                  &err);
    session_check(model_kv_pool_create(s->model, s->num_groups * s->options.num_blocks, 0, o->kv_dtype, &err),
                  &err);
    s->device->ops->seal(s->device);
    s->free_bytes = s->device->ops->free_bytes(s->device);
    size_t tokens = (size_t)o->num_batched_tokens, seqs = (size_t)o->num_seqs, rows = (size_t)o->num_logits,
           groups = (size_t)s->num_groups;
    s->token_ids = calloc(tokens, sizeof(int32_t));
    s->positions = calloc(tokens, sizeof(int32_t));
    s->slot_mapping = calloc(groups * tokens, sizeof(int32_t));
    s->cu_seqlens_q = calloc(seqs + 1, sizeof(int32_t));
    s->batch_slots = calloc(seqs, sizeof(int32_t));
    s->seqlens_k = calloc(seqs, sizeof(int32_t));
    s->block_tables = calloc(groups * seqs * (size_t)s->stride, sizeof(int32_t));
    s->logit_rows = calloc(rows, sizeof(int32_t));
    s->sample = calloc(rows, sizeof *s->sample);
    s->results = calloc(rows, sizeof *s->results);
}

/* A step allocates nothing. Of an emulated GPU's memory what is not allocated is free, to the byte (tests/emulator). */
static inline void session_check_memory(const struct session *s)
{
    const struct device *d = s->device;
    if (strstr(d->description, "emulated")) assert_always(d->ops->free_bytes(s->device) == s->free_bytes);
}

static inline void session_close(struct session *s)
{
    session_check_memory(s);
    model_destroy(s->model);
    s->device->ops->close(s->device);
    model_files_close(s->files);
    free(s->token_ids);
    free(s->positions);
    free(s->slot_mapping);
    free(s->cu_seqlens_q);
    free(s->batch_slots);
    free(s->seqlens_k);
    free(s->block_tables);
    free(s->logit_rows);
    free(s->sample);
    free(s->results);
}

static inline void session_add_logit_row(struct session *s, const struct session_part *p, int32_t token)
{
    struct step *step = &s->step;
    assert_always(step->num_logits < s->options.num_logits);
    const size_t mask_words = bit_set_words((size_t)model_config(s->model)->vocab_size);
    s->logit_rows[step->num_logits] = token;
    s->sample[step->num_logits++] =
        (struct sample_params){.batch_slot = p->seq,
                               .position = s->positions[token] + 1,
                               .score_token_id = -1,
                               .sampling = s->sampling,
                               .constrained = s->masks != NULL,
                               .allowed = s->masks ? s->masks + (size_t)p->seq * mask_words : NULL};
}

static inline void session_add_part(struct session *s, const struct session_part *p)
{
    struct step *step = &s->step;
    int32_t seq_idx = step->num_seqs++;
    assert_always(p->num_done + p->num_tokens <= s->seq_blocks * BLOCK_SIZE &&
                  (p->seq + 1) * s->seq_blocks <= s->options.num_blocks);
    for (int32_t i = 0; i < p->num_tokens; i++) {
        int32_t t = step->num_tokens++, position = p->num_done + i;
        assert_always(step->num_tokens <= s->options.num_batched_tokens &&
                      position < s->options.max_model_len);
        s->token_ids[t] = p->tokens[i];
        s->positions[t] = position;
        if (p->all_logits || (!p->no_logits && i == p->num_tokens - 1)) session_add_logit_row(s, p, t);
    }
    s->batch_slots[seq_idx] = p->seq;
    s->seqlens_k[seq_idx] = p->num_done + p->num_tokens;
    s->cu_seqlens_q[seq_idx + 1] = step->num_tokens;
    if (!p->decode) {
        step->num_prefill_seqs++;
        step->num_prefill_tokens = step->num_tokens;
    }
}

/* Of a sequence of the step in a group, once all sequences are there. */
static inline void session_add_blocks(struct session *s, int32_t group, int32_t seq_idx)
{
    const struct step *step = &s->step;
    const bool hides = group >= s->layout.num_full;
    const struct kv_group g = {hides ? s->layout.window : 0, s->layout.is_chunk};
    int32_t begin = s->cu_seqlens_q[seq_idx], end = s->cu_seqlens_q[seq_idx + 1],
            first_block = (group * s->options.num_blocks) + s->batch_slots[seq_idx] * s->seq_blocks,
            first_seen = kv_group_first_block(&g, s->seqlens_k[seq_idx] - (end - begin));
    int32_t *slots = s->slot_mapping + group * step->num_tokens,
            *table = s->block_tables + (group * step->num_seqs + seq_idx) * s->stride;
    for (int32_t b = 0; b < s->seq_blocks; b++)
        table[b] = b < first_seen ? s->num_groups * s->options.num_blocks - 1 - b : first_block + b;
    for (int32_t t = begin; t < end; t++)
        slots[t] = first_block * BLOCK_SIZE + s->seqlens_k[seq_idx] - (end - t);
}

/* Runs one step. Greedy results are in s->results, in row order; raw logits through session_logits until the
 * next. */
static inline void session_step(struct session *s, const struct session_part *parts, int num_parts)
{
    s->step = (struct step){.token_ids = s->token_ids,
                            .positions = s->positions,
                            .slot_mapping = s->slot_mapping,
                            .cu_seqlens_q = s->cu_seqlens_q,
                            .batch_slots = s->batch_slots,
                            .seqlens_k = s->seqlens_k,
                            .block_tables = s->block_tables,
                            .num_kv_groups = s->num_groups,
                            .block_table_stride = s->stride,
                            .logit_rows = s->logit_rows,
                            .sample = s->sample};
    for (int i = 0; i < num_parts; i++) session_add_part(s, &parts[i]);
    for (int32_t g = 0; g < s->num_groups; g++)
        for (int32_t i = 0; i < s->step.num_seqs; i++) session_add_blocks(s, g, i);
    model_step_begin(s->model, &s->step);
    model_step_sample(s->model);
}

static inline void session_finish_step(struct session *s)
{
    struct error err = {0};
    session_check(model_step_end(s->model, s->results, &err), &err);
}

/* Between session_step and session_finish_step. */
static inline void session_logits(struct session *s, int32_t row, float *out)
{
    session_check(s->device->ops->read_logits(s->device, row, out), &(struct error){.text = "read_logits"});
}

#endif
