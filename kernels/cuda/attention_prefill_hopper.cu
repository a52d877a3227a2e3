/* attention_prefill_hopper.cu - FlashAttention-2 forward over the paged pool for sm_90a, head_dim 64, 128 and 256.
 *
 * A CTA stays on its SM and takes one item (tile of query rows, head) after another from a common queue. One
 * warp is the producer: it has the copy engine bring Q and, by kv tiles of 128 tokens, K and V. Two (head_dim
 * 128 and 256) or three (64) groups of four warps are the consumers, 64 query rows each, so no score leaves its
 * thread's registers or its group. head_dim 256 has kv tiles of 80 tokens: two stages of them and 128 rows of Q
 * fill the shared memory. There Q is let go with an item's last scores, and comes behind the next item's first K.
 *
 *   producer: Q K V K V K V ...   next item's Q K V ...        runs ahead as far as the rings have room
 *   consumer: S = Q K(n) | S = Q K(n-1)  and meanwhile  O += P(n) V(n) | softmax of S while that runs | ...
 *
 * A page of one head is 16 rows, 4 KB for head_dim 128. The pool is described to the copy engine as
 * (64 columns, 8 rows, D / 64 halves, groups of 8 rows), so that one copy brings a page and what lies in
 * shared memory is a row of swizzled atoms, [group of 8 rows][half][8][128 bytes]: uniform distances, hence
 * one descriptor a tile, whatever pages it is made of. The layer is part of the index of a group: a single
 * map serves the pool.
 *
 * Kv tiles are walked from the last to the first, so that masks are met at the start. They begin at
 * multiples of their tokens whatever the chunk; a tile beyond a row's position leaves its sums as they were (all
 * weights 0, maximum unchanged, and the rescale factor of an unchanged maximum is exactly 1). So a row's bits
 * depend on its position and its sequence's keys alone, not on which rows share its tile. Products and sums
 * are written as explicit fused operations, lest two copies of the code be contracted differently.
 *
 * Long sequences are cut into pieces of 8,192 keys (head_dim 256: 8,160), by position as well, and their results are merged
 * from the last piece to the first. One CTA walks them all, the merged result in a slot of its own in memory; or, where a step
 * has few rows, each piece is an item with a slot for its result, and whichever warp comes last merges its rows, with the same
 * operations.
 *
 * Keys past the end: their scores are masked. Their weights are 0, but 0 x NaN is NaN, so V's rows past the
 * end are made zero: whole pages by the copy engine (a page outside the map reads as zeros), the rest of the
 * last page in shared memory.
 *
 * Sources: Shah et al., "FlashAttention-3", 2024, for the overlap of the softmax with the product before. */
#include <algorithm>

#include "kernels/cuda/arrival.cuh"
#include "kernels/cuda/attention_prefill.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/kv_pool.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/softmax.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace
{

enum { GROUP_ROWS = 64, GROUP_THREADS = 128, ATOM_BYTES = 1024 };

template <int D> struct hopper_traits {
    static constexpr int CONSUMERS = D == 64 ? 3 : 2; /* groups of warps */
    static constexpr int ROWS = CONSUMERS * GROUP_ROWS;
    static constexpr int THREADS = (CONSUMERS + 1) * GROUP_THREADS;
    static constexpr int TILE_TOKENS = D == 256 ? 80 : PREFILL_KV_TILE_MAX; /* of a kv tile */
    static constexpr int TILE_PAGES = TILE_TOKENS / BLOCK_SIZE;
    static constexpr int PIECE_TILES = prefill_piece_tokens(D) / TILE_TOKENS;
    static constexpr int SCORES = TILE_TOKENS / 2; /* of a thread */
    static constexpr int HALVES = D / 64;
    static constexpr int STAGES = D == 256 ? 2 : 3;
    static constexpr int Q_STAGES = D == 64 ? 2 : 1;
    static constexpr bool Q_IN_REGISTERS = D == 128; /* frees its buffer at once */
    static constexpr bool Q_IS_LATE = D == 256; /* its only buffer is read as long as the item's keys are */
    static constexpr int PAGE_BYTES = BLOCK_SIZE * D * 2;
    static constexpr int TILE_BYTES = TILE_TOKENS * D * 2;
    static constexpr int Q_BYTES = ROWS * D * 2;
    static constexpr int SHARED_BYTES = ATOM_BYTES + Q_STAGES * Q_BYTES + 2 * STAGES * TILE_BYTES + 256;
    static constexpr int GROUP_VECTORS =
        (D / 8 + 1) * GROUP_THREADS; /* of a slot: 16 bytes a thread and turn */
    static constexpr int SLOT_VECTORS = CONSUMERS * GROUP_VECTORS;
    static constexpr int SLOTS_PER_SM = D == 256 ? 4 : 8; /* 256 rows of 32 heads (16) in 16 pieces */
    static constexpr bool REGISTERS_ARE_SHORT = D == 256; /* o alone takes 128 */
    static constexpr int PRODUCER_REGISTERS = CONSUMERS == 3 ? 32 : 40;
    static constexpr int CONSUMER_REGISTERS = CONSUMERS == 3 ? 160 : 232;
    static_assert(prefill_piece_tokens(D) % TILE_TOKENS == 0, "a piece is whole tiles");
};

struct hopper_args {
    struct prefill_args a;
    int32_t num_items;
    int32_t first_block;               /* of the layer, counted over the whole pool */
    int32_t num_groups;                /* groups of 8 rows in the pool: the first index outside it */
    uint32_t *items_taken, *ctas_gone; /* the queue */
    float4 *slots;                     /* of items that are pieces, then of CTAs */
    int32_t *arrivals;                 /* [slots of pieces][warps of consumers] */
    int32_t num_piece_slots;
};

/* What the producer tells the consumers about an item. */
struct item {
    int32_t head; /* -1: there is no more */
    int32_t first_token, first_row, num_rows, seqlen, table_offset;
    int32_t piece, slot; /* slot: of its piece 0; piece -1: all of them */
};

/* Shared memory: buffers, barriers, and the items that the buffers of Q belong to. */
template <int D> struct view {
    using T = hopper_traits<D>;
    uint32_t q_ring, ring, barriers;
    struct item *items;

    __device__ explicit view(unsigned char *shared)
    {
        uint32_t begin = shared_address(shared);
        q_ring = (begin + ATOM_BYTES - 1) & ~(uint32_t)(ATOM_BYTES - 1);
        ring = q_ring + T::Q_STAGES * T::Q_BYTES;
        barriers = ring + 2 * T::STAGES * T::TILE_BYTES;
        items = (struct item *)(shared + (barriers - begin) + 8 * (2 * T::Q_STAGES + 4 * T::STAGES));
    }
    __device__ uint32_t q(int stage) const { return q_ring + stage * T::Q_BYTES; }
    __device__ uint32_t q_full(int stage) const { return barriers + 8 * stage; }
    __device__ uint32_t q_empty(int stage) const { return barriers + 8 * (T::Q_STAGES + stage); }
    __device__ uint32_t tile(bool v, int stage) const
    {
        return ring + ((v ? T::STAGES : 0) + stage) * T::TILE_BYTES;
    }
    __device__ uint32_t full(bool v, int stage) const
    {
        return barriers + 8 * (2 * T::Q_STAGES + (v ? T::STAGES : 0) + stage);
    }
    __device__ uint32_t empty(bool v, int stage) const { return full(v, stage) + 8 * 2 * T::STAGES; }
};

/* Kv tiles of an item that any of the rows [first_row, first_row + rows) of a chunk sees: [begin, end), none where end is not
 * above begin. */
template <int D>
__device__ __forceinline__ void kv_tiles(const struct item &w, int32_t sliding_window, int32_t first_row,
                                         int32_t rows, int32_t *begin, int32_t *end)
{
    using T = hopper_traits<D>;
    int32_t offset = w.seqlen - w.num_rows, last_row = min(first_row + rows, w.num_rows) - 1;
    *begin = sliding_window > 0 ? max(offset + first_row - sliding_window + 1, 0) / T::TILE_TOKENS : 0;
    *end = last_row < first_row ? *begin : (offset + last_row) / T::TILE_TOKENS + 1;
    if (w.piece < 0) return;
    *begin = max(*begin, w.piece * T::PIECE_TILES);
    *end = min(*end, (w.piece + 1) * T::PIECE_TILES);
}

/* Whoever comes takes the next item, and the last to leave sets the queue back. One launch runs at a time: a device has one
 * stream. */
__device__ __forceinline__ void leave_queue(const hopper_args &h)
{
    __threadfence();
    if (atomicAdd(h.ctas_gone, 1) + 1 < gridDim.x) return;
    *h.items_taken = *h.ctas_gone = 0;
}

/* The item and its rows of Q, or that there is no more. */
template <int D>
__device__ __forceinline__ void produce_q(const hopper_args &h, const CUtensorMap *q_map, const view<D> &s,
                                          const struct item &w, const struct pipeline_state &q)
{
    using T = hopper_traits<D>;
    uint32_t full = s.q_full(q.stage);
    barrier_wait(s.q_empty(q.stage), q.parity ^ 1);
    if (threadIdx.x % 32 == 0) {
        s.items[q.stage] = w;
        if (w.head < 0) {
            barrier_arrive(full);
            leave_queue(h);
        } else {
            barrier_arrive_expect(full, T::Q_BYTES);
            for (int half = 0; half < T::HALVES; half++)
                tensor_load_2d(s.q(q.stage) + half * T::ROWS * 128, q_map, full, w.head * D + half * 64,
                               w.first_token + w.first_row);
        }
    }
}

/* Where Q is late, its buffer is waited for behind the first tile of K. */
template <int D>
__device__ void produce_kv(const hopper_args &h, const CUtensorMap *q_map, const CUtensorMap *pool_map,
                           const view<D> &s, const struct item &w, const struct pipeline_state &q,
                           struct pipeline_state *c)
{
    using T = hopper_traits<D>;
    const prefill_args &a = h.a;
    int lane = threadIdx.x % 32;
    const int32_t *table = a.tables + w.table_offset;
    int32_t num_pages = (w.seqlen + BLOCK_SIZE - 1) / BLOCK_SIZE, kv_head = w.head / a.group, begin, end;
    kv_tiles<D>(w, a.sliding_window, w.first_row, T::ROWS, &begin, &end);
    auto block_of = [&](int32_t n) {
        int32_t page = n * T::TILE_PAGES + lane;
        return lane < T::TILE_PAGES && page < num_pages ? table[page] : -1;
    };
    int32_t next = end > begin ? block_of(end - 1) : -1;
    if (T::Q_IS_LATE && end <= begin) produce_q<D>(h, q_map, s, w, q);
    for (int32_t n = end - 1; n >= begin; n--) {
        int32_t block = next;
        if (n > begin) next = block_of(n - 1);
        for (int v = 0; v < 2; v++) {
            int32_t group = ((h.first_block + block) * 2 + v) * a.num_kv_heads + kv_head;
            group = block < 0 ? h.num_groups : group * (BLOCK_SIZE / 8);
            uint32_t full = s.full(v, c->stage);
            barrier_wait(s.empty(v, c->stage), c->parity ^ 1);
            if (lane == 0) barrier_arrive_expect(full, T::TILE_BYTES);
            __syncwarp();
            if (lane < T::TILE_PAGES)
                tensor_load_4d(s.tile(v, c->stage) + lane * T::PAGE_BYTES, pool_map, full, 0, 0, 0, group);
            if (T::Q_IS_LATE && !v && n == end - 1) produce_q<D>(h, q_map, s, w, q);
        }
        c->advance(T::STAGES);
    }
}

/* The item of this index, or the one that says that there is no more. Layers with a window see no more than some pieces: one
 * item walks them, and those of the others are empty. */
__device__ __forceinline__ struct item find_item(const hopper_args &h, int32_t index)
{
    struct item w = {};
    w.head = -1;
    if (index >= h.num_items) return w;
    const prefill_args &a = h.a;
    struct prefill_tile tile = a.tiles[index / a.heads_per_tile];
    int32_t head = index % a.heads_per_tile;
    bool whole = tile.num_pieces == 1 || a.sliding_window > 0;
    w.head = tile.first_head + head;
    w.first_row = tile.first_row;
    w.first_token = a.cu_seqlens_q[tile.seq];
    w.num_rows = tile.piece > 0 && whole ? 0 : a.cu_seqlens_q[tile.seq + 1] - w.first_token;
    w.seqlen = a.seqlens_k[tile.seq];
    w.table_offset = a.table_offsets[tile.seq];
    w.piece = whole ? -1 : tile.piece;
    w.slot = tile.first_slot + head * tile.num_pieces;
    return w;
}

/* The items after this one are looked up while this one's K and V are fetched: what follows is known when it is
 * needed. */
template <int D>
__device__ void produce(const hopper_args &h, const CUtensorMap *q_map, const CUtensorMap *pool_map,
                        const view<D> &s)
{
    using T = hopper_traits<D>;
    int lane = threadIdx.x % 32;
    auto take = [&] { return lane == 0 ? (int32_t)(gridDim.x + atomicAdd(h.items_taken, 1)) : 0; };
    struct pipeline_state q = {0, 0}, c = {0, 0};
    struct item w = find_item(h, blockIdx.x);
    int32_t after = take();
    for (;; q.advance(T::Q_STAGES)) {
        if (!T::Q_IS_LATE || w.head < 0) produce_q<D>(h, q_map, s, w, q);
        if (w.head < 0) return;
        struct item next = find_item(h, __shfl_sync(0xffffffffu, after, 0));
        after = take();
        produce_kv<D>(h, q_map, pool_map, s, w, q, &c);
        w = next;
    }
}

template <int N> __device__ __forceinline__ void cap_scores(float (&s)[N], float factor)
{
#pragma unroll
    for (int i = 0; i < N; i++) s[i] = softcap_score(s[i], factor);
}

/* first: position of s[0]'s row minus that of its key. Row half 1 is 8 positions later. */
template <int N>
__device__ __forceinline__ void mask_scores(float (&s)[N], int32_t first, int32_t sliding_window)
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        int32_t column = i / 4 * 8 + i % 2, limit = first + i / 2 % 2 * 8;
        if (column > limit || (sliding_window > 0 && column <= limit - sliding_window)) s[i] = -INFINITY;
    }
}

/* Scores of rows g and g + 8 become weights. rescale: what the rows' accumulators are to be multiplied by. */
template <int N>
__device__ __forceinline__ void softmax(float (&s)[N], struct softmax_state (&r)[2], float (&rescale)[2],
                                        float scale_log2)
{
    float top[2][2] = {{r[0].maximum, -INFINITY}, {r[1].maximum, -INFINITY}}, sum[2][2] = {};
#pragma unroll
    for (int i = 0; i < N; i++) top[i / 2 % 2][i % 2] = fmaxf(top[i / 2 % 2][i % 2], s[i]);
    float base[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float maximum = quad_max(fmaxf(top[i][0], top[i][1]));
        base[i] = -__fmul_rn(softmax_base(maximum), scale_log2);
        rescale[i] = softmax_raise(&r[i], maximum, scale_log2);
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        s[i] = exp2_fast(__fmaf_rn(s[i], scale_log2, base[i / 2 % 2]));
        sum[i / 2 % 2][i % 2] = __fadd_rn(sum[i / 2 % 2][i % 2], s[i]);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) r[i].sum = __fmaf_rn(r[i].sum, rescale[i], __fadd_rn(sum[i][0], sum[i][1]));
}

template <int N> __device__ __forceinline__ void pack_weights(uint32_t (&p)[N / 2], const float (&s)[N])
{
#pragma unroll
    for (int i = 0; i < N / 2; i++) p[i] = pack_bf16(s[2 * i], s[2 * i + 1]);
}

/* This warp's 16 rows of Q as A operands. */
template <int D> __device__ __forceinline__ void load_queries(uint32_t (&q)[D / 16][4], uint32_t from)
{
    using T = hopper_traits<D>;
    int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 16, chunk = threadIdx.x / 16 % 2;
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        load_matrix(q[i], from + i / 4 * T::ROWS * 128 + row * 128 + ((i % 4 * 2 + chunk) ^ row % 8) * 16);
}

/* An address that is the same in all lanes. Where registers are short the compiler is told, so that descriptors take none. */
template <int D> __device__ __forceinline__ uint32_t uniform(uint32_t address)
{
    return hopper_traits<D>::REGISTERS_ARE_SHORT ? __shfl_sync(0xffffffffu, address, 0) : address;
}

/* Q from registers for head_dim 128, where shared memory is what the products wait for; for 64 and 256 registers are
 * short. */
template <int D>
__device__ __forceinline__ void multiply_keys(float (&s)[hopper_traits<D>::SCORES],
                                              const uint32_t (&q)[D / 16][4], uint32_t q_address, uint32_t k)
{
    using T = hopper_traits<D>;
    uint64_t q_tile = wgmma_descriptor(uniform<D>(q_address), ATOM_BYTES, 16),
             k_tile = wgmma_descriptor(uniform<D>(k), T::HALVES * ATOM_BYTES, 16);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        int half = i / 4, bytes = i % 4 * 32;
        uint64_t columns = k_tile + ((half * ATOM_BYTES + bytes) >> 4);
        if constexpr (T::Q_IN_REGISTERS)
            wgmma_registers<0>(s, q[i], columns, i > 0);
        else
            wgmma_shared(s, q_tile + ((half * T::ROWS * 128 + bytes) >> 4), columns, i > 0);
    }
    wgmma_commit();
}

template <int D>
__device__ __forceinline__ void multiply_values(float (&o)[D / 2],
                                                const uint32_t (&p)[hopper_traits<D>::SCORES / 2], uint32_t v)
{
    using T = hopper_traits<D>;
    uint64_t v_tile = wgmma_descriptor(uniform<D>(v), T::HALVES * ATOM_BYTES, ATOM_BYTES);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < T::TILE_TOKENS / 16; i++)
        wgmma_registers<1>(o, p + 4 * i, v_tile + ((i * T::PAGE_BYTES) >> 4), 1);
    wgmma_commit();
}

/* Rows [first, next multiple of BLOCK_SIZE) of a tile of V. Every group does it for itself: all write the
 * same zeros. */
template <int D> __device__ __noinline__ void zero_rows(uint32_t tile, int32_t first, int group)
{
    using T = hopper_traits<D>;
    constexpr int CHUNKS = T::HALVES * 8;
    int32_t count = (BLOCK_SIZE - first % BLOCK_SIZE) * CHUNKS;
    for (int32_t i = threadIdx.x % GROUP_THREADS; i < count; i += GROUP_THREADS) {
        int32_t row = first + i / CHUNKS, chunk = i % CHUNKS;
        store_zeros(tile + (row / 8 * T::HALVES + chunk / 8) * ATOM_BYTES + row % 8 * 128 + chunk % 8 * 16);
    }
    shared_writes_fence();
    named_barrier_sync(1 + group, GROUP_THREADS);
}

/* A warp has read a tile of K or V to the end. */
__device__ __forceinline__ void release(uint32_t barrier)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

/* Groups take turns at issuing products, so that one's products run under the others' softmax. A turn a tile,
 * whether or not the group computes it. Barrier 8 + group: this group's turn. */
template <int D> __device__ __forceinline__ void turn_begin(int group)
{
    named_barrier_sync(8 + group, 2 * GROUP_THREADS);
}

template <int D> __device__ __forceinline__ void turn_end(int group)
{
    named_barrier_arrive(8 + (group + 1) % hopper_traits<D>::CONSUMERS, 2 * GROUP_THREADS);
}

/* Lane t of a quad holds w[k], k = 0..3, of row k; afterwards it holds row t, whose elements are in order of
 * lanes. */
__device__ __forceinline__ void transpose_quad(uint32_t (&w)[4])
{
    bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        uint32_t other = __shfl_xor_sync(0xffffffffu, odd ? w[i] : w[i + 1], 1);
        (odd ? w[i] : w[i + 1]) = other;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t other = __shfl_xor_sync(0xffffffffu, high ? w[i] : w[i + 2], 2);
        (high ? w[i] : w[i + 2]) = other;
    }
}

/* Divides by the sums, and stores 16 bytes a lane. */
template <int D, bool EXTRA>
__device__ __forceinline__ void store_rows(const prefill_args &a, const struct item &w, int32_t row,
                                           float (&o)[D / 2], const struct softmax_state (&r)[2])
{
    int t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float sum = quad_sum(r[i].sum);
        if (EXTRA) sum = softmax_with_sink(sum, r[i].maximum * a.scale_log2, a.sinks, w.head);
        bool valid = row + 8 * i < w.num_rows;
        float inverse = 1.0f / sum;
        __nv_bfloat16 *to = a.out + ((size_t)(w.first_token + row + 8 * i) * a.num_heads + w.head) * D;
#pragma unroll
        for (int n = 0; n < D / 8; n += 4) {
            uint32_t packed[4];
#pragma unroll
            for (int k = 0; k < 4; k++)
                packed[k] = pack_bf16(o[4 * (n + k) + 2 * i] * inverse, o[4 * (n + k) + 2 * i + 1] * inverse);
            transpose_quad(packed);
            if (valid) *(uint4 *)(to + 8 * (n + t)) = make_uint4(packed[0], packed[1], packed[2], packed[3]);
        }
    }
}

/* A group's 64 rows of an item. */
struct group_rows {
    int32_t row,
        position;       /* of the thread's first row: in the chunk, in the sequence; the other is 8 later */
    int32_t begin, end; /* kv tiles that any group sees */
    int32_t own_end;    /* of those that this one sees; begin: none */
    int32_t full_begin, full_end; /* of those that all its rows see whole */
    int32_t num_pieces;           /* that it sees */
    int32_t seqlen;
};

template <int D>
__device__ __forceinline__ struct group_rows rows_of(const prefill_args &a, const struct item &w, int group)
{
    using T = hopper_traits<D>;
    struct group_rows g;
    int32_t first = w.first_row + group * GROUP_ROWS, offset = w.seqlen - w.num_rows, own_begin;
    kv_tiles<D>(w, a.sliding_window, w.first_row, T::ROWS, &g.begin, &g.end);
    kv_tiles<D>(w, a.sliding_window, first, GROUP_ROWS, &own_begin, &g.own_end);
    if (g.own_end <= own_begin) g.own_end = g.begin;
    g.row = first + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    g.position = offset + g.row;
    g.full_begin =
        a.sliding_window > 0
            ? (max(offset + first + GROUP_ROWS - a.sliding_window, 0) + T::TILE_TOKENS - 1) / T::TILE_TOKENS
            : 0;
    g.full_end = (offset + first + 1) / T::TILE_TOKENS;
    g.num_pieces = (offset + min(first + GROUP_ROWS, w.num_rows) - 1) / prefill_piece_tokens(D) + 1;
    g.seqlen = w.seqlen;
    return g;
}

/* Tiles that only other groups see. Returns the first, from the end, that this one does. */
template <int D>
__device__ __forceinline__ int32_t pass_tiles(const view<D> &s, const struct group_rows &g, int group,
                                              struct pipeline_state *c)
{
    int32_t n = g.end - 1;
    for (; n >= g.own_end; n--) {
        turn_begin<D>(group);
        turn_end<D>(group);
        for (int v = 0; v < 2; v++) {
            barrier_wait(s.full(v, c->stage), c->parity);
            release(s.empty(v, c->stage));
        }
        c->advance(hopper_traits<D>::STAGES);
    }
    return n;
}

/* Scores of tile n become weights. */
template <bool EXTRA, int N>
__device__ __forceinline__ void weigh(const prefill_args &a, const struct group_rows &g, int32_t n,
                                      float (&scores)[N], struct softmax_state (&r)[2], float (&rescale)[2])
{
    if (EXTRA && a.softcap > 0) cap_scores(scores, a.softcap);
    if (n >= g.full_end || n < g.full_begin)
        mask_scores(scores, g.position - n * (2 * N) - (int32_t)(threadIdx.x % 4 * 2), a.sliding_window);
    softmax(scores, r, rescale, a.scale_log2);
}

/* softmax(Q K) V of tiles n, n - 1 ... last. c stands at the first of them and is left behind the last. q_empty: of Q's buffer,
 * which, where Q is late, is let go as soon as the item's last scores are there. */
template <int D, bool EXTRA>
__device__ __forceinline__ void walk(const prefill_args &a, const view<D> &s, const struct group_rows &g,
                                     int group, const uint32_t (&q)[D / 16][4], uint32_t q_address,
                                     uint32_t q_empty, int32_t n, int32_t last, struct pipeline_state *c,
                                     float (&o)[D / 2], struct softmax_state (&r)[2])
{
    using T = hopper_traits<D>;
    float scores[T::SCORES], rescale[2];
    uint32_t p[T::SCORES / 2];
    barrier_wait(s.full(false, c->stage), c->parity);
    turn_begin<D>(group);
    multiply_keys<D>(scores, q, q_address, s.tile(false, c->stage));
    turn_end<D>(group);
    wgmma_wait<0>();
    wgmma_hold(scores);
    release(s.empty(false, c->stage));
    if (T::Q_IS_LATE && n == g.begin) release(q_empty);
    weigh<EXTRA>(a, g, n, scores, r, rescale);
    pack_weights(p, scores);
    if (g.seqlen < (n + 1) * T::TILE_TOKENS && g.seqlen % BLOCK_SIZE) {
        barrier_wait(s.full(true, c->stage), c->parity);
        zero_rows<D>(s.tile(true, c->stage), g.seqlen - n * T::TILE_TOKENS, group);
    }
    struct pipeline_state v = *c; /* values are one tile behind */
    c->advance(T::STAGES);
    for (n--; n >= last; n--) {
        barrier_wait(s.full(false, c->stage), c->parity);
        turn_begin<D>(group);
        multiply_keys<D>(scores, q, q_address, s.tile(false, c->stage));
        barrier_wait(s.full(true, v.stage), v.parity);
        multiply_values<D>(o, p, s.tile(true, v.stage));
        turn_end<D>(group);
        wgmma_wait<1>();
        wgmma_hold(scores);
        release(s.empty(false, c->stage));
        if (T::Q_IS_LATE && n == g.begin) release(q_empty);
        weigh<EXTRA>(a, g, n, scores, r, rescale);
        wgmma_wait<0>();
        wgmma_hold(o);
        release(s.empty(true, v.stage));
#pragma unroll
        for (int i = 0; i < D / 2; i++) o[i] *= rescale[i / 2 % 2];
        pack_weights(p, scores);
        v = *c;
        c->advance(T::STAGES);
    }
    barrier_wait(s.full(true, v.stage), v.parity);
    multiply_values<D>(o, p, s.tile(true, v.stage));
    wgmma_wait<0>();
    wgmma_hold(o);
    release(s.empty(true, v.stage));
}

/* ---- pieces ---- */

/* This thread's part of a slot: o by 4 values, then the states of its two rows. */
template <int D> __device__ __forceinline__ float4 *slot_of(const hopper_args &h, int32_t slot, int group)
{
    using T = hopper_traits<D>;
    return h.slots + (size_t)slot * T::SLOT_VECTORS + group * T::GROUP_VECTORS + threadIdx.x % GROUP_THREADS;
}

template <int D>
__device__ __forceinline__ void write_slot(float4 *to, const float (&o)[D / 2],
                                           const struct softmax_state (&r)[2])
{
#pragma unroll
    for (int i = 0; i < D / 8; i++)
        __stcg(to + i * GROUP_THREADS, make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]));
    __stcg(to + D / 8 * GROUP_THREADS, make_float4(r[0].maximum, r[0].sum, r[1].maximum, r[1].sum));
}

/* o and r become what a slot has merged with them. The first operand is the pieces behind: the slot or o. */
template <int D, bool SLOT_FIRST>
__device__ __forceinline__ void merge_slot(const float4 *from, float (&o)[D / 2],
                                           struct softmax_state (&r)[2], float scale_log2)
{
    using T = hopper_traits<D>;
    float4 state = __ldcg(from + D / 8 * GROUP_THREADS);
    struct softmax_state x[2] = {{state.x, state.y}, {state.z, state.w}};
    struct merge_factors f[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float in_slot = __fmul_rn(x[i].maximum, scale_log2), here = __fmul_rn(r[i].maximum, scale_log2);
        f[i] = SLOT_FIRST ? merge_factors_of(in_slot, here) : merge_factors_of(here, in_slot);
        r[i].maximum = fmaxf(r[i].maximum, x[i].maximum);
        r[i].sum = SLOT_FIRST ? merge(x[i].sum, r[i].sum, f[i]) : merge(r[i].sum, x[i].sum, f[i]);
    }
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
        if (T::REGISTERS_ARE_SHORT && i % 4 == 0) __syncwarp(); /* that few loads are under way */
        float4 vector = __ldcg(from + i * GROUP_THREADS);
        float values[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float &here = o[4 * i + k];
            here = SLOT_FIRST ? merge(values[k], here, f[k / 2]) : merge(here, values[k], f[k / 2]);
        }
    }
}

/* A piece that is an item. Whether its rows are complete: then o and r are all pieces' result. */
template <int D>
__device__ __forceinline__ bool finish_piece(const hopper_args &h, const struct item &w,
                                             const struct group_rows &g, int group, float (&o)[D / 2],
                                             struct softmax_state (&r)[2])
{
    int warp = group * 4 + threadIdx.x / 32 % 4;
    write_slot<D>(slot_of<D>(h, w.slot + w.piece, group), o, r);
    if (!arrives_last(h.arrivals + w.slot * hopper_traits<D>::CONSUMERS * 4 + warp, 1, g.num_pieces))
        return false;
#pragma unroll
    for (int i = 0; i < D / 2; i++) o[i] = 0;
    r[0] = r[1] = {-INFINITY, 0};
#pragma unroll 1
    for (int32_t piece = g.num_pieces - 1; piece >= 0; piece--)
        merge_slot<D, false>(slot_of<D>(h, w.slot + piece, group), o, r, h.a.scale_log2);
    return true;
}

/* One item's 64 rows of this group. c stands at the item's first tile and is left behind its last. */
template <int D, bool EXTRA>
__device__ __forceinline__ void consume_item(const hopper_args &h, const view<D> &s, const struct item &w,
                                             int group, int q_stage, struct pipeline_state *c)
{
    using T = hopper_traits<D>;
    struct group_rows g = rows_of<D>(h.a, w, group);
    uint32_t q_address = s.q(q_stage) + group * GROUP_ROWS * 128, q[D / 16][4];
    int32_t n = pass_tiles<D>(s, g, group, c), top = n / T::PIECE_TILES;
    if (T::Q_IN_REGISTERS && n >= g.begin) load_queries<D>(q, q_address);
    if (T::Q_IN_REGISTERS || n < g.begin) release(s.q_empty(q_stage));
    if (n < g.begin) return;
    for (;;) {
        float o[D / 2] = {};
        struct softmax_state r[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
        int32_t piece = n / T::PIECE_TILES, last = max(g.begin, piece * T::PIECE_TILES);
        walk<D, EXTRA>(h.a, s, g, group, q, q_address, s.q_empty(q_stage), n, last, c, o, r);
        n = last - 1;
        if (!T::Q_IN_REGISTERS && !T::Q_IS_LATE && n < g.begin) release(s.q_empty(q_stage));
        if (w.piece >= 0 && !finish_piece<D>(h, w, g, group, o, r)) return;
        float4 *slot = slot_of<D>(h, h.num_piece_slots + blockIdx.x, group);
        if (piece < top) merge_slot<D, true>(slot, o, r, h.a.scale_log2);
        if (n < g.begin) {
            store_rows<D, EXTRA>(h.a, w, g.row, o, r);
            return;
        }
        write_slot<D>(slot, o, r);
    }
}

/* One lane reads for its warp: the one that later says that the item has been read. */
__device__ __forceinline__ struct item read_item(const struct item &from)
{
    struct item w = {};
    if (threadIdx.x % 32 == 0) w = from;
    w.head = __shfl_sync(0xffffffffu, w.head, 0);
    w.first_token = __shfl_sync(0xffffffffu, w.first_token, 0);
    w.first_row = __shfl_sync(0xffffffffu, w.first_row, 0);
    w.num_rows = __shfl_sync(0xffffffffu, w.num_rows, 0);
    w.seqlen = __shfl_sync(0xffffffffu, w.seqlen, 0);
    w.piece = __shfl_sync(0xffffffffu, w.piece, 0);
    w.slot = __shfl_sync(0xffffffffu, w.slot, 0);
    return w;
}

template <int D, bool EXTRA>
__global__ void __launch_bounds__(hopper_traits<D>::THREADS, 1)
    prefill_hopper_kernel(hopper_args h, const __grid_constant__ CUtensorMap q_map,
                          const __grid_constant__ CUtensorMap pool_map)
{
    using T = hopper_traits<D>;
    extern __shared__ unsigned char shared[];
    view<D> s(shared);
    int group = threadIdx.x / GROUP_THREADS;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < T::Q_STAGES; stage++) {
            barrier_init(s.q_full(stage), 1);
            barrier_init(s.q_empty(stage), T::CONSUMERS * 4);
        }
        for (int stage = 0; stage < T::STAGES; stage++)
            for (int v = 0; v < 2; v++) {
                barrier_init(s.full(v, stage), 1);
                barrier_init(s.empty(v, stage), T::CONSUMERS * 4);
            }
        barrier_init_fence();
    }
    __syncthreads();
    if (group == T::CONSUMERS) {
        registers_lower<T::PRODUCER_REGISTERS>();
        if (threadIdx.x % GROUP_THREADS < 32) produce<D>(h, &q_map, &pool_map, s);
    } else {
        registers_raise<T::CONSUMER_REGISTERS>();
        if (group == T::CONSUMERS - 1) turn_end<D>(group); /* the first turn is group 0's */
        struct pipeline_state q = {0, 0}, c = {0, 0};
        for (;; q.advance(T::Q_STAGES)) {
            barrier_wait(s.q_full(q.stage), q.parity);
            struct item w = read_item(s.items[q.stage]);
            if (w.head < 0) break;
            consume_item<D, EXTRA>(h, s, w, group, q.stage, &c);
        }
    }
}

/* ---- host ---- */

template <int D, bool EXTRA>
bool launch(struct cuda_device *d, const struct hopper_args &h, int32_t num_tokens, const __nv_bfloat16 *pool)
{
    using T = hopper_traits<D>;
    CUtensorMap q_map, pool_map;
    int32_t row = (h.a.num_heads + 2 * h.a.num_kv_heads) * D;
    cuuint64_t pool_sizes[] = {64, 8, T::HALVES, (cuuint64_t)h.num_groups},
               pool_strides[] = {D * 2, 128, 8 * D * 2};
    cuuint32_t pool_box[] = {64, 8, T::HALVES, BLOCK_SIZE / 8};
    if (!tensor_map_encode_matrix(d, &q_map, h.a.qkv, num_tokens, row, T::ROWS) ||
        !tensor_map_encode(d, &pool_map, pool, 4, pool_sizes, pool_strides, pool_box))
        return cuda_check(d, cudaErrorInvalidValue, "tensor map of prefill attention");
    auto kernel = prefill_hopper_kernel<D, EXTRA>;
    if (!cuda_allow_shared(d, (const void *)kernel, T::SHARED_BYTES)) return false;
    kernel<<<(unsigned)std::min(h.num_items, (int32_t)d->num_sms), T::THREADS, T::SHARED_BYTES, d->stream>>>(
        h, q_map, pool_map);
    return true;
}

template <int D>
bool launch(struct cuda_device *d, const struct hopper_args &h, int32_t num_tokens, const __nv_bfloat16 *pool)
{
    return prefill_has_extra(h.a) ? launch<D, true>(d, h, num_tokens, pool)
                                  : launch<D, false>(d, h, num_tokens, pool);
}

template <int D> bool alloc_slots(struct cuda_device *d)
{
    using T = hopper_traits<D>;
    int32_t num_pieces = T::SLOTS_PER_SM * d->num_sms, num_slots = num_pieces + d->num_sms;
    d->num_prefill_slots = num_pieces;
    d->prefill_slots =
        (float *)cuda_alloc(&d->base, num_slots * T::SLOT_VECTORS * sizeof(float4), "attention");
    d->prefill_arrivals =
        (int32_t *)cuda_alloc(&d->base, (size_t)num_pieces * T::CONSUMERS * 4 * 4, "attention");
    return d->prefill_slots && d->prefill_arrivals;
}

} // namespace

int32_t prefill_hopper_rows_per_tile(const struct cuda_device *d, int32_t head_dim)
{
    if (!d->is_hopper) return 0;
    return head_dim == 64    ? hopper_traits<64>::ROWS
           : head_dim == 128 ? hopper_traits<128>::ROWS
           : head_dim == 256 ? hopper_traits<256>::ROWS
                             : 0;
}

bool prefill_hopper_prepare(struct cuda_device *d, int32_t head_dim, int32_t max_model_len)
{
    if (!prefill_hopper_rows_per_tile(d, head_dim) || max_model_len <= prefill_piece_tokens(head_dim))
        return true;
    return head_dim == 64 ? alloc_slots<64>(d) : head_dim == 128 ? alloc_slots<128>(d) : alloc_slots<256>(d);
}

bool prefill_hopper_launch(struct cuda_device *d, const struct prefill_args *args, const struct batch *b,
                           const struct kv_pool *pool, int32_t layer)
{
    const struct kv_shape *shape = &pool->shape;
    hopper_args h = {};
    h.a = *args;
    h.items_taken = &d->queues->prefill_items;
    h.ctas_gone = &d->queues->prefill_ctas_gone;
    h.slots = (float4 *)d->prefill_slots;
    h.arrivals = d->prefill_arrivals;
    h.num_piece_slots = d->num_prefill_slots;
    h.num_items = b->num_prefill_tiles * b->prefill_heads_per_tile;
    h.first_block = layer * kv_pool_layer_blocks(pool);
    h.num_groups =
        shape->num_layers * kv_pool_layer_blocks(pool) * 2 * shape->num_kv_heads * (BLOCK_SIZE / 8);
    return shape->head_dim == 64    ? launch<64>(d, h, b->num_tokens, pool->data)
           : shape->head_dim == 128 ? launch<128>(d, h, b->num_tokens, pool->data)
                                    : launch<256>(d, h, b->num_tokens, pool->data);
}
