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
#include "kernels/cuda/mma.cuh"

namespace
{

enum { ROPE_THREADS = 128, HEAD_DIM_MAX = 256 };

struct rope_kernel_args {
    __nv_bfloat16 *qkv, *pool;
    const float *cos_sin, *q_norm, *k_norm;
    const int32_t *positions, *slot_mapping;
    size_t layer_elements, block_elements;
    int32_t layer, num_heads, num_kv_heads, head_dim, rotary_dim;
    float eps;
    bool has_codes; /* the pool */
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

template <int WIDTH> __device__ __forceinline__ void read_run(struct run<WIDTH> *r, const float *from)
{
#pragma unroll
    for (int i = 0; i < WIDTH; i++) r->at[i] = from[i];
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

/* Codes of a row's elements from first on. rows: K or V of the block. */
template <int WIDTH>
__device__ __forceinline__ void write_run_codes(uint8_t *rows, int row, int32_t head_dim, int first,
                                                const struct run<WIDTH> &r, float scale)
{
    uint8_t *to = rows + kv_code_offset(head_dim, row, first / 16) + first % 16;
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

/* What one of LANES lanes holds of a head: chunks lane, lane + LANES, ... of WIDTH pairs. ROTARY_MAX: the largest
 * rotary_dim. */
template <int STYLE, int WIDTH, int LANES, int ROTARY_MAX> struct lane_part {
    static constexpr int CHUNKS = ROTARY_MAX / 2 / WIDTH / LANES;
    struct pairs<STYLE, WIDTH> chunk[CHUNKS];

    template <typename T> __device__ __forceinline__ void read(const T *head, int rotary_dim, int lane)
    {
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            int at = lane + LANES * j;
            chunk[j] = {};
            if (at * WIDTH >= rotary_dim / 2) continue;
            read_run(&chunk[j].low, head + pairs<STYLE, WIDTH>::low_at(at));
            read_run(&chunk[j].high, head + pairs<STYLE, WIDTH>::high_at(at, rotary_dim));
        }
    }

    __device__ __forceinline__ void write(__nv_bfloat16 *head, int rotary_dim, int lane) const
    {
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            int at = lane + LANES * j;
            if (at * WIDTH >= rotary_dim / 2) continue;
            write_run(head + pairs<STYLE, WIDTH>::low_at(at), chunk[j].low);
            write_run(head + pairs<STYLE, WIDTH>::high_at(at, rotary_dim), chunk[j].high);
        }
    }

    __device__ __forceinline__ void write_codes(uint8_t *rows, int row, const rope_kernel_args &a, int lane,
                                                float scale) const
    {
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            int at = lane + LANES * j;
            if (at * WIDTH >= a.rotary_dim / 2) continue;
            write_run_codes(rows, row, a.head_dim, pairs<STYLE, WIDTH>::low_at(at), chunk[j].low, scale);
            write_run_codes(rows, row, a.head_dim, pairs<STYLE, WIDTH>::high_at(at, a.rotary_dim),
                            chunk[j].high, scale);
        }
    }

    __device__ __forceinline__ uint32_t largest_bits(void) const
    {
        uint32_t most = 0;
#pragma unroll
        for (int j = 0; j < CHUNKS; j++)
#pragma unroll
            for (int i = 0; i < WIDTH; i++)
                most =
                    max(most, max(magnitude_bits(chunk[j].low.at[i]), magnitude_bits(chunk[j].high.at[i])));
        return most;
    }

    __device__ __forceinline__ float sum_of_squares(void) const
    {
        float sum = 0;
#pragma unroll
        for (int j = 0; j < CHUNKS; j++)
#pragma unroll
            for (int i = 0; i < WIDTH; i++)
                sum += chunk[j].low.at[i] * chunk[j].low.at[i] + chunk[j].high.at[i] * chunk[j].high.at[i];
        return sum;
    }

    __device__ __forceinline__ void scale(float by, const lane_part &weight)
    {
#pragma unroll
        for (int j = 0; j < CHUNKS; j++)
#pragma unroll
            for (int i = 0; i < WIDTH; i++) {
                chunk[j].low.at[i] *= by * weight.chunk[j].low.at[i];
                chunk[j].high.at[i] *= by * weight.chunk[j].high.at[i];
            }
    }

    __device__ __forceinline__ void rotate(const float2 (&cos_sin)[CHUNKS][WIDTH])
    {
#pragma unroll
        for (int j = 0; j < CHUNKS; j++)
#pragma unroll
            for (int i = 0; i < WIDTH; i++) {
                float *px = chunk[j].x(i), *py = chunk[j].y(i), x = *px, y = *py;
                *px = x * cos_sin[j][i].x - y * cos_sin[j][i].y;
                *py = y * cos_sin[j][i].x + x * cos_sin[j][i].y;
            }
    }
};

/* The elements behind rotary_dim: few models have any. Each lane returns the sum of squares of its own. */
template <int LANES>
__device__ __forceinline__ float tail_sum(const __nv_bfloat16 *head, const rope_kernel_args &a, int lane)
{
    float sum = 0;
    for (int i = a.rotary_dim + lane; i < a.head_dim; i += LANES) sum += (float)head[i] * (float)head[i];
    return sum;
}

template <int LANES>
__device__ __forceinline__ void tail_write(__nv_bfloat16 *head, __nv_bfloat16 *pool_head, const float *norm,
                                           float scale, const rope_kernel_args &a, int lane)
{
    for (int i = a.rotary_dim + lane; i < a.head_dim; i += LANES) {
        if (norm) head[i] = __float2bfloat16_rn((float)head[i] * (scale * norm[i]));
        if (pool_head) pool_head[i] = head[i];
    }
}

/* K or V of one head of a token as codes. v: its elements up to rotary_dim; the others are in memory, as this lane has left
 * them there. */
template <int LANES, typename PART>
__device__ __forceinline__ void write_head_codes(const rope_kernel_args &a, const PART &v,
                                                 const __nv_bfloat16 *head, int32_t slot, bool is_v,
                                                 int32_t kv_head, int lane)
{
    size_t chunk = kv_chunk_bytes(a.head_dim), block = (size_t)(slot / BLOCK_SIZE);
    int row = slot % BLOCK_SIZE;
    uint8_t *codes =
        (uint8_t *)(a.pool + a.layer * a.layer_elements + block * a.block_elements) + kv_head * chunk;
    uint8_t *rows = codes + (is_v ? BLOCK_SIZE * a.head_dim : 0);
    float *scales = (float *)(codes + (size_t)2 * BLOCK_SIZE * a.head_dim);
    uint32_t group = (uint32_t)((1ull << LANES) - 1) << threadIdx.x % 32 / LANES * LANES;
    uint32_t most = v.largest_bits();
    for (int i = a.rotary_dim + lane; i < a.head_dim; i += LANES)
        most = max(most, magnitude_bits((float)head[i]));
    for (int mask = LANES / 2; mask > 0; mask /= 2) most = max(most, __shfl_xor_sync(group, most, mask));
    float scale = kv_scale_of(__uint_as_float(most));
    if (lane == 0) scales[(is_v ? BLOCK_SIZE : 0) + row] = scale;
    v.write_codes(rows, row, a, lane, scale);
    for (int i = a.rotary_dim + lane; i < a.head_dim; i += LANES)
        write_run_codes(rows, row, a.head_dim, i, run<1>{{(float)head[i]}}, scale);
}

/* What a head's elements are multiplied by, beside the norm's weights. */
template <int LANES, typename PART>
__device__ __forceinline__ float norm_scale(const rope_kernel_args &a, const PART &v,
                                            const __nv_bfloat16 *head, int lane)
{
    uint32_t group = (uint32_t)((1ull << LANES) - 1) << threadIdx.x % 32 / LANES * LANES;
    float sum = v.sum_of_squares() + tail_sum<LANES>(head, a, lane);
    for (int mask = LANES / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(group, sum, mask);
    return rsqrtf(sum / a.head_dim + a.eps);
}

/* A head of one token, of Q, K or V, for LANES lanes. FOLLOWS: the norm, the rotation. */
template <int STYLE, int WIDTH, int LANES, int ROTARY_MAX, bool CODES, bool FOLLOWS>
__global__ void __launch_bounds__(ROPE_THREADS) rope_kv_write_kernel(rope_kernel_args a)
{
    using part = lane_part<STYLE, WIDTH, LANES, ROTARY_MAX>;
    dependents_launch();
    int lane = threadIdx.x % LANES, head = (blockIdx.y * ROPE_THREADS + threadIdx.x) / LANES;
    int32_t num_rotated = a.num_heads + a.num_kv_heads, num_rows = num_rotated + a.num_kv_heads;
    if (head >= num_rows) return;
    bool is_v = head >= num_rotated;
    __nv_bfloat16 *at = a.qkv + ((size_t)blockIdx.x * num_rows + head) * a.head_dim, *pool_at = NULL;
    /* the step's arrays and the model's were there before the step's first kernel */
    int32_t position = a.positions[blockIdx.x], slot = a.slot_mapping[blockIdx.x];
    if (!CODES && head >= a.num_heads)
        pool_at = a.pool +
                  kv_offset(a.layer_elements, a.block_elements, a.layer, slot / BLOCK_SIZE, is_v,
                            head - (is_v ? num_rotated : a.num_heads), a.num_kv_heads, a.head_dim) +
                  (size_t)(slot % BLOCK_SIZE) * a.head_dim;
    const float *norm = is_v ? NULL : head < a.num_heads ? a.q_norm : a.k_norm;
    const float2 *row = (const float2 *)a.cos_sin + (size_t)position * (a.rotary_dim / 2);
    float2 cos_sin[part::CHUNKS][WIDTH];
    part weight, v;
#pragma unroll
    for (int j = 0; j < part::CHUNKS; j++)
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
            int pair = (lane + LANES * j) * WIDTH + i;
            cos_sin[j][i] = pair < a.rotary_dim / 2 ? row[pair] : float2{0, 0};
        }
    if (norm) weight.read(norm, a.rotary_dim, lane);
    dependency_wait();
    v.read(at, a.rotary_dim, lane);
    float scale = 1;
    if (FOLLOWS && !is_v) v.rotate(cos_sin);
    if (norm) {
        scale = norm_scale<LANES>(a, v, at, lane);
        v.scale(scale, weight);
    }
    if (!is_v) {
        if (!FOLLOWS) v.rotate(cos_sin);
        v.write(at, a.rotary_dim, lane);
    }
    if (pool_at) v.write(pool_at, a.rotary_dim, lane);
    tail_write<LANES>(at, pool_at, norm, scale, a, lane);
    if (CODES && head >= a.num_heads)
        write_head_codes<LANES>(a, v, at, slot, is_v, head - (is_v ? num_rotated : a.num_heads), lane);
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

template <int STYLE, bool FOLLOWS, int WIDTH, int LANES, int ROTARY_MAX>
void launch(struct cuda_device *d, int32_t num_tokens, const rope_kernel_args &a)
{
    int32_t num_threads = (a.num_heads + 2 * a.num_kv_heads) * LANES;
    dim3 grid((unsigned)num_tokens, (unsigned)((num_threads + ROPE_THREADS - 1) / ROPE_THREADS));
    auto kernel = a.has_codes ? rope_kv_write_kernel<STYLE, WIDTH, LANES, ROTARY_MAX, true, FOLLOWS>
                              : rope_kv_write_kernel<STYLE, WIDTH, LANES, ROTARY_MAX, false, FOLLOWS>;
    launch_dependent(d, kernel, grid, dim3(ROPE_THREADS), 0, a);
}

/* The layout is a function of the model, so a row has the same bits whatever the number of tokens. */
template <int STYLE, bool FOLLOWS>
void launch_style(struct cuda_device *d, int32_t num_tokens, const rope_kernel_args &a)
{
    if (a.rotary_dim == 64)
        launch<STYLE, FOLLOWS, 8, 4, 64>(d, num_tokens, a);
    else if (a.rotary_dim == 128)
        launch<STYLE, FOLLOWS, 8, 8, 128>(d, num_tokens, a);
    else if (a.rotary_dim % 4 == 0)
        launch<STYLE, FOLLOWS, 2, 32, HEAD_DIM_MAX>(d, num_tokens, a);
    else
        launch<STYLE, FOLLOWS, 1, 32, HEAD_DIM_MAX>(d, num_tokens, a);
}

} // namespace

void cuda_rope_kv_write(struct device *d, const struct batch *b, void *qkv, struct kv_pool *pool,
                        int32_t layer, const struct rope_args *args)
{
    if (cuda_of(d)->latent_rotary_dim > 0) return cuda_latent_rotate(cuda_of(d), b, qkv, pool, layer, args);
    rope_kernel_args a = {};
    a.qkv = (__nv_bfloat16 *)qkv;
    a.pool = pool->data;
    a.cos_sin = args->cos_sin;
    a.q_norm = args->q_norm;
    a.k_norm = args->k_norm;
    a.positions = b->positions;
    a.slot_mapping = b->kv_groups[args->kv_group].slot_mapping;
    a.layer_elements = pool->layer_elements;
    a.block_elements = pool->block_elements;
    a.layer = layer;
    a.num_heads = args->num_heads;
    a.num_kv_heads = args->num_kv_heads;
    a.head_dim = args->head_dim;
    a.rotary_dim = args->rotary_dim;
    a.eps = args->norm_eps;
    a.has_codes = kv_pool_has_codes(pool);
    if (args->norm_all_heads) {
        launch_dependent(cuda_of(d), norm_all_heads_kernel, dim3((unsigned)b->num_tokens, 2),
                         dim3(ROPE_THREADS), 0, a);
        a.q_norm = a.k_norm = NULL;
    }
    auto launch = args->style == ROPE_HALVES ? args->norm_follows ? launch_style<ROPE_HALVES, true>
                                                                  : launch_style<ROPE_HALVES, false>
                  : args->norm_follows ? launch_style<ROPE_PAIRS, true>
                                             : launch_style<ROPE_PAIRS, false>;
    launch(cuda_of(d), b->num_tokens, a);
}
