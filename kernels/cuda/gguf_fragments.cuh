/* gguf_fragments.cuh - blocks of a GGUF file in shared memory as fragments of products: 256 columns of eight rows, by a warp.
 *
 * Lane 4 g + t has row g, and of 16 columns those of its part of an A operand (mma.cuh): 2 t, 2 t + 1 and the same eight further on.
 *
 * A value has the bits of gguf_values.cuh: scale * code - min in f32, then bf16. Two neighbouring codes come out of shared memory
 * together, and each stays where it is in the word: masked, it is a subnormal float, code * 2^(place - 149), and one fused product
 * makes the value of it, over 2^48 since a scale * 2^149 may be more than floats have. Scales of f16 times integers of six bits are at
 * most 2^22 and at least 2^-24, so no value over 2^48 is subnormal, and none is rounded otherwise; sums of products get the factor
 * back (gguf_factor). MXFP4's scales are of all sizes: its numbers are as they are. */
#ifndef KERNELS_CUDA_GGUF_FRAGMENTS_CUH
#define KERNELS_CUDA_GGUF_FRAGMENTS_CUH

#include "kernels/cuda/gguf_values.cuh"

enum {
    CHUNK_COLUMNS = 256, /* what is unpacked at a time */
    CHUNK_STEPS = CHUNK_COLUMNS / 16,
    SCALES_PITCH = 36, /* floats of a row's scales: eight rows lie in distinct banks, 16 bytes of each */
    SCALES_BYTES = 8 * SCALES_PITCH * 4
};

/* What a code is made of. */
struct gguf_form {
    int mask, zero, flip; /* value: ((code & mask) ^ flip) - zero */
    int group;            /* columns that have one scale */
    bool has_min, in_table;
};

static __host__ __device__ constexpr struct gguf_form gguf_form_of(int dtype)
{
    switch (dtype) {
    case DTYPE_Q4_0:
        return {15, 8, 0, 32, false, false};
    case DTYPE_Q4_1:
    case DTYPE_Q4_K:
        return {15, 0, 0, 32, true, false};
    case DTYPE_Q5_0:
        return {31, 16, 0, 32, false, false};
    case DTYPE_Q5_1:
    case DTYPE_Q5_K:
        return {31, 0, 0, 32, true, false};
    case DTYPE_Q8_0:
        return {255, 128, 128, 32, false, false};
    case DTYPE_Q6_K:
        return {63, 32, 0, 16, false, false};
    case DTYPE_Q2_K:
        return {3, 0, 0, 16, true, false};
    case DTYPE_Q3_K:
        return {7, 4, 0, 16, false, false};
    case DTYPE_MXFP4: /* twice the values, and 12 */
        return {255, 12, 0, 32, false, true};
    default: /* IQ4_NL, IQ4_XS: the values and 128 */
        return {255, 128, 0, 32, false, true};
    }
}

static __host__ __device__ constexpr int gguf_chunk_bytes(int dtype)
{
    return CHUNK_COLUMNS / gguf_block_values(dtype) * gguf_block_bytes(dtype);
}

/* Whether chunks begin at multiples of 16 bytes: whole blocks of so many. */
static __host__ __device__ constexpr bool gguf_is_aligned(int dtype)
{
    return gguf_block_values(dtype) == CHUNK_COLUMNS && gguf_block_bytes(dtype) % 16 == 0;
}

/* Bits of a where mask has them, of b elsewhere, in one instruction. */
static __device__ __forceinline__ uint32_t choose_bits(uint32_t mask, uint32_t a, uint32_t b)
{
    uint32_t d;
    asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(d) : "r"(mask), "r"(a), "r"(b));
    return d;
}

/* Of 16 codes of four bits eight are bytes of low, eight of high; those in nibbles 0 and 2 of pair, as bytes 0 and 1. */
static __device__ __forceinline__ uint32_t gguf_look_up(uint32_t pair, uint2 low, uint2 high)
{
    uint32_t place = pair & 0x0707, is_high = (pair >> 3 & 0x0101) * 255,
             a = __byte_perm(__byte_perm(low.x, low.y, place), 0, 0x4420),
             b = __byte_perm(__byte_perm(high.x, high.y, place), 0, 0x4420);
    return choose_bits(is_high, b, a);
}

template <int DTYPE> static __device__ __forceinline__ uint32_t gguf_table_pair(uint32_t pair)
{
    if (DTYPE == DTYPE_MXFP4)
        return gguf_look_up(pair, make_uint2(0x0f0e0d0c, 0x18141210), make_uint2(0x090a0b0c, 0x00040608));
    return gguf_look_up(pair, make_uint2(0x3f2d1801, 0x766a5d4f), make_uint2(0xa6998d81, 0xf1d9c5b5));
}

/* Two bytes; of all types but MXFP4 they lie at an even address. */
static __device__ __forceinline__ uint32_t gguf_two_bytes(const unsigned char *p)
{
    return *(const uint16_t *)p;
}

/* Bits of low where mask has them, of high elsewhere; high moved up. */
static __device__ __forceinline__ uint32_t gguf_join(uint32_t mask, uint32_t low, uint32_t high, int up)
{
    high = up >= 0 ? high << max(up, 0) : high >> max(-up, 0);
    return choose_bits(mask, low, high);
}

/* Bits 0 and 1 as bits 4 and 12. */
static __device__ __forceinline__ uint32_t gguf_two_fifth_bits(uint32_t bits)
{
    return (bits & 3) * 0x810;
}

/* Bit of the first code in gguf_pair's word, at step 16 columns; the second one lies eight further up. What is around them is whatever
 * it is. */
template <int DTYPE> static __device__ __forceinline__ constexpr int gguf_place(int step)
{
    return DTYPE == DTYPE_Q4_0 || DTYPE == DTYPE_Q4_1 ? step % 2 * 4
           : DTYPE == DTYPE_Q4_K                      ? step / 2 % 2 * 4
           : DTYPE == DTYPE_Q2_K                      ? step / 2 % 4 * 2
                                                      : 0;
}

/* The codes of columns 16 step + at, which is even, and the one behind it, of a row whose chunk begins at p. */
template <int DTYPE>
static __device__ __forceinline__ uint32_t gguf_pair(const unsigned char *p, int step, uint32_t at)
{
    const int first = step * 16 % gguf_block_values(DTYPE), in_32 = first % 32, nibble = first / 16 % 2 * 4;
    p += step * 16 / gguf_block_values(DTYPE) * gguf_block_bytes(DTYPE);
    switch (DTYPE) {
    case DTYPE_Q4_0:
        return gguf_two_bytes(p + 2 + at);
    case DTYPE_Q4_1:
        return gguf_two_bytes(p + 4 + at);
    case DTYPE_Q5_0:
        return gguf_join(0x0f0f, gguf_two_bytes(p + 6 + at) >> nibble,
                         gguf_two_fifth_bits(gguf_two_bytes(p + 2 + first / 8) >> at), 0);
    case DTYPE_Q5_1:
        return gguf_join(0x0f0f, gguf_two_bytes(p + 8 + at) >> nibble,
                         gguf_two_fifth_bits(gguf_two_bytes(p + 4 + first / 8) >> at), 0);
    case DTYPE_Q8_0:
        return gguf_two_bytes(p + 2 + first + at);
    case DTYPE_Q4_K:
        return gguf_two_bytes(p + 16 + first / 64 * 32 + in_32 + at);
    case DTYPE_Q5_K:
        return gguf_join(0x0f0f,
                         gguf_two_bytes(p + 48 + first / 64 * 32 + in_32 + at) >> (first / 32 % 2 * 4),
                         gguf_two_bytes(p + 16 + in_32 + at), 4 - first / 32);
    case DTYPE_Q6_K:
        return gguf_join(0x0f0f,
                         gguf_two_bytes(p + first / 128 * 64 + first % 64 + at) >> (first / 64 % 2 * 4),
                         gguf_two_bytes(p + 128 + first / 128 * 32 + in_32 + at), 4 - first / 32 % 4 * 2);
    case DTYPE_Q2_K:
        return gguf_two_bytes(p + 16 + first / 128 * 32 + in_32 + at);
    case DTYPE_Q3_K:
        return gguf_join(0x0303,
                         gguf_two_bytes(p + 32 + first / 128 * 32 + in_32 + at) >> (first / 32 % 4 * 2),
                         gguf_two_bytes(p + in_32 + at), 2 - first / 32);
    case DTYPE_IQ4_NL:
        return gguf_table_pair<DTYPE>(gguf_two_bytes(p + 2 + at) >> nibble);
    case DTYPE_IQ4_XS:
        return gguf_table_pair<DTYPE>(gguf_two_bytes(p + 8 + first / 32 * 16 + at) >> nibble);
    default: /* MXFP4 */
        return gguf_table_pair<DTYPE>((p[1 + at] | (uint32_t)p[2 + at] << 8) >> nibble);
    }
}

/* (a & b) ^ c in one instruction: of two constants the compiler makes two. */
static __device__ __forceinline__ uint32_t mask_and_flip(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

/* What sums of products are to be multiplied by. */
static __host__ __device__ constexpr float gguf_factor(int dtype)
{
    return dtype == DTYPE_MXFP4 ? 1 : 0x1p48f;
}

/* What a scale is multiplied by, for codes that begin at bit 0. */
static __host__ __device__ constexpr float gguf_scale_factor(int dtype)
{
    return dtype == DTYPE_MXFP4 ? 1 : 0x1p101f;
}

/* What the code whose first bit is bit `place` of a word stands for: times 2^(place - 149), without its zero point; of MXFP4 as it is. */
template <int DTYPE> static __device__ __forceinline__ float gguf_number(uint32_t word, int place)
{
    constexpr struct gguf_form FORM = gguf_form_of(DTYPE);
    const uint32_t mask = (uint32_t)FORM.mask << place, flip = (uint32_t)FORM.flip << place;
    if (DTYPE != DTYPE_MXFP4)
        return __uint_as_float(FORM.flip ? mask_and_flip(word, mask, flip) : word & mask);
    return __uint_as_float(mask_and_flip(word, mask, (uint32_t)(150 - place) << 23)) -
           (float)((1 << (23 - place)) + FORM.zero);
}

/* Scale and minimum of the columns from 32 j on, of Q4_K's and Q5_K's header; j / 4 is known when this is compiled. */
static __device__ __forceinline__ struct gguf_scale gguf_scale_of_header(uint4 h, uint32_t quarter,
                                                                         uint32_t in_quarter)
{
    const uint32_t at = in_quarter * 8;
    uint32_t scale = quarter == 0 ? h.y >> at & 63 : (h.w >> at & 15) | (h.y >> at >> 6 & 3) << 4,
             min = quarter == 0 ? h.z >> at & 63 : (h.w >> at >> 4 & 15) | (h.z >> at >> 6 & 3) << 4;
    return {__half2float(__ushort_as_half((unsigned short)h.x)) * (float)(int)scale,
            __half2float(__ushort_as_half((unsigned short)(h.x >> 16))) * (float)(int)min};
}

/* Of group 4 j + t of a row's chunk. */
template <int DTYPE>
static __device__ __forceinline__ struct gguf_scale gguf_scale_in_chunk(const unsigned char *p, int j,
                                                                        uint32_t t)
{
    const uint32_t column = (uint32_t)(4 * j + t) * gguf_form_of(DTYPE).group;
    if (DTYPE == DTYPE_Q4_K || DTYPE == DTYPE_Q5_K)
        return gguf_scale_of_header(*(const uint4 *)p, (uint32_t)j, t);
    struct gguf_scale s =
        gguf_scale_of(DTYPE, p + column / gguf_block_values(DTYPE) * (uint32_t)gguf_block_bytes(DTYPE),
                      column % gguf_block_values(DTYPE));
    if (DTYPE == DTYPE_MXFP4) s.scale *= 0.5f;
    return s;
}

/* A warp's scales of its eight rows, to shared memory: lane 4 g + t does every fourth of row g's. With minima they lie in pairs. Scales
 * are multiplied by gguf_scale_factor, minima divided by gguf_factor. */
template <int DTYPE>
static __device__ __forceinline__ void gguf_put_scales(float *to, const unsigned char *p, uint32_t t)
{
    constexpr struct gguf_form FORM = gguf_form_of(DTYPE);
#pragma unroll
    for (int j = 0; j < CHUNK_COLUMNS / FORM.group / 4; j++) {
        struct gguf_scale s = gguf_scale_in_chunk<DTYPE>(p, j, t);
        s.scale *= gguf_scale_factor(DTYPE);
        if (FORM.has_min)
            ((float2 *)to)[4 * j + t] = make_float2(s.scale, s.min * (-1 / gguf_factor(DTYPE)));
        else
            to[4 * j + t] = s.scale;
    }
}

/* Of 16 columns; min: what is added to products of the scale. */
template <int DTYPE>
static __device__ __forceinline__ struct gguf_scale gguf_take_scale(const float *from, int step)
{
    constexpr struct gguf_form FORM = gguf_form_of(DTYPE);
    const int group = step * 16 / FORM.group;
    if (FORM.has_min) {
        float4 two = ((const float4 *)from)[group / 2];
        return group % 2 == 0 ? gguf_scale{two.x, two.y} : gguf_scale{two.z, two.w};
    }
    float4 four = ((const float4 *)from)[group / 4];
    const float scale = group % 4 == 0 ? four.x : group % 4 == 1 ? four.y : group % 4 == 2 ? four.z : four.w;
    return {scale, DTYPE == DTYPE_MXFP4 ? 0 : scale * -((float)FORM.zero * 0x1p-149f)};
}

/* Two values, as bf16. place: of the first code; the second one lies eight bits further up. */
template <int DTYPE>
static __device__ __forceinline__ uint32_t gguf_values(uint32_t pair, int place, const struct gguf_scale &s)
{
    const float first = gguf_number<DTYPE>(pair, place), second = gguf_number<DTYPE>(pair, place + 8);
    if (DTYPE == DTYPE_MXFP4) return pack_bf16(s.scale * first, s.scale * second);
    const float scale = s.scale * (1 / (float)(1 << place));
    return pack_bf16(__fmaf_rn(scale, first, s.min), __fmaf_rn(scale * 0x1p-8f, second, s.min));
}

/* Rows g of HALF 0, g + 8 of HALF 1 of the operands of a chunk, over gguf_factor; p: where the lane's row begins, scales: those of its row. */
template <int DTYPE, int HALF>
static __device__ __forceinline__ void gguf_fragments(uint32_t (&w)[CHUNK_STEPS][4], const unsigned char *p,
                                                      float *scales, uint32_t t)
{
    gguf_put_scales<DTYPE>(scales, p, t);
    __syncwarp();
#pragma unroll
    for (int step = 0; step < CHUNK_STEPS; step++) {
        struct gguf_scale s = gguf_take_scale<DTYPE>(scales, step);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t pair = gguf_pair<DTYPE>(p, step, 8 * i + 2 * t);
            w[step][HALF + 2 * i] = gguf_values<DTYPE>(pair, gguf_place<DTYPE>(step), s);
        }
    }
    __syncwarp(); /* scales may be written again */
}

#endif
