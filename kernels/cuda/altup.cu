/* altup.cu - several residual streams: what a layer finds in them, and what it leaves there (device.h: altup_args). One CTA a row, in two
 * passes: sums over the row, in an order that is a function of H alone, then the streams. */
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/norm_row.cuh"

namespace
{

enum { N = ALTUP_STREAMS, ROUTED = N + 1 /* sums of a routed row: its squares, and N products */ };

constexpr float LEAST_SQUARE = 1e-5f; /* of what is scaled: the mean square counts as so much */

/* Rows of a CTA; H is a multiple of 4. */
struct row_streams {
    float4 *x[N];
};

__device__ __forceinline__ struct row_streams streams_of(const struct altup_streams &s, int32_t hidden_size)
{
    struct row_streams r;
#pragma unroll
    for (int i = 0; i < N; i++)
        r.x[i] = (float4 *)((float *)s.x + i * s.stride + (size_t)blockIdx.x * hidden_size);
    return r;
}

__device__ __forceinline__ const __nv_bfloat16 *
other_row(const __nv_bfloat16 *others, const struct altup_streams &s, int i, int32_t hidden_size)
{
    return others + (i - 1) * s.stride + (size_t)blockIdx.x * hidden_size;
}

__device__ __forceinline__ float add_products(float sum, float4 a, float4 b)
{
    return sum + __fmaf_rn(a.w, b.w, __fmaf_rn(a.z, b.z, __fmaf_rn(a.y, b.y, a.x * b.x)));
}

__device__ __forceinline__ float4 scaled(float4 x, float by)
{
    return make_float4(x.x * by, x.y * by, x.z * by, x.w * by);
}

/* Each over the CTA, the same bits in every thread. */
template <int NUM> __device__ void sums_over_block(float (&sums)[NUM])
{
    __shared__ float partial[NUM][NORM_WARPS];
#pragma unroll
    for (int i = 0; i < NUM; i++) {
        sums[i] = sum_of_warp(sums[i]);
        if (threadIdx.x % 32 == 0) partial[i][threadIdx.x / 32] = sums[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < NUM; i++) sums[i] = sum_of_warps(partial[i]);
}

/* Joins sums[0] and the N behind it. */
template <int NUM>
__device__ __forceinline__ void add_routed(float (&sums)[NUM], float4 v, int i, const struct altup_args &a)
{
    sums[0] = add_squares(sums[0], v);
#pragma unroll
    for (int k = 0; k < N; k++)
        sums[1 + k] =
            add_products(sums[1 + k], v, ((const float4 *)(a.router + (size_t)k * a.hidden_size))[i]);
}

/* tanh(router RMSNorm(v)) of v's sums. */
template <int NUM>
__device__ __forceinline__ void route(float (&m)[N], const float (&sums)[NUM], const struct altup_args &a)
{
    const float scale = norm_scale(sums[0], 1.0f / a.hidden_size, a.eps);
#pragma unroll
    for (int k = 0; k < N; k++) m[k] = tanhf(scale * sums[1 + k]);
}

__device__ __forceinline__ float dot_of_router(const float *coefficients, const float (&m)[N])
{
    const float4 c = *(const float4 *)coefficients;
    return add_products(0, c, make_float4(m[0], m[1], m[2], m[3]));
}

__global__ void __launch_bounds__(NORM_THREADS)
    predict_kernel(struct altup_streams streams, float *x, const __nv_bfloat16 *delta, struct altup_args args)
{
    const int32_t num_vectors = args.hidden_size / 4;
    const struct row_streams s = streams_of(streams, args.hidden_size);
    const __nv_bfloat16 *delta_row = delta + (size_t)blockIdx.x * args.hidden_size;
    float4 *to = (float4 *)(x + (size_t)blockIdx.x * args.hidden_size);
    float sums[ROUTED + 1] = {}, m[N], by[N][N]; /* the last of sums: squares of delta */
    dependents_launch();
    dependency_wait();
    for (int i = threadIdx.x; i < num_vectors; i += NORM_THREADS) {
        add_routed(sums, s.x[0][i], i, args);
        if (delta) sums[ROUTED] = add_squares(sums[ROUTED], load_bf16x4(delta_row + 4 * i));
    }
    sums_over_block(sums);
    route(m, sums, args);
    const float delta_scale = norm_scale(sums[ROUTED], 1.0f / args.hidden_size, args.eps);
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int j = 0; j < N; j++) by[i][j] = dot_of_router(args.predict + (i * N + j) * N, m);
    for (int i = threadIdx.x; i < num_vectors; i += NORM_THREADS) {
        float4 v[N], d = make_float4(0, 0, 0, 0);
        if (delta)
            d = scale_by(load_bf16x4(delta_row + 4 * i), delta_scale, ((const float4 *)args.delta_weight)[i]);
#pragma unroll
        for (int j = 0; j < N; j++) v[j] = j > 0 ? add_delta(s.x[j][i], d, 1) : s.x[j][i];
#pragma unroll
        for (int k = 0; k < N; k++) {
            float4 p = v[k];
#pragma unroll
            for (int j = 0; j < N; j++) p = add_delta(p, v[j], by[k][j]);
            s.x[k][i] = p;
            if (k == 0) to[i] = p;
        }
    }
}

__global__ void __launch_bounds__(NORM_THREADS)
    correct_kernel(__nv_bfloat16 *out, struct altup_streams streams, const float *x, struct altup_args args)
{
    const int32_t num_vectors = args.hidden_size / 4;
    const struct row_streams s = streams_of(streams, args.hidden_size);
    const float4 *from = (const float4 *)(x + (size_t)blockIdx.x * args.hidden_size);
    __nv_bfloat16 *to = out + (size_t)blockIdx.x * args.hidden_size;
    float sums[ROUTED] = {}, m[N], by[N];
    dependents_launch();
    dependency_wait();
    for (int i = threadIdx.x; i < num_vectors; i += NORM_THREADS) add_routed(sums, from[i], i, args);
    sums_over_block(sums);
    route(m, sums, args);
#pragma unroll
    for (int k = 0; k < N; k++) by[k] = 1 + dot_of_router(args.correct + k * N, m);
    for (int i = threadIdx.x; i < num_vectors; i += NORM_THREADS) {
        float4 first = s.x[0][i];
        const float4 news = add_delta(from[i], first, -1);
#pragma unroll
        for (int k = 1; k < N; k++) s.x[k][i] = add_delta(s.x[k][i], news, by[k]);
        s.x[0][i] = first = add_delta(first, news, by[0]);
        store_bf16x4(to + 4 * i, scale_by(first, 1, ((const float4 *)args.out_scale)[i]));
    }
}

/* What each of others is multiplied by, so that its root mean square is that of x; by[0] is 1. */
__device__ void match(float (&by)[N], const float4 *x, const __nv_bfloat16 *others,
                      const struct altup_streams &streams, int32_t hidden_size)
{
    float sums[N] = {};
    for (int i = threadIdx.x; i < hidden_size / 4; i += NORM_THREADS) {
        sums[0] = add_squares(sums[0], x[i]);
#pragma unroll
        for (int k = 1; k < N; k++)
            sums[k] = add_squares(sums[k], load_bf16x4(other_row(others, streams, k, hidden_size) + 4 * i));
    }
    sums_over_block(sums);
    const float target = sqrtf(sums[0] / hidden_size);
    by[0] = 1;
#pragma unroll
    for (int k = 1; k < N; k++) {
        const float square = sums[k] / hidden_size;
        by[k] = target / sqrtf(square < LEAST_SQUARE ? LEAST_SQUARE : square);
    }
}

__global__ void __launch_bounds__(NORM_THREADS) begin_kernel(struct altup_streams streams, const float *x,
                                                             const __nv_bfloat16 *others, int32_t hidden_size)
{
    const struct row_streams s = streams_of(streams, hidden_size);
    const float4 *from = (const float4 *)(x + (size_t)blockIdx.x * hidden_size);
    float by[N];
    dependents_launch();
    dependency_wait();
    match(by, from, others, streams, hidden_size);
    for (int i = threadIdx.x; i < hidden_size / 4; i += NORM_THREADS) {
        s.x[0][i] = from[i];
#pragma unroll
        for (int k = 1; k < N; k++)
            s.x[k][i] = scaled(load_bf16x4(other_row(others, streams, k, hidden_size) + 4 * i), by[k]);
    }
}

__global__ void __launch_bounds__(NORM_THREADS)
    end_kernel(float *x, struct altup_streams streams, const __nv_bfloat16 *others, int32_t hidden_size)
{
    const struct row_streams s = streams_of(streams, hidden_size);
    float4 *to = (float4 *)(x + (size_t)blockIdx.x * hidden_size);
    float by[N];
    dependents_launch();
    dependency_wait();
    match(by, s.x[0], others, streams, hidden_size);
    for (int i = threadIdx.x; i < hidden_size / 4; i += NORM_THREADS) {
        float4 sum = s.x[0][i];
#pragma unroll
        for (int k = 1; k < N; k++)
            sum = add_delta(sum, load_bf16x4(other_row(others, streams, k, hidden_size) + 4 * i), by[k]);
        to[i] = scaled(sum, 1.0f / N);
    }
}

template <typename... Parameters, typename... Arguments>
void launch_rows(struct device *d, int32_t num_rows, void (*kernel)(Parameters...), Arguments... arguments)
{
    launch_dependent(cuda_of(d), kernel, dim3((unsigned)num_rows), dim3(NORM_THREADS), 0, arguments...);
}

} // namespace

void cuda_altup_begin(struct device *d, const struct batch *b, const struct altup_streams *streams,
                      const void *x, const void *others, int32_t hidden_size)
{
    launch_rows(d, batch_num_rows(b, ROWS_TOKENS), begin_kernel, *streams, (const float *)x,
                (const __nv_bfloat16 *)others, hidden_size);
}

void cuda_altup_predict(struct device *d, const struct batch *b, enum row_set rows,
                        const struct altup_streams *streams, void *x, const void *delta,
                        const struct altup_args *args)
{
    launch_rows(d, batch_num_rows(b, rows), predict_kernel, *streams, (float *)x,
                (const __nv_bfloat16 *)delta, *args);
}

void cuda_altup_correct(struct device *d, const struct batch *b, enum row_set rows, void *out,
                        const struct altup_streams *streams, const void *x, const struct altup_args *args)
{
    launch_rows(d, batch_num_rows(b, rows), correct_kernel, (__nv_bfloat16 *)out, *streams, (const float *)x,
                *args);
}

void cuda_altup_end(struct device *d, const struct batch *b, enum row_set rows, void *x,
                    const struct altup_streams *streams, const void *others, int32_t hidden_size)
{
    launch_rows(d, batch_num_rows(b, rows), end_kernel, (float *)x, *streams, (const __nv_bfloat16 *)others,
                hidden_size);
}
