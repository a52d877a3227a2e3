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
 * What the kernel for masks does in the same way: attention_prefill_hopper.cuh.
 *
 * Sources: Shah et al., "FlashAttention-3", 2024, for the overlap of the softmax with the product before. */
#include "kernels/cuda/attention_prefill_hopper.cuh"

namespace
{

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
            int32_t group = group_of(h, block, v, kv_head);
            barrier_wait(s.empty(v, c->stage), c->parity ^ 1);
            load_tile<D>(pool_map, s, v, c->stage, group);
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
    struct prefill_tile tile = h.a.tiles[index / h.a.heads_per_tile];
    int32_t head = index % h.a.heads_per_tile;
    fill_item(h.a, tile, head, tile.num_pieces == 1 || h.a.sliding_window > 0, &w);
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
            warp_release(s.empty(v, c->stage));
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
    softmax(scores, r, rescale, one_scale{a.scale_log2});
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
    warp_release(s.empty(false, c->stage));
    if (T::Q_IS_LATE && n == g.begin) warp_release(q_empty);
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
        warp_release(s.empty(false, c->stage));
        if (T::Q_IS_LATE && n == g.begin) warp_release(q_empty);
        weigh<EXTRA>(a, g, n, scores, r, rescale);
        wgmma_wait<0>();
        wgmma_hold(o);
        warp_release(s.empty(true, v.stage));
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
    warp_release(s.empty(true, v.stage));
}

/* One item's 64 rows of this group. c stands at the item's first tile and is left behind its last. */
template <int D, bool EXTRA>
__device__ __forceinline__ void consume_item(const hopper_args &h, const view<D> &s, const struct item &w,
                                             int group, int q_stage, struct pipeline_state *c)
{
    using T = hopper_traits<D>;
    const struct one_scale scale = {h.a.scale_log2};
    struct group_rows g = rows_of<D>(h.a, w, group);
    uint32_t q_address = s.q(q_stage) + group * GROUP_ROWS * 128, q[D / 16][4];
    int32_t n = pass_tiles<D>(s, g, group, c), top = n / T::PIECE_TILES;
    if (T::Q_IN_REGISTERS && n >= g.begin) load_queries<D>(q, q_address);
    if (T::Q_IN_REGISTERS || n < g.begin) warp_release(s.q_empty(q_stage));
    if (n < g.begin) return;
    for (;;) {
        float o[D / 2] = {};
        struct softmax_state r[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
        int32_t piece = n / T::PIECE_TILES, last = max(g.begin, piece * T::PIECE_TILES);
        walk<D, EXTRA>(h.a, s, g, group, q, q_address, s.q_empty(q_stage), n, last, c, o, r);
        n = last - 1;
        if (!T::Q_IN_REGISTERS && !T::Q_IS_LATE && n < g.begin) warp_release(s.q_empty(q_stage));
        if (w.piece >= 0 && !finish_piece<D>(h, w, g.num_pieces, group, o, r, scale)) return;
        float4 *slot = slot_of<D>(h, h.num_piece_slots + blockIdx.x, group);
        if (piece < top) merge_slot<D, true>(slot, o, r, scale);
        if (n < g.begin) {
            store_rows<D, EXTRA>(h.a, w, g.row, o, r, scale);
            return;
        }
        write_slot<D>(slot, o, r);
    }
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
    struct hopper_maps maps;
    if (!encode_maps<D>(d, h, num_tokens, pool, &maps)) return false;
    auto kernel = prefill_hopper_kernel<D, EXTRA>;
    if (!cuda_allow_shared(d, (const void *)kernel, T::SHARED_BYTES)) return false;
    kernel<<<(unsigned)std::min(h.num_items, (int32_t)d->num_sms), T::THREADS, T::SHARED_BYTES, d->stream>>>(
        h, maps.q, maps.pool);
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
    struct hopper_args h = hopper_args_of(d, args, b, pool, layer);
    return args->head_dim == 64    ? launch<64>(d, h, b->num_tokens, pool->data)
           : args->head_dim == 128 ? launch<128>(d, h, b->num_tokens, pool->data)
                                   : launch<256>(d, h, b->num_tokens, pool->data);
}
