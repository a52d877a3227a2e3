/* attention_wide_hopper.cu - what attention_masked.cu computes, for sm_90a and the widest heads: of 512, K and V apart (Gemma 4's layers
 * without a window), and latents of 512 or 256 beside 64 that are rotated, whose V are columns of K (DeepSeek V2 and V3, GLM-4.7-Flash;
 * Mistral Small 4). Prompts and decoding sequences, masks, splits and their results are that file's.
 *
 * A CTA has an SM, and computes a tile of 64 query rows; of decoding sequences one after another. One warp fetches kv tiles of 64 keys, page
 * by page as attention_prefill_hopper.cu does, the next rows' first ones while these end. Two groups of four warps compute: each half of the
 * output's columns, and the scores of every other tile. A tile's weights, and the softmax behind it, go to the other group through shared
 * memory, so softmax goes from tile to tile in order.
 *
 *   a group's tile:   wait for Q K | softmax | give | P V | wait: the place is free
 *   the other's tile: take | P V | Q K of the own tile behind it | wait for P V: the place is free
 *
 * Shared memory holds Q, the weights given, and two tiles: K of two tiles after each other where V is in them, else K of one and V of one. A
 * place is let go when its products have ended, and what comes there next is fetched under the products and the softmax of what lies
 * in the other one. (With Q K ahead of P V each tile's fetch was waited for.)
 *
 * Floor: a tile of 64 keys costs 64 x 64 x (576 + 512) x 2 flop, 2,176 cycles of an SM, and 72 KB from the L2; with V apart 2,048 cycles
 * and 128 KB. A decoding sequence's rows are few of the 64, and what it waits for is its bytes: 3,200 cycles for the 72 KB.
 *
 * Sources: DeepSeek-AI, FlashMLA, 2025, for the halves of columns; Shah et al., "FlashAttention-3", 2024. */
#include "kernels/cuda/attention_masked_rows.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/kv_pool.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/softmax.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace
{

enum {
    GROUPS = 2, /* of warps that compute */
    GROUP_THREADS = 128,
    CONSUMERS = GROUPS * GROUP_THREADS,
    THREADS = CONSUMERS + GROUP_THREADS,
    KEYS = 64, /* of a kv tile */
    PAGES = KEYS / BLOCK_SIZE,
    SCORES = KEYS / 2, /* of a thread */
    PRODUCER_REGISTERS = 40,
    CONSUMER_REGISTERS = 232,
};

enum { BARRIER_CONSUMERS = 1, BARRIER_GROUP = 2, BARRIER_GIVEN = 4 /* and the group */ };

/* Of a tile's scores, from the group that has them to the other one: weights as an A operand in the copy engine's layout, and the
 * softmax behind the tile, a thread's sums for the thread at the same place. */
struct given {
    uint32_t weights[TILE_ROWS][KEYS / 2];
    float sums[2][GROUP_THREADS];
    float maxima[TILE_ROWS];
};

template <int D> struct wide_traits {
    static constexpr bool KEYS_ONLY = D % 512 != 0; /* V is K from column 64 on */
    static constexpr int HALVES = D / 64;           /* of 128 bytes: a row's */
    static constexpr int TILE_BYTES = KEYS * D * 2;
    static constexpr int PAGE_BYTES = BLOCK_SIZE * D * 2;
    static constexpr int Q_BYTES = TILE_ROWS * D * 2;
    static constexpr int SHARED_BYTES =
        ATOM_BYTES + Q_BYTES + 2 * TILE_BYTES + (int)sizeof(struct given) + 4 * 8;
    static constexpr int VALUE_HALF = KEYS_ONLY ? 1 : 0; /* the first one of V */
    static constexpr int OWN_COLUMNS = (D - VALUE_HALF * 64) / GROUPS;
    static constexpr int SUMS = OWN_COLUMNS / 2; /* of a thread */
};

struct wide_args {
    struct masked_args a;
    struct kv_boxes boxes;
    int32_t num_items,
        num_tiles; /* tiles of rows, with those that are too many; items: times K/V heads, and splits */
};

/* Shared memory. A tile of keys or values: groups of 8 rows, each its halves one after another. Q: halves of 64 rows. */
template <int D> struct view {
    using T = wide_traits<D>;
    uint32_t q, tiles, weights, full, empty;
    struct given *given;

    __device__ explicit view(unsigned char *shared)
    {
        const uint32_t begin = shared_address(shared);
        q = (begin + ATOM_BYTES - 1) & ~(uint32_t)(ATOM_BYTES - 1);
        tiles = q + T::Q_BYTES;
        weights = tiles + 2 * T::TILE_BYTES;
        given = (struct given *)(shared + (weights - begin));
        full = weights + (uint32_t)sizeof(struct given);
        empty = full + 2 * 8;
    }
    __device__ uint32_t tile(int place) const { return tiles + place * T::TILE_BYTES; }
};

/* The place of a tile's K, or of its V, counted from the first tile on; its phases alternate. */
template <int D> struct place {
    int32_t at;
    uint32_t parity;
    __device__ place(int32_t tile, bool v)
        : at(wide_traits<D>::KEYS_ONLY ? tile % 2 : v),
          parity((wide_traits<D>::KEYS_ONLY ? tile / 2 : tile) % 2)
    {
    }
};

/* ---- the producer ---- */

/* Lane i has the i-th page. Blocks that no row of the tile sees are outside of the map: zeros. */
template <int D>
__device__ __forceinline__ void load_tile(const CUtensorMap *map, const struct kv_boxes &boxes,
                                          const view<D> &s, const struct place<D> &p, int32_t block,
                                          int32_t head)
{
    using T = wide_traits<D>;
    const int lane = threadIdx.x % 32;
    const uint32_t full = s.full + 8 * p.at;
    barrier_wait(s.empty + 8 * p.at, p.parity ^ 1);
    if (lane == 0) barrier_arrive_expect(full, T::TILE_BYTES);
    __syncwarp();
    const int32_t box = block < 0 ? boxes.num : boxes.first + block * boxes.per_block + head;
    if (lane < PAGES)
        tensor_load_4d(s.tile(p.at) + lane * T::PAGE_BYTES, map, full, 0, 0, 0, box * (BLOCK_SIZE / 8));
}

/* A tile of rows of a K/V head, of a decoding sequence a split of its keys. */
struct item {
    struct rows r;
    int32_t kv_head;
};

/* Of a step's the last ones, which see most, first. False: there is no such one. */
__device__ __forceinline__ bool find_item(const wide_args &w, int32_t num_items, int32_t index,
                                          struct item *item)
{
    index = num_items - 1 - index;
    item->kv_head = index / w.num_tiles % w.a.num_kv_heads;
    return find_rows(w.a, index % w.num_tiles, index / (w.num_tiles * w.a.num_kv_heads), &item->r);
}

template <int D>
__device__ void produce_item(const wide_args &w, const CUtensorMap *map, const view<D> &s,
                             const struct item &item, int32_t *num_tiles)
{
    const masked_args &a = w.a;
    const struct rows &r = item.r;
    const int32_t *table = a.base + a.counts[COUNT_TABLES] + a.table_offsets[r.seq];
    auto block_of = [&](int32_t first) {
        const int32_t page = first / BLOCK_SIZE + threadIdx.x % 32;
        return threadIdx.x % 32 < PAGES && page >= r.first_key / BLOCK_SIZE && page * BLOCK_SIZE < r.seqlen
                   ? table[page]
                   : -1;
    };
    int32_t first = next_tile<KEYS>(a, r, r.begin / KEYS * KEYS), block = block_of(first);
    for (; first < r.end; ++*num_tiles) {
        const int32_t after = next_tile<KEYS>(a, r, first + KEYS), own = block;
        block = block_of(after);
        load_tile<D>(map, w.boxes, s, place<D>(*num_tiles, false), own, item.kv_head);
        if (!wide_traits<D>::KEYS_ONLY)
            load_tile<D>(map, w.boxes, s, place<D>(*num_tiles, true), own, a.num_kv_heads + item.kv_head);
        first = after;
    }
}

template <int D>
__device__ void produce(const wide_args &w, int32_t num_items, const CUtensorMap *map, const view<D> &s)
{
    int32_t num_tiles = 0;
    for (int32_t i = blockIdx.x; i < num_items; i += gridDim.x) {
        struct item item;
        if (find_item(w, num_items, i, &item)) produce_item<D>(w, map, s, item, &num_tiles);
    }
}

/* ---- consumers ---- */

/* As the copy engine would write them with its swizzle; rows that are not there are zeros. */
template <int D>
__device__ void load_queries(const masked_args &a, const struct rows &r, int32_t kv_head, const view<D> &s)
{
    constexpr int CHUNKS = D / 8;
    for (int i = threadIdx.x; i < TILE_ROWS * CHUNKS; i += CONSUMERS) {
        const int32_t row = i / CHUNKS, chunk = i % CHUNKS, at = r.first + row;
        const bool valid = at < r.count;
        const __nv_bfloat16 *from = a.qkv;
        if (valid)
            from +=
                ((size_t)(r.first_token + at / a.group) * a.row_heads + kv_head * a.group + at % a.group) *
                    D +
                chunk * 8;
        copy_async(s.q + (chunk / 8 * TILE_ROWS + row) * 128 + (chunk % 8 ^ row % 8) * 16, from, valid);
    }
    copy_commit();
    copy_wait<0>();
    shared_writes_fence();
    named_barrier_sync(BARRIER_CONSUMERS, CONSUMERS);
}

/* This thread's two rows of a tile, g and g + 8 of its warp's 16, and their softmax. */
struct own_rows {
    int group, row; /* row: g's, in the tile */
    int32_t place[2], head[2];
    struct seen_keys seen[2];
    struct score_scale scale[2];
    struct softmax_state state[2];
};

__device__ __forceinline__ struct own_rows own_rows_of(const masked_args &a, const struct rows &r,
                                                       int32_t kv_head)
{
    struct own_rows own;
    own.group = threadIdx.x / GROUP_THREADS;
    own.row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int32_t row = min(r.first + own.row + 8 * i, r.count - 1);
        own.place[i] = r.offset + row / a.group;
        own.head[i] = kv_head * a.group + row % a.group;
        own.seen[i] = seen_keys_of(a, r, own.place[i]);
        own.scale[i] = scale_of_row(a, own.place[i]);
        own.state[i] = {-INFINITY, 0};
    }
    return own;
}

template <int D>
__device__ __forceinline__ void multiply_keys(float (&scores)[SCORES], uint32_t q, uint32_t k)
{
    using T = wide_traits<D>;
    const uint64_t rows = wgmma_descriptor(warp_uniform(q), ATOM_BYTES, 16),
                   keys = wgmma_descriptor(warp_uniform(k), T::HALVES * ATOM_BYTES, 16);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        wgmma_shared(scores, rows + ((i / 4 * TILE_ROWS * 128 + i % 4 * 32) >> 4),
                     keys + ((i / 4 * ATOM_BYTES + i % 4 * 32) >> 4), i > 0);
    wgmma_commit();
}

/* V's columns of a group. */
template <int D> __device__ __forceinline__ uint64_t values_of(uint32_t v, int group)
{
    using T = wide_traits<D>;
    return wgmma_descriptor(warp_uniform(v + (T::VALUE_HALF + group * (T::OWN_COLUMNS / 64)) * ATOM_BYTES),
                            T::HALVES * ATOM_BYTES, ATOM_BYTES);
}

template <int D>
__device__ __forceinline__ void multiply_values(float (&o)[wide_traits<D>::SUMS],
                                                const uint32_t (&weights)[SCORES / 2], uint64_t values)
{
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++)
        wgmma_registers<1>(o, weights + 4 * i, values + ((i * wide_traits<D>::PAGE_BYTES) >> 4), 1);
    wgmma_commit();
}

/* By weights that the other group has given. */
template <int D>
__device__ __forceinline__ void multiply_values(float (&o)[wide_traits<D>::SUMS], uint32_t weights,
                                                uint64_t values)
{
    const uint64_t rows = wgmma_descriptor(warp_uniform(weights), ATOM_BYTES, 16);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++)
        wgmma_shared_transposed(o, rows + ((i * 32) >> 4), values + ((i * wide_traits<D>::PAGE_BYTES) >> 4),
                                1);
    wgmma_commit();
}

/* The group's columns of V behind the sequence's end, in its last page: whoever had the block may have left anything, and 0 x NaN is
 * NaN. Pages behind it are zeros. */
template <int D> __device__ __noinline__ void zero_values(uint32_t tile, int32_t first, int group)
{
    using T = wide_traits<D>;
    constexpr int CHUNKS = T::OWN_COLUMNS / 8;
    const int32_t count = (BLOCK_SIZE - first % BLOCK_SIZE) * CHUNKS;
    for (int32_t i = threadIdx.x % GROUP_THREADS; i < count; i += GROUP_THREADS) {
        const int32_t row = first + i / CHUNKS, chunk = i % CHUNKS,
                      half = T::VALUE_HALF + group * (T::OWN_COLUMNS / 64) + chunk / 8;
        store_zeros(tile + (row / 8 * T::HALVES + half) * ATOM_BYTES + row % 8 * 128 + chunk % 8 * 16);
    }
    shared_writes_fence();
    named_barrier_sync(BARRIER_GROUP + group, GROUP_THREADS);
}

/* Scores of the tile from key first on become weights. */
__device__ __forceinline__ void weigh(const masked_args &a, const struct rows &r, struct own_rows *own,
                                      float (&scores)[SCORES], float (&rescale)[2], int32_t first)
{
    const float to_log2[2] = {own->scale[0].to_log2, own->scale[1].to_log2};
    if (a.softcap > 0) cap_scores(scores, own->scale);
    if (class_of<KEYS>(a, r, first) != MASK_WHOLE)
        hide_scores(scores, r, own->place, own->seen, first + 2 * (threadIdx.x % 4));
    softmax(scores, own->state, rescale, to_log2);
}

/* A tile's weights, and the softmax behind it, for the other group, which has them in its registers or wants them there at the same
 * places. Each thread writes over what it has read itself, the warp's products with it have ended. */
template <int D>
__device__ __forceinline__ void give(const view<D> &s, const struct own_rows &own,
                                     const uint32_t (&weights)[SCORES / 2])
{
    const int thread = threadIdx.x % GROUP_THREADS, t = thread % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = own.row + 8 * i;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) s.given->weights[row][(n ^ row % 8) * 4 + t] = weights[2 * n + i];
        s.given->sums[i][thread] = own.state[i].sum;
        if (t == i) s.given->maxima[row] = own.state[i].maximum;
    }
    shared_writes_fence();
    named_barrier_arrive(BARRIER_GIVEN + own.group, CONSUMERS);
}

/* The softmax behind a tile of the other group's. */
template <int D>
__device__ __forceinline__ void take(const view<D> &s, struct own_rows *own, float (&rescale)[2])
{
    named_barrier_sync(BARRIER_GIVEN + 1 - own->group, CONSUMERS);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        rescale[i] = softmax_raise(&own->state[i], s.given->maxima[own->row + 8 * i], own->scale[i].to_log2);
        own->state[i].sum = s.given->sums[i][threadIdx.x % GROUP_THREADS];
    }
}

/* softmax(Q K) V of all tiles that somebody sees, from the CTA's tile number i on. Returns the number of the one behind. */
template <int D>
__device__ __forceinline__ int32_t walk(const masked_args &a, const struct rows &r, const view<D> &s,
                                        struct own_rows *own, float (&o)[wide_traits<D>::SUMS], int32_t i)
{
    using T = wide_traits<D>;
    float scores[SCORES], rescale[2] = {1, 1};
    uint32_t weights[SCORES / 2]; /* as A operands */
    int32_t first = next_tile<KEYS>(a, r, r.begin / KEYS * KEYS);
    auto begin = [&](int32_t tile) {
        const place<D> k(tile, false);
        barrier_wait(s.full + 8 * k.at, k.parity);
        multiply_keys<D>(scores, s.q, s.tile(k.at));
    };
    auto rescale_sums = [&]() {
        if (__ballot_sync(~0u, rescale[0] != 1 || rescale[1] != 1) == 0) return;
#pragma unroll
        for (int n = 0; n < T::SUMS; n++) o[n] = __fmul_rn(o[n], rescale[n / 2 % 2]);
    };
    auto values_of_tile = [&](int32_t tile) {
        const place<D> v(tile, true);
        barrier_wait(s.full + 8 * v.at, v.parity);
        if (first + KEYS > r.seqlen && r.seqlen % BLOCK_SIZE != 0)
            zero_values<D>(s.tile(v.at), r.seqlen - first, own->group);
        return values_of<D>(s.tile(v.at), own->group);
    };
    auto release = [&](int32_t tile) {
        wgmma_hold(o);
        warp_release(s.empty + 8 * place<D>(tile, true).at);
    };
    auto attend = [&](int32_t tile) {
        const place<D> k(tile, false);
        wgmma_wait<0>();
        wgmma_hold(scores);
        if (!T::KEYS_ONLY) warp_release(s.empty + 8 * k.at);
        weigh(a, r, own, scores, rescale, first);
        pack_weights(weights, scores);
        give(s, *own, weights);
        rescale_sums();
        multiply_values<D>(o, weights, values_of_tile(tile));
        wgmma_wait<0>();
        release(tile);
    };
    auto follow = [&](int32_t tile) {
        take(s, own, rescale);
        rescale_sums();
        multiply_values<D>(o, s.weights, values_of_tile(tile));
    };
    auto goes_on = [&]() {
        first = next_tile<KEYS>(a, r, first + KEYS);
        i++;
        return first < r.end;
    };
    if (first >= r.end) return i;
    if (i % GROUPS != own->group) {
        follow(i);
        wgmma_wait<0>();
        release(i);
        if (!goes_on()) return i;
    }
    begin(i);
    for (;;) {
        attend(i);
        if (!goes_on()) return i;
        follow(i);
        if (!goes_on()) break;
        begin(i);
        wgmma_wait<1>();
        release(i - 1);
    }
    wgmma_wait<0>();
    release(i - 1);
    return i;
}

/* The group's columns: to the output, or to where splits are merged. */
template <int D>
__device__ void store_rows(const masked_args &a, const struct rows &r, const struct own_rows &own,
                           const float (&o)[wide_traits<D>::SUMS])
{
    using T = wide_traits<D>;
    const int t = threadIdx.x % 4, first = own.group * T::OWN_COLUMNS + 2 * t;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float maximum = __fmul_rn(own.state[i].maximum, own.scale[i].to_log2),
                    sum = quad_sum(own.state[i].sum);
        if (r.first + own.row + 8 * i >= r.count) continue;
        if (r.num_splits > 1) {
            float *partial = partial_of(a, r, own.head[i]);
            if (t == 0 && own.group == 0) *(float2 *)(partial + a.value_dim) = make_float2(maximum, sum);
#pragma unroll
            for (int n = 0; n < T::OWN_COLUMNS / 8; n++)
                *(float2 *)(partial + first + 8 * n) = make_float2(o[4 * n + 2 * i], o[4 * n + 2 * i + 1]);
            continue;
        }
        const float inverse = 1.0f / softmax_with_sink(sum, maximum, a.sinks, own.head[i]);
        const size_t token = (size_t)(r.first_token + own.place[i] - r.offset);
        __nv_bfloat16 *out = a.out + (token * a.num_heads + own.head[i]) * D + first;
#pragma unroll
        for (int n = 0; n < T::OWN_COLUMNS / 8; n++)
            *(uint32_t *)(out + 8 * n) =
                pack_bf16(o[4 * n + 2 * i] * inverse, o[4 * n + 2 * i + 1] * inverse);
    }
}

/* Decoding sequences have none of splits that the step's longest one has not: looking them all up takes as long as their keys do. */
__device__ __forceinline__ int32_t num_items_of(const wide_args &w)
{
    if (!w.a.partial) return w.num_items;
    const int32_t of_a_split = w.num_tiles * w.a.num_kv_heads;
    return min(w.num_items, of_a_split * splits_bound_of(w.a.counts[COUNT_LONGEST], w.a.splits_most));
}

template <int D> __device__ void consume(const wide_args &w, int32_t num_items, const view<D> &s)
{
    int32_t num_tiles = 0;
    for (int32_t i = blockIdx.x; i < num_items; i += gridDim.x) {
        struct item item;
        if (!find_item(w, num_items, i, &item)) continue;
        float o[wide_traits<D>::SUMS] = {};
        struct own_rows own = own_rows_of(w.a, item.r, item.kv_head);
        named_barrier_sync(BARRIER_CONSUMERS, CONSUMERS); /* both have done with the rows before */
        load_queries<D>(w.a, item.r, item.kv_head, s);
        num_tiles = walk<D>(w.a, item.r, s, &own, o, num_tiles);
        store_rows<D>(w.a, item.r, own, o);
    }
}

template <int D>
__global__ void __launch_bounds__(THREADS, 1)
    wide_kernel(wide_args w, const __grid_constant__ CUtensorMap map)
{
    extern __shared__ unsigned char shared[];
    const view<D> s(shared);
    if (threadIdx.x == 0) {
        tensor_map_prefetch(&map);
        for (int i = 0; i < 2; i++) {
            const bool is_of_keys = !wide_traits<D>::KEYS_ONLY && i == 0; /* whose readers are one group */
            barrier_init(s.full + 8 * i, 1);
            barrier_init(s.empty + 8 * i, (is_of_keys ? GROUP_THREADS : CONSUMERS) / 32);
        }
        barrier_init_fence();
    }
    __syncthreads();
    dependency_wait();
    const int32_t num_items = num_items_of(w);
    if (threadIdx.x >= CONSUMERS) {
        registers_lower<PRODUCER_REGISTERS>();
        if (threadIdx.x < CONSUMERS + 32) produce<D>(w, num_items, &map, s);
    } else {
        registers_raise<CONSUMER_REGISTERS>();
        consume<D>(w, num_items, s);
    }
}

/* ---- host ---- */

template <int D>
void launch(struct cuda_device *d, const masked_args &a, const struct kv_pool *pool, int32_t layer, dim3 grid)
{
    using T = wide_traits<D>;
    const wide_args w = {a, kv_boxes_of(pool, layer, a.num_kv_heads, D), (int32_t)(grid.x * grid.y * grid.z),
                         (int32_t)grid.x};
    /* prompts' tiles differ in their keys: whoever is done first gets the next one */
    const int32_t num_ctas = a.partial ? min(w.num_items, (int32_t)d->num_sms) : w.num_items;
    CUtensorMap map;
    assert_always((int64_t)grid.x * grid.y * grid.z <= INT32_MAX);
    if (tensor_map_encode_groups(d, &map, pool->data, w.boxes.num * (BLOCK_SIZE / 8), D, BLOCK_SIZE / 8))
        launch_dependent(d, wide_kernel<D>, dim3((unsigned)num_ctas), dim3(THREADS), T::SHARED_BYTES, w, map);
    else
        cuda_check(d, cudaErrorInvalidValue, "tensor map of wide attention");
}

} // namespace

bool wide_hopper_supports(const struct cuda_device *d, int32_t head_dim)
{
    return d->is_hopper && (d->latent_rotary_dim > 0 ? head_dim == 576 || head_dim == 320 : head_dim == 512);
}

void wide_hopper_launch(struct cuda_device *d, const masked_args *args, const struct kv_pool *pool,
                        int32_t layer, dim3 grid)
{
    args->head_dim == 512   ? launch<512>(d, *args, pool, layer, grid)
    : args->head_dim == 576 ? launch<576>(d, *args, pool, layer, grid)
                            : launch<320>(d, *args, pool, layer, grid);
}
