/* sim.h - what the simulator's files share: the run, its random numbers, its markers, its seams.
 *
 * The server is the production one, from server_run down to the block manager; replaced are libuv (loop.c,
 * net.c), threads and time (threads.c), the allocator (heap.c), the model with its device, tokenizer
 * (device.c, words.c), and what the engine lives in (engine.c). Beside it stand the clients (client.c,
 * request.c, answer.c) and the checks (watch.c, policy.c, judge.c). One process runs one seed; main.c starts processes,
 * shrinks failures, adds up markers. */
#ifndef TESTS_SIM_H
#define TESTS_SIM_H

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/check.h"
#include "kvcache/kv_groups.h"
#include "server/server.h"
#include "unit/engine/hash_model.h"

enum { CLIENTS_MAX = 96, MODEL_LEN = 160, PROMPT_MAX = 96, NUM_PREFIXES = 4 };

/* Swarm: each seed has each of these with its own chance, and shrinking turns them off one by one. */
#define FEATURES(X)                                                                                          \
    X(disconnects, 50)                                                                                       \
    X(half_closes, 40)                                                                                       \
    X(slow_readers, 40)                                                                                      \
    X(stalled_readers, 30)                                                                                   \
    X(drips, 30)                                                                                             \
    X(pipelining, 40)                                                                                        \
    X(long_bodies, 40)                                                                                       \
    X(many_choices, 60)                                                                                      \
    X(weights, 50)                                                                                           \
    X(priorities, 50)                                                                                        \
    X(timeouts, 30)                                                                                          \
    X(salts, 60)                                                                                             \
    X(shared_prefixes, 80)                                                                                   \
    X(conversations, 40)                                                                                     \
    X(windows, 40)                                                                                           \
    X(storms, 40)                                                                                            \
    X(tiny_pools, 60)                                                                                        \
    X(host_blocks, 60)                                                                                       \
    X(small_steps, 50)                                                                                       \
    X(few_slots, 40)                                                                                         \
    X(token_limits, 20)                                                                                      \
    X(logprobs, 50)                                                                                          \
    X(penalties, 50)                                                                                         \
    X(stop_strings, 50)                                                                                      \
    X(bad_rows, 30)                                                                                          \
    X(bad_requests, 30)                                                                                      \
    X(allocation_failures, 25)                                                                               \
    X(start_failures, 10)                                                                                    \
    X(device_failures, 6)                                                                                    \
    X(early_drains, 20)                                                                                      \
    X(short_drains, 30)                                                                                      \
    X(second_signals, 30)                                                                                    \
    X(time_targets, 50)                                                                                      \
    X(thread_switches, 80)                                                                                   \
    X(two_steps, 50)                                                                                         \
    X(unequal_halves, 40)                                                                                    \
    X(decode_runs, 70)                                                                                       \
    X(no_prefix_cache, 15)                                                                                   \
    X(clock_jumps, 30)                                                                                       \
    X(few_places, 15)                                                                                        \
    X(small_buffers, 15)                                                                                     \
    X(engine_process, 65)                                                                                    \
    X(engine_deaths, 55)                                                                                     \
    X(poison, 25)                                                                                            \
    X(constraints, 50)                                                                                       \
    X(slow_masks, 50)                                                                                        \
    X(embeddings, 40)                                                                                        \
    X(mean_pooling, 50)                                                                                      \
    X(receipts, 25)                                                                                          \
    X(chunks, 50)                                                                                            \
    X(states, 40)                                                                                            \
    X(answers, 60)                                                                                           \
    X(drafts, 60)                                                                                            \
    X(heavy_masks, 40)

/* What of a prompt looks like an answer goes through decode (scheduler/answer_rule.h). */
#define WORLD_HAS_ANSWERS                                                                                    \
    (has(FEATURE_answers) && has(FEATURE_unequal_halves) && has(FEATURE_decode_runs) && !has(FEATURE_states))

enum feature {
#define X(name, percent) FEATURE_##name,
    FEATURES(X)
#undef X
        NUM_FEATURES
};
extern const char *const feature_names[NUM_FEATURES];

/* Rare paths. A default run in which one was never reached fails. */
#define MARKERS(X)                                                                                           \
    X(answers_whole)                                                                                         \
    X(answers_streamed)                                                                                      \
    X(receipts_seen)                                                                                         \
    X(ended_by_eos_or_stop_id)                                                                               \
    X(ended_by_stop_string)                                                                                  \
    X(ended_by_length)                                                                                       \
    X(prompts_scored)                                                                                        \
    X(bad_rows_failed_alone)                                                                                 \
    X(too_big_for_the_pool)                                                                                  \
    X(refused_400)                                                                                           \
    X(refused_401)                                                                                           \
    X(refused_429_slots)                                                                                     \
    X(refused_429_tokens)                                                                                    \
    X(refused_503_loading)                                                                                   \
    X(refused_503_draining)                                                                                  \
    X(failed_by_allocation)                                                                                  \
    X(error_events)                                                                                          \
    X(left_while_waiting)                                                                                    \
    X(left_while_running)                                                                                    \
    X(left_while_preparing)                                                                                  \
    X(cut_off_by_timeout)                                                                                    \
    X(displaced)                                                                                             \
    X(refused_429_address)                                                                                   \
    X(refused_503_places)                                                                                    \
    X(refused_503_buffers)                                                                                   \
    X(streams_paused)                                                                                        \
    X(pings)                                                                                                 \
    X(half_closed_and_answered)                                                                              \
    X(pipelined)                                                                                             \
    X(kept_alive)                                                                                            \
    X(prepared_by_worker)                                                                                    \
    X(preemptions)                                                                                           \
    X(preempted_and_answered)                                                                                \
    X(windows_moved_on)                                                                                      \
    X(chunks_moved_on)                                                                                       \
    X(window_hits)                                                                                           \
    X(states_kept)                                                                                           \
    X(states_went_on)                                                                                        \
    X(states_evicted)                                                                                        \
    X(states_without_room)                                                                                   \
    X(work_saved)                                                                                            \
    X(work_restored)                                                                                         \
    X(work_cheaper_again)                                                                                    \
    X(work_without_room)                                                                                     \
    X(came_back)                                                                                             \
    X(copy_failed)                                                                                           \
    X(replayed_by_decode)                                                                                    \
    X(answers_shared)                                                                                        \
    X(answers_replayed)                                                                                      \
    X(replayed_in_runs)                                                                                      \
    X(runs_mixed)                                                                                            \
    X(prefix_hits)                                                                                           \
    X(conversations_went_on)                                                                                 \
    X(equal_prompts_other_salt)                                                                              \
    X(evictions)                                                                                             \
    X(full_pools)                                                                                            \
    X(bypassed)                                                                                              \
    X(aged)                                                                                                  \
    X(short_ones_passed)                                                                                     \
    X(tenants_came_back)                                                                                     \
    X(deadlines_hopeless)                                                                                    \
    X(deadlines_passed)                                                                                      \
    X(tenants_took_turns)                                                                                    \
    X(places_owed)                                                                                           \
    X(tenants_decoded_by_turns)                                                                              \
    X(rows_made_room)                                                                                        \
    X(sequences_displaced)                                                                                   \
    X(urgent_passed)                                                                                         \
    X(blocks_taken_away)                                                                                     \
    X(cut_to_time)                                                                                           \
    X(closing_sequences)                                                                                     \
    X(device_drained)                                                                                        \
    X(late_inputs)                                                                                           \
    X(mixed_steps)                                                                                           \
    X(drafts_accepted)                                                                                       \
    X(drafts_rejected)                                                                                       \
    X(states_drafted)                                                                                        \
    X(predictions_accepted)                                                                                  \
    X(predictions_rejected)                                                                                  \
    X(form_drafts_accepted)                                                                                  \
    X(form_drafts_rejected)                                                                                  \
    X(form_drafts_cut)                                                                                       \
    X(form_drafts_withheld)                                                                                  \
    X(discarded_tokens)                                                                                      \
    X(engine_slept)                                                                                          \
    X(engine_sleep_refused)                                                                                  \
    X(planned_late)                                                                                          \
    X(finished_within_a_turn)                                                                                \
    X(allocations_failed)                                                                                    \
    X(starts_failed)                                                                                         \
    X(device_failed)                                                                                         \
    X(history_failed)                                                                                        \
    X(exits_70)                                                                                              \
    X(drained_quietly)                                                                                       \
    X(drain_timed_out)                                                                                       \
    X(killed_by_second_signal)                                                                               \
    X(stopped_with_work)                                                                                     \
    X(engine_died_while_loading)                                                                             \
    X(engine_died_while_publishing)                                                                          \
    X(engine_died_idle)                                                                                      \
    X(engine_died_with_two_steps)                                                                            \
    X(engine_died_alone)                                                                                     \
    X(engine_died_before_the_first_ready)                                                                    \
    X(engine_died_before_the_texts)                                                                          \
    X(engine_hung_loading)                                                                                   \
    X(engine_failed_and_replaced)                                                                            \
    X(engine_not_started)                                                                                    \
    X(stuck_engine_killed)                                                                                   \
    X(handed_over)                                                                                           \
    X(handed_over_streams_equal)                                                                             \
    X(left_over_finish)                                                                                      \
    X(tried_alone)                                                                                           \
    X(poison_failed)                                                                                         \
    X(exits_70_by_deaths)                                                                                    \
    X(restarted_in_drain)                                                                                    \
    X(died_while_stopping)                                                                                   \
    X(constrained_answers)                                                                                   \
    X(ended_by_form)                                                                                         \
    X(rows_withheld)                                                                                         \
    X(forms_out_of_reach)                                                                                    \
    X(masks_failed)                                                                                          \
    X(constrained_handed_over)                                                                               \
    X(embeddings_answered)                                                                                   \
    X(means_answered)                                                                                        \
    X(heavy_masks_took_turns)

enum marker {
#define X(name) MARK_##name,
    MARKERS(X)
#undef X
        NUM_MARKERS
};
extern const char *const marker_names[NUM_MARKERS];

/* What a process tells the one that started it: shared memory. */
struct report {
    uint64_t num_steps, num_turns, num_requests, num_tokens, num_deaths, trace;
    uint64_t markers[NUM_MARKERS];
    uint64_t now_ns, most_preemptions;
    int num_clients;
    bool complete;
};
extern struct report *report;

static inline void mark(enum marker m)
{
    report->markers[m]++;
}

static inline void trace(uint64_t value)
{
    report->trace = fake_mix(report->trace, value);
}

/* ---- random numbers: a stream for each purpose, so that leaving one thing out changes little else ---- */

struct rng {
    uint64_t key, counter;
};

static inline uint64_t rng_next(struct rng *r)
{
    return fake_mix(r->key, ++r->counter);
}

static inline int32_t rng_below(struct rng *r, int32_t n)
{
    return (int32_t)(rng_next(r) % (uint64_t)n);
}

static inline bool rng_chance(struct rng *r, int32_t percent)
{
    return rng_below(r, 100) < percent;
}

/* Small numbers often, large ones sometimes. */
static inline uint64_t rng_skewed(struct rng *r, uint64_t max)
{
    return (rng_next(r) % (max + 1)) >> (rng_next(r) % 8);
}

/* ---- the run ---- */

/* What is run: the same one twice gives the same trace. */
struct script {
    uint64_t seed;
    uint64_t features_off;
    bool left_out[CLIENTS_MAX];
    bool verbose;
};

extern struct world {
    struct script script;
    bool features[NUM_FEATURES];
    struct config config;
    struct server *server; /* NULL before api_on_loaded */
    struct listener *listener;
    struct engine *engine; /* the one that runs; NULL: none does */
    uint64_t drain_ns;     /* when SIGTERM is sent; UINT64_MAX: once all clients are done */
    uint64_t second_signal_ns;
    bool drain_sent, told_twice, aborted, device_may_fail, ending;
    bool all_recorded; /* every admitted request must have its log line by now */
    int exit_code;     /* what the process is to end with: 1, 70 once it must */
    int num_clients;
    int32_t prefixes[NUM_PREFIXES][PROMPT_MAX];
    int32_t max_num_seqs, max_num_rows, max_num_batched_tokens, max_num_logits, num_blocks, num_host_blocks;
    int32_t num_draft_tokens;
    struct rng draft_rng;
    int32_t window; /* of the model's last layer; 0: it has none */
    bool window_is_chunk;
    int32_t num_states; /* places for kept ones; 0: the model has none */
    struct kv_groups kv_groups;
    double target_us;
    int32_t key_weights[2];
    uint64_t kv_block_bytes; /* as the engine is told, so that copies look dear */
} world;

static inline bool has(enum feature f)
{
    return world.features[f];
}

static inline struct rng rng_of(const char *purpose, uint64_t which)
{
    uint64_t key = world.script.seed;
    for (; *purpose; purpose++) key = fake_mix(key, (uint64_t)*purpose);
    return (struct rng){fake_mix(key, which), 0};
}

/* One line of what happens, when a seed is replayed. */
#define say(...)                                                                                             \
    do {                                                                                                     \
        if (world.script.verbose) sim_say(__VA_ARGS__);                                                      \
    } while (0)
void sim_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Like assert_always, with a sentence. */
#define expect(condition, ...)                                                                               \
    do {                                                                                                     \
        if (__builtin_expect(!(condition), 0)) sim_fail(__FILE__, __LINE__, __VA_ARGS__);                    \
    } while (0)
_Noreturn void sim_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

void world_init(const struct script *script);
/* Runs the server to its end and checks what is left. */
_Noreturn void world_run(void);
/* Clients, workers, signals whose time has come. */
void world_act(void);
/* When the next of them acts; UINT64_MAX: never. */
uint64_t world_next_ns(void);

/* ---- threads.c ---- */

uint64_t now_ns(void);
void threads_init(void);
/* Somebody else may go on here. */
void thread_pause(void);
/* The running thread is slow: others are likely to do much before it goes on. */
void thread_linger(void);
/* Blocks the running thread until then. */
void thread_sleep_until(uint64_t ns);
/* Blocks the loop's thread until loop_is_ready. */
void thread_poll(void);
bool thread_is_engine(void);
/* As pthread_create, for the engine: it may die. */
void thread_create_engine(pthread_t *thread, void *(*main)(void *), void *argument);
/* The engine's thread is no more, wherever it was. Returns unless it is the one that runs. */
void thread_kill_engine(void);
/* It sleeps until the front calls. */
bool thread_engine_sleeps(void);

/* ---- heap.c: the real allocator, for the simulator itself; and what the server's has out ---- */

void *keep_alloc(size_t bytes); /* zeroed, never fails, counted nowhere */
void *keep_realloc(void *p, size_t bytes);
void keep_free(void *p);
uint64_t heap_num_live(void);
uint64_t heap_num_live_of_engine(void); /* what its thread has out */
void heap_forget_engine(void);          /* it has died: all of that is the system's again */
void heap_init(void);
/* Every n-th of the loop's allocations fails on average; 0: none. */
void heap_fail_every(int32_t n);
/* Exactly the n-th from now fails, whoever asks; 0: none. */
void heap_fail_once(int32_t n);
uint64_t heap_num_failed(void);
void heap_forbid(bool forbidden); /* an allocation of the engine's is a bug */
void heap_exempt(bool exempt);    /* the simulator itself allocates: no failures */

/* ---- loop.c ---- */

bool loop_is_ready(void);
uint64_t loop_next_timer_ns(void);
void loop_raise(int signal_number);
void loop_act(void); /* workers whose time has come */
uint64_t loop_next_work_ns(void);
int loop_num_open_handles(void);

/* ---- engine.c ---- */

/* The engine is at a place where it may die; the heavier, the likelier. */
void engine_may_die(uint64_t weight);
/* The process that the engine is ends; nothing of it stays but the link's region. signal 0: it exits; SIGSEGV:
 * of what it computes; SIGKILL: of something else, but for a step that never ends. */
void engine_end_process(int exit_code, int signal);
void engine_act(void); /* deaths whose time has come, and the news of them */
uint64_t engine_next_ns(void);
/* The step that is waited for never ends. */
bool engine_gets_stuck(void);

/* ---- words.c ---- */

/* The text of a token as an answer shows it: nothing for special ones. */
const char *word_of(int32_t id);

#endif
