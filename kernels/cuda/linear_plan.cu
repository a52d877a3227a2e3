/* linear_plan.cu - which kernel computes the products of a shape, for each of some numbers of rows: the candidates are timed once, when the
 * weights are in. Of cuBLASLt's algorithms those are used that have the bits of the others (linear_blas.cu). Memory that products share is
 * found here, too: for rows in e4m3, and for packed weights as bf16. */
#include "kernels/cuda/linear_plan.cuh"

#include <math.h>

#include <algorithm>

#include "kernels/cuda/blocks.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_blocks.cuh"
#include "kernels/cuda/linear_fp8.cuh"
#include "kernels/cuda/linear_large.cuh"
#include "kernels/cuda/linear_packed.cuh"
#include "kernels/cuda/linear_portable.cuh"
#include "kernels/cuda/linear_small.cuh"
#include "kernels/cuda/packed.cuh"

namespace
{

enum {
    FILL_THREADS = 1024,
    TIMED_TURNS = 3,
    HOLD_CYCLES = 60000,
    BLAS_ROWS = 128,
    LONG_ROWS = 1024,
    LONG_WEIGHTS = 250000000,
    COPY_ALIGN = 128 /* values */
};

/* Behind the fastest so far by more than runs differ. */
constexpr float HOPELESS = 1.25f;

/* Scratch for timing. */
struct timing {
    void *x, *out;
    cudaEvent_t begin, end;
};

int bucket_of(int32_t rows)
{
    int bucket = 0;
    assert_always(rows > 0);
    while (bucket < NUM_LINEAR_BUCKETS - 1 && rows > linear_bucket_rows[bucket]) bucket++;
    return bucket;
}

} // namespace

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
    return rows <= LINEAR_SMALL_ROWS ? linear_bucket_rows[bucket_of(rows)]
                                     : (rows + BLAS_ROWS - 1) / BLAS_ROWS * BLAS_ROWS;
}

} // namespace

int32_t cuda_linear_padded(const struct linear *w, int32_t rows, int32_t room)
{
    if (cuda_linear_choice(w, rows).kernel == LINEAR_UNPACKED) w = w->unpacked;
    bool is_blas = w->format == LINEAR_BF16 && cuda_linear_choice(w, rows).kernel == LINEAR_BLAS;
    return is_blas ? min(blas_rows(rows), max(rows, room)) : rows;
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
        if (!cuda_linear_run(d, c, rows, t->out, t->x, plan->linears[(size_t)i % plan->linears.size()]))
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
void add_packed_for_many(std::vector<struct linear_choice> &candidates)
{
    for (int32_t columns : linear_packed_columns) candidates.push_back({LINEAR_PACKED, 64, 0, columns});
}

/* Where W has few tiles, several CTAs share the rows of x. */
void add_packed_for_few(std::vector<struct linear_choice> &candidates, int32_t rows)
{
    if (rows <= LINEAR_RELAY_ROWS)
        for (int32_t tile_rows : linear_relay_tile_rows)
            candidates.push_back({LINEAR_RELAY, tile_rows, 0, 0});
    for (int32_t num_parts = 1; num_parts <= 4; num_parts++) {
        int32_t columns = rows / num_parts;
        if (num_parts > 1 && (rows % num_parts != 0 || columns % 32 != 0 || columns < 64)) continue;
        for (int32_t tile_rows : linear_packed_tile_rows)
            candidates.push_back({LINEAR_PACKED, tile_rows, 0, columns});
    }
}

std::vector<struct linear_choice> packed_candidates_for(const struct linear *w, int32_t rows)
{
    std::vector<struct linear_choice> candidates;
    if (rows >= w->unpacked->rows_min) candidates.push_back({LINEAR_UNPACKED, 0, 0, 0});
    if (rows > LINEAR_PACKED_COLUMNS)
        add_packed_for_many(candidates);
    else
        add_packed_for_few(candidates, rows);
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
    if (w->unpacked) return packed_candidates_for(w, rows);
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

/* What is unpacked has no products of fewer rows. */
int32_t rows_min(const struct linear_plan *plan)
{
    int32_t least = INT32_MAX;
    for (const struct linear *w : plan->linears) least = min(least, w->rows_min);
    return max(least, 1);
}

/* Rows at most of a product with what is packed; beyond them there is nothing to choose. */
int32_t packed_rows(const struct linear *w)
{
    if (w->format == LINEAR_BLOCKS) return LINEAR_BLOCKS_ROWS;
    return w->unpacked->is_rewritten ? LINEAR_PACKED_ROWS : LINEAR_PACKED_COLUMNS;
}

/* The rows that a bucket is timed with; 0: there is nothing to choose. */
int32_t timed_rows(const struct cuda_device *d, const struct linear_plan *plan, int bucket)
{
    const struct linear *w = plan->linears[0];
    const int32_t most =
        min(rows_max(d, w), w->packed ? packed_rows(w) : linear_bucket_rows[NUM_LINEAR_BUCKETS - 1]);
    const bool is_wanted =
        bucket >= bucket_of(rows_min(plan)) && (bucket == 0 || most > linear_bucket_rows[bucket - 1]);
    return is_wanted ? min(linear_bucket_rows[bucket], most) : 0;
}

void choose(struct cuda_device *d, struct linear_plan *plan, const struct timing *t)
{
    for (int i = 0; i < NUM_LINEAR_BUCKETS; i++) {
        const int32_t rows = timed_rows(d, plan, i);
        if (rows > 0)
            plan->choices[i] = fastest(d, plan, rows, i > 0 ? plan->choices[i - 1] : linear_choice{}, t);
        else if (plan->linears[0]->unpacked)
            plan->choices[i] = {LINEAR_UNPACKED, 0, 0, 0};
    }
}

/* As the device that has chosen for all of its group. */
void choose_as(const struct cuda_device *chooser, const decltype(linears::plans)::value_type &own,
               struct linear_plan *plan)
{
    const auto found = chooser->linears->plans.find(own.first);
    assert_always(found != chooser->linears->plans.end()); /* it has the same shapes */
    std::copy(std::begin(found->second.choices), std::end(found->second.choices), plan->choices);
}

/* Makes, and so compares, whatever plan of cuBLASLt's a step may want. */
void make_plans(struct cuda_device *d, const struct linear_plan *plan, const struct timing *t)
{
    const struct linear *w = plan->linears[0];
    int32_t most = rows_max(d, w);
    for (int32_t rows = rows_min(plan); rows <= most; rows = blas_rows(rows) + 1)
        if (w->format == LINEAR_BF16 && cuda_linear_choice(w, rows).kernel == LINEAR_BLAS)
            cuda_linear_run(d, {LINEAR_BLAS, 0, 0, 0}, min(blas_rows(rows), most), t->out, t->x, w);
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
    if (w->format != LINEAR_BF16 || !cuda_blas_is_compared(w)) return;
    for (int i = 0; i < NUM_LINEAR_BUCKETS; i++) {
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

/* Of a copy that is kept; the next one begins behind them. */
size_t copy_count(const struct linear *copy)
{
    return copy->is_rewritten ? 0 : ((size_t)copy->n * copy->k + COPY_ALIGN - 1) / COPY_ALIGN * COPY_ALIGN;
}

/* Copies lie one after another in one piece of memory. */
bool place_unpacked(struct cuda_device *d)
{
    size_t count = 0;
    for (const struct linear *w : d->linears->packed) count += copy_count(w->unpacked);
    __nv_bfloat16 *next = count > 0 ? (__nv_bfloat16 *)cuda_alloc(&d->base, count * 2, "weights") : NULL;
    if (count > 0 && !next) return false;
    for (const struct linear *w : d->linears->packed) {
        struct linear *copy = w->unpacked;
        copy->bias = w->bias;
        copy->weight = copy->is_rewritten ? d->unpacked : next;
        if (!copy->is_rewritten) packed_unpack(d, w, copy->weight);
        next += copy_count(copy);
    }
    return true;
}

/* For the largest step's rows, as wide as any weight of bytes wants them; the tile of the last one is fetched whole. */
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
        if (w->kind == LINEAR_GATE_UP) cuda_fp8_rows_expect(d, w->k, w->fp8.form);
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
    w->unpacked->is_rewritten = !d->base.keeps_copies || w->format == LINEAR_BLOCKS;
    w->unpacked->rows_min = !w->unpacked->is_rewritten   ? LINEAR_COPY_ROWS
                            : w->format == LINEAR_BLOCKS ? LINEAR_BLOCKS_ROWS + 1
                                                         : LINEAR_PACKED_COLUMNS + 1;
    w->unpacked->packed = NULL;
    w->unpacked->packed_scales = 0;
    cuda_linear_plan_create(d, w->unpacked);
    d->linears->packed.push_back(w);
    if (w->unpacked->is_rewritten) d->unpacked_count = max(d->unpacked_count, (size_t)w->n * w->k);
}

int cuda_linear_plans(struct cuda_device *d, struct error *err)
{
    size_t x_bytes = 0, out_bytes = 0;
    cuda_blas_loaded(d);
    if (!reserve_unpacked(d) || (d->linears && !place_unpacked(d)))
        return error_set(err, STATUS_NO_MEMORY, "the GPU has no room to unpack weights");
    if (!d->linears) return STATUS_OK;
    if (!reserve_fp8_rows(d))
        return error_set(err, STATUS_NO_MEMORY, "the GPU has no room for activations in bytes");
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
        if (d->base.chooser)
            choose_as(cuda_of(d->base.chooser), it, &it.second);
        else
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
