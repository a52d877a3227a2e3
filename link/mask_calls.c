/* mask_calls.c - masks are wanted by the engine, and made by threads of the front: each sleeps on a word of
 * its own. */
#include "base/check.h"
#include "link/region.h"

/* ---- to who makes them ---- */

void link_want_mask(struct link *l, int32_t slot_idx)
{
    link_set_bit(l->mask_bits, slot_idx);
    wake_word_call(&l->region->masks_wanted);
}

bool link_next_wanted(struct link *l, int32_t *slot_idx)
{
    return link_take_bit(l, l->mask_bits, slot_idx);
}

uint32_t link_num_wanted(const struct link *l)
{
    return atomic_load(&l->region->masks_wanted.calls);
}

void link_sleep_until_wanted(struct link *l, uint32_t seen)
{
    wake_word_sleep(&l->region->masks_wanted, seen, 0);
}

void link_call_mask_threads(struct link *l)
{
    wake_word_call(&l->region->masks_wanted);
}

/* ---- to the engine ---- */

void link_say_mask_is_made(struct link *l)
{
    wake_word_call(&l->region->masks_made);
}

uint32_t link_num_made(const struct link *l)
{
    return atomic_load(&l->region->masks_made.calls);
}

void link_sleep_until_made(struct link *l, uint32_t seen, uint64_t timeout_ns)
{
    assert_debug(timeout_ns > 0);
    wake_word_sleep(&l->region->masks_made, seen, timeout_ns);
}
