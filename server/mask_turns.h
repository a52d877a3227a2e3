/* mask_turns.h - which of the answers whose masks take long gets the next one: of the tenant that has had least, the answer that has.
 *
 * What they have had is counted in the work of their masks (text/grammar/mask.h), as it is expected when they get one. Nobody saves
 * anything up: a tenant that comes back begins with what the last one in turn had had, and an answer that is new with what each
 * of those there are would have had by now, had all got the same. So new ones, however many come, go before an old one
 * only until they are due later. Thread: whoever has the lock. */
#ifndef SERVER_MASK_TURNS_H
#define SERVER_MASK_TURNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/tenant_group.h"

/* Zeros: nobody has had anything. */
struct mask_turns {
    uint64_t tenants[TENANT_GROUPS];
    uint64_t last,
        newcomer; /* what the tenant had had that was last in turn; what a new answer begins with */
};

/* An answer's. Zero work: it has not joined. */
struct mask_turn {
    size_t tenant; /* below TENANT_GROUPS */
    uint64_t work;
};

/* It waits for a mask: for its first one it joins. */
void mask_turns_join(const struct mask_turns *t, struct mask_turn *turn);
bool mask_turns_is_before(const struct mask_turns *t, const struct mask_turn *a, const struct mask_turn *b);
/* It gets one that is expected to take so much work, as one of num that wait or get theirs, itself among them. */
void mask_turns_take(struct mask_turns *t, struct mask_turn *turn, uint64_t work, size_t num);

#endif
