/* linear_ring.cuh - the one thread of a product of few rows that fetches: it fills stage after stage of a ring, tile after tile of W,
 * and the rows of x beside each. What a stage holds its source knows:
 *
 *   a.pause (cycles between stages ahead of the dependency, which r.is_over tells of: hopper.cuh)
 *   a.num_stages, num_k (stages of a tile), num_tiles, num_dealt (those that every CTA knows to be its own), tiles_taken (the queue of
 *       the others)
 *   r.full, r.empty (barriers of the stages), r.tiles (of each stage: the tile that begins there, or NO_TILE)
 *   load_w(stage, tile, k), which also says how many bytes will come and which tile begins there; load_x(stage, k) */
#ifndef KERNELS_CUDA_LINEAR_RING_CUH
#define KERNELS_CUDA_LINEAR_RING_CUH

#include <algorithm>

#include "kernels/cuda/hopper.cuh"

namespace
{

enum { W_TILE_ALIGNMENT = 16 /* of a tile's first row of W: gate and up alternate in groups of 8 */ };

enum { NO_TILE = -1 }; /* nothing comes any more */

/* num_dealt: three quarters, in whole rounds of the grid; the rest is queued. */
inline int32_t num_tiles_dealt(int32_t num_tiles, int32_t grid)
{
    return num_tiles == grid ? num_tiles : std::max(num_tiles / grid * 3 / 4, 1) * grid;
}

/* Every CTA draws once more than there are tiles for it. */
template <typename Source> __device__ __forceinline__ int32_t tile_after(const Source &s, int32_t tile)
{
    int32_t next = tile + (int32_t)gridDim.x;
    if (next < s.a.num_dealt || s.a.num_dealt >= s.a.num_tiles) return next;
    int32_t num_taken = queue_draw(s.a.tiles_taken, s.a.num_tiles - s.a.num_dealt + (int32_t)gridDim.x - 1);
    return s.a.num_dealt + num_taken;
}

/* One ring before what is likely its end, the next kernel may begin. */
template <typename Source> __device__ __forceinline__ bool near_end(const Source &s, int32_t tile, int32_t k)
{
    return tile + (int32_t)gridDim.x >= s.a.num_tiles && k + s.a.num_stages >= s.a.num_k;
}

/* What the ring holds is asked for ahead of the dependency, as far as that needs no queue. A stage after the other, with pauses: if
 * all SMs ask for all of it at once, what the kernels before still want from the memory, and x, comes some microseconds later. */
template <typename Source> __device__ __forceinline__ void fill_ring(const Source &s)
{
    int32_t tile = blockIdx.x, k = 0, num_ahead = 0;
    for (; num_ahead < s.a.num_stages; num_ahead++, k++) {
        if (num_ahead > 0 && !pause_unless_over(s.r.is_over, s.a.pause)) break;
        if (k == s.a.num_k) {
            if (tile + (int32_t)gridDim.x >= s.a.num_dealt) break;
            tile += gridDim.x;
            k = 0;
        }
        s.load_w(num_ahead, tile, k);
    }
    bool launched = near_end(s, tile, k);
    if (launched) dependents_launch();
    dependency_wait();
    for (int32_t i = 0; i < num_ahead; i++) s.load_x(i, i % s.a.num_k);
    pipeline_state p = {num_ahead % s.a.num_stages, num_ahead < s.a.num_stages};
    for (;; k++) {
        if (k == s.a.num_k) {
            tile = tile_after(s, tile);
            k = 0;
            if (tile >= s.a.num_tiles) break;
        }
        if (!launched && near_end(s, tile, k)) {
            launched = true;
            dependents_launch();
        }
        barrier_wait(s.r.empty + 8 * p.stage, p.parity);
        s.load_w(p.stage, tile, k);
        s.load_x(p.stage, k);
        p.advance(s.a.num_stages);
    }
    barrier_wait(s.r.empty + 8 * p.stage, p.parity);
    s.r.tiles[p.stage] = NO_TILE;
    barrier_arrive(s.r.full + 8 * p.stage);
}

} // namespace

#endif
