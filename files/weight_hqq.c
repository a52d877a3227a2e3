#include "files/weight_hqq.h"

#include <string.h>

#include "base/check.h"
#include "files/weight_codes.h"

enum { WORD_PARTS = 10 };

static int num_parts(int bits)
{
    return bits == 3 ? WORD_PARTS : 8 / bits;
}

/* Values of a part. */
static int64_t part_size(int bits, int64_t num, int64_t group, bool groups_lie_down)
{
    const int64_t width = groups_lie_down ? num / group : group;
    return div_up(num / width, (int64_t)num_parts(bits)) * width;
}

uint64_t weight_hqq_bytes(int bits, int64_t num, int64_t group, bool groups_lie_down)
{
    return (uint64_t)part_size(bits, num, group, groups_lie_down) * (bits == 3 ? 4 : 1);
}

static uint32_t word_of(const struct weight_view *v, int64_t i)
{
    uint32_t word;
    if (v->codes.bits != 3) return ((const uint8_t *)v->data)[i];
    memcpy(&word, (const uint8_t *)v->data + i * 4, sizeof word);
    return word;
}

void weight_hqq_to_f32(const struct weight_view *v, int64_t row, int64_t col, int num, float *out)
{
    const struct weight_codes *c = &v->codes;
    const int64_t first = weight_view_file_row(v, row) * v->cols + col, all = v->rows * v->cols,
                  size = part_size(c->bits, all, c->scale_cols, c->groups_lie_down);
    const uint32_t mask = (1u << c->bits) - 1;
    assert_debug(v->scheme == WEIGHT_HQQ && col >= 0 && col + num <= v->cols);
    for (int64_t i = first; i < first + num; i++) {
        const int shift = c->bits * (num_parts(c->bits) - 1 - (int)(i / size));
        const int64_t group = c->groups_lie_down ? i % (all / c->scale_cols) : i / c->scale_cols;
        const float code = (float)(word_of(v, i % size) >> shift & mask);
        out[i - first] =
            (code - weight_scale_at(&c->offsets, 0, group)) * weight_scale_at(&c->scales, 0, group);
    }
}
