/* packed_ring.cuh - what products of few rows with weights of four bits share (linear_packed.cu, moe_packed.cu): stages in shared memory, and
 * the warps that unpack and multiply.
 *
 * W is the M side of wgmma and comes from registers: each lane has the codes of its part of the operand in a word, makes bf16
 * of them while the products before are under way, and multiplies in the order of K. The bits are those of the same weights
 * as bf16 (packed.cuh). x is the N side, in shared memory. */
#ifndef KERNELS_CUDA_PACKED_RING_CUH
#define KERNELS_CUDA_PACKED_RING_CUH

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/linear_row.cuh"
#include "kernels/cuda/linear_store.cuh"
#include "kernels/cuda/packed.cuh"
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
    int32_t x_rows;  /* m rounded up to 8: rows of x in a stage; 0: the CTA makes the only one */
    int32_t x_there; /* of which so many arrive: the copy engine takes longer for rows that are not there */
    int32_t num_k;   /* stages along K */
    int32_t num_blocks; /* along K, in memory */
    int32_t num_stages; /* in the ring */
    int32_t pause;      /* cycles between stages ahead of the dependency, as in linear_ring.cuh */
};

/* A tile of W and COLS rows of x, or what is_row says of one. HALVES: strips of eight rows that a warp has, 1 or 2. */
template <int SCALES_, int HALVES_, int QUADS_, int COLS_, int STAGE_BLOCKS_> struct packed_tile_traits {
    static constexpr int SCALES = SCALES_, HALVES = HALVES_, QUADS = QUADS_, COLS = COLS_;
    static constexpr bool IS_ROW = is_row(COLS);
    static constexpr int N = IS_ROW ? 8 : COLS; /* of wgmma */
    static constexpr int STAGE_BLOCKS = STAGE_BLOCKS_, ROWS = QUADS * PACKED_ROWS * PACKED_STRIPS;
    static constexpr int BLOCK_BYTES = packed_block_bytes(SCALES);
    static constexpr int QUAD_BYTES = STAGE_BLOCKS * PACKED_STRIPS * BLOCK_BYTES; /* of a stage */
    static constexpr int W_BYTES = QUADS * QUAD_BYTES;
    __host__ __device__ static constexpr int x_bytes(int x_rows)
    {
        return x_rows * STAGE_BLOCKS * BLOCK_BOXES * BOX_ROW_BYTES;
    }
};

/* Each group of warps has rows of its own. */
template <int SCALES, int HALVES, int GROUPS, int COLS>
struct packed_traits : packed_tile_traits<SCALES, HALVES, GROUPS * HALVES, COLS, COLS <= 16 ? 2 : 1> {
    static constexpr int WARPS = GROUPS * GROUP_WARPS, THREADS = (WARPS + 1) * 32;
    /* Of an SM. */
    static constexpr int CTAS = GROUPS == 1 && COLS <= 32    ? 3
                                : COLS <= 64                 ? 2
                                : GROUPS == 1 && COLS <= 128 ? 2
                                                             : 1;
};

/* Addresses of shared memory. */
struct packed_ring {
    uint32_t w, x;        /* [stage][quad][block][strip]; [stage][box][x_rows][64], swizzled, or the row */
    uint32_t full, empty; /* barriers of the stages */
    int32_t *is_over;     /* the dependency */
};

/* Lays the ring out in a CTA's dynamic shared memory, behind so many bytes of x, and makes its barriers, [2 STAGES_MAX] there; a stage is
 * empty when so many readers have said so. By all threads, before their barrier. */
__device__ __forceinline__ packed_ring packed_ring_init(unsigned char *shared, uint64_t *barriers,
                                                        int32_t *is_over, const CUtensorMap *x_map,
                                                        int32_t num_stages, int32_t x_bytes,
                                                        int32_t num_readers)
{
    packed_ring r;
    r.x = (shared_address(shared) + 1023) & ~1023u; /* swizzled boxes want 1024-byte alignment */
    r.w = r.x + x_bytes;
    r.full = shared_address(barriers);
    r.empty = r.full + 8 * STAGES_MAX;
    r.is_over = is_over;
    if (threadIdx.x == 0) {
        *is_over = 0;
        if (x_map) tensor_map_prefetch(x_map);
        ring_init(r.full, r.empty, num_stages, num_readers);
    }
    return r;
}

/* The work of the one thread that fetches: a.num_k stages of W and x into the ring, the first of W ahead of the dependency.
 * PRODUCER: a, r, load_w(stage, k), load_x(stage, k). */
template <typename PRODUCER> __device__ __forceinline__ void fill_packed_ring(const PRODUCER &producer)
{
    const int32_t num_stages = producer.a.num_stages, most = min(num_stages, producer.a.num_k);
    int32_t num_ahead = 0;
    do producer.load_w(num_ahead, num_ahead);
    while (++num_ahead < most && pause_unless_over(producer.r.is_over, producer.a.pause));
    dependents_launch();
    dependency_wait();
    for (int32_t k = 0; k < num_ahead; k++) producer.load_x(k, k);
    pipeline_state p = {num_ahead % num_stages, num_ahead < num_stages};
    for (int32_t k = num_ahead; k < producer.a.num_k; k++) {
        barrier_wait(producer.r.empty + 8 * p.stage, p.parity);
        producer.load_w(p.stage, k);
        producer.load_x(p.stage, k);
        p.advance(num_stages);
    }
}

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

/* Where a warp's first strip is in a stage. */
template <typename T> __device__ __forceinline__ uint32_t packed_strip_offset(int32_t strip)
{
    return strip / PACKED_STRIPS * T::QUAD_BYTES + strip % PACKED_STRIPS * T::BLOCK_BYTES;
}

/* The warps that multiply. T: packed_tile_traits, or more. */
template <int FORMAT, typename T> struct packed_consumer {
    static constexpr int SCALES = T::SCALES, HALVES = T::HALVES;
    using codes = lane_codes<SCALES, HALVES>;
    const packed_args &a;
    const packed_ring &r;
    uint32_t w_offset; /* of the warp's first strip in a stage */
    float d[T::N / 2];

    /* Descriptors of x, as wgmma.cuh counts them: where a stage of K begins, and from box to box of it. */
    __device__ __forceinline__ uint32_t x_of(int32_t k, int32_t stage) const
    {
        return T::IS_ROW ? wgmma_row_descriptor_low(r.x) + k * (T::STAGE_BLOCKS * BLOCK_BOXES) * x_box()
                         : wgmma_descriptor_low(r.x) + stage * (T::x_bytes(a.x_rows) / 16);
    }

    __device__ __forceinline__ int32_t x_box(void) const
    {
        return (T::IS_ROW ? 1 : a.x_rows) * (BOX_ROW_BYTES / 16);
    }

    static __device__ __forceinline__ uint64_t x_part(uint32_t x)
    {
        return T::IS_ROW ? wgmma_row_descriptor_of(x) : wgmma_descriptor_of(x);
    }

    /* Of one strip: that of the warp's so many that begin at w_offset. */
    __device__ __forceinline__ void load_strip(codes &c, int h, int32_t stage, int block, int strip) const
    {
        int lane = threadIdx.x % 32;
        uint32_t at = r.w + stage * T::W_BYTES + w_offset + block * (PACKED_STRIPS * T::BLOCK_BYTES) +
                      strip * T::BLOCK_BYTES;
        uint32_t scales = at + PACKED_CODES_BYTES + lane / 4 * (4 * SCALES);
        load_4(c.words[h], at + lane * 16);
#pragma unroll
        for (int i = 0; i < SCALES; i++) c.scales[h][i] = load_1(scales + 4 * i);
    }

    __device__ __forceinline__ void load(codes &c, int32_t stage, int block) const
    {
#pragma unroll
        for (int h = 0; h < HALVES; h++) load_strip(c, h, stage, block, h);
    }

    /* The operand of the block's columns 64 half to 64 half + 63, in the eight rows at. */
    __device__ __forceinline__ void unpack_strip(uint32_t *operand, int at, const codes &c, int h,
                                                 int half) const
    {
#pragma unroll
        for (int i = 0; i < BOX_STEPS; i++) {
            int step = half * BOX_STEPS + i;
            const auto scale = packed_scale<FORMAT, SCALES>::of(c.scales[h][step * SCALES / 8]);
            operand[4 * i + at] = scale.pair(c.words[h][step / 2], step % 2 * 2);
            operand[4 * i + 2 + at] = scale.pair(c.words[h][step / 2], step % 2 * 2 + 1);
        }
    }

    __device__ __forceinline__ void unpack(uint32_t (&operand)[4 * BOX_STEPS], const codes &c, int half) const
    {
#pragma unroll
        for (int h = 0; h < HALVES; h++) unpack_strip(operand, h, c, h, half);
    }

    __device__ __forceinline__ void multiply(const uint32_t (&operand)[4 * BOX_STEPS], uint32_t x, int add)
    {
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < BOX_STEPS; i++)
            wgmma_registers<0>(d, operand + 4 * i, x_part(x + 2 * i), add || i > 0);
        wgmma_commit();
    }

    /* Behind the last product. */
    __device__ __forceinline__ void end_sums(void)
    {
        if constexpr (packed_factor(FORMAT) != 1) {
#pragma unroll
            for (int i = 0; i < T::N / 2; i++) d[i] *= packed_factor(FORMAT);
        }
    }

    /* All of K. Products of two boxes are under way at most: an operand is made anew when those before the last are over. */
    __device__ __forceinline__ void run(void)
    {
        uint32_t operands[2][4 * BOX_STEPS] = {};
        codes c;
        pipeline_state p = {0, 0};
        int32_t before = 0;
        barrier_wait(r.full, 0);
        load(c, 0, 0);
        for (int32_t k = 0; k < a.num_k; k++) {
            uint32_t x = x_of(k, p.stage);
            int32_t stage = p.stage;
            p.advance(a.num_stages);
#pragma unroll
            for (int block = 0; block < T::STAGE_BLOCKS; block++) {
                wgmma_wait<1>();
                unpack(operands[0], c, 0);
                multiply(operands[0], x + 2 * block * x_box(), k > 0 || block > 0);
                wgmma_wait<1>();
                if (block == 0 && k > 0 && threadIdx.x % 32 == 0) barrier_arrive(r.empty + 8 * before);
                unpack(operands[1], c, 1);
                multiply(operands[1], x + (2 * block + 1) * x_box(), 1);
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
        end_sums();
    }
};

} // namespace

#endif
