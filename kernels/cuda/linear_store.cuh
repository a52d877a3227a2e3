/* linear_store.cuh - the end of a product of few rows whose M side is W: sums to a bias or a gate, to memory. */
#ifndef KERNELS_CUDA_LINEAR_STORE_CUH
#define KERNELS_CUDA_LINEAR_STORE_CUH

#include "kernels/cuda/gate.cuh"
#include "kernels/cuda/mma.cuh"

enum store_epilogue { EPILOGUE_BF16, EPILOGUE_F32, EPILOGUE_SILU_MUL, EPILOGUE_GELU_MUL };

struct store_args {
    void *out;
    const float *bias;
    int32_t m, n;
};

static __device__ __forceinline__ float round_bf16(float x)
{
    return __bfloat162float(__float2bfloat16_rn(x));
}

/* Two neighbouring columns n of row m of the product. */
template <int EPILOGUE>
static __device__ __forceinline__ void store_pair(const store_args &a, int32_t m, int32_t n, float x, float y)
{
    if (m >= a.m || n >= a.n) return;
    if (EPILOGUE == EPILOGUE_F32) {
        *(float2 *)((float *)a.out + (size_t)m * a.n + n) = make_float2(x, y);
    } else {
        if (a.bias) {
            x = round_bf16(x) + a.bias[n];
            y = round_bf16(y) + a.bias[n + 1];
        }
        *(uint32_t *)((__nv_bfloat16 *)a.out + (size_t)m * a.n + n) = pack_bf16(x, y);
    }
}

/* Two neighbouring columns of the product of a gate and an up, and where they go among a.n / 2. */
template <enum gate_function GATE>
static __device__ __forceinline__ void store_gate_mul(const store_args &a, int32_t m, int32_t n,
                                                      uint32_t gate, uint32_t up)
{
    if (m < a.m && n < a.n / 2)
        *(uint32_t *)((__nv_bfloat16 *)a.out + (size_t)m * (a.n / 2) + n) = gate_mul<GATE>(gate, up);
}

/* The sums of a warp with W on the M side, d[4 j + 2 i + k]: column n + g + 8 i of the product, row first_m + 8 j + 2 t + k of x;
 * of the first eight columns alone where HALVES is 1. Gate and up alternate in groups of eight. Lanes of neighbouring
 * columns trade, so that the even one has both columns of row k = 0 and the odd one of k = 1. */
template <int COLS, int EPILOGUE, int HALVES>
static __device__ __forceinline__ void store_columns(const store_args &a, const float (&d)[COLS / 2],
                                                     int32_t first_m, int32_t n)
{
    int lane = threadIdx.x % 32, odd = lane / 4 % 2, pair = lane / 8 * 2;
#pragma unroll
    for (int j = 0; j < COLS / 8; j++) {
        int32_t m = first_m + 8 * j + lane % 4 * 2 + odd;
        float2 v[2];
#pragma unroll
        for (int i = 0; i < HALVES; i++) {
            const float *own = d + 4 * j + 2 * i;
            float other = __shfl_xor_sync(0xffffffffu, odd ? own[0] : own[1], 4);
            v[i] = odd ? make_float2(other, own[1]) : make_float2(own[0], other);
        }
        if (EPILOGUE == EPILOGUE_SILU_MUL || EPILOGUE == EPILOGUE_GELU_MUL) {
            constexpr enum gate_function GATE = EPILOGUE == EPILOGUE_SILU_MUL ? GATE_SILU : GATE_GELU_TANH;
            store_gate_mul<GATE>(a, m, n / 2 + pair, pack_bf16(v[0].x, v[0].y), pack_bf16(v[1].x, v[1].y));
        } else {
#pragma unroll
            for (int i = 0; i < HALVES; i++) store_pair<EPILOGUE>(a, m, n + 8 * i + pair, v[i].x, v[i].y);
        }
    }
}

#endif
