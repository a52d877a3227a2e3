/* linear_fp8_large.cu - products of many rows of bytes on sm_90a, bound by the tensor cores and by the machine's power.
 *
 * A CTA computes tiles of 128 rows of x times WIDTH rows of W, 64 of the rows in each of two groups of four warps. A stage of the
 * ring is a block of 128 columns and, where scales are of blocks, those of x and W; a warp of its own fills it:
 *
 *   x [128][K], its scales    -> |s0|s1|s2|s3|  ring in shared memory
 *   W [WIDTH][K], its scales  -> |s0|s1|s2|s3|
 *                                   |-> group 0: wgmma m64 nWIDTH k32, four times -> * scales, + sums of rows 0..63
 *                                   `-> group 1: the same                         -> rows 64..127
 *
 * While a group adds what a stage has given to its sums, the other's products run; so too while it stores a tile. */
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_fp8_tile.cuh"
#include "kernels/cuda/tensor_map.cuh"

namespace
{

enum {
    BAND_ROWS_MIN = 2048,
    BAND_ROWS_MAX = 4096,
    BAND_BYTES = 36 << 20 /* of x: most of an H200's L2 */
};

struct large_args {
    struct fp8_product p;
    struct tile_grid tiles;
    int32_t num_k; /* stages of a tile */
};

/* Fills the ring: stages over all tiles of the CTA, one after another. */
template <int WIDTH, int FORM> struct producer {
    static constexpr bool IN_BLOCKS = FORM == E4M3_OF_BLOCKS;
    using T = fp8_tile_traits<WIDTH>;
    const large_args &a;
    const CUtensorMap *x_map, *w_map;
    const fp8_tile_ring &r;

    __device__ __forceinline__ void load_w(int32_t stage, struct tile_place tile, int32_t k) const
    {
        uint32_t full = r.full + 8 * stage;
        barrier_arrive_expect(full, X_BYTES + T::W_BYTES + (IN_BLOCKS ? X_SCALE_BYTES + WIDTH / 8 * 4 : 0));
        tensor_load_2d(r.w + stage * T::W_BYTES, w_map, full, k * (ROW_BYTES / 2), tile.column * WIDTH);
        if (IN_BLOCKS)
            bulk_load(r.scales + stage * SCALE_BYTES + X_SCALE_BYTES,
                      a.p.w_scales + (size_t)k * a.p.w_pitch + tile.column * (WIDTH / 8), full,
                      WIDTH / 8 * 4);
    }

    __device__ __forceinline__ void load_x(int32_t stage, struct tile_place tile, int32_t k) const
    {
        uint32_t full = r.full + 8 * stage;
        tensor_load_2d(r.x + stage * X_BYTES, x_map, full, k * (ROW_BYTES / 2),
                       tile_begin(tile.row, TILE_M, a.p.rows, TILE_ALIGNMENT));
        if (IN_BLOCKS)
            bulk_load(r.scales + stage * SCALE_BYTES,
                      a.p.x_scales + (size_t)k * a.p.x_pitch +
                          tile_begin(tile.row, TILE_M, a.p.rows, TILE_ALIGNMENT),
                      full, X_SCALE_BYTES);
    }

    /* The weights of the first tile need nothing of the kernel before. */
    __device__ __forceinline__ void run(void) const
    {
        int32_t num_tiles = num_tiles_of(a.tiles), num_ahead = min(T::STAGES, a.num_k);
        struct tile_place first = place_of(a.tiles, (int32_t)blockIdx.x);
        for (int32_t k = 0; k < num_ahead; k++) load_w(k, first, k);
        dependency_wait();
        for (int32_t k = 0; k < num_ahead; k++) load_x(k, first, k);
        pipeline_state p = {num_ahead % T::STAGES, num_ahead < T::STAGES};
        int32_t k = num_ahead;
        for (int32_t index = blockIdx.x; index < num_tiles; index += gridDim.x, k = 0) {
            struct tile_place tile = place_of(a.tiles, index);
            for (; k < a.num_k; k++) {
                barrier_wait(r.empty + 8 * p.stage, p.parity);
                load_w(p.stage, tile, k);
                load_x(p.stage, tile, k);
                p.advance(T::STAGES);
            }
        }
        dependents_launch();
    }
};

template <int WIDTH, int FORM, bool SILU_MUL>
__global__ void __launch_bounds__(THREADS, 1)
    large_kernel(large_args a, const __grid_constant__ CUtensorMap x_map,
                 const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap out_map)
{
    extern __shared__ unsigned char shared[];
    __shared__ uint64_t barriers[2 * fp8_tile_traits<WIDTH>::STAGES];
    const fp8_tile_ring r = fp8_tile_ring_init<WIDTH, FORM>(shared, barriers, &x_map, &w_map, &out_map);
    __syncthreads();
    int warp = warp_uniform(threadIdx.x / 32);
    if (warp >= WARPS) {
        registers_lower<PRODUCER_REGISTERS>();
        if (warp == WARPS && elect_lane()) producer<WIDTH, FORM>{a, &x_map, &w_map, r}.run();
        return;
    }
    registers_raise<CONSUMER_REGISTERS>();
    dependency_wait(); /* the results overwrite what kernels before may still read */
    fp8_tile_consumer<large_args, WIDTH, FORM> c = {a, r, warp, {}, {}, {}};
    int32_t num_stored = 0, num_tiles = num_tiles_of(a.tiles);
    for (int32_t index = blockIdx.x; index < num_tiles; index += gridDim.x) {
        struct tile_place tile = place_of(a.tiles, index);
        int32_t first_m = tile_begin(tile.row, TILE_M, a.p.rows, TILE_ALIGNMENT),
                first_n = tile.column * WIDTH;
        c.multiply_all();
        if (FORM != E4M3_OF_BLOCKS) c.scale(first_m, first_n);
        store_tile<WIDTH, SILU_MUL>({a.p.bias, a.p.n}, &out_map, c.sums,
                                    r.outs + warp * OUT_BUFFERS * OUT_BYTES, num_stored,
                                    first_m + warp * OUT_ROWS, first_n);
        num_stored = (num_stored + OUT_BOXES<WIDTH, SILU_MUL>) % OUT_BUFFERS;
    }
    if (threadIdx.x % 32 == 0) bulk_wait_read<0>();
}

/* ---- host ---- */

template <int WIDTH, int FORM, bool SILU_MUL> bool launch(struct cuda_device *d, const struct fp8_product &p)
{
    using T = fp8_tile_traits<WIDTH>;
    CUtensorMap x_map, w_map, out_map;
    /* pairs of values are what bf16's map moves */
    if (!tensor_map_encode_matrix(d, &x_map, p.x, p.rows, p.k / 2, TILE_M) ||
        !tensor_map_encode_matrix(d, &w_map, p.w, p.n, p.k / 2, WIDTH) ||
        !tensor_map_encode_matrix(d, &out_map, p.out, p.rows, SILU_MUL ? p.n / 2 : p.n, OUT_ROWS))
        return false;
    large_args a = {};
    a.p = p;
    a.num_k = p.k / FP8_BLOCK;
    a.tiles.num_rows = (p.rows + TILE_M - 1) / TILE_M;
    a.tiles.num_columns = (p.n + WIDTH - 1) / WIDTH;
    a.tiles.band = ((size_t)BAND_ROWS_MAX * p.k <= BAND_BYTES ? BAND_ROWS_MAX : BAND_ROWS_MIN) / TILE_M;
    assert_always(a.num_k > 0 && (int64_t)a.tiles.band * a.tiles.num_columns <= INT32_MAX);
    return launch_dependent(d, large_kernel<WIDTH, FORM, SILU_MUL>,
                            dim3((unsigned)std::min(d->num_sms, num_tiles_of(a.tiles))), dim3(THREADS),
                            T::SHARED_BYTES, a, x_map, w_map, out_map);
}

template <int WIDTH, bool SILU_MUL> bool launch_form(struct cuda_device *d, const struct fp8_product &p)
{
    if (p.form == E4M3_OF_BLOCKS) return launch<WIDTH, E4M3_OF_BLOCKS, SILU_MUL>(d, p);
    if (p.form == INT8_OF_ROWS) return launch<WIDTH, INT8_OF_ROWS, SILU_MUL>(d, p);
    return launch<WIDTH, E4M3_OF_ROWS, SILU_MUL>(d, p);
}

template <int WIDTH> bool launch_kind(struct cuda_device *d, const struct fp8_product &p)
{
    return p.silu_mul ? launch_form<WIDTH, true>(d, p) : launch_form<WIDTH, false>(d, p);
}

} // namespace

bool cuda_linear_fp8_large(struct cuda_device *d, int32_t width, const struct fp8_product *p)
{
    /* a row of a gated product's results would be half of what is stored at a time */
    if (width == LINEAR_FP8_NARROW) return !p->silu_mul && launch_form<LINEAR_FP8_NARROW, false>(d, *p);
    return width == 128 ? launch_kind<128>(d, *p) : launch_kind<192>(d, *p);
}
