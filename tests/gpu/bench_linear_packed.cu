/* bench_linear_packed.cu - products with weights of four bits, alone.
 *
 * For each shape of an 8B model and each number of rows: microseconds of each kernel and tile, t: linear_packed.cu's rows of W a
 * CTA, each with its best number of rows of x a CTA; r: linear_relay.cu's rows of W. chain: a layer's four products, each by what was
 * fastest. Random codes and scales; bits must be those of the plain product of the same weights as bf16, also of shapes that no tile
 * divides, or the program fails.
 *
 *   bench_linear_packed [int4 | int4-32 | symmetric | symmetric-32 | e2m1-32 | e2m1-16]... */
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "kernels/cuda/linear_packed.cuh"
#include "kernels/cuda/linear_plain.cuh"
#include "kernels/cuda/packed.cuh"
#include "tests/gpu/call_timer.cuh"
#include "tests/gpu/random_values.cuh"

extern "C" int cuda_device_open(const struct device_options *options, struct device **out, struct error *err);

enum { CALLS = 12, CHAIN_LAYERS = 6, ROWS_MAX = 640, K_MAX = 14336, N_MAX = 28672 };
static const size_t ROTATED_BYTES = (size_t)400 << 20;

struct shape {
    const char *name;
    int32_t n, k;
    bool gate_up;
};

static const struct shape shapes[] = {{"qkv", 6144, 4096, false},
                                      {"o", 4096, 4096, false},
                                      {"gate_up", 28672, 4096, true},
                                      {"down", 4096, 14336, false}};

struct format {
    const char *name;
    enum linear_format format;
    int32_t scales;
};

static const struct format formats[] = {{"int4", LINEAR_INT4, 1},
                                        {"int4-32", LINEAR_INT4, 4},
                                        {"symmetric", LINEAR_INT4_SYMMETRIC, 1},
                                        {"symmetric-32", LINEAR_INT4_SYMMETRIC, 4},
                                        {"e2m1-32", LINEAR_E2M1, 4},
                                        {"e2m1-16", LINEAR_E2M1, 8}};

static struct cuda_device *device;
static void *x, *out;
static __nv_bfloat16 *unpacked;
static int num_wrong;

/* A random scale of some 2^-7 as packed.cuh has it: with a low part and a zero point, 8, or a power of two as MXFP4's. */
static __device__ uint32_t random_scale(int format, int32_t scales, uint32_t h)
{
    const uint32_t mantissa = h & 0x7f, sign = h >> 8 & 0x8000;
    if (format == LINEAR_INT4) return (127 << 7 | mantissa) << 16 | sign | (127 - 9) << 7 | (h >> 24 & 15);
    if (format == LINEAR_INT4_SYMMETRIC)
        return ((120 + 126) << 7 | mantissa) << 16 | 0x8000 | (120 - 4) << 7 | mantissa;
    return ((120 + 126 - 7) << 7 | (scales == 4 ? 0 : mantissa)) << 16;
}

/* Codes of all values, and scales. */
static __global__ void fill_packed(uint32_t *p, size_t num_words, int32_t scales, int format, uint32_t seed)
{
    int32_t block = (PACKED_CODES_BYTES + PACKED_ROWS * 4 * scales) / 4;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < num_words;
         i += (size_t)gridDim.x * blockDim.x) {
        uint32_t h = random_word(i, seed);
        p[i] = (int32_t)(i % block) < PACKED_CODES_BYTES / 4 ? h : random_scale(format, scales, h);
    }
}

static struct linear *make_linear(const struct shape &s, const struct format &f, uint32_t seed)
{
    struct linear *w = new struct linear();
    w->n = s.n;
    w->k = s.k;
    w->kind = s.gate_up ? LINEAR_GATE_UP : LINEAR_PLAIN;
    w->format = f.format;
    w->packed_scales = f.scales;
    size_t bytes = packed_bytes(w);
    check(cudaMalloc((void **)&w->packed, bytes), "weights");
    fill_packed<<<1024, 256, 0, device->stream>>>((uint32_t *)w->packed, bytes / 4, f.scales, f.format, seed);
    return w;
}

static std::vector<struct linear *> make_rotation(const struct shape &s, const struct format &f)
{
    std::vector<struct linear *> all;
    for (size_t i = 0; i * s.n * s.k / 2 < ROTATED_BYTES; i++)
        all.push_back(make_linear(s, f, (uint32_t)(17 * i + s.n)));
    return all;
}

static void free_rotation(std::vector<struct linear *> &all)
{
    for (struct linear *w : all) {
        cudaFree(w->packed);
        delete w;
    }
    all.clear();
}

/* columns: 0 is linear_relay.cu. */
struct choice {
    int32_t tile_rows, columns;
};

static bool run(const struct choice &c, int32_t rows, const struct linear *w, bool silu)
{
    return c.columns == 0 ? cuda_linear_relay(device, c.tile_rows, rows, out, x, w, silu)
                          : cuda_linear_packed(device, c.tile_rows, c.columns, rows, out, x, w, silu);
}

static std::vector<uint16_t> fetch(size_t count)
{
    std::vector<uint16_t> values(count);
    check(cudaStreamSynchronize(device->stream), "product");
    check(cudaMemcpy(values.data(), out, count * 2, cudaMemcpyDeviceToHost), "copy");
    return values;
}

/* With the gate, which the plain product does not have: as linear_packed.cu has it. */
static bool has_gated_bits(const struct choice &c, int32_t rows, const struct linear *w)
{
    size_t count = (size_t)rows * w->n / 2;
    check(cudaMemsetAsync(out, 0xff, count * 2, device->stream), "memset");
    if (!run(c, rows, w, true)) return true;
    std::vector<uint16_t> got = fetch(count);
    run({64, std::min(rows, (int32_t)LINEAR_PACKED_COLUMNS)}, rows, w, true);
    return got == fetch(count);
}

static bool has_plain_bits(const struct choice &c, int32_t rows, const struct linear *w)
{
    struct linear plain = *w;
    plain.format = LINEAR_BF16;
    plain.weight = unpacked;
    check(cudaMemsetAsync(out, 0xff, (size_t)rows * w->n * 2, device->stream), "memset");
    bool ran = run(c, rows, w, false);
    return !ran || cuda_linear_is_plain(device, rows, out, x, &plain);
}

static std::vector<struct choice> choices_for(int32_t rows, int32_t tile_rows, bool relay)
{
    std::vector<struct choice> all;
    if (relay) {
        if (rows <= LINEAR_RELAY_ROWS) all.push_back({tile_rows, 0});
        return all;
    }
    if (rows > LINEAR_PACKED_COLUMNS) {
        if (tile_rows == 64)
            for (int32_t columns : linear_packed_columns) all.push_back({tile_rows, columns});
        return all;
    }
    for (int32_t parts = 1; parts <= 4; parts++) {
        int32_t columns = rows / parts;
        if (parts > 1 && (rows % parts != 0 || columns % 32 != 0 || columns < 64)) continue;
        all.push_back({tile_rows, columns});
    }
    return all;
}

static void count_wrong(const struct choice &c, int32_t rows, const struct linear *w)
{
    if (has_plain_bits(c, rows, w) && (w->kind != LINEAR_GATE_UP || has_gated_bits(c, rows, w))) return;
    printf("!");
    num_wrong++;
}

/* Shapes that neither tiles nor stages divide. */
static void check_ragged(const struct format &f)
{
    static const struct shape ragged[] = {
        {"", 160, 1600, true}, {"", 48, 4160, false}, {"", 4112, 128, true}, {"", 64, 72, false}};
    for (const struct shape &s : ragged) {
        std::vector<struct linear *> one = {make_linear(s, f, 5)};
        packed_unpack(device, one[0], unpacked);
        for (int32_t rows : {1, 7, 8, 9, 16, 17, 31, 33, 64, 65, 130, 300, 521})
            for (int32_t tile_rows : linear_packed_tile_rows)
                for (bool relay : {false, true})
                    for (const struct choice &c : choices_for(rows, tile_rows, relay && tile_rows <= 64))
                        count_wrong(c, rows, one[0]);
        free_rotation(one);
    }
}

/* Microseconds of the best number of columns, or a negative number. */
static double bench_tile(const std::vector<struct linear *> &all, int32_t rows, int32_t tile_rows, bool relay,
                         struct choice *best)
{
    double us = -1;
    for (const struct choice &c : choices_for(rows, tile_rows, relay)) {
        double one = time_graph(device, CALLS, [&](int i) {
            const struct linear *w = all[(size_t)i % all.size()];
            return run(c, rows, w, w->kind == LINEAR_GATE_UP);
        });
        if (one <= 0) continue;
        count_wrong(c, rows, all[0]);
        if (us < 0 || one < us) {
            us = one;
            *best = c;
        }
    }
    return us;
}

static void bench_format(const struct format &f)
{
    static const int32_t rows_of[] = {1, 4, 8, 16, 32, 64, 128, 256, 300, 512};
    struct choice best[std::size(shapes)][std::size(rows_of)] = {};
    check_ragged(f);
    printf("%s\nshape      M     t32     t64    t128     r32     r64   (us; TB/s of packed bytes)\n", f.name);
    for (size_t s = 0; s < std::size(shapes); s++) {
        std::vector<struct linear *> all = make_rotation(shapes[s], f);
        packed_unpack(device, all[0], unpacked);
        for (size_t m = 0; m < std::size(rows_of); m++) {
            double least = -1;
            printf("%-8s %3d", shapes[s].name, rows_of[m]);
            for (int i = 0; i < 5; i++) {
                struct choice c = {};
                int32_t tile = i < 3 ? linear_packed_tile_rows[i] : linear_relay_tile_rows[i - 3];
                double us = bench_tile(all, rows_of[m], tile, i >= 3, &c);
                printf(us < 0 ? "       -" : " %7.1f", us);
                if (us > 0 && (least < 0 || us < least)) {
                    least = us;
                    best[s][m] = c;
                }
            }
            printf("   %.2f\n", (double)packed_bytes(all[0]) / least * 1e-6);
            fflush(stdout);
        }
        free_rotation(all);
    }
    std::vector<struct linear *> layers;
    for (int i = 0; i < CHAIN_LAYERS; i++)
        for (const struct shape &s : shapes) layers.push_back(make_linear(s, f, (uint32_t)(i + s.n)));
    printf("chain");
    for (size_t m = 0; m < std::size(rows_of); m++) {
        double us = time_graph(device, (int)layers.size(), [&](int i) {
            const struct linear *w = layers[(size_t)i];
            return run(best[i % 4][m], rows_of[m], w, w->kind == LINEAR_GATE_UP);
        });
        printf("  %d: %.1f", rows_of[m], us * 4);
    }
    printf("\n");
    free_rotation(layers);
}

int main(int argc, char **argv)
{
    struct device_options options = {};
    struct device *opened;
    struct error err = {};
    if (cuda_device_open(&options, &opened, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    device = cuda_of(opened);
    device->limits.num_tokens = device->limits.num_logits = ROWS_MAX;
    check(cudaMalloc(&x, (size_t)ROWS_MAX * K_MAX * 2), "x");
    check(cudaMalloc(&out, (size_t)ROWS_MAX * N_MAX * 2), "out");
    check(cudaMalloc((void **)&unpacked, (size_t)N_MAX * 4096 * 2), "unpacked");
    fill_x<<<1024, 256, 0, device->stream>>>((__nv_bfloat16 *)x, (size_t)ROWS_MAX * K_MAX);
    for (const struct format &f : formats) {
        bool wanted = argc == 1 && f.scales == 1;
        for (int i = 1; i < argc; i++) wanted |= !strcmp(argv[i], f.name);
        if (wanted) bench_format(f);
    }
    printf("%d products with wrong bits\n", num_wrong);
    return num_wrong > 0;
}
