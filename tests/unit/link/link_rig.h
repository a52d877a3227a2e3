/* link_rig.h - a link that is open and READY, both sides in this process. */
#ifndef TESTS_LINK_RIG_H
#define TESTS_LINK_RIG_H

#include "base/check.h"
#include "link/link.h"

static inline struct link *link_rig_create(int32_t num_slots, int32_t max_model_len)
{
    struct error err;
    struct link *link;
    const struct link_facts facts = {.num_slots = num_slots,
                                     .max_model_len = max_model_len,
                                     .vocab_size = 1000,
                                     .num_guess_tokens = GUESS_TOKENS_MAX};
    assert_always(link_create(&link, &err) == 0);
    assert_always(link_open(link, &facts, &err) == 0);
    link_set_state(link, LINK_READY, NULL);
    return link;
}

#endif
