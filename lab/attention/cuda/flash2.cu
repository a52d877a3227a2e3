/* flash2.cu - FlashAttention-2 and FlashMask on a GPU (flash2.c, flash_mask.c): a CTA is 64 queries of a head, four warps of 16
 * rows each, over the tiles of keys that some row sees; the next tile is fetched under the products of this one. */
#include "lab/attention/cuda/tile.cuh"

namespace
{

enum tile_class { TILE_HIDDEN, TILE_WHOLE, TILE_PARTIAL };

/* One thread: a tile of keys. */
template <bool COUNT> __global__ void find_bounds(lab_problem p)
{
    counter<COUNT> bytes;
    int32_t tile_idx = blockIdx.x * blockDim.x + threadIdx.x, first = tile_idx * LAB_TILE;
    if (first < p.num_keys) {
        struct lab_bounds b;
        for (int i = 0; i < 4; i++) {
            const int32_t *of_keys = p.hidden + (size_t)i * p.num_keys;
            b.least[i] = b.most[i] = of_keys[first];
            for (int32_t j = first; j < min(first + LAB_TILE, p.num_keys); j++) {
                b.least[i] = min(b.least[i], of_keys[j]);
                b.most[i] = max(b.most[i], of_keys[j]);
                bytes.load(4);
            }
        }
        p.bounds[tile_idx] = b;
        bytes.store(sizeof b);
    }
    bytes.finish(p);
}

/* Of rows [first, end); as in flash_mask.c. */
__device__ tile_class class_of(const lab_bounds &b, int32_t first, int32_t end)
{
    tile_class found = TILE_WHOLE;
    for (int i = 0; i < 4; i += 2) {
        if (first >= b.most[i] && end <= b.least[i + 1]) return TILE_HIDDEN;
        bool empty = b.least[i] >= b.most[i + 1];
        if (!empty && first < b.most[i + 1] && end > b.least[i]) found = TILE_PARTIAL;
    }
    return found;
}

/* What a CTA sees of a tile of keys. */
template <bool INTERVALS, bool COUNT>
__device__ tile_class look_at(const lab_problem &p, int32_t i, int rows, int32_t j, counter<COUNT> &bytes)
{
    if (INTERVALS) {
        if (threadIdx.x == 0) bytes.load(sizeof(lab_bounds));
        tile_class found = class_of(p.bounds[j / LAB_TILE], i, i + rows);
        return found == TILE_WHOLE && j + LAB_TILE > p.num_keys ? TILE_PARTIAL : found;
    }
    if (p.mask == MASK_CAUSAL && j > i + rows - 1) return TILE_HIDDEN;
    if (p.mask == MASK_CAUSAL && j + LAB_TILE - 1 > i) return TILE_PARTIAL;
    return j + LAB_TILE > p.num_keys ? TILE_PARTIAL : TILE_WHOLE;
}

/* Scores become weights; sums and outputs of the tiles before shrink. */
template <int D>
__device__ void soften(float (*s)[4], softmax_state (&state)[2], float (*o)[4], float scale_log2)
{
    float top[2] = {state[0].maximum, state[1].maximum}, base[2], shrink[2];
#pragma unroll
    for (int n = 0; n < LAB_TILE / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) top[i / 2] = fmaxf(top[i / 2], s[n][i]);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        top[h] = quad_max(top[h]);
        base[h] = softmax_base(top[h]) * scale_log2;
        shrink[h] = softmax_raise(&state[h], top[h], scale_log2);
        state[h].sum *= shrink[h];
    }
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) o[n][i] *= shrink[i / 2];
#pragma unroll
    for (int n = 0; n < LAB_TILE / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            state[i / 2].sum += s[n][i] = exp2_fast(s[n][i] * scale_log2 - base[i / 2]);
}

template <int D, bool INTERVALS, bool COUNT>
__global__ void __launch_bounds__(LAB_THREADS) flash2_kernel(lab_problem p)
{
    extern __shared__ __align__(128) unsigned char shared[];
    counter<COUNT> bytes;
    uint32_t q_tile = shared_address(shared), ring = q_tile + tile<D>::BYTES;
    int32_t i = (gridDim.x - 1 - blockIdx.x) * LAB_TILE, rows = min(p.num_queries - i, (int)LAB_TILE);
    size_t head = blockIdx.y, row = head * p.num_queries + i;
    load_tile<D>(q_tile, p.q + row * D, rows, bytes);
    auto fetch = [&](int32_t j, uint32_t stage) {
        int keys = min(p.num_keys - j, (int)LAB_TILE);
        load_tile<D>(stage, p.k + (head * p.num_keys + j) * D, keys, bytes);
        load_tile<D>(stage + tile<D>::BYTES, p.v + (head * p.num_keys + j) * D, keys, bytes);
    };
    auto next_seen = [&](int32_t j, tile_class *found) {
        for (; j < p.num_keys; j += LAB_TILE)
            if ((*found = look_at<INTERVALS>(p, i, rows, j, bytes)) != TILE_HIDDEN) break;
        return j;
    };
    tile_class now = TILE_HIDDEN, next = TILE_HIDDEN;
    int32_t j = next_seen(0, &now);
    uint32_t stage = ring, other = ring + 2 * tile<D>::BYTES, q[D / 16][4];
    if (j < p.num_keys) fetch(j, stage);
    wait_for_tiles();
    load_rows<D>(q, q_tile);
    float o[D / 8][4] = {};
    softmax_state state[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
    while (j < p.num_keys) {
        int32_t following = next_seen(j + LAB_TILE, &next);
        if (following < p.num_keys) fetch(following, other);
        copy_commit();
        float s[LAB_TILE / 8][4];
        uint32_t weights[LAB_TILE / 16][4];
        multiply_by_transposed<D>(s, q, stage);
        if (now == TILE_PARTIAL) {
            hide(s, i, j, p.num_keys, !INTERVALS && p.mask == MASK_CAUSAL);
            if (INTERVALS) {
                hide_intervals(p, s, i, j);
                if (threadIdx.x < min(p.num_keys - j, (int)LAB_TILE)) bytes.load(16);
            }
        }
        soften<D>(s, state, o, p.scale_log2);
        pack_rows(weights, s);
        add_product<D>(o, weights, stage + tile<D>::BYTES);
        copy_wait<0>();
        __syncthreads();
        uint32_t t = stage;
        stage = other;
        other = t;
        j = following;
        now = next;
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = quad_sum(state[h].sum), inverse = sum > 0 ? 1 / sum : 0;
        int r = fragment_row() + 8 * h;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            o[n][2 * h] *= inverse;
            o[n][2 * h + 1] *= inverse;
        }
        if (INTERVALS || r >= rows || threadIdx.x % 4 != 0) continue;
        p.lse[row + r] = (state[h].maximum * p.scale_log2 + log2f(sum)) * 0.69314718f;
        bytes.store(4);
    }
    store_rows<D>(p.out + row * D, o, rows, bytes);
    bytes.finish(p);
}

template <int D, bool INTERVALS, bool COUNT> void launch(const lab_problem &p)
{
    dim3 tiles((p.num_queries + LAB_TILE - 1) / LAB_TILE, p.num_heads);
    lab_allow_shared(flash2_kernel<D, INTERVALS, COUNT>, 5 * tile<D>::BYTES);
    flash2_kernel<D, INTERVALS, COUNT><<<tiles, LAB_THREADS, 5 * tile<D>::BYTES>>>(p);
}

template <int D, bool COUNT> void launch_plain(const lab_problem &p)
{
    launch<D, false, COUNT>(p);
}

template <int D, bool COUNT> void launch_intervals(const lab_problem &p)
{
    int32_t tiles = (p.num_keys + LAB_TILE - 1) / LAB_TILE;
    find_bounds<COUNT><<<(tiles + LAB_THREADS - 1) / LAB_THREADS, LAB_THREADS>>>(p);
    launch<D, true, COUNT>(p);
}

} // namespace

void lab_launch_flash2(const struct lab_problem *p, int32_t head_dim, bool intervals, bool count)
{
    if (intervals)
        LAB_DISPATCH(head_dim, count, launch_intervals);
    else
        LAB_DISPATCH(head_dim, count, launch_plain);
}
