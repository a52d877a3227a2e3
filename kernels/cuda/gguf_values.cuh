/* gguf_values.cuh - the values of a GGUF file's blocks. */
#ifndef KERNELS_CUDA_GGUF_VALUES_CUH
#define KERNELS_CUDA_GGUF_VALUES_CUH

#include <cuda_fp16.h>

#include "kernels/cuda/weight_codes.cuh"

static __device__ __forceinline__ float gguf_f16(const unsigned char *p)
{
    uint16_t bits = (uint16_t)(p[0] | p[1] << 8);
    return __half2float(__ushort_as_half(bits));
}

/* files/dtype.c has the same. */
static __device__ __forceinline__ float gguf_iq4(int code)
{
    const signed char values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    return values[code];
}

/* A value is scale * code - min; both are the same for eight values in a row, the first of which is a multiple of 8. The
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

/* That of value i of a block: the layouts of files/dtype.h. */
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
    default: /* a plain value */
        return {1, 0};
    }
}

/* The code of value i of a block. A plain value is a block of one, and its own code. */
static __device__ __forceinline__ float gguf_code(int dtype, const unsigned char *p, uint32_t i)
{
    uint32_t low = i % 16, nibble = 4 * (i / 16 % 2), nibble_k = 4 * (i / 32 % 2);
    switch (dtype) {
    case DTYPE_F32:
        return __uint_as_float(p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24);
    case DTYPE_BF16:
        return __uint_as_float((uint32_t)(p[0] | p[1] << 8) << 16);
    case DTYPE_F16:
        return gguf_f16(p);
    case DTYPE_Q4_0:
        return (float)(((p[2 + low] >> nibble) & 15) - 8);
    case DTYPE_Q4_1:
        return (float)((p[4 + low] >> nibble) & 15);
    case DTYPE_Q5_0:
        return (float)((((p[6 + low] >> nibble) & 15) | ((p[2 + i / 8] >> i % 8) & 1) << 4) - 16);
    case DTYPE_Q5_1:
        return (float)(((p[8 + low] >> nibble) & 15) | ((p[4 + i / 8] >> i % 8) & 1) << 4);
    case DTYPE_Q8_0:
        return (float)(signed char)p[2 + i];
    case DTYPE_MXFP4:
        return e2m1_to_f32((p[1 + low] >> nibble) & 15);
    case DTYPE_Q4_K:
        return (float)((p[16 + i / 64 * 32 + i % 32] >> nibble_k) & 15);
    case DTYPE_Q5_K:
        return (float)(((p[48 + i / 64 * 32 + i % 32] >> nibble_k) & 15) | ((p[16 + i % 32] >> i / 32) & 1)
                                                                               << 4);
    case DTYPE_Q6_K: {
        int ql = (p[i / 128 * 64 + i % 64] >> (4 * (i / 64 % 2))) & 15;
        int qh = (p[128 + i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4))) & 3;
        return (float)((ql | qh << 4) - 32);
    }
    case DTYPE_Q2_K:
        return (float)((p[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3);
    case DTYPE_Q3_K: {
        int q = (p[32 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
        return (float)(q - ((p[i % 32] >> i / 32) & 1 ? 0 : 4));
    }
    case DTYPE_IQ4_NL:
        return gguf_iq4((p[2 + low] >> nibble) & 15);
    case DTYPE_IQ4_XS:
        return gguf_iq4((p[8 + i / 32 * 16 + low] >> nibble) & 15);
    default:
        return 0;
    }
}

static __device__ __forceinline__ float gguf_scaled(struct gguf_scale s, float code)
{
    return __fmaf_rn(s.scale, code, -s.min);
}

static __device__ __forceinline__ float gguf_value(int dtype, const unsigned char *p, uint32_t i)
{
    return gguf_scaled(gguf_scale_of(dtype, p, i), gguf_code(dtype, p, i));
}

#endif
