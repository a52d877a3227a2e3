/* kv_codes.cuh - K and V of e4m3: how a block's head lies in memory, and codes in registers.
 *
 *   chunk of a block and head:  K [D / 16][BLOCK_SIZE][16] codes | V [BLOCK_SIZE][D] codes | scales of K [BLOCK_SIZE] | of V
 *
 * The codes of a token and head are those of cpu/kv_codes.h, rounded to nearest of element / scale, with scale = largest / 448 in
 * f32: element = scale * value of its code. A row that is no number has the scale NaN and codes of 0; no code is a NaN. So
 * what stands in a block always is finite codes: weights of 0 make nothing of them, and only scales need masks.
 *
 * Of K 8 tokens of 16 columns are 128 bytes, the pieces that wgmma takes without a swizzle. V would have to lie by columns for that, but a token's
 * row written as D single bytes takes longer than all of decode attention: its groups of 16 codes stand in an order that is a function of the token,
 * so that 8 rows of a matrix that ldmatrix reads are in distinct banks (of 96 columns: in half of them). A chunk is a multiple of 128
 * bytes: one bulk copy. */
#ifndef KERNELS_CUDA_KV_CODES_CUH
#define KERNELS_CUDA_KV_CODES_CUH

#include <cuda_fp8.h>
#include <float.h>

#include "kernels/cuda/device.cuh"

static const float KV_CODE_MAX = 448;

template <int D> struct kv_chunk {
    static constexpr int V_OFFSET = BLOCK_SIZE * D;
    static constexpr int SCALES_OFFSET = 2 * V_OFFSET;
    static constexpr int BYTES = SCALES_OFFSET + 2 * BLOCK_SIZE * (int)sizeof(float);
};

static inline __host__ __device__ size_t kv_chunk_bytes(int32_t head_dim)
{
    return 2 * BLOCK_SIZE * ((size_t)head_dim + sizeof(float));
}

/* Where codes lie, in bytes from the block's K: of the columns from column on, as far as it is of their 16, of a token. */
static __device__ __forceinline__ uint32_t kv_key_offset(int token, int column)
{
    return (uint32_t)(column / 16 * BLOCK_SIZE * 16 + token * 16 + column % 16);
}

/* In bytes from the block's V. */
static __device__ __forceinline__ uint32_t kv_value_offset(int32_t head_dim, int token, int column)
{
    int order = head_dim % 128 == 0 ? token % 8 : head_dim == 64 ? token / 2 % 4 : 0;
    return (uint32_t)(token * head_dim + (column / 16 ^ order) * 16 + column % 16);
}

/* The scale of a row whose largest magnitude this is; not finite: NaN. 0: its codes are 0. */
static __device__ __forceinline__ float kv_scale_of(float largest)
{
    float scale = __fdiv_rn(largest, KV_CODE_MAX);
    return !(largest <= FLT_MAX) ? __int_as_float(0x7fffffff) : scale >= FLT_MIN ? scale : 0.0f;
}

/* The code of an element of a row with this scale. */
static __device__ __forceinline__ uint32_t kv_code_of(float x, float scale)
{
    return scale > 0 ? __nv_cvt_float_to_fp8(__fdiv_rn(x, scale), __NV_SATFINITE, __NV_E4M3) : 0;
}

/* Values of two codes as f16, exactly. */
static __device__ __forceinline__ uint32_t kv_code_halves(uint32_t codes)
{
    __half2_raw h = __nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)codes, __NV_E4M3);
    return (uint32_t)h.x | (uint32_t)h.y << 16;
}

/* And as f32. codes: of the low half. */
static __device__ __forceinline__ float2 kv_code_pair(uint32_t codes)
{
    uint32_t halves = kv_code_halves(codes & 0xffff);
    return __half22float2(*(const __half2 *)&halves);
}

#endif
