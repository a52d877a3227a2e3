/* lora_calls.c - adapters that come and go: what the front tells of places, its orders, and the engine's answers. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "link/region.h"

void link_tell_lora(struct link *l, int32_t place, const char *path)
{
    assert_always(place >= 1 && place <= LORA_PLACES_MAX && strlen(path) < LORA_PATH_BYTES);
    memcpy(l->region->loras[place - 1], path, strlen(path) + 1);
}

const char *link_lora(const struct link *l, int32_t place)
{
    assert_always(place >= 1 && place <= LORA_PLACES_MAX);
    return l->region->loras[place - 1];
}

void link_order_lora(struct link *l, int32_t place)
{
    struct lora_order *o = &l->region->lora_order;
    assert_always(atomic_load(&o->num_asked) == l->num_loras_heard);
    o->place = place;
    atomic_fetch_add(&o->num_asked, 1);
    wake_word_call(&l->region->calls);
}

bool link_hear_lora(struct link *l, int *status, const char **text)
{
    const struct lora_order *o = &l->region->lora_order;
    if (atomic_load(&o->num_answered) == l->num_loras_heard) return false;
    l->num_loras_heard++;
    *status = o->status;
    *text = o->text;
    return true;
}

int32_t link_ordered_lora(const struct link *l)
{
    const struct lora_order *o = &l->region->lora_order;
    return atomic_load(&o->num_asked) == atomic_load(&o->num_answered) ? 0 : o->place;
}

void link_answer_lora(struct link *l, int status, const char *text)
{
    struct lora_order *o = &l->region->lora_order;
    o->status = status;
    snprintf(o->text, sizeof o->text, "%s", text);
    atomic_fetch_add(&o->num_answered, 1);
    link_wake_front(l);
}
