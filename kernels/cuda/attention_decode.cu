/* attention_decode.cu - Flash-Decoding over the paged pool.
 *
 * One generated token a sequence. The G query heads that share a K/V head are the rows of one 16-row tile, so K and V
 * are read once for all of them. The keys of a sequence are cut into splits, by its own length alone. An item is
 * (sequence, K/V head, split); all items of a step stand in that order, and each CTA of a fixed grid walks a range of
 * them, cut on the host by pages. There are more ranges than CTAs at a time, from large ones to small ones: SMs do not get
 * equal shares of the memory, and so the fast ones walk more (one range each left them idle for 6 % of the time).
 *
 *   items:  | seq 0, head 0: 0 1 2 3 | head 1: 0 1 2 3 | ... | seq 1, head 0: 0 1 ... 31 | ...
 *   CTAs:   |<------- CTA 0 ------->|<------- CTA 1 ------->|<------- CTA 2 -------> ...
 *   item:   | page 0 | page 1 | page 2 | page 3 | page 4 | ...     pages of 16 tokens
 *   warp:       0        1        2        3        0
 *
 * Each warp walks its own pages with its own ring of asynchronous copies, which runs on across items: while an item is
 * merged the next one's pages are in flight. The warps of an item are merged in warp order, and the splits of a head are
 * folded in split order: in registers by the CTA that walks all of them, else by whichever CTA finishes last, from
 * partial results in memory, with the same operations. So the bits are a function of the sequence alone, not of where
 * the ranges were cut.
 *
 * Only the page with the newest token and the queries come from this step's kernels; all other pages are fetched before
 * the kernel ahead has ended.
 *
 * Rows beyond the end of a sequence are filled with zeros and not read: what an earlier owner of the block left there,
 * a NaN perhaps, must not reach this one (0 x NaN).
 *
 * Source: Dao et al., "Flash-Decoding for long-context inference", 2023; the GQA packing is FlashInfer's. */
#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/mma.cuh"

enum {
    WARPS = 4,
    THREADS = WARPS * 32,
    GROUP_ROWS = 16,
    SPLITS_MAX = 32,
    PAD_BYTES = 16,
    SPLIT_PAGES_MIN = 16,
    SM_SHARED_BYTES = 227 << 10,
    SM_CTAS_MAX = 2,
    RANGES_PER_SLOT = 5, /* of the grid: a CTA without a range ends at once */
    RANGE_PAGES_MIN = 16
};

struct decode_args {
    __nv_bfloat16 *out;
    const __nv_bfloat16 *qkv, *pool;
    const int32_t *counts, *base, *cu_seqlens_q, *seqlens_k, *table_offsets;
    float *partial;
    int32_t *counters;
    size_t block_elements;
    int32_t num_heads, num_kv_heads, group, head_tiles; /* head_tiles: tiles of 16 query heads a K/V head */
    int32_t sliding_window;
    float scale_log2;
};

/* How a sequence is cut: a function of its length (and the model's window) alone. */
struct cut {
    int32_t num_pages, pages_per_split, first_split, end_split; /* splits before the window are not computed */
};

static __host__ __device__ struct cut cut_of(int32_t seqlen, int32_t window)
{
    struct cut c;
    c.num_pages = (seqlen + BLOCK_SIZE - 1) / BLOCK_SIZE;
    c.pages_per_split = ((c.num_pages + SPLITS_MAX - 1) / SPLITS_MAX + WARPS - 1) / WARPS * WARPS;
    if (c.pages_per_split < SPLIT_PAGES_MIN) c.pages_per_split = SPLIT_PAGES_MIN;
    c.first_split = window > 0 && seqlen > window ? (seqlen - window) / BLOCK_SIZE / c.pages_per_split : 0;
    c.end_split = (c.num_pages + c.pages_per_split - 1) / c.pages_per_split;
    return c;
}

template <int D> struct decode_traits {
    static constexpr int PITCH = D * 2 + PAD_BYTES; /* bytes a row: 16 more, so that 8 rows fall into distinct banks */
    static constexpr int PAGE_BYTES = BLOCK_SIZE * PITCH;
    static constexpr int STAGES = D >= 256 ? 2 : D >= 128 ? 3 : 4;
    static constexpr int RING_BYTES = WARPS * STAGES * 2 * PAGE_BYTES;
    static constexpr int ROW_FLOATS = D + 4;                       /* a result: D values, maximum, sum */
    static constexpr int VECTORS = (GROUP_ROWS * D / 4 + THREADS - 1) / THREADS; /* of 4 values, a thread at most */
};

/* ---- host: how much memory, how many CTAs, who walks what ---- */

bool cuda_attention_supports(int32_t head_dim)
{
    return head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128 || head_dim == 256;
}

static int32_t group_of(const struct attention_args *a)
{
    return a->num_heads / a->num_kv_heads;
}

/* Items of a sequence and split: K/V heads times tiles of query heads. */
int32_t cuda_decode_heads(const struct attention_args *a)
{
    return a->num_kv_heads * ((group_of(a) + GROUP_ROWS - 1) / GROUP_ROWS);
}

static size_t partial_stride(const struct attention_args *a)
{
    return (size_t)min(group_of(a), (int32_t)GROUP_ROWS) * (size_t)(a->head_dim + 4);
}

size_t cuda_decode_partial_floats(const struct step_limits *limits, const struct attention_args *args)
{
    return (size_t)limits->num_seqs * SPLITS_MAX * cuda_decode_heads(args) * partial_stride(args);
}

template <int D> static size_t shared_bytes(const struct attention_args *a)
{
    return decode_traits<D>::RING_BYTES + WARPS * partial_stride(a) * 4;
}

static size_t shared_bytes_of(const struct attention_args *a)
{
    switch (a->head_dim) {
    case 64: return shared_bytes<64>(a);
    case 80: return shared_bytes<80>(a);
    case 96: return shared_bytes<96>(a);
    case 128: return shared_bytes<128>(a);
    default: return shared_bytes<256>(a);
    }
}

/* CTAs that run at a time. */
static int32_t num_slots(const struct cuda_device *d, const struct attention_args *a)
{
    return d->num_sms * min((int32_t)(SM_SHARED_BYTES / (shared_bytes_of(a) + 1024)), (int32_t)SM_CTAS_MAX);
}

int32_t cuda_decode_ranges_max(const struct cuda_device *d, const struct attention_args *a)
{
    return num_slots(d, a) * RANGES_PER_SLOT;
}

/* Positions at which ranges begin, from large ranges to small ones: each takes its slot's share of two thirds of what is
 * left. In pages, or in items where there is no more than one for a slot. */
struct cutter {
    int64_t total, next, slots;
    int64_t num_left; /* ranges that may still begin */
    bool by_items;

    void advance(void)
    {
        int64_t left = total - next, size = left * 2 / (3 * slots);
        num_left--;
        if (size < RANGE_PAGES_MIN) size = RANGE_PAGES_MIN;
        if (num_left > 0 && size * num_left < left) size = (left + num_left - 1) / num_left;
        next += by_items ? 1 : num_left > 0 ? size : left;
    }
};

/* Cuts the step's items into ranges, one a CTA. */
int32_t cuda_decode_plan(const struct cuda_device *d, const struct step *step, struct decode_range *ranges)
{
    const struct attention_args *a = &d->attention;
    int64_t heads = cuda_decode_heads(a), num_pages = 0, num_items = 0;
    for (int32_t s = step->num_prefill_seqs; s < step->num_seqs; s++) {
        struct cut c = cut_of(step->seqlens_k[s], a->sliding_window);
        num_pages += heads * (c.num_pages - c.first_split * c.pages_per_split);
        num_items += heads * (c.end_split - c.first_split);
    }
    bool by_items = num_items <= num_slots(d, a);
    struct cutter cutter = {by_items ? num_items : num_pages, 0, num_slots(d, a), cuda_decode_ranges_max(d, a), by_items};
    int64_t before = 0, items_before = 0, first_item = 0; /* of this sequence; of the newest range */
    int32_t n = 0;
    for (int32_t s = step->num_prefill_seqs; s < step->num_seqs; s++) {
        struct cut c = cut_of(step->seqlens_k[s], a->sliding_window);
        int64_t splits = c.end_split - c.first_split, pages = c.num_pages - c.first_split * c.pages_per_split;
        int64_t per_head = by_items ? splits : pages;
        for (; cutter.next < before + heads * per_head; cutter.advance()) {
            int64_t at = cutter.next - before, split = by_items ? at % splits : at % pages / c.pages_per_split;
            int64_t item = items_before + at / per_head * splits + split;
            if (n > 0 && item == first_item) continue; /* the range before would be empty */
            if (n > 0) ranges[n - 1].num_items = (int32_t)(item - first_item);
            ranges[n++] = decode_range{s, (int32_t)(at / per_head), c.first_split + (int32_t)split, 0};
            first_item = item;
        }
        before += heads * per_head;
        items_before += heads * splits;
    }
    if (n > 0) ranges[n - 1].num_items = (int32_t)(num_items - first_item);
    return n;
}

/* ---- device ---- */

/* Where a warp stands in its CTA's range of items. */
struct walk {
    int32_t num_left; /* items, this one included */
    int32_t seq, head, split;
    int32_t seqlen, page, end_page; /* this warp's next page of the item */
    struct cut cut;
    const int32_t *table;
    int32_t kv_head, first_row; /* of the head: which K/V head, and its first query head among the group's */
};

static __device__ __forceinline__ void walk_open_seq(const decode_args &a, struct walk *w)
{
    w->seqlen = a.seqlens_k[w->seq];
    w->table = a.base + a.counts[COUNT_TABLES] + a.table_offsets[w->seq];
    w->cut = cut_of(w->seqlen, a.sliding_window);
}

static __device__ __forceinline__ void walk_open_split(struct walk *w, int warp)
{
    w->page = w->split * w->cut.pages_per_split + warp;
    w->end_page = min((w->split + 1) * w->cut.pages_per_split, w->cut.num_pages);
}

static __device__ __forceinline__ void walk_open_head(const decode_args &a, struct walk *w)
{
    w->kv_head = a.head_tiles == 1 ? w->head : w->head / a.head_tiles;
    w->first_row = (w->head - w->kv_head * a.head_tiles) * GROUP_ROWS;
}

static __device__ __forceinline__ void walk_next(const decode_args &a, struct walk *w, int warp)
{
    if (--w->num_left == 0) return;
    if (++w->split == w->cut.end_split) {
        if (++w->head == a.num_kv_heads * a.head_tiles) {
            w->head = 0;
            w->seq++;
            walk_open_seq(a, w);
        }
        walk_open_head(a, w);
        w->split = w->cut.first_split;
    }
    walk_open_split(w, warp);
}

/* The loading side of a warp: the block of its next page is looked up one page ahead. */
struct loader {
    struct walk walk;
    int32_t block;
    uint32_t num_loaded;
};

static __device__ __forceinline__ void loader_settle(const decode_args &a, struct loader *l, int warp)
{
    while (l->walk.num_left > 0 && l->walk.page >= l->walk.end_page) walk_next(a, &l->walk, warp);
    if (l->walk.num_left > 0) l->block = l->walk.table[l->walk.page];
}

/* One page's K and V into the ring, and one group of copies closed, also when there is nothing left. */
template <int D>
static __device__ __forceinline__ void load_page(const decode_args &a, struct loader *l, uint32_t ring, int warp, int lane)
{
    using T = decode_traits<D>;
    const struct walk *w = &l->walk;
    if (w->num_left > 0) {
        if (w->page == w->cut.num_pages - 1) dependency_wait(); /* the newest token is written by the kernel ahead */
        uint32_t stage = ring + l->num_loaded % T::STAGES * 2 * T::PAGE_BYTES;
        const __nv_bfloat16 *k =
            a.pool + l->block * a.block_elements + (size_t)w->kv_head * BLOCK_SIZE * D + lane * 8;
        const __nv_bfloat16 *v = k + (size_t)a.num_kv_heads * BLOCK_SIZE * D;
        int32_t rows_left = w->seqlen - w->page * BLOCK_SIZE;
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            int chunk = i * 32 + lane, row = chunk / (D / 8), column = chunk % (D / 8);
            uint32_t to = stage + row * T::PITCH + column * 16;
            copy_async(to, k + i * 32 * 8, row < rows_left);
        }
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            int chunk = i * 32 + lane, row = chunk / (D / 8), column = chunk % (D / 8);
            copy_async(stage + T::PAGE_BYTES + row * T::PITCH + column * 16, v + i * 32 * 8, row < rows_left);
        }
        l->walk.page += WARPS;
        loader_settle(a, l, warp);
    }
    l->num_loaded++;
    copy_commit();
}

/* Q of the group's heads as A fragments; rows beyond the group are zero. */
template <int D>
static __device__ __forceinline__ void load_q(const decode_args &a, const struct walk *w, uint32_t (*q)[4], int lane)
{
    int g = lane / 4, t = lane % 4;
    int32_t token = a.cu_seqlens_q[w->seq], row_heads = a.num_heads + 2 * a.num_kv_heads;
    int32_t first_head = w->kv_head * a.group + w->first_row, rows = min(a.group - w->first_row, (int32_t)GROUP_ROWS);
    const uint32_t *low = (const uint32_t *)(a.qkv + ((size_t)token * row_heads + first_head + g) * D) + t;
    const uint32_t *high = low + 8 * D / 2;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        q[k][0] = g < rows ? low[8 * k] : 0;
        q[k][1] = g + 8 < rows ? high[8 * k] : 0;
        q[k][2] = g < rows ? low[8 * k + 4] : 0;
        q[k][3] = g + 8 < rows ? high[8 * k + 4] : 0;
    }
}

/* Running softmax of one warp: rows g and g + 8 of the tile. l is kept per lane and summed over the 4 lanes at the end. */
template <int D> struct softmax_state {
    float o[D / 8][4];
    float m[2], l[2];
};

template <int D> static __device__ __forceinline__ void state_clear(struct softmax_state<D> *s)
{
#pragma unroll
    for (int n = 0; n < D / 8; n++)
        for (int i = 0; i < 4; i++) s->o[n][i] = 0;
    for (int i = 0; i < 2; i++) {
        s->m[i] = -INFINITY;
        s->l[i] = 0;
    }
}

template <int D>
static __device__ __forceinline__ void take_page(const decode_args &a, const struct walk *w, uint32_t stage, const uint32_t (*q)[4],
                                 struct softmax_state<D> *s, int lane)
{
    using T = decode_traits<D>;
    float p[2][4] = {};
    uint32_t k_row = stage + (lane % 8 + (lane / 16) * 8) * T::PITCH + ((lane / 8) % 2) * 16;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t b[4]; /* tokens 0-7: k halves 0, 1; tokens 8-15: k halves 0, 1 */
        load_matrix(b, k_row + k * 32);
        mma_bf16(p[0], q[k], b[0], b[1]);
        mma_bf16(p[1], q[k], b[2], b[3]);
    }
    int32_t token = w->page * BLOCK_SIZE + 2 * (lane % 4);
    int32_t first_token = a.sliding_window > 0 ? w->seqlen - a.sliding_window : 0;
    float m_new[2] = {s->m[0], s->m[1]};
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int32_t at = token + 8 * n + i % 2;
            if (at >= w->seqlen || at < first_token) p[n][i] = -INFINITY;
            m_new[i / 2] = fmaxf(m_new[i / 2], p[n][i]);
        }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        m_new[i] = fmaxf(m_new[i], __shfl_xor_sync(0xffffffffu, m_new[i], 1));
        m_new[i] = fmaxf(m_new[i], __shfl_xor_sync(0xffffffffu, m_new[i], 2));
    }
    float base[2], rescale[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float top = m_new[i] == -INFINITY ? 0.0f : m_new[i]; /* a row that sees nothing yet */
        base[i] = top * a.scale_log2;
        rescale[i] = exp2_fast((s->m[i] - top) * a.scale_log2); /* exactly 1 when the maximum stays */
        s->m[i] = m_new[i];
        s->l[i] *= rescale[i];
    }
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            p[n][i] = exp2_fast(p[n][i] * a.scale_log2 - base[i / 2]);
            s->l[i / 2] += p[n][i];
        }
    uint32_t pa[4] = {pack_bf16(p[0][0], p[0][1]), pack_bf16(p[0][2], p[0][3]), pack_bf16(p[1][0], p[1][1]),
                      pack_bf16(p[1][2], p[1][3])};
    uint32_t v_row = stage + T::PAGE_BYTES + (lane % 16) * T::PITCH + (lane / 16) * 16;
#pragma unroll
    for (int n = 0; n < D / 16; n++) {
        uint32_t b[4];
        load_matrix_transposed(b, v_row + n * 32);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float *o = s->o[2 * n + h];
            o[0] *= rescale[0];
            o[1] *= rescale[0];
            o[2] *= rescale[1];
            o[3] *= rescale[1];
            mma_bf16(o, pa, b[2 * h], b[2 * h + 1]);
        }
    }
}

/* Leaves this warp's rows in shared memory: D values, maximum in log2 units, sum. */
template <int D>
static __device__ __forceinline__ void leave_state(float *to, struct softmax_state<D> *s, int32_t rows, float scale_log2,
                                                   int lane)
{
    int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        s->l[i] += __shfl_xor_sync(0xffffffffu, s->l[i], 1);
        s->l[i] += __shfl_xor_sync(0xffffffffu, s->l[i], 2);
        int row = g + 8 * i;
        if (row >= rows) continue;
        float *r = to + (size_t)row * decode_traits<D>::ROW_FLOATS;
#pragma unroll
        for (int n = 0; n < D / 8; n++) *(float2 *)(r + n * 8 + 2 * t) = make_float2(s->o[n][2 * i], s->o[n][2 * i + 1]);
        if (t == 0) *(float2 *)(r + D) = make_float2(s->m[i] == -INFINITY ? -INFINITY : s->m[i] * scale_log2, s->l[i]);
    }
}

/* Four values of one row's running result. */
struct piece {
    float4 o;
    float m, l;
};

template <int D> static __device__ __forceinline__ struct piece read_piece(const float *row, int column)
{
    float4 o = *(const float4 *)(row + column);
    float2 ml = *(const float2 *)(row + D);
    return piece{o, ml.x, ml.y};
}

/* Appends x to p. Spelled out, so that every place where it is inlined rounds alike. */
static __device__ __forceinline__ void piece_append(struct piece *p, const struct piece &x)
{
    float top = fmaxf(p->m, x.m), base = top == -INFINITY ? 0.0f : top;
    float a = exp2_fast(__fsub_rn(p->m, base)), b = exp2_fast(__fsub_rn(x.m, base));
    p->o.x = __fmaf_rn(p->o.x, a, __fmul_rn(x.o.x, b));
    p->o.y = __fmaf_rn(p->o.y, a, __fmul_rn(x.o.y, b));
    p->o.z = __fmaf_rn(p->o.z, a, __fmul_rn(x.o.z, b));
    p->o.w = __fmaf_rn(p->o.w, a, __fmul_rn(x.o.w, b));
    p->l = __fmaf_rn(p->l, a, __fmul_rn(x.l, b));
    p->m = top;
}

/* Where a thread's vector i of 4 values lies in the tile of heads. */
template <int D> struct place {
    int row, column;
    bool valid;
    __device__ __forceinline__ place(int i, int32_t rows)
    {
        int vector = threadIdx.x + i * THREADS;
        row = vector / (D / 4);
        column = vector % (D / 4) * 4;
        valid = row < rows;
    }
};

template <int D>
static __device__ __forceinline__ void write_out(const decode_args &a, const struct walk *w, const place<D> &at,
                                                 const struct piece &p)
{
    size_t head = (size_t)w->kv_head * a.group + w->first_row + at.row;
    float scale = 1.0f / p.l;
    uint2 packed = {pack_bf16(p.o.x * scale, p.o.y * scale), pack_bf16(p.o.z * scale, p.o.w * scale)};
    *(uint2 *)(a.out + ((size_t)a.cu_seqlens_q[w->seq] * a.num_heads + head) * D + at.column) = packed;
}

/* A head whose splits were walked by several CTAs: the last one to arrive folds them in order. */
template <int D>
static __device__ void fold_partials(const decode_args &a, const struct walk *w, const float *first, size_t stride,
                                     int32_t rows, int32_t num_mine)
{
    __shared__ bool is_last;
    int32_t num_splits = w->cut.end_split - w->cut.first_split;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        int32_t *counter = a.counters + (size_t)w->seq * a.num_kv_heads * a.head_tiles + w->head;
        is_last = atomicAdd(counter, num_mine) + num_mine == num_splits;
        if (is_last) *counter = 0;
    }
    __syncthreads();
    if (!is_last) return;
    __threadfence();
#pragma unroll 1
    for (int i = 0; i < decode_traits<D>::VECTORS; i++) {
        place<D> at(i, rows);
        if (!at.valid) break;
        const float *row = first + (size_t)at.row * decode_traits<D>::ROW_FLOATS;
        struct piece sum = read_piece<D>(row, at.column);
#pragma unroll 8
        for (int32_t n = 1; n < num_splits; n++) piece_append(&sum, read_piece<D>(row + n * stride, at.column));
        write_out<D>(a, w, at, sum);
    }
}

template <int D> static __global__ void __launch_bounds__(THREADS, D >= 256 ? 1 : 2) decode_kernel(decode_args a)
{
    using T = decode_traits<D>;
    extern __shared__ __align__(128) unsigned char shared[];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t ring = shared_address(shared) + warp * T::STAGES * 2 * T::PAGE_BYTES;
    float *merge_area = (float *)(shared + T::RING_BYTES);

    /* the step's arrays, and pages of earlier steps, were there before the first kernel of this step began */
    dependents_launch();
    if (blockIdx.x >= a.counts[COUNT_DECODE_RANGES]) return;
    struct decode_range range = ((const struct decode_range *)(a.base + a.counts[COUNT_RANGES]))[blockIdx.x];
    struct walk w = {range.num_items, range.seq, range.head, range.split};
    walk_open_seq(a, &w);
    walk_open_head(a, &w);
    walk_open_split(&w, warp);
    struct loader load = {w, 0, 0};
    loader_settle(a, &load, warp);
    for (int i = 0; i < T::STAGES - 1; i++) load_page<D>(a, &load, ring, warp, lane);
    dependency_wait();

    uint32_t q[D / 16][4], num_taken = 0;
    struct softmax_state<D> s;
    struct piece sums[T::VECTORS];
    int32_t stride = min(a.group, (int32_t)GROUP_ROWS) * T::ROW_FLOATS, num_mine = 0;
    while (w.num_left > 0) {
        int32_t rows = min(a.group - w.first_row, (int32_t)GROUP_ROWS);
        int32_t num_splits = w.cut.end_split - w.cut.first_split;
        if (num_mine == 0) {
            load_q<D>(a, &w, q, lane);
            num_mine = min(w.num_left, w.cut.end_split - w.split);
        }
        bool whole = num_mine == num_splits, first = w.split == w.cut.first_split;
        bool last_of_mine = w.num_left == 1 || w.split + 1 == w.cut.end_split;
        float *partial = a.partial +
                         ((size_t)(w.seq * a.num_kv_heads * a.head_tiles + w.head) * SPLITS_MAX) * stride;
        state_clear(&s);
        for (; w.page < w.end_page; w.page += WARPS) {
            load_page<D>(a, &load, ring, warp, lane);
            copy_wait<T::STAGES - 1>();
            __syncwarp();
            take_page<D>(a, &w, ring + num_taken % T::STAGES * 2 * T::PAGE_BYTES, q, &s, lane);
            num_taken++;
            __syncwarp();
        }
        leave_state<D>(merge_area + warp * stride, &s, rows, a.scale_log2, lane);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < T::VECTORS; i++) {
            place<D> at(i, rows);
            if (!at.valid) break;
            const float *row = merge_area + at.row * T::ROW_FLOATS;
            struct piece item = read_piece<D>(row, at.column);
#pragma unroll
            for (int n = 1; n < WARPS; n++) piece_append(&item, read_piece<D>(row + n * stride, at.column));
            if (!whole) {
                float *to = partial + (size_t)(w.split - w.cut.first_split) * stride + at.row * T::ROW_FLOATS;
                *(float4 *)(to + at.column) = item.o;
                if (at.column == 0) *(float2 *)(to + D) = make_float2(item.m, item.l);
                continue;
            }
            if (first)
                sums[i] = item;
            else
                piece_append(&sums[i], item);
            if (last_of_mine) write_out<D>(a, &w, at, sums[i]);
        }
        __syncthreads();
        if (last_of_mine) {
            if (!whole) fold_partials<D>(a, &w, partial, stride, rows, num_mine);
            num_mine = 0;
        }
        walk_next(a, &w, warp);
    }
    copy_wait<0>();
}

template <int D> static void launch(struct cuda_device *d, const decode_args &a, const struct attention_args *args)
{
    size_t bytes = shared_bytes<D>(args);
    static size_t allowed;
    if (bytes > allowed) {
        CUDA_CHECK(d, cudaFuncSetAttribute(decode_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
        allowed = bytes;
    }
    launch_dependent(d, decode_kernel<D>, dim3((unsigned)cuda_decode_ranges_max(d, args)), dim3(THREADS), bytes, a);
}

void cuda_attention_decode(struct cuda_device *d, const struct batch *b, __nv_bfloat16 *out, const __nv_bfloat16 *qkv,
                           const struct kv_pool *pool, int32_t layer, const struct attention_args *args)
{
    decode_args a = {};
    a.out = out;
    a.qkv = qkv;
    a.pool = pool->data + layer * pool->layer_elements;
    a.counts = b->counts;
    a.base = b->tables;
    a.cu_seqlens_q = b->cu_seqlens_q;
    a.seqlens_k = b->seqlens_k;
    a.table_offsets = b->table_offsets;
    a.partial = d->attention_partial;
    a.counters = d->attention_counters;
    a.block_elements = pool->block_elements;
    a.num_heads = args->num_heads;
    a.num_kv_heads = args->num_kv_heads;
    a.group = args->num_heads / args->num_kv_heads;
    a.head_tiles = cuda_decode_heads(args) / args->num_kv_heads;
    a.sliding_window = args->sliding_window;
    a.scale_log2 = args->scale * 1.4426950408889634f;
    switch (args->head_dim) {
    case 64: launch<64>(d, a, args); break;
    case 80: launch<80>(d, a, args); break;
    case 96: launch<96>(d, a, args); break;
    case 128: launch<128>(d, a, args); break;
    case 256: launch<256>(d, a, args); break;
    }
}
