/* random_weight.h - weights of any dtype with random integers and sane random scales, for tests and
 * benchmarks. */
#ifndef TESTS_KERNELS_RANDOM_WEIGHT_H
#define TESTS_KERNELS_RANDOM_WEIGHT_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "files/dtype.h"

/* A stream of random numbers. */
struct random_source {
    uint64_t seed, counter;
};

/* The seed is new each time, unless FLASHD_TEST_SEED gives one. */
static inline struct random_source random_source_new(void)
{
    const char *const given = getenv("FLASHD_TEST_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (struct random_source){given ? strtoull(given, NULL, 0) : (uint64_t)now.tv_nsec * 2654435761u, 0};
}

static inline float random_uniform(struct random_source *r, float low, float high)
{
    return low + (high - low) * rng_uniform(r->seed, r->counter++, 0);
}

/* Sum of four uniform numbers: near enough to normal, variance 1. */
static inline float random_normal(struct random_source *r)
{
    const struct rng_block b = rng_philox(r->seed, r->counter++, 0);
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += (float)(b.word[i] >> 8) * 0x1p-24f - 0.5f;
    return sum * 1.7320508f;
}

static inline void random_put_f16(struct random_source *r, uint8_t *to, float low, float high)
{
    const uint16_t h = dtype_f32_to_f16(random_uniform(r, low, high));
    memcpy(to, &h, 2);
}

/* A scale whose nibbles are the upper ones of four words. */
static inline void random_put_nibbles(struct random_source *r, uint8_t *to, float low, float high)
{
    const uint16_t h = dtype_f32_to_f16(random_uniform(r, low, high));
    for (int i = 0; i < 4; i++) to[2 * i + 1] = (uint8_t)((to[2 * i + 1] & 15) | (h >> (4 * i) & 15) << 4);
}

/* Makes the scales of one packed block ordinary numbers. Offsets as in ggml's block structures. */
static inline void random_block_scales(struct random_source *r, enum dtype dtype, uint8_t *block)
{
    switch (dtype) {
    case DTYPE_Q4_1:
    case DTYPE_Q5_1:
        random_put_f16(r, block, 0.005f, 0.02f);
        random_put_f16(r, block + 2, -0.15f, -0.05f);
        break;
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
        random_put_f16(r, block, 0.0002f, 0.0008f);
        random_put_f16(r, block + 2, 0.001f, 0.004f);
        break;
    case DTYPE_Q6_K:
        random_put_f16(r, block + 208, -0.0001f, 0.0001f);
        break;
    case DTYPE_Q2_K:
        random_put_f16(r, block + 80, 0.0002f, 0.0008f);
        random_put_f16(r, block + 82, 0.001f, 0.004f);
        break;
    case DTYPE_Q3_K:
        random_put_f16(r, block + 108, -0.0005f, 0.0005f);
        break;
    case DTYPE_IQ4_NL:
        random_put_f16(r, block, -0.002f, 0.002f);
        break;
    case DTYPE_IQ4_XS:
        random_put_f16(r, block, -0.0001f, 0.0001f);
        break;
    case DTYPE_IQ2_XXS:
    case DTYPE_IQ2_XS:
    case DTYPE_IQ2_S:
    case DTYPE_IQ3_XXS:
    case DTYPE_IQ3_S:
    case DTYPE_IQ1_S:
        random_put_f16(r, block, -0.001f, 0.001f);
        break;
    case DTYPE_IQ1_M:
        random_put_nibbles(r, block + 48, -0.01f, 0.01f);
        break;
    case DTYPE_TQ1_0:
        random_put_f16(r, block + 52, -0.1f, 0.1f);
        break;
    case DTYPE_TQ2_0:
        random_put_f16(r, block + 64, -0.1f, 0.1f);
        break;
    case DTYPE_MXFP4:
        block[0] = (uint8_t)(block[0] % 8 + 118);
        break;
    case DTYPE_F8_E4M3: /* no NaN */
        if ((*block & 0x7f) == 0x7f) *block = 0;
        break;
    case DTYPE_I8:
    case DTYPE_U4:
    case DTYPE_F4_E2M1:
        break;
    default:
        random_put_f16(r, block, -0.02f, 0.02f);
        break;
    }
}

static inline void random_floats(struct random_source *r, enum dtype dtype, uint8_t *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const float f = 0.1f * random_normal(r);
        const uint16_t h = dtype == DTYPE_F16 ? dtype_f32_to_f16(f) : dtype_f32_to_bf16(f);
        if (dtype == DTYPE_F32)
            memcpy(to + i * 4, &f, 4);
        else
            memcpy(to + i * 2, &h, 2);
    }
}

/* rows * cols values at to, which holds rows * dtype_row_bytes(dtype, cols) bytes and may be unaligned. */
static inline void random_weight(struct random_source *r, enum dtype dtype, int64_t rows, int64_t cols,
                                 uint8_t *to)
{
    const struct dtype_info *const info = &dtype_infos[dtype];
    const int64_t num_blocks = rows * (cols / info->block_values), bytes = num_blocks * info->block_bytes;
    if (info->block_values == 1 && !dtype_is_code(dtype)) {
        random_floats(r, dtype, to, rows * cols);
        return;
    }
    for (int64_t i = 0; i < bytes; i += 16) {
        const struct rng_block b = rng_philox(r->seed, r->counter++, 1);
        memcpy(to + i, b.word, (size_t)(bytes - i < 16 ? bytes - i : 16));
    }
    for (int64_t b = 0; b < num_blocks; b++) random_block_scales(r, dtype, to + b * info->block_bytes);
}

#endif
