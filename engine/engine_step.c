/* engine_step.c - the turn: drain, schedule, forward, publish.
 *
 *   one step in flight:   plan 1, begin 1, end 1, publish 1, plan 2, begin 2, ...
 *   two:                  plan 1, begin 1, plan 2, begin 2, end 1, publish 1, plan 3, begin 3, end 2, ...
 *
 * A plan is made as late as the device's running step allows (engine_pace.c), so that who comes meanwhile is in it.
 *
 * With two, step n + 1 is planned before it is known what step n draws: a decoding sequence's input is
 * "whatever was drawn for this batch_slot", and a sequence that turns out to have stopped has drawn one token
 * too many, which is discarded. Where the plan needs to know more (to preempt) it asks for the device to be
 * drained first; so does who expects more of a draft than of two steps in flight (engine_draft.c).
 *
 * What a constrained row may draw depends on the token before it: step n + 1 computes while step n ends and is published
 * and masks are made, and only then draws:
 *
 *   ..., plan 2, begin 2, end 1, publish 1, masks of 2, sample 2, plan 3, begin 3, ... */
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/engine_internal.h"

/* ---- drain ---- */

static bool take_cancels(struct engine *e)
{
    bool any = false;
    for (int32_t slot_idx = -1; link_next_cancelled(e->link, &slot_idx);) {
        /* The bit may be left over from a request that has finished: only a slot that is the engine's is
         * looked at. One that was not submitted yet is asked when it is. */
        int32_t seq_id = e->seq_of_slot[slot_idx];
        if (seq_id == NO_SEQUENCE) continue;
        if (!atomic_load_explicit(&request_slots_get(e->slots, slot_idx)->cancel, memory_order_relaxed))
            continue;
        engine_finish(e, seq_id, FINISH_CANCELLED, NULL);
        any = true;
    }
    return any;
}

/* What of a prompt is computed as decoding does. */
static void learn_answers(struct engine *e)
{
    struct answer_rule rule = {.num_ends = e->num_eos_ids};
    rule.num_header = link_answer_header(e->link, rule.header);
    memcpy(rule.ends, e->eos_ids, (size_t)e->num_eos_ids * sizeof(rule.ends[0]));
    scheduler_set_answer_rule(e->scheduler, &rule);
}

/* With the first submission, so nothing is in flight. */
static void learn_text(struct engine *e)
{
    struct device *device = model_device(e->model);
    if (e->knows_text) return;
    engine_add_eos(e, link_tokenizer_eos_id(e->link));
    learn_answers(e);
    device->ops->forbid(device, link_silent_ids(e->link));
    e->knows_text = true;
}

static bool take_submissions(struct engine *e)
{
    int32_t slot_idx;
    bool any = false;
    while (link_next_submission(e->link, &slot_idx)) {
        learn_text(e);
        engine_accept(e, slot_idx);
        any = true;
    }
    return any;
}

static bool drain(struct engine *e)
{
    bool any = take_submissions(e);
    return take_cancels(e) || any;
}

void engine_drain(struct engine *e)
{
    drain(e);
}

/* ---- forward ---- */

/* The sequence has got a batch_slot: what the device and the step builder keep under it is set. */
static int enter_sequence(struct engine *e, const struct sequence *seq)
{
    struct request_slot *slot = request_slots_get(e->slots, seq->slot_idx);
    step_builder_set_request(e->builder, seq->batch_slot, &slot->input,
                             request_slots_payload(e->slots, seq->slot_idx), e->eos_ids, e->num_eos_ids);
    if (slot->scheduled_ns == 0) {
        engine_count_dequeued(e, slot);
        engine_count_lookup(e, seq);
        slot->scheduled_ns = clock_monotonic_ns();
        slot->num_cached_tokens = seq->num_cached_tokens;
        slot->cache_miss = seq->cache_miss;
    }
    if (!sampling_uses_history(&slot->input.sampling)) return 0;
    struct device *device = model_device(e->model);
    return device->ops->history_set(device, seq->batch_slot, seq->tokens, seq->num_prompt, seq->num_tokens);
}

static int enter_admitted(struct engine *e, const struct plan_entry *entries, int32_t num_entries)
{
    int status = 0;
    for (int32_t i = 0; i < num_entries && status == 0; i++)
        if (entries[i].admitted)
            status = enter_sequence(e, scheduler_sequence(e->scheduler, entries[i].seq_id));
    return status;
}

static void note_entries(struct engine *e, const struct plan_entry *entries, int32_t num_entries,
                         uint64_t step)
{
    for (int32_t i = 0; i < num_entries; i++) {
        int32_t slot_idx = scheduler_sequence(e->scheduler, entries[i].seq_id)->slot_idx;
        struct step_part *part = &request_slots_get(e->slots, slot_idx)->parts[step % STEPS_IN_FLIGHT_MAX];
        int32_t begin = entries[i].position, end = begin + entries[i].num_tokens;
        atomic_store_explicit(&part->begin, begin, memory_order_relaxed);
        atomic_store_explicit(&part->end, end, memory_order_relaxed);
        atomic_store_explicit(&part->step, step, memory_order_relaxed);
    }
}

/* Who is on board, should this step be the engine's last. */
static void note_step(struct engine *e, const struct plan *plan)
{
    counter_add(&e->counters->num_steps_begun, 1);
    uint64_t step = atomic_load_explicit(&e->counters->num_steps_begun, memory_order_relaxed);
    note_entries(e, plan->prefills, plan->num_prefills, step);
    note_entries(e, plan->decodes, plan->num_decodes, step);
}

/* False when the device refused; then nothing was begun on it. */
static bool begin_flight(struct engine *e, int flight_idx)
{
    struct flight *flight = &e->flights[flight_idx];
    const struct plan *plan = &flight->plan;
    e->num_in_flight++;
    note_step(e, plan);
    if (engine_copy(e, plan, e->num_in_flight - 1) != 0) return false;
    if (enter_admitted(e, plan->prefills, plan->num_prefills) != 0) return false;
    if (enter_admitted(e, plan->decodes, plan->num_decodes) != 0) return false;
    flight->begin_ns = clock_monotonic_ns();
    engine_energy_begin_step(e);
    model_step_begin(e->model, step_builder_build(e->builder, flight_idx, e->scheduler, plan));
    flight->host_us = (double)(clock_monotonic_ns() - e->turn_ns) / 1000;
    return true;
}

static struct flight *pop_flight(struct engine *e)
{
    struct flight *flight = &e->flights[e->oldest_flight];
    e->oldest_flight = (e->oldest_flight + 1) % e->limits.num_steps_in_flight;
    e->num_in_flight--;
    scheduler_end_step(e->scheduler);
    return flight;
}

static const struct sample_result *publish_entries(struct engine *e, struct plan_entry *entries,
                                                   int32_t num_entries, const struct sample_result *rows)
{
    for (int32_t i = 0; i < num_entries; i++) {
        engine_publish_entry(e, &entries[i], rows);
        rows += plan_entry_num_logits(&entries[i]);
    }
    return rows;
}

static void forget_entries(struct engine *e, const struct plan_entry *entries, int32_t num_entries)
{
    for (int32_t i = 0; i < num_entries; i++) {
        bool running = scheduler_end_entry(e->scheduler, &entries[i]);
        assert_always(!running);
    }
}

/* Every sequence was finished before. */
void engine_abandon_flights(struct engine *e)
{
    bool failed = e->failed;
    while (e->num_in_flight > 0) {
        struct error err;
        if (!failed) failed = model_step_end(e->model, e->results, &err) != 0;
        const struct plan *plan = &pop_flight(e)->plan;
        forget_entries(e, plan->prefills, plan->num_prefills);
        forget_entries(e, plan->decodes, plan->num_decodes);
    }
}

static void fail(struct engine *e, const char *error_text)
{
    log_error("the device failed: %s", error_text);
    e->failed = true;
    if (!e->options.leaves_requests) {
        engine_finish_all(e, FINISH_DEVICE, error_text);
        engine_abandon_flights(e);
    }
    link_set_state(e->link, LINK_FAILED, error_text);
}

static void end_flight(struct engine *e)
{
    struct error err = {0};
    uint64_t wait_begin_ns = clock_monotonic_ns();
    if (model_step_end(e->model, e->results, &err) != 0) {
        fail(e, err.text);
        return;
    }
    e->ended_ns = clock_monotonic_ns();
    engine_learn_pace(e, wait_begin_ns);
    const struct flight *flight = pop_flight(e);
    engine_energy_end_step(e, &flight->plan);
    const struct sample_result *rows = e->results;
    rows = publish_entries(e, flight->plan.prefills, flight->plan.num_prefills, rows);
    rows = publish_entries(e, flight->plan.decodes, flight->plan.num_decodes, rows);
    assert_always(rows == e->results + flight->plan.num_logits);
    engine_count_step(e, flight); /* who is on board is so until all of it is published */
}

/* ---- the turn ---- */

static void wake_front(struct engine *e)
{
    if (e->published) link_wake_front(e->link);
    e->published = false;
}

/* What was begun last draws its tokens. */
static void sample_flight(struct engine *e, int flight_idx)
{
    if (step_builder_num_constrained(e->builder, flight_idx) > 0) {
        if (e->num_in_flight > 1) end_flight(e);
        if (e->failed) return;
        wake_front(e);
        engine_settle_masks(e, flight_idx);
    }
    model_step_sample(e->model);
}

static bool forward(struct engine *e)
{
    bool waits = engine_wants_to_draft(e);
    while (waits && e->num_in_flight > 0 && !e->failed) end_flight(e);
    if (e->failed) return true;
    engine_draft(e);
    int flight_idx = (e->oldest_flight + e->num_in_flight) % e->limits.num_steps_in_flight;
    enum schedule_result result = scheduler_plan(e->scheduler, &e->flights[flight_idx].plan);
    if (result == SCHEDULE_STEP && !begin_flight(e, flight_idx)) {
        fail(e, "the device did not take a request's history, blocks or states");
        return true;
    }
    if (result == SCHEDULE_STEP && waits) engine_learn_gap(e, clock_monotonic_ns());
    if (result == SCHEDULE_STEP) sample_flight(e, flight_idx);
    if (e->failed) return true;
    if (result == SCHEDULE_STEP && e->num_in_flight < e->limits.num_steps_in_flight) return true;
    if (e->num_in_flight > 0) {
        end_flight(e);
        return true;
    }
    /* Nothing can run and nothing is in flight: a sequence that is left now would be left forever. */
    assert_always(scheduler_is_empty(e->scheduler));
    return waits; /* what was waited for has ended */
}

/* How late it may be noticed that a step has ended before its time: nothing wakes the engine then. */
enum { LOOK_NS = 100000 };

/* Takes in what comes until the next step is to be planned. */
static bool drain_until_turn(struct engine *e)
{
    uint64_t busy_until_ns = engine_busy_until_ns(e);
    e->turn_ns = busy_until_ns > 0 ? busy_until_ns : clock_monotonic_ns();
    for (bool any = false;; wake_front(e)) {
        uint32_t seen = link_num_calls(e->link);
        uint64_t now_ns = clock_monotonic_ns();
        engine_notice_end(e, now_ns);
        any = drain(e) || any;
        if (now_ns >= e->turn_ns || e->failed || link_is_stopping(e->link)) return any;
        link_sleep_at_most(e->link, seen, min_of(e->turn_ns - now_ns, LOOK_NS));
    }
}

bool engine_step(struct engine *e)
{
    bool worked = drain_until_turn(e);
    if (!e->failed) worked = forward(e) || worked;
    if (!e->failed) worked = engine_exchange_lora(e) || worked;
    if (worked) engine_copy_scheduler_stats(e);
    wake_front(e);
    return worked;
}
