/* linear_fp8_tile.cuh - the warps that multiply tiles of many rows of bytes, of which linear_fp8_large.cu and moe_fp8_large.cu make kernels:
 * 128 rows of x times WIDTH rows of W, 64 of the rows in each of two groups of four warps. A stage of the ring is a block of 128
 * columns and, where scales are of blocks, those of x and W. */
#ifndef KERNELS_CUDA_LINEAR_FP8_TILE_CUH
#define KERNELS_CUDA_LINEAR_FP8_TILE_CUH

#include "kernels/cuda/fp8.cuh"
#include "kernels/cuda/linear_fp8.cuh"
#include "kernels/cuda/linear_tile.cuh"

namespace
{

enum {
    ROW_BYTES = FP8_BLOCK,
    GROUPS = 2,
    GROUP_ROWS = 64,
    TILE_M = GROUPS * GROUP_ROWS,
    WARPS = GROUPS * 4,
    THREADS = (WARPS + 4) *
              32, /* registers are dealt out to groups of four warps: the producer has one to itself */
    PRODUCER_REGISTERS = 40,
    CONSUMER_REGISTERS = 232,
    X_BYTES = TILE_M * ROW_BYTES,
    X_SCALE_BYTES = TILE_M * 4,
    W_SCALE_BYTES = 128, /* at most */
    SCALE_BYTES = X_SCALE_BYTES + W_SCALE_BYTES,
    RING_BYTES_MAX = 193 << 10
};

template <int WIDTH> struct fp8_tile_traits {
    static constexpr int W_BYTES = WIDTH * ROW_BYTES, STAGE_BYTES = X_BYTES + W_BYTES + SCALE_BYTES,
                         STAGES = RING_BYTES_MAX / STAGE_BYTES,
                         SHARED_BYTES = 1024 + STAGES * STAGE_BYTES + WARPS * OUT_BUFFERS * OUT_BYTES;
};

/* Addresses of shared memory. */
struct fp8_tile_ring {
    uint32_t x, w;        /* [stage], swizzled */
    uint32_t scales;      /* [stage]: TILE_M of x, WIDTH / 8 of W */
    uint32_t outs;        /* [warp][OUT_BUFFERS], of store_tile */
    uint32_t full, empty; /* barriers of the stages */
};

/* Lays the ring out in a CTA's dynamic shared memory, and makes its barriers. By all threads, before their barrier. */
template <int WIDTH, int FORM>
__device__ __forceinline__ fp8_tile_ring
fp8_tile_ring_init(unsigned char *shared, uint64_t (&barriers)[2 * fp8_tile_traits<WIDTH>::STAGES],
                   const CUtensorMap *x_map, const CUtensorMap *w_map, const CUtensorMap *out_map)
{
    using T = fp8_tile_traits<WIDTH>;
    fp8_tile_ring r;
    r.x = (shared_address(shared) + 1023) & ~1023u; /* swizzled boxes want 1024-byte alignment */
    r.w = r.x + T::STAGES * X_BYTES;
    r.outs = r.w + T::STAGES * T::W_BYTES;
    r.scales = r.outs + WARPS * OUT_BUFFERS * OUT_BYTES;
    r.full = shared_address(barriers);
    r.empty = r.full + 8 * T::STAGES;
    if (threadIdx.x == 0) {
        tensor_map_prefetch(x_map);
        tensor_map_prefetch(w_map);
        tensor_map_prefetch(out_map);
        ring_init(r.full, r.empty, T::STAGES, FORM == E4M3_OF_BLOCKS ? WARPS * 32 : WARPS);
    }
    return r;
}

__device__ __forceinline__ float load_shared(uint32_t address)
{
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(address));
    return v;
}

__device__ __forceinline__ float4 load_shared_4(uint32_t address)
{
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(address));
    return v;
}

/* A group of four warps. Sums as wgmma.cuh has them. ARGS has p, the scales among what it says, and num_k, stages of a tile. */
template <typename ARGS, int WIDTH, int FORM> struct fp8_tile_consumer {
    static constexpr bool IN_BLOCKS = FORM == E4M3_OF_BLOCKS, INT8 = FORM == INT8_OF_ROWS;
    using T = fp8_tile_traits<WIDTH>;
    const ARGS &a;
    const fp8_tile_ring &r;
    int warp;
    pipeline_state p;
    float sums[WIDTH / 2];
    byte_sum<FORM> part[WIDTH / 2]; /* what the tensor cores add */

    /* Of the tile: this thread's first row; the second is 8 behind. */
    __device__ __forceinline__ int32_t row(void) const { return warp * 16 + (int32_t)threadIdx.x % 32 / 4; }

    __device__ __forceinline__ void add_scaled(void)
    {
        uint32_t scales = r.scales + p.stage * SCALE_BYTES;
        float of_x[] = {load_shared(scales + row() * 4), load_shared(scales + (row() + 8) * 4)};
#pragma unroll
        for (int j = 0; j < WIDTH / 8; j += 4) {
            float4 four = load_shared_4(scales + X_SCALE_BYTES + j * 4);
            const float of_w[] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int i = 0; i < 16; i++) {
                int at = 4 * j + i;
                sums[at] = __fmaf_rn(part[at], of_x[i / 2 % 2] * of_w[i / 4], sums[at]);
            }
        }
    }

    /* The products of a stage begin. */
    __device__ __forceinline__ void begin(bool adds)
    {
        barrier_wait(r.full + 8 * p.stage, p.parity);
        uint32_t x = wgmma_descriptor_low(r.x + warp / 4 * GROUP_ROWS * ROW_BYTES) + p.stage * (X_BYTES / 16);
        uint32_t w = wgmma_descriptor_low(r.w) + p.stage * (T::W_BYTES / 16);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < FP8_BLOCK / 32; i++)
            wgmma_bytes(part, wgmma_descriptor_of(x + 2 * i), wgmma_descriptor_of(w + 2 * i), adds || i > 0);
        wgmma_commit();
    }

    __device__ __forceinline__ void release(int32_t stage) const
    {
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(r.empty + 8 * stage);
    }

    __device__ __forceinline__ void multiply_block(void)
    {
        begin(false);
        wgmma_wait<0>();
        wgmma_hold(part);
        add_scaled();
        barrier_arrive(r.empty + 8 * p.stage); /* each lane has read scales of its own */
        p.advance(T::STAGES);
    }

    /* So many stages' products are one sum, and wait for nobody. */
    __device__ __forceinline__ void multiply_stages(int32_t num)
    {
        int32_t before = p.stage;
        begin(false);
        for (int32_t k = 1; k < num; k++) {
            p.advance(T::STAGES);
            begin(true);
            wgmma_wait<1>();
            release(before);
            before = p.stage;
        }
        wgmma_wait<0>();
        wgmma_hold(part);
        release(before);
        p.advance(T::STAGES);
    }

    /* All of a tile's K. */
    __device__ __forceinline__ void multiply_all(void)
    {
#pragma unroll
        for (int i = 0; i < WIDTH / 2; i++) sums[i] = 0;
        if constexpr (IN_BLOCKS) {
            for (int32_t k = 0; k < a.num_k; k++) multiply_block();
        } else {
            constexpr int32_t STEP = INT8 ? INT32_MAX : (int32_t)FP8_SUM_BLOCKS;
            for (int32_t left = a.num_k; left > 0; left -= min(left, STEP)) {
                multiply_stages(min(left, STEP));
#pragma unroll
                for (int i = 0; i < WIDTH / 2; i++) sums[i] += (float)part[i];
            }
        }
    }

    /* Scales of rows. */
    __device__ __forceinline__ void scale(int32_t first_m, int32_t first_n)
    {
        float of_x[2];
#pragma unroll
        for (int i = 0; i < 2; i++) of_x[i] = a.p.x_scales[min(first_m + row() + 8 * i, a.p.rows - 1)];
#pragma unroll
        for (int j = 0; j < WIDTH / 8; j++) {
            int32_t n = min(first_n + 8 * j + (int32_t)threadIdx.x % 4 * 2, a.p.n - 2);
            float2 of_w = *(const float2 *)(a.p.w_scales + n);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float *s = sums + 4 * j + 2 * i;
                s[0] = s[0] * of_x[i] * of_w.x;
                s[1] = s[1] * of_x[i] * of_w.y;
            }
        }
    }
};

} // namespace

#endif
