/* link_calls.c - what crosses the link: submissions, cancellations, wake-ups of the engine, and what is left
 * of them when an engine has died.
 * Each ends with a call of the engine (wake_word.h). */
#include <stdlib.h>

#include "base/check.h"
#include "link/region.h"

static void call_engine(struct link *l)
{
    wake_word_call(&l->region->calls);
}

uint32_t link_num_calls(const struct link *l)
{
    return atomic_load(&l->region->calls.calls);
}

void link_sleep(struct link *l, uint32_t seen)
{
    wake_word_sleep(&l->region->calls, seen, 0);
}

void link_sleep_at_most(struct link *l, uint32_t seen, uint64_t timeout_ns)
{
    assert_debug(timeout_ns > 0);
    wake_word_sleep(&l->region->calls, seen, timeout_ns);
}

void link_submit(struct link *l, int32_t slot_idx)
{
    request_slots_get(l->slots, slot_idx)->serial = ++l->last_serial;
    if (!l->holding) link_hand_over(l, slot_idx);
}

void link_cancel(struct link *l, int32_t slot_idx)
{
    atomic_store_explicit(&request_slots_get(l->slots, slot_idx)->cancel, true, memory_order_release);
    link_set_bit(l->cancel_bits, slot_idx);
    call_engine(l);
}

void link_stop(struct link *l)
{
    atomic_store(&l->region->stopping, true);
    call_engine(l);
}

bool link_is_stopping(const struct link *l)
{
    return atomic_load(&l->region->stopping);
}

bool link_next_submission(struct link *l, int32_t *slot_idx)
{
    uint32_t item;
    if (!ring_pop(&l->submitted, &item)) return false;
    *slot_idx = (int32_t)item;
    return true;
}

bool link_next_cancelled(struct link *l, int32_t *slot_idx)
{
    return link_take_bit(l, l->cancel_bits, slot_idx);
}

/* ---- when an engine has died ---- */

void link_reset(struct link *l)
{
    struct region *r = l->region;
    uint32_t item;
    while (l->slots && ring_pop(&l->submitted, &item)) continue;
    for (int32_t i = 0; l->slots && i < r->facts.num_slots; i++)
        request_slots_get(l->slots, i)->with_engine = false;
    atomic_store(&r->counters.num_steps_begun,
                 atomic_load(&r->counters.num_steps)); /* the others never end */
    atomic_store(&r->calls.sleepers, 0);
    atomic_store(&r->masks_made.sleepers, 0);
    atomic_store(&r->fault, false);
    if (link_ordered_lora(l)) link_answer_lora(l, STATUS_DEVICE, "the engine died before it had it");
    atomic_store(&r->state, LINK_LOADING);
    l->holding = true;
}

/* Submitted, not finished, and with no engine. */
static bool is_waiting(const struct request_slot *slot)
{
    return slot->serial > 0 && !slot->with_engine &&
           atomic_load_explicit(&slot->finish_reason, memory_order_acquire) == FINISH_NONE;
}

static int compare_serials(const void *a, const void *b, void *slots)
{
    uint64_t x = request_slots_get(slots, *(const int32_t *)a)->serial,
             y = request_slots_get(slots, *(const int32_t *)b)->serial;
    return (x > y) - (x < y);
}

static void list_waiting(struct link *l)
{
    l->num_listed = l->list_at = 0;
    for (int32_t i = 0; i < l->region->facts.num_slots; i++)
        if (is_waiting(request_slots_get(l->slots, i))) l->listed[l->num_listed++] = i;
    qsort_r(l->listed, (size_t)l->num_listed, sizeof l->listed[0], compare_serials, l->slots);
}

int32_t link_next_waiting(struct link *l, int32_t slot_idx)
{
    if (slot_idx < 0) list_waiting(l);
    assert_always(slot_idx < 0 || (l->list_at > 0 && l->listed[l->list_at - 1] == slot_idx));
    while (l->list_at < l->num_listed) {
        int32_t next = l->listed[l->list_at++];
        if (is_waiting(request_slots_get(l->slots, next))) return next;
    }
    return -1;
}

void link_hand_over(struct link *l, int32_t slot_idx)
{
    struct request_slot *slot = request_slots_get(l->slots, slot_idx);
    assert_always(is_waiting(slot));
    slot->with_engine = true;
    bool pushed = ring_push(&l->submitted, (uint32_t)slot_idx);
    assert_always(pushed);
    call_engine(l);
}

void link_let_through(struct link *l)
{
    l->holding = false;
    for (int32_t i = -1; (i = link_next_waiting(l, i)) >= 0;) link_hand_over(l, i);
}

bool link_is_holding(const struct link *l)
{
    return l->holding;
}

void link_finish_waiting(struct link *l, int32_t slot_idx, enum finish_reason reason, const char *error_text)
{
    struct request_slot *slot = request_slots_get(l->slots, slot_idx);
    assert_always(is_waiting(slot));
    request_slot_finish(slot, reason, error_text);
}
