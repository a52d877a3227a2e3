/* fake_engine.h - an engine over the fake model, and the oracle that says what each request must give. */
#ifndef TESTS_FAKE_ENGINE_H
#define TESTS_FAKE_ENGINE_H

#include "engine/engine.h"
#include "unit/engine/fake_model.h"
#include "unit/link/link_rig.h"

struct rig {
    struct model *model;
    struct link *link;
    struct request_slots *slots;
    struct engine *engine;
    bool has_answers; /* a chat template begins them with FAKE_HEADER tokens, and runs may be replayed */
};

static inline struct rig rig_create(const struct fake_options *fake, struct engine_options options,
                                    int32_t num_slots)
{
    struct rig rig;
    struct error err;
    struct step_limits limits;
    options.num_blocks = fake->num_blocks;
    options.kv_layout = fake_kv_layout(fake->window, fake->window_is_chunk);
    rig.model = fake_model_create(fake);
    engine_step_limits(&options, model_device(rig.model), &limits);
    fake_model_prepare(rig.model, &limits);
    rig.link = link_rig_create(num_slots, options.max_model_len);
    rig.slots = link_slots(rig.link);
    assert_always(engine_create(rig.model, rig.link, &options, &rig.engine, &err) == 0);
    rig.has_answers = fake->has_answers && options.decode_runs;
    const int32_t header[FAKE_HEADER] = {FAKE_HEADER_FIRST, FAKE_HEADER_LAST};
    if (fake->has_answers) link_set_answer_header(rig.link, header, FAKE_HEADER);
    return rig;
}

/* Stops the engine and expects that nothing is left anywhere. */
static inline void rig_destroy(struct rig *rig)
{
    struct link_stats stats;
    engine_wind_up(rig->engine);
    engine_check(rig->engine);
    link_stats(rig->link, &stats);
    assert_always(stats.num_running == 0 && stats.num_waiting == 0 && stats.num_held_blocks == 0);
    engine_destroy(rig->engine);
    link_destroy(rig->link);
    fake_model_destroy(rig->model);
}

/* The defaults of the API. */
static inline struct request_slot_input input_default(int32_t num_prompt, int32_t max_tokens)
{
    return (struct request_slot_input){
        .num_prompt_tokens = num_prompt,
        .max_tokens = max_tokens,
        .sampling = {
            .num_logprobs = -1, .temperature = 1.0f, .top_p = 1.0f, .repetition_penalty = 1.0f, .seed = 1}};
}

/* bias: the input's one entry of logit_bias, if it has one. What logits a row has is the same for all. */
static inline int32_t rig_submit_biased(struct rig *rig, const struct request_slot_input *input,
                                        struct logit_bias bias, const int32_t *prompt)
{
    int32_t slot_idx;
    assert_always(request_slots_acquire(rig->slots, 1, &slot_idx) == 0);
    request_slots_get(rig->slots, slot_idx)->input = *input;
    memcpy(request_slots_tokens(rig->slots, slot_idx), prompt,
           (size_t)input->num_prompt_tokens * sizeof(prompt[0]));
    if (input->num_logit_bias > 0) request_slots_payload(rig->slots, slot_idx)->logit_bias[0] = bias;
    for (int32_t i = 0; i < input->num_row_logits; i++)
        request_slots_payload(rig->slots, slot_idx)->row_logits[i] = (11 + 7 * i) % FAKE_VOCAB;
    link_submit(rig->link, slot_idx);
    return slot_idx;
}

static inline int32_t rig_submit(struct rig *rig, const struct request_slot_input *input,
                                 const int32_t *prompt)
{
    return rig_submit_biased(rig, input, (struct logit_bias){0}, prompt);
}

static inline enum finish_reason rig_finish_reason(struct rig *rig, int32_t slot_idx)
{
    return atomic_load_explicit(&request_slots_get(rig->slots, slot_idx)->finish_reason,
                                memory_order_acquire);
}

static inline int32_t rig_num_published(struct rig *rig, int32_t slot_idx)
{
    return atomic_load_explicit(&request_slots_get(rig->slots, slot_idx)->num_published,
                                memory_order_acquire);
}

/* Turns until there is nothing to do. */
static inline void rig_run(struct rig *rig)
{
    while (engine_step(rig->engine)) engine_check(rig->engine);
    engine_check(rig->engine);
}

static inline void rig_expect_row(struct rig *rig, int32_t slot_idx, const float *row)
{
    const struct request_slot *slot = request_slots_get(rig->slots, slot_idx);
    bool is_logits = slot->input.pooling == POOLING_LOGITS;
    int32_t num = is_logits ? slot->input.num_row_logits : FAKE_HIDDEN;
    assert_always(slot->num_row_floats == num);
    assert_always(memcmp(request_slots_row(rig->slots, slot_idx), row, (size_t)num * sizeof(*row)) == 0);
}

/* Compares all that a slot has published so far with what its request gives alone; the finish reason too, if
 * it has one that the request itself decides. */
static inline void rig_expect_solo(struct rig *rig, int32_t slot_idx)
{
    struct request_slot *slot = request_slots_get(rig->slots, slot_idx);
    const struct request_slot_input *input = &slot->input;
    const int32_t *tokens = request_slots_tokens(rig->slots, slot_idx);
    const struct token_logprobs *logprobs = request_slots_logprobs(rig->slots, slot_idx);
    enum finish_reason reason = rig_finish_reason(rig, slot_idx);
    int32_t num_prompt = input->num_prompt_tokens, num_published = rig_num_published(rig, slot_idx);
    struct reference ref = {.prefill_decode_equal = model_device(rig->model)->prefill_decode_equal,
                            .has_states = rig->model->options.has_states,
                            .has_answers = rig->has_answers,
                            .window = rig->model->options.window,
                            .window_is_chunk = rig->model->options.window_is_chunk,
                            .num_prompt = num_prompt,
                            .forbidden = rig->model->options.forbidden,
                            .logit_bias = request_slots_payload(rig->slots, slot_idx)->logit_bias};
    float pooled[FAKE_HIDDEN] = {0};
    for (int32_t p = 0; p < num_prompt; p++) {
        reference_push(&ref, tokens[p]);
        if (input->pooling)
            reference_pool(&ref, input, request_slots_payload(rig->slots, slot_idx)->row_logits, pooled);
        if (!input->prompt_logprobs || p + 1 >= atomic_load(&slot->num_prompt_published)) continue;
        struct sample_result row = reference_row(&ref, input, tokens, tokens[p + 1]);
        assert_always(logprobs_equal(&logprobs[p + 1], &row));
    }
    enum finish_reason expected = input->max_tokens == 0 ? FINISH_LENGTH : FINISH_NONE;
    for (int32_t i = 0; i < num_published; i++) {
        assert_always(expected == FINISH_NONE);
        struct sample_result row = reference_row(&ref, input, tokens, -1);
        assert_always(!row.failed && tokens[num_prompt + i] == row.token_id);
        if (input->sampling.num_logprobs >= 0) assert_always(logprobs_equal(&logprobs[num_prompt + i], &row));
        if (i + 1 == input->max_tokens) expected = FINISH_LENGTH;
        if (reference_is_stop(input, row.token_id)) {
            assert_always(i >= input->min_tokens);
            expected = FINISH_STOP;
        }
        reference_push(&ref, row.token_id);
    }
    if (expected == FINISH_STOP)
        assert_always(reason == FINISH_STOP && slot->stop_token_id == tokens[num_prompt + num_published - 1]);
    if (reason == FINISH_STOP || reason == FINISH_LENGTH) {
        assert_always(reason == expected);
        if (input->prompt_logprobs) assert_always(atomic_load(&slot->num_prompt_published) == num_prompt);
        if (input->pooling) rig_expect_row(rig, slot_idx, pooled);
    }
}

#endif
