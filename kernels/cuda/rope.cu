/* rope.cu - between the QKV product and attention, in one pass: q/k norm, rotation, K and V into the pool.
 *
 * Rows of qkv are [Hq q | Hk k | Hk v] heads of D. q and k are rotated in place; attention reads k and v from
 * the pool.
 *
 * A decode step waits here for a chain of latencies: cosines and norm weights are in registers before the
 * dependency, and after it a head is read once. */
#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/mma.cuh"

enum { ROPE_WARPS = 4, HEAD_DIM_MAX = 256, LANE_WORDS = HEAD_DIM_MAX / 2 / 32 };

struct rope_kernel_args {
    __nv_bfloat16 *qkv, *pool;
    const float *cos_sin, *q_norm, *k_norm;
    const int32_t *positions, *slot_mapping;
    size_t layer_elements, block_elements;
    int32_t layer, num_heads, num_kv_heads, head_dim, rotary_dim;
    float eps;
};

template <int WIDTH> struct run {
    float at[WIDTH];
};

static __device__ __forceinline__ void read_run(struct run<1> *r, const __nv_bfloat16 *from)
{
    r->at[0] = __bfloat162float(*from);
}

static __device__ __forceinline__ void read_run(struct run<2> *r, const __nv_bfloat16 *from)
{
    float2 v = __bfloat1622float2(*(const __nv_bfloat162 *)from);
    r->at[0] = v.x;
    r->at[1] = v.y;
}

template <int WIDTH> static __device__ __forceinline__ void read_run(struct run<WIDTH> *r, const float *from)
{
#pragma unroll
    for (int i = 0; i < WIDTH; i++) r->at[i] = from[i];
}

static __device__ __forceinline__ void write_run(__nv_bfloat16 *to, const struct run<1> &r)
{
    *to = __float2bfloat16_rn(r.at[0]);
}

static __device__ __forceinline__ void write_run(__nv_bfloat16 *to, const struct run<2> &r)
{
    *(uint32_t *)to = pack_bf16(r.at[0], r.at[1]);
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

/* What a lane holds along a head: chunks lane, lane + 32, ... of WIDTH pairs. ROTARY_MAX: the largest
 * rotary_dim. */
template <int STYLE, int WIDTH, int ROTARY_MAX> struct lane_part {
    static constexpr int CHUNKS = ROTARY_MAX / 2 / WIDTH / 32;
    struct pairs<STYLE, WIDTH> chunk[CHUNKS];

    template <typename T> __device__ __forceinline__ void read(const T *head, int rotary_dim, int lane)
    {
#pragma unroll
        for (int j = 0; j < CHUNKS; j++) {
            int at = lane + 32 * j;
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
            int at = lane + 32 * j;
            if (at * WIDTH >= rotary_dim / 2) continue;
            write_run(head + pairs<STYLE, WIDTH>::low_at(at), chunk[j].low);
            write_run(head + pairs<STYLE, WIDTH>::high_at(at, rotary_dim), chunk[j].high);
        }
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
static __device__ __forceinline__ float tail_sum(const __nv_bfloat16 *head, const rope_kernel_args &a,
                                                 int lane)
{
    float sum = 0;
    for (int i = a.rotary_dim + lane; i < a.head_dim; i += 32) sum += (float)head[i] * (float)head[i];
    return sum;
}

static __device__ __forceinline__ void tail_write(__nv_bfloat16 *head, __nv_bfloat16 *pool_head,
                                                  const float *norm, float scale, const rope_kernel_args &a,
                                                  int lane)
{
    for (int i = a.rotary_dim + lane; i < a.head_dim; i += 32) {
        if (norm) head[i] = __float2bfloat16_rn((float)head[i] * (scale * norm[i]));
        if (pool_head) pool_head[i] = head[i];
    }
}

/* HEADS heads of V. */
template <int HEADS>
static __device__ __forceinline__ void copy_heads(const rope_kernel_args &a, __nv_bfloat16 *to,
                                                  size_t to_stride, const __nv_bfloat16 *from, int lane)
{
    uint32_t words[HEADS][LANE_WORDS];
#pragma unroll
    for (int h = 0; h < HEADS; h++)
#pragma unroll
        for (int j = 0; j < LANE_WORDS; j++)
            if (lane + 32 * j < a.head_dim / 2)
                words[h][j] = ((const uint32_t *)(from + h * a.head_dim))[lane + 32 * j];
#pragma unroll
    for (int h = 0; h < HEADS; h++)
#pragma unroll
        for (int j = 0; j < LANE_WORDS; j++)
            if (lane + 32 * j < a.head_dim / 2)
                ((uint32_t *)(to + h * to_stride))[lane + 32 * j] = words[h][j];
}

/* A warp takes HEADS neighbouring heads of one token, all of Q, of K or of V: one where latency counts, more
 * where there are tokens enough. A CTA waits for position, cosines, head, one after another, so what counts
 * then is how much of the machine's load fits under way at a time: few registers (ROTARY_MAX), several heads.
 */
template <int STYLE, int WIDTH, int ROTARY_MAX, int HEADS>
static __global__ void __launch_bounds__(ROPE_WARPS * 32) rope_kv_write_kernel(rope_kernel_args a)
{
    using part = lane_part<STYLE, WIDTH, ROTARY_MAX>;
    dependents_launch();
    int lane = threadIdx.x % 32, head = (blockIdx.y * ROPE_WARPS + threadIdx.x / 32) * HEADS;
    int32_t num_rotated = a.num_heads + a.num_kv_heads, num_rows = num_rotated + a.num_kv_heads;
    if (head >= num_rows) return;
    __nv_bfloat16 *from = a.qkv + ((size_t)blockIdx.x * num_rows + head) * a.head_dim, *to = NULL;
    size_t to_stride = (size_t)BLOCK_SIZE * a.head_dim;
    /* the step's arrays and the model's were there before the step's first kernel */
    int32_t position = a.positions[blockIdx.x], slot = a.slot_mapping[blockIdx.x];
    if (head >= a.num_heads) {
        bool is_v = head >= num_rotated;
        to = a.pool +
             kv_offset(a.layer_elements, a.block_elements, a.layer, slot / BLOCK_SIZE, is_v,
                       head - a.num_heads - (is_v ? a.num_kv_heads : 0), a.num_kv_heads, a.head_dim) +
             (size_t)(slot % BLOCK_SIZE) * a.head_dim;
    }
    if (head >= num_rotated) {
        dependency_wait();
        copy_heads<HEADS>(a, to, to_stride, from, lane);
        return;
    }
    const float *norm = head < a.num_heads ? a.q_norm : a.k_norm;
    const float2 *row = (const float2 *)a.cos_sin + (size_t)position * (a.rotary_dim / 2);
    float2 cos_sin[part::CHUNKS][WIDTH];
    part weight, v[HEADS];
#pragma unroll
    for (int j = 0; j < part::CHUNKS; j++)
#pragma unroll
        for (int i = 0; i < WIDTH; i++) {
            int pair = (lane + 32 * j) * WIDTH + i;
            cos_sin[j][i] = pair < a.rotary_dim / 2 ? row[pair] : float2{0, 0};
        }
    if (norm) weight.read(norm, a.rotary_dim, lane);
    dependency_wait();
#pragma unroll
    for (int h = 0; h < HEADS; h++) v[h].read(from + h * a.head_dim, a.rotary_dim, lane);
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        __nv_bfloat16 *at = from + h * a.head_dim, *pool_at = to ? to + h * to_stride : NULL;
        float scale = 1;
        if (norm) {
            float sum = v[h].sum_of_squares() + tail_sum(at, a, lane);
            for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
            scale = rsqrtf(sum / a.head_dim + a.eps);
            v[h].scale(scale, weight);
        }
        v[h].rotate(cos_sin);
        v[h].write(at, a.rotary_dim, lane);
        if (pool_at) v[h].write(pool_at, a.rotary_dim, lane);
        tail_write(at, pool_at, norm, scale, a, lane);
    }
}

template <int STYLE, int WIDTH, int ROTARY_MAX, int HEADS>
static void launch(struct cuda_device *d, int32_t num_tokens, const rope_kernel_args &a)
{
    int32_t num_warps = (a.num_heads + 2 * a.num_kv_heads) / HEADS;
    dim3 grid((unsigned)num_tokens, (unsigned)((num_warps + ROPE_WARPS - 1) / ROPE_WARPS));
    launch_dependent(d, rope_kv_write_kernel<STYLE, WIDTH, ROTARY_MAX, HEADS>, grid, dim3(ROPE_WARPS * 32), 0,
                     a);
}

/* A row has the same bits with any number of heads a warp; the rest is a function of the model. */
template <int STYLE>
static void launch_style(struct cuda_device *d, int32_t num_tokens, const rope_kernel_args &a)
{
    enum { MANY_TOKENS = 96, WARP_HEADS = 2 };
    bool many =
        num_tokens >= MANY_TOKENS && a.num_heads % WARP_HEADS == 0 && a.num_kv_heads % WARP_HEADS == 0;
    if (a.rotary_dim % 4 != 0)
        launch<STYLE, 1, 256, 1>(d, num_tokens, a);
    else if (a.rotary_dim > 128)
        launch<STYLE, 2, 256, 1>(d, num_tokens, a);
    else if (many)
        launch<STYLE, 2, 128, WARP_HEADS>(d, num_tokens, a);
    else
        launch<STYLE, 2, 128, 1>(d, num_tokens, a);
}

void cuda_rope_kv_write(struct device *d, const struct batch *b, void *qkv, struct kv_pool *pool,
                        int32_t layer, const struct rope_args *args)
{
    rope_kernel_args a = {};
    a.qkv = (__nv_bfloat16 *)qkv;
    a.pool = pool->data;
    a.cos_sin = args->cos_sin;
    a.q_norm = args->q_norm;
    a.k_norm = args->k_norm;
    a.positions = b->positions;
    a.slot_mapping = b->slot_mapping;
    a.layer_elements = pool->layer_elements;
    a.block_elements = pool->block_elements;
    a.layer = layer;
    a.num_heads = args->num_heads;
    a.num_kv_heads = args->num_kv_heads;
    a.head_dim = args->head_dim;
    a.rotary_dim = args->rotary_dim;
    a.eps = args->norm_eps;
    if (args->style == ROPE_HALVES)
        launch_style<ROPE_HALVES>(cuda_of(d), b->num_tokens, a);
    else
        launch_style<ROPE_PAIRS>(cuda_of(d), b->num_tokens, a);
}
