/* bench_attention.cu - how fast the CUDA device's attention is, alone, through the kernel table.
 *
 * Prefill: causal, 16k tokens in all, cut into sequences of equal length; TFLOP/s count the pairs below the
 * diagonal and inside the window. With a head size: its shapes alone, by the portable kernel beside. Decode: one token for each of B sequences; TB/s count K and V once. Pages of 16 tokens in random
 * order. Calls rotate over layers that together exceed the L2 where one layer does not. Medians of replayed
 * graphs. fp8: K and V of e4m3, whose bytes are counted with their scales. Masks: one sequence of 16k tokens under each, TFLOP/s of
 * the pairs that are seen, and how many times faster than a mask that is asked about every pair of the square, no tile skipped.
 *
 *   nvcc -std=c++17 -O3 -I. -gencode=arch=compute_90a,code=sm_90a tests/gpu/bench_attention.cu <objects>
 * -lcublasLt bench_attention [prefill | decode | masks] [HEAD_DIM] [fp8] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/kv_codes.cuh"
#include "kernels/cuda/kv_pool.cuh"
#include "tests/gpu/call_timer.cuh"

extern "C" int cuda_device_open(const struct device_options *options, struct device **out, struct error *err);

enum { PREFILL_TOKENS = 16384, SEQS_MAX = 256, CALLS_MAX = 16 };
static const size_t ROTATED_BYTES = (size_t)256 << 20; /* several times the L2 */

static enum dtype kv_dtype = DTYPE_BF16;

struct heads {
    int32_t q, kv, head_dim;
    int32_t window; /* 0: none */
    float softcap;  /* 0: none */
};

/* K and V of one token. */
static size_t kv_bytes(const struct heads &h)
{
    return kv_dtype == DTYPE_BF16 ? (size_t)h.kv * h.head_dim * 4
                                  : h.kv * kv_chunk_bytes(h.head_dim) / BLOCK_SIZE;
}

static void check(int status, const struct error &err)
{
    if (!status) return;
    fprintf(stderr, "%s\n", err.text);
    exit(1);
}

/* Sums of four uniform numbers: close to normal, deviation 1. */
static __global__ void fill_random(__nv_bfloat16 *x, size_t count, uint32_t seed)
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
        x[i] = __float2bfloat16((sum - 2.0f) * 1.7320508f);
    }
}

/* Chunks of random codes and scales about 1/256. */
static __global__ void fill_codes(uint8_t *pool, size_t count, size_t chunk_bytes, int32_t head_dim)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count / 4;
         i += (size_t)gridDim.x * blockDim.x) {
        bool is_scale = i * 4 % chunk_bytes >= (size_t)2 * BLOCK_SIZE * head_dim;
        uint32_t h = ((uint32_t)i * 2654435761u ^ (uint32_t)(i >> 32)) * 0x45d9f3bu;
        h ^= h >> 15;
        if (is_scale)
            ((float *)pool)[i] = 0x1p-8f * (1 + (float)(h >> 8) * 0x1p-24f);
        else
            ((uint32_t *)pool)[i] = h & 0xf7f7f7f7u; /* no NaN */
    }
}

struct bench {
    struct heads heads;
    struct device *d;
    struct kv_pool *pool;
    struct attention_args args;
    __nv_bfloat16 *qkv, *out;
    int32_t num_layers;
    std::vector<int32_t> ids, positions, slots, cu_seqlens, seqlens, tables, logit_rows;
    std::vector<struct sample_params> sample;
    struct step step;
};

/* lengths: keys of each sequence; rows: tokens of each that are computed. */
static void describe_step(struct bench *b, const std::vector<int32_t> &lengths, bool decode)
{
    int32_t longest = *std::max_element(lengths.begin(), lengths.end()),
            stride = (longest + BLOCK_SIZE - 1) / BLOCK_SIZE;
    b->tables.assign(lengths.size() * stride, 0);
    b->cu_seqlens = {0};
    std::vector<int32_t> order((size_t)b->pool->shape.num_blocks);
    std::iota(order.begin(), order.end(), 0);
    uint64_t state = 1;
    for (size_t i = order.size() - 1; i > 0; i--) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        std::swap(order[i], order[(state >> 33) % (i + 1)]);
    }
    size_t used = 0;
    for (size_t s = 0; s < lengths.size(); s++) {
        for (int32_t i = 0; i < (lengths[s] + BLOCK_SIZE - 1) / BLOCK_SIZE; i++)
            b->tables[s * stride + i] = order[used++];
        b->cu_seqlens.push_back(b->cu_seqlens.back() + (decode ? 1 : lengths[s]));
    }
    b->seqlens = lengths;
    int32_t num_tokens = b->cu_seqlens.back();
    b->ids.assign(num_tokens, 0);
    b->positions.assign(num_tokens, 0);
    b->slots.assign(num_tokens, 0);
    b->logit_rows = {0};
    b->sample.assign(1, {});
    struct step *p = &b->step;
    *p = {};
    p->num_tokens = num_tokens;
    p->num_seqs = (int32_t)lengths.size();
    p->num_prefill_tokens = decode ? 0 : num_tokens;
    p->num_prefill_seqs = decode ? 0 : p->num_seqs;
    p->block_table_stride = stride;
    p->token_ids = b->ids.data();
    p->positions = b->positions.data();
    p->slot_mapping = b->slots.data();
    p->cu_seqlens_q = b->cu_seqlens.data();
    p->seqlens_k = b->seqlens.data();
    p->block_tables = b->tables.data();
    p->logit_rows = b->logit_rows.data();
    p->sample = b->sample.data();
}

static struct bench *open_bench(const struct heads &h, const std::vector<int32_t> &lengths, bool decode,
                                bool portable = false)
{
    struct bench *b = new struct bench();
    struct error err = {};
    struct device_options options = {};
    options.cuda_portable = portable;
    b->heads = h;
    check(cuda_device_open(&options, &b->d, &err), err);
    b->args = {};
    b->args.num_heads = h.q;
    b->args.num_kv_heads = h.kv;
    b->args.head_dim = h.head_dim;
    b->args.scale = 1.0f / sqrtf((float)h.head_dim);
    b->args.sliding_window = h.window;
    b->args.softcap = h.softcap;
    struct step_limits limits = {};
    limits.num_tokens = decode ? SEQS_MAX : PREFILL_TOKENS;
    limits.num_seqs = SEQS_MAX;
    limits.num_logits = 1;
    limits.num_batch_slots = 1;
    limits.max_model_len = *std::max_element(lengths.begin(), lengths.end());
    limits.num_steps_in_flight = 1;
    check(b->d->ops->prepare(b->d, &limits, 32, h.q * h.head_dim, 64, &b->args, 1, &err), err);
    int32_t num_blocks = 0;
    for (int32_t length : lengths) num_blocks += (length + BLOCK_SIZE - 1) / BLOCK_SIZE;
    size_t layer_bytes = (size_t)num_blocks * BLOCK_SIZE * kv_bytes(h);
    b->num_layers = (int32_t)std::min<size_t>(CALLS_MAX, ROTATED_BYTES / layer_bytes + 1);
    struct kv_shape shape = {};
    shape.num_layers = b->num_layers;
    shape.num_blocks = num_blocks;
    shape.num_kv_heads = h.kv;
    shape.head_dim = h.head_dim;
    shape.dtype = kv_dtype;
    check(b->d->ops->kv_pool_create(b->d, &shape, &b->pool, &err), err);
    size_t qkv = (size_t)limits.num_tokens * (h.q + 2 * h.kv) * h.head_dim;
    check(cudaMalloc((void **)&b->qkv, qkv * 2), "cudaMalloc");
    check(cudaMalloc((void **)&b->out, qkv * 2), "cudaMalloc");
    fill_random<<<1024, 256>>>(b->qkv, qkv, 1);
    size_t elements = b->pool->layer_elements * b->num_layers;
    if (kv_dtype == DTYPE_BF16)
        fill_random<<<1024, 256>>>(b->pool->data, elements, 2);
    else
        fill_codes<<<1024, 256>>>((uint8_t *)b->pool->data, elements * 2, kv_chunk_bytes(h.head_dim),
                                  h.head_dim);
    check(cudaDeviceSynchronize(), "fill");
    describe_step(b, lengths, decode);
    return b;
}

static void close_bench(struct bench *b)
{
    delete b->pool;
    b->d->ops->close(b->d); /* resets the device: all its memory goes */
    delete b;
}

/* Microseconds of one call. */
static double time_attention(struct bench *b, int calls)
{
    struct batch *batch = b->d->ops->step_begin(b->d, &b->step);
    return time_graph(cuda_of(b->d), calls, [=](int i) {
        b->d->ops->attention(b->d, batch, b->out, b->qkv, b->pool, i % b->num_layers, &b->args);
        return true;
    });
}

/* Of a row and a key that it sees, as a sequence has them: half of n^2, without the rows' own halves; exact for a window. */
static double num_pairs(double n, double window)
{
    return window > 0 && window < n ? window * (n - window / 2) : n * n / 2;
}

static void print_prefill(const struct heads &h, bool portable)
{
    printf("%2d/%-2d d%-4d", h.q, h.kv, h.head_dim);
    if (h.window) printf(" window %d", h.window);
    if (h.softcap > 0) printf(" cap %g", h.softcap);
    printf("%s:", portable ? ", portable" : "");
    for (int32_t n = 512; n <= PREFILL_TOKENS; n *= 2) {
        int32_t num_seqs = PREFILL_TOKENS / n;
        struct bench *b = open_bench(h, std::vector<int32_t>((size_t)num_seqs, n), false, portable);
        double us = time_attention(b, 2);
        printf("%6.0f", 4.0 * num_seqs * num_pairs(n, h.window) * h.head_dim * h.q / us * 1e-6);
        fflush(stdout);
        close_bench(b);
    }
    printf("\n");
}

/* head_dim 0: all shapes. */
static void bench_prefill(int32_t head_dim)
{
    static const struct heads shapes[] = {{32, 32, 128},      {32, 8, 128},       {32, 8, 64},
                                          {9, 3, 64},         {16, 8, 256},       {8, 4, 256},
                                          {16, 8, 256, 1024}, {16, 8, 256, 0, 50}};
    printf("Causal prefill attention, paged, %d tokens in all, TFLOP/s at lengths of 512, 1k ... 16k\n",
           PREFILL_TOKENS);
    for (const struct heads &h : shapes) {
        if (head_dim && h.head_dim != head_dim) continue;
        print_prefill(h, false);
        if (head_dim) print_prefill(h, true);
    }
}

static void print_decode(const struct heads &h, const char *name, const std::vector<int32_t> &lengths)
{
    struct bench *b = open_bench(h, lengths, true);
    double us = time_attention(b, CALLS_MAX), tokens = std::accumulate(lengths.begin(), lengths.end(), 0.0);
    printf("%2d/%-2d d%-4d %-18s %9.1f us %7.2f TB/s\n", h.q, h.kv, h.head_dim, name, us,
           tokens * (double)kv_bytes(h) / us * 1e-6);
    close_bench(b);
}

static void bench_decode(void)
{
    static const struct {
        int32_t num_seqs, length;
        const char *name;
    } batches[] = {{1, 1024, "B1 1k"},   {1, 2048, "B1 2k"},   {1, 8192, "B1 8k"},    {1, 65536, "B1 64k"},
                   {2, 1024, "B2 1k"},   {4, 1024, "B4 1k"},   {8, 8192, "B8 8k"},    {64, 576, "B64 576"},
                   {64, 1024, "B64 1k"}, {64, 4096, "B64 4k"}, {256, 1024, "B256 1k"}};
    static const struct heads shapes[] = {{32, 32, 128}, {32, 8, 128}};
    printf("Decode attention, paged\n");
    for (const struct heads &h : shapes)
        for (const auto &x : batches)
            print_decode(h, x.name, std::vector<int32_t>((size_t)x.num_seqs, x.length));
    std::vector<int32_t> mixed; /* 64 sequences of mixed lengths */
    for (int i = 0; i < 64; i++)
        mixed.push_back(i == 0 ? 32768 : i < 4 ? 4096 : i < 16 ? 1024 : i < 40 ? 640 : 256);
    print_decode(shapes[1], "B64 256..32k", mixed);
}

/* ---- masks ---- */

struct masked_case {
    const char *name;
    std::vector<int32_t> documents; /* their lengths; none: the sequence is one */
    bool is_joined;                 /* their tokens see each other */
    int32_t window;
    bool has_mask, is_dense; /* is_dense: bounds of tiles say nothing */
};

/* Of a bench's only sequence. */
struct mask_of_bench {
    std::vector<struct mask_rows> keys;
    std::vector<struct mask_tile> tiles;
    struct sequence_mask mask;
};

static void make_mask(const struct masked_case &c, struct mask_of_bench *m)
{
    int32_t begin = 0;
    for (int32_t j = 0; j < PREFILL_TOKENS; j++) m->keys.push_back({j, MASK_END});
    for (int32_t length : c.documents) {
        for (int32_t j = begin; j < begin + length; j++)
            m->keys[j] = {c.is_joined ? begin : j, begin + length};
        begin += length;
    }
    for (int32_t j = 0; j < PREFILL_TOKENS; j++) {
        struct mask_rows key = m->keys[j];
        if (j % MASK_TILE == 0) m->tiles.push_back({key, key});
        struct mask_tile *t = &m->tiles.back();
        t->least = {std::min(t->least.begin, key.begin), std::min(t->least.end, key.end)};
        t->most = {std::max(t->most.begin, key.begin), std::max(t->most.end, key.end)};
        if (c.is_dense) *t = {{0, 1}, {MASK_END, MASK_END}};
    }
    m->mask = {m->keys.data(), m->tiles.data()};
}

static double num_pairs_seen(const struct masked_case &c, const struct mask_of_bench &m)
{
    double n = 0;
    for (int32_t j = 0; j < PREFILL_TOKENS; j++) {
        int32_t end = std::min<int32_t>(m.keys[j].end, PREFILL_TOKENS);
        n += (c.window ? std::min(end, j + c.window) : end) - m.keys[j].begin;
    }
    return n;
}

/* Microseconds. */
static double time_masked(struct bench *b, const struct masked_case &c, double *pairs)
{
    struct mask_of_bench m;
    make_mask(c, &m);
    b->args.sliding_window = c.window;
    b->step.masks = c.has_mask ? &m.mask : NULL;
    *pairs = num_pairs_seen(c, m);
    return time_attention(b, 2);
}

static void print_masks(const struct heads &h, bool portable)
{
    static const std::vector<int32_t> uneven = {11000, 2900, 1500, 700, 284}, even(8, 2048), halves(2, 8192);
    const struct masked_case cases[] = {
        {"dense: every pair is asked, no tile is skipped", {}, false, 0, true, true},
        {"causal, without a mask", {}, false, 0, false, false},
        {"causal, said by a mask", {}, false, 0, true, false},
        {"documents of 11000, 2900, 1500, 700, 284", uneven, false, 0, true, false},
        {"2 documents of 8192", halves, false, 0, true, false},
        {"2 documents of 8192 whose tokens see each other", halves, true, 0, true, false},
        {"8 documents of 2048", even, false, 0, true, false},
        {"causal, a window of 4096, without a mask", {}, false, 4096, false, false},
        {"causal, a window of 4096, said by a mask", {}, false, 4096, true, false},
    };
    struct bench *b = open_bench(h, {PREFILL_TOKENS}, false, portable);
    double dense = 0;
    for (const struct masked_case &c : cases) {
        double pairs, us = time_masked(b, c, &pairs);
        if (c.is_dense) dense = us;
        printf("%2d/%-2d d%-4d%s %-50s %9.1f us %5.0f TFLOP/s %6.2f\n", h.q, h.kv, h.head_dim,
               portable ? " portable" : "", c.name, us, 4.0 * pairs * h.head_dim * h.q / us * 1e-6,
               dense / us);
        fflush(stdout);
    }
    close_bench(b);
}

/* head_dim 0: all. */
static void bench_masks(int32_t head_dim)
{
    static const struct heads shapes[] = {{32, 8, 128}, {32, 8, 64}, {16, 8, 256}};
    printf("Attention under masks, one sequence of %d tokens, paged; the last number: dense / this\n",
           PREFILL_TOKENS);
    for (const struct heads &h : shapes) {
        if (head_dim && h.head_dim != head_dim) continue;
        print_masks(h, false);
        print_masks(h, true);
    }
}

int main(int argc, char **argv)
{
    const char *what = "";
    int32_t head_dim = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "fp8") == 0)
            kv_dtype = DTYPE_F8_E4M3;
        else if (atoi(argv[i]) > 0)
            head_dim = atoi(argv[i]);
        else
            what = argv[i];
    }
    if (!*what || strcmp(what, "prefill") == 0) bench_prefill(head_dim);
    if (!*what || strcmp(what, "decode") == 0) bench_decode();
    if (!*what || strcmp(what, "masks") == 0) bench_masks(head_dim);
    return 0;
}
