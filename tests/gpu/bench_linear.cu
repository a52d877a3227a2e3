/* bench_linear.cu - matrix products of few rows: the own kernel with each of its tiles against cuBLASLt.
 *
 * For each shape of an 8B model and each number of rows: microseconds of cuBLASLt's own choice and of each tile, and
 * whether its bits are those of cuBLASLt without split-K (they must be; the program fails otherwise). Then a
 * chain of a layer's four products, as the decode step runs them. Calls rotate over weights that exceed the L2 several
 * times; medians of replayed graphs.
 *
 *   bench_linear [shapes [NAME] | chain] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "kernels/cuda/linear_small.cuh"

extern "C" int cuda_device_open(const struct device_options *options, struct device **out, struct error *err);

enum { REPEATS = 7, CALLS = 12, CHAIN_LAYERS = 6, ROWS_MAX = 64 };
static const size_t ROTATED_BYTES = (size_t)400 << 20;

struct shape {
    const char *name;
    int32_t n, k;
    bool gate_up, wide;
};

static const struct shape shapes[] = {{"qkv", 6144, 4096, false, false},
                                      {"o", 4096, 4096, false, false},
                                      {"gate_up", 28672, 4096, true, false},
                                      {"down", 4096, 14336, false, false},
                                      {"lm_head", 128256, 4096, false, true}};

static struct cuda_device *device;
static void *x, *out, *expected;
static int num_wrong;

static void check(cudaError_t result, const char *what)
{
    if (result == cudaSuccess) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(result));
    exit(1);
}

static __global__ void fill_random(__nv_bfloat16 *p, size_t count, uint32_t seed, float deviation)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
        uint32_t h = (uint32_t)i * 2654435761u ^ (uint32_t)(i >> 32) ^ seed;
        float sum = 0;
        for (int k = 0; k < 4; k++) {
            h = (h ^ h >> 16) * 0x45d9f3bu;
            h = (h ^ h >> 13) * 0x119de1f3u;
            sum += (float)(h >> 8) * 0x1p-24f;
        }
        p[i] = __float2bfloat16((sum - 2.0f) * 1.7320508f * deviation);
    }
}

static struct linear *make_linear(const struct shape &s, uint32_t seed)
{
    struct linear *w = new struct linear();
    w->n = s.n;
    w->k = s.k;
    w->kind = s.gate_up ? LINEAR_GATE_UP : LINEAR_PLAIN;
    w->wide_output = s.wide;
    size_t count = (size_t)s.n * s.k;
    check(cudaMalloc((void **)&w->weight, count * 2), "weights");
    fill_random<<<1024, 256, 0, device->stream>>>(w->weight, count, seed, 0.02f);
    cuda_linear_plan_create(w);
    return w;
}

static std::vector<struct linear *> make_rotation(const struct shape &s)
{
    std::vector<struct linear *> all;
    size_t bytes = (size_t)s.n * s.k * 2;
    for (size_t i = 0; i * bytes < ROTATED_BYTES; i++) all.push_back(make_linear(s, (uint32_t)(17 * i + s.n)));
    return all;
}

/* Microseconds of one of num_calls calls. */
static double time_graph(int num_calls, const std::function<bool(int)> &call)
{
    cudaStream_t stream = device->stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    if (!call(0)) return -1;
    check(cudaStreamSynchronize(stream), "call");
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < num_calls; i++) call(i);
    check(cudaStreamEndCapture(stream, &graph), "capture");
    check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "event");
    check(cudaEventCreate(&end), "event");
    std::vector<float> times;
    for (int i = 0; i < REPEATS + 2; i++) {
        float ms = 0;
        check(cudaEventRecord(begin, stream), "event");
        check(cudaGraphLaunch(exec, stream), "replay");
        check(cudaEventRecord(end, stream), "event");
        check(cudaEventSynchronize(end), "replay");
        check(cudaEventElapsedTime(&ms, begin, end), "event");
        if (i >= 2) times.push_back(ms * 1e3f / (float)num_calls);
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    check(device->first_error, device->first_error_where);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

/* cuBLASLt with nothing forbidden: what a program that does not care for bits would run. */
struct free_choice {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulHeuristicResult_t result;

    free_choice(const struct shape &s, int32_t m)
    {
        cublasOperation_t transposed = CUBLAS_OP_T;
        cudaDataType_t type = s.wide ? CUDA_R_32F : CUDA_R_16BF;
        size_t bytes = device->blas_workspace_bytes;
        cublasLtMatmulPreference_t preference;
        int found = 0;
        cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
        cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
        cublasLtMatrixLayoutCreate(&a, CUDA_R_16BF, (uint64_t)s.k, (uint64_t)s.n, s.k);
        cublasLtMatrixLayoutCreate(&b, CUDA_R_16BF, (uint64_t)s.k, (uint64_t)m, s.k);
        cublasLtMatrixLayoutCreate(&c, type, (uint64_t)s.n, (uint64_t)m, s.n);
        cublasLtMatmulPreferenceCreate(&preference);
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes);
        cublasLtMatmulAlgoGetHeuristic(device->blas, desc, a, b, c, c, preference, 1, &result, &found);
    }

    bool run(const struct linear *w) const
    {
        float one = 1, zero = 0;
        return cublasLtMatmul(device->blas, desc, &one, w->weight, a, x, b, &zero, out, c, out, c, &result.algo,
                              device->blas_workspace, device->blas_workspace_bytes, device->stream) == 0;
    }
};

static size_t out_bytes(const struct linear *w, int32_t m)
{
    return (size_t)m * w->n * (w->wide_output ? 4 : 2) / (w->kind == LINEAR_GATE_UP ? 2 : 1);
}

static bool same_bits(const struct linear *w, int32_t rows, int32_t m)
{
    size_t bytes = out_bytes(w, m);
    struct batch b = {};
    b.num_tokens = m;
    check(cudaMemsetAsync(out, 0xff, bytes, device->stream), "poison");
    check(cudaMemsetAsync(expected, 0xff, bytes, device->stream), "poison");
    if (w->kind == LINEAR_GATE_UP) /* no choice has been made yet: cuBLASLt without split-K */
        cuda_linear_silu_mul(&device->base, &b, expected, x, w);
    else
        cuda_linear_rows(device, m, expected, x, w);
    cuda_linear_small(device, rows, m, out, x, w, w->kind == LINEAR_GATE_UP);
    std::vector<char> got(bytes), want(bytes);
    check(cudaStreamSynchronize(device->stream), "product");
    check(cudaMemcpy(got.data(), out, bytes, cudaMemcpyDeviceToHost), "product");
    check(cudaMemcpy(want.data(), expected, bytes, cudaMemcpyDeviceToHost), "product");
    return got == want;
}

static void bench_shape(const struct shape &s)
{
    std::vector<struct linear *> all = make_rotation(s);
    for (int32_t m : {1, 8, 16, 32, 64}) {
        free_choice blas(s, m);
        double free_us = time_graph(CALLS, [&](int i) { return blas.run(all[i % all.size()]); }), best = 1e30;
        printf("%-8s %3d %9.1f ", s.name, m, free_us);
        for (int32_t rows : linear_small_tile_rows) {
            double us = time_graph(CALLS, [&](int i) {
                return cuda_linear_small(device, rows, m, out, x, all[i % all.size()], s.gate_up);
            });
            bool same = us < 0 || (same_bits(all[0], rows, m) && (m == 1 || same_bits(all[0], rows, m - 1)));
            num_wrong += !same;
            printf("%7.1f%s", us, same ? " " : "!");
            if (us > 0) best = std::min(best, us);
        }
        printf("   %5.2fx  %.2f TB/s\n", free_us / best, (double)s.n * s.k * 2 / best * 1e-6);
        fflush(stdout);
    }
    cuda_linears_forget();
    for (struct linear *w : all) cudaFree(w->weight);
}

static void bench_chain(void)
{
    std::vector<std::vector<struct linear *>> layers(CHAIN_LAYERS);
    struct error err = {};
    for (int i = 0; i < CHAIN_LAYERS; i++)
        for (int j = 0; j < 4; j++) layers[i].push_back(make_linear(shapes[j], (uint32_t)(i * 5 + j)));
    if (cuda_linear_plans(device, &err)) fprintf(stderr, "%s\n", err.text);
    for (int32_t m : {1, 8, 16, 32, 64}) {
        std::vector<free_choice> blas;
        for (int j = 0; j < 4; j++) blas.emplace_back(shapes[j], m);
        double free_us = time_graph(CHAIN_LAYERS * 4, [&](int i) { return blas[i % 4].run(layers[i / 4][i % 4]); });
        double us = time_graph(CHAIN_LAYERS * 4, [&](int i) {
            struct batch b = {};
            b.num_tokens = m;
            if (i % 4 == 2)
                cuda_linear_silu_mul(&device->base, &b, out, x, layers[i / 4][2]);
            else
                cuda_linear_rows(device, m, out, x, layers[i / 4][i % 4]);
            return true;
        });
        printf("chain    %3d cuBLASLt %.1f us a layer, own %.1f: %.2fx\n", m, free_us * 4, us * 4, free_us / us);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    struct device_options options = {};
    struct device *opened;
    struct error err = {};
    if (cuda_device_open(&options, &opened, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    device = cuda_of(opened);
    device->limits.num_tokens = device->limits.num_logits = ROWS_MAX;
    check(cudaMalloc(&x, (size_t)ROWS_MAX * 28672 * 2), "x");
    check(cudaMalloc(&out, (size_t)ROWS_MAX * 128256 * 4), "out");
    check(cudaMalloc(&expected, (size_t)ROWS_MAX * 128256 * 4), "out");
    check(cudaMalloc((void **)&device->gate_up, (size_t)ROWS_MAX * 28672 * 2), "out");
    fill_random<<<64, 256, 0, device->stream>>>((__nv_bfloat16 *)x, (size_t)ROWS_MAX * 28672, 3, 1.0f);
    if (strcmp(what, "chain") != 0) {
        printf("shape     M  cuBLASLt ");
        for (int32_t rows : linear_small_tile_rows) printf("%5d   ", rows);
        printf("(us; ! = wrong bits)\n");
        for (const struct shape &s : shapes)
            if (argc < 3 || !strcmp(argv[2], s.name)) bench_shape(s);
    }
    if (strcmp(what, "shapes") != 0) bench_chain();
    printf("%d products with wrong bits\n", num_wrong);
    return num_wrong > 0;
}
