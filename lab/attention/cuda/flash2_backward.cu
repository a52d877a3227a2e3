/* flash2_backward.cu - FlashAttention-2's backward pass on a GPU (flash2_backward.c): a CTA is 64 keys of a head, and queries
 * pass by; a warp has 16 of the keys.
 *
 * Everything is computed with keys as rows: P^T = exp(K Q^T - L) and dS^T come out as the A fragments that dV += P^T dO and
 * dK += dS^T Q want. Only dQ += dS K wants queries as rows: dS^T goes through shared memory for it and is read transposed.
 * dQ is added to in slow memory (f32) by atomics, since the CTAs of all keys add to it. */
#include "lab/attention/cuda/tile.cuh"

namespace
{

using weights_tile = tile<LAB_TILE>; /* dS^T: [key][query] */

/* A warp: D = rowsum(dO * O) of a row. */
template <int D, bool COUNT> __global__ void __launch_bounds__(LAB_THREADS) write_row_dots(lab_problem p)
{
    counter<COUNT> bytes;
    size_t row = blockIdx.x * (LAB_THREADS / 32) + threadIdx.x / 32;
    if (row < (size_t)p.num_heads * p.num_queries) {
        float sum = 0;
        for (int d = threadIdx.x % 32 * 2; d < D; d += 64) {
            float2 a = unpack_bf16(*(const uint32_t *)(p.out + row * D + d)),
                   b = unpack_bf16(*(const uint32_t *)(p.d_out + row * D + d));
            sum += a.x * b.x + a.y * b.y;
            bytes.load(8);
        }
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
        if (threadIdx.x % 32 == 0) {
            p.row_dots[row] = sum;
            bytes.store(4);
        }
    }
    bytes.finish(p);
}

/* s_t: scores of this warp's 16 keys and the tile's queries become weights, d_p_t what goes back through the softmax.
 * lse and dots: of the tile's queries, in shared memory. */
__device__ __forceinline__ void back_through_softmax(const lab_problem &p, float (*s_t)[4], float (*d_p_t)[4],
                                                     const float *lse_log2, const float *dots, int32_t i,
                                                     int32_t j, bool masked)
{
#pragma unroll
    for (int n = 0; n < LAB_TILE / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int column = fragment_column(n, e);
            int32_t query = i + column, key = j + fragment_row() + 8 * (e / 2);
            float weight = exp2_fast(s_t[n][e] * p.scale_log2 - lse_log2[column]);
            bool hidden = masked && (query >= p.num_queries || key >= p.num_keys ||
                                     (p.mask == MASK_CAUSAL && key > query));
            s_t[n][e] = hidden ? 0 : weight;
            d_p_t[n][e] = s_t[n][e] * (d_p_t[n][e] - dots[column]) * (p.scale_log2 * 0.69314718f);
        }
}

/* dS^T to shared memory as [key][query]. */
__device__ __forceinline__ void share_weights(unsigned char *to, const uint32_t (*d_s)[4])
{
#pragma unroll
    for (int k = 0; k < LAB_TILE / 16; k++)
#pragma unroll
        for (int part = 0; part < 4; part++) {
            int row = fragment_row() + 8 * (part % 2), column = k * 16 + part / 2 * 8 + threadIdx.x % 4 * 2;
            *(uint32_t *)(to + row * weights_tile::PITCH + column * 2) = d_s[k][part];
        }
}

/* This warp's 16 queries of dS as A fragments: [query][key] out of [key][query]. */
__device__ __forceinline__ void load_turned(uint32_t (*a)[4], uint32_t from)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t at =
        from + (lane % 8 + lane / 16 * 8) * weights_tile::PITCH + (warp * 16 + lane / 8 % 2 * 8) * 2;
#pragma unroll
    for (int k = 0; k < LAB_TILE / 16; k++) load_matrix_transposed(a[k], at + k * 16 * weights_tile::PITCH);
}

template <int D, bool COUNT>
__device__ void add_to_slow(float *to, const float (*d_q)[4], int rows, counter<COUNT> &bytes)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = fragment_row() + 8 * h;
        if (row >= rows) continue;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            float *at = to + (size_t)row * D + fragment_column(n, 0);
#if __CUDA_ARCH__ >= 900
            atomicAdd((float2 *)at, make_float2(d_q[n][2 * h], d_q[n][2 * h + 1]));
#else
            atomicAdd(at, d_q[n][2 * h]);
            atomicAdd(at + 1, d_q[n][2 * h + 1]);
#endif
            bytes.load(8);
            bytes.store(8);
        }
    }
}

template <int D> struct backward_traits {
    static constexpr int SHARED_BYTES = 4 * tile<D>::BYTES + weights_tile::BYTES + 2 * LAB_TILE * 4;
};

template <int D, bool COUNT> __global__ void __launch_bounds__(LAB_THREADS) backward_kernel(lab_problem p)
{
    extern __shared__ __align__(128) unsigned char shared[];
    counter<COUNT> bytes;
    uint32_t k_tile = shared_address(shared), v_tile = k_tile + tile<D>::BYTES,
             q_tile = v_tile + tile<D>::BYTES, d_out_tile = q_tile + tile<D>::BYTES,
             d_s_tile = d_out_tile + tile<D>::BYTES;
    unsigned char *d_s_shared = shared + 4 * tile<D>::BYTES;
    float *lse = (float *)(d_s_shared + weights_tile::BYTES), *dots = lse + LAB_TILE;
    int32_t j = blockIdx.x * LAB_TILE, keys = min(p.num_keys - j, (int)LAB_TILE);
    size_t head = blockIdx.y, first_key = head * p.num_keys + j, first_row = head * p.num_queries;
    load_tile<D>(k_tile, p.k + first_key * D, keys, bytes);
    load_tile<D>(v_tile, p.v + first_key * D, keys, bytes);
    float d_k[D / 8][4] = {}, d_v[D / 8][4] = {};
    for (int32_t i = p.mask == MASK_CAUSAL ? j : 0; i < p.num_queries; i += LAB_TILE) {
        int rows = min(p.num_queries - i, (int)LAB_TILE);
        load_tile<D>(q_tile, p.q + (first_row + i) * D, rows, bytes);
        load_tile<D>(d_out_tile, p.d_out + (first_row + i) * D, rows, bytes);
        if (threadIdx.x < LAB_TILE) {
            bool valid = (int)threadIdx.x < rows;
            lse[threadIdx.x] = valid ? p.lse[first_row + i + threadIdx.x] * 1.44269504f : 0;
            dots[threadIdx.x] = valid ? p.row_dots[first_row + i + threadIdx.x] : 0;
            if (valid) bytes.load(8);
        }
        wait_for_tiles();
        float s_t[LAB_TILE / 8][4], d_p_t[LAB_TILE / 8][4];
        {
            uint32_t a[D / 16][4];
            load_rows<D>(a, k_tile);
            multiply_by_transposed<D>(s_t, a, q_tile);
            load_rows<D>(a, v_tile);
            multiply_by_transposed<D>(d_p_t, a, d_out_tile);
        }
        bool masked = (p.mask == MASK_CAUSAL && i < j + LAB_TILE) || rows < LAB_TILE || keys < LAB_TILE;
        back_through_softmax(p, s_t, d_p_t, lse, dots, i, j, masked);
        uint32_t weights[LAB_TILE / 16][4];
        pack_rows(weights, s_t);
        add_product<D>(d_v, weights, d_out_tile);
        pack_rows(weights, d_p_t);
        share_weights(d_s_shared, weights);
        add_product<D>(d_k, weights, q_tile);
        __syncthreads();
        load_turned(weights, d_s_tile);
        float d_q[D / 8][4] = {};
        add_product<D>(d_q, weights, k_tile);
        add_to_slow<D>(p.d_q + (first_row + i) * D, d_q, rows, bytes);
        __syncthreads();
    }
    store_rows<D>(p.d_k + first_key * D, d_k, keys, bytes);
    store_rows<D>(p.d_v + first_key * D, d_v, keys, bytes);
    bytes.finish(p);
}

template <bool COUNT> __global__ void clear(lab_problem p, size_t count)
{
    counter<COUNT> bytes;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x) {
        p.d_q[i] = 0;
        bytes.store(4);
    }
    bytes.finish(p);
}

template <int D, bool COUNT> void launch(const lab_problem &p)
{
    constexpr int SHARED = backward_traits<D>::SHARED_BYTES, WARPS = LAB_THREADS / 32;
    size_t rows = (size_t)p.num_heads * p.num_queries;
    clear<COUNT><<<512, 256>>>(p, rows * D);
    write_row_dots<D, COUNT><<<(unsigned)((rows + WARPS - 1) / WARPS), LAB_THREADS>>>(p);
    lab_allow_shared(backward_kernel<D, COUNT>, SHARED);
    dim3 tiles((p.num_keys + LAB_TILE - 1) / LAB_TILE, p.num_heads);
    backward_kernel<D, COUNT><<<tiles, LAB_THREADS, SHARED>>>(p);
}

} // namespace

void lab_launch_backward(const struct lab_problem *p, int32_t head_dim, bool count)
{
    LAB_DISPATCH(head_dim, count, launch);
}
