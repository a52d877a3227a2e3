/* attention_decode.cu - Flash-Decoding over the paged pool.
 *
 * One generated token a sequence. The query heads that share a K/V head are computed together, so K and V are read once for
 * all of them, and so are rows that follow each other in one sequence (bundles). The keys of a sequence are cut into splits, and those
 * into kv tiles of 64 tokens, by its own length, never by a neighbour's (attention_decode.cuh). A team of warps stays on its SM, two of
 * them on each, and walks ranges of items. Teams are CTAs of their own, or, where sequences are few, two of them are one CTA, so that a
 * range may have the memory of both (attention_decode_resident.cuh). A team's warps do one thing each:
 *
 *   producer: waits for an empty stage, has a tile's K and V copied into it, says what it is (attention_decode_producer.cuh)
 *   consumer: softmax(Q K) V of the whole tile at once; the result goes over the tile's K. Each has a stage of its own
 *   merger:   merges the results into those before them, tile by tile, split by split (attention_decode_merge.cuh)
 *
 *   stage:    empty --producer--> full --consumer--> done --mergers--> empty
 *   tile:      0 1 2 3 4 5 ...                   merger 0 has query heads 0, 4, 8 ...
 *
 * So bytes flow whatever the others do, across items and ranges. Tiles are merged in order into a split's result, and
 * those in order into a head's: in registers by the team that walks all of a head, else from partial results in memory by
 * whichever team finishes last, with the same operations. So the bits are a function of the sequence alone, not of where the
 * ranges were cut or who walked them.
 *
 * Only the page with the newest token and the queries come from this step's kernels; all other pages are fetched before
 * the kernel ahead has ended.
 *
 * Rows beyond the end of a sequence are made zero: what an earlier owner of the block left there, a NaN perhaps, must not
 * reach this one (0 x NaN). Of K that is not needed: scores are masked.
 *
 * Source: Dao et al., "Flash-Decoding for long-context inference", 2023; the GQA packing is FlashInfer's. */
#include "kernels/cuda/attention_decode.cuh"
#include "kernels/cuda/attention_decode_producer.cuh"
#include "kernels/cuda/attention_decode_merge.cuh"
#include "kernels/cuda/attention_decode_resident.cuh"
#include "kernels/cuda/kv_pool.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tensor_map.cuh"

namespace
{

/* ---- consumers ---- */

/* A lane's places in a 16 x 16 tile of a page's K or V: as B fragments of K, and transposed as A fragments of V. */
template <int D> struct tile_places {
    static constexpr int STEPS = decode_traits<D>::COLUMNS / 16;
    uint32_t at[STEPS];
    __device__ tile_places(void)
    {
        int lane = threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < STEPS; i++)
            at[i] = chunk_offset<D>(lane % 8 + lane / 16 * 8, 2 * i + lane / 8 % 2);
    }
    __device__ __forceinline__ uint32_t of(int tile) const
    {
        return at[tile % STEPS] + tile / STEPS * decode_traits<D>::PART_BYTES;
    }
};

/* Q of a tile's heads as A fragments; rows beyond are zero. With up to 8 heads no row g + 8 is there, but of zeros that it knows the
 * compiler makes copies for product after product. */
template <int D, bool BUNDLES>
__device__ __forceinline__ void load_queries(const decode_args &a, const struct kv_tile &tile,
                                             uint32_t (*q)[4])
{
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    int32_t row_heads = a.row_heads, rows = num_tile_rows<BUNDLES>(tile);
    struct tile_row r = tile_row_of<BUNDLES>(a.group, g), s = tile_row_of<BUNDLES>(a.group, g + 8);
    const __nv_bfloat16 *from = a.qkv + ((size_t)tile.token * row_heads + tile.first_head) * D;
    const uint32_t *low = (const uint32_t *)(from + (r.row * row_heads + r.head) * D) + t,
                   *high = (const uint32_t *)(from + (s.row * row_heads + s.head) * D) + t;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        q[k][0] = g < rows ? low[8 * k] : 0;
        q[k][1] = g + 8 < rows ? high[8 * k] : 0;
        q[k][2] = g < rows ? low[8 * k + 4] : 0;
        q[k][3] = g + 8 < rows ? high[8 * k + 4] : 0;
    }
}

/* Scores: s[j] are tokens 8j to 8j + 7. */
template <int D>
__device__ __forceinline__ void multiply_keys(float (*s)[4], const uint32_t (*q)[4], uint32_t k,
                                              const tile_places<D> &places)
{
#pragma unroll
    for (int i = 0; i < D / 16; i++)
#pragma unroll
        for (int p = 0; p < KV_TILE_PAGES; p++) {
            uint32_t b[4]; /* tokens 0-7: columns 0-7, 8-15; tokens 8-15: the same */
            load_matrix(b, k + p * decode_traits<D>::PAGE_BYTES + places.of(i));
            mma_bf16(s[2 * p], q[i], b[0], b[1]);
            mma_bf16(s[2 * p + 1], q[i], b[2], b[3]);
        }
}

template <bool BUNDLES>
__device__ __forceinline__ void mask_scores(const decode_args &a, float (*s)[4], const struct kv_tile &tile)
{
    int32_t num_hidden = tile.num_hidden + (BUNDLES ? tile.num_rows - 1 : 0); /* of the last row */
    if (tile.num_valid == KV_TILE_TOKENS && num_hidden <= 0) return;
    int g = threadIdx.x % 32 / 4;
    int32_t rows[] = {tile_row_of<BUNDLES>(a.group, g).row, tile_row_of<BUNDLES>(a.group, g + 8).row};
#pragma unroll
    for (int j = 0; j < KV_TILE_TOKENS / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int32_t token = 8 * j + 2 * (threadIdx.x % 4) + i % 2;
            if (token >= tile.num_valid + rows[i / 2] || token < tile.num_hidden + rows[i / 2])
                s[j][i] = -INFINITY;
        }
}

/* Scores of rows g + 8 * TILE become weights. Returns the state of their softmax, its maximum in log2 units. */
template <int TILE> __device__ __forceinline__ struct softmax_state weigh(float (*s)[4], float scale_log2)
{
    float top = -INFINITY, sum = 0;
#pragma unroll
    for (int j = 0; j < KV_TILE_TOKENS / 8; j++) top = fmaxf(top, fmaxf(s[j][2 * TILE], s[j][2 * TILE + 1]));
    top = quad_max(top);
    float base = top == -INFINITY ? 0.0f : __fmul_rn(top, scale_log2); /* a row that sees nothing */
#pragma unroll
    for (int j = 0; j < KV_TILE_TOKENS / 8; j++)
#pragma unroll
        for (int i = 2 * TILE; i < 2 * TILE + 2; i++) {
            s[j][i] = exp2_fast(__fmaf_rn(s[j][i], scale_log2, -base));
            sum = __fadd_rn(sum, s[j][i]);
        }
    return {top == -INFINITY ? top : base, quad_sum(sum)};
}

__device__ __forceinline__ void cap_scores(float (*s)[4], float factor)
{
#pragma unroll
    for (int j = 0; j < KV_TILE_TOKENS / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) s[j][i] = softcap_score(s[j][i], factor);
}

/* Where the copy engine brought the last page whole: V's rows from first to the page's end. */
template <int D> __device__ __noinline__ void zero_rows(uint32_t v, int32_t first)
{
    using T = decode_traits<D>;
    uint32_t page = v + first / BLOCK_SIZE * T::PAGE_BYTES;
    for (int32_t i = first % BLOCK_SIZE * (D / 8) + threadIdx.x % 32; i < BLOCK_SIZE * (D / 8); i += 32)
        store_zeros(page + chunk_offset<D>(i / (D / 8), i % (D / 8)));
}

/* O transposed, columns of V on the M side: 16 columns from first on and 8 heads a tile. */
template <int D, int TILES>
__device__ __forceinline__ void multiply_values(float (*o)[TILES][4], const uint32_t (*w)[TILES][2],
                                                uint32_t v, int first, const tile_places<D> &places)
{
    using T = decode_traits<D>;
#pragma unroll
    for (int p = 0; p < KV_TILE_PAGES; p++)
#pragma unroll
        for (int n = 0; n < T::CHUNK; n++) {
            uint32_t b[4];
            load_matrix_transposed(b, v + p * T::PAGE_BYTES + places.of(first + n));
#pragma unroll
            for (int h = 0; h < TILES; h++) mma_bf16(o[n][h], b, w[p][h][0], w[p][h][1]);
        }
}

template <int D, int TILES>
__device__ __forceinline__ void store_columns(float *to, const float (*o)[TILES][4], int32_t rows, int first)
{
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < TILES; h++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int row = 8 * h + 2 * t + i;
            if (row >= rows) continue;
            float *r = to + row * decode_traits<D>::ROW_FLOATS + first * 16 + g;
#pragma unroll
            for (int n = 0; n < decode_traits<D>::CHUNK; n++) {
                r[16 * n] = o[n][h][i];
                r[16 * n + 8] = o[n][h][i + 2];
            }
        }
}

/* A tile that has come: V's rows beyond the end become zero. */
template <int D, bool BUNDLES>
__device__ __forceinline__ void prepare_tile(const struct kv_tile &tile, unsigned char *memory)
{
    int32_t num_valid = tile.num_valid; /* of the last row */
    if (BUNDLES) num_valid = min(num_valid + tile.num_rows - 1, (int32_t)KV_TILE_TOKENS);
    if (HAS_COPY_ENGINE && num_valid % BLOCK_SIZE != 0)
        zero_rows<D>(shared_address(memory) + decode_traits<D>::V_OFFSET, num_valid);
}

/* The tile in a stage: its result, rows of D values, maximum, sum, replaces its K. */
template <int D, int TILES, bool EXTRA, bool BUNDLES>
__device__ __forceinline__ void consume_tile(const decode_args &a, const struct kv_tile &tile,
                                             const uint32_t (*q)[4], unsigned char *memory,
                                             const tile_places<D> &places)
{
    using T = decode_traits<D>;
    uint32_t stage = shared_address(memory);
    int g = threadIdx.x % 32 / 4, rows = num_tile_rows<BUNDLES>(tile);
    float s[KV_TILE_TOKENS / 8][4] = {};
    struct softmax_state softmax[TILES];
    multiply_keys<D>(s, q, stage, places);
    if (EXTRA && a.softcap > 0) cap_scores(s, a.softcap);
    mask_scores<BUNDLES>(a, s, tile);
    softmax[0] = weigh<0>(s, a.scale_log2);
    if (TILES > 1) softmax[TILES - 1] = weigh<TILES - 1>(s, a.scale_log2);
    uint32_t w[KV_TILE_PAGES][TILES][2];
#pragma unroll
    for (int p = 0; p < KV_TILE_PAGES; p++)
#pragma unroll
        for (int h = 0; h < TILES; h++)
            for (int i = 0; i < 2; i++) w[p][h][i] = pack_bf16(s[2 * p + i][2 * h], s[2 * p + i][2 * h + 1]);
    __syncwarp(); /* K was read, V's rows are zero */
    float *result = (float *)memory;
    if (threadIdx.x % 4 == 0)
        for (int h = 0; h < TILES; h++)
            if (g + 8 * h < rows)
                *(float2 *)(result + (g + 8 * h) * T::ROW_FLOATS + D) =
                    make_float2(softmax[h].maximum, softmax[h].sum);
#pragma unroll
    for (int first = 0; first < D / 16; first += T::CHUNK) {
        float o[T::CHUNK][TILES][4] = {};
        multiply_values<D, TILES>(o, w, stage + T::V_OFFSET, first, places);
        store_columns<D, TILES>(result, o, rows, first);
    }
}

/* What a consumer keeps from tile to tile: the queries of a head of a sequence. */
template <int D, int TILES, bool EXTRA, bool BUNDLES> struct consumer {
    tile_places<D> places;
    uint32_t q[D / 16][4];

    __device__ __forceinline__ void load(const decode_args &a, const struct kv_tile &tile)
    {
        load_queries<D, BUNDLES>(a, tile, q);
    }
    __device__ __forceinline__ void prepare(const struct kv_tile &tile, unsigned char *stage) const
    {
        prepare_tile<D, BUNDLES>(tile, stage);
    }
    __device__ __forceinline__ void compute(const decode_args &a, const struct kv_tile &tile,
                                            unsigned char *stage) const
    {
        consume_tile<D, TILES, EXTRA, BUNDLES>(a, tile, q, stage, places);
        shared_writes_fence();
    }
};

template <int D, int TILES, bool EXTRA, bool BUNDLES>
__device__ void consume(const decode_args &a, const view &v, int stage)
{
    struct consumer<D, TILES, EXTRA, BUNDLES> c;
    uint32_t parity = 0;
    int32_t seq = -1, head = -1;
    dependency_wait();
    for (;; parity ^= 1) {
        barrier_wait(v.full(stage), parity);
        struct kv_tile tile = v.tiles[stage];
        if (tile.seq >= 0) {
            if (tile.seq != seq || tile.head != head) c.load(a, tile);
            seq = tile.seq;
            head = tile.head;
            unsigned char *memory = v.stages + stage * decode_traits<D>::STAGE_BYTES;
            c.prepare(tile, memory);
            c.compute(a, tile, memory);
        }
        release(v.done(stage));
        if (tile.seq < 0) return;
    }
}

/* ---- mergers ---- */

/* Rows of one merger. */
template <int TILES> static constexpr int MERGER_ROWS = (8 * TILES + MERGE_WARPS - 1) / MERGE_WARPS;

/* tile: the last one of a split, whose rows' results these are. head: of the splits before, where this range has all of them; else
 * results go to memory, and whoever is the last to come merges them. */
template <int D, int TILES, bool EXTRA, bool BUNDLES>
__device__ __forceinline__ void close_split(const decode_args &a, const struct kv_tile &tile,
                                            const struct destination &to, int32_t rows, int merger,
                                            struct row_result<decode_traits<D>::VECTORS> *split,
                                            struct row_result<decode_traits<D>::VECTORS> *head)
{
    bool whole = tile.num_mine == tile.num_splits;
#pragma unroll
    for (int i = 0; i < MERGER_ROWS<TILES>; i++) {
        int row = merger + i * MERGE_WARPS;
        if (row >= rows) break;
        struct tile_row r = tile_row_of<BUNDLES>(a.group, row);
        if (!whole) {
            float *partial = to.partial + r.row * to.row_floats + (size_t)tile.split * a.partial_floats;
            row_write<D>(partial + r.head * decode_traits<D>::ROW_FLOATS, split[i]);
            continue;
        }
        if (tile.split == 0)
            head[i] = split[i];
        else
            row_merge(&head[i], split[i]);
        __nv_bfloat16 *out = to.out + (r.row * a.num_heads + r.head) * D;
        if (tile.ends_mine) row_write_out<D, EXTRA>(out, head[i], a.sinks, to.first_head + r.head);
    }
    if (tile.ends_mine && !whole && merger < rows) {
        struct partials p = {to.partial, a.partial_floats, tile.num_splits, rows,
                             a.group,    a.num_heads,      to.row_floats};
        merge_partials<D, 16 / decode_traits<D>::VECTORS / TILES, SPLITS_MAX, EXTRA, BUNDLES>(
            p, to.counters + merger, tile.num_mine, merger, to.out, a.sinks, to.first_head);
#pragma unroll
        for (int i = 0; i < MERGER_ROWS<TILES>; i++)
            split[i] = head[i] = {}; /* not kept across the merge, which needs the registers */
    }
}

template <int D, int TILES, bool EXTRA, bool BUNDLES>
__device__ void merge_results(const decode_args &a, const view &v, int merger)
{
    using T = decode_traits<D>;
    struct row_result<T::VECTORS> split[MERGER_ROWS<TILES>], head[MERGER_ROWS<TILES>];
    struct pipeline_state c = {0, 0};
    dependency_wait();
    for (int num_ends = 0; num_ends < a.num_stages; c.advance(a.num_stages)) {
        barrier_wait(v.done(c.stage), c.parity);
        struct kv_tile tile = v.tiles[c.stage];
        if (tile.seq < 0) {
            num_ends++;
            release(v.empty(c.stage));
            continue;
        }
        int32_t rows = num_tile_rows<BUNDLES>(tile);
        const float *result = (const float *)(v.stages + c.stage * T::STAGE_BYTES);
#pragma unroll
        for (int i = 0; i < MERGER_ROWS<TILES>; i++) {
            int row = merger + i * MERGE_WARPS;
            if (row >= rows) break;
            struct row_result<T::VECTORS> x;
            row_read<D>(&x, result + row * T::ROW_FLOATS);
            if (tile.begins_split)
                split[i] = x;
            else
                row_merge(&split[i], x);
        }
        release(v.empty(c.stage));
        if (!tile.ends_split) continue;
        close_split<D, TILES, EXTRA, BUNDLES>(
            a, tile, destination_of<D>(a, tile.seq, tile.head, tile.token, tile.first_head), rows, merger,
            split, head);
    }
}

/* ---- ranges without a ring: attention_decode_resident.cuh ---- */

/* The warp of a kv tile, that from w's page on, and of a stage: leaves the result there. */
template <int D, int TILES, bool EXTRA>
__device__ __forceinline__ void attend_tile(const decode_args &a, const CUtensorMap *map, const view &v,
                                            const struct walk &w, int stage)
{
    int32_t page = w.page + (int32_t)threadIdx.x % KV_TILE_PAGES, last = w.cut.num_pages - 1 - w.page,
            block = page < w.cut.num_pages ? load_kept(w.table + page) : -1;
    unsigned char *memory = v.stages + stage * decode_traits<D>::STAGE_BYTES;
    if (threadIdx.x % 32 == 0) {
        barrier_init(v.full(stage), 1);
        barrier_init_fence();
    }
    __syncwarp();
    if (w.goes_on) dependency_wait(); /* as the producer does */
    copy_tile_by_engine<D>(a, map, w, block, shared_address(memory), v.full(stage));
    struct consumer<D, TILES, EXTRA, false> c;
    struct newest_row<D> newest;
    struct kv_tile tile = kv_tile_of<KV_TILE_PAGES>(a, w);
    bool has_newest = last < KV_TILE_PAGES;
    int32_t newest_block = __shfl_sync(0xffffffffu, block, last % KV_TILE_PAGES);
    barrier_wait(v.full(stage), 0);
    c.prepare(tile, memory);
    dependency_wait();
    if (has_newest) newest.read(a, w, newest_block);
    c.load(a, tile);
    if (has_newest) newest.write(memory, last);
    c.compute(a, tile, memory);
}

/* What a merger does: row by row, the split's tiles, then, whoever comes last, the head's splits. Where results go it reckons before they
 * are there. */
template <int D, bool EXTRA>
__device__ __forceinline__ void merge_resident(const decode_args &a, const view &v, const struct walk &w,
                                               int merger)
{
    using T = decode_traits<D>;
    struct destination to = destination_of<D>(a, w.seq, w.head, w.token, w.first_head);
    int32_t num_splits = w.cut.end_split - w.cut.first_split, num_tiles = num_tiles_of(w);
    float *partial = to.partial + (size_t)(w.split - w.cut.first_split) * a.partial_floats;
    struct partials all = {to.partial, a.partial_floats, num_splits, w.num_heads, a.group, a.num_heads, 0};
    dependency_wait();
    __syncthreads();
#pragma unroll 1
    for (int row = merger; row < w.num_heads; row += MERGE_WARPS) {
        const unsigned char *result = v.stages + row * T::ROW_FLOATS * (int32_t)sizeof(float);
        struct row_result<T::VECTORS> split, x;
        row_read<D>(&split, (const float *)result);
#pragma unroll 1
        for (int32_t tile = 1; tile < num_tiles; tile++) {
            row_read<D>(&x, (const float *)(result += decode_traits<D>::STAGE_BYTES));
            row_merge(&split, x);
        }
        if (num_splits == 1)
            row_write_out<D, EXTRA>(to.out + row * D, split, a.sinks, to.first_head + row);
        else
            row_write<D>(partial + row * T::ROW_FLOATS, split);
    }
    if (num_splits > 1 && merger < w.num_heads)
        merge_partials<D, SPLITS_FEW, resident_splits<D>(), EXTRA, false>(
            all, to.counters + merger, 1, merger, to.out, a.sinks, to.first_head);
}

/* The first warps of the CTA have tiles, the last ones merge. */
template <int D, int TILES, bool EXTRA>
__device__ void attend_resident(const decode_args &a, const CUtensorMap *map, const view &v, struct walk w,
                                int warp, int num_warps)
{
    if (warp >= num_warps - MERGE_WARPS) {
        merge_resident<D, EXTRA>(a, v, w, warp - (num_warps - MERGE_WARPS));
        return;
    }
    w.page += warp * KV_TILE_PAGES;
    if (w.page < w.end_page) attend_tile<D, TILES, EXTRA>(a, map, v, w, warp);
    __syncthreads();
}

/* ---- launch ---- */

/* Of a CTA. */
template <int D> int32_t shared_bytes(int32_t num_stages, int32_t num_teams)
{
    int32_t stage_bytes = decode_traits<D>::STAGE_BYTES + (int32_t)sizeof(struct kv_tile);
    return ATOM_BYTES + num_teams * (num_stages * stage_bytes + TEAM_BARRIERS * 8);
}

/* BY_ENGINE: copies are the copy engine's, else those of lanes. BUNDLES: there may be some. Range i is that
 * of CTA i's first team, then those of second teams follow. Where these have none, all warps of the CTA look at its only one. */
template <int D, int TILES, bool EXTRA, bool BY_ENGINE, bool BUNDLES>
__global__ void __launch_bounds__(decode_teams_per_sm(D) * TEAM_WARPS * 32)
    decode_kernel(const __grid_constant__ decode_args a, const __grid_constant__ CUtensorMap map)
{
    extern __shared__ __align__(128) unsigned char shared[];
    if (BY_ENGINE && !HAS_COPY_ENGINE) return; /* not launched there */
    int warp = warp_uniform(threadIdx.x / 32), team = warp / TEAM_WARPS;
    warp -= team * TEAM_WARPS;

    /* the step's arrays, and pages of earlier steps, were there before the first kernel of this step began */
    dependents_launch();
    struct walk w;
    int32_t num_ranges = walk_find_lists(a, &w), range = (int32_t)(blockIdx.x + team * gridDim.x);
    if ((int32_t)blockIdx.x >= num_ranges) return;
    bool is_only = BY_ENGINE && !BUNDLES && decode_teams_per_sm(D) > 1 && a.num_teams > 1 &&
                   num_ranges <= (int32_t)gridDim.x;
    if (is_only || (warp == 0 && range < num_ranges))
        walk_open<BUNDLES>(a, &w, is_only ? (int32_t)blockIdx.x : range);
    if constexpr (BY_ENGINE && !BUNDLES && decode_teams_per_sm(D) > 1)
        if (is_only && is_resident(a, w)) {
            attend_resident<D, TILES, EXTRA>(a, &map, view::of<D>(shared, a, 0), w, team * TEAM_WARPS + warp,
                                             a.num_teams * TEAM_WARPS);
            return;
        }
    view v = view::of<D>(shared, a, team);
    if (warp == 0 && threadIdx.x % 32 == 0) {
        if (BY_ENGINE) tensor_map_prefetch(&map);
        for (int i = 0; i < a.num_stages; i++) {
            barrier_init(v.full(i), BY_ENGINE ? 1 : 33);
            barrier_init(v.done(i), 32);
            barrier_init(v.empty(i), 32 * MERGE_WARPS);
        }
        barrier_init_fence();
    }
    __syncthreads();
    if (range >= num_ranges) return;
    if (warp == 0)
        produce<KV_TILE_PAGES, BY_ENGINE, BUNDLES>(
            a, v, w, num_ranges, [&](const struct walk &at, int32_t block, int32_t stage) {
                copy_tile<D, BY_ENGINE>(a, &map, at, block, v.ring + stage * decode_traits<D>::STAGE_BYTES,
                                        v.full(stage));
            });
    else if (warp <= MERGE_WARPS)
        merge_results<D, TILES, EXTRA, BUNDLES>(a, v, warp - 1);
    else if (warp <= MERGE_WARPS + a.num_stages)
        consume<D, TILES, EXTRA, BUNDLES>(a, v, warp - 1 - MERGE_WARPS);
}

/* The pool as boxes: index of block, K or V, and head; parts of a row; rows; columns. */
template <int D>
bool encode_pool(const struct cuda_device *d, CUtensorMap *map, const struct kv_pool *pool, int32_t num_boxes)
{
    using T = decode_traits<D>;
    cuuint64_t sizes[] = {T::COLUMNS, BLOCK_SIZE, T::PARTS, (cuuint64_t)num_boxes};
    cuuint64_t strides[] = {D * 2, T::ROW_BYTES, T::PAGE_BYTES};
    cuuint32_t box[] = {T::COLUMNS, BLOCK_SIZE, T::PARTS, 1};
    return tensor_map_encode(d, map, pool->data, 4, sizes, strides, box, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
}

/* As many stages as a team has room for. */
template <int D> int32_t stages_of(const struct cuda_device *d, int32_t num_teams)
{
    int32_t n = 1;
    while (n < TEAM_STAGES && shared_bytes<D>(n + 1, num_teams) <= d->cta_shared_bytes) n++;
    return n;
}

template <int D, int TILES, bool EXTRA, bool BUNDLES>
void launch(struct cuda_device *d, decode_args *a, const struct kv_pool *pool,
            const struct attention_args *args)
{
    a->num_stages = stages_of<D>(d, a->num_teams);
    int32_t bytes = shared_bytes<D>(a->num_stages, a->num_teams);
    assert_always(bytes <= d->cta_shared_bytes);
    CUtensorMap map = {};
    if (d->is_hopper && !encode_pool<D>(d, &map, pool, a->boxes.num))
        cuda_check(d, cudaErrorInvalidValue, "tensor map of decode attention");
    auto kernel = decode_kernel<D, TILES, EXTRA, true, BUNDLES>;
    if (!d->is_hopper) kernel = decode_kernel<D, TILES, EXTRA, false, BUNDLES>;
    launch_dependent(d, kernel, dim3((unsigned)(cuda_decode_teams(d, args) / a->num_teams)),
                     dim3((unsigned)(a->num_teams * TEAM_WARPS * 32)), (size_t)bytes, *a, map);
}

template <int D>
void launch(struct cuda_device *d, decode_args *a, const struct kv_pool *pool,
            const struct attention_args *args)
{
    bool has_extra = a->softcap > 0 || a->sinks; /* as in attention_prefill.cuh */
    if (a->bundle > 1)
        has_extra ? launch<D, 2, true, true>(d, a, pool, args) : launch<D, 2, false, true>(d, a, pool, args);
    else if (a->group <= 8)
        has_extra ? launch<D, 1, true, false>(d, a, pool, args)
                  : launch<D, 1, false, false>(d, a, pool, args);
    else
        has_extra ? launch<D, 2, true, false>(d, a, pool, args)
                  : launch<D, 2, false, false>(d, a, pool, args);
}

/* Teams of a CTA: all that an SM has where heads are so few that a split of each may have an SM for itself. A step that is recorded has
 * many lengths after that, so these are not asked. */
int32_t num_teams_of(const struct cuda_device *d, const struct batch *b, const struct attention_args *args)
{
    int32_t num_heads = (b->num_seqs - b->num_prefill_seqs) * cuda_decode_heads(args);
    return d->is_hopper && num_heads * 4 <= d->num_sms ? decode_teams_per_sm(args->head_dim) : 1;
}

/* Of the plans. */
int window_idx(struct cuda_device *d, int32_t window)
{
    for (int i = 0; i < d->num_windows; i++)
        if (d->windows[i] == window) return i;
    cuda_check(d, cudaErrorInvalidValue, "decode attention of a window that no plan is made for");
    return 0;
}

} // namespace

void cuda_attention_decode(struct cuda_device *d, const struct batch *b, __nv_bfloat16 *out,
                           const __nv_bfloat16 *qkv, const struct kv_pool *pool, int32_t layer,
                           const struct attention_args *args)
{
    assert_always(args->num_heads % args->num_kv_heads == 0);
    decode_args a = {};
    a.out = out;
    a.qkv = qkv;
    a.pool = kv_pool_layer(pool, layer, args->num_kv_heads, args->head_dim);
    a.counts = b->counts;
    a.base = b->tables;
    a.plan = b->counts + COUNT_DECODE_PLANS + 2 * window_idx(d, args->sliding_window);
    a.cu_seqlens_q = b->cu_seqlens_q;
    a.seqlens_k = b->seqlens_k;
    a.table_offsets = b->kv_groups[args->kv_group].table_offsets;
    a.partial = d->attention_partial;
    a.counters = d->attention_counters;
    a.ranges_taken = &d->queues->decode_ranges;
    a.block_elements = pool->block_elements;
    a.boxes = kv_boxes_of(pool, layer, args->num_kv_heads, args->head_dim);
    a.num_heads = args->num_heads;
    a.num_kv_heads = args->num_kv_heads;
    a.group = decode_group(args);
    a.row_heads = cuda_row_heads(args);
    a.seq_heads = cuda_decode_heads(args);
    a.head_tiles = a.seq_heads / a.num_kv_heads;
    a.splits_most = splits_most_of(cuda_all_decode_heads(args));
    a.sliding_window = args->sliding_window;
    a.partial_floats = decode_partial_floats(args);
    a.bundle = b->decode_bundle;
    a.num_seqs = b->step->num_seqs;
    a.num_teams = num_teams_of(d, b, args);
    a.scale_log2 = (args->softcap > 0 ? args->softcap : args->scale) * 1.4426950408889634f;
    a.softcap = args->softcap > 0 ? args->scale / args->softcap : 0;
    a.sinks = args->sinks;
    if (kv_pool_has_codes(pool)) {
        cuda_attention_decode_codes(d, a, args->head_dim);
        return;
    }
    switch (args->head_dim) {
    case 64:
        launch<64>(d, &a, pool, args);
        break;
    case 80:
        launch<80>(d, &a, pool, args);
        break;
    case 96:
        launch<96>(d, &a, pool, args);
        break;
    case 128:
        launch<128>(d, &a, pool, args);
        break;
    case 256:
        launch<256>(d, &a, pool, args);
        break;
    }
}
