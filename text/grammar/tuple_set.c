#include "text/grammar/tuple_set.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/status.h"

enum { NUMBERS_MAX = 1 << 24, SLOTS_MIN = 256 };

void tuple_set_init(struct tuple_set *s, uint32_t max)
{
    *s = (struct tuple_set){.max = max};
    pool_init(&s->numbers, sizeof(uint32_t), NUMBERS_MAX);
    pool_init(&s->begins, sizeof(uint32_t), max + 1);
}

void tuple_set_deinit(struct tuple_set *s)
{
    pool_deinit(&s->numbers);
    pool_deinit(&s->begins);
    free(s->slots);
    s->slots = NULL;
}

static uint32_t hash_numbers(const uint32_t *numbers, int n)
{
    uint64_t h = (uint64_t)n + 1;
    for (int i = 0; i < n; i++) h = (h ^ numbers[i]) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(h >> 32);
}

const uint32_t *tuple_set_at(const struct tuple_set *s, uint32_t id)
{
    return pool_items(uint32_t, &s->numbers) + pool_items(uint32_t, &s->begins)[id];
}

int tuple_set_length(const struct tuple_set *s, uint32_t id)
{
    const uint32_t *begins = pool_items(uint32_t, &s->begins);
    return (int)((id + 1 < s->count ? begins[id + 1] : s->numbers.count) - begins[id]);
}

/* Lists are short: a call of memcmp costs more than the comparison. */
static bool is_list(const struct tuple_set *s, uint32_t id, const uint32_t *numbers, int n)
{
    if (tuple_set_length(s, id) != n) return false;
    const uint32_t *own = tuple_set_at(s, id);
    int i = 0;
    while (i < n && own[i] == numbers[i]) i++;
    return i == n;
}

static uint32_t *find_slot(const struct tuple_set *s, const uint32_t *numbers, int n)
{
    uint32_t i = hash_numbers(numbers, n) & s->slot_mask;
    while (s->slots[i] && !is_list(s, s->slots[i] - 1, numbers, n)) i = (i + 1) & s->slot_mask;
    return &s->slots[i];
}

static void grow_slots(struct tuple_set *s)
{
    uint32_t num_slots = max_of((s->slot_mask + 1) * 2, (uint32_t)SLOTS_MIN);
    uint32_t *slots = calloc(num_slots, sizeof *slots);
    if (!slots) {
        s->status = STATUS_NO_MEMORY;
        return;
    }
    free(s->slots);
    s->slots = slots;
    s->slot_mask = num_slots - 1;
    for (uint32_t id = 0; id < s->count; id++)
        *find_slot(s, tuple_set_at(s, id), tuple_set_length(s, id)) = id + 1;
}

static uint32_t append(struct tuple_set *s, const uint32_t *numbers, int n)
{
    if (s->count >= s->max) {
        s->status = STATUS_LIMIT;
        return 0;
    }
    uint32_t begin = s->numbers.count;
    uint32_t *copy = pool_push(&s->numbers, (uint32_t)n), *b = pool_push(&s->begins, 1);
    if ((!copy && n > 0) || !b) {
        s->status = s->numbers.status ? s->numbers.status : s->begins.status;
        return 0;
    }
    if (n > 0) memcpy(copy, numbers, (size_t)n * sizeof *numbers);
    *b = begin;
    return s->count++;
}

uint32_t tuple_set_add(struct tuple_set *s, const uint32_t *numbers, int n)
{
    if (!s->slots || s->count * 2 > s->slot_mask) grow_slots(s);
    if (s->status) return 0;
    uint32_t *slot = find_slot(s, numbers, n);
    if (*slot) return *slot - 1;
    uint32_t id = append(s, numbers, n);
    if (!s->status) *slot = id + 1;
    return id;
}
