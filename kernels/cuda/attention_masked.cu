/* attention_masked.cu - attention of what the kernels for prompts (attention_prefill*.cu) and for decoding
 * (attention_decode.cu) do not have: masks of sequences (kernels/mask.h), layers in chunks, temperatures, ALiBi, any head size that is
 * a multiple of 8, and latents, whose V are columns of K. On every GPU from sm_80 on; on a Hopper prompts with a head size of
 * attention_masked_hopper.cu go there.
 *
 * The rows of a tile are the query heads of one K/V head, token after token: row r is head r % group of token r / group. So a
 * prompt's tile has 64 / group tokens, a decoding sequence's all heads of its one token, and K and V are read once for all of
 * them. A CTA is one such tile. Four warps have 16 rows each; with wide heads eight, of which two share rows: each has half of
 * a kv tile's scores and half of the output's columns, and the weights go through shared memory.
 *
 * FlashAttention-2: kv tiles begin at multiples of their size, whatever the chunk; those that no row sees by the bounds of masks,
 * windows and chunks are skipped, those that all see run unmasked. A row's sums run over tiles in order, and a tile that it
 * does not see adds exact zeros, so its bits depend on its position and the sequence's keys alone. Decoding sequences are cut into splits
 * (attention_decode.cuh, cut_of), whose results another kernel merges in order (Flash-Decoding).
 *
 * What lies before the first key that any row of the tile sees, or behind the sequence, is zeros: blocks there may be anybody's.
 *
 * Sources: Dao, "FlashAttention-2", 2023; Dao et al., "Flash-Decoding for long-context inference", 2023; Wang et al.,
 * "FlashMask", 2024; latents as the rows of one tile: DeepSeek-AI, FlashMLA, 2025. */
#include "kernels/cuda/attention_masked_rows.cuh"
#include "kernels/cuda/kv_pool.cuh"
#include "kernels/cuda/latent.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/softmax.cuh"

namespace
{

enum {
    MERGE_PARTS = 4,        /* of the splits, whose sums are added up behind each other */
    PART_THREADS = 128,     /* of a part */
    MERGE_COLUMNS = 4,      /* a thread */
    FEW_ROWS = 256,         /* heads of sequences, so few that one has threads for all parts at once */
    MASKED_SPLITS_MAX = 128 /* of a sequence */
};

/* D: columns that there is room for. VALUE_AT: columns of V that are no values. KEYS_ONLY: V is K. */
template <int D, int VALUE_AT> struct masked_traits {
    static constexpr int SPLIT = D >= 256 ? 2 : 1; /* warps that share rows */
    static constexpr int WARPS = 4 * SPLIT;
    static constexpr int KEYS = D >= 256 ? 32 : 64; /* of a kv tile */
    static constexpr int STAGES = D == 256 || D == 512 ? 1 : 2;
    static constexpr int PITCH = D * 2 + 16;
    static constexpr int COLUMNS = (D - VALUE_AT) / SPLIT; /* of the output, a warp's */
    static constexpr int WEIGHT_PITCH = KEYS * 2 + 16;
    static constexpr int Q_BYTES = TILE_ROWS * PITCH;
    static constexpr int TILE_BYTES = KEYS * PITCH; /* of K, or of V */
    static constexpr int WEIGHT_BYTES = TILE_ROWS * WEIGHT_PITCH;
    static constexpr int STATE_BYTES = 2 * SPLIT * TILE_ROWS * (int)sizeof(float); /* maxima, sums */
};

/* Columns behind head_dim, and rows that are not there, become zero. */
template <int D, int VALUE_AT>
__device__ void load_queries(const masked_args &a, const struct rows &r, int32_t kv_head, uint32_t to)
{
    using T = masked_traits<D, VALUE_AT>;
    constexpr int CHUNKS = D / 8;
    size_t row_elements = (size_t)a.row_heads * a.head_dim;
    for (int i = threadIdx.x; i < TILE_ROWS * CHUNKS; i += T::WARPS * 32) {
        int32_t row = i / CHUNKS, column = i % CHUNKS * 8, at = r.first + row;
        bool valid = at < r.count && column < a.head_dim;
        const __nv_bfloat16 *from = a.qkv;
        if (valid)
            from += (size_t)(r.first_token + at / a.group) * row_elements +
                    (size_t)(kv_head * a.group + at % a.group) * a.head_dim + column;
        copy_async(to + row * T::PITCH + column * 2, from, valid);
    }
}

template <int D, int VALUE_AT, bool KEYS_ONLY>
__device__ void load_kv_tile(const masked_args &a, const struct rows &r, const int32_t *table,
                             int32_t kv_head, int32_t first, uint32_t stage)
{
    using T = masked_traits<D, VALUE_AT>;
    constexpr int CHUNKS = D / 8;
    for (int i = threadIdx.x; i < T::KEYS * CHUNKS; i += T::WARPS * 32) {
        int32_t row = i / CHUNKS, column = i % CHUNKS * 8, key = first + row;
        bool valid = key >= r.first_key && key < r.seqlen && column < a.head_dim;
        const __nv_bfloat16 *k = a.pool;
        if (valid)
            k += table[key / BLOCK_SIZE] * a.block_elements +
                 ((size_t)kv_head * BLOCK_SIZE + key % BLOCK_SIZE) * a.head_dim + column;
        uint32_t to = stage + row * T::PITCH + column * 2;
        copy_async(to, k, valid);
        if (!KEYS_ONLY) copy_async(to + T::TILE_BYTES, valid ? k + a.v_elements : k, valid);
    }
}

/* A warp's part of a tile: rows 16 (warp % 4) and on, keys and columns of its share. */
struct part {
    int warp, lane, share;
    uint32_t q, weights;       /* of its rows, in shared memory */
    float *maxima, *sums;      /* [shares][TILE_ROWS] */
    int32_t place[2], head[2]; /* of rows g and g + 8 */
    struct seen_keys seen[2];
    struct score_scale scale[2];
    /* with BY_DISTANCE */
    float factor[2];
    const float *bias[2]; /* of the distance 0; NULL: scores lose factor times the distance */
    int32_t reach;
};

/* What a score loses, before it is multiplied by its scale, is scale times the slope of its head (kernels/alibi.h); or, where there is a
 * table, it gains scale times what that has. */
struct by_distance {
    float most, scale;
    const float *bias; /* attention_args: distance_bias */
    int32_t reach;
};

/* alibi_slope of kernels/alibi.h, which the compiler of device code does not take from there. */
__device__ __forceinline__ float slope_of_head(float most, int32_t num_heads, int32_t head)
{
    int32_t n = 1;
    while (2 * n <= num_heads) n *= 2;
    float power = head < n ? (float)(head + 1) : (float)(head - n) + 0.5f;
    return exp2f(-most * power / (float)n);
}

/* first: the key of the first of them, as in hide_scores. */
template <int N>
__device__ __forceinline__ void move_scores(float (&scores)[N], const struct part &p, int32_t first)
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int32_t row = i / 2 % 2, distance = first + i / 4 * 8 + i % 2 - p.place[row];
        const float gained =
            p.bias[row] ? p.bias[row][min(max(distance, -p.reach), p.reach)] : -(float)abs(distance);
        scores[i] = __fmaf_rn(p.factor[row], gained, scores[i]);
    }
}

__device__ __forceinline__ void prepare_move(const masked_args &a, const struct by_distance &by,
                                             struct part *p)
{
    p->reach = by.reach;
    for (int i = 0; i < 2; i++) {
        p->factor[i] = by.bias ? by.scale : slope_of_head(by.most, a.num_heads, p->head[i]) * by.scale;
        p->bias[i] = by.bias ? by.bias + p->head[i] * (2 * (int64_t)by.reach + 1) + by.reach : NULL;
    }
}

template <int D, int VALUE_AT>
__device__ struct part part_of(const masked_args &a, const struct rows &r, int32_t kv_head,
                               unsigned char *shared)
{
    using T = masked_traits<D, VALUE_AT>;
    struct part p;
    p.warp = threadIdx.x / 32 % 4;
    p.lane = threadIdx.x % 32;
    p.share = threadIdx.x / 128;
    p.q = shared_address(shared) + p.warp * 16 * T::PITCH;
    p.weights = shared_address(shared) + T::Q_BYTES + p.warp * 16 * T::WEIGHT_PITCH;
    p.maxima = (float *)(shared + T::Q_BYTES + T::WEIGHT_BYTES);
    p.sums = p.maxima + T::SPLIT * TILE_ROWS;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int32_t row = min(r.first + p.warp * 16 + p.lane / 4 + 8 * i, r.count - 1);
        p.place[i] = r.offset + row / a.group;
        p.head[i] = kv_head * a.group + row % a.group;
        p.seen[i] = seen_keys_of(a, r, p.place[i]);
        p.scale[i] = scale_of_row(a, p.place[i]);
    }
    return p;
}

/* Scores of the warp's rows and its share of the keys; then the rows' new maxima. */
template <int D, int VALUE_AT, bool BY_DISTANCE, int COUNT>
__device__ __forceinline__ void make_scores(const masked_args &a, const struct rows &r, const struct part &p,
                                            float (&s)[COUNT][4], float (&top)[2], uint32_t stage,
                                            int32_t first, bool is_whole)
{
    using T = masked_traits<D, VALUE_AT>;
    int lane = p.lane;
    uint32_t q_row = p.q + lane % 16 * T::PITCH + lane / 16 * 16;
    uint32_t k_row = stage + (p.share * COUNT * 8 + lane % 8 + lane / 16 * 8) * T::PITCH + lane / 8 % 2 * 16;
#pragma unroll 4
    for (int k = 0; k < D / 16; k++) {
        uint32_t q[4];
        load_matrix(q, q_row + k * 32);
#pragma unroll
        for (int n = 0; n < COUNT / 2; n++) {
            uint32_t b[4];
            load_matrix(b, k_row + n * 16 * T::PITCH + k * 32);
            mma_bf16(s[2 * n], q, b[0], b[1]);
            mma_bf16(s[2 * n + 1], q, b[2], b[3]);
        }
    }
    float(&flat)[COUNT * 4] = *(float(*)[COUNT * 4]) s;
    if (a.softcap > 0) cap_scores(flat, p.scale);
    if (BY_DISTANCE) move_scores(flat, p, first + p.share * COUNT * 8 + 2 * (lane % 4));
    if (!is_whole) hide_scores(flat, r, p.place, p.seen, first + p.share * COUNT * 8 + 2 * (lane % 4));
#pragma unroll
    for (int i = 0; i < COUNT * 4; i++) top[i / 2 % 2] = fmaxf(top[i / 2 % 2], flat[i]);
    for (int i = 0; i < 2; i++) top[i] = quad_max(top[i]);
    if (T::SPLIT == 1) return;
    int row = p.warp * 16 + lane / 4;
    for (int i = 0; i < 2; i++)
        if (lane % 4 == 0) p.maxima[p.share * TILE_ROWS + row + 8 * i] = top[i];
    __syncthreads();
    for (int i = 0; i < 2; i++) top[i] = fmaxf(top[i], p.maxima[(1 - p.share) * TILE_ROWS + row + 8 * i]);
}

__device__ __forceinline__ void store_pair(unsigned char *shared, uint32_t at, uint32_t pair)
{
    *(uint32_t *)(shared + (at - shared_address(shared))) = pair;
}

template <int D, int VALUE_AT, bool KEYS_ONLY, bool BY_DISTANCE>
__device__ __forceinline__ void attend_kv_tile(const masked_args &a, const struct rows &r,
                                               const struct part &p, float (*o)[4],
                                               struct softmax_state (&state)[2], unsigned char *shared,
                                               uint32_t stage, int32_t first, bool is_whole)
{
    using T = masked_traits<D, VALUE_AT>;
    constexpr int COUNT = T::KEYS / 8 / T::SPLIT;
    float s[COUNT][4] = {}, top[2] = {state[0].maximum, state[1].maximum};
    make_scores<D, VALUE_AT, BY_DISTANCE>(a, r, p, s, top, stage, first, is_whole);
    float base[2], rescale[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        base[i] = __fmul_rn(softmax_base(top[i]), p.scale[i].to_log2);
        rescale[i] = softmax_raise(&state[i], top[i], p.scale[i].to_log2);
        state[i].sum = __fmul_rn(state[i].sum, rescale[i]);
    }
    uint32_t to = p.weights + p.lane / 4 * T::WEIGHT_PITCH + (p.share * COUNT * 8 + 2 * (p.lane % 4)) * 2;
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s[n][i] = exp2_fast(__fmaf_rn(s[n][i], p.scale[i / 2].to_log2, -base[i / 2]));
            state[i / 2].sum = __fadd_rn(state[i / 2].sum, s[n][i]);
        }
        store_pair(shared, to + n * 16, pack_bf16(s[n][0], s[n][1]));
        store_pair(shared, to + 8 * T::WEIGHT_PITCH + n * 16, pack_bf16(s[n][2], s[n][3]));
    }
#pragma unroll
    for (int n = 0; n < T::COLUMNS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) o[n][i] = __fmul_rn(o[n][i], rescale[i / 2]);
    if (T::SPLIT == 1)
        __syncwarp();
    else
        __syncthreads();
    uint32_t w_row = p.weights + p.lane % 16 * T::WEIGHT_PITCH + p.lane / 16 * 16;
    uint32_t v_row = stage + (KEYS_ONLY ? 0 : T::TILE_BYTES) + p.lane % 16 * T::PITCH +
                     (VALUE_AT + p.share * T::COLUMNS) * 2 + p.lane / 16 * 16;
#pragma unroll
    for (int k = 0; k < T::KEYS / 16; k++) {
        uint32_t w[4];
        load_matrix(w, w_row + k * 32);
#pragma unroll
        for (int n = 0; n < T::COLUMNS / 16; n++) {
            uint32_t b[4];
            load_matrix_transposed(b, v_row + k * 16 * T::PITCH + n * 32);
            mma_bf16(o[2 * n], w, b[0], b[1]);
            mma_bf16(o[2 * n + 1], w, b[2], b[3]);
        }
    }
}

/* Of rows g + 8 i: to the output, or to where splits are merged. Two columns at a time: sizes are even. */
template <int D, int VALUE_AT>
__device__ void store_rows(const masked_args &a, const struct rows &r, const struct part &p,
                           const float (*o)[4], const struct softmax_state (&state)[2])
{
    using T = masked_traits<D, VALUE_AT>;
    int g = p.lane / 4, t = p.lane % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float sum = quad_sum(state[i].sum), maximum = __fmul_rn(state[i].maximum, p.scale[i].to_log2);
        if (T::SPLIT > 1) {
            int row = p.warp * 16 + g + 8 * i;
            if (t == 0) p.sums[p.share * TILE_ROWS + row] = sum;
            __syncthreads();
            sum = __fadd_rn(p.sums[row], p.sums[TILE_ROWS + row]);
        }
        if (r.first + p.warp * 16 + g + 8 * i >= r.count) continue;
        bool is_whole = r.num_splits == 1;
        if (is_whole) sum = softmax_with_sink(sum, maximum, a.sinks, p.head[i]);
        float inverse = 1.0f / sum;
        size_t token = (size_t)(r.first_token + p.place[i] - r.offset);
        __nv_bfloat16 *out = a.out + (token * a.num_heads + p.head[i]) * a.head_dim;
        float *partial = is_whole ? NULL : partial_of(a, r, p.head[i]);
        if (!is_whole && t == 0 && p.share == 0) {
            partial[a.value_dim] = maximum;
            partial[a.value_dim + 1] = sum;
        }
#pragma unroll
        for (int n = 0; n < T::COLUMNS / 8; n++) {
            int32_t column = VALUE_AT + p.share * T::COLUMNS + 8 * n + 2 * t - a.value_at;
            if (column < 0 || column >= a.value_dim) continue;
            if (is_whole)
                *(uint32_t *)(out + column) = pack_bf16(o[n][2 * i] * inverse, o[n][2 * i + 1] * inverse);
            else
                *(float2 *)(partial + column) = make_float2(o[n][2 * i], o[n][2 * i + 1]);
        }
    }
}

template <int D, int VALUE_AT, bool KEYS_ONLY> constexpr int shared_bytes(void)
{
    using T = masked_traits<D, VALUE_AT>;
    return T::Q_BYTES + T::WEIGHT_BYTES + T::STATE_BYTES + T::STAGES * (KEYS_ONLY ? 1 : 2) * T::TILE_BYTES;
}

template <int D, int VALUE_AT, bool KEYS_ONLY, bool BY_DISTANCE>
__device__ __forceinline__ void attend_rows(const masked_args &a, const struct by_distance &by)
{
    using T = masked_traits<D, VALUE_AT>;
    constexpr int STAGE_BYTES = (KEYS_ONLY ? 1 : 2) * T::TILE_BYTES;
    extern __shared__ __align__(128) unsigned char shared[];
    struct rows r;
    if (!find_rows(a, blockIdx.x, blockIdx.z, &r)) return;
    int32_t kv_head = blockIdx.y;
    const int32_t *table = a.base + a.counts[COUNT_TABLES] + a.table_offsets[r.seq];
    struct part p = part_of<D, VALUE_AT>(a, r, kv_head, shared);
    if (BY_DISTANCE) prepare_move(a, by, &p);
    uint32_t ring = shared_address(shared) + T::Q_BYTES + T::WEIGHT_BYTES + T::STATE_BYTES;
    float o[T::COLUMNS / 8][4] = {};
    struct softmax_state state[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
    auto load = [&](int32_t first, int stage) {
        if (first < r.end)
            load_kv_tile<D, VALUE_AT, KEYS_ONLY>(a, r, table, kv_head, first, ring + stage * STAGE_BYTES);
        copy_commit();
    };
    int32_t first = next_tile<T::KEYS>(a, r, r.begin / T::KEYS * T::KEYS);
    load_queries<D, VALUE_AT>(a, r, kv_head, shared_address(shared));
    load(first, 0);
    for (int stage = 0; first < r.end; stage = (stage + 1) % T::STAGES) {
        int32_t after = next_tile<T::KEYS>(a, r, first + T::KEYS);
        if (T::STAGES == 2) {
            load(after, 1 - stage);
            copy_wait<1>();
        } else {
            copy_wait<0>();
        }
        __syncthreads();
        attend_kv_tile<D, VALUE_AT, KEYS_ONLY, BY_DISTANCE>(a, r, p, o, state, shared,
                                                            ring + stage * STAGE_BYTES, first,
                                                            class_of<T::KEYS>(a, r, first) == MASK_WHOLE);
        __syncthreads();
        if (T::STAGES == 1) load(after, 0);
        first = after;
    }
    copy_wait<0>();
    store_rows<D, VALUE_AT>(a, r, p, o, state);
}

template <int D, int VALUE_AT, bool KEYS_ONLY>
__global__ void __launch_bounds__(masked_traits<D, VALUE_AT>::WARPS * 32) masked_kernel(masked_args a)
{
    attend_rows<D, VALUE_AT, KEYS_ONLY, false>(a, {});
}

template <int D>
__global__ void __launch_bounds__(masked_traits<D, 0>::WARPS * 32)
    distance_kernel(masked_args a, struct by_distance by)
{
    attend_rows<D, 0, false, true>(a, by);
}

/* The splits of a head's row. */
struct merged_row {
    const float *from; /* the first one's result */
    size_t stride;     /* to the next one's, in floats */
    int32_t num_splits;
};

/* What each split's values are multiplied by, and the row's softmax. One warp. */
__device__ struct softmax_state weigh_splits(const struct merged_row &m, int32_t value_dim,
                                             float (&factors)[MASKED_SPLITS_MAX])
{
    constexpr int TURNS = MASKED_SPLITS_MAX / 32;
    struct softmax_state states[TURNS], all = {-INFINITY, 0};
#pragma unroll
    for (int i = 0; i < TURNS; i++) {
        const int32_t split = 32 * i + threadIdx.x % 32;
        states[i] = {-INFINITY, 0};
        if (split < m.num_splits) {
            const float2 at = *(const float2 *)(m.from + split * m.stride + value_dim);
            states[i] = {at.x, at.y};
        }
        all.maximum = fmaxf(all.maximum, states[i].maximum);
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        all.maximum = fmaxf(all.maximum, __shfl_xor_sync(~0u, all.maximum, step));
    const float base = softmax_base(all.maximum);
#pragma unroll
    for (int i = 0; i < TURNS; i++) {
        const float factor = exp2_fast(__fsub_rn(states[i].maximum, base));
        factors[32 * i + threadIdx.x % 32] = factor;
        all.sum = __fmaf_rn(states[i].sum, factor, all.sum);
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        all.sum = __fadd_rn(all.sum, __shfl_xor_sync(~0u, all.sum, step));
    return all;
}

/* A split's values of the columns from one on; none of one that is not there. */
__device__ __forceinline__ float4 split_values(const struct merged_row &m, int32_t split, int32_t column)
{
    if (split >= m.num_splits) return make_float4(0, 0, 0, 0);
    const float *at = m.from + split * m.stride + column;
    const float2 low = *(const float2 *)at, high = *(const float2 *)(at + 2);
    return make_float4(low.x, low.y, high.x, high.y);
}

__device__ __forceinline__ float4 add_weighed(float4 sum, float4 x, float factor)
{
    return make_float4(__fmaf_rn(x.x, factor, sum.x), __fmaf_rn(x.y, factor, sum.y),
                       __fmaf_rn(x.z, factor, sum.z), __fmaf_rn(x.w, factor, sum.w));
}

/* A CTA a decoding sequence's head: its splits' results, of at most 512 columns. AT_ONCE: parts that have threads of their own; it
 * changes no bit. Each part's first values are under way while the factors are made: of few splits there are no others. */
template <int AT_ONCE> __global__ void __launch_bounds__(AT_ONCE *PART_THREADS) merge_kernel(masked_args a)
{
    constexpr int OWN = MERGE_PARTS / AT_ONCE;
    __shared__ float factors[MASKED_SPLITS_MAX], inverse;
    __shared__ float4 of_parts[AT_ONCE][PART_THREADS];
    const int32_t seq = a.first_seq + blockIdx.x, head = blockIdx.y, seqlen = a.seqlens_k[seq];
    const int32_t num_splits = seqlen > 0 ? cut_of(seqlen, 0, a.splits_most).end_split : 1;
    dependency_wait();
    if (num_splits == 1) return;
    const size_t row_floats = (size_t)a.value_dim + PARTIAL_EXTRA;
    const struct merged_row m = {a.partial +
                                     ((size_t)blockIdx.x * a.splits_room * a.num_heads + head) * row_floats,
                                 a.num_heads * row_floats, num_splits};
    const int32_t part = threadIdx.x / PART_THREADS, thread = threadIdx.x % PART_THREADS,
                  of_part = (num_splits + MERGE_PARTS - 1) / MERGE_PARTS,
                  column = min(thread * MERGE_COLUMNS, a.value_dim - MERGE_COLUMNS);
    float4 sums[OWN];
#pragma unroll
    for (int i = 0; i < OWN; i++) sums[i] = split_values(m, (part * OWN + i) * of_part, column);
    if (threadIdx.x < 32) {
        const struct softmax_state all = weigh_splits(m, a.value_dim, factors);
        if (threadIdx.x == 0) inverse = 1.0f / softmax_with_sink(all.sum, all.maximum, a.sinks, head);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        const int32_t begin = (part * OWN + i) * of_part;
        if (begin < num_splits) sums[i] = add_weighed(make_float4(0, 0, 0, 0), sums[i], factors[begin]);
#pragma unroll 8
        for (int32_t split = begin + 1; split < min(begin + of_part, num_splits); split++)
            sums[i] = add_weighed(sums[i], split_values(m, split, column), factors[split]);
    }
    if (AT_ONCE > 1) {
        of_parts[part][thread] = sums[0];
        __syncthreads();
        if (part > 0) return;
    }
    float4 all = sums[0];
#pragma unroll
    for (int i = 1; i < MERGE_PARTS; i++) {
        const float4 x = AT_ONCE > 1 ? of_parts[i % AT_ONCE][thread] : sums[i % OWN];
        all = make_float4(__fadd_rn(all.x, x.x), __fadd_rn(all.y, x.y), __fadd_rn(all.z, x.z),
                          __fadd_rn(all.w, x.w));
    }
    if (thread * MERGE_COLUMNS >= a.value_dim) return;
    __nv_bfloat16 *out = a.out + ((size_t)a.cu_seqlens_q[seq] * a.num_heads + head) * a.head_dim;
    *(uint2 *)(out + column) =
        make_uint2(pack_bf16(all.x * inverse, all.y * inverse), pack_bf16(all.z * inverse, all.w * inverse));
}

template <int D, int VALUE_AT, bool KEYS_ONLY>
void launch(struct cuda_device *d, const masked_args &a, dim3 grid)
{
    constexpr int BYTES = shared_bytes<D, VALUE_AT, KEYS_ONLY>(),
                  THREADS = masked_traits<D, VALUE_AT>::WARPS * 32;
    auto kernel = masked_kernel<D, VALUE_AT, KEYS_ONLY>;
    if (!cuda_allow_shared(d, (const void *)kernel, BYTES)) return;
    kernel<<<checked_grid(grid), THREADS, BYTES, d->stream>>>(a);
}

template <int D>
void launch_by_distance(struct cuda_device *d, const masked_args &a, const struct by_distance &by, dim3 grid)
{
    constexpr int BYTES = shared_bytes<D, 0, false>(), THREADS = masked_traits<D, 0>::WARPS * 32;
    if (!cuda_allow_shared(d, (const void *)distance_kernel<D>, BYTES)) return;
    distance_kernel<D><<<checked_grid(grid), THREADS, BYTES, d->stream>>>(a, by);
}

void launch(struct cuda_device *d, const masked_args &a, const struct by_distance &by,
            const struct kv_pool *pool, int32_t layer, dim3 grid)
{
    if (by.most > 0 || by.reach > 0)
        a.head_dim <= 64    ? launch_by_distance<64>(d, a, by, grid)
        : a.head_dim <= 128 ? launch_by_distance<128>(d, a, by, grid)
                            : launch_by_distance<256>(d, a, by, grid);
    else if (wide_hopper_supports(d, a.head_dim))
        wide_hopper_launch(d, &a, pool, layer, grid);
    else if (a.value_at > 0)
        a.head_dim <= 128   ? launch<128, 0, true>(d, a, grid)
        : a.head_dim <= 256 ? launch<256, 0, true>(d, a, grid)
        : a.head_dim <= 320 ? launch<320, 64, true>(d, a, grid)
                            : launch<576, 64, true>(d, a, grid);
    else
        a.head_dim <= 64    ? launch<64, 0, false>(d, a, grid)
        : a.head_dim <= 128 ? launch<128, 0, false>(d, a, grid)
        : a.head_dim <= 256 ? launch<256, 0, false>(d, a, grid)
                            : launch<512, 0, false>(d, a, grid);
}

/* Prompts: so many tiles there may be; those that are too many end at once. */
void launch_prefill(struct cuda_device *d, masked_args a, const struct by_distance &by, const struct batch *b,
                    const struct kv_pool *pool, int32_t layer)
{
    int32_t rows = b->num_prefill_tokens * a.group;
    a.first_seq = 0;
    a.end_seq = b->num_prefill_seqs;
    launch(d, a, by, pool, layer,
           dim3((unsigned)(rows / TILE_ROWS + b->num_prefill_seqs), (unsigned)a.num_kv_heads));
}

/* Of a decoding sequence. Where attention_wide_hopper.cu computes, whose CTAs stay, one or two heads have so many that each SM has one. */
int32_t most_splits(const struct cuda_device *d, int32_t head_dim, int32_t num_items)
{
    const int32_t most = splits_most_of(num_items);
    return d->is_hopper && head_dim > 256 ? max(most, (int32_t)MASKED_SPLITS_MAX / num_items) : most;
}

int32_t tiles_of_group(int32_t group)
{
    return (int32_t)div_up(group, TILE_ROWS);
}

/* Of a sequence; of the model, where this device has a share of its heads. */
int32_t num_items_of_all(const struct attention_args *a)
{
    const struct attention_args all = cuda_attention_of_all(a);
    return all.num_kv_heads * tiles_of_group(decode_group(&all));
}

void launch_decode(struct cuda_device *d, masked_args a, const struct by_distance &by, const struct batch *b,
                   const struct kv_pool *pool, int32_t layer, const struct attention_args *args)
{
    int32_t num_seqs = b->num_seqs - b->num_prefill_seqs;
    a.first_seq = b->num_prefill_seqs;
    a.end_seq = b->num_seqs;
    a.tiles_per_seq = tiles_of_group(a.group);
    a.splits_most = most_splits(d, a.head_dim, num_items_of_all(args));
    a.splits_room = splits_bound_of(d->limits.max_model_len, a.splits_most);
    a.partial = d->attention_partial;
    launch(d, a, by, pool, layer,
           dim3((unsigned)(num_seqs * a.tiles_per_seq), (unsigned)a.num_kv_heads, (unsigned)a.splits_room));
    const dim3 rows((unsigned)num_seqs, (unsigned)a.num_heads);
    if (num_seqs * a.num_heads <= FEW_ROWS)
        launch_dependent(d, merge_kernel<MERGE_PARTS>, rows, dim3(MERGE_PARTS * PART_THREADS), 0, a);
    else
        launch_dependent(d, merge_kernel<1>, rows, dim3(PART_THREADS), 0, a);
}

} // namespace

/* Plans of the other kernels are made for heads of one kind, and for as many items of them as a K/V head's query heads are; where layers differ they are in a pool whose blocks are whole numbers of
 * such heads (kv_pool.cu). */
bool cuda_attention_is_masked(const struct cuda_device *d, const struct attention_args *args)
{
    if (args->chunk > 0 || args->temperature_floor > 0 || args->alibi_most > 0 || args->distance_reach > 0 ||
        d->latent_rotary_dim > 0)
        return true;
    if (cuda_all_decode_heads(args) != cuda_all_decode_heads(&d->attention)) return true;
    if (!d->layers_differ) return !cuda_attention_supports(args->head_dim);
    return !cuda_attention_has_different(args->head_dim) || args->head_dim != d->attention.head_dim ||
           cuda_all_kv_heads(args) != cuda_all_kv_heads(&d->attention);
}

size_t cuda_masked_partial_floats(const struct cuda_device *d, const struct step_limits *limits,
                                  const struct attention_args *args)
{
    const int32_t most = most_splits(d, args->head_dim, num_items_of_all(args)),
                  splits = splits_bound_of(limits->max_model_len, most);
    return (size_t)limits->num_seqs * splits * args->num_heads * (args->head_dim + PARTIAL_EXTRA);
}

/* The widest are those of latents, of a GPU that has room for their tiles. */
bool cuda_attention_masked_supports(const struct cuda_device *d, int32_t head_dim)
{
    if (head_dim % 8 != 0) return false;
    return head_dim <= 256 || (head_dim == 512 && d->cta_shared_bytes >= shared_bytes<512, 0, false>()) ||
           (head_dim == 320 && d->cta_shared_bytes >= shared_bytes<320, 64, true>()) ||
           (head_dim == 576 && d->cta_shared_bytes >= shared_bytes<576, 64, true>());
}

void cuda_attention_masked(struct cuda_device *d, const struct batch *b, __nv_bfloat16 *out,
                           const __nv_bfloat16 *qkv, const struct kv_pool *pool, int32_t layer,
                           const struct attention_args *args)
{
    assert_always(!kv_pool_has_codes(pool));
    masked_args a = {};
    a.out = out;
    a.qkv = qkv;
    a.pool = kv_pool_layer(pool, layer, args->num_kv_heads, args->head_dim);
    a.cu_seqlens_q = b->cu_seqlens_q;
    a.seqlens_k = b->seqlens_k;
    a.table_offsets = b->kv_groups[args->kv_group].table_offsets;
    a.counts = b->counts;
    a.base = b->tables;
    a.sequence_masks = b->sequence_masks;
    a.block_elements = pool->block_elements;
    a.v_elements = (size_t)args->num_kv_heads * BLOCK_SIZE * args->head_dim;
    a.num_heads = args->num_heads;
    a.num_kv_heads = args->num_kv_heads;
    a.row_heads = cuda_row_heads(args);
    a.group = args->num_heads / args->num_kv_heads;
    a.head_dim = args->head_dim;
    a.value_at = d->latent_rotary_dim;
    a.value_dim = args->head_dim - d->latent_rotary_dim;
    a.layer = mask_layer_of(args);
    a.scale_log2 = (args->softcap > 0 ? args->softcap : args->scale) * 1.4426950408889634f;
    a.softcap = args->softcap > 0 ? args->scale / args->softcap : 0;
    a.sinks = args->sinks;
    const struct by_distance by = {args->alibi_most,
                                   (args->distance_reach > 0 ? 1 : args->alibi_scale) / args->scale,
                                   args->distance_bias, args->distance_reach};
    if (b->num_prefill_seqs > 0) {
        if (d->expands_latents)
            cuda_latent_prompts(d, b, pool, layer, args);
        else if (masked_hopper_supports(d, args->head_dim) && by.most == 0 && by.reach == 0)
            masked_hopper_launch(d, b, out, qkv, pool, layer, args);
        else
            launch_prefill(d, a, by, b, pool, layer);
    }
    if (b->num_seqs > b->num_prefill_seqs) launch_decode(d, a, by, b, pool, layer, args);
    cuda_check(d, cudaPeekAtLastError(), "masked attention");
}
