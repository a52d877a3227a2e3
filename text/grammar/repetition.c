#include "text/grammar/repetition.h"

#include "text/grammar/byte_group.h"

uint16_t repetition_class(struct builder *b, const struct regex_repetition *r)
{
    struct char_class own = {.more = builder_dfa(b, &r->one, -1, NULL, 0)};
    for (unsigned byte = 0; byte < 256; byte++) {
        uint32_t target = dfa_step(&r->one, r->one.start, (uint8_t)byte);
        if (target == DFA_DEAD) continue;
        byte_set_add(r->one.labels[target] ? &own.single : &own.lead, byte);
    }
    own.groups = byte_groups_inside(&own.single) | (r->has_all_utf8 ? 1u << GROUP_UTF8 : 0);
    struct char_class *place = pool_push(&b->classes, 1);
    if (place) *place = own;
    return (uint16_t)(b->classes.count - 1);
}

/* The first min of them one by one, since a text may end where no condition is asked; then those that may follow. */
uint32_t repetition_state(struct builder *b, const struct regex_repetition *r)
{
    const bool counts = r->max != REGEX_ANY;
    if (r->min > r->max) return STATE_DEAD;
    const uint32_t one = builder_rule(b), rest = builder_state(b, STATE_FINAL);
    builder_set_start(b, one, builder_dfa(b, &r->one, -1, NULL, 0));
    builder_set_loop(
        b, rest,
        (struct char_loop){repetition_class(b, r), counts, rest, counts ? r->max - r->min : NO_LIMIT, 0});
    uint32_t state = rest;
    for (uint32_t i = 0; i < r->min; i++) {
        const uint32_t before = builder_state(b, 0);
        builder_set_call(b, before, one, state);
        state = before;
    }
    return state;
}
