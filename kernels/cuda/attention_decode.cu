/* attention_decode.cu - Flash-Decoding over the paged pool.
 *
 * One generated token a sequence. The G query heads that share a K/V head are the rows of one 16-row tile, so K and V
 * are read once for all of them. The keys of a sequence are cut into splits; a work item is (sequence, split, K/V
 * head), and a fixed grid of CTAs walks the list of items, so that one recorded graph serves any context length.
 *
 *   item:   | page 0 | page 1 | page 2 | page 3 | page 4 | ...     pages of 16 tokens
 *   warp:       0        1        2        3        0
 *
 * Each warp walks its own pages with its own ring of asynchronous copies, which runs on across items: while an item is
 * merged the next one's pages are in flight. The warps of an item are merged in warp order, the splits of a sequence in
 * split order by whichever CTA finishes last. So the order of every sum is a function of the sequence's own length
 * (the split size is, too) and of nothing else.
 *
 * Rows beyond the end of a sequence are filled with zeros and not read: what an earlier owner of the block left there,
 * a NaN perhaps, must not reach this one (0 x NaN).
 *
 * Source: Dao et al., "Flash-Decoding for long-context inference", 2023; the GQA packing is FlashInfer's. */
#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/mma.cuh"

enum { WARPS = 4, GROUP_ROWS = 16, SPLITS_MAX = 32, SPLIT_TOKENS_MIN = 256, PAD_BYTES = 16 };

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

/* Tokens of a split for a context of this length: a function of the length alone. */
static __host__ __device__ int32_t split_tokens(int32_t seqlen)
{
    int32_t tokens = (seqlen + SPLITS_MAX - 1) / SPLITS_MAX;
    tokens = (tokens + 63) / 64 * 64;
    return tokens < SPLIT_TOKENS_MIN ? SPLIT_TOKENS_MIN : tokens;
}

int32_t cuda_decode_work_max(const struct step_limits *limits)
{
    return limits->num_seqs * SPLITS_MAX;
}

static int32_t head_tiles_of(const struct attention_args *a)
{
    return (a->num_heads / a->num_kv_heads + GROUP_ROWS - 1) / GROUP_ROWS;
}

/* An item's partial result: rows x (D values, then maximum and sum). */
static size_t partial_stride(const struct attention_args *a)
{
    int32_t group = a->num_heads / a->num_kv_heads;
    return (size_t)(group < GROUP_ROWS ? group : GROUP_ROWS) * (size_t)(a->head_dim + 2);
}

size_t cuda_decode_partial_floats(const struct step_limits *limits, const struct attention_args *args)
{
    return (size_t)cuda_decode_work_max(limits) * args->num_kv_heads * head_tiles_of(args) *
           partial_stride(args);
}

int32_t cuda_decode_plan(const struct step *step, int32_t sliding_window, struct decode_work *work)
{
    int32_t n = 0;
    for (int32_t s = step->num_prefill_seqs; s < step->num_seqs; s++) {
        int32_t seqlen = step->seqlens_k[s], tokens = split_tokens(seqlen);
        int32_t first = sliding_window > 0 && seqlen > sliding_window ? (seqlen - sliding_window) / tokens : 0;
        int32_t end = (seqlen + tokens - 1) / tokens;
        for (int32_t split = first; split < end; split++)
            work[n++] = decode_work{s, split, split - first, end - first};
    }
    return n;
}

/* Where a warp stands in the flat sequence of its pages over all items of its CTA. */
struct cursor {
    int32_t item, page, end_page; /* page indices of the sequence; this warp's next one */
    int32_t seqlen, first_token;  /* tokens before first_token are outside the sliding window */
    int32_t kv_head, head_tile, seq, order, num_splits;
    const int32_t *table;
};

static __device__ void cursor_open(const decode_args &a, struct cursor *c, int32_t num_items, int warp)
{
    if (c->item >= num_items) return;
    int32_t heads = a.num_kv_heads * a.head_tiles;
    const struct decode_work *work = (const struct decode_work *)(a.base + a.counts[COUNT_WORK]);
    struct decode_work w = work[c->item / heads];
    int32_t head = c->item % heads;
    c->kv_head = head / a.head_tiles;
    c->head_tile = head % a.head_tiles;
    c->seq = w.seq;
    c->order = w.order;
    c->num_splits = w.num_splits;
    c->seqlen = a.seqlens_k[w.seq];
    c->first_token = a.sliding_window > 0 && c->seqlen > a.sliding_window ? c->seqlen - a.sliding_window : 0;
    c->table = a.base + a.counts[COUNT_TABLES] + a.table_offsets[w.seq];
    int32_t tokens = split_tokens(c->seqlen);
    int32_t end_token = min((w.split + 1) * tokens, c->seqlen);
    c->page = w.split * (tokens / BLOCK_SIZE) + warp;
    c->end_page = (end_token + BLOCK_SIZE - 1) / BLOCK_SIZE;
}

/* Moves to the next item when this one's pages are used up; items without a page for this warp are passed over by the
 * loader but not by the computation, which takes part in every merge. */
static __device__ void cursor_skip(const decode_args &a, struct cursor *c, int32_t num_items, int warp)
{
    while (c->item < num_items && c->page >= c->end_page) {
        c->item += gridDim.x;
        cursor_open(a, c, num_items, warp);
    }
}

template <int D> struct decode_traits {
    static constexpr int PITCH = D * 2 + PAD_BYTES; /* bytes a row: 16 more, so that 8 rows fall into distinct banks */
    static constexpr int PAGE_BYTES = BLOCK_SIZE * PITCH;
    static constexpr int STAGES = D >= 256 ? 2 : D >= 128 ? 3 : 4;
    static constexpr int RING_BYTES = WARPS * STAGES * 2 * PAGE_BYTES;
};

template <int D>
static __device__ void load_page(const decode_args &a, const struct cursor *c, uint32_t stage, int lane)
{
    using T = decode_traits<D>;
    int32_t block = c->table[c->page];
    const __nv_bfloat16 *k =
        a.pool + block * a.block_elements + (size_t)c->kv_head * BLOCK_SIZE * D;
    const __nv_bfloat16 *v = k + (size_t)a.num_kv_heads * BLOCK_SIZE * D;
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        int chunk = i * 32 + lane, row = chunk / (D / 8), column = chunk % (D / 8);
        bool valid = c->page * BLOCK_SIZE + row < c->seqlen;
        uint32_t to = stage + row * T::PITCH + column * 16;
        copy_async(to, k + chunk * 8, valid);
        copy_async(to + T::PAGE_BYTES, v + chunk * 8, valid);
    }
}

/* Q of the group's heads as A fragments; rows beyond the group are zero. */
template <int D>
static __device__ void load_q(const decode_args &a, const struct cursor *c, uint32_t (*q)[4], int lane)
{
    int g = lane / 4, t = lane % 4;
    int32_t token = a.cu_seqlens_q[c->seq], row_heads = a.num_heads + 2 * a.num_kv_heads;
    int32_t first_head = c->kv_head * a.group + c->head_tile * GROUP_ROWS;
    int32_t rows = min(a.group - c->head_tile * GROUP_ROWS, (int32_t)GROUP_ROWS);
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

template <int D> static __device__ void state_clear(struct softmax_state<D> *s)
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
static __device__ void take_page(const decode_args &a, const struct cursor *c, uint32_t stage, const uint32_t (*q)[4],
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
    int32_t token = c->page * BLOCK_SIZE + 2 * (lane % 4);
    float m_new[2] = {s->m[0], s->m[1]};
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int32_t at = token + 8 * n + i % 2;
            if (at >= c->seqlen || at < c->first_token) p[n][i] = -INFINITY;
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

/* Leaves this warp's rows in shared memory: rows x (D values, maximum in log2 units, sum). */
template <int D>
static __device__ void leave_state(float *to, struct softmax_state<D> *s, int32_t rows, float scale_log2, int lane)
{
    int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        s->l[i] += __shfl_xor_sync(0xffffffffu, s->l[i], 1);
        s->l[i] += __shfl_xor_sync(0xffffffffu, s->l[i], 2);
        int row = g + 8 * i;
        if (row >= rows) continue;
        float *r = to + (size_t)row * (D + 2);
#pragma unroll
        for (int n = 0; n < D / 8; n++) *(float2 *)(r + n * 8 + 2 * t) = make_float2(s->o[n][2 * i], s->o[n][2 * i + 1]);
        if (t == 0) {
            r[D] = s->m[i] == -INFINITY ? -INFINITY : s->m[i] * scale_log2;
            r[D + 1] = s->l[i];
        }
    }
}

/* Merges count results, stride floats apart, in order, for column d of a row; at D stand maximum and sum. */
template <int D>
static __device__ void merge(const float *from, size_t stride, int count, int d, float *o, float *m, float *l)
{
    float top = -INFINITY;
    for (int i = 0; i < count; i++) top = fmaxf(top, from[i * stride + D]);
    float base = top == -INFINITY ? 0.0f : top, sum_o = 0, sum_l = 0;
    for (int i = 0; i < count; i++) {
        float w = exp2_fast(from[i * stride + D] - base);
        sum_o += w * from[i * stride + d];
        sum_l += w * from[i * stride + D + 1];
    }
    *o = sum_o;
    *m = top;
    *l = sum_l;
}

template <int D>
static __device__ void write_out(const decode_args &a, const struct cursor *c, int row, int d, float o, float l)
{
    size_t head = (size_t)c->kv_head * a.group + c->head_tile * GROUP_ROWS + row;
    a.out[((size_t)a.cu_seqlens_q[c->seq] * a.num_heads + head) * D + d] = __float2bfloat16_rn(o / l);
}

template <int D>
static __device__ void finish_item(const decode_args &a, const struct cursor *c, struct softmax_state<D> *s, float *shared,
                                   int warp, int lane)
{
    __shared__ bool is_last;
    int32_t rows = min(a.group - c->head_tile * GROUP_ROWS, (int32_t)GROUP_ROWS);
    size_t warp_stride = (size_t)min(a.group, (int32_t)GROUP_ROWS) * (D + 2);
    leave_state<D>(shared + warp * warp_stride, s, rows, a.scale_log2, lane);
    __syncthreads();
    int32_t heads = a.num_kv_heads * a.head_tiles, head = c->kv_head * a.head_tiles + c->head_tile;
    float *partial = a.partial + (size_t)c->item * warp_stride;
    for (int i = threadIdx.x; i < rows * D; i += WARPS * 32) {
        int row = i / D, d = i % D;
        float o, m, l;
        merge<D>(shared + (size_t)row * (D + 2), warp_stride, WARPS, d, &o, &m, &l);
        if (c->num_splits == 1) {
            write_out<D>(a, c, row, d, o, l);
            continue;
        }
        float *to = partial + (size_t)row * (D + 2);
        to[d] = o;
        if (d == 0) {
            to[D] = m;
            to[D + 1] = l;
        }
    }
    if (c->num_splits > 1) {
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            int32_t *counter = a.counters + (size_t)c->seq * heads + head;
            is_last = atomicAdd(counter, 1) == c->num_splits - 1;
            if (is_last) *counter = 0;
        }
        __syncthreads();
        if (is_last) {
            __threadfence();
            const float *first = a.partial + ((size_t)c->item - (size_t)c->order * heads) * warp_stride;
            for (int i = threadIdx.x; i < rows * D; i += WARPS * 32) {
                float o, m, l;
                merge<D>(first + (size_t)(i / D) * (D + 2), heads * warp_stride, c->num_splits, i % D, &o, &m, &l);
                write_out<D>(a, c, i / D, i % D, o, l);
            }
        }
    }
    __syncthreads();
}

template <int D> static __global__ void __launch_bounds__(WARPS * 32, D >= 256 ? 1 : 2) decode_kernel(decode_args a)
{
    using T = decode_traits<D>;
    extern __shared__ __align__(128) unsigned char shared[];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t ring = shared_address(shared) + warp * T::STAGES * 2 * T::PAGE_BYTES;
    float *merge_area = (float *)(shared + T::RING_BYTES);
    int32_t num_items = a.counts[COUNT_DECODE_WORK] * a.num_kv_heads * a.head_tiles;

    dependents_launch();
    dependency_wait();
    struct cursor load = {}, compute = {};
    load.item = compute.item = blockIdx.x;
    cursor_open(a, &load, num_items, warp);
    compute = load;
    uint32_t num_loaded = 0, num_taken = 0;
    for (int i = 0; i < T::STAGES - 1; i++) {
        cursor_skip(a, &load, num_items, warp);
        if (load.item < num_items) {
            load_page<D>(a, &load, ring + (num_loaded % T::STAGES) * 2 * T::PAGE_BYTES, lane);
            load.page += WARPS;
        }
        num_loaded++;
        copy_commit();
    }
    uint32_t q[D / 16][4];
    struct softmax_state<D> s;
    while (compute.item < num_items) {
        load_q<D>(a, &compute, q, lane);
        state_clear(&s);
        for (; compute.page < compute.end_page; compute.page += WARPS) {
            cursor_skip(a, &load, num_items, warp);
            if (load.item < num_items) {
                load_page<D>(a, &load, ring + (num_loaded % T::STAGES) * 2 * T::PAGE_BYTES, lane);
                load.page += WARPS;
            }
            num_loaded++;
            copy_commit();
            copy_wait<T::STAGES - 1>();
            __syncwarp();
            take_page<D>(a, &compute, ring + (num_taken % T::STAGES) * 2 * T::PAGE_BYTES, q, &s, lane);
            num_taken++;
            __syncwarp();
        }
        finish_item<D>(a, &compute, &s, merge_area, warp, lane);
        compute.item += gridDim.x;
        cursor_open(a, &compute, num_items, warp);
    }
    copy_wait<0>();
}

template <int D> static void launch(struct cuda_device *d, const decode_args &a)
{
    using T = decode_traits<D>;
    size_t bytes = T::RING_BYTES + (size_t)WARPS * min(a.group, (int32_t)GROUP_ROWS) * (D + 2) * 4;
    static size_t allowed;
    if (bytes > allowed) {
        CUDA_CHECK(d, cudaFuncSetAttribute(decode_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
        allowed = bytes;
    }
    launch_dependent(d, decode_kernel<D>, dim3((unsigned)(d->num_sms * (D >= 256 ? 1 : 2))), dim3(WARPS * 32), bytes, a);
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
    a.head_tiles = head_tiles_of(args);
    a.sliding_window = args->sliding_window;
    a.scale_log2 = args->scale * 1.4426950408889634f;
    switch (args->head_dim) {
    case 64: launch<64>(d, a); break;
    case 80: launch<80>(d, a); break;
    case 96: launch<96>(d, a); break;
    case 128: launch<128>(d, a); break;
    case 256: launch<256>(d, a); break;
    }
}
