/* engine.c - the engine's life and its thread.
 *
 * Sleeping. The loop must never miss waking a sleeping engine, and a submission to a busy one should cost no
 * system call. Each call of the loop does, in this order:
 *
 *   loop:    push or set the bit;  num_calls += 1;  if (sleeping) futex_wake(num_calls)
 *   engine:  seen = num_calls;  a turn that finds nothing;
 *            sleeping = 1;  futex_wait(num_calls, seen);  sleeping = 0
 *
 * num_calls and sleeping are accessed in one total order (seq_cst). If the loop reads sleeping as 0, its
 * addition came before the engine's store, so the kernel, which compares num_calls with seen before it puts
 * the engine to sleep, finds them different and returns at once. If it reads 1, it wakes. An idle engine uses
 * no CPU time at all. */
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "engine/engine_internal.h"

void engine_step_limits(const struct engine_options *options, const struct device *device,
                        struct step_limits *out)
{
    int32_t num_steps = max_of(1, min_of(device->num_steps_in_flight_max, FLIGHTS_MAX));
    int32_t num_seqs = min_of(options->max_num_seqs, options->max_num_batched_tokens);
    *out = (struct step_limits){
        .num_tokens = options->max_num_batched_tokens,
        .num_seqs = num_seqs,
        .num_logits = max_of(options->max_num_logits, num_seqs),
        .num_seq_slots = num_seqs * num_steps,
        .max_model_len = options->max_model_len,
        .num_steps_in_flight = num_steps,
    };
}

/* All that K and V depend on beside the tokens. The cache lives no longer than the model, so this only
 * matters once blocks outlive the process; it is cheap to have it right from the start. */
static int model_key(const struct engine *e, char *text, size_t size)
{
    const struct model_config *c = model_config(e->model);
    const struct device *device = model_device(e->model);
    int n = snprintf(text, size, "flashd K/V 1|%s|%s|%s|%d layers|%d heads|%d hidden|%d dim|block %d|type %d",
                     device->name ? device->name : "", c->architecture, c->family, c->num_layers,
                     c->num_kv_heads, c->hidden_size, c->head_dim, BLOCK_SIZE, (int)e->options.kv_dtype);
    return min_of(n, (int)size - 1);
}

static int create_scheduler(struct engine *e, struct error *err)
{
    char key[512];
    int key_bytes = model_key(e, key, sizeof(key));
    struct scheduler_options options = {
        .max_num_seqs = e->limits.num_seqs,
        .max_num_batched_tokens = e->limits.num_tokens,
        .max_num_logits = e->limits.num_logits,
        .max_model_len = e->limits.max_model_len,
        .num_seq_slots = e->limits.num_seq_slots,
        .max_num_sequences = request_slots_count(e->slots),
        .num_blocks = e->options.num_blocks,
        .enable_prefix_caching = e->options.enable_prefix_caching,
        .prefill_decode_equal = model_device(e->model)->prefill_decode_equal,
        .model_key = key,
        .model_key_bytes = (size_t)key_bytes,
    };
    int status = scheduler_create(&options, &e->scheduler, err);
    if (status) return status;
    return step_builder_create(&e->limits, model_config(e->model), &e->builder, err);
}

static int create_arrays(struct engine *e)
{
    size_t num_slots = (size_t)request_slots_count(e->slots);
    uint32_t ring_items = 1;
    while (ring_items < num_slots) ring_items *= 2;
    e->num_cancel_words = (int32_t)div_up((int64_t)num_slots, 64);
    e->results = calloc((size_t)e->limits.num_logits, sizeof(e->results[0]));
    e->seq_of_slot = malloc(num_slots * sizeof(e->seq_of_slot[0]));
    e->submitted_items = calloc(ring_items, sizeof(e->submitted_items[0]));
    e->cancel_bits = calloc((size_t)e->num_cancel_words, sizeof(e->cancel_bits[0]));
    if (!e->results || !e->seq_of_slot || !e->submitted_items || !e->cancel_bits) return STATUS_NO_MEMORY;
    for (int i = 0; i < e->limits.num_steps_in_flight; i++)
        if (plan_init(&e->flights[i].plan, e->limits.num_seqs) != 0) return STATUS_NO_MEMORY;
    for (size_t i = 0; i < num_slots; i++) e->seq_of_slot[i] = NO_SEQUENCE;
    ring_init(&e->submitted, e->submitted_items, ring_items);
    return 0;
}

int engine_create(struct model *model, struct request_slots *slots, const struct engine_options *options,
                  struct engine **out, struct error *err)
{
    assert_always(options->max_num_seqs >= 1 && options->max_num_batched_tokens >= 1 &&
                  options->max_model_len >= 1 && options->num_blocks >= 1);
    struct engine *e = aligned_alloc(64, align_up(sizeof(*e), 64));
    if (!e) return error_set(err, STATUS_NO_MEMORY, "no memory for the engine");
    memset(e, 0, sizeof(*e));
    e->model = model;
    e->slots = slots;
    e->options = *options;
    engine_step_limits(options, model_device(model), &e->limits);
    int status = create_arrays(e);
    if (status) error_set(err, status, "no memory for the engine's tables");
    if (!status) status = create_scheduler(e, err);
    if (status) {
        engine_destroy(e);
        return status;
    }
    engine_copy_scheduler_stats(e);
    *out = e;
    return 0;
}

void engine_destroy(struct engine *e)
{
    if (!e) return;
    assert_always(!e->thread_started);
    for (int i = 0; i < FLIGHTS_MAX; i++) plan_deinit(&e->flights[i].plan);
    scheduler_destroy(e->scheduler);
    step_builder_destroy(e->builder);
    free(e->results);
    free(e->seq_of_slot);
    free(e->submitted_items);
    free(e->cancel_bits);
    free(e);
}

/* ---- the thread ---- */

static void sleep_until_called(struct engine *e, uint32_t seen)
{
    atomic_store(&e->sleeping, 1);
    syscall(SYS_futex, &e->num_calls, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_store(&e->sleeping, 0);
}

static void call_engine(struct engine *e)
{
    atomic_fetch_add(&e->num_calls, 1);
    if (atomic_load(&e->sleeping)) syscall(SYS_futex, &e->num_calls, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Nothing is left in the loop's hands but slots that are its own. */
static void wind_up(struct engine *e)
{
    engine_drain(e);
    engine_finish_all(e, FINISH_CANCELLED, NULL);
    engine_abandon_flights(e);
    engine_copy_scheduler_stats(e);
    if (e->options.wake_loop) e->options.wake_loop(e->options.wake_context);
}

static void *run(void *context)
{
    struct engine *e = context;
    while (!atomic_load(&e->stopping)) {
        uint32_t seen = atomic_load(&e->num_calls);
        if (engine_step(e)) continue;
#ifdef FLASHD_DEBUG
        engine_check(e);
#endif
        if (!atomic_load(&e->stopping)) sleep_until_called(e, seen);
    }
    wind_up(e);
    return NULL;
}

int engine_start(struct engine *e, struct error *err)
{
    /* Signals are the loop's. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(&e->thread, NULL, run, e);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure)
        return error_set(err, STATUS_NO_MEMORY, "cannot start the engine thread: %s", strerror(failure));
    pthread_setname_np(e->thread, "engine");
    e->thread_started = true;
    return 0;
}

void engine_stop(struct engine *e)
{
    atomic_store(&e->stopping, true);
    if (!e->thread_started) {
        wind_up(e);
        return;
    }
    call_engine(e);
    pthread_join(e->thread, NULL);
    e->thread_started = false;
}

/* ---- the loop's side ---- */

void engine_submit(struct engine *e, int32_t slot_idx)
{
    bool pushed = ring_push(&e->submitted, (uint32_t)slot_idx);
    assert_always(pushed);
    call_engine(e);
}

void engine_cancel(struct engine *e, int32_t slot_idx)
{
    atomic_store_explicit(&request_slots_get(e->slots, slot_idx)->cancel, true, memory_order_release);
    atomic_fetch_or_explicit(&e->cancel_bits[slot_idx / 64], 1ull << (slot_idx % 64), memory_order_release);
    call_engine(e);
}

bool engine_failed(const struct engine *e)
{
    return atomic_load_explicit(&e->failed, memory_order_acquire);
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
