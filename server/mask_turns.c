#include "server/mask_turns.h"

#include "base/check.h"

void mask_turns_join(const struct mask_turns *t, struct mask_turn *turn)
{
    if (turn->work == 0) turn->work = t->newcomer + 1;
}

static uint64_t of_tenant(const struct mask_turns *t, const struct mask_turn *turn)
{
    return max_of(t->tenants[turn->tenant], t->last);
}

bool mask_turns_is_before(const struct mask_turns *t, const struct mask_turn *a, const struct mask_turn *b)
{
    uint64_t of_a = of_tenant(t, a), of_b = of_tenant(t, b);
    return of_a != of_b ? of_a < of_b : a->work < b->work;
}

void mask_turns_take(struct mask_turns *t, struct mask_turn *turn, uint64_t work, size_t num)
{
    t->last = of_tenant(t, turn);
    t->tenants[turn->tenant] = t->last + work;
    turn->work += work;
    t->newcomer += work / num;
}
