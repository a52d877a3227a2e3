/* gguf_blocks.h - blocks of every type that GGUF files have, of fresh random codes. */
#ifndef TESTS_KERNELS_GGUF_BLOCKS_H
#define TESTS_KERNELS_GGUF_BLOCKS_H

#include "fixture.h"

enum { NUM_GGUF = DTYPE_MXFP4 - DTYPE_Q4_0 + 1 /* types of blocks */ };

static enum dtype gguf_type(int i)
{
    return (enum dtype)((int)DTYPE_Q4_0 + i % NUM_GGUF);
}

/* Random codes, and scales that are numbers: one or two of f16, of which the second is a minimum's. */
static void fill_block(struct random *random, enum dtype dtype, uint8_t *block)
{
    const int num_scales = dtype == DTYPE_MXFP4 ? 0
                           : dtype == DTYPE_Q4_1 || dtype == DTYPE_Q5_1 || dtype == DTYPE_Q4_K ||
                                   dtype == DTYPE_Q5_K || dtype == DTYPE_Q2_K
                               ? 2
                               : 1;
    const int at = dtype == DTYPE_Q6_K ? 208 : dtype == DTYPE_Q2_K ? 80 : dtype == DTYPE_Q3_K ? 108 : 0;
    for (int i = 0; i < dtype_infos[dtype].block_bytes; i++) block[i] = (uint8_t)random_below(random, 256);
    for (int i = 0; i < num_scales; i++) {
        const uint16_t half = dtype_f32_to_f16((float)(0.004 * random_uniform(random) - 0.002));
        memcpy(block + at + 2 * i, &half, sizeof half);
    }
    if (dtype == DTYPE_MXFP4) block[0] = (uint8_t)(118 + random_below(random, 8));
}

/* Of so many values. */
static void fill_blocks(struct random *random, enum dtype dtype, uint8_t *blocks, int count)
{
    const struct dtype_info *info = &dtype_infos[dtype];
    for (int i = 0; i < count / info->block_values; i++)
        fill_block(random, dtype, blocks + (size_t)i * (size_t)info->block_bytes);
}

#endif
