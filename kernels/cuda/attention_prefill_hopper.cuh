/* attention_prefill_hopper.cuh - what the two prefill kernels for sm_90a share: attention_prefill_hopper.cu, which has causal
 * layers and windows, and attention_masked_hopper.cu, which has whatever hides more.
 *
 * Both are the same CTA: it stays on its SM and takes one item after another from a common queue, one warp fetches, groups of four
 * warps compute 64 query rows each. They differ in which kv tiles an item has and in how scores are hidden. Where both compute a
 * row from the same keys, they do so by the same operations in the same order. */
#ifndef KERNELS_CUDA_ATTENTION_PREFILL_HOPPER_CUH
#define KERNELS_CUDA_ATTENTION_PREFILL_HOPPER_CUH

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
    struct kv_boxes boxes;
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

/* ---- the producer ---- */

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

/* Where the pool has K, or V, of a head in a block: its first group of 8 rows; outside of it where the block is -1. */
__device__ __forceinline__ int32_t group_of(const hopper_args &h, int32_t block, int v, int32_t kv_head)
{
    int32_t box = h.boxes.first + block * h.boxes.per_block + v * h.a.num_kv_heads + kv_head;
    return (block < 0 ? h.boxes.num : box) * (BLOCK_SIZE / 8);
}

/* K, or V, of a kv tile into its stage, which is free: lane i has the group of the i-th page. */
template <int D>
__device__ __forceinline__ void load_tile(const CUtensorMap *pool_map, const view<D> &s, int v, int stage,
                                          int32_t group)
{
    using T = hopper_traits<D>;
    int lane = threadIdx.x % 32;
    uint32_t full = s.full(v, stage);
    if (lane == 0) barrier_arrive_expect(full, T::TILE_BYTES);
    __syncwarp();
    if (lane < T::TILE_PAGES)
        tensor_load_4d(s.tile(v, stage) + lane * T::PAGE_BYTES, pool_map, full, 0, 0, 0, group);
}

/* An item of a tile of the plan. is_whole: it has all of its keys, so of a tile that is cut the others are empty. */
__device__ __forceinline__ void fill_item(const prefill_args &a, const struct prefill_tile &tile,
                                          int32_t head, bool is_whole, struct item *w)
{
    w->head = tile.first_kv_head * a.group + head;
    w->first_row = tile.first_row;
    w->first_token = a.cu_seqlens_q[tile.seq];
    w->num_rows = tile.piece > 0 && is_whole ? 0 : a.cu_seqlens_q[tile.seq + 1] - w->first_token;
    w->seqlen = a.seqlens_k[tile.seq];
    w->table_offset = a.table_offsets[tile.seq];
    w->piece = is_whole ? -1 : tile.piece;
    w->slot = tile.first_slot + head * tile.num_pieces;
}

/* ---- consumers ---- */

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

/* What scores are multiplied by to be in log2 units: the same for all rows. */
struct one_scale {
    float value;
    __device__ __forceinline__ float operator[](int) const { return value; }
};

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
template <int D, bool EXTRA, class SCALE>
__device__ __forceinline__ void store_rows(const prefill_args &a, const struct item &w, int32_t row,
                                           float (&o)[D / 2], const struct softmax_state (&r)[2],
                                           const SCALE &scale)
{
    int t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float sum = quad_sum(r[i].sum);
        if (EXTRA) sum = softmax_with_sink(sum, r[i].maximum * scale[i], a.sinks, w.head);
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
template <int D, bool SLOT_FIRST, class SCALE>
__device__ __forceinline__ void merge_slot(const float4 *from, float (&o)[D / 2],
                                           struct softmax_state (&r)[2], const SCALE &scale)
{
    using T = hopper_traits<D>;
    float4 state = __ldcg(from + D / 8 * GROUP_THREADS);
    struct softmax_state x[2] = {{state.x, state.y}, {state.z, state.w}};
    struct merge_factors f[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float in_slot = __fmul_rn(x[i].maximum, scale[i]), here = __fmul_rn(r[i].maximum, scale[i]);
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

/* A piece that is an item. Whether its rows are complete: then o and r are all pieces' result. num_pieces:
 * that the group sees. */
template <int D, class SCALE>
__device__ __forceinline__ bool finish_piece(const hopper_args &h, const struct item &w, int32_t num_pieces,
                                             int group, float (&o)[D / 2], struct softmax_state (&r)[2],
                                             const SCALE &scale)
{
    int warp = group * 4 + threadIdx.x / 32 % 4;
    write_slot<D>(slot_of<D>(h, w.slot + w.piece, group), o, r);
    if (!arrives_last(h.arrivals + w.slot * hopper_traits<D>::CONSUMERS * 4 + warp, 1, num_pieces))
        return false;
#pragma unroll
    for (int i = 0; i < D / 2; i++) o[i] = 0;
    r[0] = r[1] = {-INFINITY, 0};
#pragma unroll 1
    for (int32_t piece = num_pieces - 1; piece >= 0; piece--)
        merge_slot<D, false>(slot_of<D>(h, w.slot + piece, group), o, r, scale);
    return true;
}

/* ---- host ---- */

/* Of Q's rows and of the pool. */
struct hopper_maps {
    CUtensorMap q, pool;
};

template <int D>
bool encode_maps(struct cuda_device *d, const struct hopper_args &h, int32_t num_tokens,
                 const __nv_bfloat16 *pool, struct hopper_maps *maps)
{
    using T = hopper_traits<D>;
    int32_t row = h.a.row_heads * D;
    if (!tensor_map_encode_matrix(d, &maps->q, h.a.qkv, num_tokens, row, T::ROWS) ||
        !tensor_map_encode_groups(d, &maps->pool, pool, h.boxes.num * (BLOCK_SIZE / 8), D, BLOCK_SIZE / 8))
        return cuda_check(d, cudaErrorInvalidValue, "tensor map of prefill attention");
    return true;
}

inline struct hopper_args hopper_args_of(const struct cuda_device *d, const struct prefill_args *args,
                                         const struct batch *b, const struct kv_pool *pool, int32_t layer)
{
    hopper_args h = {};
    h.a = *args;
    h.items_taken = &d->queues->prefill_items;
    h.ctas_gone = &d->queues->prefill_ctas_gone;
    h.slots = (float4 *)d->prefill_slots;
    h.arrivals = d->prefill_arrivals;
    h.num_piece_slots = d->num_prefill_slots;
    h.num_items = b->num_prefill_tiles * args->heads_per_tile;
    h.boxes = kv_boxes_of(pool, layer, args->num_kv_heads, args->head_dim);
    return h;
}

} // namespace

#endif
