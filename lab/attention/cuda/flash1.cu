/* flash1.cu - FlashAttention on a GPU (flash1.c): a CTA a head, tiles of K and V outside, tiles of Q inside; outputs (f32),
 * maxima and sums in slow memory, read and written at every visit. */
#include "lab/attention/cuda/tile.cuh"

namespace
{

template <int D, bool COUNT>
__device__ void visit(const lab_problem &p, size_t first_row, int32_t i, int32_t j, const uint32_t (*q)[4],
                      uint32_t k_tile, uint32_t v_tile, counter<COUNT> &bytes)
{
    int rows = min(p.num_queries - i, (int)LAB_TILE);
    float s[LAB_TILE / 8][4], product[D / 8][4] = {};
    multiply_by_transposed<D>(s, q, k_tile);
    hide(s, i, j, p.num_keys, p.mask == MASK_CAUSAL);
    float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
    for (int n = 0; n < LAB_TILE / 8; n++)
        for (int e = 0; e < 4; e++) top[e / 2] = fmaxf(top[e / 2], s[n][e] *= p.scale_log2);
    for (int h = 0; h < 2; h++) top[h] = quad_max(top[h]);
    for (int n = 0; n < LAB_TILE / 8; n++)
        for (int e = 0; e < 4; e++) sum[e / 2] += s[n][e] = exp2_fast(s[n][e] - softmax_base(top[e / 2]));
    uint32_t weights[LAB_TILE / 16][4];
    pack_rows(weights, s);
    add_product<D>(product, weights, v_tile);
    for (int h = 0; h < 2; h++) {
        int row = fragment_row() + 8 * h;
        float l_now = quad_sum(sum[h]);
        if (row >= rows) continue;
        size_t at = first_row + i + row;
        float m_before = p.row_max[at], m = fmaxf(m_before, top[h]), base = softmax_base(m);
        float before = exp2_fast(m_before - base) * p.row_sum[at], now = exp2_fast(top[h] - base);
        float l = before + now * l_now, inverse = l > 0 ? 1 / l : 0;
        for (int n = 0; n < D / 8; n++) {
            float2 *o = (float2 *)(p.out_f32 + at * D + fragment_column(n, 0)), x = *o;
            *o = make_float2((before * x.x + now * product[n][2 * h]) * inverse,
                             (before * x.y + now * product[n][2 * h + 1]) * inverse);
            bytes.load(8);
            bytes.store(8);
        }
        __syncwarp(__activemask()); /* the quad has read both */
        if (threadIdx.x % 4 == 0) {
            p.row_max[at] = m;
            p.row_sum[at] = l;
            bytes.load(8);
            bytes.store(8);
        }
    }
}

template <int D, bool COUNT> __global__ void __launch_bounds__(LAB_THREADS) flash1_kernel(lab_problem p)
{
    extern __shared__ __align__(128) unsigned char shared[];
    counter<COUNT> bytes;
    uint32_t q_tile = shared_address(shared), k_tile = q_tile + tile<D>::BYTES,
             v_tile = k_tile + tile<D>::BYTES;
    size_t head = blockIdx.x, first_row = head * p.num_queries;
    for (size_t i = threadIdx.x; i < (size_t)p.num_queries * D; i += LAB_THREADS) {
        p.out_f32[first_row * D + i] = 0;
        bytes.store(4);
    }
    for (int32_t i = threadIdx.x; i < p.num_queries; i += LAB_THREADS) {
        p.row_max[first_row + i] = -INFINITY;
        p.row_sum[first_row + i] = 0;
        bytes.store(8);
    }
    for (int32_t j = 0; j < p.num_keys; j += LAB_TILE) {
        int keys = min(p.num_keys - j, (int)LAB_TILE);
        __syncthreads();
        load_tile<D>(k_tile, p.k + (head * p.num_keys + j) * D, keys, bytes);
        load_tile<D>(v_tile, p.v + (head * p.num_keys + j) * D, keys, bytes);
        for (int32_t i = p.mask == MASK_CAUSAL ? j : 0; i < p.num_queries; i += LAB_TILE) {
            load_tile<D>(q_tile, p.q + (first_row + i) * D, min(p.num_queries - i, (int)LAB_TILE), bytes);
            wait_for_tiles();
            uint32_t q[D / 16][4];
            load_rows<D>(q, q_tile);
            visit<D>(p, first_row, i, j, q, k_tile, v_tile, bytes);
            __syncthreads();
        }
    }
    bytes.finish(p);
}

template <int D, bool COUNT> void launch(const lab_problem &p)
{
    lab_allow_shared(flash1_kernel<D, COUNT>, 3 * tile<D>::BYTES);
    flash1_kernel<D, COUNT><<<p.num_heads, LAB_THREADS, 3 * tile<D>::BYTES>>>(p);
}

} // namespace

void lab_launch_flash1(const struct lab_problem *p, int32_t head_dim, bool count)
{
    LAB_DISPATCH(head_dim, count, launch);
}
