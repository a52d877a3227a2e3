/* bench_linear_fp8.cu - products of bytes, alone: e4m3 by e4m3 and integers by integers.
 *
 * test: shapes that hurt, random rows of bf16 quantised here and by the kernel, scales of rows and of blocks, against double
 * precision; and whatever tile computes them, in however many rows, the same bits. few: microseconds of each tile for the shapes of an 8B
 * model, up to 256 rows, and of a layer's four products in a chain, without and with what quantises their rows. many: TFLOP/s from 128
 * to 8192 rows, and microseconds of quantising them. b: with scales of blocks; i: integers.
 *
 *   bench_linear_fp8 [test | few | many]... */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <vector>

#include "kernels/cuda/bf16.cuh"
#include "kernels/cuda/fp8.cuh"
#include "kernels/cuda/linear_fp8.cuh"
#include "tests/gpu/call_timer.cuh"

extern "C" int cuda_device_open(const struct device_options *options, struct device **out, struct error *err);

enum { CALLS = 12, CHAIN_LAYERS = 6, TURNS = 3, ROWS_MAX = 8192 };
static const double TURN_FLOP = 8e12;
static const size_t ROTATED_BYTES = (size_t)400 << 20;

static const enum byte_form forms[] = {E4M3_OF_ROWS, E4M3_OF_BLOCKS, INT8_OF_ROWS};

static const char *name_of(enum byte_form form)
{
    return form == E4M3_OF_BLOCKS ? " in blocks" : form == INT8_OF_ROWS ? " of integers" : "";
}

static const char *mark_of(enum byte_form form)
{
    return form == E4M3_OF_BLOCKS ? " b" : form == INT8_OF_ROWS ? " i" : "  ";
}

static struct cuda_device *device;
static int num_wrong;

template <typename T> static T *make(size_t count)
{
    T *p;
    check(cudaMalloc((void **)&p, count * sizeof(T)), "memory");
    check(cudaMemset(p, 0, count * sizeof(T)), "memory");
    return p;
}

static __device__ float random_normal(size_t i, uint32_t seed)
{
    uint32_t h = (uint32_t)i * 2654435761u ^ (uint32_t)(i >> 32) ^ seed;
    float sum = 0;
    for (int k = 0; k < 4; k++) {
        h = (h ^ h >> 16) * 0x45d9f3bu;
        h = (h ^ h >> 13) * 0x119de1f3u;
        sum += (float)(h >> 8) * 0x1p-24f;
    }
    return (sum - 2.0f) * 1.7320508f;
}

static __global__ void fill_codes(uint8_t *p, size_t count, uint32_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x)
        p[i] = __nv_cvt_float_to_fp8(random_normal(i, seed) * 90, __NV_SATFINITE, __NV_E4M3);
}

static __global__ void fill_rows(__nv_bfloat16 *p, size_t count, uint32_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x)
        p[i] = __float2bfloat16(random_normal(i, seed) * (i % 97 == 0 ? 20.0f : 1.0f));
}

static __global__ void fill_scales(float *p, size_t count, uint32_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x)
        p[i] = 0.0002f * (1 + fabsf(random_normal(i, seed)));
}

struct weight {
    int32_t n, k, pitch;
    bool gate_up;
    enum byte_form form;
    uint8_t *codes;
    float *scales;
};

static struct weight make_weight(int32_t n, int32_t k, bool gate_up, enum byte_form form, uint32_t seed)
{
    struct weight w = {n, k, (n / 8 + 3) / 4 * 4, gate_up, form, make<uint8_t>((size_t)n * k), NULL};
    size_t num_scales = form == E4M3_OF_BLOCKS ? (size_t)w.pitch * (k / 128) + 64 : (size_t)n;
    w.scales = make<float>(num_scales);
    fill_codes<<<1024, 256, 0, device->stream>>>(w.codes, (size_t)n * k, seed);
    fill_scales<<<64, 256, 0, device->stream>>>(w.scales, num_scales, seed + 1);
    return w;
}

static void free_weight(struct weight *w)
{
    cudaFree(w->codes);
    cudaFree(w->scales);
}

/* Rows of x, as bf16 and quantised. */
struct rows {
    int32_t pitch;
    __nv_bfloat16 *values;
    uint8_t *codes;
    float *scales;
};

static struct rows make_rows(int32_t num, int32_t k)
{
    struct rows r = {num + 256, make<__nv_bfloat16>((size_t)num * k), make<uint8_t>((size_t)num * k),
                     make<float>((size_t)(num + 256) * (k / 128) + 256)};
    return r;
}

static struct fp8_product product_of(const struct weight &w, const struct rows &x, int32_t first, int32_t num,
                                     void *out, const float *bias)
{
    struct fp8_product p = {};
    p.out = out;
    p.bias = bias;
    p.rows = num;
    p.n = w.n;
    p.k = w.k;
    p.x = x.codes + (size_t)first * w.k;
    p.w = w.codes;
    p.x_scales = x.scales + first;
    p.w_scales = w.scales;
    p.x_pitch = x.pitch;
    p.w_pitch = w.pitch;
    p.form = w.form;
    p.silu_mul = w.gate_up;
    return p;
}

/* ---- test ---- */

static __host__ __device__ double code_value(enum byte_form form, uint8_t code)
{
    if (form == INT8_OF_ROWS) return (int8_t)code;
    return (double)__half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3)));
}

/* One thread for each element of the product: its value, and the sum of magnitudes. */
static __global__ void reference_kernel(double *out, double *magnitudes, struct fp8_product p)
{
    int32_t n = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y;
    if (n >= p.n) return;
    double sum = 0, magnitude = 0;
    for (int32_t k = 0; k < p.k; k++) {
        double scale = p.form == E4M3_OF_BLOCKS ? (double)p.x_scales[(size_t)(k / 128) * p.x_pitch + m] *
                                                      p.w_scales[(size_t)(k / 128) * p.w_pitch + n / 8]
                                                : (double)p.x_scales[m] * p.w_scales[n];
        double v = code_value(p.form, p.x[(size_t)m * p.k + k]) *
                   code_value(p.form, p.w[(size_t)n * p.k + k]) * scale;
        sum += v;
        magnitude += fabs(v);
    }
    out[(size_t)m * p.n + n] = sum;
    magnitudes[(size_t)m * p.n + n] = magnitude;
}

static float bf16_value(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float v;
    memcpy(&v, &word, 4);
    return v;
}

template <typename T> static std::vector<T> fetch(const T *from, size_t count)
{
    std::vector<T> v(count);
    check(cudaStreamSynchronize(device->stream), "kernels");
    check(cudaMemcpy(v.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost), "copy");
    return v;
}

/* Each code is nearest to what it stands for, and the largest of each scale's values is 448, of integers 127. */
static void test_quantise(int32_t num, int32_t k, enum byte_form form, const struct rows &x)
{
    std::vector<uint16_t> values = fetch((const uint16_t *)x.values, (size_t)num * k);
    std::vector<uint8_t> codes = fetch(x.codes, (size_t)num * k);
    const bool in_blocks = form == E4M3_OF_BLOCKS, has_integers = form == INT8_OF_ROWS;
    std::vector<float> scales = fetch(x.scales, (size_t)x.pitch * (in_blocks ? k / 128 : 1));
    int wrong = 0, step = in_blocks ? 128 : k;
    for (int32_t m = 0; m < num; m++)
        for (int32_t first = 0; first < k; first += step) {
            float most = 0, scale = in_blocks ? scales[(size_t)(first / 128) * x.pitch + m] : scales[m];
            for (int i = first; i < first + step; i++)
                most = std::max(most, fabsf(bf16_value(values[(size_t)m * k + i])));
            wrong += !(fabsf(scale * (has_integers ? 127 : 448) - most) <= 1e-6f * most);
            for (int i = first; i < first + step; i++) {
                uint8_t code = codes[(size_t)m * k + i];
                float v = bf16_value(values[(size_t)m * k + i]), magnitude = fabsf(v);
                float got = scale * (float)code_value(form, code);
                float bound = has_integers ? scale / 2 : std::max(magnitude / 16, scale * 0x1p-10f);
                wrong += !(fabsf(got - v) <= bound * 1.001f);
            }
        }
    if (wrong) printf("quantise %d x %d%s: %d wrong\n", num, k, name_of(form), wrong);
    num_wrong += wrong > 0;
}

typedef std::function<bool(const struct fp8_product *)> kernel;

static std::vector<int32_t> widths_for(bool gated)
{
    std::vector<int32_t> all;
    for (int32_t width : linear_fp8_widths)
        if (!gated || width != LINEAR_FP8_NARROW) all.push_back(width);
    return all;
}

static std::vector<kernel> kernels_for(int32_t rows, bool gated)
{
    std::vector<kernel> all;
    if (rows <= LINEAR_FP8_SMALL_ROWS_MAX)
        for (int32_t t : linear_fp8_tile_rows)
            all.push_back([t](const struct fp8_product *p) { return cuda_linear_fp8_small(device, t, p); });
    for (int32_t width : widths_for(gated))
        all.push_back(
            [width](const struct fp8_product *p) { return cuda_linear_fp8_large(device, width, p); });
    return all;
}

static void test_shape(int32_t n, int32_t k, enum byte_form form, bool with_bias, uint32_t seed)
{
    const int32_t num = 300;
    struct weight w = make_weight(n, k, false, form, seed);
    struct rows x = make_rows(num, k);
    float *bias = with_bias ? make<float>((size_t)n) : NULL;
    uint16_t *out = make<uint16_t>((size_t)num * n + 64);
    double *sums = make<double>((size_t)num * n), *magnitudes = make<double>((size_t)num * n);
    fill_rows<<<256, 256, 0, device->stream>>>(x.values, (size_t)num * k, seed + 2);
    if (bias) fill_scales<<<8, 256, 0, device->stream>>>(bias, (size_t)n, seed + 3);
    cuda_quantise_rows(device, num, k, x.values, x.codes, x.scales, x.pitch, form);
    test_quantise(num, k, form, x);
    struct fp8_product whole = product_of(w, x, 0, num, out, bias);
    reference_kernel<<<dim3((unsigned)(n + 127) / 128, num), 128, 0, device->stream>>>(sums, magnitudes,
                                                                                       whole);
    std::vector<double> expected = fetch(sums, (size_t)num * n), bounds = fetch(magnitudes, (size_t)num * n);
    std::vector<float> biases = bias ? fetch(bias, (size_t)n) : std::vector<float>((size_t)n);
    std::vector<uint16_t> first_bits;
    double worst = 0;
    for (int32_t m : {300, 257, 256, 193, 129, 128, 127, 65, 64, 33, 32, 17, 16, 9, 8, 7, 3, 1}) {
        int32_t first =
            m == 300 ? 0 : (int32_t)(seed % (uint32_t)(num - m)) / 4 * 4; /* scales are fetched 4 at a time */
        int index = 0;
        for (const kernel &run : kernels_for(m, false)) {
            struct fp8_product p = product_of(w, x, first, m, out, bias);
            check(cudaMemsetAsync(out, 0xff, ((size_t)num * n + 64) * 2, device->stream), "poison");
            if (!run(&p)) {
                printf("%d x %d, %d rows: not launched\n", n, k, m);
                num_wrong++;
                continue;
            }
            std::vector<uint16_t> bits = fetch(out, (size_t)num * n + 64);
            int wrong = 0, different = 0, beyond = 0;
            for (size_t i = (size_t)m * n; i < bits.size(); i++) beyond += bits[i] != 0xffff;
            for (size_t i = 0; i < (size_t)m * n; i++) {
                size_t at = (size_t)first * n + i;
                double e = expected[at] + biases[i % n], got = bf16_value(bits[i]);
                double off = fabs(got - e) - 0x1p-8 * (fabs(e) + fabs(expected[at]));
                worst = std::max(worst, off / bounds[at]);
                wrong += !(off <= (form == INT8_OF_ROWS ? 0x1p-21 : 0x1p-11) * bounds[at]);
                if (!first_bits.empty()) different += bits[i] != first_bits[at];
            }
            if (first_bits.empty()) first_bits = bits;
            if (wrong || different || beyond)
                printf("%d x %d%s, %d rows from %d, kernel %d: %d off, %d with other bits, %d beyond\n", n, k,
                       name_of(form), m, first, index, wrong, different, beyond);
            num_wrong += wrong || different || beyond;
            index++;
        }
    }
    printf("test %d x %d%s: worst beyond rounding %.1e of the magnitudes\n", n, k, name_of(form), worst);
    check(device->first_error, device->first_error_where);
    free_weight(&w);
    for (void *p : {(void *)x.values, (void *)x.codes, (void *)x.scales, (void *)bias, (void *)out,
                    (void *)sums, (void *)magnitudes})
        cudaFree(p);
}

static double silu_mul_of(double gate, double up)
{
    return gate / (1 + exp(-gate)) * up;
}

/* Gate and up: what the epilogue makes of the same product's bits. */
static void test_gated(int32_t n, int32_t k, enum byte_form form, uint32_t seed)
{
    const int32_t num = 200;
    struct weight w = make_weight(n, k, true, form, seed);
    struct rows x = make_rows(num, k);
    uint16_t *out = make<uint16_t>((size_t)num * n);
    fill_rows<<<256, 256, 0, device->stream>>>(x.values, (size_t)num * k, seed + 2);
    cuda_quantise_rows(device, num, k, x.values, x.codes, x.scales, x.pitch, form);
    std::vector<uint16_t> first_bits;
    for (int32_t m : {200, 128, 100, 32, 1}) {
        int index = 0;
        for (const kernel &run : kernels_for(m, true)) {
            struct fp8_product p = product_of(w, x, 0, m, out, NULL);
            p.silu_mul = false;
            run(&p);
            std::vector<uint16_t> plain = fetch(out, (size_t)m * n);
            p.silu_mul = true;
            run(&p);
            std::vector<uint16_t> gated = fetch(out, (size_t)m * n / 2);
            int wrong = 0, different = 0;
            for (int32_t i = 0; i < m; i++)
                for (int32_t j = 0; j < n / 2; j++) {
                    const uint16_t *pair = &plain[(size_t)i * n + j / 8 * 16 + j % 8];
                    double e = silu_mul_of(bf16_value(pair[0]), bf16_value(pair[8])),
                           got = bf16_value(gated[(size_t)i * n / 2 + j]);
                    wrong += !(fabs(got - e) <= 0.005 * fabs(e) + 1e-6 * fabs(bf16_value(pair[8])) + 1e-30);
                    if (!first_bits.empty())
                        different += gated[(size_t)i * n / 2 + j] != first_bits[(size_t)i * n / 2 + j];
                }
            if (first_bits.empty()) first_bits = gated;
            if (wrong || different)
                printf("gated %d x %d, %d rows, kernel %d: %d off, %d with other bits\n", n, k, m, index,
                       wrong, different);
            num_wrong += wrong || different;
            index++;
        }
    }
    free_weight(&w);
    for (void *p : {(void *)x.values, (void *)x.codes, (void *)x.scales, (void *)out}) cudaFree(p);
}

static void test(uint32_t seed)
{
    for (enum byte_form form : forms) {
        test_shape(576, 576 / 128 * 128, form, true, seed++);
        test_shape(4096, 4096, form, false, seed++);
        test_shape(6160, 1152, form, true, seed++);
        test_shape(16, 128, form, false, seed++);
        test_shape(1360, 14336, form, false, seed++);
        test_gated(2048, 1024, form, seed++);
        test_gated(3104, 384, form, seed++);
    }
    printf("test: %d wrong\n", num_wrong);
}

/* ---- times ---- */

struct shape {
    const char *name;
    int32_t n, k;
    bool gate_up;
};

static const struct shape shapes[] = {{"qkv", 6144, 4096, false},
                                      {"o", 4096, 4096, false},
                                      {"gate_up", 28672, 4096, true},
                                      {"down", 4096, 14336, false}};

static std::vector<struct weight> make_rotation(const struct shape &s, enum byte_form form)
{
    std::vector<struct weight> all;
    size_t bytes = (size_t)s.n * s.k;
    for (size_t i = 0; i * bytes < ROTATED_BYTES; i++)
        all.push_back(make_weight(s.n, s.k, s.gate_up, form, (uint32_t)(17 * i + s.n)));
    return all;
}

static int32_t best_tile[4][16]; /* index into kernels_for, of [shape][rows] */
static const int32_t few_rows[] = {1, 8, 16, 32, 64, 128, 256};

static struct rows bench_rows(void)
{
    static struct rows r = [] {
        struct rows made = make_rows(ROWS_MAX, 14336);
        fill_rows<<<1024, 256, 0, device->stream>>>(made.values, (size_t)ROWS_MAX * 14336, 3);
        return made;
    }();
    return r;
}

static void *bench_out(void)
{
    static uint8_t *out = make<uint8_t>((size_t)ROWS_MAX * 28672 * 2);
    return out;
}

static void bench_few(enum byte_form form)
{
    struct rows x = bench_rows();
    for (size_t j = 0; j < std::size(shapes); j++) {
        const struct shape &s = shapes[j];
        std::vector<struct weight> all = make_rotation(s, form);
        cuda_quantise_rows(device, 256, s.k, x.values, x.codes, x.scales, x.pitch, form);
        for (size_t i = 0; i < std::size(few_rows); i++) {
            int32_t m = few_rows[i], index = 0;
            double best = 1e30;
            printf("%-8s %3d%s ", s.name, m, mark_of(form));
            for (const kernel &run : kernels_for(m, s.gate_up)) {
                double us = time_graph(device, CALLS, [&](int c) {
                    struct fp8_product p = product_of(all[c % all.size()], x, 0, m, bench_out(), NULL);
                    return run(&p);
                });
                printf("%8.1f", us);
                if (us > 0 && us < best) best = us, best_tile[j][i] = index;
                index++;
            }
            double quantise = time_graph(device, CALLS, [&](int) {
                return cuda_quantise_rows(device, m, s.k, x.values, x.codes, x.scales, x.pitch, form);
            });
            printf("   %.2f TB/s   quantise %.1f\n", (double)s.n * s.k / best * 1e-6, quantise);
            fflush(stdout);
        }
        for (struct weight &w : all) free_weight(&w);
    }
}

static void bench_chain(enum byte_form form)
{
    struct rows x = bench_rows();
    std::vector<std::vector<struct weight>> layers(CHAIN_LAYERS);
    for (int i = 0; i < CHAIN_LAYERS; i++)
        for (const struct shape &s : shapes)
            layers[i].push_back(make_weight(s.n, s.k, s.gate_up, form, (uint32_t)(i * 5 + s.n)));
    for (size_t i = 0; i < std::size(few_rows); i++) {
        int32_t m = few_rows[i];
        std::vector<kernel> kernels =
            kernels_for(m, false); /* the narrow width, which gated products have not, is the last */
        auto product = [&](int c) {
            struct fp8_product p = product_of(layers[c / 4][c % 4], x, 0, m, bench_out(), NULL);
            return kernels[best_tile[c % 4][i]](&p);
        };
        double alone = time_graph(device, CHAIN_LAYERS * 4, product);
        double both = time_graph(device, CHAIN_LAYERS * 4, [&](int c) {
            cuda_quantise_rows(device, m, shapes[c % 4].k, x.values, x.codes, x.scales, x.pitch, form);
            return product(c);
        });
        printf("chain%s %3d: %.1f us a layer, %.1f with rows quantised\n", mark_of(form), m, alone * 4,
               both * 4);
        fflush(stdout);
    }
    for (auto &layer : layers)
        for (struct weight &w : layer) free_weight(&w);
}

static void bench_many(enum byte_form form)
{
    struct rows x = bench_rows();
    for (const struct shape &s : shapes) {
        struct weight w = make_weight(s.n, s.k, s.gate_up, form, 5);
        for (int32_t m : {128, 256, 512, 1024, 2048, 8192}) {
            double flop = 2.0 * m * s.n * s.k;
            int num_calls = std::max(3, (int)(TURN_FLOP / flop));
            cuda_quantise_rows(device, m, s.k, x.values, x.codes, x.scales, x.pitch, form);
            printf("%-8s %4d%s ", s.name, m, mark_of(form));
            std::vector<std::function<bool(void)>> calls;
            for (int32_t width : widths_for(s.gate_up))
                calls.push_back([&, width] {
                    struct fp8_product p = product_of(w, x, 0, m, bench_out(), NULL);
                    return cuda_linear_fp8_large(device, width, &p);
                });
            calls.push_back([&] {
                return cuda_quantise_rows(device, m, s.k, x.values, x.codes, x.scales, x.pitch, form);
            });
            std::vector<double> us = time_in_turns(device, calls, num_calls, TURNS);
            for (double each : us) printf("%9.1f", each);
            double least = *std::min_element(us.begin(), us.end() - 1);
            printf("   %5.0f TFLOP/s\n", flop / least * 1e-6);
            fflush(stdout);
        }
        free_weight(&w);
    }
}

int main(int argc, char **argv)
{
    struct device_options options = {};
    struct error err = {};
    struct device *opened;
    options.cuda_device = 0;
    if (cuda_device_open(&options, &opened, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 2;
    }
    device = (struct cuda_device *)opened;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "test")) test((uint32_t)time(NULL));
        for (enum byte_form form : forms) {
            if (!strcmp(argv[i], "few")) {
                bench_few(form);
                bench_chain(form);
            }
            if (!strcmp(argv[i], "many")) bench_many(form);
        }
    }
    return num_wrong > 0;
}
