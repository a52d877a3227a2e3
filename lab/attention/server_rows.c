#include "lab/attention/server_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "kernels/device.h"

enum {
    PRODUCT_SIZE_CPU = 1024,
    PRODUCT_SIZE_GPU = 8192,
    PRODUCT_TRIES = 8,
    PRODUCT_CALLS_GPU = 4,
    ROWS_PER_TILE_CPU = 32, /* tokens of a prompt that go over a tile of keys together */
    ROWS_PER_TILE_GPU = 128,
};

struct server_rows {
    struct device *d;
    struct kv_pool *pool;
    struct attention_args args;
    struct rope_args rope;
    int32_t num_tokens_max;
    float *host;     /* [num_tokens_max][3 H d] */
    void *qkv, *out; /* device, as many */
    int32_t *positions, *slots, *tables, *ids;
    struct mask_rows *mask_keys; /* [num_tokens_max] */
    struct mask_tile *mask_tiles;
    struct sequence_mask mask; /* of the problem that was loaded */
    struct sample_params sample;
    struct linear *product;
    void *weights; /* its */
};

/* ---- steps ---- */

/* Tokens [first, first + count) of the one sequence, whose blocks are 0, 1, ... */
struct lab_step {
    struct step step;
    int32_t cu_seqlens[2], seqlen, logit_row;
};

static const struct step *describe_step(struct server_rows *r, struct lab_step *s, int32_t first,
                                        int32_t count)
{
    bool decode = first > 0;
    *s = (struct lab_step){.cu_seqlens = {0, count}, .seqlen = first + count};
    for (int32_t i = 0; i < count; i++) r->positions[i] = r->slots[i] = first + i;
    s->step = (struct step){
        .num_tokens = count,
        .num_seqs = 1,
        .num_prefill_tokens = decode ? 0 : count,
        .num_prefill_seqs = decode ? 0 : 1,
        .block_table_stride = (int32_t)div_up(r->num_tokens_max, BLOCK_SIZE),
        .token_ids = r->ids,
        .positions = r->positions,
        .slot_mapping = r->slots,
        .cu_seqlens_q = s->cu_seqlens,
        .seqlens_k = &s->seqlen,
        .block_tables = r->tables,
        .logit_rows = &s->logit_row,
        .sample = &r->sample,
        .masks = r->mask.keys ? &r->mask : NULL,
    };
    return &s->step;
}

/* A row of the device's input: q of all heads, k of all, v of all. A decoding problem's query is the last token's. */
static void gather_row(const struct problem *p, int32_t token, float *row)
{
    const struct shape *s = &p->shape;
    int32_t dim = s->head_dim, query = s->num_queries == 1 ? (token == s->num_keys - 1 ? 0 : -1) : token;
    size_t bytes = (size_t)dim * sizeof *row;
    for (int32_t h = 0; h < s->num_heads; h++) {
        int64_t key = ((int64_t)h * s->num_keys + token) * dim;
        if (query < 0)
            memset(row + h * dim, 0, bytes);
        else
            memcpy(row + h * dim, p->q + ((int64_t)h * s->num_queries + query) * dim, bytes);
        memcpy(row + (s->num_heads + h) * dim, p->k + key, bytes);
        memcpy(row + (2 * s->num_heads + h) * dim, p->v + key, bytes);
    }
}

static int upload_rows(struct server_rows *r, const struct problem *p, int32_t first, int32_t count,
                       struct error *err)
{
    int64_t width = 3 * (int64_t)p->shape.num_heads * p->shape.head_dim;
    for (int32_t i = 0; i < count; i++) gather_row(p, first + i, r->host + i * width);
    if (r->d->ops->write_f32(r->d, r->qkv, r->host, (size_t)(count * width), false))
        return error_set(err, STATUS_DEVICE, "the problem could not be copied to the device");
    return STATUS_OK;
}

static void load_mask(struct server_rows *r, const struct shape *s)
{
    r->mask = (struct sequence_mask){.keys = NULL};
    if (s->mask != MASK_DOCUMENTS) return;
    mask_causal(r->mask_keys, s->num_keys);
    for (int32_t begin = 0; begin < s->num_keys; begin += s->document)
        mask_close(r->mask_keys, begin, min_of(begin + s->document, s->num_keys));
    mask_fill_tiles(r->mask_keys, s->num_keys, r->mask_tiles);
    r->mask = (struct sequence_mask){r->mask_keys, r->mask_tiles};
}

int server_rows_load(struct server_rows *r, const struct problem *p, struct error *err)
{
    const struct kernel_table *ops = r->d->ops;
    struct lab_step s;
    int32_t keys = p->shape.num_keys;
    load_mask(r, &p->shape);
    int status = upload_rows(r, p, 0, keys, err);
    if (status) return status;
    struct batch *b = ops->step_begin(r->d, describe_step(r, &s, 0, keys));
    ops->rope_kv_write(r->d, b, r->qkv, r->pool, 0, &r->rope);
    status = ops->step_end(r->d, NULL, err);
    if (!status && p->shape.num_queries == 1) status = upload_rows(r, p, keys - 1, 1, err);
    return status;
}

int server_rows_run(struct server_rows *r, const struct problem *p, int times, double *seconds,
                    struct error *err)
{
    const struct kernel_table *ops = r->d->ops;
    struct lab_step s;
    int32_t queries = p->shape.num_queries, first = p->shape.num_keys - queries;
    uint64_t begin = clock_monotonic_ns();
    struct batch *b = ops->step_begin(r->d, describe_step(r, &s, first, queries));
    for (int i = 0; i < times; i++) ops->attention(r->d, b, r->out, r->qkv, r->pool, 0, &r->args);
    int status = ops->step_end(r->d, NULL, err);
    *seconds = (double)(clock_monotonic_ns() - begin) * 1e-9;
    return status;
}

int server_rows_fetch(struct server_rows *r, struct problem *p, struct error *err)
{
    const struct shape *s = &p->shape;
    size_t dim = (size_t)s->head_dim, heads = (size_t)s->num_heads, queries = (size_t)s->num_queries;
    if (r->d->ops->read_f32(r->d, r->host, r->out, queries * heads * dim, false))
        return error_set(err, STATUS_DEVICE, "the results could not be copied from the device");
    for (size_t i = 0; i < queries; i++)
        for (size_t h = 0; h < heads; h++)
            memcpy(p->out + (h * queries + i) * dim, r->host + (i * heads + h) * dim, dim * sizeof *r->host);
    return STATUS_OK;
}

/* ---- opening ---- */

static int32_t product_size(const struct server_rows *r)
{
    return r->d->is_gpu ? PRODUCT_SIZE_GPU : PRODUCT_SIZE_CPU;
}

static int prepare(struct server_rows *r, struct error *err)
{
    struct device *d = r->d;
    struct step_limits limits = {.num_tokens = r->num_tokens_max, .num_seqs = 1, .num_logits = 1};
    limits.num_batch_slots = 1;
    limits.max_model_len = r->num_tokens_max;
    limits.num_steps_in_flight = 1;
    limits.has_masks = true;
    int32_t hidden = max_of(r->args.num_heads * r->args.head_dim, product_size(r));
    int status = d->ops->prepare(d, &limits, 32, hidden, hidden, &r->args, 1, err);
    struct kv_shape kv = {.num_layers = 1, .num_kv_heads = r->args.num_heads, .head_dim = r->args.head_dim};
    kv.num_blocks = (int32_t)div_up(r->num_tokens_max, BLOCK_SIZE);
    kv.dtype = !d->is_gpu ? DTYPE_F32 : DTYPE_BF16;
    return status ? status : d->ops->kv_pool_create(d, &kv, &r->pool, err);
}

/* No position is rotated: its cosine is 1. */
static int upload_no_rotation(struct server_rows *r)
{
    size_t count = (size_t)r->num_tokens_max * (size_t)r->args.head_dim;
    float *pairs = r->host, *to = r->d->ops->alloc(r->d, count * sizeof *to, "positions of the lab");
    for (size_t i = 0; i < count; i++) pairs[i] = i % 2 ? 0 : 1;
    r->rope = (struct rope_args){.num_heads = r->args.num_heads, .num_kv_heads = r->args.num_heads};
    r->rope.head_dim = r->rope.rotary_dim = r->args.head_dim;
    r->rope.cos_sin = to;
    return to ? r->d->ops->upload(r->d, to, pairs, count * sizeof *to) : STATUS_NO_MEMORY;
}

static int allocate(struct server_rows *r, struct error *err)
{
    size_t tokens = (size_t)r->num_tokens_max,
           values = 3 * tokens * (size_t)(r->args.num_heads * r->args.head_dim);
    r->host = malloc(values * sizeof *r->host);
    r->positions = calloc(4 * tokens + BLOCK_SIZE, sizeof *r->positions);
    r->mask_keys = calloc(tokens, sizeof *r->mask_keys);
    r->mask_tiles = calloc((size_t)mask_num_tiles(r->num_tokens_max), sizeof *r->mask_tiles);
    r->qkv = r->d->ops->alloc(r->d, values * (size_t)r->d->act_bytes, "rows of the lab");
    r->out = r->d->ops->alloc(r->d, values * (size_t)r->d->act_bytes, "rows of the lab");
    if (!r->host || !r->positions || !r->mask_keys || !r->mask_tiles || !r->qkv || !r->out ||
        upload_no_rotation(r))
        return error_set(err, STATUS_NO_MEMORY, "no memory for %d tokens of the server's attention",
                         r->num_tokens_max);
    r->slots = r->positions + tokens;
    r->ids = r->slots + tokens;
    r->tables = r->ids + tokens;
    for (int32_t i = 0; i < div_up(r->num_tokens_max, BLOCK_SIZE); i++) r->tables[i] = i;
    return STATUS_OK;
}

int server_rows_open(const char *device, int32_t num_heads, int32_t head_dim, int32_t num_tokens_max,
                     struct server_rows **out, struct error *err)
{
    struct server_rows *r = calloc(1, sizeof *r);
    struct device_options options = {.cpu_isa = "auto", .num_threads = 1};
    if (!r) return error_set(err, STATUS_NO_MEMORY, "no memory for the lab");
    r->num_tokens_max = num_tokens_max;
    r->args = (struct attention_args){.num_heads = num_heads,
                                      .num_kv_heads = num_heads,
                                      .head_dim = head_dim,
                                      .scale = 1.0f / sqrtf((float)head_dim)};
    int status = device_open(device, &options, &r->d, err);
    if (!status) status = prepare(r, err);
    if (!status) status = allocate(r, err);
    if (status) {
        server_rows_close(r);
        return status;
    }
    *out = r;
    return STATUS_OK;
}

void server_rows_close(struct server_rows *r)
{
    if (r->d) r->d->ops->close(r->d);
    free(r->host);
    free(r->positions);
    free(r->mask_keys);
    free(r->mask_tiles);
    free(r->weights);
    free(r);
}

const char *server_rows_description(const struct server_rows *r)
{
    return r->d->description;
}

struct geometry server_rows_geometry(const struct server_rows *r)
{
    return (struct geometry){.element_bytes = r->d->act_bytes,
                             .tile = r->d->is_gpu ? ROWS_PER_TILE_GPU : ROWS_PER_TILE_CPU};
}

/* ---- products ---- */

/* A number in [-0.5, 0.5) for each index: a GPU multiplies zeros faster than anything else. */
static float operand(size_t i)
{
    return (float)((uint32_t)i * 2654435761u >> 16) / 65536.0f - 0.5f;
}

static int write_operands(struct server_rows *r, void *x, int32_t rows, int32_t size, struct error *err)
{
    float *row = malloc((size_t)size * sizeof *row);
    int status = row ? STATUS_OK : STATUS_NO_MEMORY;
    for (int32_t i = 0; i < rows && !status; i++) {
        for (int32_t k = 0; k < size; k++) row[k] = operand((size_t)i * 7919 + (size_t)k);
        char *to = (char *)x + (size_t)i * (size_t)size * (size_t)r->d->act_bytes;
        status = r->d->ops->write_f32(r->d, to, row, (size_t)size, false);
    }
    free(row);
    return status ? error_set(err, STATUS_DEVICE, "a product's operands could not be copied") : STATUS_OK;
}

/* The weights stay until the device is closed, which may use them in place. */
static int create_product(struct server_rows *r, int32_t size, struct error *err)
{
    size_t count = (size_t)size * (size_t)size;
    float *x = r->weights = malloc(count * sizeof *x);
    if (!x) return error_set(err, STATUS_NO_MEMORY, "no memory for a product of the lab");
    uint16_t *narrow = (uint16_t *)(void *)x; /* a GPU has weights in bf16 */
    for (size_t i = 0; i < count; i++) {
        float value = operand(i);
        if (r->d->is_gpu)
            narrow[i] = dtype_f32_to_bf16(value);
        else
            x[i] = value;
    }
    struct linear_desc desc = {.kind = LINEAR_PLAIN, .num_parts = 1};
    desc.parts[0] = weight_view_plain(x, r->d->is_gpu ? DTYPE_BF16 : DTYPE_F32, size, size);
    int status = r->d->ops->linear_create(r->d, &desc, &r->product, err);
    return status ? status : r->d->ops->weights_done(r->d, err);
}

/* Of one step: a GPU's takes a while to begin, and a CPU's is the more disturbed by others the longer it takes. */
static int product_calls(const struct server_rows *r)
{
    return r->d->is_gpu ? PRODUCT_CALLS_GPU : 1;
}

static int run_product(struct server_rows *r, int32_t rows, void *out, const void *x, double *seconds,
                       struct error *err)
{
    struct lab_step s;
    uint64_t begin = clock_monotonic_ns();
    struct batch *b = r->d->ops->step_begin(r->d, describe_step(r, &s, 0, rows));
    for (int i = 0; i < product_calls(r); i++) r->d->ops->linear(r->d, b, ROWS_TOKENS, out, x, r->product);
    int status = r->d->ops->step_end(r->d, NULL, err);
    *seconds = (double)(clock_monotonic_ns() - begin) * 1e-9;
    return status;
}

int server_rows_measure_products(struct server_rows *r, double *flops_per_second, struct error *err)
{
    int32_t size = product_size(r), rows = min_of(r->num_tokens_max, size);
    size_t bytes = (size_t)r->num_tokens_max * (size_t)size * (size_t)r->d->act_bytes;
    void *x = r->d->ops->alloc(r->d, bytes, "a product of the lab"),
         *out = r->d->ops->alloc(r->d, bytes, "a product of the lab");
    if (!x || !out) return error_set(err, STATUS_NO_MEMORY, "no memory for a product of the lab");
    int status = write_operands(r, x, rows, size, err);
    if (!status) status = create_product(r, size, err);
    *flops_per_second = 0;
    for (int i = 0; i < PRODUCT_TRIES && !status; i++) {
        double seconds, flops = 2.0 * product_calls(r) * rows * size * size;
        status = run_product(r, rows, out, x, &seconds, err);
        *flops_per_second = max_of(*flops_per_second, flops / seconds);
    }
    return status;
}
