/* moe_fp8_large.cu - products of experts of bytes that many tokens chose, on sm_90a: the warps of linear_fp8_tile.cuh for a list of tiles
 * that is found on the device.
 *
 * A group of warps without rows multiplies nothing. The experts' W lie one after another, and a box that ends beyond an expert's rows
 * reads the next one's, whose results are not stored. Tiles of an expert follow each other, so that its W comes from the memory once
 * and then from the L2. */
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_fp8_tile.cuh"
#include "kernels/cuda/moe.cuh"
#include "kernels/cuda/tensor_map.cuh"

namespace
{

static_assert((int)TILE_M == (int)MOE_LARGE_ROWS, "a tile of the list is a CTA's");
static_assert((int)MOE_GROUP_ROWS % (int)OUT_ROWS == 0, "a warp stores rows of one expert");

struct large_args {
    struct fp8_product p;
    const struct moe_tile *tiles;
    const int32_t *num_tiles;
    int32_t n, num_columns, num_k; /* rows of W of an expert, tiles of them, stages of a tile */
};

/* Fills the ring: stages over all tiles of the CTA, one after another. */
template <int WIDTH, int FORM> struct producer {
    static constexpr bool IN_BLOCKS = FORM == E4M3_OF_BLOCKS;
    using T = fp8_tile_traits<WIDTH>;
    const large_args &a;
    const CUtensorMap *x_map, *w_map;
    const fp8_tile_ring &r;

    __device__ __forceinline__ void load(int32_t stage, int32_t x_row, int32_t w_row, int32_t k) const
    {
        uint32_t full = r.full + 8 * stage, scales = r.scales + stage * SCALE_BYTES;
        barrier_arrive_expect(full, X_BYTES + T::W_BYTES + (IN_BLOCKS ? X_SCALE_BYTES + WIDTH / 8 * 4 : 0));
        tensor_load_2d(r.w + stage * T::W_BYTES, w_map, full, k * (ROW_BYTES / 2), w_row);
        tensor_load_2d(r.x + stage * X_BYTES, x_map, full, k * (ROW_BYTES / 2), x_row);
        if (!IN_BLOCKS) return;
        bulk_load(scales, a.p.x_scales + (size_t)k * a.p.x_pitch + x_row, full, X_SCALE_BYTES);
        bulk_load(scales + X_SCALE_BYTES, a.p.w_scales + (size_t)k * a.p.w_pitch + w_row / 8, full,
                  WIDTH / 8 * 4);
    }

    __device__ __forceinline__ void run(int32_t num_all) const
    {
        pipeline_state p = {0, 1}; /* all stages are empty */
        for (int32_t index = blockIdx.x; index < num_all; index += gridDim.x) {
            const struct moe_tile tile = a.tiles[index / a.num_columns];
            const int32_t w_row = tile.expert * a.n + index % a.num_columns * WIDTH;
            for (int32_t k = 0; k < a.num_k; k++) {
                barrier_wait(r.empty + 8 * p.stage, p.parity);
                load(p.stage, tile.first, w_row, k);
                p.advance(T::STAGES);
            }
        }
        dependents_launch();
    }
};

/* A group of four warps. */
template <int WIDTH, int FORM> struct consumer : fp8_tile_consumer<large_args, WIDTH, FORM> {
    /* A stage that is not of this group. */
    __device__ __forceinline__ void pass(void)
    {
        barrier_wait(this->r.full + 8 * this->p.stage, this->p.parity);
        if (this->IN_BLOCKS || threadIdx.x % 32 == 0) barrier_arrive(this->r.empty + 8 * this->p.stage);
        this->p.advance(fp8_tile_traits<WIDTH>::STAGES);
    }
};

template <int WIDTH, int FORM, bool GATED>
__global__ void __launch_bounds__(THREADS, 1)
    large_kernel(large_args a, const __grid_constant__ CUtensorMap x_map,
                 const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap out_map)
{
    extern __shared__ unsigned char shared[];
    __shared__ uint64_t barriers[2 * fp8_tile_traits<WIDTH>::STAGES];
    const fp8_tile_ring r = fp8_tile_ring_init<WIDTH, FORM>(shared, barriers, &x_map, &w_map, &out_map);
    __syncthreads();
    dependency_wait();
    const int32_t num_all = *a.num_tiles * a.num_columns;
    const int warp = warp_uniform(threadIdx.x / 32);
    if (warp >= WARPS) {
        registers_lower<PRODUCER_REGISTERS>();
        if (warp == WARPS && elect_lane()) producer<WIDTH, FORM>{a, &x_map, &w_map, r}.run(num_all);
        return;
    }
    registers_raise<CONSUMER_REGISTERS>();
    consumer<WIDTH, FORM> c = {{a, r, warp, {}, {}, {}}};
    int32_t num_stored = 0;
    for (int32_t index = blockIdx.x; index < num_all; index += gridDim.x) {
        const struct moe_tile tile = a.tiles[index / a.num_columns];
        const int32_t row = warp * OUT_ROWS, column = index % a.num_columns * WIDTH;
        if (warp_uniform(tile.count) <= warp / 4 * GROUP_ROWS) {
            for (int32_t k = 0; k < a.num_k; k++) c.pass();
            continue;
        }
        c.multiply_all();
        if (FORM != E4M3_OF_BLOCKS) c.scale(tile.first, tile.expert * a.n + column);
        if (row >= tile.count) continue;
        store_tile<WIDTH, GATED>(tile_output{NULL, a.n}, &out_map, c.sums,
                                 r.outs + warp * OUT_BUFFERS * OUT_BYTES, num_stored, tile.first + row,
                                 column);
        num_stored = (num_stored + OUT_BOXES<WIDTH, GATED>) % OUT_BUFFERS;
    }
    if (threadIdx.x % 32 == 0) bulk_wait_read<0>();
}

/* ---- host ---- */

template <int WIDTH, int FORM, bool GATED> bool launch(struct cuda_device *d, const struct moe_product *p)
{
    using T = fp8_tile_traits<WIDTH>;
    CUtensorMap x_map, w_map, out_map;
    /* pairs of values are what bf16's map moves */
    if (!tensor_map_encode_matrix(d, &x_map, p->fp8.x, p->fp8.rows, p->k / 2, TILE_M) ||
        !tensor_map_encode_matrix(d, &w_map, p->fp8.w, p->fp8.n, p->k / 2, WIDTH) ||
        !tensor_map_encode_matrix(d, &out_map, p->out, p->num_rows, GATED ? p->n / 2 : p->n, OUT_ROWS))
        return false;
    const large_args a = {p->fp8, p->tiles, p->num_tiles, p->n, (p->n + WIDTH - 1) / WIDTH, p->k / FP8_BLOCK};
    assert_always((int64_t)p->tiles_max * a.num_columns <= INT32_MAX);
    return launch_dependent(d, large_kernel<WIDTH, FORM, GATED>,
                            dim3((unsigned)std::min(d->num_sms, p->tiles_max * a.num_columns)), dim3(THREADS),
                            T::SHARED_BYTES, a, x_map, w_map, out_map);
}

template <int WIDTH, bool GATED> bool launch_form(struct cuda_device *d, const struct moe_product *p)
{
    if (p->fp8.form == E4M3_OF_BLOCKS) return launch<WIDTH, E4M3_OF_BLOCKS, GATED>(d, p);
    if (p->fp8.form == INT8_OF_ROWS) return launch<WIDTH, INT8_OF_ROWS, GATED>(d, p);
    return launch<WIDTH, E4M3_OF_ROWS, GATED>(d, p);
}

template <int WIDTH> bool launch_kind(struct cuda_device *d, const struct moe_product *p)
{
    return p->is_gated ? launch_form<WIDTH, true>(d, p) : launch_form<WIDTH, false>(d, p);
}

/* Columns of so wide tiles. */
int32_t columns_in_tiles(int32_t n, int32_t width)
{
    return (n + width - 1) / width * width;
}

} // namespace

bool cuda_moe_fp8_large(struct cuda_device *d, const struct moe_product *p)
{
    /* a wide tile reads less for what it computes, which is worth a few columns in vain */
    const bool is_wide = columns_in_tiles(p->n, 192) <= columns_in_tiles(p->n, 128) * 1.06;
    return is_wide ? launch_kind<192>(d, p) : launch_kind<128>(d, p);
}
