/* engine_energy.c - what the device uses is split among the sequences that it computes for, by their shares of the tokens.
 *
 *   reading | step, step, ... | reading: what was used between goes to those who had tokens in these steps
 *
 * The counters move some hundred times a second on a CPU and ten on a GPU, and reading one is a system call: so one is due
 * every WINDOW_NS, and before a sequence ends. What is used while nothing is computed goes to nobody. */
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "engine/energy_meter.h"
#include "engine/engine_internal.h"

static const uint64_t WINDOW_NS = 20 * 1000 * 1000;

int engine_energy_init(struct engine *e)
{
    struct energy_window *w = &e->energy;
    size_t num_slots = (size_t)request_slots_count(e->slots);
    if (!e->options.energy_meter) return STATUS_OK;
    w->tokens_of_slot = calloc(num_slots, sizeof *w->tokens_of_slot);
    w->slots = calloc(num_slots, sizeof *w->slots);
    return w->tokens_of_slot && w->slots ? STATUS_OK : STATUS_NO_MEMORY;
}

void engine_energy_deinit(struct engine *e)
{
    free(e->energy.tokens_of_slot);
    free(e->energy.slots);
}

static void begin_window(struct engine *e)
{
    e->energy.begin_uj = energy_meter_read_uj(e->options.energy_meter);
    e->energy.begin_ns = clock_monotonic_ns();
}

void engine_energy_begin_step(struct engine *e)
{
    bool was_idle = e->num_in_flight == 1 && e->energy.num_tokens == 0;
    if (e->options.energy_meter && was_idle) begin_window(e);
}

static void note_entries(struct engine *e, const struct plan_entry *entries, int32_t num_entries)
{
    struct energy_window *w = &e->energy;
    for (int32_t i = 0; i < num_entries; i++) {
        int32_t slot_idx = scheduler_sequence(e->scheduler, entries[i].seq_id)->slot_idx;
        w->num_tokens += entries[i].num_tokens;
        if (e->seq_of_slot[slot_idx] != entries[i].seq_id) continue; /* it has ended meanwhile */
        if (w->tokens_of_slot[slot_idx] == 0) w->slots[w->num_slots++] = slot_idx;
        w->tokens_of_slot[slot_idx] += entries[i].num_tokens;
    }
}

void engine_energy_end_step(struct engine *e, const struct plan *plan)
{
    if (!e->options.energy_meter) return;
    note_entries(e, plan->prefills, plan->num_prefills);
    note_entries(e, plan->decodes, plan->num_decodes);
    if (clock_monotonic_ns() - e->energy.begin_ns >= WINDOW_NS) engine_energy_settle(e);
}

void engine_energy_settle(struct engine *e)
{
    struct energy_window *w = &e->energy;
    if (w->num_tokens == 0) return;
    uint64_t begin_uj = w->begin_uj;
    begin_window(e);
    uint64_t used_uj = w->begin_uj - begin_uj;
    counter_add(&e->counters->energy_uj, used_uj);
    for (int32_t i = 0; i < w->num_slots; i++) {
        int32_t slot_idx = w->slots[i];
        double share = (double)w->tokens_of_slot[slot_idx] / (double)w->num_tokens;
        counter_add(&request_slots_get(e->slots, slot_idx)->energy_uj, (uint64_t)((double)used_uj * share));
        w->tokens_of_slot[slot_idx] = 0;
    }
    w->num_tokens = 0;
    w->num_slots = 0;
}
