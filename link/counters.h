/* counters.h - what the engine counts and the front shows. Written by the engine alone, relaxed, in shared
 * memory: totals go on when another engine takes over. The log's thread counts, too. */
#ifndef LINK_COUNTERS_H
#define LINK_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

/* Upper bounds of the histogram of a step's tokens; one more bucket is above them. */
enum { STEP_TOKENS_BOUNDS = 13 };
extern const double step_tokens_bounds[STEP_TOKENS_BOUNDS];

/* X(type, name) */
#define LINK_COUNTERS(X)                                                                                     \
    X(int32_t, num_running) /* sequences */                                                                  \
    X(int32_t, num_waiting)                                                                                  \
    X(int32_t, num_free_blocks)                                                                              \
    X(int32_t, num_cached_blocks)                                                                            \
    X(int32_t, num_held_blocks)                                                                              \
    X(uint64_t, num_steps_begun)                                                                             \
    X(uint64_t, num_steps)        /* ended: the heartbeat */                                                 \
    X(uint64_t, last_step_end_ns) /* monotonic */                                                            \
    X(uint64_t, prompt_tokens)    /* computed; a prompt's once, even when preempted */                       \
    X(uint64_t, generated_tokens)                                                                            \
    X(uint64_t, prefix_query_tokens)                                                                         \
    X(uint64_t, prefix_hit_tokens)                                                                           \
    X(int32_t, num_host_blocks) /* of host memory, for what preempted sequences have computed */             \
    X(int32_t, num_free_host_blocks)                                                                         \
    X(uint64_t, num_preemptions)                                                                             \
    X(uint64_t, num_saved)        /* preemptions that kept their work there */                               \
    X(uint64_t, discarded_tokens) /* generated but not delivered: cancelled or beyond a stop */              \
    X(uint64_t, draft_tokens)     /* that were verified, */                                                  \
    X(uint64_t, accepted_tokens)  /* and of them those that followed */                                      \
    X(uint64_t, num_withheld)     /* rows that waited for their mask and were computed again */              \
    X(uint64_t, num_dequeued)     /* sequences that wait no more: their first step began, or they ended */   \
    X(uint64_t, dequeued_prompt_tokens)                                                                      \
    X(uint64_t, num_log_lines_dropped)   /* by an engine that is a process */                                \
    X(uint64_t, energy_uj)               /* that the device used while it computed */                        \
    X(double, prefill_seconds_per_token) /* engine/step_rates.h; 0: not known yet */                         \
    X(double, decode_seconds_per_step)                                                                       \
    /* scheduler/step_cost.h; 0: not known yet */                                                            \
    X(double, prompt_token_us)                                                                               \
    X(double, prompt_pair_us)                                                                                \
    X(double, prompt_step_us)                                                                                \
    X(double, decode_token_us)                                                                               \
    X(double, decode_pair_us)                                                                                \
    X(double, decode_step_us)                                                                                \
    X(double, tokens_per_second) /* prompt and generated, smoothed over seconds of work */

/* As they lie in shared memory. */
struct link_counters {
#define X(type, name) _Atomic type name;
    LINK_COUNTERS(X)
#undef X
    _Atomic uint64_t step_tokens[STEP_TOKENS_BOUNDS + 1]; /* steps by their tokens, not cumulative */
    _Atomic uint64_t step_tokens_sum;
};

/* One consistent-enough view for metrics, Retry-After and health. */
struct link_stats {
#define X(type, name) type name;
    LINK_COUNTERS(X)
#undef X
};

void link_counters_read(const struct link_counters *counters, struct link_stats *out); /* any thread */

static inline void counter_add(_Atomic uint64_t *counter, uint64_t amount)
{
    /* One writer: no need for a locked add. */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + amount,
                          memory_order_relaxed);
}

#endif
