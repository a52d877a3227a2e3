/* attention_rig.h - a device with a K/V pool for attention tests, and the references.
 *
 * A rig holds whole sequences' q, k, v as random data; any tokens of any of them can be run as a step. */
#ifndef TESTS_KERNELS_ATTENTION_RIG_H
#define TESTS_KERNELS_ATTENTION_RIG_H

#include "fixture.h"
#include "kernels/cpu/kv_codes.h"

enum { RIG_SEQS_MAX = 64 };

struct rig_shape {
    int32_t num_heads, num_kv_heads, head_dim;
    int32_t sliding_window, other_window; /* of layer 1, which is checked; of layer 0, which runs before it */
    bool window_of_both_sides;            /* of both */
    int32_t chunk;                        /* of both */
    float softcap, temperature_scale;
    int32_t temperature_floor, temperature_offset;
    bool has_sinks;
    float alibi_most;
    int32_t distance_reach; /* 0: scores gain nothing by distances */
    bool has_groups; /* each layer has blocks of its own, those that no token of a step sees are NaNs */
    enum dtype kv_dtype;
    int32_t num_host_blocks;
    int32_t num_seqs, lengths[RIG_SEQS_MAX]; /* tokens of each sequence in all */
};

struct rig {
    struct rig_shape shape;
    struct device *d;
    struct kv_pool *pool;
    struct rope_args rope;
    struct attention_args attention, layers[2]; /* attention: layer 1's */
    float *sinks;                               /* [num_heads], NULL: none */
    float *distance_bias;                       /* [num_heads][2 distance_reach + 1], NULL: none */
    struct test_step *step;
    void *qkv, *out; /* device */
    int32_t max_tokens, max_length;
    size_t row;                /* values of qkv a token */
    float *data[RIG_SEQS_MAX]; /* [length][row] */
    float *kept
        [RIG_SEQS_MAX]; /* the same with k and v as the pool keeps them; data itself where that is the same */
    int32_t *blocks[RIG_SEQS_MAX];
    int32_t *blocks_of_1[RIG_SEQS_MAX];       /* layer 1's, where it has its own */
    int32_t poison;                           /* a block of NaNs */
    struct sequence_mask masks[RIG_SEQS_MAX]; /* keys NULL: causal */
    bool has_masks;
};

UNUSED_FUNCTION static void rig_shuffle_blocks(struct rig *r, struct random *random)
{
    int32_t num = 0, used = 0, num_groups = r->shape.has_groups ? 2 : 1;
    for (int32_t s = 0; s < r->shape.num_seqs; s++)
        num += num_groups * (int32_t)div_up(r->shape.lengths[s], BLOCK_SIZE);
    int32_t *order = malloc((size_t)num * sizeof *order);
    random_permutation(random, order, num);
    for (int32_t s = 0; s < r->shape.num_seqs; s++) {
        int32_t needed = (int32_t)div_up(r->shape.lengths[s], BLOCK_SIZE);
        for (int32_t g = 0; g < num_groups; g++, used += needed)
            memcpy((g ? r->blocks_of_1 : r->blocks)[s], order + used, (size_t)needed * sizeof *order);
    }
    free(order);
}

static int rig_prepare(struct rig *r, int32_t num_blocks, int32_t max_tokens)
{
    const struct rig_shape *shape = &r->shape;
    struct device *d = r->d;
    struct error err = {0};
    struct step_limits limits = {.num_tokens = max_tokens, .num_seqs = RIG_SEQS_MAX, .num_logits = 1};
    limits.num_batch_slots = 1;
    limits.max_model_len = r->max_length;
    limits.num_steps_in_flight = 1;
    limits.has_masks = true;
    limits.num_kv_groups = shape->has_groups ? 2 : 1;
    int32_t hidden = shape->num_heads * shape->head_dim;
    int status = d->ops->prepare(d, &limits, 32, hidden, hidden, r->layers, 2, &err);
    struct kv_shape kv = {.num_layers = 2, .num_blocks = num_blocks, .num_kv_heads = shape->num_kv_heads};
    kv.head_dim = shape->head_dim;
    kv.dtype = shape->kv_dtype;
    kv.num_host_blocks = shape->num_host_blocks;
    if (!status) status = d->ops->kv_pool_create(d, &kv, &r->pool, &err);
    if (status && status != STATUS_UNSUPPORTED) fail_msg("prepare: %s", err.text);
    return status;
}

static void rig_round_by_codes(const struct rig *r, float *x)
{
    uint8_t codes[512];
    int32_t dim = r->shape.head_dim;
    enum dtype dtype = r->shape.kv_dtype;
    float scale = kv_codes_store(codes, 1, x, dim, dtype);
    for (int32_t d = 0; d < dim; d++) x[d] = scale * kv_code_number(codes[d], dtype);
}

/* As activations hold it, k and v in bf16 as the pool does: rounding them is not what is tested. */
static float *rig_data(const struct rig *r, int32_t length, struct random *random)
{
    size_t num_q = (size_t)(r->shape.num_heads * r->shape.head_dim), count = (size_t)length * r->row;
    float *x = random_values(random, count, r->d->act_bytes, 1.5f);
    for (size_t i = 0; i < count; i++)
        if (r->shape.kv_dtype == DTYPE_BF16 && i % r->row >= num_q) x[i] = rounded_to(2, x[i]);
    return x;
}

static float *rig_kept(const struct rig *r, float *data, int32_t length)
{
    size_t num_q = (size_t)(r->shape.num_heads * r->shape.head_dim), count = (size_t)length * r->row;
    if (!dtype_is_code(r->shape.kv_dtype)) return data;
    float *x = malloc(count * sizeof *x);
    memcpy(x, data, count * sizeof *x);
    for (size_t i = 0; i < count; i += (size_t)r->shape.head_dim)
        if (i % r->row >= num_q) rig_round_by_codes(r, x + i);
    return x;
}

/* Of both layers. */
static void rig_poison_block(struct rig *r)
{
    struct device *d = r->d;
    float *x = malloc(r->row * sizeof *x);
    for (size_t i = 0; i < r->row; i++) x[i] = NAN;
    device_write(d, r->qkv, x, r->row, false);
    for (int32_t position = 0; position < BLOCK_SIZE; position++) {
        test_step_clear(r->step);
        test_step_add(r->step, &r->poison, position, 1, false);
        for (int32_t g = 0; g < 2; g++) test_step_set_blocks(r->step, g, 0, &r->poison);
        struct batch *b = d->ops->step_begin(d, &r->step->step);
        for (int32_t layer = 0; layer < 2; layer++)
            d->ops->rope_kv_write(d, b, r->qkv, r->pool, layer, &r->rope);
        test_step_end(d, NULL);
    }
    free(x);
}

/* NULL when the device does not support the shape. max_tokens: of one step. */
UNUSED_FUNCTION static struct rig *rig_new(const char *isa, int num_threads, const struct rig_shape *shape,
                                           int32_t max_tokens, struct random *random)
{
    struct rig *r = calloc(1, sizeof *r);
    r->shape = *shape;
    r->d = test_device_open(isa, num_threads);
    if (shape->kv_dtype != DTYPE_BF16 && !r->d->kv_any_dtype) goto unsupported;
    r->attention = (struct attention_args){.num_heads = shape->num_heads,
                                           .num_kv_heads = shape->num_kv_heads,
                                           .head_dim = shape->head_dim,
                                           .scale = 1.0f / sqrtf((float)shape->head_dim),
                                           .sliding_window = shape->sliding_window,
                                           .window_of_both_sides = shape->window_of_both_sides,
                                           .chunk = shape->chunk,
                                           .temperature_scale = shape->temperature_scale,
                                           .temperature_floor = shape->temperature_floor,
                                           .temperature_offset = shape->temperature_offset,
                                           .softcap = shape->softcap,
                                           .alibi_most = shape->alibi_most,
                                           .alibi_scale = 0.75f,
                                           .distance_reach = shape->distance_reach};
    r->layers[0] = r->layers[1] = r->attention;
    r->layers[0].sliding_window = shape->other_window;
    r->layers[1].kv_group = shape->has_groups;
    int32_t num_blocks = 0;
    for (int32_t s = 0; s < shape->num_seqs; s++) {
        r->max_length = max_of(r->max_length, shape->lengths[s]);
        num_blocks += (int32_t)div_up(shape->lengths[s], BLOCK_SIZE);
    }
    if (shape->has_groups) num_blocks = 2 * num_blocks + 1;
    r->poison = num_blocks - 1;
    if (rig_prepare(r, num_blocks, max_tokens)) goto unsupported;
    if (shape->has_sinks) {
        r->sinks = random_values(random, (size_t)shape->num_heads, 4, 3);
        r->attention.sinks = device_upload(r->d, r->sinks, (size_t)shape->num_heads);
        r->layers[0].sinks = r->layers[1].sinks = r->attention.sinks;
    }
    if (shape->distance_reach > 0) {
        const size_t num = (size_t)shape->num_heads * (2 * (size_t)shape->distance_reach + 1);
        r->distance_bias = random_values(random, num, 4, 2);
        r->attention.distance_bias = device_upload(r->d, r->distance_bias, num);
        r->layers[0].distance_bias = r->layers[1].distance_bias = r->attention.distance_bias;
    }
    r->max_tokens = max_tokens;
    r->row = (size_t)(shape->num_heads + 2 * shape->num_kv_heads) * (size_t)shape->head_dim;
    float *cos_sin = calloc((size_t)r->max_length * (size_t)shape->head_dim, sizeof *cos_sin);
    for (int32_t i = 0; i < r->max_length * shape->head_dim; i += 2) cos_sin[i] = 1.0f; /* no rotation */
    r->rope = (struct rope_args){.num_heads = shape->num_heads, .num_kv_heads = shape->num_kv_heads};
    r->rope.head_dim = r->rope.rotary_dim = shape->head_dim;
    r->rope.cos_sin = device_upload(r->d, cos_sin, (size_t)r->max_length * (size_t)shape->head_dim);
    free(cos_sin);
    r->qkv = device_floats(r->d, (size_t)max_tokens * r->row, false);
    r->out = device_floats(r->d, (size_t)max_tokens * r->row, false);
    r->step = test_step_new_groups(max_tokens, RIG_SEQS_MAX, (int32_t)div_up(r->max_length, BLOCK_SIZE),
                                   shape->has_groups ? 2 : 1);
    for (int32_t s = 0; s < shape->num_seqs; s++) {
        r->data[s] = rig_data(r, shape->lengths[s], random);
        r->kept[s] = rig_kept(r, r->data[s], shape->lengths[s]);
        r->blocks[s] = calloc((size_t)div_up(shape->lengths[s], BLOCK_SIZE), sizeof(int32_t));
        r->blocks_of_1[s] = calloc((size_t)div_up(shape->lengths[s], BLOCK_SIZE), sizeof(int32_t));
    }
    rig_shuffle_blocks(r, random);
    if (shape->has_groups) rig_poison_block(r);
    return r;
unsupported:
    r->d->ops->close(r->d);
    free(r);
    return NULL;
}

UNUSED_FUNCTION static void rig_free(struct rig *r)
{
    r->d->ops->close(r->d);
    test_step_free(r->step);
    for (int32_t s = 0; s < r->shape.num_seqs; s++) {
        if (r->kept[s] != r->data[s]) free(r->kept[s]);
        free(r->data[s]);
        free(r->blocks[s]);
        free(r->blocks_of_1[s]);
        free((void *)r->masks[s].keys);
        free((void *)r->masks[s].tiles);
    }
    free(r->sinks);
    free(r->distance_bias);
    free(r);
}

/* Room for the sequence's mask, causal as yet; rig_mask_done when it is as it should be. */
UNUSED_FUNCTION static struct mask_rows *rig_mask(struct rig *r, int32_t seq)
{
    int32_t length = r->shape.lengths[seq];
    struct mask_rows *keys = calloc((size_t)length, sizeof *keys);
    mask_causal(keys, length);
    r->masks[seq].keys = keys;
    r->has_masks = true;
    return keys;
}

UNUSED_FUNCTION static void rig_mask_done(struct rig *r, int32_t seq)
{
    int32_t length = r->shape.lengths[seq];
    struct mask_tile *tiles = calloc((size_t)mask_num_tiles(length), sizeof *tiles);
    mask_fill_tiles(r->masks[seq].keys, length, tiles);
    r->masks[seq].tiles = tiles;
}

/* Some tokens of a sequence, and where its attention outputs go ([count][Hq D], may be NULL). */
struct rig_part {
    int32_t seq, first, count;
    bool decode;
    float *out;
};

/* Tables of both groups, without what is not seen. */
static void rig_set_blocks(struct rig *r, const struct rig_part *parts, int num_parts)
{
    int32_t *table = malloc((size_t)r->step->step.block_table_stride * sizeof *table);
    for (int32_t g = 0; g < 2; g++) {
        const struct attention_args *a = &r->layers[g];
        for (int i = 0; i < num_parts; i++) {
            const struct rig_part *p = &parts[i];
            int32_t first = mask_first_key(a->sliding_window, a->chunk, p->first) / BLOCK_SIZE;
            memcpy(table, (g ? r->blocks_of_1 : r->blocks)[p->seq],
                   (size_t)div_up(p->first + p->count, BLOCK_SIZE) * sizeof *table);
            for (int32_t b = 0; b < first; b++) table[b] = r->poison;
            test_step_set_blocks(r->step, g, i, table);
        }
    }
    free(table);
}

/* One step over these parts: K/V written, attention run unless no part wants its output. */
UNUSED_FUNCTION static void rig_run(struct rig *r, const struct rig_part *parts, int num_parts)
{
    struct device *d = r->d;
    struct sequence_mask masks[RIG_SEQS_MAX];
    bool attend = false;
    test_step_clear(r->step);
    r->step->step.masks = r->has_masks ? masks : NULL;
    for (int i = 0; i < num_parts; i++) {
        const struct rig_part *p = &parts[i];
        masks[i] = r->masks[p->seq];
        size_t at = (size_t)r->step->step.num_tokens * r->row * (size_t)d->act_bytes;
        device_write(d, (char *)r->qkv + at, r->data[p->seq] + (size_t)p->first * r->row,
                     (size_t)p->count * r->row, false);
        test_step_add(r->step, r->blocks[p->seq], p->first, p->count, p->decode);
        attend |= p->out != NULL;
    }
    if (r->shape.has_groups) rig_set_blocks(r, parts, num_parts);
    size_t out_row = (size_t)(r->shape.num_heads * r->shape.head_dim);
    device_poison(d, r->out, (size_t)r->step->step.num_tokens * out_row, false);
    struct batch *b = d->ops->step_begin(d, &r->step->step);
    for (int32_t layer = r->shape.other_window == r->shape.sliding_window; layer < 2; layer++) {
        struct rope_args rope = r->rope;
        rope.kv_group = r->layers[layer].kv_group;
        d->ops->rope_kv_write(d, b, r->qkv, r->pool, layer, &rope);
        if (attend) d->ops->attention(d, b, r->out, r->qkv, r->pool, layer, &r->layers[layer]);
    }
    test_step_end(d, NULL);
    size_t done = 0;
    for (int i = 0; i < num_parts; i++) {
        size_t count = (size_t)parts[i].count * out_row;
        if (parts[i].out)
            device_read(d, parts[i].out, (char *)r->out + done * (size_t)d->act_bytes, count, false);
        done += count;
    }
}

UNUSED_FUNCTION static struct rig_shape rig_shape_of(int32_t group, int32_t num_kv_heads, int32_t head_dim,
                                                     enum dtype kv_dtype)
{
    return (struct rig_shape){.num_heads = group * num_kv_heads,
                              .num_kv_heads = num_kv_heads,
                              .head_dim = head_dim,
                              .kv_dtype = kv_dtype};
}

/* ---- references: one query head of one token ---- */

static const float *rig_kv(const struct rig *r, int32_t seq, int32_t position, int32_t kv_head, bool v)
{
    const struct rig_shape *s = &r->shape;
    int32_t head = s->num_heads + (v ? s->num_kv_heads : 0) + kv_head;
    return r->kept[seq] + (size_t)position * r->row + (size_t)(head * s->head_dim);
}

static bool rig_sees(const struct rig *r, int32_t seq, int32_t row, int32_t key)
{
    const struct rig_shape *s = &r->shape;
    const struct mask_rows *keys = r->masks[seq].keys;
    if (s->sliding_window > 0 && key <= row - s->sliding_window) return false;
    if (s->window_of_both_sides && s->sliding_window > 0 && key >= row + s->sliding_window) return false;
    if (s->chunk > 0 && key / s->chunk < row / s->chunk) return false;
    return keys ? row >= keys[key].begin && row < keys[key].end : key <= row;
}

static double rig_temperature(const struct rig_shape *s, int32_t row)
{
    double floor = s->temperature_floor;
    return floor > 0
               ? 1 + (double)s->temperature_scale * log1p((int32_t)((row + s->temperature_offset) / floor))
               : 1;
}

/* Behind all keys that a row may see. */
static int32_t rig_end(const struct rig *r, int32_t seq, int32_t row)
{
    return r->masks[seq].keys ? r->shape.lengths[seq] : row + 1;
}

/* What ALiBi takes away, as the paper has it for powers of 2, and transformers for other numbers of heads. */
static double rig_alibi(const struct rig_shape *s, int32_t head, int32_t position, int32_t key)
{
    const double n = exp2(floor(log2(s->num_heads))), most = (double)s->alibi_most,
                 slope = head < n ? pow(exp2(-most / n), head + 1)
                                  : pow(exp2(-most / (2 * n)), 2 * (head - n) + 1);
    return s->alibi_most > 0 ? 0.75 * slope * abs(position - key) : 0;
}

/* What a score gains by the distance. */
static double rig_distance_bias(const struct rig *r, int32_t head, int32_t position, int32_t key)
{
    const int32_t reach = r->shape.distance_reach, distance = max_of(min_of(key - position, reach), -reach);
    return reach > 0 ? (double)r->distance_bias[head * (2 * reach + 1) + reach + distance] : 0;
}

/* Untiled, in double: obviously right. Writes out[head_dim]; returns the largest absolute score. */
UNUSED_FUNCTION static double reference_attention(const struct rig *r, int32_t seq, int32_t position,
                                                  int32_t head, double *out)
{
    const struct rig_shape *s = &r->shape;
    int32_t kv_head = head / (s->num_heads / s->num_kv_heads);
    int32_t end = rig_end(r, seq, position);
    const float *q = r->data[seq] + (size_t)position * r->row + (size_t)(head * s->head_dim);
    double *weights = malloc((size_t)end * sizeof *weights), max = -INFINITY, sum = 0, largest = 0;
    for (int32_t j = 0; j < end; j++) {
        if (!rig_sees(r, seq, position, j)) continue;
        const float *k = rig_kv(r, seq, j, kv_head, false);
        double score = 0;
        for (int32_t i = 0; i < s->head_dim; i++) score += (double)q[i] * (double)k[i];
        weights[j] = score * (double)r->attention.scale * rig_temperature(s, position);
        double cap = (double)s->softcap;
        if (cap > 0) weights[j] = cap * tanh(weights[j] / cap);
        weights[j] += rig_distance_bias(r, head, position, j) - rig_alibi(s, head, position, j);
        max = fmax(max, weights[j]);
        largest = fmax(largest, fabs(weights[j]));
    }
    if (r->sinks) max = fmax(max, (double)r->sinks[head]);
    if (r->sinks) sum = exp((double)r->sinks[head] - max);
    for (int32_t i = 0; i < s->head_dim; i++) out[i] = 0;
    for (int32_t j = 0; j < end; j++) {
        if (!rig_sees(r, seq, position, j)) continue;
        const float *v = rig_kv(r, seq, j, kv_head, true);
        double weight = exp(weights[j] - max);
        sum += weight;
        for (int32_t i = 0; i < s->head_dim; i++) out[i] += weight * (double)v[i];
    }
    for (int32_t i = 0; i < s->head_dim; i++) out[i] /= sum;
    free(weights);
    return largest;
}

/* The same, untiled, with every intermediate result rounded to the device's activation type. */
UNUSED_FUNCTION static void naive_attention(const struct rig *r, int32_t seq, int32_t position, int32_t head,
                                            float *out)
{
    const struct rig_shape *s = &r->shape;
    int bytes = r->d->act_bytes;
    int32_t kv_head = head / (s->num_heads / s->num_kv_heads);
    int32_t end = rig_end(r, seq, position);
    const float *q = r->data[seq] + (size_t)position * r->row + (size_t)(head * s->head_dim);
    float *weights = malloc((size_t)end * sizeof *weights), max = -INFINITY, sum = 0;
    for (int32_t j = 0; j < end; j++) {
        weights[j] = -INFINITY;
        if (!rig_sees(r, seq, position, j)) continue;
        const float *k = rig_kv(r, seq, j, kv_head, false);
        float score = 0;
        for (int32_t i = 0; i < s->head_dim; i++) score += q[i] * k[i];
        float scaled = score * r->attention.scale * (float)rig_temperature(s, position) -
                       (float)rig_alibi(s, head, position, j) +
                       (float)rig_distance_bias(r, head, position, j),
              cap = s->softcap;
        weights[j] = rounded_to(bytes, cap > 0 ? cap * tanhf(scaled / cap) : scaled);
        max = fmaxf(max, weights[j]);
    }
    if (r->sinks) max = fmaxf(max, r->sinks[head]);
    if (r->sinks) sum = expf(r->sinks[head] - max);
    for (int32_t j = 0; j < end; j++) sum += expf(weights[j] - max);
    for (int32_t i = 0; i < s->head_dim; i++) out[i] = 0;
    for (int32_t j = 0; j < end; j++) {
        const float *v = rig_kv(r, seq, j, kv_head, true);
        float weight = rounded_to(bytes, expf(weights[j] - max) / sum);
        for (int32_t i = 0; i < s->head_dim; i++) out[i] += weight * v[i];
    }
    for (int32_t i = 0; i < s->head_dim; i++) out[i] = rounded_to(bytes, out[i]);
    free(weights);
}

/* ---- the device against both ---- */

struct rig_errors {
    double device, naive;
    double largest, largest_score; /* of the reference */
};

/* Half a unit in the last place of the outputs and, where scores are kept in f32 as well, of the scores: an
 * error e in a score moves an output by as much as 2 e times the largest value. */
UNUSED_FUNCTION static double rig_rounding(const struct rig_errors *e, int act_bytes)
{
    if (act_bytes == 2) return 0x1p-8 * e->largest;
    return 0x1p-24 * e->largest * (1 + 2 * e->largest_score);
}

/* Every token of a part is checked when it is short, else a sample that includes both ends. */
UNUSED_FUNCTION static void rig_check_part(const struct rig *r, const struct rig_part *p,
                                           struct random *random, struct rig_errors *e)
{
    const struct rig_shape *s = &r->shape;
    double *expected = malloc((size_t)s->head_dim * sizeof *expected);
    float *naive = malloc((size_t)s->head_dim * sizeof *naive);
    for (int32_t i = 0; i < p->count; i++) {
        bool border = i < 2 || i + 2 >= p->count;
        if (!border && p->count > 40 && random_below(random, p->count) >= 8) continue;
        int32_t first_head = border ? 0 : random_below(random, s->num_heads);
        for (int32_t h = first_head; h < (border ? s->num_heads : first_head + 1); h++) {
            const float *out = p->out + (i * s->num_heads + h) * s->head_dim;
            double score = reference_attention(r, p->seq, p->first + i, h, expected);
            e->largest_score = fmax(e->largest_score, score);
            naive_attention(r, p->seq, p->first + i, h, naive);
            for (int32_t d = 0; d < s->head_dim; d++) {
                assert_true(isfinite(out[d]));
                e->device = fmax(e->device, fabs((double)out[d] - expected[d]));
                e->naive = fmax(e->naive, fabs((double)naive[d] - expected[d]));
                e->largest = fmax(e->largest, fabs(expected[d]));
            }
        }
    }
    free(expected);
    free(naive);
}

/* Tolerance: an error at most twice that of a naive attention in the device's activation type, plus the rounding of the
 * outputs (FlashAttention's own rule). In f32 three times: of a few hundred outputs the naive one's largest error is itself chance
 * (seed 1795479833815329: 2.3 times). */
UNUSED_FUNCTION static void rig_check(const struct rig *r, const struct rig_part *parts, int num_parts,
                                      struct random *random)
{
    const struct rig_shape *s = &r->shape;
    struct rig_errors e = {0};
    for (int i = 0; i < num_parts; i++) rig_check_part(r, &parts[i], random, &e);
    double rounding = rig_rounding(&e, r->d->act_bytes);
    if (!(e.device <= (r->d->act_bytes == 4 ? 3 : 2) * e.naive + rounding))
        fail_msg("%s, heads %d/%d, dim %d, window %d, chunk %d: error %g, naive %g, rounding %g",
                 r->d->description, s->num_heads, s->num_kv_heads, s->head_dim, s->sliding_window, s->chunk,
                 e.device, e.naive, rounding);
}

#endif
