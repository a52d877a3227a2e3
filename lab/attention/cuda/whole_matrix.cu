/* whole_matrix.cu - standard attention and online softmax on a GPU: three kernels that hand N x N matrices to each other
 * through slow memory (standard.c, online_softmax.c). */
#include "lab/attention/cuda/tile.cuh"

namespace
{

/* One CTA: 64 queries of a head over all keys. */
template <int D, bool COUNT> __global__ void __launch_bounds__(LAB_THREADS) write_scores(lab_problem p)
{
    extern __shared__ __align__(128) unsigned char shared[];
    counter<COUNT> bytes;
    uint32_t q_tile = shared_address(shared), k_tile = q_tile + tile<D>::BYTES;
    int32_t i = blockIdx.x * LAB_TILE, rows = min(p.num_queries - i, (int)LAB_TILE);
    size_t head = blockIdx.y;
    load_tile<D>(q_tile, p.q + (head * p.num_queries + i) * D, rows, bytes);
    wait_for_tiles();
    uint32_t q[D / 16][4];
    load_rows<D>(q, q_tile);
    for (int32_t j = 0; j < p.num_keys; j += LAB_TILE) {
        load_tile<D>(k_tile, p.k + (head * p.num_keys + j) * D, min(p.num_keys - j, (int)LAB_TILE), bytes);
        wait_for_tiles();
        float s[LAB_TILE / 8][4];
        multiply_by_transposed<D>(s, q, k_tile);
        hide(s, i, j, p.num_keys, p.mask == MASK_CAUSAL);
        if (p.mask == MASK_DOCUMENTS || p.mask == MASK_INTERVALS)
            hide_intervals(p, s, i, j); /* not counted */
        for (int h = 0; h < 2; h++)
            for (int n = 0; n < LAB_TILE / 8; n++) {
                int row = fragment_row() + 8 * h, column = j + fragment_column(n, 0);
                if (row >= rows || column >= p.row_stride) continue;
                *(uint32_t *)(p.scores + (head * p.num_queries + i + row) * p.row_stride + column) =
                    pack_bf16(s[n][2 * h] * p.scale_log2, s[n][2 * h + 1] * p.scale_log2);
                bytes.store(4);
            }
        __syncthreads();
    }
    bytes.finish(p);
}

template <class F> __device__ float over_block(float x, F combine)
{
    __shared__ float partial[LAB_THREADS / 32];
    for (int offset = 16; offset > 0; offset /= 2) x = combine(x, __shfl_xor_sync(~0u, x, offset));
    __syncthreads();
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
    __syncthreads();
    x = partial[0];
    for (int w = 1; w < LAB_THREADS / 32; w++) x = combine(x, partial[w]);
    return x;
}

/* Calls use(pair) on all pairs of a row's scores. */
template <bool COUNT, class F>
__device__ void for_scores(const __nv_bfloat16 *s, int32_t stride, counter<COUNT> &bytes, F use)
{
    for (int32_t j = threadIdx.x * 8; j < stride; j += LAB_THREADS * 8) {
        uint4 raw = *(const uint4 *)(s + j);
        uint32_t pairs[4] = {raw.x, raw.y, raw.z, raw.w};
        bytes.load(16);
        for (int k = 0; k < 4; k++) use(unpack_bf16(pairs[k]), j + 2 * k);
    }
}

/* One CTA: a row. ONLINE: maximum and sum in one pass. */
template <bool ONLINE, bool COUNT> __global__ void __launch_bounds__(LAB_THREADS) soften(lab_problem p)
{
    counter<COUNT> bytes;
    const __nv_bfloat16 *s = p.scores + (size_t)blockIdx.x * p.row_stride;
    __nv_bfloat16 *w = p.weights + (size_t)blockIdx.x * p.row_stride;
    float m = -INFINITY, l = 0;
    auto largest = [](float a, float b) { return fmaxf(a, b); };
    auto sum = [](float a, float b) { return a + b; };
    if (ONLINE) {
        for_scores(s, p.row_stride, bytes, [&](float2 x, int32_t) {
            float top = fmaxf(m, fmaxf(x.x, x.y)), base = softmax_base(top);
            l = l * exp2_fast(m - base) + exp2_fast(x.x - base) + exp2_fast(x.y - base);
            m = top;
        });
        float top = over_block(m, largest);
        l = over_block(l * exp2_fast(m - softmax_base(top)), sum);
        m = top;
    } else {
        for_scores(s, p.row_stride, bytes, [&](float2 x, int32_t) { m = fmaxf(m, fmaxf(x.x, x.y)); });
        m = over_block(m, largest);
        float base = softmax_base(m);
        for_scores(s, p.row_stride, bytes,
                   [&](float2 x, int32_t) { l += exp2_fast(x.x - base) + exp2_fast(x.y - base); });
        l = over_block(l, sum);
    }
    float base = softmax_base(m), inverse = l > 0 ? 1 / l : 0;
    for_scores(s, p.row_stride, bytes, [&](float2 x, int32_t j) {
        *(uint32_t *)(w + j) = pack_bf16(exp2_fast(x.x - base) * inverse, exp2_fast(x.y - base) * inverse);
        bytes.store(4);
    });
    bytes.finish(p);
}

/* One CTA: 64 queries of a head. Weights come as A fragments, straight from slow memory. */
template <int D, bool COUNT> __global__ void __launch_bounds__(LAB_THREADS) write_outputs(lab_problem p)
{
    extern __shared__ __align__(128) unsigned char shared[];
    counter<COUNT> bytes;
    uint32_t v_tile = shared_address(shared);
    int32_t i = blockIdx.x * LAB_TILE, rows = min(p.num_queries - i, (int)LAB_TILE);
    size_t head = blockIdx.y;
    float o[D / 8][4] = {};
    for (int32_t j = 0; j < p.num_keys; j += LAB_TILE) {
        load_tile<D>(v_tile, p.v + (head * p.num_keys + j) * D, min(p.num_keys - j, (int)LAB_TILE), bytes);
        uint32_t w[LAB_TILE / 16][4];
        for (int k = 0; k < LAB_TILE / 16; k++)
            for (int part = 0; part < 4; part++) {
                int row = fragment_row() + 8 * (part % 2),
                    column = j + k * 16 + part / 2 * 8 + threadIdx.x % 4 * 2;
                bool valid = row < rows && column < p.row_stride;
                w[k][part] =
                    valid ? *(const uint32_t *)(p.weights + (head * p.num_queries + i + row) * p.row_stride +
                                                column)
                          : 0;
                if (valid) bytes.load(4);
            }
        wait_for_tiles();
        add_product<D>(o, w, v_tile);
        __syncthreads();
    }
    store_rows<D>(p.out + (head * p.num_queries + i) * D, o, rows, bytes);
    bytes.finish(p);
}

template <int D, bool COUNT, bool ONLINE> void launch(const lab_problem &p)
{
    dim3 tiles((p.num_queries + LAB_TILE - 1) / LAB_TILE, p.num_heads);
    lab_allow_shared(write_scores<D, COUNT>, 2 * tile<D>::BYTES);
    write_scores<D, COUNT><<<tiles, LAB_THREADS, 2 * tile<D>::BYTES>>>(p);
    soften<ONLINE, COUNT><<<p.num_queries * p.num_heads, LAB_THREADS>>>(p);
    write_outputs<D, COUNT><<<tiles, LAB_THREADS, tile<D>::BYTES>>>(p);
}

template <int D, bool COUNT> void launch_safe(const lab_problem &p)
{
    launch<D, COUNT, false>(p);
}

template <int D, bool COUNT> void launch_online(const lab_problem &p)
{
    launch<D, COUNT, true>(p);
}

} // namespace

void lab_launch_standard(const struct lab_problem *p, int32_t head_dim, bool online, bool count)
{
    if (online)
        LAB_DISPATCH(head_dim, count, launch_online);
    else
        LAB_DISPATCH(head_dim, count, launch_safe);
}
