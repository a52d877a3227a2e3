/* rng.h - counter-based random numbers (Philox 4x32-10): a pure function of (seed, counter).
 *
 * Nothing is carried from call to call, so what a request draws depends on its seed and on the
 * position of the token only, never on its neighbours. The CUDA device computes the same function.
 *
 * Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Thread: any. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

struct rng_block {
    uint32_t word[4];
};

static inline struct rng_block rng_philox(uint64_t seed, uint64_t counter, uint64_t stream)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    struct rng_block c = {
        {(uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)}};
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c.word[0];
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c.word[2];
        c = (struct rng_block){{(uint32_t)(p1 >> 32) ^ c.word[1] ^ k0, (uint32_t)p1,
                                (uint32_t)(p0 >> 32) ^ c.word[3] ^ k1, (uint32_t)p0}};
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

/* Uniform in [0, 1) with 24 bits: exact in float. */
static inline float rng_uniform(uint64_t seed, uint64_t counter, uint64_t stream)
{
    return (float)(rng_philox(seed, counter, stream).word[0] >> 8) * (1.0f / 16777216.0f);
}

#endif
