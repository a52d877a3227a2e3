/* bench_linear.cu - matrix products: the own kernels against cuBLASLt.
 *
 * few: for each shape of an 8B model and each number of rows up to 64, microseconds of cuBLASLt's own choice
 * and of each tile. chain: a layer's four products, as the decode step runs them. many: TFLOP/s from
 * 128 to 8192 rows, with what a layer of prefill adds to the product (SiLU), and of a layer. choice: what is
 * chosen when weights are in, five times over (s48: linear_small with 48 rows of W a CTA; l2: linear_large in
 * clusters of 2; b: cuBLASLt). portable: the kernels that every GPU from sm_80 on can run beside the fastest one of sm_90, and
 * their bits for shapes that no tile divides. alone: the own kernels against double precision, for
 * racecheck. order: the comparison that is made when weights are in: the own kernels pass, and what cuBLASLt
 * computes with K split does not. sustained: seconds of a layer's products, of 1 to 8,192 rows, and what they take of the card's energy.
 *
 * Bits must be those of cuBLASLt without split-K, or the program fails. Calls rotate over weights that exceed
 * the L2 several times; medians of replayed graphs (few) and of runs in turns (many).
 *
 *   bench_linear [alone | order | few | chain | many | portable | sustained | choice]... */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <vector>

#include "kernels/cuda/linear_large.cuh"
#include "kernels/cuda/linear_plain.cuh"
#include "kernels/cuda/linear_portable.cuh"
#include "kernels/cuda/linear_small.cuh"
#include "tests/gpu/call_timer.cuh"
#include "tests/gpu/power_meter.h"

extern "C" int cuda_device_open(const struct device_options *options, struct device **out, struct error *err);

enum { CALLS = 12, CHAIN_LAYERS = 6, ROWS_MAX = 256, ROWS_MAX_LARGE = 8192, TURNS = 5 };
static const double TURN_FLOP = 8e12; /* about 10 ms */
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

static __global__ void fill_random(__nv_bfloat16 *p, size_t count, uint32_t seed, float deviation)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x) {
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
    cuda_linear_plan_create(device, w);
    return w;
}

static std::vector<struct linear *> make_rotation(const struct shape &s)
{
    std::vector<struct linear *> all;
    size_t bytes = (size_t)s.n * s.k * 2;
    for (size_t i = 0; i * bytes < ROTATED_BYTES; i++)
        all.push_back(make_linear(s, (uint32_t)(17 * i + s.n)));
    return all;
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
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                             sizeof bytes);
        cublasLtMatmulAlgoGetHeuristic(device->blas, desc, a, b, c, c, preference, 1, &result, &found);
    }

    bool run(const struct linear *w) const
    {
        float one = 1, zero = 0;
        return cublasLtMatmul(device->blas, desc, &one, w->weight, a, x, b, &zero, out, c, out, c,
                              &result.algo, device->blas_workspace, device->blas_workspace_bytes,
                              device->stream) == 0;
    }
};

static size_t out_bytes(const struct linear *w, int32_t m)
{
    return (size_t)m * w->n * (w->wide_output ? 4 : 2) / (w->kind == LINEAR_GATE_UP ? 2 : 1);
}

static __global__ void count_different(const uint4 *a, const uint4 *b, size_t count, unsigned *different)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x)
        if (a[i].x != b[i].x || a[i].y != b[i].y || a[i].z != b[i].z || a[i].w != b[i].w)
            atomicAdd(different, 1);
}

/* What was not written is not a number, and differs between the two. */
static bool same_bits(const struct linear *w, int32_t m, const std::function<bool(void *)> &product)
{
    static unsigned *different;
    unsigned result = 1;
    size_t bytes = out_bytes(w, m);
    if (!different) check(cudaMalloc((void **)&different, sizeof *different), "compare");
    check(cudaMemsetAsync(out, 0xff, bytes + 16, device->stream), "poison");
    check(cudaMemsetAsync(expected, 0xfe, bytes + 16, device->stream), "poison");
    check(cudaMemsetAsync(different, 0, sizeof *different, device->stream), "compare");
    cuda_linear_rows(device, m, expected, x, w); /* no choice has been made yet: cuBLASLt without split-K */
    if (!product(out)) return false;
    /* one more than there is: what lies behind must be as it was */
    count_different<<<256, 256, 0, device->stream>>>((const uint4 *)out, (const uint4 *)expected,
                                                     bytes / 16 + 1, different);
    check(cudaMemcpyAsync(&result, different, sizeof result, cudaMemcpyDeviceToHost, device->stream),
          "compare");
    check(cudaStreamSynchronize(device->stream), "product");
    return result == 1;
}

static void must_be_plain(const struct linear *w, int32_t m, bool ran, const char *kernel)
{
    if (ran && cuda_linear_is_plain(device, m, out, x, w)) return;
    printf("%d x %d, %d rows: the %s product is not in order\n", w->n, w->k, m, kernel);
    num_wrong++;
}

static void check_order(void)
{
    int num_split = 0, num_free = 0;
    for (const struct shape &s : shapes) {
        if (s.gate_up) continue; /* the own kernels leave its SiLU alone */
        struct linear *w = make_linear(s, 5);
        for (int32_t m : {1, 8, 17, 64, 100, 256}) {
            must_be_plain(w, m, (cuda_linear_plain(device, m, out, x, w), true), "plain");
            must_be_plain(w, m, cuda_linear_small(device, 112, m, out, x, w, false), "small");
            if (!s.wide) must_be_plain(w, m, cuda_linear_large(device, 1, 0, m, out, x, w, false), "large");
            num_free++;
            num_split += free_choice(s, m).run(w) && !cuda_linear_is_plain(device, m, out, x, w);
        }
        check(cudaFree(w->weight), "weights");
    }
    cuda_linears_forget(device);
    printf("order: %d of %d free choices of cuBLASLt's are found to sum in another order\n", num_split,
           num_free);
    num_wrong += num_split == 0;
}

static bool same_bits_small(const struct linear *w, int32_t tile_rows, int32_t m)
{
    return same_bits(w, m, [&](void *to) {
        return cuda_linear_small(device, tile_rows, m, to, x, w, w->kind == LINEAR_GATE_UP);
    });
}

static void bench_shape(const struct shape &s)
{
    std::vector<struct linear *> all = make_rotation(s);
    for (int32_t m : {1, 8, 16, 32, 64, 96, 128, 192, 256}) {
        free_choice blas(s, m);
        double free_us = time_graph(device, CALLS, [&](int i) { return blas.run(all[i % all.size()]); }),
               best = 1e30;
        printf("%-8s %3d %9.1f ", s.name, m, free_us);
        for (int32_t rows : linear_small_tile_rows) {
            double us = time_graph(device, CALLS, [&](int i) {
                return cuda_linear_small(device, rows, m, out, x, all[i % all.size()], s.gate_up);
            });
            bool same = us < 0 || (same_bits_small(all[0], rows, m) &&
                                   (m == 1 || same_bits_small(all[0], rows, m - 1)));
            num_wrong += !same;
            printf("%7.1f%s", us, same ? " " : "!");
            if (us > 0) best = std::min(best, us);
        }
        printf("   %5.2fx  %.2f TB/s\n", free_us / best, (double)s.n * s.k * 2 / best * 1e-6);
        fflush(stdout);
    }
    cuda_linears_forget(device);
    for (struct linear *w : all) cudaFree(w->weight);
}

static void print_choice(const struct linear_choice &c)
{
    if (c.kernel == LINEAR_SMALL)
        printf(" s%d", c.tile_rows);
    else if (c.kernel == LINEAR_LARGE)
        printf(" l%d", c.cluster);
    else
        printf(" b");
}

static void bench_chain(void)
{
    std::vector<std::vector<struct linear *>> layers(CHAIN_LAYERS);
    struct error err = {};
    for (int i = 0; i < CHAIN_LAYERS; i++)
        for (int j = 0; j < 4; j++) layers[i].push_back(make_linear(shapes[j], (uint32_t)(i * 5 + j)));
    if (cuda_linear_plans(device, &err)) fprintf(stderr, "%s\n", err.text);
    for (int32_t m : {1, 8, 16, 32, 64, 96, 128, 192, 256}) {
        std::vector<free_choice> blas;
        for (int j = 0; j < 4; j++) blas.emplace_back(shapes[j], m);
        double free_us = time_graph(device, CHAIN_LAYERS * 4,
                                    [&](int i) { return blas[i % 4].run(layers[i / 4][i % 4]); });
        double us = time_graph(device, CHAIN_LAYERS * 4, [&](int i) {
            cuda_linear_rows(device, m, out, x, layers[i / 4][i % 4]);
            return true;
        });
        printf("chain    %3d cuBLASLt %.1f us a layer, own %.1f: %.2fx  (chosen:", m, free_us * 4, us * 4,
               free_us / us);
        for (struct linear *w : layers[0]) print_choice(cuda_linear_choice(w, m));
        printf(")\n");
    }
}

static std::vector<double> time_in_turns(const std::vector<std::function<bool(void)>> &calls, double flop)
{
    return time_in_turns(device, calls, std::max(4, (int)(TURN_FLOP / flop)), TURNS);
}

struct tile {
    int32_t cluster, width;
};

/* All that the kernel for many rows has. */
static std::vector<struct tile> large_tiles(void)
{
    std::vector<struct tile> tiles = {{2, 256}};
    for (int32_t width : linear_large_widths) tiles.push_back({1, width});
    return tiles;
}

static bool same_bits_large(const struct linear *w, struct tile t, int32_t m)
{
    return same_bits(w, m, [&](void *to) {
        return cuda_linear_large(device, t.cluster, t.width, m, to, x, w, w->kind == LINEAR_GATE_UP);
    });
}

static void bench_many(const struct shape &s)
{
    struct linear *w = make_linear(s, 5);
    for (int32_t m : {128, 256, 512, 640, 896, 1024, 2048, 8192}) {
        double flop = 2.0 * m * s.n * s.k;
        free_choice blas(s, m);
        std::vector<std::function<bool(void)>> calls = {[&] { return blas.run(w); },
                                                        [&] {
                                                            cuda_linear_rows(device, m, out, x, w);
                                                            return true;
                                                        }};
        for (struct tile t : large_tiles())
            calls.push_back(
                [&, t] { return cuda_linear_large(device, t.cluster, t.width, m, out, x, w, s.gate_up); });
        std::vector<double> us = time_in_turns(calls, flop);
        printf("%-8s %4d ", s.name, m);
        for (double t : us) printf("%8.1f", t);
        printf("  %4.0f TFLOP/s, %d wide", flop / *std::min_element(us.begin(), us.end()) * 1e-6,
               linear_large_width(device->num_sms, m, s.n));
        bool same = true;
        for (struct tile t : large_tiles())
            same = same && same_bits_large(w, t, m) && same_bits_large(w, t, m - 1);
        num_wrong += !same;
        printf(" %s\n", same ? "" : "wrong bits");
        fflush(stdout);
    }
    cuda_linears_forget(device);
    cudaFree(w->weight);
}

/* ---- the portable kernels ---- */

static std::vector<struct linear_choice> portable_choices(int32_t m)
{
    std::vector<struct linear_choice> all;
    if (m <= LINEAR_PORTABLE_ROWS)
        for (int32_t rows : linear_portable_tile_rows) all.push_back({LINEAR_PORTABLE, rows, 0, 0});
    for (const struct linear_choice &c : linear_portable_tiles)
        if (m > LINEAR_PORTABLE_ROWS / 2) all.push_back(c);
    return all;
}

static bool run_portable(const struct linear *w, const struct linear_choice &c, int32_t m, void *to)
{
    return cuda_linear_portable(device, &c, m, to, x, w, w->kind == LINEAR_GATE_UP);
}

static bool same_bits_portable(const struct linear *w, const struct linear_choice &c, int32_t m)
{
    return same_bits(w, m, [&](void *to) { return run_portable(w, c, m, to); });
}

/* Whether that is one of sm_90's kernels that can compute so many rows; then the i-th of them ran. */
static bool run_hopper(const struct linear *w, int i, int32_t m)
{
    bool silu = w->kind == LINEAR_GATE_UP;
    const int num_small = (int)std::size(linear_small_tile_rows);
    if (i < num_small)
        return m <= 256 && cuda_linear_small(device, linear_small_tile_rows[i], m, out, x, w, silu);
    return m > 64 && !w->wide_output &&
           cuda_linear_large(device, linear_large_clusters[i - num_small], 0, m, out, x, w, silu);
}

static void bench_portable(const struct shape &s)
{
    constexpr int HOPPER_KERNELS = std::size(linear_small_tile_rows) + std::size(linear_large_clusters);
    std::vector<struct linear *> all = make_rotation(s);
    for (int32_t m : {1, 8, 16, 32, 64, 65, 128, 192, 256, 512, 1024, 8192}) {
        if (s.wide && m > 256) continue;
        double hopper = 1e30, best = 1e30;
        int calls = m <= 256 ? CALLS : 2;
        for (int i = 0; i < HOPPER_KERNELS; i++) {
            double us =
                time_graph(device, calls, [&](int j) { return run_hopper(all[j % all.size()], i, m); });
            if (us > 0) hopper = std::min(hopper, us);
        }
        printf("portable %-8s %4d sm_90 %8.1f own", s.name, m, hopper);
        for (const struct linear_choice &c : portable_choices(m)) {
            double us = time_graph(device, calls,
                                   [&](int j) { return run_portable(all[j % all.size()], c, m, out); });
            bool same = us > 0 && same_bits_portable(all[0], c, m);
            num_wrong += !same;
            printf(" %4dx%-3d %8.1f%s", c.tile_rows, c.columns, us, same ? " " : "!");
            if (us > 0) best = std::min(best, us);
        }
        printf(" %3.0f %%, %.0f TFLOP/s\n", 100 * hopper / best, 2.0 * m * s.n * s.k / best * 1e-6);
        fflush(stdout);
    }
    cuda_linears_forget(device);
    for (struct linear *w : all) cudaFree(w->weight);
}

static void check_portable_ragged(const float *bias)
{
    int before = num_wrong, num_checked = 0;
    srand(11);
    for (int i = 0; i < 60; i++) {
        struct shape s = {"", 16 * (1 + rand() % 60), 8 * (1 + rand() % 100), i % 3 == 2, i % 6 == 3};
        if (i % 3 == 1) s.n -= 8;
        struct linear *w = make_linear(s, (uint32_t)i);
        if (i % 3 == 1) w->bias = (float *)bias;
        for (int32_t m : {1, 7, 9, 17, 33, 63, 64, 65, 127, 129, 1 + rand() % 500, 1 + rand() % 500})
            for (const struct linear_choice &c : portable_choices(m)) {
                bool same = same_bits_portable(w, c, m);
                if (!same)
                    printf("wrong bits: %d x %d, %d rows, %d x %d\n", s.n, s.k, m, c.tile_rows, c.columns);
                num_wrong += !same;
                num_checked++;
            }
        cuda_linears_forget(device);
        cudaFree(w->weight);
    }
    printf("portable, ragged: %d of %d wrong\n", num_wrong - before, num_checked);
}

/* A bias for any shape. */
static const float *make_bias(void)
{
    std::vector<float> values(ROWS_MAX_LARGE);
    float *bias;
    check(cudaMalloc((void **)&bias, values.size() * 4), "bias");
    for (size_t i = 0; i < values.size(); i++) values[i] = (float)(i * 37 % 101) / 50 - 1;
    check(cudaMemcpy(bias, values.data(), values.size() * 4, cudaMemcpyHostToDevice), "bias");
    return bias;
}

/* Shapes that no tile divides, with and without a bias. */
static void check_ragged(void)
{
    float *bias = (float *)make_bias();
    srand(7);
    int before = num_wrong, num_checked = 0;
    for (int i = 0; i < 100; i++) {
        struct shape s = {"", 16 * (1 + rand() % 200), 8 * (1 + rand() % 300), i % 3 == 2, false};
        struct linear *w = make_linear(s, (uint32_t)i);
        if (i % 3 == 1) w->bias = bias;
        for (int32_t m : {1, 65, 128, 129, 1 + rand() % 700, 1 + rand() % 700})
            for (struct tile t : large_tiles()) {
                bool same = same_bits_large(w, t, m);
                if (!same)
                    printf("wrong bits: %d x %d, %d rows, cluster %d, width %d\n", s.n, s.k, m, t.cluster,
                           t.width);
                num_wrong += !same;
                num_checked++;
            }
        cuda_linears_forget(device);
        cudaFree(w->weight);
    }
    printf("ragged: %d of %d wrong\n", num_wrong - before, num_checked);
}

/* Results that are further from double precision than rounding to bf16 takes them. Gate and up alternate in
 * groups of 8 rows of W. */
static __global__ void count_wrong(const __nv_bfloat16 *out, const __nv_bfloat16 *x, const __nv_bfloat16 *w,
                                   int32_t num_out, int32_t k, bool gate_up, unsigned *num_wrong_results)
{
    for (int32_t i = threadIdx.x; i < num_out; i += blockDim.x) {
        const __nv_bfloat16 *row = x + (size_t)blockIdx.x * k,
                            *gate = w + (size_t)(gate_up ? i / 8 * 16 + i % 8 : i) * k;
        double sum = 0, up = 0;
        for (int32_t j = 0; j < k; j++) {
            sum += (double)__bfloat162float(row[j]) * (double)__bfloat162float(gate[j]);
            if (gate_up)
                up += (double)__bfloat162float(row[j]) * (double)__bfloat162float(gate[8 * (size_t)k + j]);
        }
        double expected = gate_up ? sum / (1 + exp(-sum)) * up : sum;
        double bound = gate_up ? 0x1p-7 * (fabs(expected) + fabs(up) + fabs(sum)) + 1e-3
                               : 0x1p-8 * fabs(expected) + 1e-4;
        if (!(fabs(__bfloat162float(out[(size_t)blockIdx.x * num_out + i]) - expected) <= bound))
            atomicAdd(num_wrong_results, 1);
    }
}

/* The own kernels without cuBLASLt, which compute-sanitizer's racecheck does not survive. */
static void check_alone(void)
{
    unsigned *different, result = 0;
    int num_checked = 0;
    check(cudaMalloc((void **)&different, sizeof *different), "count");
    check(cudaMemsetAsync(different, 0, sizeof *different, device->stream), "count");
    srand(9);
    for (int i = 0; i < 8; i++) {
        struct shape s = {"", 16 * (1 + rand() % 60), 8 * (1 + rand() % 80), i % 2 == 1, false};
        struct linear *w = make_linear(s, (uint32_t)i);
        int32_t num_out = s.gate_up ? s.n / 2 : s.n;
        auto run = [&](int32_t m, const std::function<bool(void)> &product) {
            check(cudaMemsetAsync(out, 0xff, out_bytes(w, m), device->stream), "poison");
            num_wrong += !product();
            count_wrong<<<(unsigned)m, 128, 0, device->stream>>>(
                (__nv_bfloat16 *)out, (__nv_bfloat16 *)x, w->weight, num_out, s.k, s.gate_up, different);
            num_checked++;
        };
        for (int32_t m : {1, 9, 17, 64, 100})
            for (int32_t rows : linear_small_tile_rows)
                run(m, [&] { return cuda_linear_small(device, rows, m, out, x, w, s.gate_up); });
        for (int32_t m : {150, 250})
            run(m, [&] { return cuda_linear_small(device, 112, m, out, x, w, s.gate_up); });
        for (int32_t m : {65, 300})
            for (struct tile t : large_tiles())
                run(m,
                    [&] { return cuda_linear_large(device, t.cluster, t.width, m, out, x, w, s.gate_up); });
        check(cudaStreamSynchronize(device->stream), "products");
        cuda_linears_forget(device);
        cudaFree(w->weight);
    }
    check(cudaMemcpy(&result, different, sizeof result, cudaMemcpyDeviceToHost), "count");
    printf("alone: %d products, %u results further from double precision than rounding\n", num_checked,
           result);
    num_wrong += result > 0;
}

struct sustained {
    double us, joules; /* of a call */
    double watts;
};

/* For so long that the machine's power is what counts. */
static struct sustained run_sustained(struct power_meter *meter, const std::function<void(void)> &call)
{
    double seconds[2] = {0, 0}, joules = 0; /* until the clocks have settled, and from then on */
    int num_calls = 0;
    for (int part = 0; part < 2; part++) {
        joules = power_meter_joules(meter);
        for (auto begin = std::chrono::steady_clock::now(); seconds[part] < 1;) {
            for (int i = 0; i < 4; i++) call();
            check(cudaStreamSynchronize(device->stream), "calls");
            seconds[part] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
            if (part > 0) num_calls += 4;
        }
    }
    joules = power_meter_joules(meter) - joules;
    return {seconds[1] / num_calls * 1e6, joules / num_calls, joules / seconds[1]};
}

/* The four products of layers that together exceed the L2, by cuBLASLt with nothing forbidden and as steps of so many rows run
 * them; of many rows by each cluster, too. */
static void bench_sustained(void)
{
    std::vector<std::vector<struct linear *>> layers(CHAIN_LAYERS);
    struct power_meter meter;
    struct error err = {};
    if (!power_meter_open(&meter)) exit(1);
    for (int i = 0; i < CHAIN_LAYERS; i++)
        for (int j = 0; j < 4; j++) layers[i].push_back(make_linear(shapes[j], (uint32_t)(i * 5 + j)));
    device->limits.num_tokens = ROWS_MAX_LARGE;
    if (cuda_linear_plans(device, &err)) fprintf(stderr, "%s\n", err.text);
    for (int32_t m : {1, 64, 256, 512, (int32_t)ROWS_MAX_LARGE}) {
        std::vector<free_choice> blas;
        double flop = 0;
        for (int j = 0; j < 4; j++) {
            blas.emplace_back(shapes[j], m);
            flop += 2.0 * m * shapes[j].n * shapes[j].k;
        }
        auto print = [&](const char *name, const std::function<void(const struct linear *, int)> &product) {
            struct sustained s = run_sustained(&meter, [&] {
                for (auto &layer : layers)
                    for (int j = 0; j < 4; j++) product(layer[j], j);
            });
            printf("layer of %4d rows, %-22s %7.1f us, %7.4f J, %.0f of %.0f W, %.0f TFLOP/s; J over the "
                   "limit %7.1f us\n",
                   m, name, s.us / CHAIN_LAYERS, s.joules / CHAIN_LAYERS, s.watts, power_meter_limit(&meter),
                   flop * CHAIN_LAYERS / s.us * 1e-6,
                   s.joules / CHAIN_LAYERS / power_meter_limit(&meter) * 1e6);
            fflush(stdout);
        };
        print("cuBLASLt, K split or not", [&](const struct linear *w, int j) { blas[j].run(w); });
        print("as steps run it",
              [&](const struct linear *w, int) { cuda_linear_rows(device, m, out, x, w); });
        for (int32_t cluster : linear_large_clusters)
            if (m == ROWS_MAX_LARGE)
                print(cluster == 1 ? "no clusters" : "clusters of 2", [&](const struct linear *w, int) {
                    cuda_linear_large(device, cluster, 0, m, out, x, w, w->kind == LINEAR_GATE_UP);
                });
    }
    check(device->first_error, device->first_error_where);
    cuda_linears_forget(device);
    for (auto &layer : layers)
        for (struct linear *w : layer) cudaFree(w->weight);
}

static void print_choices(void)
{
    std::vector<struct linear *> all;
    for (int i = 0; i < CHAIN_LAYERS; i++)
        for (int j = 0; j < 4; j++) all.push_back(make_linear(shapes[j], (uint32_t)(i * 5 + j)));
    all.push_back(make_linear(shapes[4], 4));
    device->limits.num_tokens = ROWS_MAX_LARGE;
    device->limits.num_logits = 256;
    for (int run = 0; run < 5; run++) {
        struct error err = {};
        cudaStreamSynchronize(device->stream);
        auto begin = std::chrono::steady_clock::now();
        if (cuda_linear_plans(device, &err)) fprintf(stderr, "%s\n", err.text);
        double ms = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() * 1e3;
        printf("choice, %.0f ms:", ms);
        for (int j = 0; j < 5; j++) {
            printf("  %s", shapes[j].name);
            for (int32_t m : {8, 16, 32, 64, 128, 192, 256, 512, 1024, 2048, 4096, 8192})
                print_choice(cuda_linear_choice(j < 4 ? all[j] : all.back(), m));
        }
        printf("\n");
    }
    cuda_linears_forget(device);
    for (struct linear *w : all) cudaFree(w->weight);
}

static void allocate(int32_t rows)
{
    size_t out_bytes_max = std::max((size_t)rows * 28672 * 2, (size_t)ROWS_MAX * 128256 * 4) + 16;
    check(cudaMalloc(&x, (size_t)rows * 28672 * 2), "x");
    check(cudaMalloc(&out, out_bytes_max), "out");
    check(cudaMalloc(&expected, out_bytes_max), "out");
    check(cudaMalloc((void **)&device->gate_up, (size_t)rows * 28672 * 2), "out");
    fill_random<<<1024, 256, 0, device->stream>>>((__nv_bfloat16 *)x, (size_t)rows * 28672, 3, 1.0f);
}

int main(int argc, char **argv)
{
    struct device_options options = {};
    struct device *opened;
    struct error err = {};
    auto wanted = [&](const char *part) {
        for (int i = 1; i < argc; i++)
            if (!strcmp(argv[i], part)) return true;
        return argc == 1;
    };
    if (cuda_device_open(&options, &opened, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    device = cuda_of(opened);
    device->limits.num_tokens = device->limits.num_logits = ROWS_MAX;
    allocate(ROWS_MAX_LARGE);
    if (wanted("alone")) check_alone();
    if (wanted("order")) check_order();
    if (wanted("few")) {
        printf("shape     M  cuBLASLt ");
        for (int32_t rows : linear_small_tile_rows) printf("%5d   ", rows);
        printf("(us; ! = wrong bits)\n");
        for (const struct shape &s : shapes) bench_shape(s);
    }
    if (wanted("chain")) bench_chain();
    if (wanted("many")) {
        check_ragged();
        printf("us of         cuBLASLt, with SiLU, clusters of 2, tiles of 256, 240, 224, 192, 160, 128; the "
               "best, "
               "what is taken\n");
        for (const struct shape &s : shapes)
            if (!s.wide) bench_many(s);
    }
    if (wanted("portable")) {
        check_portable_ragged(make_bias());
        for (const struct shape &s : shapes) bench_portable(s);
    }
    if (wanted("sustained")) bench_sustained();
    if (wanted("choice")) print_choices();
    printf("%d products with wrong bits\n", num_wrong);
    return num_wrong > 0;
}
