#include "kernels/mask.h"

#include "base/check.h"

void mask_causal(struct mask_rows *keys, int32_t num_keys)
{
    for (int32_t j = 0; j < num_keys; j++) keys[j] = (struct mask_rows){j, MASK_END};
}

void mask_join(struct mask_rows *keys, int32_t begin, int32_t end)
{
    for (int32_t j = begin; j < end; j++) keys[j].begin = min_of(keys[j].begin, begin);
}

void mask_close(struct mask_rows *keys, int32_t begin, int32_t end)
{
    for (int32_t j = begin; j < end; j++) keys[j].end = min_of(keys[j].end, end);
}

static void widen(struct mask_tile *t, struct mask_rows key)
{
    t->least.begin = min_of(t->least.begin, key.begin);
    t->least.end = min_of(t->least.end, key.end);
    t->most.begin = max_of(t->most.begin, key.begin);
    t->most.end = max_of(t->most.end, key.end);
}

void mask_fill_tiles(const struct mask_rows *keys, int32_t num_keys, struct mask_tile *tiles)
{
    for (int32_t j = 0; j < num_keys; j++) {
        struct mask_tile *t = &tiles[j / MASK_TILE];
        assert_debug(keys[j].begin <= j && j < keys[j].end);
        if (j % MASK_TILE == 0) *t = (struct mask_tile){keys[j], keys[j]};
        widen(t, keys[j]);
    }
}
