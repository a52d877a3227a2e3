/* The AMX set on machines without AMX: its instructions and those of VNNI done in plain C, with the rules
 * that processors check. Needs a machine with AVX-512; on one with AMX test_linear runs the real instructions
 * as well. */
#define EMULATED CPU_ISA_AVX512_AMX
#define PLAIN CPU_ISA_AVX512
#include "tests/kernels/emulated_set.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* vpdpbusd: each 32-bit lane adds four products of unsigned bytes of u and signed bytes of s. */
static __m512i emulated_dpbusd(__m512i sum, __m512i u, __m512i s)
{
    int32_t lanes[16];
    uint8_t a[64];
    int8_t b[64];
    _mm512_storeu_si512(lanes, sum);
    _mm512_storeu_si512(a, u);
    _mm512_storeu_si512(b, s);
    for (int i = 0; i < 64; i++) lanes[i / 4] += a[i] * b[i];
    return _mm512_loadu_si512(lanes);
}

/* vpdpwssd: each 32-bit lane adds two products of signed 16-bit integers. */
static __m512i emulated_dpwssd(__m512i sum, __m512i x, __m512i y)
{
    int32_t lanes[16];
    int16_t a[32], b[32];
    _mm512_storeu_si512(lanes, sum);
    _mm512_storeu_si512(a, x);
    _mm512_storeu_si512(b, y);
    for (int i = 0; i < 32; i++) lanes[i / 2] += a[i] * b[i];
    return _mm512_loadu_si512(lanes);
}

#define _mm512_dpbusd_epi32 emulated_dpbusd
#define _mm512_dpwssd_epi32 emulated_dpwssd

struct emulated_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t num_rows[16];
};

/* Of a thread, as the processor's. */
static _Thread_local struct emulated_config config;
static _Thread_local uint8_t tiles[8][16][64];

static void must(bool holds)
{
    if (!holds) abort();
}

static void emulated_loadconfig(const void *p)
{
    static const uint8_t zeros[14];
    memcpy(&config, p, sizeof config);
    must(sizeof config == 64 && config.palette == 1 && config.start_row == 0);
    must(memcmp(config.reserved, zeros, sizeof zeros) == 0);
    for (int i = 0; i < 16; i++)
        must(config.row_bytes[i] <= (i < 8 ? 64 : 0) && config.num_rows[i] <= (i < 8 ? 16 : 0));
    memset(tiles, 0, sizeof tiles);
}

static void emulated_loadd(int tile, const void *from, int64_t stride)
{
    must(config.palette == 1 && config.num_rows[tile] > 0);
    memset(tiles[tile], 0, sizeof tiles[tile]);
    for (int r = 0; r < config.num_rows[tile]; r++)
        memcpy(tiles[tile][r], (const uint8_t *)from + r * stride, config.row_bytes[tile]);
}

static void emulated_stored(int tile, void *to, int64_t stride)
{
    must(config.palette == 1 && config.num_rows[tile] > 0);
    for (int r = 0; r < config.num_rows[tile]; r++)
        memcpy((uint8_t *)to + r * stride, tiles[tile][r], config.row_bytes[tile]);
}

static void emulated_zero(int tile)
{
    must(config.palette == 1);
    memset(tiles[tile], 0, sizeof tiles[tile]);
}

/* sums[m][n] += sum over k of four products of bytes a[m][4k + i] b[k][4n + i]; b's are unsigned. */
static void emulated_dot(int sums, int a, int b, bool a_is_signed)
{
    must(config.num_rows[sums] == config.num_rows[a] && config.row_bytes[sums] == config.row_bytes[b] &&
         config.row_bytes[a] == 4 * config.num_rows[b]);
    for (int m = 0; m < config.num_rows[a]; m++) {
        int32_t row[16];
        memcpy(row, tiles[sums][m], sizeof row);
        for (int k = 0; k < config.num_rows[b]; k++) {
            for (int n = 0; n < config.row_bytes[b]; n++) {
                const uint8_t x = tiles[a][m][4 * k + n % 4];
                row[n / 4] += (a_is_signed ? (int8_t)x : x) * tiles[b][k][n];
            }
        }
        memcpy(tiles[sums][m], row, sizeof row);
    }
}

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbsud
#undef _tile_dpbuud
#define _tile_loadconfig emulated_loadconfig
#define _tile_loadd emulated_loadd
#define _tile_stored emulated_stored
#define _tile_zero emulated_zero
#define _tile_dpbsud(sums, a, b) emulated_dot(sums, a, b, true)
#define _tile_dpbuud(sums, a, b) emulated_dot(sums, a, b, false)
#define _tile_release() memset(&config, 0, sizeof config)
#include "kernels/cpu/avx512amx/gemm.c"
#pragma GCC pop_options
