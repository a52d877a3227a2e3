/* tile.cuh - what the lab's GPU kernels keep on chip and do with it: tiles of 64 rows in shared memory, 4 warps of 16 rows
 * each, products by mma.sync (kernels/cuda/mma.cuh has the fragments). */
#ifndef LAB_ATTENTION_CUDA_TILE_CUH
#define LAB_ATTENTION_CUDA_TILE_CUH

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/softmax.cuh"
#include "lab/attention/cuda/lab_cuda.cuh"

/* Bytes that this thread has loaded and stored. */
template <bool COUNT> struct counter {
    unsigned long long loaded = 0, stored = 0;
    __device__ void load(int bytes)
    {
        if (COUNT) loaded += bytes;
    }
    __device__ void store(int bytes)
    {
        if (COUNT) stored += bytes;
    }
    __device__ void finish(const lab_problem &p)
    {
        if (!COUNT) return;
        atomicAdd(&p.traffic[0], loaded);
        atomicAdd(&p.traffic[1], stored);
    }
};

/* 16 bytes beside each row, so that ldmatrix's rows fall into different banks. */
template <int D> struct tile {
    static constexpr int PITCH = D * 2 + 16;
    static constexpr int BYTES = LAB_TILE * PITCH;
};

/* Rows of D elements, the rest of the tile zero. */
template <int D, bool COUNT>
__device__ void load_tile(uint32_t to, const __nv_bfloat16 *from, int rows, counter<COUNT> &bytes)
{
    constexpr int CHUNKS = D / 8;
    for (int i = threadIdx.x; i < LAB_TILE * CHUNKS; i += LAB_THREADS) {
        int row = i / CHUNKS, column = i % CHUNKS;
        bool valid = row < rows;
        copy_async(to + row * tile<D>::PITCH + column * 16,
                   valid ? from + (size_t)row * D + column * 8 : from, valid);
        if (valid) bytes.load(16);
    }
}

/* This warp's 16 rows of a tile as A fragments. */
template <int D> __device__ void load_rows(uint32_t (*a)[4], uint32_t tile_address)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t at = tile_address + (warp * 16 + lane % 16) * tile<D>::PITCH + (lane / 16) * 16;
#pragma unroll
    for (int k = 0; k < D / 16; k++) load_matrix(a[k], at + k * 32);
}

/* c = a b^T: 16 rows by the tile's 64. */
template <int D>
__device__ void multiply_by_transposed(float (*c)[4], const uint32_t (*a)[4], uint32_t b_tile)
{
    int lane = threadIdx.x % 32;
    uint32_t at = b_tile + (lane % 8 + (lane / 16) * 8) * tile<D>::PITCH + ((lane / 8) % 2) * 16;
#pragma unroll
    for (int n = 0; n < LAB_TILE / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) c[n][i] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++)
#pragma unroll
        for (int n = 0; n < LAB_TILE / 16; n++) {
            uint32_t b[4];
            load_matrix(b, at + n * 16 * tile<D>::PITCH + k * 32);
            mma_bf16(c[2 * n], a[k], b[0], b[1]);
            mma_bf16(c[2 * n + 1], a[k], b[2], b[3]);
        }
}

/* o += a b over the tile's 64 rows, a as A fragments of 16 x 64. */
template <int D> __device__ void add_product(float (*o)[4], const uint32_t (*a)[4], uint32_t b_tile)
{
    int lane = threadIdx.x % 32;
    uint32_t at = b_tile + (lane % 16) * tile<D>::PITCH + (lane / 16) * 16;
#pragma unroll
    for (int k = 0; k < LAB_TILE / 16; k++)
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            uint32_t b[4];
            load_matrix_transposed(b, at + k * 16 * tile<D>::PITCH + n * 32);
            mma_bf16(o[2 * n], a[k], b[0], b[1]);
            mma_bf16(o[2 * n + 1], a[k], b[2], b[3]);
        }
}

/* 16 x 64 results as A fragments of the next product. */
__device__ __forceinline__ void pack_rows(uint32_t (*a)[4], const float (*c)[4])
{
#pragma unroll
    for (int k = 0; k < LAB_TILE / 16; k++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            a[k][2 * h] = pack_bf16(c[2 * k + h][0], c[2 * k + h][1]);
            a[k][2 * h + 1] = pack_bf16(c[2 * k + h][2], c[2 * k + h][3]);
        }
}

/* Of the C fragments: the row within the tile of elements 0, 1 (elements 2, 3: 8 more), and the column of element i of the
 * n-th 8. */
__device__ __forceinline__ int fragment_row()
{
    return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
}
__device__ __forceinline__ int fragment_column(int n, int i)
{
    return n * 8 + threadIdx.x % 4 * 2 + i % 2;
}

/* 16 rows of bf16 results to slow memory; rows beyond the end are left out. */
template <int D, bool COUNT>
__device__ void store_rows(__nv_bfloat16 *to, const float (*o)[4], int rows, counter<COUNT> &bytes)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = fragment_row() + 8 * h;
        if (row >= rows) continue;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            *(uint32_t *)(to + (size_t)row * D + fragment_column(n, 0)) =
                pack_bf16(o[n][2 * h], o[n][2 * h + 1]);
            bytes.store(4);
        }
    }
}

__device__ __forceinline__ void wait_for_tiles()
{
    copy_commit();
    copy_wait<0>();
    __syncthreads();
}

/* -infinity where the query does not see the key, of no interval. */
__device__ __forceinline__ void hide(float (*s)[4], int32_t first_row, int32_t first_key, int32_t num_keys,
                                     bool causal)
{
#pragma unroll
    for (int n = 0; n < LAB_TILE / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int32_t key = first_key + fragment_column(n, i), row = first_row + fragment_row() + 8 * (i / 2);
            if (key >= num_keys || (causal && key > row)) s[n][i] = -INFINITY;
        }
}

/* The same by the keys' intervals. */
__device__ __forceinline__ void hide_intervals(const lab_problem &p, float (*s)[4], int32_t first_row,
                                               int32_t first_key)
{
    for (int n = 0; n < LAB_TILE / 8; n++)
        for (int column = 0; column < 2; column++) {
            int32_t key = min(first_key + fragment_column(n, column), p.num_keys - 1), hidden[4];
            for (int k = 0; k < 4; k++) hidden[k] = __ldg(p.hidden + (size_t)k * p.num_keys + key);
            for (int h = 0; h < 2; h++) {
                int32_t row = first_row + fragment_row() + 8 * h;
                if ((row >= hidden[0] && row < hidden[1]) || (row >= hidden[2] && row < hidden[3]))
                    s[n][2 * h + column] = -INFINITY;
            }
        }
}

template <class F> void lab_allow_shared(F *kernel, int bytes)
{
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

#endif
