/* bench_linear_blocks.cu - products of few rows with weights in a GGUF file's blocks, alone.
 *
 * For each shape of an 8B model, or a 70B one, and each number of rows up to 64: microseconds of linear_blocks.cu for each number of rows
 * of W a CTA, and the rate of the best one; last, of unpacking the weight whole. Random codes, small scales; bits must be those of
 * the plain product of the same weights as bf16, also of shapes that no tile divides, or the program fails.
 *
 *   bench_linear_blocks [70b] [q4_k | q5_k | q6_k | q8_0 | ...]... */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <vector>

#include "kernels/cuda/blocks.cuh"
#include "kernels/cuda/linear_blocks.cuh"
#include "kernels/cuda/linear_plain.cuh"
#include "tests/gpu/call_timer.cuh"
#include "tests/gpu/random_values.cuh"

extern "C" int cuda_device_open(const struct device_options *options, struct device **out, struct error *err);

enum { CALLS = 12, ROWS_MAX = 64, K_MAX = 28672, N_MAX = 57344 };
static const size_t ROTATED_BYTES = (size_t)400 << 20, UNPACKED_BYTES = (size_t)N_MAX * 8192 * 2;

struct shape {
    const char *name;
    int32_t n, k;
    bool gate_up;
};

static const struct shape shapes_8b[] = {{"qkv", 6144, 4096, false},
                                         {"o", 4096, 4096, false},
                                         {"gate_up", 28672, 4096, true},
                                         {"down", 4096, 14336, false}};
static const struct shape shapes_70b[] = {{"qkv", 10240, 8192, false},
                                          {"o", 8192, 8192, false},
                                          {"gate_up", 57344, 8192, true},
                                          {"down", 8192, 28672, false}};

static struct cuda_device *device;
static void *x, *out;
static __nv_bfloat16 *unpacked;
static int num_wrong;

static __global__ void fill_codes(unsigned char *p, size_t bytes, uint32_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < bytes;
         i += (size_t)gridDim.x * blockDim.x)
        p[i] = (unsigned char)random_word(i, seed);
}

/* At so many bytes of each block one scale of f16, or two, of either sign and some 2^-10; of MXFP4 one of a byte. */
static __global__ void fill_scales(unsigned char *p, size_t num_blocks, int32_t block_bytes, int32_t at,
                                   int32_t num_scales, uint32_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < num_blocks;
         i += (size_t)gridDim.x * blockDim.x) {
        unsigned char *scale = p + i * block_bytes + at;
        if (num_scales == 0) *scale = (unsigned char)(118 + random_word(i, seed) % 4);
        for (int j = 0; j < num_scales; j++)
            *(uint16_t *)(scale + 2 * j) = (uint16_t)((random_word(2 * i + j, seed) & 0x83ff) | 5 << 10);
    }
}

static void fill_part(const struct linear *w, const struct block_part &p, uint32_t seed)
{
    const enum dtype t = p.dtype;
    const int32_t num_scales = t == DTYPE_MXFP4 ? 0
                               : t == DTYPE_Q4_1 || t == DTYPE_Q5_1 || t == DTYPE_Q4_K || t == DTYPE_Q5_K ||
                                       t == DTYPE_Q2_K
                                   ? 2
                                   : 1,
                  at = t == DTYPE_Q6_K   ? 208
                       : t == DTYPE_Q2_K ? 80
                       : t == DTYPE_Q3_K ? 108
                                         : 0,
                  block_bytes = dtype_infos[t].block_bytes;
    unsigned char *blocks = w->packed + p.offset;
    const size_t bytes = (size_t)p.num_rows * p.row_bytes;
    fill_codes<<<1024, 256, 0, device->stream>>>(blocks, bytes, seed);
    fill_scales<<<1024, 256, 0, device->stream>>>(blocks, bytes / (size_t)block_bytes, block_bytes, at,
                                                  num_scales, seed + 1);
}

static struct linear *make_linear(const struct shape &s, enum dtype dtype, uint32_t seed)
{
    struct linear_desc desc = {};
    struct linear *w = new struct linear();
    desc.num_parts = s.gate_up ? 2 : 1;
    for (int i = 0; i < desc.num_parts; i++)
        desc.parts[i] = weight_view_plain(NULL, dtype, s.n / desc.num_parts, s.k);
    w->n = s.n;
    w->k = s.k;
    w->kind = s.gate_up ? LINEAR_GATE_UP : LINEAR_PLAIN;
    w->format = LINEAR_BLOCKS;
    blocks_place(w, &desc);
    check(cudaMalloc((void **)&w->packed, blocks_bytes(w)), "weights");
    for (int i = 0; i < desc.num_parts; i++) fill_part(w, w->blocks[i], seed + 3 * (uint32_t)i);
    return w;
}

static void free_linears(std::vector<struct linear *> &all)
{
    for (struct linear *w : all) {
        cudaFree(w->packed);
        delete w;
    }
    all.clear();
}

/* w: unpacked already. */
static void count_wrong(int32_t tile_rows, int32_t rows, const struct linear *w)
{
    struct linear plain = *w;
    plain.format = LINEAR_BF16;
    plain.weight = unpacked;
    check(cudaMemsetAsync(out, 0xff, (size_t)rows * w->n * 2, device->stream), "memset");
    if (!cuda_linear_blocks(device, tile_rows, rows, out, x, w, false) ||
        cuda_linear_is_plain(device, rows, out, x, &plain))
        return;
    printf("!");
    num_wrong++;
}

/* Shapes that neither tiles nor chunks divide. */
static void check_ragged(enum dtype dtype)
{
    static const struct shape ragged[] = {
        {"", 160, 1792, true}, {"", 49, 4352, false}, {"", 4117, 256, false}, {"", 64, 1440, false}};
    for (const struct shape &s : ragged) {
        if (s.k % dtype_infos[dtype].block_values != 0) continue;
        std::vector<struct linear *> one = {make_linear(s, dtype, 5)};
        blocks_unpack(device, one[0], 1, unpacked);
        for (int32_t rows : {1, 7, 8, 9, 16, 17, 31, 33, 64})
            for (int32_t tile_rows : linear_blocks_tile_rows) count_wrong(tile_rows, rows, one[0]);
        free_linears(one);
    }
}

static void bench_shape(const struct shape &s, enum dtype dtype)
{
    std::vector<struct linear *> all;
    for (size_t bytes = 0; bytes < ROTATED_BYTES; bytes += blocks_bytes(all.back()))
        all.push_back(make_linear(s, dtype, (uint32_t)(17 * all.size() + s.n)));
    blocks_unpack(device, all[0], 1, unpacked);
    for (int32_t rows : {1, 4, 8, 16, 32, 64}) {
        double least = -1;
        printf("%-8s %3d", s.name, rows);
        for (int32_t tile_rows : linear_blocks_tile_rows) {
            double us = time_graph(device, CALLS, [&](int i) {
                return cuda_linear_blocks(device, tile_rows, rows, out, x, all[(size_t)i % all.size()],
                                          s.gate_up);
            });
            count_wrong(tile_rows, rows, all[0]);
            printf(us <= 0 ? "       -" : " %7.1f", us);
            if (us > 0 && (least < 0 || us < least)) least = us;
        }
        printf("   %.2f\n", (double)blocks_bytes(all[0]) / least * 1e-6);
        fflush(stdout);
    }
    printf("%-8s unpacking %.1f\n", s.name, time_graph(device, CALLS, [&](int i) {
               blocks_unpack(device, all[(size_t)i % all.size()], 1, unpacked);
               return true;
           }));
    free_linears(all);
}

int main(int argc, char **argv)
{
    struct device_options options = {};
    struct device *opened;
    struct error err = {};
    bool is_70b = false, any = false;
    if (cuda_device_open(&options, &opened, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    device = cuda_of(opened);
    device->limits.num_tokens = device->limits.num_logits = ROWS_MAX;
    check(cudaMalloc(&x, (size_t)ROWS_MAX * K_MAX * 2), "x");
    check(cudaMalloc(&out, (size_t)ROWS_MAX * N_MAX * 2), "out");
    check(cudaMalloc((void **)&unpacked, UNPACKED_BYTES), "unpacked");
    fill_x<<<1024, 256, 0, device->stream>>>((__nv_bfloat16 *)x, (size_t)ROWS_MAX * K_MAX);
    for (int i = 1; i < argc; i++) {
        is_70b |= !strcmp(argv[i], "70b");
        any |= strcmp(argv[i], "70b") != 0;
    }
    for (int t = DTYPE_Q4_0; t <= DTYPE_MXFP4; t++) {
        bool wanted = !any && (t == DTYPE_Q4_K || t == DTYPE_Q6_K);
        for (int i = 1; i < argc; i++) wanted |= !strcasecmp(argv[i], dtype_infos[t].text);
        check_ragged((enum dtype)t);
        if (!wanted) continue;
        printf("%s\nshape      M     t16     t32     t48     t64    t128   (us; TB/s of blocks)\n",
               dtype_infos[t].text);
        for (const struct shape &s : is_70b ? shapes_70b : shapes_8b) bench_shape(s, (enum dtype)t);
    }
    printf("%d products with wrong bits\n", num_wrong);
    return num_wrong > 0;
}
