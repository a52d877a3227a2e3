/* linear.cu - which kernel computes a matrix product x W^T: the own one for few rows (linear_small.cu), or cuBLASLt with
 * algorithms that do not split K. Both walk K in order, so the bits of an output element do not depend on which of them it
 * was, nor on the number of rows (kernels/README.md, "The same bits").
 *
 * For each shape and each of a few numbers of rows the candidates are timed once, when the weights are in. */
#include <stdio.h>

#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/linear_small.cuh"

enum { SILU_THREADS = 256, SMALL_BUCKETS = 4, TIMED_RUNS = 6, TIMED_PASSES = 3 };

/* What was measured to be fastest for up to 8, 16, 32 and 64 rows: rows of W a CTA of the own kernel, or 0 for cuBLASLt. */
struct small_choice {
    int32_t tile_rows[SMALL_BUCKETS];
};

/* A product of one shape: rows x N, K. */
struct gemm_plan {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    bool usable;
};

struct linear_plan {
    std::map<int32_t, struct gemm_plan> by_rows;
    struct small_choice small;
};

/* All linears, so that they can be timed together. */
static std::vector<struct linear *> linears;

static int bucket_of(int32_t rows)
{
    return rows <= 8 ? 0 : rows <= 16 ? 1 : rows <= 32 ? 2 : 3;
}

static struct gemm_plan make_plan(struct cuda_device *d, const struct linear *w, int32_t rows)
{
    struct gemm_plan p = {};
    cudaDataType_t out_type = w->wide_output ? CUDA_R_32F : CUDA_R_16BF;
    cublasOperation_t transposed = CUBLAS_OP_T, plain = CUBLAS_OP_N;
    cublasLtMatmulDescCreate(&p.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSB, &plain, sizeof plain);
    cublasLtMatrixLayoutCreate(&p.a, CUDA_R_16BF, (uint64_t)w->k, (uint64_t)w->n, w->k);
    cublasLtMatrixLayoutCreate(&p.b, CUDA_R_16BF, (uint64_t)w->k, (uint64_t)rows, w->k);
    cublasLtMatrixLayoutCreate(&p.c, out_type, (uint64_t)w->n, (uint64_t)rows, w->n);
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &d->blas_workspace_bytes,
                                         sizeof d->blas_workspace_bytes);
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE; /* no split K */
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                         sizeof reductions);
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    cublasLtMatmulAlgoGetHeuristic(d->blas, p.desc, p.a, p.b, p.c, p.c, preference, 1, &result, &found);
    p.usable = found > 0;
    if (p.usable) p.algo = result.algo;
    cublasLtMatmulPreferenceDestroy(preference);
    return p;
}

static __global__ void add_bias_kernel(__nv_bfloat16 *out, const float *bias, int32_t n)
{
    __nv_bfloat16 *row = out + (size_t)blockIdx.x * n;
    for (int i = threadIdx.x; i < n; i += SILU_THREADS)
        row[i] = __float2bfloat16_rn(__bfloat162float(row[i]) + bias[i]);
}

static void run_blas(struct cuda_device *d, int32_t rows, void *out, const void *x, const struct linear *w)
{
    std::map<int32_t, struct gemm_plan> &plans = w->plan->by_rows;
    auto it = plans.find(rows);
    if (it == plans.end()) it = plans.emplace(rows, make_plan(d, w, rows)).first;
    const struct gemm_plan &p = it->second;
    float one = 1, zero = 0;
    cublasStatus_t status =
        p.usable ? cublasLtMatmul(d->blas, p.desc, &one, w->weight, p.a, x, p.b, &zero, out, p.c, out, p.c, &p.algo,
                                  d->blas_workspace, d->blas_workspace_bytes, d->stream)
                 : CUBLAS_STATUS_NOT_SUPPORTED;
    if (status != CUBLAS_STATUS_SUCCESS) cuda_check(d, cudaErrorUnknown, "cublasLtMatmul");
    if (w->bias) add_bias_kernel<<<(unsigned)rows, SILU_THREADS, 0, d->stream>>>((__nv_bfloat16 *)out, w->bias, w->n);
}

static int32_t choice_of(const struct cuda_device *d, const struct linear *w, int32_t rows)
{
    return cuda_linear_small_fits(d, w, rows) ? w->plan->small.tile_rows[bucket_of(rows)] : 0;
}

void cuda_linear_rows(struct cuda_device *d, int32_t rows, void *out, const void *x, const struct linear *w)
{
    int32_t tile_rows = choice_of(d, w, rows);
    if (!tile_rows || !cuda_linear_small(d, tile_rows, rows, out, x, w, false)) run_blas(d, rows, out, x, w);
}

void cuda_linear(struct device *d, const struct batch *b, void *out, const void *x, const struct linear *w)
{
    cuda_linear_rows(cuda_of(d), b->num_tokens, out, x, w);
}

/* Gate and up alternate in groups of 8 columns. */
static __global__ void silu_mul_kernel(__nv_bfloat16 *out, const __nv_bfloat16 *gate_up, int32_t num_out)
{
    const __nv_bfloat16 *from = gate_up + (size_t)blockIdx.y * 2 * num_out;
    int i = (blockIdx.x * SILU_THREADS + threadIdx.x) * 8;
    if (i >= num_out) return;
    uint4 g = *(const uint4 *)(from + 2 * i), u = *(const uint4 *)(from + 2 * i + 8), o;
    const __nv_bfloat162 *gp = (const __nv_bfloat162 *)&g, *up = (const __nv_bfloat162 *)&u;
    __nv_bfloat162 *op = (__nv_bfloat162 *)&o;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        float2 gf = __bfloat1622float2(gp[k]), uf = __bfloat1622float2(up[k]);
        op[k] = __floats2bfloat162_rn(gf.x / (1.0f + __expf(-gf.x)) * uf.x, gf.y / (1.0f + __expf(-gf.y)) * uf.y);
    }
    *(uint4 *)(out + (size_t)blockIdx.y * num_out + i) = o;
}

void cuda_linear_silu_mul(struct device *device, const struct batch *b, void *out, const void *x, const struct linear *w)
{
    struct cuda_device *d = cuda_of(device);
    int32_t num_out = w->n / 2, tile_rows = choice_of(d, w, b->num_tokens);
    if (tile_rows && cuda_linear_small(d, tile_rows, b->num_tokens, out, x, w, true)) return;
    run_blas(d, b->num_tokens, d->gate_up, x, w);
    dim3 grid((unsigned)((num_out / 8 + SILU_THREADS - 1) / SILU_THREADS), (unsigned)b->num_tokens);
    silu_mul_kernel<<<grid, SILU_THREADS, 0, d->stream>>>((__nv_bfloat16 *)out, d->gate_up, num_out);
}

void cuda_linear_plan_create(struct linear *w)
{
    w->plan = new struct linear_plan();
    linears.push_back(w);
}

/* With the device everything that they name goes. */
void cuda_linears_forget(void)
{
    linears.clear();
}

/* Milliseconds of TIMED_RUNS products, huge where the kernel cannot; each with the weights of another linear of the shape, so that none is in a cache. */
static float time_candidate(struct cuda_device *d, const std::vector<struct linear *> &same, int32_t tile_rows,
                            int32_t rows, void *out, const void *x, cudaEvent_t begin, cudaEvent_t end)
{
    float best = 1e30f;
    for (int pass = 0; pass <= TIMED_PASSES; pass++) { /* the first one warms up */
        float ms = 0;
        cudaEventRecord(begin, d->stream);
        for (int i = 0; i < TIMED_RUNS; i++) {
            struct linear *w = same[(size_t)(i + pass * TIMED_RUNS) % same.size()];
            if (!tile_rows)
                run_blas(d, rows, out, x, w);
            else if (!cuda_linear_small(d, tile_rows, rows, out, x, w, w->kind == LINEAR_GATE_UP))
                return 1e30f;
        }
        cudaEventRecord(end, d->stream);
        cudaEventSynchronize(end);
        cudaEventElapsedTime(&ms, begin, end);
        if (pass > 0 && ms < best) best = ms;
    }
    return best;
}

static void choose(struct cuda_device *d, const std::vector<struct linear *> &same, void *out, const void *x,
                   cudaEvent_t begin, cudaEvent_t end)
{
    static const int32_t bucket_rows[SMALL_BUCKETS] = {8, 16, 32, 64};
    for (int bucket = 0; bucket < SMALL_BUCKETS; bucket++) {
        float best = 1e30f;
        int32_t winner = 0, rows = bucket_rows[bucket];
        if (rows > d->limits.num_tokens || rows > d->limits.num_logits) rows = min(d->limits.num_tokens, d->limits.num_logits);
        bool fits = cuda_linear_small_fits(d, same[0], rows);
        for (int32_t c : linear_small_tile_rows) {
            float ms = fits ? time_candidate(d, same, c, rows, out, x, begin, end) : best;
            if (ms >= best) continue;
            best = ms;
            winner = c;
        }
        if (time_candidate(d, same, 0, rows, out, x, begin, end) < best) winner = 0;
        for (struct linear *w : same) w->plan->small.tile_rows[bucket] = winner;
    }
}

int cuda_linear_plans(struct cuda_device *d, struct error *err)
{
    if (!d->is_hopper) return STATUS_OK;
    std::map<std::tuple<int32_t, int32_t, int, bool>, std::vector<struct linear *>> shapes;
    size_t x_bytes = 0, out_bytes = 0;
    for (struct linear *w : linears) {
        shapes[std::make_tuple(w->n, w->k, (int)w->kind, w->wide_output)].push_back(w);
        x_bytes = max(x_bytes, (size_t)LINEAR_SMALL_ROWS_MAX * w->k * 2);
        out_bytes = max(out_bytes, (size_t)LINEAR_SMALL_ROWS_MAX * w->n * 4);
    }
    void *x = NULL, *out = NULL;
    cudaEvent_t begin, end;
    bool ok = CUDA_CHECK(d, cudaMalloc(&x, x_bytes)) && CUDA_CHECK(d, cudaMalloc(&out, out_bytes)) &&
              CUDA_CHECK(d, cudaMemsetAsync(x, 0x3c, x_bytes, d->stream)) && CUDA_CHECK(d, cudaEventCreate(&begin)) &&
              CUDA_CHECK(d, cudaEventCreate(&end));
    if (!ok) return error_set(err, STATUS_NO_MEMORY, "the GPU has no room to time matrix products");
    for (auto &shape : shapes) choose(d, shape.second, out, x, begin, end);
    CUDA_CHECK(d, cudaStreamSynchronize(d->stream));
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaFree(x);
    cudaFree(out);
    return d->first_error == cudaSuccess ? STATUS_OK
                                         : error_set(err, STATUS_DEVICE, "timing the matrix products failed: %s (%s)",
                                                     cudaGetErrorString(d->first_error), d->first_error_where);
}
