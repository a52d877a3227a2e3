#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/id_list.h"
#include "engine/engine_internal.h"

/* Until copies of blocks have been measured: fast, since a way that looks dear is never tried. */
enum { COPY_BYTES_PER_US = 16000 };

int32_t engine_num_steps(const struct device *device)
{
    return max_of(1, min_of(device->num_steps_in_flight_max, FLIGHTS_MAX));
}

void engine_step_limits(const struct engine_options *options, const struct device *device,
                        struct step_limits *out)
{
    const int32_t num_steps = engine_num_steps(device);
    int32_t num_seqs = min_of(options->max_num_seqs, options->max_num_batched_tokens);
    *out = (struct step_limits){
        .num_tokens = options->max_num_batched_tokens,
        .num_seqs = max_of(num_seqs, min_of(options->max_num_rows, options->max_num_batched_tokens)),
        .num_logits = max_of(options->max_num_logits, num_seqs),
        .num_batch_slots = num_seqs * num_steps,
        .max_model_len = max_of(options->num_positions, options->max_model_len),
        .num_kv_groups = max_of(kv_layout_num_groups(&options->kv_layout), 1),
        .num_states = options->num_states,
        .num_draft_tokens = options->num_draft_tokens,
        .num_steps_in_flight = num_steps,
        .has_masks = options->whole_prompts, /* whose tokens see each other */
    };
}

struct kv_groups engine_kv_groups(const struct kv_layout *layout, const struct step_limits *limits)
{
    struct kv_groups groups = {.count = limits->num_kv_groups,
                               .num_ahead = limits->num_tokens * limits->num_steps_in_flight};
    for (int32_t g = layout->num_full; g < groups.count; g++)
        groups.groups[g] = (struct kv_group){layout->window, layout->is_chunk};
    return groups;
}

/* All that K and V depend on beside the tokens. The cache lives no longer than the model, so this only
 * matters once blocks outlive the process; it is cheap to have it right from the start. */
static int model_key(const struct engine *e, char *text, size_t size)
{
    const struct model_config *c = model_config(e->model);
    const struct device *device = model_device(e->model);
    int n = snprintf(text, size, "flashd K/V 1|%s|%s|%s|%d layers|%d heads|%d hidden|%d dim|block %d|type %d",
                     device->name ? device->name : "", c->architecture, family_name(c->family), c->num_layers,
                     c->num_kv_heads, c->hidden_size, c->head_dim, BLOCK_SIZE, (int)e->options.kv_dtype);
    return min_of(n, (int)size - 1);
}

void engine_add_eos(struct engine *e, int32_t id)
{
    if (id_list_has(e->eos_ids, e->num_eos_ids, id)) return;
    if (id < 0 || id >= model_config(e->model)->vocab_size || e->num_eos_ids == EOS_IDS_MAX) return;
    e->eos_ids[e->num_eos_ids++] = id;
}

static int create_scheduler(struct engine *e, struct error *err)
{
    char key[512];
    int key_bytes = model_key(e, key, sizeof(key));
    struct scheduler_options options = {
        .max_num_seqs = step_limits_num_running(&e->limits),
        .max_num_rows = e->limits.num_seqs,
        .max_num_batched_tokens = e->limits.num_tokens,
        .max_num_logits = e->limits.num_logits,
        .max_num_prefill_keys = model_device(e->model)->prefill_keys_max,
        .max_model_len = e->options.max_model_len,
        .num_batch_slots = e->limits.num_batch_slots,
        .max_num_sequences = request_slots_count(e->slots),
        .kv_groups = engine_kv_groups(&e->options.kv_layout, &e->limits),
        .num_blocks = e->options.num_blocks,
        .num_states = e->options.num_states,
        .num_host_blocks = e->options.num_host_blocks,
        .target_us = e->options.target_us,
        .enable_prefix_caching = e->options.enable_prefix_caching,
        .prefill_decode_equal = model_device(e->model)->prefill_decode_equal,
        .decode_runs = e->options.decode_runs,
        .whole_prompts = e->options.whole_prompts,
        .model_key = key,
        .model_key_bytes = (size_t)key_bytes,
    };
    int status = scheduler_create(&options, &e->scheduler, err);
    if (status) return status;
    return step_builder_create(&e->limits, &e->builder, err);
}

static int create_arrays(struct engine *e)
{
    size_t num_slots = (size_t)request_slots_count(e->slots);
    int32_t num_running = step_limits_num_running(&e->limits);
    e->results = calloc((size_t)e->limits.num_logits, sizeof(e->results[0]));
    e->seq_of_slot = malloc(num_slots * sizeof(e->seq_of_slot[0]));
    e->drafters = calloc(num_slots, sizeof(e->drafters[0]));
    if (!e->results || !e->seq_of_slot || !e->drafters || engine_energy_init(e)) return STATUS_NO_MEMORY;
    for (int i = 0; i < e->limits.num_steps_in_flight; i++)
        if (plan_init(&e->flights[i].plan, num_running, e->limits.num_seqs, e->options.num_host_blocks) != 0)
            return STATUS_NO_MEMORY;
    for (size_t i = 0; i < num_slots; i++) e->seq_of_slot[i] = NO_SEQUENCE;
    return 0;
}

/* What makes pairs of the positions of a step's tokens. */
static void take_shape(const struct engine *e, struct step_prices *prices)
{
    const struct model_config *c = model_config(e->model);
    int32_t num_windowed = 0;
    for (int32_t i = 0; i < c->num_layers; i++) num_windowed += model_config_layer(c, i).sliding_window > 0;
    prices->windowed = num_windowed > 0 ? (double)num_windowed / c->num_layers : 0;
    prices->window = c->sliding_window;
    prices->tile = model_device(e->model)->prefill_tile;
    prices->bundle = model_device(e->model)->decode_bundle;
}

static void set_prices(struct engine *e, struct step_prices prices)
{
    bool known = prices.prompt_token > 0;
    take_shape(e, &prices);
    prices.block_copy = known ? (double)e->options.kv_block_bytes / COPY_BYTES_PER_US : 0;
    step_cost_init(&e->cost, &prices);
    scheduler_set_prices(e->scheduler, &prices);
}

void engine_guess_prices(struct engine *e, const struct step_prices *prices)
{
    if (!engine_knows_prices(e)) set_prices(e, *prices);
}

bool engine_knows_prices(const struct engine *e)
{
    return step_cost_prices(&e->cost).prompt_token > 0;
}

static void inherit_prices(struct engine *e)
{
    const struct link_stats *s = &e->inherited;
    const struct step_prices prices = {.prompt_token = s->prompt_token_us,
                                       .prompt_pair = s->prompt_pair_us,
                                       .prompt_step = s->prompt_step_us,
                                       .decode_token = s->decode_token_us,
                                       .decode_pair = s->decode_pair_us,
                                       .decode_step = s->decode_step_us};
    set_prices(e, prices);
}

int engine_create(struct model *model, struct link *link, const struct engine_options *options,
                  struct engine **out, struct error *err)
{
    assert_always(options->num_draft_tokens <= DRAFT_TOKENS_MAX);
    assert_always(options->max_num_seqs >= 1 && options->max_num_batched_tokens >= 1 &&
                  options->max_model_len >= 1 && options->num_blocks >= 1);
    struct engine *e = calloc(1, sizeof(*e));
    if (!e) return error_set(err, STATUS_NO_MEMORY, "no memory for the engine");
    e->model = model;
    e->link = link;
    e->slots = link_slots(link);
    e->counters = link_counters(link);
    link_stats(link, &e->inherited);
    const struct model_config *c = model_config(model);
    for (int32_t i = 0; i < c->num_eos_ids; i++) engine_add_eos(e, c->eos_ids[i]);
    e->options = *options;
    engine_step_limits(options, model_device(model), &e->limits);
    int status = create_arrays(e);
    if (status) error_set(err, status, "no memory for the engine's tables");
    if (!status) status = create_scheduler(e, err);
    if (status) {
        engine_destroy(e);
        return status;
    }
    inherit_prices(e);
    step_pace_init(&e->pace);
    engine_copy_scheduler_stats(e);
    *out = e;
    return 0;
}

void engine_destroy(struct engine *e)
{
    if (!e) return;
    for (int i = 0; i < FLIGHTS_MAX; i++) plan_deinit(&e->flights[i].plan);
    scheduler_destroy(e->scheduler);
    step_builder_destroy(e->builder);
    free(e->results);
    free(e->seq_of_slot);
    free(e->drafters);
    engine_energy_deinit(e);
    engine_drop_lora(e);
    free(e);
}

/* ---- the loop around the turns ---- */

void engine_wind_up(struct engine *e)
{
    engine_drain(e);
    engine_finish_all(e, FINISH_CANCELLED, NULL);
    engine_abandon_flights(e);
    engine_copy_scheduler_stats(e);
    link_wake_front(e->link);
}

void engine_serve(struct engine *e)
{
    while (!link_is_stopping(e->link)) {
        uint32_t seen = link_num_calls(e->link);
        if (engine_step(e)) continue;
        if (e->failed && e->options.leaves_requests) return;
#ifdef FLASHD_DEBUG
        engine_check(e);
#endif
        if (!link_is_stopping(e->link)) link_sleep(e->link, seen);
    }
    engine_wind_up(e);
}

bool engine_failed(const struct engine *e)
{
    return e->failed;
}

void engine_check(const struct engine *e)
{
    scheduler_check(e->scheduler);
    int32_t num_slots = request_slots_count(e->slots), num_taken = 0, num_sequences = 0;
    for (int32_t i = 0; i < num_slots; i++) {
        if (e->seq_of_slot[i] == NO_SEQUENCE) continue;
        num_taken++;
        assert_always(scheduler_sequence(e->scheduler, e->seq_of_slot[i])->slot_idx == i);
    }
    int32_t seq_id = scheduler_next(e->scheduler, NO_SEQUENCE);
    for (; seq_id != NO_SEQUENCE; seq_id = scheduler_next(e->scheduler, seq_id)) num_sequences++;
    assert_always(num_taken == num_sequences);
    assert_always(e->num_in_flight >= 0 && e->num_in_flight < e->limits.num_steps_in_flight);
}
