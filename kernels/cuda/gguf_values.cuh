/* gguf_values.cuh - rows of a GGUF file as bf16, eight values at a time. */
#ifndef KERNELS_CUDA_GGUF_VALUES_CUH
#define KERNELS_CUDA_GGUF_VALUES_CUH

#include <cuda_fp16.h>

#include "kernels/cuda/bf16.cuh"
#include "kernels/cuda/weight_codes.cuh"

/* What is said of one of the types, for each of them. */
#define GGUF_TYPES(SAY)                                                                                      \
    SAY(DTYPE_Q4_0);                                                                                         \
    SAY(DTYPE_Q4_1);                                                                                         \
    SAY(DTYPE_Q5_0);                                                                                         \
    SAY(DTYPE_Q5_1);                                                                                         \
    SAY(DTYPE_Q8_0);                                                                                         \
    SAY(DTYPE_Q4_K);                                                                                         \
    SAY(DTYPE_Q5_K);                                                                                         \
    SAY(DTYPE_Q6_K);                                                                                         \
    SAY(DTYPE_Q2_K);                                                                                         \
    SAY(DTYPE_Q3_K);                                                                                         \
    SAY(DTYPE_IQ4_NL);                                                                                       \
    SAY(DTYPE_IQ4_XS);                                                                                       \
    SAY(DTYPE_MXFP4);

enum { GGUF_RUN = 8 /* values in a row that have one scale, the first of which is a multiple of it */ };

/* Blocks that have one lie at even addresses. */
static __device__ __forceinline__ float gguf_f16(const unsigned char *p)
{
    return __half2float(__ushort_as_half(*(const uint16_t *)p));
}

/* files/dtype.c has the same. */
static __device__ __forceinline__ float gguf_iq4(int code)
{
    const signed char values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    return values[code];
}

/* A value is scale * code - min; both are the same for a run. The
 * products are exact in f32, so that a value is rounded once, if at all, however it is computed. */
struct gguf_scale {
    float scale, min;
};

static __device__ __forceinline__ struct gguf_scale gguf_scale_of_6_bits(const unsigned char *p, uint32_t j)
{
    const unsigned char *q = p + 4;
    int scale = j < 4 ? q[j] & 63 : (q[j + 4] & 15) | (q[j - 4] >> 6) << 4;
    int min = j < 4 ? q[j + 4] & 63 : q[j + 4] >> 4 | (q[j] >> 6) << 4;
    return {gguf_f16(p) * scale, gguf_f16(p + 2) * min};
}

static __device__ __forceinline__ float gguf_scale_q3_k(const unsigned char *p, uint32_t s)
{
    int low = s < 8 ? p[96 + s] & 15 : p[96 + s - 8] >> 4;
    return gguf_f16(p + 108) * ((low | ((p[104 + s % 4] >> (s / 4 * 2)) & 3) << 4) - 32);
}

static __device__ __forceinline__ float gguf_scale_iq4_xs(const unsigned char *p, uint32_t b)
{
    int low = (p[4 + b / 2] >> (b % 2 * 4)) & 15, high = (p[2 + b / 4] >> (b % 4 * 2)) & 3;
    return gguf_f16(p) * ((low | high << 4) - 32);
}

/* That of the run from value i of a block on: the layouts of files/dtype.h. */
static __device__ __forceinline__ struct gguf_scale gguf_scale_of(int dtype, const unsigned char *p,
                                                                  uint32_t i)
{
    switch (dtype) {
    case DTYPE_Q4_0:
    case DTYPE_Q5_0:
    case DTYPE_Q8_0:
    case DTYPE_IQ4_NL:
        return {gguf_f16(p), 0};
    case DTYPE_Q4_1:
    case DTYPE_Q5_1:
        return {gguf_f16(p), -gguf_f16(p + 2)};
    case DTYPE_MXFP4:
        return {e8m0_to_f32(p[0]), 0};
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
        return gguf_scale_of_6_bits(p, i / 32);
    case DTYPE_Q6_K:
        return {gguf_f16(p + 208) * (signed char)p[192 + i / 16], 0};
    case DTYPE_Q2_K:
        return {gguf_f16(p + 80) * (p[i / 16] & 15), gguf_f16(p + 82) * (p[i / 16] >> 4)};
    case DTYPE_Q3_K:
        return {gguf_scale_q3_k(p, i / 16), 0};
    case DTYPE_IQ4_XS:
        return {gguf_scale_iq4_xs(p, i / 32), 0};
    default:
        return {0, 0};
    }
}

static __host__ __device__ constexpr int gguf_block_values(int dtype)
{
    switch (dtype) {
#define X(name, text, values, bytes, gguf)                                                                   \
    case name:                                                                                               \
        return values;
        DTYPE_LIST(X)
#undef X
    }
    return 0;
}

static __host__ __device__ constexpr int gguf_block_bytes(int dtype)
{
    switch (dtype) {
#define X(name, text, values, bytes, gguf)                                                                   \
    case name:                                                                                               \
        return bytes;
        DTYPE_LIST(X)
#undef X
    }
    return 0;
}

/* A byte for each value of a run: byte j of the eight is value j's. */
struct gguf_bytes {
    uint32_t words[2];
};

/* From p, which is aligned as the blocks are that lie one after another from an address that is a multiple of 8. */
template <int DTYPE> static __device__ __forceinline__ struct gguf_bytes gguf_load(const unsigned char *p)
{
    constexpr int BYTES = gguf_block_bytes(DTYPE);
    if (BYTES % 8 == 0) {
        uint2 w = *(const uint2 *)p;
        return {{w.x, w.y}};
    }
    if (BYTES % 2 == 0) {
        const uint16_t *h = (const uint16_t *)p;
        return {{h[0] | (uint32_t)h[1] << 16, h[2] | (uint32_t)h[3] << 16}};
    }
    return {{p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24,
             p[4] | p[5] << 8 | p[6] << 16 | (uint32_t)p[7] << 24}};
}

/* Of each byte the bits of mask from shift on, moved up by up. */
static __device__ __forceinline__ struct gguf_bytes gguf_bits(struct gguf_bytes b, uint32_t shift,
                                                              uint32_t mask, uint32_t up)
{
    mask *= 0x01010101;
    return {{((b.words[0] >> shift) & mask) << up, ((b.words[1] >> shift) & mask) << up}};
}

static __device__ __forceinline__ struct gguf_bytes gguf_or(struct gguf_bytes a, struct gguf_bytes b)
{
    return {{a.words[0] | b.words[0], a.words[1] | b.words[1]}};
}

/* Bit j of bits as bit 4 of byte j. */
static __device__ __forceinline__ struct gguf_bytes gguf_fifth_bits(uint32_t bits)
{
    const uint32_t to_bytes = 1 | 1 << 7 | 1 << 14 | 1 << 21;
    return gguf_bits({{(bits & 15) * to_bytes, (bits >> 4) * to_bytes}}, 0, 1, 4);
}

/* The codes of the run from value i of a block on. */
template <int DTYPE>
static __device__ __forceinline__ struct gguf_bytes gguf_codes(const unsigned char *p, uint32_t i)
{
    uint32_t nibble = i / 16 % 2 * 4, in_128 = i / 128 * 32 + i % 32;
    switch (DTYPE) {
    case DTYPE_Q4_0:
    case DTYPE_IQ4_NL:
        return gguf_bits(gguf_load<DTYPE>(p + 2 + i % 16), nibble, 15, 0);
    case DTYPE_Q4_1:
        return gguf_bits(gguf_load<DTYPE>(p + 4 + i % 16), nibble, 15, 0);
    case DTYPE_Q5_0:
        return gguf_or(gguf_bits(gguf_load<DTYPE>(p + 6 + i % 16), nibble, 15, 0),
                       gguf_fifth_bits(p[2 + i / 8]));
    case DTYPE_Q5_1:
        return gguf_or(gguf_bits(gguf_load<DTYPE>(p + 8 + i % 16), nibble, 15, 0),
                       gguf_fifth_bits(p[4 + i / 8]));
    case DTYPE_Q8_0: {
        struct gguf_bytes b = gguf_load<DTYPE>(p + 2 + i);
        return {{b.words[0] ^ 0x80808080, b.words[1] ^ 0x80808080}};
    }
    case DTYPE_MXFP4:
        return gguf_bits(gguf_load<DTYPE>(p + 1 + i % 16), nibble, 15, 0);
    case DTYPE_Q4_K:
        return gguf_bits(gguf_load<DTYPE>(p + 16 + i / 64 * 32 + i % 32), i / 32 % 2 * 4, 15, 0);
    case DTYPE_Q5_K:
        return gguf_or(gguf_bits(gguf_load<DTYPE>(p + 48 + i / 64 * 32 + i % 32), i / 32 % 2 * 4, 15, 0),
                       gguf_bits(gguf_load<DTYPE>(p + 16 + i % 32), i / 32, 1, 4));
    case DTYPE_Q6_K:
        return gguf_or(gguf_bits(gguf_load<DTYPE>(p + i / 128 * 64 + i % 64), i / 64 % 2 * 4, 15, 0),
                       gguf_bits(gguf_load<DTYPE>(p + 128 + in_128), i / 32 % 4 * 2, 3, 4));
    case DTYPE_Q2_K:
        return gguf_bits(gguf_load<DTYPE>(p + 16 + in_128), i / 32 % 4 * 2, 3, 0);
    case DTYPE_Q3_K:
        return gguf_or(gguf_bits(gguf_load<DTYPE>(p + 32 + in_128), i / 32 % 4 * 2, 3, 0),
                       gguf_bits(gguf_load<DTYPE>(p + i % 32), i / 32, 1, 2));
    case DTYPE_IQ4_XS:
        return gguf_bits(gguf_load<DTYPE>(p + 8 + i / 32 * 16 + i % 16), nibble, 15, 0);
    default:
        return {};
    }
}

/* What a code stands for. */
template <int DTYPE> static __device__ __forceinline__ float gguf_code_value(int code)
{
    switch (DTYPE) {
    case DTYPE_Q3_K:
        return (float)(code - 4);
    case DTYPE_Q4_0:
        return (float)(code - 8);
    case DTYPE_Q5_0:
        return (float)(code - 16);
    case DTYPE_Q6_K:
        return (float)(code - 32);
    case DTYPE_Q8_0:
        return (float)(code - 128);
    case DTYPE_MXFP4:
        return e2m1_to_f32(code);
    case DTYPE_IQ4_NL:
    case DTYPE_IQ4_XS:
        return gguf_iq4(code);
    default:
        return (float)code;
    }
}

template <int DTYPE, typename TAKE>
static __device__ __forceinline__ void gguf_for_runs_as(const unsigned char *__restrict__ row,
                                                        int32_t num_columns, TAKE take)
{
    constexpr int VALUES = gguf_block_values(DTYPE), BYTES = gguf_block_bytes(DTYPE);
    static_assert(VALUES % GGUF_RUN == 0, "a run lies in one block");
    for (uint32_t k = threadIdx.x * GGUF_RUN; k < (uint32_t)num_columns; k += blockDim.x * GGUF_RUN) {
        const unsigned char *block = row + (size_t)(k / VALUES) * BYTES;
        uint32_t first = k % VALUES / GGUF_RUN * GGUF_RUN;
        struct gguf_scale scale = gguf_scale_of(DTYPE, block, first);
        struct gguf_bytes codes = gguf_codes<DTYPE>(block, first);
        float v[GGUF_RUN];
#pragma unroll
        for (int j = 0; j < GGUF_RUN; j++) {
            int code = codes.words[j / 4] >> (j % 4 * 8) & 255;
            v[j] = __fmaf_rn(scale.scale, gguf_code_value<DTYPE>(code), -scale.min);
        }
        take(k, v);
    }
}

/* take(k, v) for each run of a row, v from column k on, by all threads of a CTA. row: from a multiple of 8 bytes on. False: of no type of
 * blocks. */
template <typename TAKE>
static __device__ __forceinline__ bool gguf_for_runs(int dtype, const unsigned char *row, int32_t num_columns,
                                                     TAKE take)
{
    switch (dtype) {
#define RUNS(DTYPE)                                                                                          \
    case DTYPE:                                                                                              \
        gguf_for_runs_as<DTYPE>(row, num_columns, take);                                                     \
        return true
        GGUF_TYPES(RUNS)
#undef RUNS
    }
    return false;
}

static __device__ __forceinline__ float plain_value(int dtype, const unsigned char *p)
{
    switch (dtype) {
    case DTYPE_F32:
        return *(const float *)p;
    case DTYPE_BF16:
        return __uint_as_float((uint32_t) * (const uint16_t *)p << 16);
    default:
        return gguf_f16(p);
    }
}

/* A row becomes bf16, by all threads of a CTA. out and row: from multiples of 16 and 8 bytes on, but for plain types. */
static __device__ __forceinline__ void gguf_unpack_row(int dtype, __nv_bfloat16 *out,
                                                       const unsigned char *row, int32_t num_columns)
{
    auto put = [=](uint32_t k, const float(&v)[GGUF_RUN]) {
        *(uint4 *)(out + k) = make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]),
                                         pack_bf16(v[6], v[7]));
    };
    if (gguf_for_runs(dtype, row, num_columns, put)) return;
    for (int32_t k = (int32_t)threadIdx.x; k < num_columns; k += (int32_t)blockDim.x)
        out[k] = __float2bfloat16_rn(plain_value(dtype, row + (size_t)k * (dtype == DTYPE_F32 ? 4 : 2)));
}

#endif
