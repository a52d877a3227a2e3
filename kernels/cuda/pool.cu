/* pool.cu - hidden states that are summed: one CTA for each sequence that has rows of them in a step, over its rows in order. */
#include <algorithm>

#include "kernels/cuda/bf16.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"

namespace
{

enum { POOL_THREADS = 512 };

struct pool_args {
    const __nv_bfloat16 *x; /* [R][H] */
    const struct device_sample_params *params;
    struct sample_result *results; /* pinned, as floats */
    double *sums;
    float *floats;
    int32_t num_rows, hidden_size, row_floats;
};

/* Rows of the sequence of row first, from there on. */
__device__ int32_t end_of_rows(const pool_args &a, int32_t first)
{
    int32_t end = first + 1;
    while (end < a.num_rows && a.params[end].batch_slot == a.params[first].batch_slot) end++;
    return end;
}

/* Column i of the sum, in the order of rows. */
__device__ double sum_column(const pool_args &a, int32_t first, int32_t end, int32_t i, double sum)
{
    for (int32_t row = first; row < end; row++) {
        float x = __bfloat162float(a.x[(size_t)row * a.hidden_size + i]);
        if (!isfinite(x)) a.results[row].failed = true;
        sum += (double)x;
    }
    return sum;
}

__global__ void __launch_bounds__(POOL_THREADS) pool_kernel(const __grid_constant__ pool_args a)
{
    dependents_launch();
    const int32_t first = blockIdx.x;
    const struct device_sample_params p = a.params[first]; /* there before the step's first kernel */
    const bool leads = p.pool_end > 0 && (first == 0 || a.params[first - 1].batch_slot != p.batch_slot);
    dependency_wait();
    if (!leads) return;
    const int32_t end = end_of_rows(a, first);
    for (int32_t row = first + threadIdx.x; row < end; row += POOL_THREADS) {
        struct sample_result *out = &a.results[row];
        out->token_id = 0;
        out->failed = out->withheld = false;
        out->logprobs.logprob = 0;
        out->logprobs.num_top = 0;
    }
    __syncthreads();
    const bool begins = p.position - 1 == p.pool_begin, ends = p.position + (end - first) > p.pool_end;
    double *sums = a.sums + (size_t)p.batch_slot * a.hidden_size;
    float *floats = a.floats + (size_t)p.batch_slot * a.row_floats;
    for (int32_t i = threadIdx.x; i < a.hidden_size; i += POOL_THREADS) {
        double sum = sum_column(a, first, end, i, begins ? 0 : sums[i]);
        sums[i] = sum;
        if (ends) floats[i] = (float)(sum / (p.pool_end - p.pool_begin));
    }
}

} // namespace

bool cuda_rows_prepare(struct cuda_device *d)
{
    size_t num_slots = (size_t)d->limits.num_batch_slots;
    d->row_floats = std::max(d->hidden_size, (int32_t)ROW_LOGITS_MAX);
    d->sums = (double *)cuda_alloc(&d->base, num_slots * d->hidden_size * sizeof *d->sums, "pooling");
    return d->sums &&
           CUDA_CHECK(d, cudaHostAlloc((void **)&d->floats, num_slots * d->row_floats * sizeof *d->floats,
                                       cudaHostAllocDefault));
}

void cuda_pool(struct device *device, const struct batch *b, const void *x)
{
    struct cuda_device *d = cuda_of(device);
    pool_args a;
    a.x = (const __nv_bfloat16 *)x;
    a.params = b->sample;
    a.results = b->results;
    a.sums = d->sums;
    a.floats = d->floats;
    a.num_rows = b->num_real_logits;
    a.hidden_size = d->hidden_size;
    a.row_floats = d->row_floats;
    launch_dependent(d, pool_kernel, dim3((unsigned)a.num_rows), dim3(POOL_THREADS), 0, a);
}

const float *cuda_row(struct device *device, int32_t batch_slot)
{
    struct cuda_device *d = cuda_of(device);
    return d->floats + (size_t)batch_slot * d->row_floats;
}
