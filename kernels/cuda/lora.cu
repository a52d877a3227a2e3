/* lora.cu - what adapters of low rank add to a linear's results (kernels/device.h: lora_desc): behind the product one kernel makes down x, of all
 * parts at once, and one adds what up makes of it, in f32 and rounded, and has the gate, too.
 *
 * Both take 16 rows a CTA and compute them with each adapter that any of them has: in a prompt that is one, among decoding sequences as
 * many as are there, each of which reads its matrices once. The first one's are asked for before the product has ended. Few rows keep few SMs
 * busy: K is cut into pieces of PIECE columns, a CTA each, whose sums the second kernel adds in their order. So a row's sums are those of the
 * tensor cores' tile of it alone, in an order that is K's and the ranks' alone. */
#include <string.h>

#include <algorithm>
#include <vector>

#include "kernels/cuda/gate.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear.cuh"

enum {
    TILE_ROWS = 16,
    TILE_COLS = 8,  /* of a product of the tensor cores */
    RANK_TILE = 16, /* ranks that a CTA makes; they are padded to multiples of it */
    NARROW_WARPS = 8,
    NARROW_THREADS = 32 * NARROW_WARPS,
    WARP_COLS = 128, /* of K */
    WARP_LOADS = WARP_COLS / 32,
    PIECE = NARROW_WARPS * WARP_COLS,
    WIDE_WARPS = 4,
    WIDE_THREADS = 32 * WIDE_WARPS,
    UNIT_ROWS = 32, /* of up, of one part; of a gate and of its up, where the linear has them */
    UNIT_TILES = UNIT_ROWS / TILE_COLS,
    UNITS_OF_MANY = 4, /* of a warp, where tiles of rows alone keep all SMs busy */
    MANY_TILES = 16,
    NARROW_BYTES_MAX = 32 << 20 /* rows are taken by turns where their pieces' sums would take more */
};

/* One adapter's, of one linear. Ranks are padded to multiples of RANK_TILE, with zeros. */
struct lora_item {
    __nv_bfloat16 *down;                 /* [num_ranks][K]; of all parts, one after the other */
    __nv_bfloat16 *up[LINEAR_PARTS_MAX]; /* [rows of the part][rank] */
    int32_t first[LINEAR_PARTS_MAX + 1]; /* of each part among the ranks; as many as the next: none */
    float scale[LINEAR_PARTS_MAX];
};

struct lora {
    struct lora_item *items;             /* device memory: of adapter i the one at i - 1 */
    std::vector<struct lora_item> rooms; /* what there is memory for in each: as many ranks as come at most */
    int32_t num_ranks;                   /* the most that an item has */
    int32_t n, k;
    int32_t part_ends[LINEAR_PARTS_MAX];
    int32_t num_units; /* wide_kernel's */
};

namespace
{

/* Rows of a product, and whose they are. */
struct row_args {
    const int32_t *adapters;   /* [T] */
    const int32_t *logit_rows; /* NULL: rows are tokens */
    const struct lora_item *items;
    int32_t num_rows;
};

/* Of the tile's rows, and each one that any of them has once. */
struct tile_adapters {
    int32_t of_row[TILE_ROWS], all[TILE_ROWS], num;
};

/* A step's arrays are there before its first kernel, so this need not wait for the one ahead. */
__device__ void read_adapters(struct tile_adapters *t, const row_args &a, int32_t first_row)
{
    const int32_t lane = (int32_t)threadIdx.x, row = first_row + lane;
    if (threadIdx.x < 32) {
        const bool in = lane < TILE_ROWS && row < a.num_rows;
        const int32_t own = in ? a.adapters[a.logit_rows ? a.logit_rows[row] : row] : 0;
        bool is_first = own > 0;
        for (int i = 0; i < TILE_ROWS; i++) {
            const int32_t other = __shfl_sync(~0u, own, i);
            is_first = is_first && (other != own || i >= lane);
        }
        const unsigned firsts = __ballot_sync(~0u, is_first);
        if (lane < TILE_ROWS) t->of_row[lane] = own;
        if (is_first) t->all[__popc(firsts & ((1u << lane) - 1))] = own;
        if (lane == 0) t->num = __popc(firsts);
    }
    __syncthreads();
}

/* 16 bytes of a row, or zeros. */
__device__ __forceinline__ uint4 load_row(const __nv_bfloat16 *row, bool valid)
{
    return valid ? *(const uint4 *)row : make_uint4(0, 0, 0, 0);
}

/* Two tiles of 8 ranks, of the warp's columns from at on. */
__device__ void load_down(uint4 w[2][WARP_LOADS], const __nv_bfloat16 *down, int32_t at, int32_t k)
{
    const int32_t g = (int32_t)threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < WARP_LOADS; i++)
#pragma unroll
        for (int tile = 0; tile < 2; tile++)
            w[tile][i] = load_row(down + (size_t)(tile * TILE_COLS + g) * k + at + 32 * i, at + 32 * i < k);
}

/* c += x[16][K] down[16][K]^T of these columns. Those of a product of 16 are any 16, as long as both sides have the same. */
__device__ void multiply_narrow(float c[2][4], const uint4 low[WARP_LOADS], const uint4 high[WARP_LOADS],
                                const uint4 w[2][WARP_LOADS])
{
#pragma unroll
    for (int i = 0; i < WARP_LOADS; i++) {
        const uint32_t first[4] = {low[i].x, high[i].x, low[i].y, high[i].y},
                       second[4] = {low[i].z, high[i].z, low[i].w, high[i].w};
#pragma unroll
        for (int tile = 0; tile < 2; tile++) {
            mma_bf16(c[tile], first, w[tile][i].x, w[tile][i].y);
            mma_bf16(c[tile], second, w[tile][i].z, w[tile][i].w);
        }
    }
}

/* out[pieces][rows][stride]: what the warps' columns give together. A CTA has a tile of rows, one of ranks and a piece of K. */
__global__ void __launch_bounds__(NARROW_THREADS)
    narrow_kernel(float *out, int32_t stride, const __nv_bfloat16 *x, int32_t k, const row_args a)
{
    __shared__ struct tile_adapters adapters;
    __shared__ float partial[NARROW_WARPS][TILE_ROWS][RANK_TILE];
    const int32_t first_row = (int32_t)blockIdx.x * TILE_ROWS, rank = (int32_t)blockIdx.y * RANK_TILE,
                  warp = (int32_t)threadIdx.x / 32, lane = (int32_t)threadIdx.x % 32, g = lane / 4,
                  row = (int32_t)threadIdx.x / RANK_TILE, col = (int32_t)threadIdx.x % RANK_TILE,
                  at = (int32_t)blockIdx.z * PIECE + warp * WARP_COLS + 8 * (lane % 4);
    uint4 low[WARP_LOADS], high[WARP_LOADS], w[2][WARP_LOADS];
    dependents_launch();
    read_adapters(&adapters, a, first_row);
    for (int i = 0; i < max(adapters.num, 1); i++) {
        const struct lora_item *item = i < adapters.num ? &a.items[adapters.all[i] - 1] : NULL;
        const bool has_ranks = item && rank < item->first[LINEAR_PARTS_MAX];
        if (has_ranks) load_down(w, item->down + (size_t)rank * k, at, k);
        if (i == 0) {
            dependency_wait();
#pragma unroll
            for (int j = 0; j < WARP_LOADS; j++) {
                const __nv_bfloat16 *from = x + (size_t)(first_row + g) * k + at + 32 * j;
                low[j] = load_row(from, at + 32 * j < k && first_row + g < a.num_rows);
                high[j] = load_row(from + (size_t)8 * k, at + 32 * j < k && first_row + g + 8 < a.num_rows);
            }
        }
        if (!has_ranks) continue;
        float c[2][4] = {};
        multiply_narrow(c, low, high, w);
#pragma unroll
        for (int tile = 0; tile < 2; tile++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                partial[warp][g + j / 2 * 8][tile * TILE_COLS + 2 * (lane % 4) + j % 2] = c[tile][j];
        __syncthreads();
        if (adapters.of_row[row] == adapters.all[i]) {
            float sum = 0;
            for (int j = 0; j < NARROW_WARPS; j++) sum += partial[j][row][col];
            out[((size_t)blockIdx.z * a.num_rows + first_row + row) * stride + rank + col] = sum;
        }
        __syncthreads();
    }
}

/* Columns of the linear that are rows of a part's up. */
struct wide_args {
    int32_t n, stride, num_pieces;
    int32_t units, num_units; /* of a warp, of all parts */
    int32_t part_ends[LINEAR_PARTS_MAX];
};

/* A unit: rows of up of a part, and where the linear has them. */
struct place {
    int part;
    int32_t row, num_rows, col; /* the first; of the part; of the first */
};

__device__ __forceinline__ struct place place_in(int part, int32_t begin, int32_t end, int32_t unit)
{
    return {part, unit * UNIT_ROWS, end - begin, begin + unit * UNIT_ROWS};
}

__host__ __device__ int32_t units_of(int32_t num_rows)
{
    return (num_rows + UNIT_ROWS - 1) / UNIT_ROWS;
}

/* Of half i of a gate and its up, 8 columns of which alternate; of a part i is 0. */
template <bool IS_GATED> __device__ struct place place_of(const wide_args &w, int32_t unit, int i)
{
    if (IS_GATED) return {i, unit * UNIT_ROWS, w.n / 2, 2 * unit * UNIT_ROWS + i * TILE_COLS};
    const int32_t ends[LINEAR_PARTS_MAX] = {w.part_ends[0], w.part_ends[1], w.part_ends[2]},
                  first = units_of(ends[0]), second = first + units_of(ends[1] - ends[0]);
    if (unit < first) return place_in(0, 0, ends[0], unit);
    if (unit < second) return place_in(1, ends[0], ends[1], unit - first);
    return place_in(2, ends[1], ends[2], unit - second);
}

/* For each tile two words of a row of up, of 16 ranks. Which rows a tile has is free, as long as they are one each: these leave a lane
 * 8 neighbouring columns of the unit. */
__device__ void load_up(uint2 up[UNIT_TILES], const struct lora_item *item, const struct place &p, int32_t at)
{
    const int32_t lane = (int32_t)threadIdx.x % 32, g = lane / 4,
                  rank = item->first[p.part + 1] - item->first[p.part], row = p.row + 8 * (g / 2) + g % 2;
    const uint32_t *from = (const uint32_t *)(item->up[p.part] + (size_t)row * rank + at + 2 * (lane % 4));
#pragma unroll
    for (int j = 0; j < UNIT_TILES; j++, from += rank)
        up[j] = at < rank && row + 2 * j < p.num_rows ? make_uint2(from[0], from[4]) : make_uint2(0, 0);
}

/* The sums of a row's pieces, of two ranks, in bf16. */
__device__ uint32_t narrow_pair(const float *from, size_t piece_floats, int32_t num_pieces, bool valid)
{
    float2 sum = {0, 0};
    if (!valid) return 0;
#pragma unroll 4
    for (int32_t i = 0; i < num_pieces; i++) {
        const float2 piece = *(const float2 *)(from + i * piece_floats);
        sum = {sum.x + piece.x, sum.y + piece.y};
    }
    return pack_bf16(sum.x, sum.y);
}

/* The tile's rows, as a product has them, of 16 ranks of one adapter; of which is kept from unit to unit. */
struct narrow_tile {
    const struct lora_item *item;
    int32_t first;
    uint32_t x[4];
};

__device__ void load_narrow(struct narrow_tile *t, const float *narrow, const wide_args &w, const row_args &a,
                            int32_t first_row, const struct lora_item *item, int32_t first)
{
    const int32_t lane = (int32_t)threadIdx.x % 32, row = first_row + lane / 4;
    const float *from = narrow + (size_t)row * w.stride + first + 2 * (lane % 4);
    const size_t piece_floats = (size_t)a.num_rows * w.stride;
    if (t->item == item && t->first == first) return;
    t->item = item;
    t->first = first;
#pragma unroll
    for (int i = 0; i < 4; i++)
        t->x[i] = narrow_pair(from + (size_t)(i % 2 * 8) * w.stride + i / 2 * 8, piece_floats, w.num_pieces,
                              row + i % 2 * 8 < a.num_rows);
}

__device__ __forceinline__ uint32_t add_pair(uint32_t pair, float low, float high)
{
    const float2 before = unpack_bf16(pair);
    return pack_bf16(before.x + low, before.y + high);
}

/* A lane's 8 columns of a row. */
struct columns {
    uint32_t pairs[UNIT_TILES];
};

__device__ __forceinline__ struct columns load_columns(const __nv_bfloat16 *from)
{
    const uint4 v = *(const uint4 *)from;
    return {{v.x, v.y, v.z, v.w}};
}

__device__ __forceinline__ void store_columns(__nv_bfloat16 *to, const struct columns &c)
{
    *(uint4 *)to = make_uint4(c.pairs[0], c.pairs[1], c.pairs[2], c.pairs[3]);
}

/* What one adapter adds to a unit of its rows: sums[2] are the lane's columns of row g and of row g + 8. up: load_up's for the first ranks. */
__device__ void add_wide(struct columns sums[2], const float *narrow, const wide_args &w, const row_args &a,
                         const struct tile_adapters &adapters, int32_t first_row, int32_t adapter,
                         const struct place &p, uint2 up[UNIT_TILES], struct narrow_tile *tile)
{
    const struct lora_item *item = &a.items[adapter - 1];
    const int32_t g = (int32_t)threadIdx.x % 32 / 4, first = item->first[p.part],
                  rank = item->first[p.part + 1] - first;
    const float scale = item->scale[p.part];
    float c[UNIT_TILES][4] = {};
    for (int32_t at = 0; at < rank; at += RANK_TILE) {
        load_narrow(tile, narrow, w, a, first_row, item, first + at);
        if (at > 0) load_up(up, item, p, at);
#pragma unroll
        for (int j = 0; j < UNIT_TILES; j++) mma_bf16(c[j], tile->x, up[j].x, up[j].y);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (rank == 0 || adapters.of_row[g + 8 * i] != adapter) continue;
#pragma unroll
        for (int j = 0; j < UNIT_TILES; j++)
            sums[i].pairs[j] = add_pair(sums[i].pairs[j], scale * c[j][2 * i], scale * c[j][2 * i + 1]);
    }
}

/* What units of columns become: IS_GATED: columns of out, what the gate makes of as many of gate and of up; else themselves, in
 * place. A CTA has a tile of rows and some units. */
template <bool IS_GATED, enum gate_function GATE>
__global__ void __launch_bounds__(WIDE_THREADS)
    wide_kernel(__nv_bfloat16 *out, __nv_bfloat16 *product, const float *narrow, const wide_args w,
                const row_args a)
{
    enum { HALVES = IS_GATED ? 2 : 1 };
    __shared__ struct tile_adapters adapters;
    const int32_t first_row = (int32_t)blockIdx.x * TILE_ROWS, lane = (int32_t)threadIdx.x % 32,
                  row = first_row + lane / 4, lane_row = 8 * (lane % 4),
                  first_unit = ((int32_t)blockIdx.y * WIDE_WARPS + (int32_t)threadIdx.x / 32) * w.units;
    struct narrow_tile tiles[HALVES] = {};
    bool waits = true;
    dependents_launch();
    read_adapters(&adapters, a, first_row);
    for (int32_t unit = first_unit; unit < min(first_unit + w.units, w.num_units); unit++) {
        struct columns sums[HALVES][2] = {};
        uint2 up[HALVES][UNIT_TILES];
        struct place places[HALVES];
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            places[h] = place_of<IS_GATED>(w, unit, h);
            if (adapters.num > 0) load_up(up[h], &a.items[adapters.all[0] - 1], places[h], 0);
        }
        if (waits) dependency_wait();
        waits = false;
        const bool has_columns = places[0].row + lane_row < places[0].num_rows;
        __nv_bfloat16 *from = product + (size_t)row * w.n + places[0].col + HALVES * lane_row;
#pragma unroll
        for (int i = 0; i < 2 * HALVES; i++)
            if (has_columns && row + i % 2 * 8 < a.num_rows)
                sums[i / 2][i % 2] = load_columns(from + (size_t)(i % 2 * 8) * w.n + i / 2 * TILE_COLS);
        for (int k = 0; k < adapters.num; k++)
#pragma unroll
            for (int h = 0; h < HALVES; h++) {
                if (k > 0) load_up(up[h], &a.items[adapters.all[k] - 1], places[h], 0);
                add_wide(sums[h], narrow, w, a, adapters, first_row, adapters.all[k], places[h], up[h],
                         &tiles[h]);
            }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (!has_columns || row + 8 * i >= a.num_rows) continue;
            struct columns made = sums[0][i];
#pragma unroll
            for (int j = 0; j < UNIT_TILES && IS_GATED; j++)
                made.pairs[j] = gate_mul<GATE>(sums[0][i].pairs[j], sums[HALVES - 1][i].pairs[j]);
            store_columns(IS_GATED ? out + (size_t)(row + 8 * i) * (w.n / 2) + places[0].row + lane_row
                                   : from + (size_t)(8 * i) * w.n,
                          made);
        }
    }
    if (waits) dependency_wait(); /* the next kernel counts on it */
}

/* ---- making them ---- */

int32_t padded(int64_t rank)
{
    return ((int32_t)rank + RANK_TILE - 1) / RANK_TILE * RANK_TILE;
}

int32_t padded_rank(const struct lora_part *p)
{
    return p->down.data ? padded(p->down.rows) : 0;
}

__nv_bfloat16 *alloc_values(struct cuda_device *d, size_t num)
{
    return (__nv_bfloat16 *)cuda_alloc(&d->base, num * sizeof(__nv_bfloat16), "adapters");
}

/* [rows][cols] of views in bf16, with zeros behind. */
bool upload(struct cuda_device *d, __nv_bfloat16 *to, const std::vector<const struct weight_view *> &views,
            const std::vector<int32_t> &rows, int32_t cols)
{
    size_t num_rows = 0;
    for (int32_t r : rows) num_rows += (size_t)r;
    std::vector<float> row((size_t)cols);
    std::vector<__nv_bfloat16> values(num_rows * cols, __float2bfloat16_rn(0));
    __nv_bfloat16 *at = values.data();
    for (size_t i = 0; i < views.size(); at += (size_t)rows[i++] * cols)
        for (int64_t r = 0; r < views[i]->rows; r++) {
            weight_view_row_to_f32(views[i], r, row.data());
            for (int64_t c = 0; c < views[i]->cols; c++) at[r * cols + c] = __float2bfloat16_rn(row[c]);
        }
    return cuda_upload(&d->base, to, values.data(), values.size() * sizeof values[0]) == STATUS_OK;
}

/* Memory for the parts, or for max_rank of each where that is more. */
bool make_room_of(struct cuda_device *d, const struct linear *w, const struct lora_part *parts,
                  int32_t max_rank, struct lora_item *room)
{
    *room = {};
    for (int i = 0; i < LINEAR_PARTS_MAX; i++) {
        const int32_t rank = i < w->num_parts ? max(padded_rank(&parts[i]), padded(max_rank)) : 0;
        room->first[i + 1] = room->first[i] + rank;
        if (rank > 0 && !(room->up[i] = alloc_values(d, (size_t)w->part_rows[i] * rank))) return false;
    }
    const size_t num_ranks = (size_t)room->first[LINEAR_PARTS_MAX];
    return num_ranks == 0 || (room->down = alloc_values(d, num_ranks * w->k));
}

/* What the parts are in the room that is theirs. */
bool fill_room(struct cuda_device *d, const struct linear *w, const struct lora_part *parts,
               const struct lora_item *room, struct lora_item *item)
{
    std::vector<const struct weight_view *> downs;
    std::vector<int32_t> ranks;
    *item = *room;
    for (int i = 0; i < LINEAR_PARTS_MAX; i++) {
        const int32_t rank = i < w->num_parts ? padded_rank(&parts[i]) : 0;
        item->first[i + 1] = item->first[i] + rank;
        if (rank == 0) continue;
        assert_always(parts[i].down.cols == w->k && parts[i].down.rows == parts[i].up.cols &&
                      parts[i].up.rows == w->part_rows[i] && rank <= room->first[i + 1] - room->first[i]);
        downs.push_back(&parts[i].down);
        ranks.push_back(rank);
        item->scale[i] = parts[i].scale;
        if (!upload(d, item->up[i], {&parts[i].up}, {(int32_t)parts[i].up.rows}, rank)) return false;
    }
    return downs.empty() || upload(d, item->down, downs, ranks, w->k);
}

/* False: 8 columns could be of two parts, or 16 bytes of two rows. */
bool place_parts(struct lora *l, const struct linear *w)
{
    bool fits = w->k % 8 == 0;
    int32_t end = 0;
    for (int i = 0; i < LINEAR_PARTS_MAX; i++) {
        l->part_ends[i] = end += w->part_rows[i];
        fits = fits && w->part_rows[i] % TILE_COLS == 0;
        if (i == 0 || w->kind != LINEAR_GATE_UP) l->num_units += units_of(w->part_rows[i]);
    }
    return fits;
}

int32_t num_pieces(const struct lora *l)
{
    return (l->k + PIECE - 1) / PIECE;
}

/* Rows whose pieces' sums are kept at a time. */
int32_t rows_at_a_time(const struct cuda_device *d, const struct lora *l)
{
    const int32_t row_bytes = l->num_ranks * num_pieces(l) * 4,
                  rows = max(NARROW_BYTES_MAX / row_bytes / TILE_ROWS, 1) * TILE_ROWS;
    return min(rows, d->limits.num_tokens);
}

bool make_room(struct cuda_device *d, const struct lora *l)
{
    const size_t bytes = (size_t)rows_at_a_time(d, l) * l->num_ranks * num_pieces(l) * 4;
    if (bytes <= d->lora_narrow_bytes) return true;
    d->lora_narrow_bytes = bytes;
    d->lora_narrow = (float *)cuda_alloc(&d->base, bytes, "adapters");
    return d->lora_narrow != NULL;
}

bool make_items(struct cuda_device *d, struct lora *l, const struct linear *w, const struct lora_desc *desc)
{
    std::vector<struct lora_item> items((size_t)desc->num_adapters);
    l->rooms.resize(items.size());
    for (int32_t i = 0; i < desc->num_adapters; i++) {
        struct lora_item *room = &l->rooms[(size_t)i];
        if (!make_room_of(d, w, desc->parts[i], desc->max_rank, room) ||
            !fill_room(d, w, desc->parts[i], room, &items[(size_t)i]))
            return false;
        l->num_ranks = max(l->num_ranks, room->first[LINEAR_PARTS_MAX]);
    }
    const size_t bytes = items.size() * sizeof items[0];
    l->items = (struct lora_item *)cuda_alloc(&d->base, bytes, "adapters");
    return l->items && cuda_upload(&d->base, l->items, items.data(), bytes) == STATUS_OK &&
           (l->num_ranks == 0 || make_room(d, l));
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

int cuda_lora_set(struct device *device, const struct linear *w, struct lora *l, int32_t i,
                  const struct lora_part parts[LINEAR_PARTS_MAX], struct error *err)
{
    struct cuda_device *d = cuda_enter(device);
    struct lora_item item;
    assert_always(i >= 0 && (size_t)i < l->rooms.size());
    if (fill_room(d, w, parts, &l->rooms[(size_t)i], &item) &&
        cuda_upload(&d->base, l->items + i, &item, sizeof item) == STATUS_OK)
        return STATUS_OK;
    return error_set(err, STATUS_DEVICE, "the GPU does not take an adapter in: %s",
                     cudaGetErrorString(d->first_error));
}

void cuda_loras_forget(struct cuda_device *d)
{
    for (struct lora *l : d->loras) delete l;
    d->loras.clear();
}

namespace
{

using wide_function = void (*)(__nv_bfloat16 *, __nv_bfloat16 *, const float *, wide_args, row_args);

wide_function wide_kernel_of(const struct linear *w)
{
    if (w->kind != LINEAR_GATE_UP) return wide_kernel<false, GATE_SILU>;
    return w->gate == GATE_SILU        ? wide_kernel<true, GATE_SILU>
           : w->gate == GATE_GELU      ? wide_kernel<true, GATE_GELU>
           : w->gate == GATE_GELU_TANH ? wide_kernel<true, GATE_GELU_TANH>
                                       : wide_kernel<true, GATE_RELU_SQUARED>;
}

/* Of rows from first on. */
void add_rows(struct cuda_device *d, const struct linear *w, const struct lora *l, struct row_args a,
              int32_t first, __nv_bfloat16 *out, __nv_bfloat16 *product, const __nv_bfloat16 *x)
{
    const bool is_gated = w->kind == LINEAR_GATE_UP;
    const unsigned tiles = (unsigned)((a.num_rows + TILE_ROWS - 1) / TILE_ROWS);
    wide_args wide = {
        l->n, l->num_ranks, num_pieces(l), tiles >= MANY_TILES ? UNITS_OF_MANY : 1, l->num_units, {}};
    memcpy(wide.part_ends, l->part_ends, sizeof wide.part_ends);
    const int32_t cta_units = WIDE_WARPS * wide.units;
    if (a.logit_rows)
        a.logit_rows += first;
    else
        a.adapters += first;
    launch_dependent(
        d, narrow_kernel, dim3(tiles, (unsigned)(l->num_ranks / RANK_TILE), (unsigned)wide.num_pieces),
        dim3(NARROW_THREADS), 0, d->lora_narrow, l->num_ranks, x + (size_t)first * l->k, l->k, a);
    launch_dependent(d, wide_kernel_of(w),
                     dim3(tiles, (unsigned)((l->num_units + cta_units - 1) / cta_units)), dim3(WIDE_THREADS),
                     0, out + (size_t)first * (is_gated ? l->n / 2 : l->n), product + (size_t)first * l->n,
                     (const float *)d->lora_narrow, wide, a);
}

} // namespace

void cuda_linear_lora(struct device *device, const struct batch *b, enum row_set rows, void *out,
                      const void *x, const struct linear *w, const struct lora *l)
{
    struct cuda_device *d = cuda_of(device);
    const int32_t num_rows = batch_num_rows(b, rows);
    __nv_bfloat16 *product = w->kind == LINEAR_GATE_UP ? d->gate_up : (__nv_bfloat16 *)out;
    assert_always(b->loras && l->num_ranks > 0);
    cuda_linear_ungated(d, cuda_linear_padded(w, num_rows, d->limits.num_tokens), product, x, w);
    for (int32_t first = 0, num; first < num_rows; first += num) {
        num = min(rows_at_a_time(d, l), num_rows - first);
        const struct row_args a = {b->loras, rows == ROWS_LOGITS ? b->logit_rows : NULL, l->items, num};
        add_rows(d, w, l, a, first, (__nv_bfloat16 *)out, product, (const __nv_bfloat16 *)x);
    }
    if (w->kind == LINEAR_UP) cuda_linear_gate(d, num_rows, out, w);
}
