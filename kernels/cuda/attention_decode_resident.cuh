/* attention_decode_resident.cuh - decode attention of a range that is one split, of a sequence whose splits have no more kv tiles than the
 * CTA has stages, in steps of few sequences. What counts there is not bytes but the way of one tile, so there is no ring: each tile has a stage and a warp from
 * the beginning, and has come before the kernel ahead has ended.
 *
 *   first warps, a tile each:  copy it | zero V's rows beyond the end | wait for the kernel ahead | queries, newest row | softmax(Q K) V
 *   last ones, the mergers:    wait for all of these | merge the tiles, each its own query heads | close the split
 *
 * Of the page with the newest token, too, all rows but that one are fetched ahead. Its own is read with the queries, from the pool,
 * and written over what the copy engine has found there. */
#ifndef KERNELS_CUDA_ATTENTION_DECODE_RESIDENT_CUH
#define KERNELS_CUDA_ATTENTION_DECODE_RESIDENT_CUH

#include "kernels/cuda/attention_decode_producer.cuh"

/* Of such a sequence at most: splits shorter than SPLIT_PAGES are SPLITS_FEW (cut_of). */
template <int D> static constexpr __host__ __device__ int resident_splits(void)
{
    constexpr int PAGES = decode_teams_per_sm(D) * TEAM_STAGES * KV_TILE_PAGES;
    return PAGES < SPLIT_PAGES ? SPLITS_FEW : SPLITS_MAX;
}

/* Of the split. */
static __device__ __forceinline__ int32_t num_tiles_of(const struct walk &w)
{
    return (w.end_page - w.page + KV_TILE_PAGES - 1) / KV_TILE_PAGES;
}

static __device__ __forceinline__ bool is_resident(const decode_args &a, const struct walk &w)
{
    return w.num_left == 1 && w.cut.pages_per_split <= a.num_teams * a.num_stages * KV_TILE_PAGES;
}

/* K and V of a sequence's newest token, as they lie in the pool and in a stage: 16 bytes a lane at a time. */
template <int D> struct newest_row {
    static constexpr int CHUNKS = D / 8; /* of K, and of V */
    static constexpr int VECTORS = (2 * CHUNKS + 31) / 32;
    int32_t row; /* of its page */
    uint4 chunk[VECTORS];

    __device__ __forceinline__ void read(const decode_args &a, const struct walk &w, int32_t block)
    {
        constexpr int HEAD_BYTES = BLOCK_SIZE * D * 2;
        size_t v_offset = (size_t)a.num_kv_heads * HEAD_BYTES;
        const unsigned char *page =
            (const unsigned char *)(a.pool + block * a.block_elements) + (size_t)w.kv_head * HEAD_BYTES;
        row = (w.seqlen - 1) % BLOCK_SIZE;
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            int at = threadIdx.x % 32 + 32 * i;
            if (at < 2 * CHUNKS)
                chunk[i] =
                    *(const uint4 *)(page + at / CHUNKS * v_offset + (row * CHUNKS + at % CHUNKS) * 16);
        }
    }

    /* page: of the stage. */
    __device__ __forceinline__ void write(unsigned char *stage, int32_t page) const
    {
        using T = decode_traits<D>;
        stage += page * T::PAGE_BYTES;
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            int at = threadIdx.x % 32 + 32 * i;
            uint32_t to = at / CHUNKS * T::V_OFFSET + chunk_offset<D>(row, at % CHUNKS);
            if (at < 2 * CHUNKS) *(uint4 *)(stage + to) = chunk[i];
        }
        __syncwarp();
    }
};

#endif
