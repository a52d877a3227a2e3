/* test_norm_rope.c - RMSNorm and RoPE against double-precision references, and rows against their neighbours.
 */
#include "fixture.h"

enum { TOKENS_MAX = 140 };

/* A device ready for steps of up to TOKENS_MAX tokens of one sequence. */
struct bench {
    struct device *d;
    struct kv_pool *pool;
    struct test_step *step;
};

static void bench_open(struct bench *b, const char *isa, int num_threads, int32_t num_heads,
                       int32_t num_kv_heads, int32_t head_dim)
{
    struct error err = {0};
    b->d = test_device_open(isa, num_threads);
    struct step_limits limits = {TOKENS_MAX, 1, TOKENS_MAX, 1, 2 * TOKENS_MAX, 1, 1, 0, false, 0};
    struct attention_args attention = {
        .num_heads = num_heads, .num_kv_heads = num_kv_heads, .head_dim = head_dim};
    if (b->d->ops->prepare(b->d, &limits, 64, 4096, 4096, &attention, 1, &err))
        fail_msg("prepare: %s", err.text);
    struct kv_shape kv = {.num_layers = 1,
                          .num_blocks = 2 * TOKENS_MAX / BLOCK_SIZE + 1,
                          .num_kv_heads = num_kv_heads,
                          .head_dim = head_dim,
                          .dtype = DTYPE_BF16};
    if (b->d->ops->kv_pool_create(b->d, &kv, &b->pool, &err)) fail_msg("pool: %s", err.text);
    b->step = test_step_new(TOKENS_MAX, 1, kv.num_blocks);
}

static void bench_close(struct bench *b)
{
    test_step_free(b->step);
    b->d->ops->close(b->d);
}

/* logit rows, if any: of every second token. */
static struct batch *begin(struct bench *b, int32_t first_position, int32_t num_tokens, int32_t num_logits)
{
    int32_t blocks[2 * TOKENS_MAX / BLOCK_SIZE + 1];
    for (int32_t i = 0; i < (int32_t)array_length(blocks); i++) blocks[i] = i;
    test_step_clear(b->step);
    test_step_add(b->step, blocks, first_position, num_tokens, false);
    for (int32_t r = 0; r < num_logits; r++) b->step->logit_rows[r] = 2 * r;
    b->step->step.num_logits = num_logits;
    return b->d->ops->step_begin(b->d, &b->step->step);
}

/* ---- RMSNorm ---- */

struct norm_data {
    int32_t num_rows, size;
    float *x, *delta, *weight; /* host */
    void *device_x, *device_delta, *picked_x, *picked_delta, *out;
    float *device_weight;
};

static void norm_data_init(struct norm_data *n, struct device *d, int32_t num_rows, int32_t size,
                           struct random *random)
{
    size_t count = (size_t)num_rows * (size_t)size;
    n->num_rows = num_rows;
    n->size = size;
    n->x = random_values(random, count, d->res_bytes, 3.0f);
    n->delta = random_values(random, count, d->act_bytes, 1.0f);
    n->weight = random_values(random, (size_t)size, 4, 1.0f);
    n->device_x = device_floats(d, count, true);
    n->device_delta = device_floats(d, count, false);
    n->picked_x = device_floats(d, count, true);
    n->picked_delta = device_floats(d, count, false);
    n->out = device_floats(d, count, false);
    n->device_weight = device_upload(d, n->weight, (size_t)size);
    device_write(d, n->device_delta, n->delta, count, false);
}

static void norm_data_free(struct norm_data *n)
{
    free(n->x);
    free(n->delta);
    free(n->weight);
}

static void check_normed(const struct norm_data *n, int32_t row, const float *x, const float *out,
                         int act_bytes)
{
    double sum = 0;
    for (int32_t i = 0; i < n->size; i++) sum += (double)x[i] * (double)x[i];
    double inverse = 1.0 / sqrt(sum / n->size + 1e-5);
    for (int32_t i = 0; i < n->size; i++) {
        double expected = (double)x[i] * inverse * (double)n->weight[i];
        double tolerance = fabs(expected) * (act_bytes == 2 ? 0x1p-8 : 8 * 0x1p-24);
        if (!(fabs((double)out[i] - expected) <= tolerance))
            fail_msg("row %d of size %d, element %d: %.9g, not %.9g", row, n->size, i, (double)out[i],
                     expected);
    }
}

/* Norms of what is added, and none of the sum: the results of all rows are kept in out (2 x rows x size). */
static void run_delta_norms(struct bench *b, struct norm_data *n, int32_t num_rows, float *out)
{
    struct device *d = b->d;
    size_t count = (size_t)num_rows * (size_t)n->size;
    struct norm_args args = {
        .weight = n->device_weight, .delta_weight = n->device_weight, .delta_scale = 0.25f};
    args.eps = 1e-5f;
    args.delta_eps = 1e-2f;
    args.hidden_size = n->size;
    for (int i = 0; i < 2; i++, args.weight = NULL) {
        device_write(d, n->device_x, n->x, count, true);
        device_poison(d, n->out, count, false);
        struct batch *batch = begin(b, 0, num_rows, 0);
        d->ops->rms_norm(d, batch, ROWS_TOKENS, n->out, n->device_x, n->device_delta, &args);
        device_read(d, out + (size_t)i * count, n->out, count, false);
        test_step_end(d, NULL);
    }
}

static void check_delta_normed(const struct norm_data *n, int32_t row, const struct device *d,
                               const float *out, const float *sum_out)
{
    const float *x = n->x + (size_t)row * (size_t)n->size, *delta = n->delta + (size_t)row * (size_t)n->size;
    float *sum = malloc((size_t)n->size * sizeof *sum);
    double squares = 0, rounding = d->act_bytes == 2 ? 0x1p-8 : 8 * 0x1p-24;
    for (int32_t i = 0; i < n->size; i++) squares += (double)delta[i] * (double)delta[i];
    double inverse = 1.0 / sqrt(squares / n->size + 1e-2);
    for (int32_t i = 0; i < n->size; i++) {
        double added = (double)delta[i] * inverse * (double)n->weight[i] * 0.25,
               expected = (double)x[i] + added;
        sum[i] = (float)expected;
        if (!(fabs((double)sum_out[i] - expected) <= rounding * (fabs((double)x[i]) + fabs(added))))
            fail_msg("row %d of size %d, element %d: %.9g, not %.9g", row, n->size, i, (double)sum_out[i],
                     expected);
    }
    squares = 0;
    for (int32_t i = 0; i < n->size; i++) squares += (double)sum[i] * (double)sum[i];
    inverse = 1.0 / sqrt(squares / n->size + 1e-5);
    for (int32_t i = 0; i < n->size; i++) {
        double expected = (double)sum[i] * inverse * (double)n->weight[i],
               tolerance = (fabs(expected) + 0.1 * fabs((double)n->weight[i])) * (rounding + 1e-6);
        if (!(fabs((double)out[i] - expected) <= tolerance))
            fail_msg("row %d of size %d, element %d: %.9g, not %.9g", row, n->size, i, (double)out[i],
                     expected);
    }
    free(sum);
}

/* Rows that become their norms. */
static void check_replaced(struct bench *b, struct norm_data *n, int32_t num_rows)
{
    struct device *d = b->d;
    size_t count = (size_t)num_rows * (size_t)n->size;
    float *x = malloc(2 * count * sizeof *x), *out = x + count;
    const struct norm_args args = {
        .weight = n->device_weight, .replaces = true, .delta_scale = 1, .eps = 1e-5f, .hidden_size = n->size};
    device_write(d, n->device_x, n->x, count, true);
    device_poison(d, n->out, count, false);
    struct batch *batch = begin(b, 0, num_rows, 0);
    d->ops->rms_norm(d, batch, ROWS_TOKENS, n->out, n->device_x, NULL, &args);
    device_read(d, out, n->out, count, false);
    device_read(d, x, n->device_x, count, true);
    test_step_end(d, NULL);
    for (size_t i = 0; i < count; i++) assert_true(out[i] == rounded_to(d->act_bytes, x[i]));
    for (int32_t r = 0; r < num_rows; r++)
        check_normed(n, r, n->x + (size_t)r * (size_t)n->size, x + (size_t)r * (size_t)n->size, d->res_bytes);
    free(x);
}

/* The three norms on rows of one size; the results of all rows are kept in out (3 x rows x size). */
static void run_norms(struct bench *b, struct norm_data *n, int32_t num_rows, float *out)
{
    struct device *d = b->d;
    size_t count = (size_t)num_rows * (size_t)n->size;
    float *x = malloc(count * sizeof *x);
    device_write(d, n->device_x, n->x, count, true);
    const struct norm_args args = {
        .weight = n->device_weight, .delta_scale = 1, .eps = 1e-5f, .hidden_size = n->size};
    struct batch *batch = begin(b, 0, num_rows, 0);
    device_poison(d, n->out, count, false);
    d->ops->rms_norm(d, batch, ROWS_TOKENS, n->out, n->device_x, NULL, &args);
    device_read(d, out, n->out, count, false);
    device_read(d, x, n->device_x, count, true);
    assert_int_equal(num_bits_different(x, n->x, count), 0);

    device_poison(d, n->out, count, false);
    d->ops->rms_norm(d, batch, ROWS_TOKENS, n->out, n->device_x, n->device_delta, &args);
    device_read(d, out + count, n->out, count, false);
    device_read(d, x, n->device_x, count, true);
    for (size_t i = 0; i < count; i++) assert_true(x[i] == rounded_to(d->res_bytes, n->x[i] + n->delta[i]));
    test_step_end(d, NULL);

    device_write(d, n->device_x, n->x, count, true);
    struct sample_result *unused = calloc((size_t)num_rows, sizeof *unused);
    batch = begin(b, 0, num_rows, (int32_t)div_up(num_rows, 2));
    device_poison(d, n->out, count, false);
    d->ops->pick_logit_rows(d, batch, n->picked_x, n->device_x, (size_t)n->size * (size_t)d->res_bytes);
    d->ops->pick_logit_rows(d, batch, n->picked_delta, n->device_delta,
                            (size_t)n->size * (size_t)d->act_bytes);
    d->ops->rms_norm(d, batch, ROWS_LOGITS, n->out, n->picked_x, n->picked_delta, &args);
    device_read(d, out + 2 * count, n->out, count, false);
    test_step_end(d, unused);
    free(unused);
    free(x);
}

/* LayerNorm of a sum; replaces: which becomes what x is, too, and has a bias. */
static void run_layer_norms(struct bench *b, struct norm_data *n, int32_t num_rows, bool replaces, float *out)
{
    struct device *d = b->d;
    size_t count = (size_t)num_rows * (size_t)n->size;
    float *x = malloc(count * sizeof *x);
    const struct norm_args args = {.weight = n->device_weight,
                                   .is_layer_norm = true,
                                   .replaces = replaces,
                                   /* [size / 2] there, then zeros */
                                   .bias = replaces ? n->device_weight + n->size / 2 : NULL,
                                   .delta_scale = 1,
                                   .eps = 1e-12f,
                                   .hidden_size = n->size / 2};
    device_write(d, n->device_x, n->x, count / 2, true);
    device_poison(d, n->out, count / 2, false);
    struct batch *batch = begin(b, 0, num_rows, 0);
    d->ops->rms_norm(d, batch, ROWS_TOKENS, n->out, n->device_x, n->device_delta, &args);
    device_read(d, out, n->out, count / 2, false);
    device_read(d, x, n->device_x, count / 2, true);
    test_step_end(d, NULL);
    for (size_t i = 0; i < count / 2 && replaces; i++) assert_true(out[i] == rounded_to(d->act_bytes, x[i]));
    if (replaces) memcpy(out, x, count / 2 * sizeof *x);
    for (size_t i = 0; i < count / 2 && !replaces; i++)
        assert_true(fabsf(x[i] - (n->x[i] + n->delta[i])) <= 1e-6f * (fabsf(n->x[i]) + fabsf(n->delta[i])));
    free(x);
}

/* rounding: of what is put out. */
static void check_layer_norms(const struct norm_data *n, int32_t num_rows, bool has_bias, double rounding,
                              const float *out)
{
    const int32_t size = n->size / 2;
    for (int32_t r = 0; r < num_rows; r++, out += size) {
        const float *x = n->x + r * size, *delta = n->delta + r * size;
        double mean = 0, variance = 0;
        for (int32_t i = 0; i < size; i++) mean += ((double)x[i] + delta[i]) / size;
        for (int32_t i = 0; i < size; i++) variance += pow((double)x[i] + delta[i] - mean, 2) / size;
        for (int32_t i = 0; i < size; i++) {
            double normed = ((double)x[i] + delta[i] - mean) / sqrt(variance + 1e-12),
                   expected = normed * n->weight[i] + (has_bias ? n->weight[size + i] : 0.0f),
                   tolerance = (fabs(normed * n->weight[i]) + fabs(expected) + 1) * 16 * 0x1p-24 +
                               fabs(expected) * rounding;
            if (!(fabs(out[i] - expected) <= tolerance))
                fail_msg("row %d of size %d, element %d: %.9g, not %.9g", r, size, i, (double)out[i],
                         expected);
        }
    }
}

/* A LayerNorm without a weight is the sum alone. */
static void check_sums(struct bench *b, struct norm_data *n, int32_t num_rows)
{
    struct device *d = b->d;
    size_t count = (size_t)num_rows * (size_t)n->size;
    float *x = malloc(count * sizeof *x), *out = malloc(count * sizeof *out);
    const struct norm_args args = {.is_layer_norm = true, .delta_scale = 1, .hidden_size = n->size};
    device_write(d, n->device_x, n->x, count, true);
    device_poison(d, n->out, count, false);
    struct batch *batch = begin(b, 0, num_rows, 0);
    d->ops->rms_norm(d, batch, ROWS_TOKENS, n->out, n->device_x, n->device_delta, &args);
    device_read(d, out, n->out, count, false);
    device_read(d, x, n->device_x, count, true);
    test_step_end(d, NULL);
    for (size_t i = 0; i < count; i++) {
        assert_true(x[i] == rounded_to(d->res_bytes, n->x[i] + n->delta[i]));
        assert_true(out[i] == rounded_to(d->act_bytes, x[i]));
    }
    free(x);
    free(out);
}

static void layer_norms_of_size(struct bench *b, struct norm_data *n, int32_t num_rows)
{
    float *out = malloc((size_t)num_rows * (size_t)n->size * sizeof *out),
          *alone = malloc((size_t)n->size * sizeof *alone);
    check_sums(b, n, num_rows);
    for (int i = 0; i < 2 && b->d->ops->embed_positions; i++) {
        run_layer_norms(b, n, num_rows, i == 1, out);
        check_layer_norms(n, num_rows, i == 1, i == 0 && b->d->act_bytes == 2 ? 0x1p-8 : 0, out);
        run_layer_norms(b, n, 1, i == 1, alone);
        assert_int_equal(num_bits_different(alone, out, (size_t)n->size / 2), 0);
    }
    free(out);
    free(alone);
}

/* Positions of a step that does not begin with the first. */
static void test_positions(void **state)
{
    (void)state;
    enum { NUM = 70, FIRST = 9 };
    struct random random = {.seed = test_seed()};
    struct bench b;
    bench_open(&b, "portable", 2, 4, 2, 64);
    size_t count = (size_t)NUM * 4096;
    float *x = random_values(&random, count, 4, 1.0f),
          *table = random_values(&random, (size_t)(NUM + FIRST) * 4096, 4, 1.0f),
          *out = malloc(count * sizeof *out);
    void *device_x = device_floats(b.d, count, true);
    device_write(b.d, device_x, x, count, true);
    struct batch *batch = begin(&b, FIRST, NUM, 0);
    if (b.d->ops->embed_positions) {
        b.d->ops->embed_positions(b.d, batch, device_x, device_upload(b.d, table, (NUM + FIRST) * 4096));
        device_read(b.d, out, device_x, count, true);
        for (size_t i = 0; i < count; i++) assert_true(out[i] == x[i] + table[i + FIRST * 4096]);
    }
    test_step_end(b.d, NULL);
    bench_close(&b);
    free(x);
    free(table);
    free(out);
}

static void norms_of_size(struct bench *b, int32_t size, int32_t num_rows, struct random *random)
{
    struct norm_data n;
    norm_data_init(&n, b->d, num_rows, size, random);
    size_t count = (size_t)num_rows * (size_t)size;
    float *out = malloc(3 * count * sizeof *out), *alone = malloc(3 * (size_t)size * sizeof *alone);
    float *sum = malloc((size_t)size * sizeof *sum);
    run_norms(b, &n, num_rows, out);
    for (int32_t r = 0; r < num_rows; r++) {
        const float *x = n.x + (size_t)r * (size_t)size, *delta = n.delta + (size_t)r * (size_t)size;
        check_normed(&n, r, x, out + (size_t)r * (size_t)size, b->d->act_bytes);
        for (int32_t i = 0; i < size; i++) sum[i] = rounded_to(b->d->res_bytes, x[i] + delta[i]);
        check_normed(&n, r, sum, out + count + (size_t)r * (size_t)size, b->d->act_bytes);
        if (r % 2 == 0)
            check_normed(&n, r, sum, out + 2 * count + (size_t)(r / 2) * (size_t)size, b->d->act_bytes);
    }
    run_norms(b, &n, 1, alone); /* the first row has the same bits without the others */
    size_t row = (size_t)size;
    assert_int_equal(num_bits_different(alone, out, row), 0);
    assert_int_equal(num_bits_different(alone + row, out + count, row), 0);
    assert_int_equal(num_bits_different(alone + 2 * row, out + 2 * count, row), 0);
    check_replaced(b, &n, num_rows);
    run_delta_norms(b, &n, num_rows, out);
    for (int32_t r = 0; r < num_rows; r++)
        check_delta_normed(&n, r, b->d, out + (size_t)r * row, out + count + (size_t)r * row);
    run_delta_norms(b, &n, 1, alone);
    assert_int_equal(num_bits_different(alone, out, row), 0);
    assert_int_equal(num_bits_different(alone + row, out + count, row), 0);
    free(out);
    free(alone);
    free(sum);
    layer_norms_of_size(b, &n, num_rows);
    norm_data_free(&n);
}

static void norms(const char *isa)
{
    static const int32_t sizes[] = {64, 100, 576, 1000, 4096};
    struct random random = {.seed = test_seed()};
    for (int num_threads = 1; num_threads <= 3; num_threads++) {
        struct bench b;
        bench_open(&b, isa, num_threads, 4, 2, 64);
        for (size_t i = 0; i < array_length(sizes); i++) {
            norms_of_size(&b, sizes[i], 1 + random_below(&random, 5), &random);
            norms_of_size(&b, sizes[i], TOKENS_MAX, &random);
        }
        bench_close(&b);
    }
}

static void test_norms(void **state)
{
    (void)state;
    for_each_isa(norms);
}

/* ---- RoPE ---- */

struct rope_case {
    int32_t num_heads, num_kv_heads, head_dim, rotary_dim;
    enum rope_style style;
    enum {
        NO_NORM,
        OF_A_HEAD,
        OF_ALL_HEADS,   /* of a token's q, and of its k */
        OF_ALL_CENTRED, /* LayerNorm of these, with biases */
        BEHIND,         /* of a head behind the rotation */
        OF_EACH_HEAD    /* LayerNorm with weights of its own */
    } norm;
};

/* sum: of the squares of num_all values, which the norm is over. */
static void reference_norm(double *x, const struct rope_args *a, const float *norm, double sum,
                           int32_t num_all)
{
    double inverse = 1.0 / sqrt(sum / num_all + (double)a->norm_eps);
    for (int32_t i = 0; i < a->head_dim; i++) x[i] *= inverse * (double)norm[i];
}

static void reference_rotation(double *x, const struct rope_args *a, const float *cos_sin)
{
    for (int32_t i = 0; i < a->rotary_dim / 2; i++) {
        int32_t low = a->style == ROPE_HALVES ? i : 2 * i;
        int32_t high = a->style == ROPE_HALVES ? i + a->rotary_dim / 2 : 2 * i + 1;
        double c = (double)cos_sin[2 * i], s = (double)cos_sin[2 * i + 1], x0 = x[low], x1 = x[high];
        x[low] = x0 * c - x1 * s;
        x[high] = x1 * c + x0 * s;
    }
}

static void reference_layer_norm(double *x, const struct rope_args *a, const float *norm)
{
    double mean = 0, variance = 0;
    for (int32_t i = 0; i < a->head_dim; i++) mean += x[i] / a->head_dim;
    for (int32_t i = 0; i < a->head_dim; i++) variance += pow(x[i] - mean, 2) / a->head_dim;
    for (int32_t i = 0; i < a->head_dim; i++)
        x[i] = (x[i] - mean) / sqrt(variance + (double)a->norm_eps) * (double)norm[i];
}

/* The head's own values of it: all num_all values are normed together. */
static void reference_layer_norm_of_all(double *x, const struct rope_args *a, const float *norm,
                                        const float *bias, const float *all, int32_t num_all)
{
    double mean = 0, variance = 0;
    for (int32_t i = 0; i < num_all; i++) mean += (double)all[i] / num_all;
    for (int32_t i = 0; i < num_all; i++) variance += pow((double)all[i] - mean, 2) / num_all;
    for (int32_t i = 0; i < a->head_dim; i++)
        x[i] = (x[i] - mean) / sqrt(variance + (double)a->norm_eps) * (double)norm[i] + (double)bias[i];
}

/* norm: the weights of this head's values; bias NULL: none. all: those that the norm is over, but of one behind the rotation. */
static void reference_head(double *x, const struct rope_args *a, const float *cos_sin, const float *norm,
                           const float *bias, const float *all, int32_t num_all)
{
    double sum = 0, sum_behind = 0;
    for (int32_t i = 0; i < num_all; i++) sum += (double)all[i] * (double)all[i];
    if (norm && a->norm_by_head) reference_layer_norm(x, a, norm);
    if (bias) reference_layer_norm_of_all(x, a, norm, bias, all, num_all);
    if (norm && !bias && !a->norm_follows && !a->norm_by_head) reference_norm(x, a, norm, sum, num_all);
    reference_rotation(x, a, cos_sin);
    for (int32_t i = 0; i < a->head_dim; i++) sum_behind += x[i] * x[i];
    if (norm && a->norm_follows) reference_norm(x, a, norm, sum_behind, a->head_dim);
}

static void check_rope(const struct bench *b, const struct rope_args *a, const float *cos_sin,
                       const float *norms[2], const float *biases[2], const float *before, const float *after,
                       int32_t num_tokens)
{
    int32_t num_rotated = a->num_heads + a->num_kv_heads, num_heads = num_rotated + a->num_kv_heads,
            D = a->head_dim;
    double x[256];
    for (int32_t i = 0; i < num_tokens * num_heads; i++) {
        int32_t head = i % num_heads, position = b->step->positions[i / num_heads];
        double largest = 0;
        for (int32_t d = 0; d < D; d++) x[d] = (double)before[i * D + d];
        bool is_k = head >= a->num_heads;
        int32_t own = head - (is_k ? a->num_heads : 0),
                in_all = a->norm_all_heads ? own : 0; /* of the heads normed with it */
        const float *norm = norms[is_k] ? norms[is_k] + (a->norm_by_head ? own : in_all) * D : NULL,
                    *bias = biases[is_k] ? biases[is_k] + own * D : NULL, *all = before + (i - in_all) * D;
        int32_t num_all = a->norm_all_heads ? (is_k ? a->num_kv_heads : a->num_heads) * D : D;
        if (head < num_rotated)
            reference_head(x, a, cos_sin + position * a->rotary_dim, norm, bias, all, num_all);
        for (int32_t d = 0; d < D; d++) largest = fmax(largest, fabs(x[d]));
        double tolerance = largest * (b->d->act_bytes == 2 ? 0x1p-8 : 8 * 0x1p-24);
        if ((a->norm_all_heads || a->norm_by_head) && b->d->act_bytes == 2)
            tolerance *= 2; /* rounded behind the norm, too */
        for (int32_t d = 0; d < D; d++)
            if (!(fabs((double)after[i * D + d] - x[d]) <= (head < num_rotated ? tolerance : 0)))
                fail_msg("head %d at %d, element %d: %.9g, not %.9g", head, position, d,
                         (double)after[i * D + d], x[d]);
    }
}

static void rope_of(const char *isa, const struct rope_case *c, int32_t num_tokens, struct random *random)
{
    struct bench b;
    int32_t first = random_below(random, TOKENS_MAX);
    bench_open(&b, isa, 1 + random_below(random, 3), c->num_heads, c->num_kv_heads, c->head_dim);
    size_t count = (size_t)num_tokens * (size_t)((c->num_heads + 2 * c->num_kv_heads) * c->head_dim);
    size_t table_count = 2 * TOKENS_MAX * (size_t)max_of(c->rotary_dim, 2);
    float *qkv = random_values(random, count, b.d->act_bytes, 2.0f), *after = malloc(count * sizeof *after);
    float *cos_sin = malloc(table_count * sizeof *cos_sin);
    const bool is_centred = c->norm == OF_ALL_CENTRED,
               has_all = c->norm == OF_ALL_HEADS || c->norm == OF_EACH_HEAD || is_centred;
    size_t num_q = (size_t)(c->head_dim * (has_all ? c->num_heads : 1)),
           num_k = (size_t)(c->head_dim * (has_all ? c->num_kv_heads : 1));
    float *weights = random_values(random, num_q + num_k, 4, 1.0f),
          *added = random_values(random, num_q + num_k, 4, 1.0f);
    for (size_t i = 0; i < table_count; i += 2) {
        double angle = 6.2831853 * random_uniform(random);
        cos_sin[i] = (float)cos(angle);
        cos_sin[i + 1] = (float)sin(angle);
    }
    const float *norms[2] = {c->norm ? weights : NULL, c->norm ? weights + num_q : NULL},
                *biases[2] = {is_centred ? added : NULL, is_centred ? added + num_q : NULL};
    struct rope_args args = {
        .num_heads = c->num_heads, .num_kv_heads = c->num_kv_heads, .head_dim = c->head_dim};
    args.rotary_dim = c->rotary_dim;
    args.style = c->style;
    args.cos_sin = device_upload(b.d, cos_sin, table_count);
    args.q_norm = c->norm ? device_upload(b.d, norms[0], num_q) : NULL;
    args.k_norm = c->norm ? device_upload(b.d, norms[1], num_k) : NULL;
    args.q_norm_bias = is_centred ? device_upload(b.d, biases[0], num_q) : NULL;
    args.k_norm_bias = is_centred ? device_upload(b.d, biases[1], num_k) : NULL;
    args.norm_all_heads = c->norm == OF_ALL_HEADS || is_centred;
    args.norm_follows = c->norm == BEHIND;
    args.norm_by_head = c->norm == OF_EACH_HEAD;
    args.clip = random_below(random, 2) ? 1.25f : 0;
    args.norm_eps = 1e-6f;
    void *device_qkv = device_floats(b.d, count, false);
    device_write(b.d, device_qkv, qkv, count, false);
    struct batch *batch = begin(&b, first, num_tokens, 0);
    b.d->ops->rope_kv_write(b.d, batch, device_qkv, b.pool, 0, &args);
    device_read(b.d, after, device_qkv, count, false);
    test_step_end(b.d, NULL);
    for (size_t i = 0; i < count && args.clip > 0; i++) qkv[i] = fminf(fmaxf(qkv[i], -args.clip), args.clip);
    check_rope(&b, &args, cos_sin, norms, biases, qkv, after, num_tokens);
    free(qkv);
    free(after);
    free(cos_sin);
    free(weights);
    free(added);
    bench_close(&b);
}

static void ropes(const char *isa)
{
    static const struct rope_case cases[] = {
        {9, 3, 64, 64, ROPE_PAIRS, NO_NORM},        {9, 3, 64, 64, ROPE_HALVES, NO_NORM},
        {4, 2, 128, 128, ROPE_HALVES, OF_A_HEAD},   {2, 1, 80, 32, ROPE_HALVES, NO_NORM},
        {4, 4, 96, 96, ROPE_PAIRS, OF_A_HEAD},      {8, 1, 256, 64, ROPE_PAIRS, NO_NORM},
        {1, 1, 256, 256, ROPE_HALVES, OF_A_HEAD},   {8, 4, 128, 128, ROPE_HALVES, OF_A_HEAD},
        {3, 1, 64, 26, ROPE_HALVES, OF_A_HEAD},     {2, 2, 80, 18, ROPE_PAIRS, NO_NORM},
        {8, 2, 64, 64, ROPE_HALVES, OF_ALL_HEADS},  {5, 5, 128, 128, ROPE_HALVES, OF_ALL_HEADS},
        {4, 2, 64, 0, ROPE_HALVES, NO_NORM},        {3, 1, 128, 96, ROPE_HALVES, NO_NORM},
        {4, 2, 128, 128, ROPE_HALVES, BEHIND},      {3, 1, 64, 26, ROPE_PAIRS, BEHIND},
        {6, 6, 64, 0, ROPE_HALVES, OF_ALL_CENTRED}, {5, 1, 24, 8, ROPE_PAIRS, OF_ALL_CENTRED},
        {6, 2, 64, 64, ROPE_PAIRS, OF_EACH_HEAD},   {3, 1, 80, 20, ROPE_HALVES, OF_EACH_HEAD},
    };
    struct random random = {.seed = test_seed()};
    for (size_t i = 0; i < array_length(cases); i++) {
        rope_of(isa, &cases[i], 1 + random_below(&random, TOKENS_MAX), &random);
        rope_of(isa, &cases[i], TOKENS_MAX, &random); /* a device may treat many tokens in another way */
        rope_of(isa, &cases[i], 1, &random);          /* or one */
    }
}

static void test_rope(void **state)
{
    (void)state;
    for_each_isa(ropes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_norms), cmocka_unit_test(test_positions),
                                       cmocka_unit_test(test_rope)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
