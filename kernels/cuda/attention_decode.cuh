/* attention_decode.cuh - how decode attention cuts its work, which the plan (host) and the kernel agree on, and what the warps
 * of a team share: stages of a ring, and what each has in it.
 *
 *   sequence of one K/V head: | split 0             | split 1             | split 2  |   of its length, see cut_of
 *   split:                    | kv tile | kv tile | ... |                                64 tokens, 4 pages
 *
 * An item is (sequence, head, split); a range is a run of items in that order, cut anywhere between two items.
 *
 * In a step where rows follow each other in one sequence (step_tables.cu), some that do are computed together, as query heads of one
 * K/V head are: a bundle, which stands for a sequence here. Bundles are cut by position, so that their rows have the same tiles:
 *
 *   group 4:  | 0 1 2 3 | 4 5 6 7 | 8 9 10 11 | 12 13 14 15 |   positions of a page; 4 rows of 4 heads fill a tile of 16
 *
 * What a row computes is the same alone and in a bundle: tokens behind it get no weight in its last tile. */
#ifndef KERNELS_CUDA_ATTENTION_DECODE_CUH
#define KERNELS_CUDA_ATTENTION_DECODE_CUH

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/kv_pool.cuh"
#include "kernels/cuda/mma.cuh"

enum {
    DECODE_TILE_ROWS = 16, /* query heads of one K/V head that are computed together */
    MERGE_WARPS = 4,       /* that merge results, each those of its own query heads */
    TEAM_STAGES = 3,       /* of 64 tokens' K and V, with a warp each */
    TEAM_WARPS = 1 + MERGE_WARPS + TEAM_STAGES,
    STAGES_MAX = 4,    /* of the kernels of e4m3, too */
    ATOM_BYTES = 1024, /* what a swizzle repeats after */
    KV_TILE_PAGES = 4,
    KV_TILE_TOKENS = KV_TILE_PAGES * BLOCK_SIZE,
    TEAM_BARRIERS = 3 * STAGES_MAX,
    SPLITS_MAX = 32, /* lanes of a warp */
    SPLITS_FEW = 8,
    SPLITS_ALL_HEADS = 256, /* about the CTAs of an H200 */
    SPLIT_PAGES_MIN = 16,
    SPLIT_PAGES = 32
};

/* How a sequence is cut: a function of its length, and of the model's window and heads, alone. Splits have 256 tokens, in longer
 * sequences 512, and in the longest what keeps their number at 32, or at 8 where heads are many. Few splits are merged faster,
 * many keep more CTAs busy. */
struct cut {
    int32_t num_pages, pages_per_split;
    int32_t first_page; /* of the first kv tile that the window reaches: those before it are not computed */
    int32_t first_split, end_split; /* the splits of [first_page, num_pages) */
};

static inline __host__ __device__ int32_t first_page_of(int32_t seqlen, int32_t window)
{
    return window > 0 && seqlen > window ? (seqlen - window) / KV_TILE_TOKENS * KV_TILE_PAGES : 0;
}

/* Whether the row of seqlen tokens is in the bundle of the one before it, of bundle rows at most. They share a table. */
static inline __host__ __device__ bool is_bundled(int32_t seqlen, int32_t bundle, int32_t window)
{
    return (seqlen - 1) % BLOCK_SIZE % bundle != 0 &&
           first_page_of(seqlen, window) == first_page_of(seqlen - 1, window);
}

/* Of a sequence at most, where it has so many heads (cuda_decode_heads). */
static inline int32_t splits_most_of(int32_t num_heads)
{
    int32_t most = SPLITS_ALL_HEADS / num_heads;
    return most > SPLITS_MAX ? (int32_t)SPLITS_MAX : most < SPLITS_FEW ? (int32_t)SPLITS_FEW : most;
}

static inline __host__ __device__ struct cut cut_of(int32_t seqlen, int32_t window, int32_t splits_most)
{
    struct cut c;
    c.num_pages = (seqlen + BLOCK_SIZE - 1) / BLOCK_SIZE;
    int32_t few = (c.num_pages + SPLITS_FEW - 1) / SPLITS_FEW, pages = few;
    if (few >
        SPLIT_PAGES) { /* the longest are divided by splits_most, whoever is shorter needs no division */
        pages = (int32_t)((uint32_t)(c.num_pages + splits_most - 1) / (uint32_t)splits_most);
        if (pages < SPLIT_PAGES) pages = SPLIT_PAGES;
    }
    if (pages < SPLIT_PAGES_MIN) pages = SPLIT_PAGES_MIN;
    c.pages_per_split = (pages + KV_TILE_PAGES - 1) / KV_TILE_PAGES * KV_TILE_PAGES;
    c.first_page = first_page_of(seqlen, window);
    c.first_split = c.first_page == 0 ? 0 : c.first_page / c.pages_per_split;
    c.end_split = (int32_t)((uint32_t)(c.num_pages + c.pages_per_split - 1) / (uint32_t)c.pages_per_split);
    return c;
}

/* Splits that nobody of so many tokens or fewer has more of. */
static inline __host__ __device__ int32_t splits_bound_of(int32_t seqlen, int32_t splits_most)
{
    const int32_t pages = (seqlen + BLOCK_SIZE - 1) / BLOCK_SIZE;
    const int32_t shortest = (pages + SPLIT_PAGES_MIN - 1) / SPLIT_PAGES_MIN,
                  longer = (pages + SPLIT_PAGES - 1) / SPLIT_PAGES;
    const int32_t few = shortest < SPLITS_FEW ? shortest : (int32_t)SPLITS_FEW,
                  many = longer < splits_most ? longer : splits_most;
    return few > many ? few : many;
}

static inline int32_t decode_group(const struct attention_args *a)
{
    return a->num_heads / a->num_kv_heads;
}

/* A team is the warps that fetch, merge and compute, with a ring of their own. An SM has so many: while one of them merges or begins,
 * the other's bytes flow. */
static constexpr __host__ __device__ int32_t decode_teams_per_sm(int32_t head_dim)
{
    return head_dim >= 256 ? 1 : 2;
}

/* Floats of one split's result. */
static inline int32_t decode_partial_floats(const struct attention_args *a)
{
    int32_t group = decode_group(a);
    return (group < DECODE_TILE_ROWS ? group : (int32_t)DECODE_TILE_ROWS) * (a->head_dim + 4);
}

template <int D> struct decode_traits {
    static constexpr int COLUMNS = D % 64 == 0 ? 64 : D % 32 == 0 ? 32 : 16; /* of a part of a row */
    static constexpr int ROW_BYTES = COLUMNS * 2;
    static constexpr int PARTS = D / COLUMNS;
    static constexpr int PART_BYTES = BLOCK_SIZE * ROW_BYTES;
    static constexpr int PAGE_BYTES = PARTS * PART_BYTES;       /* K or V of a page */
    static constexpr int V_OFFSET = KV_TILE_PAGES * PAGE_BYTES; /* in a stage: after the tile's K */
    static constexpr int STAGE_BYTES = 2 * V_OFFSET;            /* a tile's result goes over its K */
    static constexpr int CHUNK = D / 16 > 8 ? 8 : D / 16;       /* tiles of 16 columns computed at a time */
    static constexpr int ROW_FLOATS = D + 4; /* a result: D values, maximum, sum, two for alignment */
    static constexpr int VECTORS = (D / 4 + 31) / 32; /* of 4 values of a row, a lane */
};

/* Where tensor maps are made for it: struct cuda_device, is_hopper. Newer machines have one, too, but nothing here knows them. */
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
static constexpr bool HAS_COPY_ENGINE = false;
#else
static constexpr bool HAS_COPY_ENGINE = true;
#endif

struct decode_args {
    __nv_bfloat16 *out;
    const __nv_bfloat16 *qkv, *pool; /* pool: of the layer */
    const int32_t *counts, *base, *cu_seqlens_q, *seqlens_k, *table_offsets;
    const int32_t *plan; /* of counts: the number of ranges, and where in base they begin */
    float *partial;
    int32_t *counters;
    size_t block_elements;
    struct kv_boxes boxes; /* of bf16 */
    int32_t num_heads, num_kv_heads, group;
    int32_t row_heads;             /* of a row of qkv */
    int32_t head_tiles, seq_heads; /* tiles of query heads of a K/V head, of a sequence */
    int32_t splits_most;           /* of a sequence */
    int32_t sliding_window, num_stages, partial_floats;
    int32_t bundle, num_seqs; /* rows of a bundle at most */
    int32_t num_teams;        /* of a CTA */
    float scale_log2;         /* as in prefill_args, these three */
    float softcap;
    const float *sinks;
    int32_t *ranges_taken; /* the queue */
};

/* Where K and V are e4m3 (attention_decode_codes.cu). a: all but what that file says itself. */
void cuda_attention_decode_codes(struct cuda_device *d, decode_args a, int32_t head_dim);

/* Place of a chunk of 16 bytes in a page's K or V. */
template <int D> static __device__ __forceinline__ uint32_t chunk_offset(int row, int chunk)
{
    using T = decode_traits<D>;
    constexpr int CHUNKS = T::COLUMNS / 8;
    uint32_t in_part = row * T::ROW_BYTES + chunk % CHUNKS * 16;
    return chunk / CHUNKS * T::PART_BYTES + (in_part ^ ((in_part / 128 % CHUNKS) * 16));
}

/* What the producer says of the kv tile in a stage. */
struct alignas(16) kv_tile {
    int32_t seq, head; /* seq -1: there is no more; head: a tile of query heads, counted over the model's */
    int32_t first_head, num_heads; /* its query heads */
    int32_t token; /* of the step: the sequence's row of queries and outputs, the first of a bundle */
    int32_t num_valid,
        num_hidden; /* tokens of the tile before that row's end, and of those before its window: one more for each row behind */
    int32_t num_rows;          /* of the bundle; 1 */
    int32_t split, num_splits; /* counted from the first that is computed */
    int32_t num_mine;          /* splits of the head that this range has */
    bool begins_split, ends_split, ends_mine;
};

/* A team's shared memory: stages, barriers, what the stages have in them. Stages of a CTA's teams lie one after another. */
struct view {
    uint32_t ring, barriers;
    unsigned char *stages;
    struct kv_tile *tiles;

    template <int D> static __device__ view of(unsigned char *shared, const decode_args &a, int32_t team)
    {
        constexpr int BYTES = decode_traits<D>::STAGE_BYTES;
        int32_t first = team * a.num_stages, num = a.num_teams * a.num_stages; /* stages */
        view v;
        uint32_t begin = shared_address(shared),
                 ring = (begin + ATOM_BYTES - 1) & ~(uint32_t)(ATOM_BYTES - 1);
        unsigned char *stages = shared + (ring - begin);
        struct kv_tile *tiles = (struct kv_tile *)(stages + num * BYTES);
        v.ring = ring + first * BYTES;
        v.stages = stages + first * BYTES;
        v.tiles = tiles + first;
        v.barriers = shared_address(tiles + num) + team * TEAM_BARRIERS * 8;
        return v;
    }
    __device__ uint32_t full(int stage) const { return barriers + 8 * stage; }
    __device__ uint32_t done(int stage) const { return barriers + 8 * (STAGES_MAX + stage); }
    __device__ uint32_t empty(int stage) const { return barriers + 8 * (2 * STAGES_MAX + stage); }
};

/* A row of a tile: which row of the bundle, and which of its query heads. */
struct tile_row {
    int32_t row, head;
};

template <bool BUNDLES> static __device__ __forceinline__ struct tile_row tile_row_of(int32_t group, int row)
{
    if (!BUNDLES) return {0, row};
    return {row / group, row % group};
}

template <bool BUNDLES> static __device__ __forceinline__ int32_t num_tile_rows(const struct kv_tile &tile)
{
    return BUNDLES ? tile.num_heads * tile.num_rows : tile.num_heads;
}

/* A warp is through with a stage. Each lane answers for what it read and wrote itself. */
static __device__ __forceinline__ void release(uint32_t barrier)
{
    __syncwarp();
    barrier_arrive(barrier);
}

#endif
