/* rope.cu - between the QKV product and attention, in one pass: q/k norm, rotation, K and V into the pool.
 *
 * Rows of qkv are [Hq q | Hk k | Hk v] heads of D. q and k are rotated in place; attention reads k and v from
 * the pool.
 *
 * A decode step waits here for a chain of latencies: cosines and norm weights are in registers before the
 * dependency, and after it a head is read once. With many tokens what counts is how many bytes are under way at
 * a time: a head of a usual size is held by a few lanes, which read and write 16 bytes each. */
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/kv_codes.cuh"
#include "kernels/cuda/kv_pool.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/load_kept.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/norm_row.cuh"

namespace
{

/* KEPT_TOKENS: of a step at most, if the L2 is to keep their angles from layer to layer. The table may be larger than the L2. */
enum { ROPE_THREADS = 128, HEAD_DIM_MAX = 256, KEPT_TOKENS = 16 };

struct rope_kernel_args {
    __nv_bfloat16 *qkv, *pool;
    const float *cos_sin, *q_norm, *k_norm, *v_norm;
    const int32_t *positions, *slot_mapping;
    size_t block_elements;
    int32_t num_heads, num_kv_heads, head_dim, rotary_dim;
    float eps;
};

/* Where a head's norm stands: nowhere, ahead of the rotation, behind it. */
enum head_norm { NORM_NONE, NORM_AHEAD, NORM_FOLLOWS };

/* How a head lies in LANES lanes: chunks lane, lane + LANES, ... of WIDTH pairs each. ROTARY, HEAD: rotary_dim and head_dim where the
 * kernel is compiled for them, else 0. */
template <int WIDTH_, int LANES_, int ROTARY, int HEAD> struct head_layout {
    static constexpr int WIDTH = WIDTH_, LANES = LANES_;
    static constexpr int CHUNKS = (ROTARY > 0 ? ROTARY : (int)HEAD_DIM_MAX) / 2 / WIDTH / LANES;
    static constexpr bool HAS_TAIL = HEAD == 0; /* there may be elements behind rotary_dim */

    static __device__ __forceinline__ int rotary_dim(const rope_kernel_args &a)
    {
        return ROTARY > 0 ? ROTARY : a.rotary_dim;
    }
    static __device__ __forceinline__ int head_dim(const rope_kernel_args &a)
    {
        return HEAD > 0 ? HEAD : a.head_dim;
    }
    static __device__ __forceinline__ bool has(const rope_kernel_args &a, int chunk)
    {
        return ROTARY > 0 || chunk * WIDTH < a.rotary_dim / 2;
    }
};

template <int WIDTH> struct run {
    float at[WIDTH];
};

__device__ __forceinline__ void read_run(struct run<1> *r, const __nv_bfloat16 *from)
{
    r->at[0] = __bfloat162float(*from);
}

__device__ __forceinline__ void read_run(struct run<2> *r, const __nv_bfloat16 *from)
{
    float2 v = __bfloat1622float2(*(const __nv_bfloat162 *)from);
    r->at[0] = v.x;
    r->at[1] = v.y;
}

__device__ __forceinline__ void read_run(struct run<8> *r, const __nv_bfloat16 *from)
{
    uint4 v = *(const uint4 *)from;
    const uint32_t words[] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 pair = unpack_bf16(words[i]);
        r->at[2 * i] = pair.x;
        r->at[2 * i + 1] = pair.y;
    }
}

/* KEPT: it is read again soon, while weights of products pass by in the L2. */
template <bool KEPT, int WIDTH>
__device__ __forceinline__ void read_floats(struct run<WIDTH> *r, const float *from)
{
    if constexpr (WIDTH % 4 == 0) {
#pragma unroll
        for (int i = 0; i < WIDTH; i += 4) {
            const float4 *at = (const float4 *)(from + i);
            *(float4 *)&r->at[i] = KEPT ? load_kept(at) : *at;
        }
    } else {
#pragma unroll
        for (int i = 0; i < WIDTH; i++) r->at[i] = from[i];
    }
}

template <int WIDTH> __device__ __forceinline__ void read_run(struct run<WIDTH> *r, const float *from)
{
    read_floats<true>(r, from);
}

__device__ __forceinline__ void write_run(__nv_bfloat16 *to, const struct run<1> &r)
{
    *to = __float2bfloat16_rn(r.at[0]);
}

__device__ __forceinline__ void write_run(__nv_bfloat16 *to, const struct run<2> &r)
{
    *(uint32_t *)to = pack_bf16(r.at[0], r.at[1]);
}

__device__ __forceinline__ void write_run(__nv_bfloat16 *to, const struct run<8> &r)
{
    *(uint4 *)to = make_uint4(pack_bf16(r.at[0], r.at[1]), pack_bf16(r.at[2], r.at[3]),
                              pack_bf16(r.at[4], r.at[5]), pack_bf16(r.at[6], r.at[7]));
}

/* Where codes of a token go: its block's K or V of one head. */
struct code_place {
    uint8_t *codes;
    int token; /* of the block */
    bool is_v;
};

/* Of a row's elements from first on. */
template <int WIDTH>
__device__ __forceinline__ void write_run_codes(const struct code_place &place, int32_t head_dim, int first,
                                                const struct run<WIDTH> &r, float scale)
{
    uint8_t *to = place.codes + (place.is_v ? kv_value_offset(head_dim, place.token, first)
                                            : kv_key_offset(place.token, first));
    uint32_t codes[(WIDTH + 3) / 4] = {};
#pragma unroll
    for (int i = 0; i < WIDTH; i++) codes[i / 4] |= kv_code_of(r.at[i], scale) << i % 4 * 8;
    if (WIDTH == 1) *to = (uint8_t)codes[0];
    if (WIDTH == 2) *(uint16_t *)to = (uint16_t)codes[0];
    if (WIDTH == 8) *(uint2 *)to = make_uint2(codes[0], codes[(WIDTH - 1) / 4]);
}

/* A magnitude's bits are ordered as magnitudes are, and those of what is no number above all others. */
__device__ __forceinline__ uint32_t magnitude_bits(float x)
{
    return __float_as_uint(x) & 0x7fffffffu;
}

/* WIDTH pairs that are rotated, as they lie in memory: two runs of elements. With ROPE_HALVES the first run
 * has the first elements of the pairs and the other the second; with ROPE_PAIRS the runs are neighbours and a
 * pair's elements too. */
template <int STYLE, int WIDTH> struct pairs {
    struct run<WIDTH> low, high;

    static __device__ __forceinline__ int low_at(int chunk)
    {
        return STYLE == ROPE_HALVES ? WIDTH * chunk : 2 * WIDTH * chunk;
    }
    static __device__ __forceinline__ int high_at(int chunk, int rotary_dim)
    {
        return STYLE == ROPE_HALVES ? WIDTH * chunk + rotary_dim / 2 : 2 * WIDTH * chunk + WIDTH;
    }
    __device__ __forceinline__ float *x(int i)
    {
        return STYLE == ROPE_HALVES ? &low.at[i] : 2 * i < WIDTH ? &low.at[2 * i] : &high.at[2 * i - WIDTH];
    }
    __device__ __forceinline__ float *y(int i)
    {
        return STYLE == ROPE_HALVES ? &high.at[i]
               : 2 * i + 1 < WIDTH  ? &low.at[2 * i + 1]
                                    : &high.at[2 * i + 1 - WIDTH];
    }
};

/* Cosine and sine of each pair that a lane holds. */
template <typename L> struct lane_angles {
    struct run<2 * L::WIDTH> chunk[L::CHUNKS];

    template <bool KEPT>
    __device__ __forceinline__ void read(const float *row, const rope_kernel_args &a, int lane)
    {
#pragma unroll
        for (int j = 0; j < L::CHUNKS; j++) {
            int at = lane + L::LANES * j;
            chunk[j] = {};
            if (L::has(a, at)) read_floats<KEPT>(&chunk[j], row + 2 * L::WIDTH * at);
        }
    }
};

/* What a lane holds of a head. */
template <int STYLE, typename L> struct lane_part {
    using pair_runs = pairs<STYLE, L::WIDTH>;
    pair_runs chunk[L::CHUNKS];

    template <typename T>
    __device__ __forceinline__ void read(const T *head, const rope_kernel_args &a, int lane)
    {
#pragma unroll
        for (int j = 0; j < L::CHUNKS; j++) {
            int at = lane + L::LANES * j;
            chunk[j] = {};
            if (!L::has(a, at)) continue;
            read_run(&chunk[j].low, head + pair_runs::low_at(at));
            read_run(&chunk[j].high, head + pair_runs::high_at(at, L::rotary_dim(a)));
        }
    }

    __device__ __forceinline__ void write(__nv_bfloat16 *head, const rope_kernel_args &a, int lane) const
    {
#pragma unroll
        for (int j = 0; j < L::CHUNKS; j++) {
            int at = lane + L::LANES * j;
            if (!L::has(a, at)) continue;
            write_run(head + pair_runs::low_at(at), chunk[j].low);
            write_run(head + pair_runs::high_at(at, L::rotary_dim(a)), chunk[j].high);
        }
    }

    __device__ __forceinline__ void write_codes(const struct code_place &to, const rope_kernel_args &a,
                                                int lane, float scale) const
    {
#pragma unroll
        for (int j = 0; j < L::CHUNKS; j++) {
            int at = lane + L::LANES * j, high_at = pair_runs::high_at(at, L::rotary_dim(a));
            if (!L::has(a, at)) continue;
            write_run_codes(to, L::head_dim(a), pair_runs::low_at(at), chunk[j].low, scale);
            write_run_codes(to, L::head_dim(a), high_at, chunk[j].high, scale);
        }
    }

    __device__ __forceinline__ uint32_t largest_bits(void) const
    {
        uint32_t most = 0;
#pragma unroll
        for (int j = 0; j < L::CHUNKS; j++)
#pragma unroll
            for (int i = 0; i < L::WIDTH; i++)
                most =
                    max(most, max(magnitude_bits(chunk[j].low.at[i]), magnitude_bits(chunk[j].high.at[i])));
        return most;
    }

    __device__ __forceinline__ float sum_of_squares(void) const
    {
        float sum = 0;
#pragma unroll
        for (int j = 0; j < L::CHUNKS; j++)
#pragma unroll
            for (int i = 0; i < L::WIDTH; i++) {
                float low = chunk[j].low.at[i], high = chunk[j].high.at[i];
                sum += __fmaf_rn(low, low, __fmul_rn(high, high));
            }
        return sum;
    }

    __device__ __forceinline__ void scale(float by, const lane_part &weight)
    {
#pragma unroll
        for (int j = 0; j < L::CHUNKS; j++)
#pragma unroll
            for (int i = 0; i < L::WIDTH; i++) {
                chunk[j].low.at[i] *= by * weight.chunk[j].low.at[i];
                chunk[j].high.at[i] *= by * weight.chunk[j].high.at[i];
            }
    }

    __device__ __forceinline__ void rotate(const lane_angles<L> &angles)
    {
#pragma unroll
        for (int j = 0; j < L::CHUNKS; j++)
#pragma unroll
            for (int i = 0; i < L::WIDTH; i++) {
                float *px = chunk[j].x(i), *py = chunk[j].y(i), x = *px, y = *py;
                float c = angles.chunk[j].at[2 * i], s = angles.chunk[j].at[2 * i + 1];
                *px = __fmaf_rn(x, c, -__fmul_rn(y, s));
                *py = __fmaf_rn(x, s, __fmul_rn(y, c));
            }
    }
};

/* The elements behind rotary_dim: few models have any. Each lane returns the sum of squares of its own. */
template <typename L>
__device__ __forceinline__ float tail_sum(const __nv_bfloat16 *head, const rope_kernel_args &a, int lane)
{
    float sum = 0;
    for (int i = a.rotary_dim + lane; i < a.head_dim; i += L::LANES)
        sum = __fmaf_rn((float)head[i], (float)head[i], sum);
    return sum;
}

template <typename L>
__device__ __forceinline__ void tail_write(__nv_bfloat16 *head, __nv_bfloat16 *pool_head, const float *norm,
                                           float scale, const rope_kernel_args &a, int lane)
{
    for (int i = a.rotary_dim + lane; i < a.head_dim; i += L::LANES) {
        if (norm) head[i] = __float2bfloat16_rn((float)head[i] * (scale * norm[i]));
        if (pool_head) pool_head[i] = head[i];
    }
}

/* K or V of one head of a token as codes, kv_row: of the block's heads of K, then of V. v: its elements up to rotary_dim; the others are
 * in memory, as this lane has left them there. */
template <typename L, typename PART>
__device__ __forceinline__ void write_head_codes(const rope_kernel_args &a, const PART &v,
                                                 const __nv_bfloat16 *head, uint32_t slot, int32_t kv_row,
                                                 int lane)
{
    const int head_dim = L::head_dim(a);
    bool is_v = kv_row >= a.num_kv_heads;
    int32_t kv_head = kv_row - (is_v ? a.num_kv_heads : 0);
    int row = slot % BLOCK_SIZE;
    uint8_t *codes =
        (uint8_t *)(a.pool + slot / BLOCK_SIZE * a.block_elements) + kv_head * kv_chunk_bytes(head_dim);
    struct code_place to = {codes + (is_v ? BLOCK_SIZE * head_dim : 0), row, is_v};
    float *scales = (float *)(codes + (size_t)2 * BLOCK_SIZE * head_dim);
    uint32_t group = (uint32_t)((1ull << L::LANES) - 1) << threadIdx.x % 32 / L::LANES * L::LANES;
    uint32_t most = v.largest_bits();
    if (L::HAS_TAIL)
        for (int i = a.rotary_dim + lane; i < a.head_dim; i += L::LANES)
            most = max(most, magnitude_bits((float)head[i]));
    for (int mask = L::LANES / 2; mask > 0; mask /= 2) most = max(most, __shfl_xor_sync(group, most, mask));
    float scale = kv_scale_of(__uint_as_float(most));
    if (lane == 0) scales[(is_v ? BLOCK_SIZE : 0) + row] = scale;
    v.write_codes(to, a, lane, scale);
    if (L::HAS_TAIL)
        for (int i = a.rotary_dim + lane; i < a.head_dim; i += L::LANES)
            write_run_codes(to, head_dim, i, run<1>{{(float)head[i]}}, scale);
}

/* What a head's elements are multiplied by, beside the norm's weights. All lanes of the warp compute one, of V too, for the shuffles. */
template <typename L, typename PART>
__device__ __forceinline__ float norm_scale(const rope_kernel_args &a, const PART &v,
                                            const __nv_bfloat16 *head, int lane)
{
    float sum = v.sum_of_squares();
    if (L::HAS_TAIL) sum += tail_sum<L>(head, a, lane);
    for (int mask = L::LANES / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    return rsqrtf(sum / L::head_dim(a) + a.eps);
}

/* A head of one token, of Q, K or V. CODES: the pool has them. */
template <int STYLE, typename L, head_norm NORM, bool CODES>
__global__ void __launch_bounds__(ROPE_THREADS) rope_kv_write_kernel(rope_kernel_args a)
{
    dependents_launch();
    int lane = threadIdx.x % L::LANES, head = (blockIdx.y * ROPE_THREADS + threadIdx.x) / L::LANES;
    int32_t num_rotated = a.num_heads + a.num_kv_heads, num_rows = num_rotated + a.num_kv_heads;
    const bool is_there = head < num_rows; /* a warp's lanes stay together up to their sums */
    head = min(head, num_rows - 1);
    /* the step's arrays and the model's were there before the step's first kernel */
    int32_t position = load_kept(a.positions + blockIdx.x);
    uint32_t slot = load_kept(a.slot_mapping + blockIdx.x);
    bool is_v = head >= num_rotated;
    int32_t kv_row = head - a.num_heads;
    __nv_bfloat16 *at = a.qkv + ((size_t)blockIdx.x * num_rows + head) * L::head_dim(a), *pool_at = NULL;
    if (!CODES && kv_row >= 0)
        pool_at = a.pool + slot / BLOCK_SIZE * a.block_elements +
                  (size_t)(kv_row * BLOCK_SIZE + slot % BLOCK_SIZE) * L::head_dim(a);
    const float *norm = NORM == NORM_NONE ? NULL : is_v ? a.v_norm : head < a.num_heads ? a.q_norm : a.k_norm;
    const float *row = a.cos_sin + (size_t)position * L::rotary_dim(a);
    lane_angles<L> angles;
    lane_part<STYLE, L> weight, v;
    gridDim.x <= KEPT_TOKENS ? angles.template read<true>(row, a, lane)
                             : angles.template read<false>(row, a, lane);
    if (norm) weight.read(norm, a, lane);
    dependency_wait();
    v.read(at, a, lane);
    float scale = 1;
    if (NORM == NORM_FOLLOWS && !is_v) v.rotate(angles);
    if (NORM != NORM_NONE) scale = norm_scale<L>(a, v, at, lane);
    if (!is_there) return;
    if (norm) v.scale(scale, weight);
    if (NORM != NORM_FOLLOWS && !is_v) v.rotate(angles);
    if (!is_v) v.write(at, a, lane);
    if (pool_at) v.write(pool_at, a, lane);
    if (L::HAS_TAIL) tail_write<L>(at, pool_at, norm, scale, a, lane);
    if (CODES && kv_row >= 0) write_head_codes<L>(a, v, at, slot, kv_row, lane);
}

/* RMSNorm over all heads of Q (blockIdx.y 0) or of K (1) of a token: sums by thread, by lane, by warp, in an order that is a
 * function of the number of heads and their size. */
__global__ void __launch_bounds__(ROPE_THREADS) norm_all_heads_kernel(rope_kernel_args a)
{
    __shared__ float partial[ROPE_THREADS / 32];
    dependents_launch();
    bool is_k = blockIdx.y == 1;
    int32_t num_heads = is_k ? a.num_kv_heads : a.num_heads, n = num_heads * a.head_dim;
    size_t row = (size_t)(a.num_heads + 2 * a.num_kv_heads) * a.head_dim;
    __nv_bfloat16 *x = a.qkv + blockIdx.x * row + (is_k ? (size_t)a.num_heads * a.head_dim : 0);
    const float *weight = is_k ? a.k_norm : a.q_norm;
    dependency_wait();
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += ROPE_THREADS) sum += (float)x[i] * (float)x[i];
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int w = 0; w < ROPE_THREADS / 32; w++) sum += partial[w];
    float scale = rsqrtf(sum / n + a.eps);
    for (int i = threadIdx.x; i < n; i += ROPE_THREADS)
        x[i] = __float2bfloat16_rn((float)x[i] * scale * weight[i]);
}

/* Of the block, in that order. room: [ROPE_THREADS / 32]. */
__device__ __forceinline__ float sum_of_block(float sum, float *room)
{
    sum = sum_of_warp(sum);
    __syncthreads(); /* what was there before has been read */
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int w = 0; w < ROPE_THREADS / 32; w++) sum += room[w];
    return sum;
}

/* LayerNorm over all heads of Q (blockIdx.y 0) or of K (1) of a token. */
__global__ void __launch_bounds__(ROPE_THREADS)
    layer_norm_all_heads_kernel(rope_kernel_args a, const float *q_bias, const float *k_bias)
{
    __shared__ float room[ROPE_THREADS / 32];
    dependents_launch();
    bool is_k = blockIdx.y == 1;
    int32_t n = (is_k ? a.num_kv_heads : a.num_heads) * a.head_dim;
    size_t row = (size_t)(a.num_heads + 2 * a.num_kv_heads) * a.head_dim;
    __nv_bfloat16 *x = a.qkv + blockIdx.x * row + (is_k ? (size_t)a.num_heads * a.head_dim : 0);
    const float *weight = is_k ? a.k_norm : a.q_norm, *bias = is_k ? k_bias : q_bias;
    dependency_wait();
    float sum = 0, squares = 0;
    for (int i = threadIdx.x; i < n; i += ROPE_THREADS) sum += (float)x[i];
    float mean = sum_of_block(sum, room) / n;
    for (int i = threadIdx.x; i < n; i += ROPE_THREADS)
        squares = __fmaf_rn((float)x[i] - mean, (float)x[i] - mean, squares);
    float scale = rsqrtf(sum_of_block(squares, room) / n + a.eps);
    for (int i = threadIdx.x; i < n; i += ROPE_THREADS)
        x[i] = __float2bfloat16_rn(((float)x[i] - mean) * scale * weight[i] + bias[i]);
}

/* A token's q, k and v. */
__global__ void __launch_bounds__(ROPE_THREADS) clip_kernel(rope_kernel_args a, float bound)
{
    dependents_launch();
    int32_t n = (a.num_heads + 2 * a.num_kv_heads) * a.head_dim, i = blockIdx.y * ROPE_THREADS + threadIdx.x;
    __nv_bfloat16 *x = a.qkv + (size_t)blockIdx.x * n + i;
    dependency_wait();
    if (i >= n) return;
    float value = (float)*x;
    *x = __float2bfloat16_rn(value > bound ? bound : value < -bound ? -bound : value);
}

/* LayerNorm of a head of Q or of K of a token by a warp, with weights of the head's own: sums by lane, then over the lanes. */
__global__ void __launch_bounds__(ROPE_THREADS) layer_norm_heads_kernel(rope_kernel_args a)
{
    dependents_launch();
    int lane = threadIdx.x % 32, head = (blockIdx.y * ROPE_THREADS + threadIdx.x) / 32, n = a.head_dim;
    if (head >= a.num_heads + a.num_kv_heads) return; /* the whole warp */
    bool is_k = head >= a.num_heads;
    const float *weight = (is_k ? a.k_norm : a.q_norm) + (size_t)(head - (is_k ? a.num_heads : 0)) * n;
    __nv_bfloat16 *x = a.qkv + ((size_t)blockIdx.x * (a.num_heads + 2 * a.num_kv_heads) + head) * n;
    dependency_wait();
    float sum = 0, squares = 0;
    for (int i = lane; i < n; i += 32) sum += (float)x[i];
    float mean = sum_of_warp(sum) / n;
    for (int i = lane; i < n; i += 32) squares = __fmaf_rn((float)x[i] - mean, (float)x[i] - mean, squares);
    float scale = rsqrtf(sum_of_warp(squares) / n + a.eps);
    for (int i = lane; i < n; i += 32) x[i] = __float2bfloat16_rn(((float)x[i] - mean) * scale * weight[i]);
}

template <int STYLE, typename L, head_norm NORM>
void launch(struct cuda_device *d, int32_t num_tokens, bool has_codes, const rope_kernel_args &a)
{
    int32_t num_threads = (a.num_heads + 2 * a.num_kv_heads) * L::LANES;
    dim3 grid((unsigned)num_tokens, (unsigned)((num_threads + ROPE_THREADS - 1) / ROPE_THREADS));
    auto kernel =
        has_codes ? rope_kv_write_kernel<STYLE, L, NORM, true> : rope_kv_write_kernel<STYLE, L, NORM, false>;
    launch_dependent(d, kernel, grid, dim3(ROPE_THREADS), 0, a);
}

template <int STYLE, typename L>
void launch(struct cuda_device *d, int32_t num_tokens, bool has_codes, head_norm norm,
            const rope_kernel_args &a)
{
    auto launch_norm = norm == NORM_NONE    ? launch<STYLE, L, NORM_NONE>
                       : norm == NORM_AHEAD ? launch<STYLE, L, NORM_AHEAD>
                                            : launch<STYLE, L, NORM_FOLLOWS>;
    launch_norm(d, num_tokens, has_codes, a);
}

/* The layout is a function of the model, so a row has the same bits whatever the number of tokens. */
template <int STYLE>
void launch(struct cuda_device *d, int32_t num_tokens, bool has_codes, head_norm norm,
            const rope_kernel_args &a)
{
    bool is_whole = a.rotary_dim == a.head_dim;
    auto launch_layout =
        a.rotary_dim == 64
            ? is_whole ? launch<STYLE, head_layout<8, 4, 64, 64>> : launch<STYLE, head_layout<8, 4, 64, 0>>
        : a.rotary_dim == 128
            ? is_whole ? launch<STYLE, head_layout<8, 8, 128, 128>> : launch<STYLE, head_layout<8, 8, 128, 0>>
        : a.rotary_dim == 512   ? launch<STYLE, head_layout<8, 32, 512, 0>>
        : a.rotary_dim % 4 == 0 ? launch<STYLE, head_layout<2, 32, 0, 0>>
                                : launch<STYLE, head_layout<1, 32, 0, 0>>;
    launch_layout(d, num_tokens, has_codes, norm, a);
}

} // namespace

void cuda_rope_kv_write(struct device *d, const struct batch *b, void *qkv, struct kv_pool *pool,
                        int32_t layer, const struct rope_args *args)
{
    if (cuda_of(d)->latent_rotary_dim > 0) return cuda_latent_rotate(cuda_of(d), b, qkv, pool, layer, args);
    rope_kernel_args a = {};
    a.qkv = (__nv_bfloat16 *)qkv;
    a.pool = kv_pool_layer(pool, layer, args->num_kv_heads, args->head_dim);
    a.cos_sin = args->cos_sin;
    a.q_norm = args->q_norm;
    a.k_norm = args->k_norm;
    a.v_norm = args->v_norm;
    a.positions = b->positions;
    a.slot_mapping = b->kv_groups[args->kv_group].slot_mapping;
    a.block_elements = pool->block_elements;
    a.num_heads = args->num_heads;
    a.num_kv_heads = args->q_alone ? 0 : args->num_kv_heads;
    a.head_dim = args->head_dim;
    a.rotary_dim = args->rotary_dim;
    a.eps = args->norm_eps;
    const bool is_apart = args->norm_all_heads || args->norm_by_head;
    head_norm norm = !args->q_norm || is_apart ? NORM_NONE : args->norm_follows ? NORM_FOLLOWS : NORM_AHEAD;
    if (args->clip > 0)
        launch_dependent(
            cuda_of(d), clip_kernel,
            dim3((unsigned)b->num_tokens,
                 (unsigned)(((a.num_heads + 2 * a.num_kv_heads) * a.head_dim + ROPE_THREADS - 1) /
                            ROPE_THREADS)),
            dim3(ROPE_THREADS), 0, a, args->clip);
    const dim3 rows((unsigned)b->num_tokens, 2);
    if (args->norm_all_heads && args->q_norm_bias)
        launch_dependent(cuda_of(d), layer_norm_all_heads_kernel, rows, dim3(ROPE_THREADS), 0, a,
                         args->q_norm_bias, args->k_norm_bias);
    else if (args->norm_all_heads)
        launch_dependent(cuda_of(d), norm_all_heads_kernel, rows, dim3(ROPE_THREADS), 0, a);
    if (args->norm_by_head)
        launch_dependent(cuda_of(d), layer_norm_heads_kernel,
                         dim3((unsigned)b->num_tokens, (unsigned)((a.num_heads + a.num_kv_heads + 3) / 4)),
                         dim3(ROPE_THREADS), 0, a);
    auto launch_style = args->style == ROPE_HALVES ? launch<ROPE_HALVES> : launch<ROPE_PAIRS>;
    launch_style(cuda_of(d), b->num_tokens, kv_pool_has_codes(pool), norm, a);
}
