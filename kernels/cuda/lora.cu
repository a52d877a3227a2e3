/* lora.cu - what adapters of low rank add to a linear's results (kernels/device.h: lora_desc): two kernels around the product, down x of all
 * parts at once before it, in bf16, and what up makes of that added behind it, in f32 and rounded, before a gate.
 *
 * Both take 16 rows a CTA and compute them with each adapter that any of them has: in a prompt that is one, among decoding sequences as
 * many as are there, each of which reads its matrices once. A row's sums are those of the tensor cores' tile of it alone, in one
 * order over K (four warps' parts, then their sum) and over the ranks. */
#include <string.h>

#include <vector>

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/mma.cuh"

enum {
    TILE_ROWS = 16,
    TILE_COLS = 8,
    LORA_WARPS = 4,
    LORA_THREADS = 32 * LORA_WARPS,
    RANK_STEP = 16,
    WIDE_COLS = 64
};

/* One adapter's, of one linear. Ranks are padded to multiples of RANK_STEP, with zeros. */
struct lora_item {
    const __nv_bfloat16 *down;                 /* [num_ranks][K]; of all parts, one after the other */
    const __nv_bfloat16 *up[LINEAR_PARTS_MAX]; /* [rows of the part][rank] */
    int32_t first[LINEAR_PARTS_MAX + 1];       /* of each part among the ranks; as many as the next: none */
    float scale[LINEAR_PARTS_MAX];
};

struct lora {
    struct lora_item *items; /* device memory: of adapter i the one at i - 1 */
    int32_t num_ranks;       /* the most that an item has */
    int32_t n, k;
    int32_t part_ends
        [LINEAR_PARTS_MAX]; /* of LINEAR_GATE_UP 8 columns of either alternate, and these say nothing */
    bool alternates;
};

namespace
{

/* The rows of a product, and whose they are. */
struct tile_args {
    const int32_t *adapters;   /* [T] */
    const int32_t *logit_rows; /* NULL: rows are tokens */
    const struct lora_item *items;
    int32_t num_rows;
};

__device__ void read_adapters(int32_t *adapters, const tile_args &a, int32_t first_row)
{
    const int32_t row = first_row + (int32_t)threadIdx.x;
    if (threadIdx.x < TILE_ROWS)
        adapters[threadIdx.x] = row >= a.num_rows ? 0 : a.adapters[a.logit_rows ? a.logit_rows[row] : row];
    __syncthreads();
}

/* Whether row i of the tile is the first that has its adapter. The same for all threads. */
__device__ bool is_first(const int32_t *adapters, int i)
{
    if (adapters[i] == 0) return false;
    for (int before = 0; before < i; before++)
        if (adapters[before] == adapters[i]) return false;
    return true;
}

/* 16 bytes of a row, or zeros. */
__device__ __forceinline__ uint4 load_row(const __nv_bfloat16 *row, bool valid)
{
    return valid ? *(const uint4 *)row : make_uint4(0, 0, 0, 0);
}

/* c += x[16][K] down[8][K]^T, of the warp's part of K. The columns of a product of 16 are any 16, as long as both sides have the same. */
__device__ void multiply_narrow(float c[4], const __nv_bfloat16 *x, int32_t rows, const __nv_bfloat16 *down,
                                int32_t k)
{
    const int32_t warp = (int32_t)threadIdx.x / 32, lane = (int32_t)threadIdx.x % 32, g = lane / 4;
    for (int32_t at = 32 * warp + 8 * (lane % 4); at - 8 * (lane % 4) < k; at += 32 * LORA_WARPS) {
        const bool in = at < k;
        const uint4 low = load_row(x + (size_t)g * k + at, in && g < rows),
                    high = load_row(x + (size_t)(g + 8) * k + at, in && g + 8 < rows),
                    w = load_row(down + (size_t)g * k + at, in);
        const uint32_t first[4] = {low.x, high.x, low.y, high.y}, second[4] = {low.z, high.z, low.w, high.w};
        mma_bf16(c, first, w.x, w.y);
        mma_bf16(c, second, w.z, w.w);
    }
}

__global__ void __launch_bounds__(LORA_THREADS)
    narrow_kernel(__nv_bfloat16 *out, int32_t stride, const __nv_bfloat16 *x, int32_t k, const tile_args a)
{
    __shared__ int32_t adapters[TILE_ROWS];
    __shared__ float partial[LORA_WARPS][TILE_ROWS * TILE_COLS];
    const int32_t first_row = (int32_t)blockIdx.x * TILE_ROWS, rank = (int32_t)blockIdx.y * TILE_COLS;
    const int32_t lane = (int32_t)threadIdx.x % 32, row = (int32_t)threadIdx.x / TILE_COLS;
    dependents_launch();
    dependency_wait();
    read_adapters(adapters, a, first_row);
    for (int i = 0; i < TILE_ROWS; i++) {
        if (!is_first(adapters, i)) continue;
        const struct lora_item *item = &a.items[adapters[i] - 1];
        if (rank >= item->first[LINEAR_PARTS_MAX]) continue;
        float c[4] = {0, 0, 0, 0};
        multiply_narrow(c, x + (size_t)first_row * k, a.num_rows - first_row, item->down + (size_t)rank * k,
                        k);
        float *own = partial[threadIdx.x / 32] + lane / 4 * TILE_COLS + 2 * (lane % 4);
        own[0] = c[0];
        own[1] = c[1];
        own[8 * TILE_COLS] = c[2];
        own[8 * TILE_COLS + 1] = c[3];
        __syncthreads();
        float sum = 0;
        for (int warp = 0; warp < LORA_WARPS; warp++) sum += partial[warp][threadIdx.x];
        if (adapters[row] == adapters[i])
            out[(size_t)(first_row + row) * stride + rank + threadIdx.x % TILE_COLS] =
                __float2bfloat16_rn(sum);
        __syncthreads();
    }
}

/* Columns of the linear that are rows of a part's up. */
struct wide_args {
    int32_t n, stride;
    int32_t part_ends[LINEAR_PARTS_MAX];
    bool alternates;
};

/* Which part's the 8 columns from col on are; *row: the first of its rows. */
__device__ int part_of(const wide_args &w, int32_t col, int32_t *row)
{
    if (w.alternates) {
        *row = col / 16 * 8;
        return col / 8 % 2;
    }
    int part = 0;
    while (col >= w.part_ends[part]) part++;
    *row = part > 0 ? col - w.part_ends[part - 1] : col;
    return part;
}

__device__ __forceinline__ void add_pair(__nv_bfloat16 *to, float low, float high)
{
    const float2 before = unpack_bf16(*(const uint32_t *)to);
    *(uint32_t *)to = pack_bf16(before.x + low, before.y + high);
}

__global__ void __launch_bounds__(LORA_THREADS)
    wide_kernel(__nv_bfloat16 *out, const __nv_bfloat16 *narrow, const wide_args w, const tile_args a)
{
    __shared__ int32_t adapters[TILE_ROWS];
    const int32_t first_row = (int32_t)blockIdx.x * TILE_ROWS, warp = (int32_t)threadIdx.x / 32,
                  lane = (int32_t)threadIdx.x % 32, g = lane / 4, pair = 2 * (lane % 4);
    dependents_launch();
    dependency_wait();
    read_adapters(adapters, a, first_row);
    const bool has_low = first_row + g < a.num_rows, has_high = first_row + g + 8 < a.num_rows;
    const __nv_bfloat16 *low = narrow + (size_t)(first_row + g) * w.stride + pair,
                        *high = low + 8 * (size_t)w.stride;
    for (int i = 0; i < TILE_ROWS; i++) {
        if (!is_first(adapters, i)) continue;
        const struct lora_item *item = &a.items[adapters[i] - 1];
        for (int32_t col = (int32_t)blockIdx.y * WIDE_COLS + warp * TILE_COLS;
             col < min(w.n, ((int32_t)blockIdx.y + 1) * WIDE_COLS); col += LORA_WARPS * TILE_COLS) {
            int32_t row;
            const int part = part_of(w, col, &row);
            const int32_t first = item->first[part], rank = item->first[part + 1] - first;
            const __nv_bfloat16 *up = item->up[part] + (size_t)(row + g) * rank + pair;
            float c[4] = {0, 0, 0, 0};
            for (int32_t at = 0; at < rank; at += RANK_STEP) {
                const uint32_t x[4] = {has_low ? *(const uint32_t *)(low + first + at) : 0,
                                       has_high ? *(const uint32_t *)(high + first + at) : 0,
                                       has_low ? *(const uint32_t *)(low + first + at + 8) : 0,
                                       has_high ? *(const uint32_t *)(high + first + at + 8) : 0};
                mma_bf16(c, x, *(const uint32_t *)(up + at), *(const uint32_t *)(up + at + 8));
            }
            const float scale = item->scale[part];
            __nv_bfloat16 *to = out + (size_t)(first_row + g) * w.n + col + pair;
            if (rank > 0 && adapters[g] == adapters[i]) add_pair(to, scale * c[0], scale * c[1]);
            if (rank > 0 && adapters[g + 8] == adapters[i])
                add_pair(to + 8 * (size_t)w.n, scale * c[2], scale * c[3]);
        }
    }
}

/* ---- making them ---- */

int32_t padded_rank(const struct lora_part *p)
{
    return p->down.data ? ((int32_t)p->down.rows + RANK_STEP - 1) / RANK_STEP * RANK_STEP : 0;
}

/* [rows][cols] of v in bf16, with zeros behind. NULL: no room. */
__nv_bfloat16 *upload(struct cuda_device *d, const std::vector<const struct weight_view *> &views,
                      const std::vector<int32_t> &rows, int32_t cols)
{
    size_t num_rows = 0;
    for (int32_t r : rows) num_rows += (size_t)r;
    std::vector<float> row((size_t)cols);
    std::vector<__nv_bfloat16> values(num_rows * cols, __float2bfloat16_rn(0));
    __nv_bfloat16 *to = values.data();
    for (size_t i = 0; i < views.size(); to += (size_t)rows[i++] * cols)
        for (int64_t r = 0; r < views[i]->rows; r++) {
            weight_view_row_to_f32(views[i], r, row.data());
            for (int64_t c = 0; c < views[i]->cols; c++) to[r * cols + c] = __float2bfloat16_rn(row[c]);
        }
    void *memory = cuda_alloc(&d->base, values.size() * sizeof values[0], "adapters");
    const bool ok =
        memory && cuda_upload(&d->base, memory, values.data(), values.size() * sizeof values[0]) == STATUS_OK;
    return ok ? (__nv_bfloat16 *)memory : NULL;
}

bool make_item(struct cuda_device *d, const struct linear *w, const struct lora_part *parts, int num_parts,
               struct lora_item *item)
{
    std::vector<const struct weight_view *> downs;
    std::vector<int32_t> ranks;
    *item = {};
    for (int i = 0; i < LINEAR_PARTS_MAX; i++) {
        const int32_t rank = i < num_parts ? padded_rank(&parts[i]) : 0;
        item->first[i + 1] = item->first[i] + rank;
        if (rank == 0) continue;
        assert_always(parts[i].down.cols == w->k && parts[i].down.rows == parts[i].up.cols &&
                      parts[i].up.rows == w->part_rows[i]);
        downs.push_back(&parts[i].down);
        ranks.push_back(rank);
        item->scale[i] = parts[i].scale;
        item->up[i] = upload(d, {&parts[i].up}, {(int32_t)parts[i].up.rows}, rank);
        if (!item->up[i]) return false;
    }
    if (downs.empty()) return true;
    item->down = upload(d, downs, ranks, w->k);
    return item->down != NULL;
}

/* False: 8 columns could be of two parts, or 16 bytes of two rows. */
bool place_parts(struct lora *l, const struct linear *w)
{
    bool fits = w->k % 8 == 0;
    int32_t end = 0;
    for (int i = 0; i < LINEAR_PARTS_MAX; i++) {
        l->part_ends[i] = end += w->part_rows[i];
        fits = fits && w->part_rows[i] % TILE_COLS == 0;
    }
    return fits;
}

bool make_room(struct cuda_device *d, int32_t num_ranks)
{
    if (num_ranks <= d->lora_stride) return true;
    d->lora_stride = num_ranks;
    d->lora_narrow =
        (__nv_bfloat16 *)cuda_alloc(&d->base, (size_t)d->limits.num_tokens * num_ranks * 2, "adapters");
    return d->lora_narrow != NULL;
}

bool make_items(struct cuda_device *d, struct lora *l, const struct linear *w, const struct lora_desc *desc)
{
    std::vector<struct lora_item> items((size_t)desc->num_adapters);
    for (int32_t i = 0; i < desc->num_adapters; i++) {
        if (!make_item(d, w, desc->parts[i], w->num_parts, &items[i])) return false;
        l->num_ranks = max(l->num_ranks, items[i].first[LINEAR_PARTS_MAX]);
    }
    const size_t bytes = items.size() * sizeof items[0];
    l->items = (struct lora_item *)cuda_alloc(&d->base, bytes, "adapters");
    return l->items && cuda_upload(&d->base, l->items, items.data(), bytes) == STATUS_OK &&
           make_room(d, l->num_ranks);
}

} // namespace

int cuda_lora_create(struct device *device, const struct linear *w, const struct lora_desc *desc,
                     struct lora **out, struct error *err)
{
    struct cuda_device *d = cuda_enter(device);
    struct lora *l = new struct lora();
    d->loras.push_back(l);
    l->n = w->n;
    l->k = w->k;
    l->alternates = w->kind == LINEAR_GATE_UP;
    if (!place_parts(l, w))
        return error_set(
            err, STATUS_UNSUPPORTED,
            "adapters of a matrix of %d x %d, whose parts are no multiples of 8, are not supported on a GPU",
            w->n, w->k);
    if (!make_items(d, l, w, desc))
        return error_set(err, STATUS_NO_MEMORY, "the GPU has no room for the adapters");
    *out = l;
    return STATUS_OK;
}

void cuda_loras_forget(struct cuda_device *d)
{
    for (struct lora *l : d->loras) delete l;
    d->loras.clear();
}

void cuda_linear_lora(struct device *device, const struct batch *b, enum row_set rows, void *out,
                      const void *x, const struct linear *w, const struct lora *l)
{
    struct cuda_device *d = cuda_of(device);
    const int32_t num_rows = batch_num_rows(b, rows);
    const bool is_gated = w->kind == LINEAR_GATE_UP;
    __nv_bfloat16 *sums = is_gated ? d->gate_up : (__nv_bfloat16 *)out;
    const tile_args a = {b->loras, rows == ROWS_LOGITS ? b->logit_rows : NULL, l->items, num_rows};
    wide_args wide = {l->n, d->lora_stride, {}, l->alternates};
    memcpy(wide.part_ends, l->part_ends, sizeof wide.part_ends);
    const unsigned tiles = (unsigned)((num_rows + TILE_ROWS - 1) / TILE_ROWS);
    assert_always(b->loras);
    launch_dependent(d, narrow_kernel, dim3(tiles, (unsigned)(l->num_ranks / TILE_COLS)), dim3(LORA_THREADS),
                     0, d->lora_narrow, d->lora_stride, (const __nv_bfloat16 *)x, l->k, a);
    cuda_linear_ungated(d, cuda_linear_padded(w, num_rows, d->limits.num_tokens), sums, x, w);
    launch_dependent(d, wide_kernel, dim3(tiles, (unsigned)((l->n + WIDE_COLS - 1) / WIDE_COLS)),
                     dim3(LORA_THREADS), 0, sums, (const __nv_bfloat16 *)d->lora_narrow, wide, a);
    cuda_linear_gate(d, num_rows, out, w);
}
