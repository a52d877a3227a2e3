/* linear_portable.c - the panel kernels in plain C: the accuracy reference.
 *
 * One kernel for all dtypes: unpack a block of weights to f32, exactly, then multiply every row of
 * activations with it. Activations stay f32. Sums over a block's 32 columns come first and are then added up,
 * which keeps the rounding error at that of about K / 32 additions. */
#include "kernels/cpu/linear_kernels.h"

#include <string.h>

#include "kernels/cpu/gate.h"

/* Four floats that the compiler maps to what the machine has; lanes are rows of the weight, so that nothing
 * is ever added across them. */
typedef float four __attribute__((vector_size(16)));
enum { FOURS = PANEL_ROWS / 4 };

static void add_block(const four weights[PANEL_BLOCK][FOURS], const float *x, float *acc)
{
    four sum[FOURS] = {0};
    for (int k = 0; k < PANEL_BLOCK; k++)
        for (int i = 0; i < FOURS; i++) sum[i] += x[k] * weights[k][i];
    for (int i = 0; i < FOURS; i++)
        for (int r = 0; r < 4; r++) acc[i * 4 + r] += sum[i][r];
}

static void product(enum dtype dtype, const uint8_t *panel, int64_t num_blocks, const struct act_tile *x,
                    float *acc)
{
    memset(acc, 0, (size_t)x->num_rows * PANEL_ROWS * sizeof *acc);
    for (int64_t b = 0; b < num_blocks; b++) {
        four weights[PANEL_BLOCK][FOURS];
        panel_block_to_f32(dtype, panel, b, (float(*)[PANEL_ROWS])weights);
        const float *block_x = (const float *)x->columns + b * x->num_rows * PANEL_BLOCK;
        for (int t = 0; t < x->num_rows; t++)
            add_block((const four(*)[FOURS])weights, block_x + t * PANEL_BLOCK, acc + t * PANEL_ROWS);
    }
}

#define PRODUCT(dtype)                                                                                       \
    static void product_##dtype(const struct panels *p, int64_t num_blocks, const struct act_tile *x)        \
    {                                                                                                        \
        for (int i = 0; i < p->num; i++) product(dtype, p->data[i], num_blocks, x, p->acc[i]);               \
    }
#define X(dtype, text, values, bytes, gguf) PRODUCT(dtype)
DTYPE_LIST(X)
#undef X

const struct linear_kernels linear_kernels_portable = {
    .gate_mul = GATE_FUNCTIONS,
    .argmax_add = argmax_add,
    .lora_add_row = lora_add_row,
    .pack = {[ACT_F32] = act_pack_f32},
    .of =
        {
#define X(dtype, text, values, bytes, gguf) [dtype] = {product_##dtype, ACT_F32},
            DTYPE_LIST(X)
#undef X
        },
};
