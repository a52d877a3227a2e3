/* linear.cu - which kernel computes a matrix product x W^T: an own one, for few rows (linear_small.cu) or
 * many (linear_large.cu), or cuBLASLt with algorithms that do not split K. Packed weights have kernels for few rows
 * (linear_packed.cu, linear_relay.cu; in a GGUF file's blocks linear_blocks.cu) and become bf16 for many, where that is faster, all in
 * one memory, before the product. All walk K in order, so the bits of an output element do not depend on which of them it was, nor
 * on the number of rows (kernels/README.md, "The same bits").
 *
 * Those are of sm_90. Elsewhere, or where it is asked for, own kernels that every GPU from sm_80 on can run compute
 * bf16 products of few rows and of many (linear_portable.cu).
 *
 * For each shape and each of some numbers of rows the candidates are timed once, when the weights are in. Of cuBLASLt's algorithms
 * those are used that have the bits of the others (linear_blas.cu); where none does, the portable kernels take its place. */
#include <math.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "kernels/cuda/blocks.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_blas.cuh"
#include "kernels/cuda/linear_blocks.cuh"
#include "kernels/cuda/linear_fp8.cuh"
#include "kernels/cuda/linear_large.cuh"
#include "kernels/cuda/linear_packed.cuh"
#include "kernels/cuda/linear_plain.cuh"
#include "kernels/cuda/linear_portable.cuh"
#include "kernels/cuda/linear_row.cuh"
#include "kernels/cuda/linear_small.cuh"
#include "kernels/cuda/gate.cuh"
#include "kernels/cuda/packed.cuh"

namespace
{

enum {
    SILU_THREADS = 256,
    FILL_THREADS = 1024,
    TIMED_TURNS = 3,
    HOLD_CYCLES = 60000,
    BLAS_ROWS = 128,
    LONG_ROWS = 1024,
    LONG_WEIGHTS = 250000000
};

/* Behind the fastest so far by more than runs differ. */
constexpr float HOPELESS = 1.25f;

/* Up to so many rows a choice holds; the last one also beyond. */
const int32_t bucket_rows[] = {8, 16, 32, 64, 128, 192, 256, 384, 512, 640, 768, 896, 1024, 2048, 4096};

enum { NUM_BUCKETS = sizeof bucket_rows / sizeof *bucket_rows };

} // namespace

/* Of all linears of a shape. */
struct linear_plan {
    blas_plans blas;
    struct linear_choice choices[NUM_BUCKETS]; /* what was measured to be fastest */
    std::vector<struct linear *> linears;
};

/* Of a device. */
struct linears {
    std::map<std::tuple<int32_t, int32_t, int, int, int, int, int, bool>, struct linear_plan> plans;
    std::vector<struct linear *> packed;
    int32_t
        after_norm_k; /* columns of the products of e4m3 that norms quantise their rows for; 0: there are none */
    bool after_norm_in_blocks;
    /* What the norm queued last has quantised, until the next product. */
    const void *quantised;
    int32_t num_quantised;
};

namespace
{

/* Scratch for timing. */
struct timing {
    void *x, *out;
    cudaEvent_t begin, end;
};

int bucket_of(int32_t rows)
{
    int bucket = 0;
    assert_always(rows > 0);
    while (bucket < NUM_BUCKETS - 1 && rows > bucket_rows[bucket]) bucket++;
    return bucket;
}

__global__ void add_bias_kernel(__nv_bfloat16 *out, const float *bias, int32_t n)
{
    __nv_bfloat16 *row = out + (size_t)blockIdx.x * n;
    for (int i = threadIdx.x; i < n; i += SILU_THREADS)
        row[i] = __float2bfloat16_rn(__bfloat162float(row[i]) + bias[i]);
}

void add_bias(struct cuda_device *d, int32_t rows, void *out, const struct linear *w)
{
    if (w->bias)
        add_bias_kernel<<<(unsigned)rows, SILU_THREADS, 0, d->stream>>>((__nv_bfloat16 *)out, w->bias, w->n);
}

/* Of any shape that linear_plain.cu can. */
void run_portable(struct cuda_device *d, int32_t rows, void *out, const void *x, const struct linear *w)
{
    struct linear_choice c = cuda_linear_portable_choice(rows);
    if (cuda_linear_portable(d, &c, rows, out, x, w, false)) return;
    cuda_linear_plain(d, rows, out, x, w);
    add_bias(d, rows, out, w);
}

void run_blas(struct cuda_device *d, int32_t rows, void *out, const void *x, const struct linear *w)
{
    const bool is_usable = !d->is_portable && cuda_blas_is_compared(w);
    if (!is_usable || !cuda_blas(d, &w->plan->blas, rows, out, x, w)) return run_portable(d, rows, out, x, w);
    add_bias(d, rows, out, w);
}

/* Gate and up alternate in groups of 8 columns. */
template <enum gate_function GATE>
__global__ void gate_mul_kernel(__nv_bfloat16 *out, const __nv_bfloat16 *gate_up, int32_t num_out)
{
    const __nv_bfloat16 *from = gate_up + (size_t)blockIdx.x * 2 * num_out;
    int i = (blockIdx.y * SILU_THREADS + threadIdx.x) * 8;
    if (i >= num_out) return;
    uint4 g = *(const uint4 *)(from + 2 * i), u = *(const uint4 *)(from + 2 * i + 8);
    uint4 o = make_uint4(gate_mul<GATE>(g.x, u.x), gate_mul<GATE>(g.y, u.y), gate_mul<GATE>(g.z, u.z),
                         gate_mul<GATE>(g.w, u.w));
    *(uint4 *)(out + (size_t)blockIdx.x * num_out + i) = o;
}

/* Whether d->fp8_rows has them. */
bool are_quantised(const struct cuda_device *d, int32_t rows, int32_t k, const void *x, bool in_blocks)
{
    const struct linears *l = d->linears;
    return l->quantised == x && l->num_quantised == rows && k == l->after_norm_k &&
           in_blocks == l->after_norm_in_blocks;
}

/* Of d->fp8_rows. */
struct fp8_product fp8_product_of(const struct cuda_device *d, int32_t rows, void *out,
                                  const struct linear *w, bool silu_mul)
{
    const struct fp8_rows *quantised = &d->fp8_rows;
    struct fp8_product p = {};
    p.out = out;
    p.bias = w->bias;
    p.rows = rows;
    p.n = w->n;
    p.k = w->k;
    p.x = quantised->codes;
    p.x_scales = quantised->scales;
    p.x_pitch = quantised->pitch;
    p.w = w->fp8.codes;
    p.w_scales = w->fp8.scales;
    p.w_pitch = w->fp8.pitch;
    p.in_blocks = w->fp8.in_blocks;
    p.silu_mul = silu_mul;
    return p;
}

bool run_fp8(struct cuda_device *d, const struct linear_choice &c, int32_t rows, void *out, const void *x,
             const struct linear *w, bool silu_mul)
{
    const struct fp8_product p = fp8_product_of(d, rows, out, w, silu_mul);
    if (rows == 1 && c.kernel == LINEAR_SMALL && w->k <= ROW_VALUES_MAX &&
        !are_quantised(d, rows, w->k, x, p.in_blocks)) {
        struct row_args row = {};
        row.row = (const __nv_bfloat16 *)x;
        row.k = w->k;
        return cuda_linear_fp8_small(d, c.tile_rows, &p, &row);
    }
    if (!cuda_fp8_rows(d, rows, w->k, x, p.in_blocks)) return false;
    return c.kernel == LINEAR_SMALL ? cuda_linear_fp8_small(d, c.tile_rows, &p)
                                    : cuda_linear_fp8_large(d, c.tile_rows, &p);
}

/* The product alone, but for SiLU where the kernel has that in its epilogue (silu_mul). False where the kernel cannot. */
bool run_product(struct cuda_device *d, const struct linear_choice &c, int32_t rows, void *out, const void *x,
                 const struct linear *w, bool silu_mul)
{
    if (w->format == LINEAR_FP8) return run_fp8(d, c, rows, out, x, w, silu_mul);
    if (c.kernel == LINEAR_LARGE)
        return cuda_linear_large_fits(d, w) && cuda_linear_large(d, c.cluster, 0, rows, out, x, w, silu_mul);
    if (c.kernel == LINEAR_PACKED)
        return cuda_linear_packed(d, c.tile_rows, c.columns, rows, out, x, w, silu_mul);
    if (c.kernel == LINEAR_RELAY) return cuda_linear_relay(d, c.tile_rows, rows, out, x, w, silu_mul);
    if (c.kernel == LINEAR_OF_BLOCKS) return cuda_linear_blocks(d, c.tile_rows, rows, out, x, w, silu_mul);
    if (c.kernel == LINEAR_PORTABLE) return cuda_linear_portable(d, &c, rows, out, x, w, silu_mul);
    if (c.kernel == LINEAR_SMALL)
        return cuda_linear_small_fits(d, w, rows) &&
               cuda_linear_small(d, c.tile_rows, rows, out, x, w, silu_mul);
    run_blas(d, rows, out, x, w);
    return true;
}

void run_gate_mul(struct cuda_device *d, int32_t rows, void *out, const struct linear *w)
{
    int32_t num_out = w->n / 2;
    dim3 grid((unsigned)rows, (unsigned)((num_out / 8 + SILU_THREADS - 1) / SILU_THREADS));
    auto kernel = w->gate == GATE_SILU   ? gate_mul_kernel<GATE_SILU>
                  : w->gate == GATE_GELU ? gate_mul_kernel<GATE_GELU>
                                         : gate_mul_kernel<GATE_GELU_TANH>;
    kernel<<<checked_grid(grid), SILU_THREADS, 0, d->stream>>>((__nv_bfloat16 *)out, d->gate_up, num_out);
}

/* Of sums that are rounded to bf16, in place: LINEAR_UP. */
template <enum gate_function GATE>
__global__ void gate_alone_kernel(uint32_t *out, size_t num_pairs, float3 values)
{
    size_t i = blockIdx.x * (size_t)SILU_THREADS + threadIdx.x;
    if (i >= num_pairs) return;
    float2 x = unpack_bf16(out[i]);
    out[i] = pack_bf16(gate_alone<GATE>(x.x, values), gate_alone<GATE>(x.y, values));
}

const struct linear *unpack(struct cuda_device *d, const struct linear *w)
{
    if (w->format == LINEAR_BLOCKS)
        blocks_unpack(d, w, 1, w->unpacked->weight);
    else
        packed_unpack(d, w, w->unpacked->weight);
    return w->unpacked;
}

bool run_chosen(struct cuda_device *d, int32_t rows, void *out, const void *x, const struct linear *w);

/* False where the kernel cannot. */
bool run_choice(struct cuda_device *d, const struct linear_choice &c, int32_t rows, void *out, const void *x,
                const struct linear *w)
{
    bool is_gated = w->kind == LINEAR_GATE_UP,
         in_epilogue =
             is_gated && w->gate == GATE_SILU && (c.kernel != LINEAR_BLAS || w->format == LINEAR_FP8);
    if (c.kernel == LINEAR_UNPACKED) return run_chosen(d, rows, out, x, unpack(d, w));
    if (!is_gated || in_epilogue) {
        if (!run_product(d, c, rows, out, x, w, in_epilogue)) return false;
        if (w->kind == LINEAR_UP) cuda_gate_alone(d, out, (size_t)rows * w->n, w->gate, w->gate_values);
        return true;
    }
    if (!run_product(d, c, rows, d->gate_up, x, w, false)) return false;
    run_gate_mul(d, rows, out, w);
    return true;
}

/* By the kernel that was chosen, or where that cannot by what always can. */
bool run_chosen(struct cuda_device *d, int32_t rows, void *out, const void *x, const struct linear *w)
{
    const struct linear_choice otherwise = {w->unpacked ? LINEAR_UNPACKED : LINEAR_BLAS, 0, 0, 0};
    return run_choice(d, cuda_linear_choice(w, rows), rows, out, x, w) ||
           run_choice(d, otherwise, rows, out, x, w);
}

/* Logits of weights in blocks: as many rows at a time as the kernel has. */
bool run_in_parts(struct cuda_device *d, int32_t rows, float *out, const __nv_bfloat16 *x,
                  const struct linear *w)
{
    for (int32_t first = 0; first < rows; first += LINEAR_BLOCKS_ROWS) {
        const int32_t num = min(rows - first, (int32_t)LINEAR_BLOCKS_ROWS);
        if (!run_choice(d, cuda_linear_choice(w, num), num, out + (size_t)first * w->n,
                        x + (size_t)first * w->k, w))
            return false;
    }
    return true;
}

} // namespace

void cuda_linear_rows(struct cuda_device *d, int32_t rows, void *out, const void *x, const struct linear *w)
{
    if (w->packed && !w->unpacked) {
        if (!run_in_parts(d, rows, (float *)out, (const __nv_bfloat16 *)x, w))
            cuda_check(d, cudaErrorNotSupported, "logits of weights in blocks");
        return;
    }
    if (!run_chosen(d, rows, out, x, w)) cuda_check(d, cudaErrorNotSupported, "a product of e4m3");
    cuda_fp8_target_forget(d); /* what comes next may write x, or quantise other rows */
}

struct fp8_target cuda_fp8_target(struct cuda_device *d, int32_t rows, int32_t k, const void *x)
{
    struct linears *l = d->linears;
    if (!l || l->after_norm_k != k) return {};
    l->quantised = x;
    l->num_quantised = rows;
    return {d->fp8_rows.codes, d->fp8_rows.scales, d->fp8_rows.pitch, l->after_norm_in_blocks};
}

void cuda_fp8_rows_expect(struct cuda_device *d, int32_t k, bool in_blocks)
{
    if (!d->linears) d->linears = new struct linears();
    d->linears->after_norm_k = k;
    d->linears->after_norm_in_blocks = in_blocks;
}

const struct fp8_rows *cuda_fp8_rows(struct cuda_device *d, int32_t rows, int32_t k, const void *x,
                                     bool in_blocks)
{
    const struct fp8_rows *r = &d->fp8_rows;
    const bool ok = are_quantised(d, rows, k, x, in_blocks) ||
                    cuda_quantise_rows(d, rows, k, x, r->codes, r->scales, r->pitch, in_blocks);
    return ok ? r : NULL;
}

void cuda_fp8_target_forget(struct cuda_device *d)
{
    if (d->linears) d->linears->quantised = NULL;
}

struct linear_choice cuda_linear_choice(const struct linear *w, int32_t rows)
{
    assert_always(w->plan); /* an embedding table is no factor of a product */
    return w->plan->choices[bucket_of(rows)];
}

namespace
{

/* So many or more rows, such that there are few different numbers. cuBLASLt has another kernel for every 8 rows or so: to
 * load one for the first time waits for a whole step, some take several times as long as for a few rows more (down, 96 rows:
 * 310 us; 128 rows: 40), and each has to be compared. */
int32_t blas_rows(int32_t rows)
{
    return rows <= LINEAR_SMALL_ROWS ? bucket_rows[bucket_of(rows)]
                                     : (rows + BLAS_ROWS - 1) / BLAS_ROWS * BLAS_ROWS;
}

} // namespace

int32_t cuda_linear_padded(const struct linear *w, int32_t rows, int32_t room)
{
    if (cuda_linear_choice(w, rows).kernel == LINEAR_UNPACKED) w = w->unpacked;
    bool is_blas = w->format == LINEAR_BF16 && cuda_linear_choice(w, rows).kernel == LINEAR_BLAS;
    return is_blas ? min(blas_rows(rows), max(rows, room)) : rows;
}

void cuda_gate_alone(struct cuda_device *d, void *out, size_t count, enum gate_function gate, float3 values)
{
    dim3 grid((unsigned)((count / 2 + SILU_THREADS - 1) / SILU_THREADS));
    auto kernel = gate == GATE_GELU        ? gate_alone_kernel<GATE_GELU>
                  : gate == GATE_GELU_TANH ? gate_alone_kernel<GATE_GELU_TANH>
                  : gate == GATE_XIELU     ? gate_alone_kernel<GATE_XIELU>
                                           : gate_alone_kernel<GATE_RELU_SQUARED>;
    kernel<<<checked_grid(grid), SILU_THREADS, 0, d->stream>>>((uint32_t *)out, count / 2, values);
}

void cuda_linear(struct device *device, const struct batch *b, enum row_set rows, void *out, const void *x,
                 const struct linear *w)
{
    struct cuda_device *d = cuda_of(device);
    cuda_linear_rows(d, cuda_linear_padded(w, batch_num_rows(b, rows), d->limits.num_tokens), out, x, w);
}

bool cuda_norm_linear(struct device *device, const struct batch *b, enum row_set rows, void *out, void *sum,
                      const void *x, const void *delta, const struct norm_args *norm, const struct linear *w)
{
    struct cuda_device *d = cuda_of(device);
    const bool is_plain = norm->weight && !norm->delta_weight && !norm->is_layer_norm,
               is_gated = w->kind == LINEAR_GATE_UP,
               has_kernel = w->format != LINEAR_BLOCKS && w->kind != LINEAR_UP && !w->wide_output &&
                            (!is_gated || w->gate == GATE_SILU);
    if (batch_num_rows(b, rows) != 1 || !is_plain || !has_kernel || w->k > ROW_NORM_MAX) return false;
    const struct linear_choice c = cuda_linear_choice(w, 1);
    struct row_args row = {};
    row.x = (const float *)x;
    row.delta = (const __nv_bfloat16 *)delta;
    row.sum = (float *)sum;
    row.weight = norm->weight;
    row.delta_scale = norm->delta_scale;
    row.eps = norm->eps;
    row.k = w->k;
    row.inverse_k = 1.0f / (float)w->k;
    if (c.kernel == LINEAR_PACKED)
        return cuda_linear_packed(d, c.tile_rows, c.columns, 1, out, NULL, w, is_gated, &row);
    if (c.kernel == LINEAR_RELAY) return cuda_linear_relay(d, c.tile_rows, 1, out, NULL, w, is_gated, &row);
    if (c.kernel != LINEAR_SMALL) return false;
    if (w->format == LINEAR_BF16) return cuda_linear_small(d, c.tile_rows, 1, out, NULL, w, is_gated, &row);
    const struct fp8_product p = fp8_product_of(d, 1, out, w, is_gated);
    return cuda_linear_fp8_small(d, c.tile_rows, &p, &row);
}

/* With the device everything that they name goes. */
void cuda_linears_forget(struct cuda_device *d)
{
    delete d->linears;
    d->linears = NULL;
}

namespace
{

/* What a product costs in power depends on its values: none of them are alike. */
__global__ void fill_kernel(uint32_t *pairs, size_t count)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x) {
        uint32_t h = (uint32_t)i * 2654435761u;
        h = (h ^ h >> 15) * 0x2c1b3c6du;
        pairs[i] = ((h ^ h >> 13) & 0x81ff81ffu) | 0x3e003e00u;
    }
}

/* Holds the stream up while what is to be timed is launched: the CPU's time is not in it then. */
__global__ void hold_kernel(void)
{
    for (int64_t begin = clock64(); clock64() - begin < HOLD_CYCLES;) {
    }
}

/* Milliseconds of some products, huge where the kernel cannot; each with the weights of another linear of the
 * shape, so that none of a big one is in a cache. */
float time_choice(struct cuda_device *d, const struct linear_plan *plan, const struct linear_choice &c,
                  int32_t rows, const struct timing *t)
{
    float ms = HUGE_VALF;
    const struct linear *w = plan->linears[0];
    double flop = 2.0 * rows * w->n * w->k, bytes = 2.0 * w->n * w->k;
    int num_runs = bytes > 2.0 * LONG_WEIGHTS      ? 2
                   : rows <= LINEAR_SMALL_ROWS     ? 6
                   : rows <= LINEAR_SMALL_ROWS_MAX ? 3
                   : flop < 3e11                   ? 2
                                                   : 1; /* some 100 us at least */
    if (rows <= LINEAR_SMALL_ROWS_MAX) hold_kernel<<<1, 1, 0, d->stream>>>();
    cudaEventRecord(t->begin, d->stream);
    for (int i = 0; i < num_runs; i++)
        if (!run_choice(d, c, rows, t->out, t->x, plan->linears[(size_t)i % plan->linears.size()]))
            return HUGE_VALF;
    cudaEventRecord(t->end, d->stream);
    cudaEventSynchronize(t->end);
    cudaEventElapsedTime(&ms, t->begin, t->end);
    return ms;
}

std::vector<struct linear_choice> fp8_candidates_for(int32_t rows)
{
    std::vector<struct linear_choice> candidates;
    if (rows <= LINEAR_FP8_SMALL_ROWS_MAX)
        for (int32_t tile_rows : linear_fp8_tile_rows) candidates.push_back({LINEAR_SMALL, tile_rows, 0, 0});
    if (rows > LINEAR_SMALL_ROWS)
        for (int32_t width : linear_fp8_widths)
            if (width != LINEAR_FP8_NARROW || rows <= LONG_ROWS)
                candidates.push_back({LINEAR_LARGE, width, 0, 0});
    return candidates;
}

/* Several CTAs share the rows of x; that costs each of them the codes' way to bf16, which unpacking first does once. */
std::vector<struct linear_choice> packed_candidates_for_many(int32_t rows)
{
    std::vector<struct linear_choice> candidates = {{LINEAR_UNPACKED, 0, 0, 0}};
    for (int32_t columns : linear_packed_columns) candidates.push_back({LINEAR_PACKED, 64, 0, columns});
    return candidates;
}

/* Where W has few tiles, several CTAs share the rows of x. */
std::vector<struct linear_choice> packed_candidates_for(int32_t rows)
{
    std::vector<struct linear_choice> candidates;
    if (rows > LINEAR_PACKED_COLUMNS) return packed_candidates_for_many(rows);
    if (rows <= LINEAR_RELAY_ROWS)
        for (int32_t tile_rows : linear_relay_tile_rows)
            candidates.push_back({LINEAR_RELAY, tile_rows, 0, 0});
    for (int32_t num_parts = 1; num_parts <= 4; num_parts++) {
        int32_t columns = rows / num_parts;
        if (num_parts > 1 && (rows % num_parts != 0 || columns % 32 != 0 || columns < 64)) continue;
        for (int32_t tile_rows : linear_packed_tile_rows)
            candidates.push_back({LINEAR_PACKED, tile_rows, 0, columns});
    }
    return candidates;
}

std::vector<struct linear_choice> blocks_candidates(void)
{
    std::vector<struct linear_choice> candidates;
    for (int32_t tile_rows : linear_blocks_tile_rows)
        candidates.push_back({LINEAR_OF_BLOCKS, tile_rows, 0, 0});
    return candidates;
}

/* On a machine that is no Hopper, or is not to be one. */
std::vector<struct linear_choice> portable_candidates_for(const struct cuda_device *d, int32_t rows)
{
    std::vector<struct linear_choice> candidates;
    if (rows <= LINEAR_PORTABLE_ROWS)
        for (int32_t tile_rows : linear_portable_tile_rows)
            candidates.push_back({LINEAR_PORTABLE, tile_rows, 0, 0});
    else
        for (const struct linear_choice &c : linear_portable_tiles) candidates.push_back(c);
    if (!d->is_portable) candidates.push_back({LINEAR_BLAS, 0, 0, 0});
    return candidates;
}

/* Own kernels of few rows and of very many are always faster, where they can (notebook/cuda_linear.md, "Where cuBLASLt is asked"). */
bool blas_is_candidate(const struct cuda_device *d, const struct linear *w, int32_t rows)
{
    if (w->format != LINEAR_BF16 || d->is_portable) return false;
    if (!d->is_hopper) return true;
    if (rows <= LINEAR_SMALL_ROWS) return !cuda_linear_small_fits(d, w, rows);
    return rows <= LONG_ROWS || !cuda_linear_large_fits(d, w);
}

/* fewer: what was chosen for the bucket of fewer rows, LINEAR_BLAS where there is none. */
std::vector<struct linear_choice> candidates_for(const struct cuda_device *d, const struct linear *w,
                                                 int32_t rows, const struct linear_choice &fewer)
{
    std::vector<struct linear_choice> candidates;
    if (w->format == LINEAR_BLOCKS) return blocks_candidates();
    if (!d->is_hopper) return portable_candidates_for(d, rows);
    if (w->format == LINEAR_FP8) return fp8_candidates_for(rows);
    if (w->unpacked) {
        return packed_candidates_for(rows);
    }
    if (rows <= LINEAR_SMALL_ROWS)
        for (int32_t tile_rows : linear_small_tile_rows)
            candidates.push_back({LINEAR_SMALL, tile_rows, 0, 0});
    else if (rows <= LINEAR_SMALL_ROWS_MAX && fewer.kernel == LINEAR_SMALL)
        candidates.push_back(fewer);
    if (rows > LINEAR_SMALL_ROWS)
        for (int32_t cluster : linear_large_clusters) candidates.push_back({LINEAR_LARGE, 0, cluster, 0});
    if (blas_is_candidate(d, w, rows)) candidates.push_back({LINEAR_BLAS, 0, 0, 0});
    return candidates;
}

/* A product whose time is measured well by one run, and takes most of the time that all of this takes. */
bool takes_long(const struct linear *w, int32_t rows)
{
    return rows > LONG_ROWS || (size_t)w->n * (size_t)w->k > LONG_WEIGHTS ||
           (w->unpacked && rows > LINEAR_PACKED_COLUMNS);
}

/* Kernels take turns, so that the clocks, which go down under load, are the same for all. The first turn
 * makes plans and tensor maps and does not count. A kernel must be so much faster than those before it in the
 * list: runs differ by 1 %, and for many rows what counts in the end, power, is not seen in milliseconds; the
 * first one there takes the least. Of what takes long one turn does, and of what is far behind after one. */
struct linear_choice fastest(struct cuda_device *d, const struct linear_plan *plan, int32_t rows,
                             const struct linear_choice &fewer, const struct timing *t)
{
    const std::vector<struct linear_choice> candidates = candidates_for(d, plan->linears[0], rows, fewer);
    std::vector<float> best(candidates.size(), HUGE_VALF);
    int num_turns = takes_long(plan->linears[0], rows) ? 1 : TIMED_TURNS;
    for (int turn = 0; turn <= num_turns; turn++)
        for (size_t i = 0; i < candidates.size(); i++) {
            if (turn > 1 && best[i] > HOPELESS * *std::min_element(best.begin(), best.end())) continue;
            float ms = time_choice(d, plan, candidates[i], rows, t);
            if (turn > 0 && ms < best[i]) best[i] = ms;
        }
    size_t winner = 0;
    for (size_t i = 1; i < candidates.size(); i++)
        if (best[i] < (rows > LINEAR_SMALL_ROWS ? 0.98f : 0.99f) * best[winner]) winner = i;
    return candidates[winner];
}

/* Rows that a step of this device may have, of this shape. */
int32_t rows_max(const struct cuda_device *d, const struct linear *w)
{
    return w->wide_output ? d->limits.num_logits : d->limits.num_tokens;
}

/* What is unpacked before a product has none of fewer rows. */
int32_t rows_min(const struct linear_plan *plan)
{
    int32_t least = LINEAR_PACKED_COLUMNS + 1;
    for (const struct linear *w : plan->linears) {
        if (!w->is_rewritten) return 1;
        if (w->blocks[0].num_rows > 0) least = LINEAR_BLOCKS_ROWS + 1;
    }
    return least;
}

/* Rows at most of a product with what is packed. */
int32_t packed_rows(const struct linear *w)
{
    return w->format == LINEAR_BLOCKS ? (int32_t)LINEAR_BLOCKS_ROWS : (int32_t)LINEAR_PACKED_ROWS;
}

/* The rows that a bucket is timed with; 0: there is nothing to choose. */
int32_t timed_rows(const struct cuda_device *d, const struct linear_plan *plan, int bucket)
{
    const struct linear *w = plan->linears[0];
    const int32_t most = min(rows_max(d, w), w->packed ? packed_rows(w) : bucket_rows[NUM_BUCKETS - 1]);
    const bool is_wanted =
        bucket >= bucket_of(rows_min(plan)) && (bucket == 0 || most > bucket_rows[bucket - 1]);
    return is_wanted ? min(bucket_rows[bucket], most) : 0;
}

void choose(struct cuda_device *d, struct linear_plan *plan, const struct timing *t)
{
    for (int i = 0; i < NUM_BUCKETS; i++) {
        const int32_t rows = timed_rows(d, plan, i);
        if (rows > 0)
            plan->choices[i] = fastest(d, plan, rows, i > 0 ? plan->choices[i - 1] : linear_choice{}, t);
        else if (plan->linears[0]->unpacked)
            plan->choices[i] = {LINEAR_UNPACKED, 0, 0, 0};
    }
}

/* Makes, and so compares, whatever plan of cuBLASLt's a step may want. */
void make_plans(struct cuda_device *d, const struct linear_plan *plan, const struct timing *t)
{
    const struct linear *w = plan->linears[0];
    int32_t most = rows_max(d, w);
    for (int32_t rows = rows_min(plan); rows <= most; rows = blas_rows(rows) + 1)
        if (w->format == LINEAR_BF16 && cuda_linear_choice(w, rows).kernel == LINEAR_BLAS)
            run_blas(d, min(blas_rows(rows), most), w->kind == LINEAR_GATE_UP ? d->gate_up : t->out, t->x, w);
}

/* The types of a weight's parts, as one number. */
int block_types(const struct linear *w)
{
    int types = 0;
    if (w->format != LINEAR_BLOCKS) return 0;
    for (const struct block_part &p : w->blocks) types = types * 256 + (p.num_rows > 0 ? (int)p.dtype : 0);
    return types;
}

/* Of whatever will be timed, beside what the weights wait for. */
void load_blas(struct cuda_device *d, const struct linear_plan *plan)
{
    const struct linear *w = plan->linears[0];
    std::vector<int32_t> rows;
    if (!cuda_blas_is_compared(w)) return;
    for (int i = 0; i < NUM_BUCKETS; i++) {
        const int32_t r = timed_rows(d, plan, i);
        if (r > 0 && blas_is_candidate(d, w, r)) rows.push_back(r);
    }
    if (!rows.empty()) cuda_blas_load(d, w, rows);
}

/* Memory for the largest of the packed weights as bf16; one product at a time uses it. */
bool reserve_unpacked(struct cuda_device *d)
{
    if (d->unpacked_count == 0) return true;
    d->unpacked = (__nv_bfloat16 *)cuda_alloc(&d->base, d->unpacked_count * 2, "weights");
    return d->unpacked != NULL;
}

void share_unpacked(struct cuda_device *d)
{
    for (struct linear *w : d->linears->packed) {
        w->unpacked->weight = d->unpacked;
        w->unpacked->bias = w->bias;
    }
}

/* For the largest step's rows, as wide as any e4m3 weight wants them; the tile of the last one is fetched whole. */
bool reserve_fp8_rows(struct cuda_device *d)
{
    struct fp8_rows *r = &d->fp8_rows;
    const size_t most = (size_t)max(d->limits.num_tokens, d->limits.num_logits),
                 rows = (most + 127) / 128 * 128;
    size_t k = (size_t)d->linears->after_norm_k; /* of experts */
    for (auto &it : d->linears->plans) {
        const struct linear *w = it.second.linears[0];
        if (w->format != LINEAR_FP8) continue;
        k = max(k, (size_t)w->k);
        if (w->kind == LINEAR_GATE_UP) cuda_fp8_rows_expect(d, w->k, w->fp8.in_blocks);
    }
    if (k == 0) return true;
    r->pitch = (int32_t)rows;
    r->codes = (uint8_t *)cuda_alloc(&d->base, rows * k, "activations");
    r->scales = (float *)cuda_alloc(&d->base, rows * (k / FP8_BLOCK) * 4, "activations");
    return r->codes && r->scales;
}

} // namespace

void cuda_linear_plan_create(struct cuda_device *d, struct linear *w)
{
    if (!d->linears) d->linears = new struct linears();
    w->plan = &d->linears->plans[std::make_tuple(w->n, w->k, (int)w->format, (int)w->packed_scales,
                                                 block_types(w), (int)w->kind, (int)w->gate, w->wide_output)];
    w->plan->linears.push_back(w);
    if (w->plan->linears.size() == 1) load_blas(d, w->plan);
    /* a head is as large as whole layers: memory for it as bf16 would be more than blocks save */
    if (!w->packed || w->wide_output) return;
    w->unpacked = new struct linear(*w);
    w->unpacked->format = LINEAR_BF16;
    w->unpacked->is_rewritten = true;
    w->unpacked->packed = NULL;
    w->unpacked->packed_scales = 0;
    cuda_linear_plan_create(d, w->unpacked);
    d->linears->packed.push_back(w);
    d->unpacked_count = max(d->unpacked_count, (size_t)w->n * w->k);
}

int cuda_linear_plans(struct cuda_device *d, struct error *err)
{
    size_t x_bytes = 0, out_bytes = 0;
    cuda_blas_loaded(d);
    if (!reserve_unpacked(d))
        return error_set(err, STATUS_NO_MEMORY, "the GPU has no room to unpack weights");
    if (!d->linears) return STATUS_OK;
    share_unpacked(d);
    if (!reserve_fp8_rows(d))
        return error_set(err, STATUS_NO_MEMORY, "the GPU has no room for activations in e4m3");
    if (d->linears->plans.empty()) return STATUS_OK;
    for (auto &it : d->linears->plans) {
        const struct linear *w = it.second.linears[0];
        size_t rows = (size_t)rows_max(d, w);
        x_bytes = max(x_bytes, rows * w->k * 2);
        out_bytes =
            max(out_bytes, rows * w->n * (w->wide_output ? 4 : 2) / (w->kind == LINEAR_GATE_UP ? 2 : 1));
    }
    struct timing t = {};
    bool ok = CUDA_CHECK(d, cudaMalloc(&t.x, x_bytes)) && CUDA_CHECK(d, cudaMalloc(&t.out, out_bytes)) &&
              CUDA_CHECK(d, cudaEventCreate(&t.begin)) && CUDA_CHECK(d, cudaEventCreate(&t.end));
    if (!ok) return error_set(err, STATUS_NO_MEMORY, "the GPU has no room to time matrix products");
    fill_kernel<<<(unsigned)d->num_sms, FILL_THREADS, 0, d->stream>>>((uint32_t *)t.x, x_bytes / 4);
    for (auto &it : d->linears->plans) {
        choose(d, &it.second, &t);
        make_plans(d, &it.second, &t);
    }
    CUDA_CHECK(d, cudaStreamSynchronize(d->stream));
    cudaEventDestroy(t.begin);
    cudaEventDestroy(t.end);
    cudaFree(t.x);
    cudaFree(t.out);
    return d->first_error == cudaSuccess
               ? STATUS_OK
               : error_set(err, STATUS_DEVICE, "timing the matrix products failed: %s (%s)",
                           cudaGetErrorString(d->first_error), d->first_error_where);
}
