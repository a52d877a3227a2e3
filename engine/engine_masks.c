/* engine_masks.c - what constrained rows may draw: masks that the front makes while the device computes.
 *
 * A step waits for masks as long as its forward pass keeps the device busy anyway, and MASK_WAIT_NS at least. A row without
 * its mask then draws nothing: its token is computed again by the next step, to the same bits, so that a late mask changes
 * when a token comes and never which, and nobody else waits. Behind a draft the rows before it count all the same. */
#include "base/check.h"
#include "base/clock.h"
#include "engine/engine_internal.h"

enum { MASK_WAIT_NS = 1000000 };

/* The rows of an entry that draw from masks: the first from that of the sequence's next token, the others behind a draft, from
 * those that were made ahead for the case that it comes true. */
struct drawing {
    struct plan_entry *entry;
    const struct sequence *seq;
    int32_t row; /* the first */
};

static const struct request_slot *slot_of(struct engine *e, const struct drawing *d)
{
    return request_slots_get(e->slots, d->seq->slot_idx);
}

/* What is known of the token that the first row draws: a mask_state, k + 1 when its mask is there. */
static int32_t look(struct engine *e, const struct drawing *d)
{
    return atomic_load_explicit(&slot_of(e, d)->mask_state, memory_order_acquire);
}

static bool is_there(struct engine *e, const struct drawing *d)
{
    int32_t state = look(e, d);
    return state < 0 || state == d->seq->num_tokens - d->seq->num_prompt + 1;
}

/* Of the rows, those whose masks are there. The draft is what was guessed. */
static int32_t num_masks(struct engine *e, const struct drawing *d)
{
    if (!is_there(e, d) || look(e, d) < 0) return 0;
    int32_t num_ahead = atomic_load_explicit(&slot_of(e, d)->guess.num_masks_ahead, memory_order_acquire);
    return 1 + min_of(num_ahead, d->entry->num_drafted);
}

/* Nothing more will come. */
static bool is_complete(struct engine *e, const struct drawing *d)
{
    if (!is_there(e, d)) return false;
    if (look(e, d) < 0) return true;
    int32_t num_guessed = atomic_load_explicit(&slot_of(e, d)->guess.num_tokens, memory_order_acquire);
    return num_masks(e, d) > min_of(num_guessed, d->entry->num_drafted);
}

/* The next drawing of the flight behind *at, which begins with entry -1; rows are counted along. False: none. */
static bool next_drawing(struct engine *e, struct plan *plan, int32_t *at, int32_t *next_row,
                         struct drawing *out)
{
    while (++*at < plan_num_entries(plan)) {
        struct plan_entry *entry = plan_get_entry(plan, *at);
        *next_row += plan_entry_num_logits(entry);
        if (!entry->samples) continue;
        const struct sequence *seq = scheduler_sequence(e->scheduler, entry->seq_id);
        *out = (struct drawing){entry, seq, *next_row - plan_entry_num_draws(entry)};
        if (step_builder_is_constrained(e->builder, seq->batch_slot)) return true;
    }
    return false;
}

static void wait_for(struct engine *e, const struct drawing *d, uint64_t deadline_ns)
{
    for (;;) {
        uint32_t seen = link_num_made(e->link);
        if (is_complete(e, d)) return;
        uint64_t now_ns = clock_monotonic_ns();
        if (now_ns >= deadline_ns) return;
        link_sleep_until_made(e->link, seen, deadline_ns - now_ns);
    }
}

/* A row behind one without a mask has none either: they are made in order. */
static void settle(struct engine *e, int flight_idx, const struct drawing *d)
{
    bool runs = d->seq->state == SEQUENCE_RUNNING; /* or it has ended meanwhile */
    int32_t num_draws = plan_entry_num_draws(d->entry), k = d->seq->num_tokens - d->seq->num_prompt;
    int32_t num_rows = runs ? num_masks(e, d) : 0;
    for (int32_t i = 0; i < num_draws; i++) {
        const uint64_t *mask = request_slots_mask(e->slots, d->seq->slot_idx, k + i);
        step_builder_set_allowed(e->builder, flight_idx, d->row + i, i < num_rows ? mask : NULL);
    }
    if (runs && !is_there(e, d)) counter_add(&e->counters->num_withheld, 1);
    if (num_rows < num_draws) scheduler_withhold(e->scheduler, d->entry, num_rows);
}

void engine_settle_masks(struct engine *e, int flight_idx)
{
    struct plan *plan = &e->flights[flight_idx].plan;
    struct drawing d;
    uint64_t deadline_ns = max_of(clock_monotonic_ns() + MASK_WAIT_NS, engine_busy_until_ns(e));
    assert_always(e->num_in_flight == 1);
    for (int32_t at = -1, row = 0; next_drawing(e, plan, &at, &row, &d);)
        if (d.seq->state == SEQUENCE_RUNNING) wait_for(e, &d, deadline_ns);
    for (int32_t at = -1, row = 0; next_drawing(e, plan, &at, &row, &d);) settle(e, flight_idx, &d);
}

void engine_end_if_masked(struct engine *e, int32_t seq_id)
{
    struct request_slot *slot =
        request_slots_get(e->slots, scheduler_sequence(e->scheduler, seq_id)->slot_idx);
    int32_t state = atomic_load_explicit(&slot->mask_state, memory_order_acquire);
    if (state == MASK_ENDED) {
        slot->stop_token_id = -1;
        engine_finish(e, seq_id, FINISH_STOP, NULL);
    } else if (state == MASK_FAILED) {
        engine_finish(e, seq_id, FINISH_ERROR, "the form of the answer could not be followed");
    }
}
