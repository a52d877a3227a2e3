/* linear_small.cu - products of few rows (M <= 64): weights on the tensor cores' M side, bound by their bytes.
 *
 * A CTA owns ROWS rows of W and walks K in order, 64 columns a stage. One warp feeds a ring of stages through the bulk
 * copy engine (W box [ROWS][64], x box [M rounded up to 8][64], 128-byte swizzle); the others own 16 rows each and keep
 * one f32 accumulator an output:
 *
 *      W [ROWS][K]  -> |s0|s1|s2|s3| ... ring in shared memory ... -> ldmatrix -> mma.m16n8k16 -> out[m][n]
 *      x [M][K]     -> |s0|s1|s2|s3|
 *
 * The order over K is the plain one, so the bits equal those of any product of the same rows that does not split K
 * (cuBLASLt's included; tests/kernels/test_linear checks it). Filling the ring with weights needs nothing of the kernel
 * before: it begins ahead of the dependency, so that the memory never idles between kernels.
 *
 * The fragments of stage s + 1 are loaded while stage s multiplies: without that, the latency of shared memory and of
 * the multiply chain add up and a third of the bandwidth is lost. */
#include <map>
#include <tuple>

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/linear_small.cuh"
#include "kernels/cuda/mma.cuh"

enum { STAGE_K = 64, STAGE_ROW_BYTES = STAGE_K * 2, RING_BYTES_MAX = 100 * 1024, STAGES_MAX = 24 };

enum epilogue { EPILOGUE_BF16, EPILOGUE_F32, EPILOGUE_SILU_MUL };

struct small_args {
    void *out;
    const float *bias;
    int32_t m, n, k, num_stages;
};

template <int ROWS, int TILES> struct small_traits {
    static constexpr int STAGE_BYTES = (ROWS + TILES * 8) * STAGE_ROW_BYTES;
    static constexpr int STAGES = RING_BYTES_MAX / STAGE_BYTES < STAGES_MAX ? RING_BYTES_MAX / STAGE_BYTES : STAGES_MAX;
    static constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + 1024 + STAGES * 16;
    static constexpr int THREADS = ROWS / 16 * 32 + 32;
};

/* Fragments of one stage: 4 steps of 16 columns. */
template <int TILES> struct fragments {
    uint32_t a[4][4];
    uint32_t b[TILES][8];
};

/* Columns [16 k, 16 k + 16) of a stage's W rows, and with every other k the next 32 columns of x. */
template <int TILES>
static __device__ __forceinline__ void load_step(struct fragments<TILES> *f, int k, uint32_t w, uint32_t x, int lane)
{
    uint32_t a_row = w + (lane % 16) * STAGE_ROW_BYTES, b_row = x + (lane % 8) * STAGE_ROW_BYTES;
    load_matrix(f->a[k], a_row + (((2 * k + lane / 16) ^ (lane % 8)) * 16));
    if (k % 2 == 0)
#pragma unroll
        for (int t = 0; t < TILES; t++)
            load_matrix(f->b[t] + 2 * k, b_row + t * 8 * STAGE_ROW_BYTES + (((2 * k + lane / 8) ^ (lane % 8)) * 16));
}

template <int TILES>
static __device__ __forceinline__ void multiply_step(float (*c)[4], const struct fragments<TILES> *f, int k)
{
#pragma unroll
    for (int t = 0; t < TILES; t++) mma_bf16(c[t], f->a[k], f->b[t][2 * k], f->b[t][2 * k + 1]);
}

static __device__ float round_bf16(float x)
{
    return __bfloat162float(__float2bfloat16_rn(x));
}

/* c: rows g and g + 8 of the warp's tile, columns 2t, 2t + 1 of each group of 8 rows of x. */
template <int TILES, int EPILOGUE>
static __device__ void store(const small_args &a, float (*c)[4], int32_t first_row, int lane)
{
    int g = lane / 4;
#pragma unroll
    for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int32_t m = t * 8 + 2 * (lane % 4) + i, n = first_row + g;
            if (m >= a.m) continue;
            float low = c[t][i], high = c[t][2 + i];
            if (EPILOGUE == EPILOGUE_F32) {
                float *out = (float *)a.out + (size_t)m * a.n + n;
                if (n < a.n) out[0] = low;
                if (n + 8 < a.n) out[8] = high;
            } else if (EPILOGUE == EPILOGUE_SILU_MUL) {
                /* rows 0-7 of a tile are gate, 8-15 up; rounded first, as the two-pass way rounds them */
                float gate = round_bf16(low), up = round_bf16(high);
                __nv_bfloat16 *out = (__nv_bfloat16 *)a.out + (size_t)m * (a.n / 2) + first_row / 2 + g;
                if (n < a.n) *out = __float2bfloat16_rn(gate / (1.0f + __expf(-gate)) * up);
            } else {
                __nv_bfloat16 *out = (__nv_bfloat16 *)a.out + (size_t)m * a.n + n;
                if (a.bias) {
                    if (n < a.n) low = round_bf16(low) + a.bias[n];
                    if (n + 8 < a.n) high = round_bf16(high) + a.bias[n + 8];
                }
                if (n < a.n) out[0] = __float2bfloat16_rn(low);
                if (n + 8 < a.n) out[8] = __float2bfloat16_rn(high);
            }
        }
}

/* The feeding warp: weights first, as many stages as the ring holds; x only after the kernel before has finished. */
template <int ROWS, int TILES>
static __device__ void feed(const small_args &a, const CUtensorMap *w_map, const CUtensorMap *x_map, uint32_t ring,
                            uint32_t full, uint32_t empty)
{
    using T = small_traits<ROWS, TILES>;
    int32_t num_ahead = min(a.num_stages, (int32_t)T::STAGES), first_row = blockIdx.x * ROWS;
    tensor_map_prefetch(w_map);
    tensor_map_prefetch(x_map);
    for (int32_t s = 0; s < num_ahead; s++) {
        barrier_arrive_expect(full + 8 * s, T::STAGE_BYTES);
        tensor_load_2d(ring + s * T::STAGE_BYTES, w_map, full + 8 * s, s * STAGE_K, first_row);
    }
    dependency_wait();
    for (int32_t s = 0; s < num_ahead; s++)
        tensor_load_2d(ring + s * T::STAGE_BYTES + ROWS * STAGE_ROW_BYTES, x_map, full + 8 * s, s * STAGE_K, 0);
    for (int32_t s = num_ahead; s < a.num_stages; s++) {
        int32_t slot = s % T::STAGES;
        uint32_t stage = ring + slot * T::STAGE_BYTES;
        barrier_wait(empty + 8 * slot, (s / T::STAGES + 1) & 1);
        barrier_arrive_expect(full + 8 * slot, T::STAGE_BYTES);
        tensor_load_2d(stage, w_map, full + 8 * slot, s * STAGE_K, first_row);
        tensor_load_2d(stage + ROWS * STAGE_ROW_BYTES, x_map, full + 8 * slot, s * STAGE_K, 0);
    }
}

template <int ROWS, int TILES, int EPILOGUE>
static __global__ void __launch_bounds__(small_traits<ROWS, TILES>::THREADS)
    small_kernel(small_args a, const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap x_map)
{
    using T = small_traits<ROWS, TILES>;
    constexpr int WARPS = ROWS / 16;
    extern __shared__ unsigned char shared[];
    uint32_t ring = (shared_address(shared) + 1023) & ~1023u; /* swizzled boxes want 1024-byte alignment */
    uint32_t full = ring + T::STAGES * T::STAGE_BYTES, empty = full + 8 * T::STAGES;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int s = 0; s < T::STAGES; s++) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, WARPS);
        }
        barrier_init_fence();
    }
    __syncthreads();
    dependents_launch();
    if (warp == WARPS) {
        if (lane == 0) feed<ROWS, TILES>(a, &w_map, &x_map, ring, full, empty);
        return;
    }
    float c[TILES][4] = {};
    uint32_t w = ring + warp * 16 * STAGE_ROW_BYTES, x = ring + ROWS * STAGE_ROW_BYTES;
    if (TILES <= 2) {
        struct fragments<TILES> f[2];
        barrier_wait(full, 0);
#pragma unroll
        for (int k = 0; k < 4; k++) load_step(&f[0], k, w, x, lane);
        for (int32_t s = 0; s < a.num_stages; s += 2) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int32_t now = s + half, next = now + 1, slot = next % T::STAGES;
                if (now >= a.num_stages) break;
                bool has_next = next < a.num_stages;
                if (has_next) barrier_wait(full + 8 * slot, (next / T::STAGES) & 1);
                uint32_t next_w = w + slot * T::STAGE_BYTES, next_x = x + slot * T::STAGE_BYTES;
#pragma unroll
                for (int k = 0; k < 4; k++)
                    if (has_next) load_step(&f[1 - half], k, next_w, next_x, lane);
#pragma unroll
                for (int k = 0; k < 4; k++) multiply_step(c, &f[half], k);
                __syncwarp();
                if (lane == 0) barrier_arrive(empty + 8 * (now % T::STAGES));
            }
        }
    } else {
        struct fragments<TILES> f;
        for (int32_t s = 0; s < a.num_stages; s++) {
            int32_t slot = s % T::STAGES;
            barrier_wait(full + 8 * slot, (s / T::STAGES) & 1);
#pragma unroll
            for (int k = 0; k < 4; k++) load_step(&f, k, w + slot * T::STAGE_BYTES, x + slot * T::STAGE_BYTES, lane);
#pragma unroll
            for (int k = 0; k < 4; k++) multiply_step(c, &f, k);
            __syncwarp();
            if (lane == 0) barrier_arrive(empty + 8 * slot);
        }
    }
    store<TILES, EPILOGUE>(a, c, blockIdx.x * ROWS + warp * 16, lane);
}

/* ---- tensor maps, made once for each (pointer, shape) ---- */

typedef CUresult encode_function(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                 const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static encode_function *find_encode(void)
{
    static encode_function *encode;
    cudaDriverEntryPointQueryResult found;
    if (!encode)
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&encode, 12000, cudaEnableDefault, &found);
    return encode;
}

/* [rows][k] bf16, in boxes of 64 columns and box_rows rows; rows beyond the matrix read as zeros. */
static const CUtensorMap *tensor_map(const void *data, int32_t rows, int32_t k, int32_t box_rows)
{
    static std::map<std::tuple<const void *, int32_t, int32_t, int32_t>, CUtensorMap> maps;
    auto key = std::make_tuple(data, rows, k, box_rows);
    auto it = maps.find(key);
    if (it != maps.end()) return &it->second;
    cuuint64_t sizes[] = {(cuuint64_t)k, (cuuint64_t)rows}, strides[] = {(cuuint64_t)k * 2};
    cuuint32_t box[] = {STAGE_K, (cuuint32_t)box_rows}, steps[] = {1, 1};
    CUtensorMap map;
    if (!find_encode() ||
        find_encode()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)data, sizes, strides, box, steps,
                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
        return NULL;
    return &maps.emplace(key, map).first->second;
}

template <int ROWS, int TILES, int EPILOGUE>
static bool launch(struct cuda_device *d, const small_args &a, const void *x, const struct linear *w)
{
    using T = small_traits<ROWS, TILES>;
    const CUtensorMap *w_map = tensor_map(w->weight, w->n, w->k, ROWS), *x_map = tensor_map(x, a.m, w->k, TILES * 8);
    if (!w_map || !x_map) return false;
    auto kernel = small_kernel<ROWS, TILES, EPILOGUE>;
    static bool allowed;
    if (!allowed)
        CUDA_CHECK(d, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, T::SHARED_BYTES));
    allowed = true;
    return launch_dependent(d, kernel, dim3((unsigned)((w->n + ROWS - 1) / ROWS)), dim3(T::THREADS), T::SHARED_BYTES, a, *w_map,
                            *x_map);
}

template <int ROWS, int EPILOGUE>
static bool launch_tiles(struct cuda_device *d, const small_args &a, const void *x, const struct linear *w)
{
    if (a.m <= 8) return launch<ROWS, 1, EPILOGUE>(d, a, x, w);
    if (a.m <= 16) return launch<ROWS, 2, EPILOGUE>(d, a, x, w);
    if (a.m <= 32) return launch<ROWS, 4, EPILOGUE>(d, a, x, w);
    return launch<ROWS, 8, EPILOGUE>(d, a, x, w);
}

template <int EPILOGUE>
static bool launch_rows(struct cuda_device *d, int32_t rows_per_cta, const small_args &a, const void *x,
                        const struct linear *w)
{
    switch (rows_per_cta) {
    case 16: return launch_tiles<16, EPILOGUE>(d, a, x, w);
    case 32: return launch_tiles<32, EPILOGUE>(d, a, x, w);
    default: return launch_tiles<64, EPILOGUE>(d, a, x, w);
    }
}

bool cuda_linear_small_fits(const struct cuda_device *d, const struct linear *w, int32_t rows)
{
    return d->is_hopper && rows <= LINEAR_SMALL_ROWS_MAX && w->k % 8 == 0 && w->n % 16 == 0;
}

bool cuda_linear_small(struct cuda_device *d, int32_t rows_per_cta, int32_t rows, void *out, const void *x,
                       const struct linear *w, bool silu_mul)
{
    small_args a = {out, w->bias, rows, w->n, w->k, (w->k + STAGE_K - 1) / STAGE_K};
    if (silu_mul) return launch_rows<EPILOGUE_SILU_MUL>(d, rows_per_cta, a, x, w);
    if (w->wide_output) return launch_rows<EPILOGUE_F32>(d, rows_per_cta, a, x, w);
    return launch_rows<EPILOGUE_BF16>(d, rows_per_cta, a, x, w);
}
