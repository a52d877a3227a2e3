/* linear_fp8_small.cuh - the warps that multiply few rows of bytes, of which linear_fp8_small.cu and moe_fp8_small.cu make kernels: W is the
 * M side of wgmma, 64 rows for each group of four warps, x the N side.
 *
 * Where scales are of blocks those of x are in the ring, and so are those of W where tiles are short (W_SCALED): otherwise they come from
 * global memory, 32 blocks of columns at a time, one a lane, with a latency as a tile begins. */
#ifndef KERNELS_CUDA_LINEAR_FP8_SMALL_CUH
#define KERNELS_CUDA_LINEAR_FP8_SMALL_CUH

#include "kernels/cuda/fp8.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/linear_row.cuh"

namespace
{

enum {
    BOX_ROW_BYTES = FP8_BLOCK,
    GROUP_WARPS = 4,
    GROUP_ROWS = 64,
    STAGES_MAX = 32,
    BOX_ALIGNMENT = 128,
    W_SCALE_BYTES = BOX_ALIGNMENT /* fp8_ring */
};

/* COLS: rows of x at most, 8 or more; 1, 2: one row that the CTA makes (is_row). */
template <int ROWS, int COLS> struct fp8_traits {
    static constexpr bool IS_ROW = is_row(COLS);
    static constexpr int BOXES = ROWS > 64 || COLS > 64    ? 1
                                 : COLS > 16 || ROWS == 64 ? 2
                                                           : 4; /* blocks of 128 columns a stage */
    static constexpr int W_BYTES = ROWS * BOXES * BOX_ROW_BYTES;
    /* Groups of warps: W's rows by 64, x's rows by COLUMNS. Adding what blocks give is the work of many. */
    static constexpr int W_GROUPS = (ROWS + GROUP_ROWS - 1) / GROUP_ROWS,
                         X_GROUPS = COLS <= 16   ? 1
                                    : COLS <= 64 ? 2
                                                 : 4 / W_GROUPS,
                         COLUMNS = IS_ROW ? 8 : COLS / X_GROUPS;
    static constexpr int WARPS = W_GROUPS * X_GROUPS * GROUP_WARPS;
    /* Of the CTA, but the producer's, which is the last. */
    static constexpr int OTHERS = IS_ROW ? (int)ROW_WARPS : WARPS;
    static constexpr int THREADS = (OTHERS + 1) * 32;
    /* Stages whose products may be under way at a time, as far as registers suffice. */
    static constexpr int BUFFERS = COLUMNS > 32 ? 1 : 2;
    /* of W, read beyond the ring's end */
    static constexpr int BYTES_BEHIND = (W_GROUPS * GROUP_ROWS - ROWS) * BOX_ROW_BYTES;
    __host__ __device__ static constexpr int x_bytes(int x_rows) { return x_rows * BOXES * BOX_ROW_BYTES; }
    /* As many as a tensor's boxes are aligned to. */
    __host__ __device__ static constexpr int scale_bytes(int x_rows)
    {
        return (x_rows * BOXES * 4 + BOX_ALIGNMENT - 1) / BOX_ALIGNMENT * BOX_ALIGNMENT;
    }
    /* Of a row's place in front of the ring, and of its scales behind it. */
    __host__ __device__ static constexpr int row_bytes(int num_k)
    {
        return IS_ROW ? (num_k * BOXES * FP8_BLOCK + ROW_BYTES_BEHIND + 1023) / 1024 * 1024 : 0;
    }
    __host__ __device__ static constexpr int row_scale_bytes(int num_k)
    {
        return IS_ROW ? num_k * BOXES * (int)sizeof(float2) : 0;
    }
};

/* Addresses of shared memory. */
struct fp8_ring {
    uint32_t w, x;        /* [stage][box][ROWS or x_rows][128], swizzled; x of IS_ROW: the row */
    uint32_t scales;      /* [stage][box][x_rows]; of IS_ROW [block][2], of which the first counts */
    uint32_t w_scales;    /* of W_SCALED [stage][box][ROWS / 8], a stage W_SCALE_BYTES behind the other */
    uint32_t full, empty; /* barriers of the stages */
};

__device__ __forceinline__ float2 load_shared_pair(uint32_t address)
{
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address));
    return v;
}

/* The warps that multiply. Sums as wgmma.cuh has them: [4 j + 2 i + k] is row 16 warp + g + 8 i of the tile, row 8 j + 2 t + k of
 * x. ARGS has
 *
 *   p (W and the scales), num_k (stages of a tile), num_blocks (K / 128), num_stages (in the ring), x_rows (of x in a stage)
 *
 * first_n: the row of W that a tile begins with. */
template <typename ARGS, int ROWS, int COLS, int FORM, bool W_SCALED> struct fp8_consumer {
    static constexpr bool BLOCKS = FORM == E4M3_OF_BLOCKS, INT8 = FORM == INT8_OF_ROWS;
    using T = fp8_traits<ROWS, COLS>;
    static constexpr int COLUMNS = T::COLUMNS;
    const ARGS &a;
    const fp8_ring &r;
    int32_t warp;    /* of those that have the same rows of x */
    int32_t first_m; /* of these */
    pipeline_state p;
    int32_t oldest;          /* stage whose products have not joined the sums */
    float sums[COLUMNS / 2]; /* of integers their bits until they are scaled */
    byte_sum<FORM> parts[T::BUFFERS][BLOCKS ? T::BOXES : 1][COLUMNS / 2]; /* what the tensor cores add */
    float2 scales,
        next_scales; /* of blocks of W, for two groups of 8 rows: lane l has those of block l of 32 */
    float of_w[2], of_x[COLUMNS / 4]; /* scales of rows, asked for long before they are wanted */

    /* Rows of W of this warp, the first of them. */
    __device__ __forceinline__ int32_t row_of(int32_t first_n) const { return first_n + 16 * warp; }

    __device__ __forceinline__ float2 scales_from(int32_t first_n, int32_t first_block) const
    {
        int32_t block = min(first_block + (int32_t)threadIdx.x % 32, a.num_blocks - 1),
                row = min(row_of(first_n),
                          a.p.n - 16); /* what lies beyond is not used, nor are there branches of lanes */
        return *(const float2 *)(a.p.w_scales + (size_t)block * a.p.w_pitch + row / 8);
    }

    __device__ __forceinline__ void begin(int32_t first_n)
    {
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) sums[i] = 0;
        if (BLOCKS && !W_SCALED) next_scales = scales_from(first_n, 0);
#pragma unroll
        for (int i = 0; i < 2 && !BLOCKS; i++)
            of_w[i] = a.p.w_scales[min(row_of(first_n) + (int32_t)threadIdx.x % 32 / 4 + 8 * i, a.p.n - 1)];
    }

    /* Of the rows of x from first on. */
    __device__ __forceinline__ void load_x_scales(int32_t first)
    {
#pragma unroll
        for (int i = 0; i < COLUMNS / 4; i++)
            of_x[i] = a.p.x_scales[min(first + first_m + 8 * (i / 2) + (int32_t)threadIdx.x % 4 * 2 + i % 2,
                                       a.p.rows - 1)];
    }

    /* What blocks of columns add where rows have scales. */
    __device__ __forceinline__ void add(const byte_sum<FORM> (&part)[COLUMNS / 2])
    {
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) {
            if constexpr (INT8)
                sums[i] = __int_as_float(__float_as_int(sums[i]) + part[i]);
            else
                sums[i] += part[i];
        }
        wgmma_hold(sums); /* or the compiler adds elsewhere, and has the products wait for each other */
    }

    /* Of a block of the oldest stage, for two groups of 8 rows of W. */
    __device__ __forceinline__ float2 scales_of(int32_t first_n, int32_t block, int box)
    {
        if (W_SCALED)
            return load_shared_pair(r.w_scales + oldest * W_SCALE_BYTES + box * (ROWS / 8 * 4) + warp * 8);
        if (block % 32 == 0) {
            scales = next_scales;
            next_scales = scales_from(first_n, block + 32);
        }
        return {__shfl_sync(0xffffffffu, scales.x, block % 32),
                __shfl_sync(0xffffffffu, scales.y, block % 32)};
    }

    /* Where blocks have. */
    __device__ __forceinline__ void add_scaled(int32_t first_n, int32_t block, int box,
                                               const float (&part)[COLUMNS / 2])
    {
        if (block >= a.num_blocks) return;
        const uint32_t x_scales = r.scales + oldest * T::scale_bytes(a.x_rows) + box * a.x_rows * 4;
        const float2 both = scales_of(first_n, block, box);
        const float of_w[] = {both.x, both.y};
#pragma unroll
        for (int j = 0; j < COLUMNS / 8; j++) {
            if (!T::IS_ROW && first_m + 8 * j >= a.x_rows) break;
            float2 of_x =
                load_shared_pair(T::IS_ROW ? r.scales + block * (int32_t)sizeof(float2)
                                           : x_scales + (first_m + 8 * j + (int)threadIdx.x % 4 * 2) * 4);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float *s = sums + 4 * j + 2 * i;
                const float *v = part + 4 * j + 2 * i;
                s[0] = __fmaf_rn(v[0], of_x.x * of_w[i], s[0]);
                s[1] = __fmaf_rn(v[1], of_x.y * of_w[i], s[1]);
            }
        }
    }

    using part = byte_sum<FORM>[BLOCKS ? T::BOXES : 1][COLUMNS / 2];

    /* The products of the tile's k-th stage begin; adds: to what those before it gave. */
    __device__ __forceinline__ void multiply(int32_t k, part &into, bool adds)
    {
        const int32_t stage = warp_uniform(p.stage);
        barrier_wait(r.full + 8 * p.stage, p.parity);
        const uint32_t x_box = (T::IS_ROW ? FP8_BLOCK : a.x_rows * BOX_ROW_BYTES) / 16,
                       w_box = ROWS * BOX_ROW_BYTES / 16;
        uint32_t x = T::IS_ROW ? wgmma_row_descriptor_low(r.x) + k * T::BOXES * x_box
                               : wgmma_descriptor_low(r.x + (T::X_GROUPS > 1 ? first_m * BOX_ROW_BYTES : 0)) +
                                     stage * T::BOXES * x_box;
        uint32_t w = wgmma_descriptor_low(r.w) + stage * T::BOXES * w_box +
                     (T::W_GROUPS > 1 ? warp / GROUP_WARPS * GROUP_ROWS * BOX_ROW_BYTES / 16 : 0);
        wgmma_fence();
        /* blocks with sums of their own take turns: a product waits for the one before it with the same sums */
        constexpr int PARTS = FP8_BLOCK / 32;
#pragma unroll
        for (int i = 0; i < T::BOXES * PARTS; i++) {
            const int box = BLOCKS ? i % T::BOXES : i / PARTS, at = BLOCKS ? i / T::BOXES : i % PARTS;
            const uint32_t x_part = x + box * x_box + at * 2;
            wgmma_bytes(into[BLOCKS ? box : 0], wgmma_descriptor_of(w + box * w_box + at * 2),
                        T::IS_ROW ? wgmma_row_descriptor_of(x_part) : wgmma_descriptor_of(x_part),
                        adds || (BLOCKS ? at : i) > 0);
        }
        wgmma_commit();
        p.advance(a.num_stages);
    }

    /* The oldest stage's products are over. */
    __device__ __forceinline__ void release(void)
    {
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(r.empty + 8 * oldest);
        if (++oldest == a.num_stages) oldest = 0;
    }

    /* And what was added until it, from stage k on, joins the sums. */
    __device__ __forceinline__ void finish(int32_t first_n, int32_t k, part &from)
    {
#pragma unroll
        for (int box = 0; box < (BLOCKS ? T::BOXES : 1); box++) {
            wgmma_hold(from[box]);
            if constexpr (BLOCKS)
                add_scaled(first_n, k * T::BOXES + box, box, from[box]);
            else
                add(from[box]);
        }
        release();
    }

    /* Stages whose products the tensor cores add. */
    static constexpr int STEP = BLOCKS ? 1 : FP8_SUM_BLOCKS / T::BOXES;

    /* Those behind the first of them, which is k. */
    __device__ __forceinline__ void multiply_rest(int32_t k, part &into)
    {
        if constexpr (STEP > 1) {
            const int32_t end = min(k + STEP, a.num_k);
            while (++k < end) {
                multiply(k, into, true);
                wgmma_wait<1>();
                release();
            }
        }
    }

    /* A tile's stages, the next products queued while what others gave is added. */
    __device__ __forceinline__ void multiply_all(int32_t first_n)
    {
        if constexpr (T::BUFFERS == 1) {
            for (int32_t k = 0; k < a.num_k; k += STEP) {
                multiply(k, parts[0], false);
                multiply_rest(k, parts[0]);
                wgmma_wait<0>();
                finish(first_n, k, parts[0]);
            }
        } else {
            int32_t k = 0;
            multiply(0, parts[0], false);
            multiply_rest(0, parts[0]);
            for (; k + 2 * STEP < a.num_k; k += 2 * STEP) {
                multiply_next(first_n, k, parts[0], parts[1]);
                multiply_next(first_n, k + STEP, parts[1], parts[0]);
            }
            if (k + STEP < a.num_k) {
                multiply_next(first_n, k, parts[0], parts[1]);
                wgmma_wait<0>();
                finish(first_n, k + STEP, parts[1]);
            } else {
                wgmma_wait<0>();
                finish(first_n, k, parts[0]);
            }
        }
    }

    /* The products behind those from stage k on, which end meanwhile. */
    __device__ __forceinline__ void multiply_next(int32_t first_n, int32_t k, part &before, part &into)
    {
        multiply(k + STEP, into, false);
        wgmma_wait<1>();
        finish(first_n, k, before);
        multiply_rest(k + STEP, into);
    }

    /* By scales of rows. */
    __device__ __forceinline__ void scale(void)
    {
#pragma unroll
        for (int i = 0; i < COLUMNS / 4; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float *s = sums + 4 * (i / 2) + 2 * half + i % 2;
                *s = (INT8 ? (float)__float_as_int(*s) : *s) * of_x[i] * of_w[half];
            }
    }
};

} // namespace

#endif
