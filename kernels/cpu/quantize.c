#include "kernels/cpu/quantize.h"

#include <string.h>

#include "base/check.h"
#include "kernels/cpu/panel.h"

void act_pack_f32(const float *x, int64_t cols, int row, int num_rows, void *columns,
                  struct act_scale *scales)
{
    float *to = (float *)columns + row * PANEL_BLOCK;
    const int64_t step = (int64_t)num_rows * PANEL_BLOCK;
    (void)scales;
    for (; cols >= PANEL_BLOCK; cols -= PANEL_BLOCK, x += PANEL_BLOCK, to += step)
        memcpy(to, x, PANEL_BLOCK * sizeof *x);
    if (cols == 0) return;
    memset(to, 0, PANEL_BLOCK * sizeof *x);
    memcpy(to, x, (size_t)cols * sizeof *x);
}

static uint32_t bits_of_magnitude(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffff;
}

static struct act_scale scale_of_block(float scale, const int *q)
{
    int low = 0, high = 0;
    for (int k = 0; k < 16; k++) low += q[k];
    for (int k = 16; k < 32; k++) high += q[k];
    return (struct act_scale){scale, scale * (float)(low + high), scale * (float)low, scale * (float)high};
}

/* q[k] in -limit .. limit. */
static struct act_scale quantize_block(const float *x, float limit, int q[PANEL_BLOCK])
{
    /* The order of magnitudes as integers puts infinities and NaNs on top. */
    uint32_t largest_bits = 0;
    float largest;
    for (int k = 0; k < PANEL_BLOCK; k++) largest_bits = max_of(largest_bits, bits_of_magnitude(x[k]));
    memcpy(&largest, &largest_bits, sizeof largest);
    memset(q, 0, PANEL_BLOCK * sizeof *q);
    if (largest_bits >= 0x7f800000) return scale_of_block(__builtin_nanf(""), q);
    if (largest < QUANTIZE_LEAST) return scale_of_block(0, q);
    const float inverse = limit / largest, round = 0x1.8p23f; /* adding it rounds to the nearest integer */
    for (int k = 0; k < PANEL_BLOCK; k++) q[k] = (int)(x[k] * inverse + round - round);
    return scale_of_block(largest / limit, q);
}

void act_pack_int8(const float *x, int64_t cols, int row, int num_rows, void *columns,
                   struct act_scale *scales)
{
    for (int64_t b = 0; b < panel_num_blocks(cols); b++) {
        const int64_t at = b * num_rows + row;
        int8_t *const to = (int8_t *)columns + at * PANEL_BLOCK;
        int q[PANEL_BLOCK];
        scales[at] = quantize_block(x + b * PANEL_BLOCK, 127, q);
        for (int k = 0; k < PANEL_BLOCK; k++) to[k] = (int8_t)q[k];
    }
}

void act_pack_int16(const float *x, int64_t cols, int row, int num_rows, void *columns,
                    struct act_scale *scales)
{
    for (int64_t b = 0; b < panel_num_blocks(cols); b++) {
        const int64_t at = b * num_rows + row;
        int16_t *const to = (int16_t *)columns + at * PANEL_BLOCK;
        int q[PANEL_BLOCK];
        scales[at] = quantize_block(x + b * PANEL_BLOCK, 32767, q);
        for (int k = 0; k < PANEL_BLOCK; k += 4) {
            to[k] = (int16_t)q[k];
            to[k + 1] = (int16_t)q[k + 2];
            to[k + 2] = (int16_t)q[k + 1];
            to[k + 3] = (int16_t)q[k + 3];
        }
    }
}
