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

static __device__ __forceinline__ void gguf_scale_min(const unsigned char *q, int j, int *scale, int *min)
{
    if (j < 4) {
        *scale = q[j] & 63;
        *min = q[j + 4] & 63;
    } else {
        *scale = (q[j + 4] & 15) | ((q[j - 4] >> 6) << 4);
        *min = (q[j + 4] >> 4) | ((q[j] >> 6) << 4);
    }
}

/* files/dtype.c has the same. */
static __device__ __forceinline__ float gguf_iq4(int code)
{
    const signed char values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    return values[code];
}

/* Value i of a block, in f32: the layouts of files/dtype.h. A plain value is a block of one. */
static __device__ __forceinline__ float gguf_value(int dtype, const unsigned char *p, int i)
{
    int low = i % 16, high = i % 32 / 16;
    switch (dtype) {
    case DTYPE_F32:
        return __uint_as_float(p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24);
    case DTYPE_BF16:
        return __uint_as_float((uint32_t)(p[0] | p[1] << 8) << 16);
    case DTYPE_F16:
        return gguf_f16(p);
    case DTYPE_Q4_0:
        return (((p[2 + low] >> (4 * high)) & 15) - 8) * gguf_f16(p);
    case DTYPE_Q4_1:
        return ((p[4 + low] >> (4 * high)) & 15) * gguf_f16(p) + gguf_f16(p + 2);
    case DTYPE_Q5_0: {
        int bit = (p[2 + i / 8] >> (i % 8)) & 1;
        return ((((p[6 + low] >> (4 * high)) & 15) | bit << 4) - 16) * gguf_f16(p);
    }
    case DTYPE_Q5_1: {
        int bit = (p[4 + i / 8] >> (i % 8)) & 1;
        return (((p[8 + low] >> (4 * high)) & 15) | bit << 4) * gguf_f16(p) + gguf_f16(p + 2);
    }
    case DTYPE_Q8_0:
        return (float)(signed char)p[2 + i] * gguf_f16(p);
    case DTYPE_MXFP4:
        return e2m1_to_f32((p[1 + low] >> (4 * high)) & 15) * e8m0_to_f32(p[0]);
    case DTYPE_Q4_K: {
        int scale, min, pair = i / 64;
        gguf_scale_min(p + 4, i / 32, &scale, &min);
        int q = (p[16 + pair * 32 + i % 32] >> (4 * (i / 32 % 2))) & 15;
        return gguf_f16(p) * scale * q - gguf_f16(p + 2) * min;
    }
    case DTYPE_Q5_K: {
        int scale, min, pair = i / 64;
        gguf_scale_min(p + 4, i / 32, &scale, &min);
        int q = (p[48 + pair * 32 + i % 32] >> (4 * (i / 32 % 2))) & 15;
        int bit = (p[16 + i % 32] >> (i / 32)) & 1;
        return gguf_f16(p) * scale * (q | bit << 4) - gguf_f16(p + 2) * min;
    }
    case DTYPE_Q6_K: {
        int half = i / 128, j = i % 128, quarter = j / 32, l = j % 32;
        int ql = (p[half * 64 + (quarter % 2) * 32 + l] >> (4 * (quarter / 2))) & 15;
        int qh = (p[128 + half * 32 + l] >> (2 * quarter)) & 3;
        int scale = (signed char)p[192 + half * 8 + j / 16];
        return gguf_f16(p + 208) * scale * ((ql | qh << 4) - 32);
    }
    case DTYPE_Q2_K: {
        int q = (p[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
        return __fsub_rn(gguf_f16(p + 80) * (p[i / 16] & 15) * q, gguf_f16(p + 82) * (p[i / 16] >> 4));
    }
    case DTYPE_Q3_K: {
        int s = i / 16, scale_low = s < 8 ? p[96 + s] & 15 : p[96 + s - 8] >> 4;
        int scale = (scale_low | ((p[104 + s % 4] >> (s / 4 * 2)) & 3) << 4) - 32;
        int q = (p[32 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
        return gguf_f16(p + 108) * scale * (q - ((p[i % 32] >> (i / 32)) & 1 ? 0 : 4));
    }
    case DTYPE_IQ4_NL:
        return gguf_iq4((p[2 + low] >> (4 * high)) & 15) * gguf_f16(p);
    case DTYPE_IQ4_XS: {
        int b = i / 32, scale = ((p[4 + b / 2] >> (b % 2 * 4)) & 15) | ((p[2 + b / 4] >> (b % 4 * 2)) & 3)
                                                                           << 4;
        return gguf_f16(p) * (scale - 32) * gguf_iq4((p[8 + b * 16 + low] >> (4 * high)) & 15);
    }
    default:
        return 0;
    }
}

#endif
