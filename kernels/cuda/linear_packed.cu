/* linear_packed.cu - products of few rows (M <= 256) with weights of four bits on sm_90a.
 *
 * W is the M side of wgmma and comes from registers: each lane has the codes of its part of the operand in a word, makes bf16
 * of them while the products before are under way, and multiplies in the order of K. The bits are those of the same weights
 * as bf16 (packed.cuh). x is the N side, in shared memory.
 *
 * One thread fills a ring of stages through the copy engine, W ahead of the kernel's dependency. A CTA has one tile and no
 * more: with several on an SM the machine deals them out, and those of the next kernel fill their rings meanwhile.
 *
 * A tile of 32 rows gives each of the four warps of a group eight, and half of what is multiplied is in vain: where there are
 * few rows of W for an SM, unpacking and not multiplying is what takes time, and all warps have a share in that. */
#include <algorithm>

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_packed.cuh"
#include "kernels/cuda/linear_store.cuh"
#include "kernels/cuda/packed.cuh"
#include "kernels/cuda/tensor_map.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace
{

enum {
    BOX_K = 64, /* columns of a box of x: 128 bytes */
    BOX_ROW_BYTES = BOX_K * 2,
    BLOCK_BOXES = PACKED_COLUMNS / BOX_K,
    BOX_STEPS = BOX_K / 16, /* products of a box */
    GROUP_WARPS = 4,        /* that multiply together */
    STAGES_MAX = 16,
    SHARED_BYTES = 225 << 10, /* of an SM, for rings */
    ALONE_BYTES = 114 << 10   /* of a CTA: a second one finds no room on the SM */
};

struct packed_args : store_args {
    const unsigned char *packed;
    int32_t x_rows;     /* m rounded up to 8: rows of x in a stage */
    int32_t num_k;      /* stages along K */
    int32_t num_blocks; /* along K, in memory */
    int32_t num_stages; /* in the ring */
    bool silu_mul;
};

/* HALVES: strips of eight rows that a warp has, 1 or 2. */
template <int SCALES, int HALVES, int GROUPS, int COLS> struct packed_traits {
    static constexpr int QUADS = GROUPS * HALVES, ROWS = QUADS * PACKED_ROWS * PACKED_STRIPS;
    static constexpr int STAGE_BLOCKS = COLS <= 16 ? 2 : 1;
    static constexpr int BLOCK_BYTES = packed_block_bytes(SCALES);
    static constexpr int QUAD_BYTES = STAGE_BLOCKS * PACKED_STRIPS * BLOCK_BYTES; /* of a stage */
    static constexpr int W_BYTES = QUADS * QUAD_BYTES;
    static constexpr int WARPS = GROUPS * GROUP_WARPS, THREADS = (WARPS + 1) * 32;
    /* Of an SM. */
    static constexpr int CTAS = GROUPS == 1 && COLS <= 32    ? 3
                                : COLS <= 64                 ? 2
                                : GROUPS == 1 && COLS <= 128 ? 2
                                                             : 1;
    __host__ __device__ static constexpr int x_bytes(int x_rows)
    {
        return x_rows * STAGE_BLOCKS * BLOCK_BOXES * BOX_ROW_BYTES;
    }
};

/* Addresses of shared memory. */
struct packed_ring {
    uint32_t w, x;        /* [stage][quad][block][strip]; [stage][box][x_rows][64], swizzled */
    uint32_t full, empty; /* barriers of the stages */
};

/* The one thread that fetches. */
template <typename T, int COLS> struct packed_producer {
    const packed_args &a;
    const packed_ring &r;
    const CUtensorMap *x_map;

    __device__ __forceinline__ void load_w(int32_t stage, int32_t k) const
    {
        barrier_arrive_expect(r.full + 8 * stage, T::W_BYTES + T::x_bytes(a.x_rows));
#pragma unroll
        for (int i = 0; i < T::QUADS; i++) {
            size_t block = ((size_t)blockIdx.x * T::QUADS + i) * a.num_blocks + k * T::STAGE_BLOCKS;
            bulk_stream(r.w + stage * T::W_BYTES + i * T::QUAD_BYTES,
                        a.packed + block * (PACKED_STRIPS * T::BLOCK_BYTES), r.full + 8 * stage,
                        T::QUAD_BYTES);
        }
    }

    __device__ __forceinline__ void load_x(int32_t stage, int32_t k) const
    {
        constexpr int BOXES = T::STAGE_BLOCKS * BLOCK_BOXES;
#pragma unroll
        for (int i = 0; i < BOXES; i++)
            tensor_load_2d(r.x + stage * T::x_bytes(a.x_rows) + i * a.x_rows * BOX_ROW_BYTES, x_map,
                           r.full + 8 * stage, (k * BOXES + i) * BOX_K, (int32_t)blockIdx.y * COLS);
    }

    __device__ __forceinline__ void run(void) const
    {
        int32_t num_ahead = min(a.num_stages, a.num_k);
        for (int32_t k = 0; k < num_ahead; k++) load_w(k, k);
        dependents_launch();
        dependency_wait();
        for (int32_t k = 0; k < num_ahead; k++) load_x(k, k);
        pipeline_state p = {0, 0};
        for (int32_t k = num_ahead; k < a.num_k; k++) {
            barrier_wait(r.empty + 8 * p.stage, p.parity);
            load_w(p.stage, k);
            load_x(p.stage, k);
            p.advance(a.num_stages);
        }
    }
};

/* What a lane has of a block of its warp's strips. */
template <int SCALES, int HALVES> struct lane_codes {
    uint32_t words[HALVES][4], scales[HALVES][SCALES];
};

__device__ __forceinline__ void load_4(uint32_t (&to)[4], uint32_t address)
{
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address));
}

__device__ __forceinline__ uint32_t load_1(uint32_t address)
{
    uint32_t word;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(address));
    return word;
}

/* The warps that multiply. */
template <int FORMAT, int SCALES, int HALVES, int GROUPS, int COLS> struct packed_consumer {
    using T = packed_traits<SCALES, HALVES, GROUPS, COLS>;
    using codes = lane_codes<SCALES, HALVES>;
    const packed_args &a;
    const packed_ring &r;
    uint32_t w_offset; /* of the warp's first strip in a stage */
    float d[COLS / 2];

    __device__ __forceinline__ void load(codes &c, int32_t stage, int block) const
    {
        int lane = threadIdx.x % 32;
        uint32_t strip = r.w + stage * T::W_BYTES + w_offset + block * (PACKED_STRIPS * T::BLOCK_BYTES);
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            uint32_t at = strip + h * T::BLOCK_BYTES;
            uint32_t scales = at + PACKED_CODES_BYTES + lane / 4 * (4 * SCALES);
            load_4(c.words[h], at + lane * 16);
#pragma unroll
            for (int i = 0; i < SCALES; i++) c.scales[h][i] = load_1(scales + 4 * i);
        }
    }

    /* The operand of the block's columns 64 half to 64 half + 63. */
    __device__ __forceinline__ void unpack(uint32_t (&operand)[4 * BOX_STEPS], const codes &c, int half) const
    {
#pragma unroll
        for (int h = 0; h < HALVES; h++)
#pragma unroll
            for (int i = 0; i < BOX_STEPS; i++) {
                int step = half * BOX_STEPS + i;
                const packed_scale s = packed_scale_of<FORMAT>(c.scales[h][step * SCALES / 8]);
                operand[4 * i + h] = unpack_pair<FORMAT>(c.words[h][step / 2], step % 2 * 2, s);
                operand[4 * i + 2 + h] = unpack_pair<FORMAT>(c.words[h][step / 2], step % 2 * 2 + 1, s);
            }
    }

    __device__ __forceinline__ void multiply(const uint32_t (&operand)[4 * BOX_STEPS], uint32_t x, int add)
    {
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < BOX_STEPS; i++)
            wgmma_registers<0>(d, operand + 4 * i, wgmma_descriptor_of(x + 2 * i), add || i > 0);
        wgmma_commit();
    }

    /* All of K. Products of two boxes are under way at most: an operand is made anew when those before the last are over. */
    __device__ __forceinline__ void run(void)
    {
        const uint32_t x_box = a.x_rows * BOX_ROW_BYTES / 16, x_first = wgmma_descriptor_low(r.x);
        uint32_t operands[2][4 * BOX_STEPS] = {};
        codes c;
        pipeline_state p = {0, 0};
        int32_t before = 0;
        barrier_wait(r.full, 0);
        load(c, 0, 0);
        for (int32_t k = 0; k < a.num_k; k++) {
            uint32_t x = x_first + p.stage * (T::x_bytes(a.x_rows) / 16);
            int32_t stage = p.stage;
            p.advance(a.num_stages);
#pragma unroll
            for (int block = 0; block < T::STAGE_BLOCKS; block++) {
                wgmma_wait<1>();
                unpack(operands[0], c, 0);
                multiply(operands[0], x + 2 * block * x_box, k > 0 || block > 0);
                wgmma_wait<1>();
                if (block == 0 && k > 0 && threadIdx.x % 32 == 0) barrier_arrive(r.empty + 8 * before);
                unpack(operands[1], c, 1);
                multiply(operands[1], x + (2 * block + 1) * x_box, 1);
                if (block + 1 < T::STAGE_BLOCKS) {
                    load(c, stage, block + 1);
                } else if (k + 1 < a.num_k) {
                    barrier_wait(r.full + 8 * p.stage, p.parity);
                    load(c, p.stage, 0);
                }
            }
            before = stage;
        }
        wgmma_wait<0>();
        wgmma_hold(d);
    }
};

template <int FORMAT, int SCALES, int HALVES, int GROUPS, int COLS>
__global__ void __launch_bounds__((packed_traits<SCALES, HALVES, GROUPS, COLS>::THREADS),
                                  (packed_traits<SCALES, HALVES, GROUPS, COLS>::CTAS))
    packed_kernel(packed_args a, const __grid_constant__ CUtensorMap x_map)
{
    using T = packed_traits<SCALES, HALVES, GROUPS, COLS>;
    extern __shared__ unsigned char shared[];
    __shared__ uint64_t barriers[2 * STAGES_MAX];
    packed_ring r;
    r.x = (shared_address(shared) + 1023) & ~1023u; /* swizzled boxes want 1024-byte alignment */
    /* W behind x: products read on behind the rows that there are */
    r.w = r.x + a.num_stages * T::x_bytes(a.x_rows);
    r.full = shared_address(barriers);
    r.empty = r.full + 8 * STAGES_MAX;
    if (threadIdx.x == 0) {
        tensor_map_prefetch(&x_map);
        ring_init(r.full, r.empty, a.num_stages, T::WARPS);
    }
    __syncthreads();
    int32_t warp = warp_uniform(threadIdx.x / 32);
    if (warp == T::WARPS) {
        if (elect_lane()) packed_producer<T, COLS>{a, r, &x_map}.run();
        return;
    }
    dependency_wait();             /* the results overwrite what kernels before may still read */
    int32_t strip = warp * HALVES; /* of the tile */
    uint32_t w_offset = strip / PACKED_STRIPS * T::QUAD_BYTES + strip % PACKED_STRIPS * T::BLOCK_BYTES;
    packed_consumer<FORMAT, SCALES, HALVES, GROUPS, COLS> c{a, r, w_offset, {}};
    c.run();
    int32_t n = (int32_t)blockIdx.x * T::ROWS + strip * PACKED_ROWS, m = (int32_t)blockIdx.y * COLS;
    if (HALVES == 2 && a.silu_mul)
        store_columns<COLS, EPILOGUE_SILU_MUL, 2>(a, c.d, m, n);
    else
        store_columns<COLS, EPILOGUE_BF16, HALVES>(a, c.d, m, n);
}

/* ---- host ---- */

template <int FORMAT, int SCALES, int HALVES, int GROUPS, int COLS>
bool launch(struct cuda_device *d, packed_args a, const void *x, const struct linear *w)
{
    using T = packed_traits<SCALES, HALVES, GROUPS, COLS>;
    int32_t num_tiles = (w->n + T::ROWS - 1) / T::ROWS, num_parts = (a.m + COLS - 1) / COLS;
    int32_t num_ctas = num_tiles * num_parts, per_sm = (num_ctas + d->num_sms - 1) / d->num_sms;
    /* two at least, so that the next kernel's first ones find room */
    int32_t ctas = std::min(std::max(per_sm, 2), (int32_t)T::CTAS);
    a.x_rows = std::min((a.m + 7) / 8 * 8, COLS);
    int32_t stage_bytes = T::W_BYTES + T::x_bytes(a.x_rows);
    a.num_blocks = (w->k + 2 * PACKED_COLUMNS - 1) / (2 * PACKED_COLUMNS) * 2;
    a.num_k = a.num_blocks / T::STAGE_BLOCKS;
    a.num_stages = std::min({(SHARED_BYTES / ctas - 2048) / stage_bytes, (int32_t)STAGES_MAX, a.num_k});
    if (a.num_stages < std::min(2, a.num_k)) return false;
    /* behind the last x there must be as many bytes as products read on */
    size_t behind = (size_t)(COLS - a.x_rows) * BOX_ROW_BYTES, w_bytes = (size_t)a.num_stages * T::W_BYTES;
    size_t shared_bytes = (size_t)a.num_stages * T::x_bytes(a.x_rows) + std::max(w_bytes, behind) + 1024;
    /* they begin where the kernel before has ended first: two at a time, and half of the SMs would have none */
    if (num_ctas <= d->num_sms) shared_bytes = std::max(shared_bytes, (size_t)ALONE_BYTES);
    const CUtensorMap *x_map = tensor_map_of_matrix(d, x, a.m, w->k, a.x_rows);
    if (!x_map) return false;
    return launch_dependent(d, packed_kernel<FORMAT, SCALES, HALVES, GROUPS, COLS>,
                            dim3((unsigned)num_tiles, (unsigned)num_parts), dim3(T::THREADS), shared_bytes, a,
                            *x_map);
}

template <int FORMAT, int SCALES, int HALVES, int GROUPS>
bool launch_rows(struct cuda_device *d, int32_t columns, const packed_args &a, const void *x,
                 const struct linear *w)
{
    columns = std::min(columns, a.m);
    if constexpr (GROUPS == 1) {
        if (columns <= 8) return launch<FORMAT, SCALES, HALVES, GROUPS, 8>(d, a, x, w);
        if (columns <= 16) return launch<FORMAT, SCALES, HALVES, GROUPS, 16>(d, a, x, w);
    }
    if (columns <= 32) return launch<FORMAT, SCALES, HALVES, GROUPS, 32>(d, a, x, w);
    if (columns <= 64) return launch<FORMAT, SCALES, HALVES, GROUPS, 64>(d, a, x, w);
    if constexpr (HALVES == 2) {
        if (columns <= 96) return launch<FORMAT, SCALES, HALVES, GROUPS, 96>(d, a, x, w);
        if (columns <= 128) return launch<FORMAT, SCALES, HALVES, GROUPS, 128>(d, a, x, w);
    }
    if constexpr (HALVES == 2 && GROUPS == 1) {
        if (columns <= 192) return launch<FORMAT, SCALES, HALVES, GROUPS, 192>(d, a, x, w);
        if (columns <= 256) return launch<FORMAT, SCALES, HALVES, GROUPS, 256>(d, a, x, w);
    }
    return false;
}

template <int FORMAT, int SCALES>
bool launch_tiles(struct cuda_device *d, int32_t tile_rows, int32_t columns, const packed_args &a,
                  const void *x, const struct linear *w)
{
    switch (tile_rows) {
    case 32: /* gate and up are not in one warp */
        return !a.silu_mul && launch_rows<FORMAT, SCALES, 1, 1>(d, columns, a, x, w);
    case 64:
        return launch_rows<FORMAT, SCALES, 2, 1>(d, columns, a, x, w);
    default:
        return launch_rows<FORMAT, SCALES, 2, 2>(d, columns, a, x, w);
    }
}

} // namespace

bool cuda_linear_packed(struct cuda_device *d, int32_t tile_rows, int32_t columns, int32_t rows, void *out,
                        const void *x, const struct linear *w, bool silu_mul)
{
    packed_args a = {};
    a.out = out;
    a.bias = w->bias;
    a.m = rows;
    a.n = w->n;
    a.packed = w->packed;
    a.silu_mul = silu_mul;
    if (w->format == LINEAR_INT4 && w->packed_scales == 1)
        return launch_tiles<LINEAR_INT4, 1>(d, tile_rows, columns, a, x, w);
    if (w->format == LINEAR_INT4) return launch_tiles<LINEAR_INT4, 4>(d, tile_rows, columns, a, x, w);
    if (w->packed_scales == 4) return launch_tiles<LINEAR_E2M1, 4>(d, tile_rows, columns, a, x, w);
    return launch_tiles<LINEAR_E2M1, 8>(d, tile_rows, columns, a, x, w);
}
