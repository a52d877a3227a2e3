/* attention_decode_codes.cuh - the consumers of decode attention where K and V are e4m3 (kv_codes.cuh): a tile as its chunks lie in the
 * pool, products of f16.
 *
 * A code is an f16 exactly. Two codes beside each other are one element of 16 bits to ldmatrix: of K a lane gets four columns of a
 * token, so a step's 16 columns are multiplied in an order of their own, in which Q is loaded; of V, transposed, two columns of two tokens, so that
 * a product's rows g and g + 8 are columns 2g and 2g + 1.
 *
 * What f16 cannot hold is kept in f32 beside it: Q's rows are multiplied by a power of two that brings their largest to 1 or 2, and scores
 * by its inverse and K's scale; weights are multiplied by V's scale over the largest of the tile's, and the result by that one. */
#ifndef KERNELS_CUDA_ATTENTION_DECODE_CODES_CUH
#define KERNELS_CUDA_ATTENTION_DECODE_CODES_CUH

#include "kernels/cuda/attention_decode.cuh"
#include "kernels/cuda/softmax.cuh"

static __device__ __forceinline__ void mma_f16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ uint32_t pack_f16(float low, float high)
{
    __half2 v = __floats2half2_rn(low, high);
    return *(uint32_t *)&v;
}

/* A power of two with which a row of this largest magnitude comes to 1 or 2, and its inverse. */
struct row_factors {
    float to, back;
};

static __device__ __forceinline__ struct row_factors row_factors_of(float largest)
{
    uint32_t exponent = __float_as_uint(largest) >> 23;
    exponent = exponent == 255 ? 127 : min(max(exponent, 1u), 253u);
    return {__uint_as_float((254 - exponent) << 23), __uint_as_float(exponent << 23)};
}

/* Queries of a tile's heads: rows g and g + 8, columns 16 i + 4 t to 16 i + 4 t + 3 in q[i]. */
template <int D> struct code_queries {
    uint32_t q[D / 16][4];
    float back[2];

    __device__ __forceinline__ void load_row(const __nv_bfloat16 *from, bool is_there, int half)
    {
        uint2 words[D / 16];
        float most = 0;
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            words[i] = is_there ? ((const uint2 *)from)[4 * i + threadIdx.x % 4] : make_uint2(0, 0);
            float2 low = unpack_bf16(words[i].x), high = unpack_bf16(words[i].y);
            most = fmaxf(most, fmaxf(fmaxf(fabsf(low.x), fabsf(low.y)), fmaxf(fabsf(high.x), fabsf(high.y))));
        }
        struct row_factors f = row_factors_of(quad_max(most));
        back[half] = f.back;
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            float2 low = unpack_bf16(words[i].x), high = unpack_bf16(words[i].y);
            q[i][half] = pack_f16(low.x * f.to, low.y * f.to);
            q[i][2 + half] = pack_f16(high.x * f.to, high.y * f.to);
        }
    }

    template <int TILES>
    __device__ __forceinline__ void load(const decode_args &a, const struct kv_tile &tile)
    {
        int g = threadIdx.x % 32 / 4;
        int32_t row_heads = a.num_heads + 2 * a.num_kv_heads, rows = tile.num_heads;
        const __nv_bfloat16 *from = a.qkv + ((size_t)tile.token * row_heads + tile.first_head + g) * D;
        load_row(from, g < rows, 0);
        if (TILES > 1) load_row(from + 8 * D, g + 8 < rows, 1);
#pragma unroll
        for (int i = 0; TILES == 1 && i < D / 16; i++) q[i][1] = q[i][3] = 0;
    }
};

/* A lane's row in two pages of K or V, of the first and of the one behind it: tokens 0-7 and 8-15 of each. */
template <int D> struct code_places {
    uint32_t row, order;
    __device__ code_places(void)
    {
        int lane = threadIdx.x % 32, token = lane % 16;
        row = (uint32_t)(lane / 16 * kv_chunk<D>::BYTES + token * D);
        order = D % 128 == 0 ? token % 8 : D == 64 ? token / 2 % 4 : 0;
    }
    __device__ __forceinline__ uint32_t of(int group) const { return row + (group ^ order) * 16; }
};

/* s[j] are tokens 8j to 8j + 7. */
template <int D>
static __device__ __forceinline__ void multiply_key_codes(float (*s)[4], const uint32_t (*q)[4],
                                                          uint32_t stage, const code_places<D> &places)
{
#pragma unroll
    for (int i = 0; i < D / 16; i++)
#pragma unroll
        for (int p = 0; p < KV_TILE_PAGES; p += 2) {
            uint32_t b[4];
            load_matrix(b, stage + p * kv_chunk<D>::BYTES + places.of(i));
#pragma unroll
            for (int n = 0; n < 4; n++)
                mma_f16(s[2 * p + n], q[i], kv_code_halves(b[n] & 0xffff), kv_code_halves(b[n] >> 16));
        }
}

/* Scales of the tokens 8j + 2t and the next one. v: of V, else of K. */
template <int D>
static __device__ __forceinline__ float2 code_scales(const unsigned char *memory, int j, bool v)
{
    const unsigned char *page = memory + j / 2 * kv_chunk<D>::BYTES + kv_chunk<D>::SCALES_OFFSET;
    return ((const float2 *)(page + (v ? BLOCK_SIZE * 4 : 0)))[j % 2 * 4 + threadIdx.x % 4];
}

template <int D, int TILES>
static __device__ __forceinline__ void scale_scores(float (*s)[4], const unsigned char *memory,
                                                    const float *back)
{
#pragma unroll
    for (int j = 0; j < KV_TILE_TOKENS / 8; j++) {
        float2 k = code_scales<D>(memory, j, false);
#pragma unroll
        for (int i = 0; i < 2 * TILES; i++)
            s[j][i] = __fmul_rn(__fmul_rn(s[j][i], back[i / 2]), i % 2 ? k.y : k.x);
    }
}

/* Weights times V's scales over the tile's largest, which is returned, as B fragments. Tokens that are not seen have none: what
 * stands in their places may be no number. */
template <int D, int TILES>
static __device__ __forceinline__ float scale_weights(uint32_t (*w)[TILES][2], const float (*s)[4],
                                                      const unsigned char *memory, const struct kv_tile &tile)
{
    float2 v[KV_TILE_TOKENS / 8];
    float most = 0;
#pragma unroll
    for (int j = 0; j < KV_TILE_TOKENS / 8; j++) {
        int32_t token = 8 * j + 2 * (threadIdx.x % 4);
        v[j] = code_scales<D>(memory, j, true);
        if (token >= tile.num_valid || token < tile.num_hidden) v[j].x = 0;
        if (token + 1 >= tile.num_valid || token + 1 < tile.num_hidden) v[j].y = 0;
        most = fmaxf(most, fmaxf(v[j].x, v[j].y));
    }
    most = quad_max(most);
    float inverse = most > 0 ? __fdiv_rn(1.0f, most) : 0.0f;
#pragma unroll
    for (int j = 0; j < KV_TILE_TOKENS / 8; j++) {
        float x = __fmul_rn(v[j].x, inverse), y = __fmul_rn(v[j].y, inverse);
#pragma unroll
        for (int h = 0; h < TILES; h++)
            w[j / 2][h][j % 2] = pack_f16(__fmul_rn(s[j][2 * h], x), __fmul_rn(s[j][2 * h + 1], y));
    }
    return most;
}

/* The codes of a lane's even and odd columns, as halves of two tokens each. */
static __device__ __forceinline__ void split_columns(uint32_t codes, uint32_t *even, uint32_t *odd)
{
    uint32_t sorted = __byte_perm(codes, 0, 0x3120);
    *even = kv_code_halves(sorted & 0xffff);
    *odd = kv_code_halves(sorted >> 16);
}

/* O transposed: of 16 columns from first on, columns 2g and 2g + 1 of 8 heads a tile. */
template <int D, int TILES, int COUNT>
static __device__ __forceinline__ void multiply_value_codes(float (*o)[TILES][4],
                                                            const uint32_t (*w)[TILES][2], uint32_t stage,
                                                            int first, const code_places<D> &places)
{
#pragma unroll
    for (int p = 0; p < KV_TILE_PAGES; p += 2)
#pragma unroll
        for (int n = 0; n < COUNT; n++) {
            uint32_t codes[4], a[2][4];
            load_matrix_transposed(codes, stage + p * kv_chunk<D>::BYTES + kv_chunk<D>::V_OFFSET +
                                              places.of(first + n));
#pragma unroll
            for (int i = 0; i < 4; i++)
                split_columns(codes[i], &a[i / 2][i % 2 * 2], &a[i / 2][i % 2 * 2 + 1]);
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int h = 0; h < TILES; h++) mma_f16(o[n][h], a[i], w[p + i][h][0], w[p + i][h][1]);
        }
}

template <int D, int TILES, int COUNT>
static __device__ __forceinline__ void store_code_columns(float *to, const float (*o)[TILES][4], float scale,
                                                          int32_t rows, int first)
{
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < TILES; h++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int row = 8 * h + 2 * t + i;
            if (row >= rows) continue;
            float2 *r = (float2 *)(to + row * decode_traits<D>::ROW_FLOATS + first * 16) + g;
#pragma unroll
            for (int n = 0; n < COUNT; n++)
                r[8 * n] = make_float2(__fmul_rn(o[n][h][i], scale), __fmul_rn(o[n][h][i + 2], scale));
        }
}

#endif
