/* weight_codes.cuh - reads quantised weights whose scales lie apart, and GGUF's MXFP4 and Q4_0, as files/weight_codes.h does on the host. */
#ifndef KERNELS_CUDA_WEIGHT_CODES_CUH
#define KERNELS_CUDA_WEIGHT_CODES_CUH

#include <cuda_fp8.h>

#include "kernels/cuda/device.cuh"

/* A view whose pointers are device memory. */
struct device_codes {
    struct weight_view view;
    int64_t first_row; /* the file's row that data begins with; 0 unless rows lie one after another */
};

static __device__ __forceinline__ int32_t file_row(const struct device_codes &c, int32_t row)
{
    return (int32_t)(c.view.slice.row_begin + row * c.view.slice.row_step);
}

/* Nibble i of words of eight. */
static __device__ __forceinline__ int32_t nibble_at(const void *words, int64_t word, int32_t i)
{
    return ((const uint32_t *)words)[word] >> (4 * i) & 15;
}

/* Where AWQ has the code of row n in its word: 0 4 1 5 2 6 3 7. */
static __device__ __forceinline__ int32_t place_of(enum weight_scheme scheme, int32_t n)
{
    return scheme == WEIGHT_AWQ ? n % 8 / 2 + n % 2 * 4 : n % 8;
}

/* A block of GGUF's four bits: its scale, then codes i and i + 16 in a byte. */
enum { GGUF_COLUMNS = 32, GGUF_CODES_BYTES = 16 };

static __device__ __forceinline__ int32_t gguf_scale_bytes(enum dtype dtype)
{
    return dtype == DTYPE_MXFP4 ? 1 : 2; /* e8m0, or f16 */
}

/* The block of row n and the columns from GGUF_COLUMNS * group on. */
static __device__ __forceinline__ const uint8_t *gguf_block(const struct device_codes &c, int32_t n,
                                                            int32_t group)
{
    int64_t block = (n - c.first_row) * c.view.cols / GGUF_COLUMNS + group;
    return (const uint8_t *)c.view.data + block * (gguf_scale_bytes(c.view.dtype) + GGUF_CODES_BYTES);
}

/* Row n and column k are the file's. */
static __device__ __forceinline__ int32_t code_at(const struct device_codes &c, int32_t n, int32_t k)
{
    const struct weight_view &v = c.view;
    const uint8_t *bytes = (const uint8_t *)v.data;
    int64_t at = (n - c.first_row) * v.cols + k;
    if (v.scheme == WEIGHT_PLAIN)
        return gguf_block(c, n, k / GGUF_COLUMNS)[gguf_scale_bytes(v.dtype) + k % 16] >>
                   (k % GGUF_COLUMNS / 16 * 4) &
               15;
    if (v.scheme == WEIGHT_GPTQ) return nibble_at(v.data, k / 8 * v.rows + n, k % 8);
    if (v.scheme == WEIGHT_AWQ) return nibble_at(v.data, k * (v.rows / 8) + n / 8, place_of(v.scheme, n));
    if (v.dtype == DTYPE_F8_E4M3 || v.dtype == DTYPE_I8) return bytes[at] ^ v.codes.flip;
    return bytes[at / 2] >> (4 * (at % 2)) & 15;
}

static __device__ __forceinline__ int32_t group_of(const struct device_codes &c, int32_t k)
{
    const struct weight_codes &w = c.view.codes;
    return w.groups ? ((const int32_t *)w.groups)[k] : k / (int32_t)w.scale_cols;
}

static __device__ __forceinline__ float e4m3_to_f32(uint8_t code)
{
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3)));
}

static __device__ __forceinline__ float e8m0_to_f32(uint8_t code)
{
    return __uint_as_float(code == 255 ? 0x7fc00000u : code == 0 ? 0x00400000u : (uint32_t)code << 23);
}

static __device__ __forceinline__ float side_at(const struct weight_side &s, int64_t at)
{
    switch (s.type) {
    case SCALE_F32:
        return ((const float *)s.data)[at];
    case SCALE_F16:
        return __half2float(((const __half *)s.data)[at]);
    case SCALE_BF16:
        return __bfloat162float(((const __nv_bfloat16 *)s.data)[at]);
    case SCALE_E4M3:
        return e4m3_to_f32(((const uint8_t *)s.data)[at]);
    case SCALE_E8M0:
        return e8m0_to_f32(((const uint8_t *)s.data)[at]);
    }
    return 0;
}

static __device__ __forceinline__ float scale_at(const struct device_codes &c, int32_t n, int32_t group)
{
    const struct weight_codes &w = c.view.codes;
    if (c.view.scheme == WEIGHT_PLAIN) {
        const uint8_t *block = gguf_block(c, n, group);
        if (c.view.dtype == DTYPE_MXFP4) return e8m0_to_f32(block[0]);
        return __half2float(__ushort_as_half((uint16_t)(block[0] | block[1] << 8)));
    }
    if (!w.scales.data) return 1;
    int64_t at =
        c.view.scheme == WEIGHT_SCALED ? n / w.scale_rows * w.scales.cols + group : group * w.scales.cols + n;
    return __fdiv_rn(__fmul_rn(side_at(w.scales, at), w.scale_factor), w.scale_divisor);
}

static __device__ __forceinline__ int32_t zero_at(const struct device_codes &c, int32_t n, int32_t group)
{
    const struct weight_side &z = c.view.codes.zeros;
    int64_t word = c.view.scheme == WEIGHT_SCALED ? n / 8 * z.cols + group : (group * z.cols + n) / 8;
    return c.view.codes.zero + (z.data ? nibble_at(z.data, word, place_of(c.view.scheme, n)) : 0);
}

static __device__ __forceinline__ float e2m1_to_f32(int32_t code)
{
    int32_t magnitude = code & 7, exponent = magnitude >> 1, odd = magnitude & 1;
    float value = exponent ? __uint_as_float((126u + exponent) << 23 | odd << 22) : 0.5f * odd;
    return code & 8 ? -value : value;
}

/* What a code stands for, before its scale. */
static __device__ __forceinline__ float code_value(enum dtype dtype, int32_t code, int32_t zero)
{
    switch (dtype) {
    case DTYPE_F8_E4M3:
        return e4m3_to_f32((uint8_t)code);
    case DTYPE_I8:
        return (float)(int8_t)code;
    case DTYPE_U4:
        return (float)(code - zero);
    default:
        return e2m1_to_f32(code);
    }
}

#endif
