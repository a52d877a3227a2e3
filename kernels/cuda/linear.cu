/* linear.cu - matrix products x W^T through cuBLASLt, with algorithms that do not split K: the order over K of every
 * output element is then the hardware's own, whatever the number of rows (kernels/README.md, "The same bits"). */
#include <stdio.h>

#include <map>
#include <utility>

#include "kernels/cuda/cuda_device.cuh"

enum { SILU_THREADS = 256 };

/* A product of one shape: rows x N, K. */
struct gemm_plan {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    bool usable;
};

struct linear_plan {
    std::map<int32_t, struct gemm_plan> by_rows;
};

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

void cuda_linear_rows(struct cuda_device *d, int32_t rows, void *out, const void *x, const struct linear *w)
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
    int32_t num_out = w->n / 2;
    cuda_linear_rows(d, b->num_tokens, d->gate_up, x, w);
    dim3 grid((unsigned)((num_out / 8 + SILU_THREADS - 1) / SILU_THREADS), (unsigned)b->num_tokens);
    silu_mul_kernel<<<grid, SILU_THREADS, 0, d->stream>>>((__nv_bfloat16 *)out, d->gate_up, num_out);
}

void cuda_linear_plan_create(struct linear *w)
{
    w->plan = new struct linear_plan();
}

int cuda_linear_plans(struct cuda_device *d, struct error *err)
{
    (void)d;
    (void)err;
    return STATUS_OK;
}
