/* attention_decode_producer.cuh - the warp of decode attention that fetches: it walks its team's ranges of items, kv tile by kv tile,
 * and says what it has put into a stage.
 *
 * Pages that hold tokens of earlier steps alone are fetched ahead of the dependency on the kernel before. They are there because
 * a step's first kernel waits for all of the steps before it (launch_after_all), and this kernel cannot begin before that one
 * has. The last tile, with the newest token, waits for the kernel that writes it. So do all tiles of a row that goes on where the
 * row before it in this step stands: they are rows of one sequence, share its table (step.cu), and it sees what the others write.
 *
 * On sm_90 the copy engine brings a page of K or V as one box, else (struct cuda_device, is_hopper) the lanes copy 16 bytes at a time. Either way a
 * row of K or V lies in parts of at most 128 bytes, swizzled so that 8 rows fall into distinct banks. */
#ifndef KERNELS_CUDA_ATTENTION_DECODE_PRODUCER_CUH
#define KERNELS_CUDA_ATTENTION_DECODE_PRODUCER_CUH

#include "kernels/cuda/attention_decode.cuh"
#include "kernels/cuda/load_kept.cuh"

/* Where the producer stands in its range of items. */
struct walk {
    const struct decode_range *ranges; /* of the step */
    const int32_t *tables;             /* of all sequences */
    int32_t num_left;                  /* items, this one included */
    int32_t seq, head, split, num_mine;
    int32_t seqlen, num_rows, token; /* of a bundle's last row; of the bundle */
    int32_t page, end_page;          /* the next tile's first page; of the split */
    bool goes_on;                    /* where the row before it stands */
    struct cut cut;
    const int32_t *table;
    int32_t kv_head, first_head, num_heads; /* first_head, num_heads: as in kv_tile */
};

static __device__ __forceinline__ int32_t num_bundled(const decode_args &a, int32_t seq)
{
    int32_t n = 1;
    while (seq + n < a.num_seqs && a.table_offsets[seq + n] == a.table_offsets[seq] &&
           is_bundled(a.seqlens_k[seq + n], a.bundle, a.sliding_window))
        n++;
    return n;
}

/* Where the step's lists are. What walks read of them, every layer does again. Returns the number of ranges. */
static __device__ __forceinline__ int32_t walk_find_lists(const decode_args &a, struct walk *w)
{
    int32_t num_ranges = load_kept(a.plan);
    w->ranges = (const struct decode_range *)(a.base + load_kept(a.plan + 1));
    w->tables = a.base + load_kept(a.counts + COUNT_TABLES);
    return num_ranges;
}

template <bool BUNDLES>
static __device__ __forceinline__ void walk_open_seq(const decode_args &a, struct walk *w)
{
    w->num_rows = BUNDLES ? num_bundled(a, w->seq) : 1;
    int32_t offset = load_kept(a.table_offsets + w->seq),
            before = load_kept(a.table_offsets + max(w->seq - 1, 0));
    w->seqlen = load_kept(a.seqlens_k + w->seq + w->num_rows - 1);
    w->token = load_kept(a.cu_seqlens_q + w->seq);
    w->table = w->tables + offset;
    w->goes_on = w->seq > 0 && offset == before;
    w->cut = cut_of(w->seqlen, a.sliding_window, a.splits_most);
}

static __device__ __forceinline__ void walk_open_head(const decode_args &a, struct walk *w)
{
    w->kv_head = a.head_tiles == 1 ? w->head : w->head / a.head_tiles;
    int32_t before = (w->head - w->kv_head * a.head_tiles) * DECODE_TILE_ROWS; /* of the K/V head's */
    w->first_head = w->kv_head * a.group + before;
    w->num_heads = min(a.group - before, (int32_t)DECODE_TILE_ROWS);
    w->num_mine = min(w->num_left, w->cut.end_split - w->split);
}

/* The window may begin in the middle of the split. */
static __device__ __forceinline__ int32_t first_page_of_split(const struct walk &w)
{
    return max(w.split * w.cut.pages_per_split, w.cut.first_page);
}

static __device__ __forceinline__ void walk_open_split(struct walk *w)
{
    w->page = first_page_of_split(*w);
    w->end_page = min((w->split + 1) * w->cut.pages_per_split, w->cut.num_pages);
}

template <bool BUNDLES>
static __device__ __forceinline__ void walk_open(const decode_args &a, struct walk *w, int32_t range_idx)
{
    int4 range = load_kept((const int4 *)(w->ranges + range_idx)); /* struct decode_range */
    w->seq = range.x;
    w->head = range.y;
    w->split = range.z;
    w->num_left = range.w;
    walk_open_seq<BUNDLES>(a, w);
    walk_open_head(a, w);
    walk_open_split(w);
}

template <bool BUNDLES> static __device__ __forceinline__ void walk_next(const decode_args &a, struct walk *w)
{
    if (--w->num_left == 0) return;
    if (++w->split == w->cut.end_split) {
        if (++w->head == a.seq_heads) {
            w->head = 0;
            w->seq += w->num_rows;
            walk_open_seq<BUNDLES>(a, w);
        }
        w->split = w->cut.first_split;
        walk_open_head(a, w);
    }
    walk_open_split(w);
}

/* PAGES: of a tile. Tiles of more than KV_TILE_PAGES may be cut short by their split's end. */
template <int PAGES>
static __device__ __forceinline__ struct kv_tile kv_tile_of(const decode_args &a, const struct walk &w)
{
    struct kv_tile tile;
    int32_t seqlen = w.seqlen - (w.num_rows - 1); /* of the first row */
    tile.seq = w.seq;
    tile.head = w.head;
    tile.first_head = w.first_head;
    tile.num_heads = w.num_heads;
    tile.token = w.token;
    tile.num_valid = min(seqlen - w.page * BLOCK_SIZE, PAGES * BLOCK_SIZE);
    if (PAGES > KV_TILE_PAGES) tile.num_valid = min(tile.num_valid, (w.end_page - w.page) * BLOCK_SIZE);
    tile.num_hidden = a.sliding_window > 0 ? seqlen - a.sliding_window - w.page * BLOCK_SIZE
                                           : -DECODE_TILE_ROWS; /* nor of a row behind */
    tile.num_rows = w.num_rows;
    tile.split = w.split - w.cut.first_split;
    tile.num_splits = w.cut.end_split - w.cut.first_split;
    tile.num_mine = w.num_mine;
    tile.begins_split = w.page == first_page_of_split(w);
    tile.ends_split = w.page + PAGES >= w.end_page;
    tile.ends_mine = tile.ends_split && (w.num_left == 1 || w.split + 1 == w.cut.end_split);
    return tile;
}

/* Opens the range after a team's first one, and after that one. False: there is none. */
template <bool BUNDLES>
static __device__ __forceinline__ bool take_range(const decode_args &a, int32_t num_ranges, struct walk *w)
{
    int32_t num_teams = (int32_t)gridDim.x * a.num_teams, taken = 0;
    if (num_ranges <= num_teams) return false;
    dependency_wait();
    if (threadIdx.x % 32 == 0)
        taken = queue_draw(a.ranges_taken, num_ranges - 1); /* each team's last finds none */
    int32_t range = num_teams + __shfl_sync(0xffffffffu, taken, 0);
    if (range >= num_ranges) return false;
    walk_open<BUNDLES>(a, w, range);
    return true;
}

/* block: that of page lane % 4, -1 beyond the end. */
template <int D>
static __device__ __forceinline__ void copy_tile_by_engine(const decode_args &a, const CUtensorMap *map,
                                                           const struct walk &w, int32_t block,
                                                           uint32_t stage, uint32_t full)
{
    using T = decode_traits<D>;
    int lane = threadIdx.x % 32;
    if (lane == 0) barrier_arrive_expect(full, T::STAGE_BYTES);
    __syncwarp();
    int32_t which = lane / KV_TILE_PAGES; /* K, V */
    int32_t box = a.boxes.first + block * a.boxes.per_block + which * a.num_kv_heads + w.kv_head;
    if (which < 2)
        tensor_stream_4d(stage + lane * T::PAGE_BYTES, map, full, 0, 0, 0, block < 0 ? a.boxes.num : box);
}

template <int D>
static __device__ __forceinline__ void copy_tile_by_lanes(const decode_args &a, const struct walk &w,
                                                          int32_t block, uint32_t stage, uint32_t full)
{
    using T = decode_traits<D>;
    int lane = threadIdx.x % 32;
    size_t v_elements = (size_t)a.num_kv_heads * BLOCK_SIZE * D;
#pragma unroll 1
    for (int p = 0; p < KV_TILE_PAGES; p++) {
        int32_t b = __shfl_sync(0xffffffffu, block, p), num_rows = w.seqlen - (w.page + p) * BLOCK_SIZE;
        const __nv_bfloat16 *k =
            a.pool + max(b, 0) * a.block_elements + (size_t)w.kv_head * BLOCK_SIZE * D + lane * 8;
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            int row = (i * 32 + lane) / (D / 8), chunk = (i * 32 + lane) % (D / 8);
            uint32_t to = stage + p * T::PAGE_BYTES + chunk_offset<D>(row, chunk);
            copy_async(to, k + i * 32 * 8, row < num_rows);
            copy_async(to + T::V_OFFSET, k + v_elements + i * 32 * 8, row < num_rows);
        }
    }
    barrier_arrive_after_copies(full);
    if (lane == 0) barrier_arrive(full);
}

template <int D, bool BY_ENGINE>
static __device__ __forceinline__ void copy_tile(const decode_args &a, const CUtensorMap *map,
                                                 const struct walk &w, int32_t block, uint32_t stage,
                                                 uint32_t full)
{
    if (BY_ENGINE)
        copy_tile_by_engine<D>(a, map, w, block, stage, full);
    else
        copy_tile_by_lanes<D>(a, w, block, stage, full);
}

/* The warp's whole work. w: open at the team's first range. copy(w, block, stage): asks for the tile at w.page; block is that of its page
 * lane % PAGES, -1 beyond the sequence's end. */
template <int PAGES, bool BY_ENGINE, bool BUNDLES, typename COPY>
static __device__ __forceinline__ void produce(const decode_args &a, const view &v, struct walk w,
                                               int32_t num_ranges, const COPY &copy)
{
    int lane = threadIdx.x % 32;
    struct pipeline_state c = {0, 1};
    int32_t blocks = 0;
    do {
        for (; w.num_left > 0; walk_next<BUNDLES>(a, &w)) {
#pragma unroll 1
            for (int32_t i = 0; w.page < w.end_page; i += PAGES, w.page += PAGES) {
                if (i % 32 == 0) blocks = w.page + lane < w.cut.num_pages ? w.table[w.page + lane] : -1;
                if (w.goes_on || w.page + PAGES >= w.cut.num_pages)
                    dependency_wait(); /* what this step writes */
                barrier_wait(v.empty(c.stage), c.parity);
                if (lane == 0) v.tiles[c.stage] = kv_tile_of<PAGES>(a, w);
                copy(w, __shfl_sync(0xffffffffu, blocks, i % 32 + lane % PAGES), c.stage);
                c.advance(a.num_stages);
            }
        }
    } while (take_range<BUNDLES>(a, num_ranges, &w));
    for (int i = 0; i < a.num_stages; i++) { /* one end for each consumer */
        barrier_wait(v.empty(c.stage), c.parity);
        if (lane == 0) v.tiles[c.stage].seq = -1;
        if (!BY_ENGINE) barrier_arrive_after_copies(v.full(c.stage));
        if (lane == 0) barrier_arrive(v.full(c.stage));
        c.advance(a.num_stages);
    }
}

#endif
