#include "kernels/cpu/quantize.h"

#include <string.h>

#include "base/check.h"
#include "kernels/cpu/panel.h"

void quantize_copy_row(const float *x, int64_t cols, int row, int num_rows, float *values)
{
    float *to = values + row * PANEL_BLOCK;
    const int64_t step = (int64_t)num_rows * PANEL_BLOCK;
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

static struct act_scale scale_of_block(float scale, int low, int high)
{
    return (struct act_scale){scale, scale * (float)(low + high), scale * (float)low, scale * (float)high};
}

static void quantize_block(const float *x, int8_t *quants, struct act_scale *out)
{
    /* The order of magnitudes as integers puts infinities and NaNs on top. */
    uint32_t largest_bits = 0;
    float largest;
    for (int k = 0; k < PANEL_BLOCK; k++) largest_bits = max_of(largest_bits, bits_of_magnitude(x[k]));
    memcpy(&largest, &largest_bits, sizeof largest);
    memset(quants, 0, PANEL_BLOCK);
    *out = (struct act_scale){0};
    if (largest_bits >= 0x7f800000) *out = scale_of_block(__builtin_nanf(""), 0, 0);
    if (largest_bits >= 0x7f800000 || largest < QUANTIZE_LEAST) return;
    const float inverse = 127.0f / largest, round = 0x1.8p23f; /* adding it rounds to the nearest integer */
    int sums[2] = {0};
    for (int k = 0; k < PANEL_BLOCK; k++) {
        quants[k] = (int8_t)(x[k] * inverse + round - round);
        sums[k / 16] += quants[k];
    }
    *out = scale_of_block(largest / 127.0f, sums[0], sums[1]);
}

void quantize_row_portable(const float *x, int64_t cols, int row, int num_rows, int8_t *quants,
                           struct act_scale *scales)
{
    for (int64_t b = 0; b < panel_num_blocks(cols); b++) {
        const int64_t at = b * num_rows + row;
        quantize_block(x + b * PANEL_BLOCK, quants + at * PANEL_BLOCK, &scales[at]);
    }
}
