/* engine_copies.c - K/V blocks to host memory and back, and states to where they are kept and back, as a plan wants it. */
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/engine_internal.h"

static void note_preemptions(struct engine *e, const struct plan *plan)
{
    for (int32_t i = 0; i < plan->num_preemptions; i++) {
        const struct preemption *p = &plan->preemptions[i];
        log_info("%s: a sequence of %d tokens waits (slot %d), and what it has computed %s; "
                 "expected %.2f ms to copy, %.2f ms to compute again",
                 p->displaced ? "another client or key has less than its part" : "no K/V block is free",
                 p->num_tokens, p->slot_idx, p->saved ? "is saved" : "will be computed again",
                 p->restore_us / 1000, p->compute_us / 1000);
        if (p->restore_us > p->compute_us) step_cost_hope_copy(&e->cost);
    }
}

static int copy_blocks(struct engine *e, const struct plan *plan, int num_before)
{
    const struct block_copies *saves = &plan->saves, *loads = &plan->loads;
    if (saves->count + loads->count == 0) return STATUS_OK;
    int status = model_kv_save(e->model, saves->block_ids, saves->host_ids, saves->count);
    uint64_t begin_ns = clock_monotonic_ns();
    if (!status) status = model_kv_load(e->model, loads->block_ids, loads->host_ids, loads->count);
    double us = (double)(clock_monotonic_ns() - begin_ns) / 1000;
    /* Behind a step in flight they have waited for it, too. A save may have made room before, which is done once. */
    if (num_before == 0) step_cost_learn_copy(&e->cost, loads->count, us);
    return status;
}

int engine_copy(struct engine *e, const struct plan *plan, int num_before)
{
    note_preemptions(e, plan);
    int status = copy_blocks(e, plan, num_before);
    return status ? status : model_states_copy(e->model, plan->state_copies, plan->num_state_copies);
}
