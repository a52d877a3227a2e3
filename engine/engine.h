/* engine.h - the engine thread: drain, schedule, forward, publish, until stopped.
 *
 * It alone touches the scheduler, the block manager and the model. The loop talks to it through request
 * slots, two calls that never block, and a set of counters.
 *
 * A request fails alone. When the device fails, every slot gets FINISH_DEVICE, engine_failed() turns true,
 * and the process is expected to exit with code 70. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "model/model.h"
#include "link/request_slots.h"

struct engine;

struct engine_options {
    int32_t max_model_len, max_num_seqs, max_num_batched_tokens;
    int32_t max_num_logits; /* rows of logits in a step, >= max_num_seqs; what exceeds the sampled ones
                               serves prompt log probabilities. 0: max_num_seqs */
    int32_t num_blocks;     /* of the K/V pool, already created in the model */
    bool enable_prefix_caching;
    enum dtype kv_dtype;
    /* Called on the engine thread after a step that published something: uv_async_send. May merge. */
    void (*wake_loop)(void *context);
    void *wake_context;
};

/* The largest step that an engine of these options will ask of this device: for model_create. num_blocks does
 * not matter. One source, so that model and engine agree. */
void engine_step_limits(const struct engine_options *options, const struct device *device,
                        struct step_limits *out);

int engine_create(struct model *model, struct request_slots *slots, const struct engine_options *options,
                  struct engine **out, struct error *err) must_check;
int engine_start(struct engine *e, struct error *err) must_check; /* starts the thread */
/* Cancels what is left, waits for the thread. */
void engine_stop(struct engine *e);
void engine_destroy(struct engine *e);

/* [loop] Hands a filled-in slot over. Never fails: the ring holds as many entries as there are slots. */
void engine_submit(struct engine *e, int32_t slot_idx);
/* [loop] The engine finishes it within one step; FINISH_CANCELLED (or what came first) is then published. */
void engine_cancel(struct engine *e, int32_t slot_idx);

/* One consistent-enough view for metrics, Retry-After and health; relaxed atomics, any thread. */
struct engine_stats {
    int32_t num_running, num_waiting; /* sequences */
    int32_t num_blocks, num_free_blocks, num_cached_blocks, num_held_blocks;
    uint64_t num_steps;                       /* heartbeat */
    uint64_t last_step_end_ns;                /* monotonic */
    uint64_t prompt_tokens, generated_tokens; /* computed; a prompt's once, even when preempted */
    uint64_t prefix_query_tokens, prefix_hit_tokens;
    uint64_t num_preemptions;
    uint64_t discarded_tokens; /* generated but not delivered: cancelled or beyond a stop */
    double tokens_per_second;  /* prompt and generated, smoothed over some seconds of work: idle time does not
                                  count */
};
void engine_stats(const struct engine *e, struct engine_stats *out);
/* Histogram hooks: the engine observes a step's token count here (may be NULL). */
struct metric;
void engine_set_iteration_metric(struct engine *e, struct metric *iteration_tokens);

bool engine_failed(const struct engine *e);

/* One turn on the caller's thread, for simulators and tests, in place of engine_start: takes in what was
 * submitted and cancelled, begins a step if there is one to run, ends one if the device is full or nothing
 * else is to be done. False when there was nothing to do. */
bool engine_step(struct engine *e);
/* Walks everything that the engine owns and asserts the invariants. */
void engine_check(const struct engine *e);

#endif
