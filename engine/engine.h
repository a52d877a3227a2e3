/* engine.h - drain, schedule, forward, publish, until stopped.
 *
 * The engine alone touches the scheduler, the block manager and the model. The front is beyond the link: this
 * is one thread's code, whether that thread is of the front's process or of another.
 *
 * A request fails alone. When the device fails, the link's state says so, and the engine does nothing any
 * more. What it leaves is either finished with FINISH_DEVICE or, where another engine can take over, left as
 * it is: a slot of which tokens were published already is taken in behind the last of them. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "kvcache/kv_groups.h"
#include "link/link.h"
#include "model/kv_layout.h"
#include "model/model.h"
#include "scheduler/step_cost.h"

struct engine;
struct energy_meter;

struct engine_options {
    int32_t max_model_len, max_num_seqs, max_num_batched_tokens;
    int32_t num_positions;      /* that the model was made for, >= max_model_len; 0: max_model_len */
    int32_t max_num_logits;     /* rows of logits in a step, >= max_num_seqs; what exceeds the sampled ones
                               serves prompt log probabilities. 0: max_num_seqs */
    int32_t max_num_rows;       /* scheduler.h; 0: max_num_seqs */
    int32_t num_draft_tokens;   /* of a sequence in a step, at most; 0: none */
    struct kv_layout kv_layout; /* the model's, layers_per_block 0: one group */
    int32_t num_blocks;         /* of the K/V pool, already created in the model */
    int32_t num_states;         /* kept ones, where layers have a state */
    int32_t num_host_blocks;    /* of host memory, for what preempted sequences have computed */
    uint64_t kv_block_bytes;    /* matters with host blocks */
    double target_us;           /* that a step with decoding sequences may take; 0: any */
    bool enable_prefix_caching;
    bool decode_runs;     /* scheduler.h */
    bool whole_prompts;   /* scheduler.h; their tokens see each other */
    bool leaves_requests; /* when the device fails: another engine takes over */
    enum dtype kv_dtype;
    struct energy_meter *energy_meter; /* stays the caller's; NULL: nothing is measured */
    const struct model_files *files;   /* likewise: the model's, with places for adapters; NULL: none come */
};

/* That may be in flight on the device. */
int32_t engine_num_steps(const struct device *device);

/* The largest step that an engine of these options will ask of this device: for model_create. num_blocks does
 * not matter. One source, so that model and engine agree. */
void engine_step_limits(const struct engine_options *options, const struct device *device,
                        struct step_limits *out);

/* How long each group of the layout needs its blocks, with steps of these limits. */
struct kv_groups engine_kv_groups(const struct kv_layout *layout, const struct step_limits *limits);

/* The link is open. */
int engine_create(struct model *model, struct link *link, const struct engine_options *options,
                  struct engine **out, struct error *err) must_check;
void engine_destroy(struct engine *e);

/* What steps take, roughly, before the first of them; unless another engine has learned it over this link. */
void engine_guess_prices(struct engine *e, const struct step_prices *prices);
bool engine_knows_prices(const struct engine *e);

/* Turns until link_stop or the device's failure, on the caller's thread. Afterwards nothing is the engine's
 * but, with leaves_requests, what a failure left. */
void engine_serve(struct engine *e);
/* What engine_serve does last: cancels what is left. For those who call engine_step themselves. */
void engine_wind_up(struct engine *e);

bool engine_failed(const struct engine *e);

/* One turn of engine_serve, for tests: takes in what was
 * submitted and cancelled, begins a step if there is one to run, ends one if the device is full or nothing
 * else is to be done. False when there was nothing to do. */
bool engine_step(struct engine *e);
/* Walks everything that the engine owns and asserts the invariants. */
void engine_check(const struct engine *e);

#endif
