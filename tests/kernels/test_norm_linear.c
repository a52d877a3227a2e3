/* test_norm_linear.c - a product that makes the norm of its one row itself, and one that quantises it: the bits of rms_norm and linear
 * one after the other, where the row is one of several. A device that has none of this has nothing to show. */
#include "fixture.h"

enum { TOKENS_MAX = 8, ROWS = 3 /* of a step that nothing is made together in */, BLOCK = 128 };

enum format { BF16, FP8_ROWS, FP8_BLOCKS, INT8_ROWS, INT4_128, INT4_32, MXFP4, NUM_FORMATS };

struct rig {
    struct device *d;
    struct random random;
    struct test_step *step;
    int32_t k, n; /* n: rows of W */
    float *x, *delta, *weight;
    float *device_weight, *biases;
    void *device_x, *device_sum, *device_delta, *normed, *out;
    struct linear *plain, *gated;
};

static bool has_bytes(enum format format)
{
    return format == FP8_ROWS || format == FP8_BLOCKS || format == INT8_ROWS;
}

/* Columns, which have to be whole ones, that have one scale; of bytes with scales of rows the most that may have several. */
static int32_t group_size(enum format format)
{
    return format == BF16 ? 1 : format == INT4_32 || format == MXFP4 ? 32 : BLOCK;
}

static struct weight_view bytes_view(struct rig *r, enum format format, int32_t rows)
{
    const size_t count = (size_t)rows * (size_t)r->k;
    uint8_t *codes = malloc(count);
    float *scales = malloc((size_t)rows * sizeof *scales);
    const bool in_blocks = format == FP8_BLOCKS;
    const int64_t scale_rows = in_blocks ? BLOCK : 1, scale_cols = in_blocks ? BLOCK : r->k;
    for (size_t i = 0; i < count; i++) codes[i] = random_e4m3(&r->random);
    for (int32_t i = 0; i < rows; i++) scales[i] = (float)(0.002 * (0.1 + random_uniform(&r->random)));
    return scaled_view(codes, format == INT8_ROWS ? DTYPE_I8 : DTYPE_F8_E4M3, rows, r->k, scales, SCALE_F32,
                       scale_rows, scale_cols);
}

/* Scales: positive numbers of bf16, or exponents. */
static struct weight_view four_bits_view(struct rig *r, enum format format, int32_t rows)
{
    const bool is_mxfp4 = format == MXFP4;
    const int32_t group = group_size(format), num_groups = (r->k + group - 1) / group;
    const size_t num_bytes = (size_t)rows * (size_t)r->k / 2, num_scales = (size_t)rows * (size_t)num_groups;
    uint8_t *codes = malloc(num_bytes), *scales = malloc(2 * num_scales);
    for (size_t i = 0; i < num_bytes; i++) codes[i] = (uint8_t)random_bits(&r->random);
    for (size_t i = 0; i < num_scales; i++) {
        const uint16_t half = (uint16_t)(0x3b00 + random_below(&r->random, 128));
        if (is_mxfp4)
            scales[i] = (uint8_t)(115 + random_below(&r->random, 8));
        else
            memcpy(scales + 2 * i, &half, sizeof half);
    }
    return scaled_view(codes, is_mxfp4 ? DTYPE_MXFP4 : DTYPE_U4, rows, r->k, scales,
                       is_mxfp4 ? SCALE_E8M0 : SCALE_BF16, 1, group);
}

static struct weight_view view_of(struct rig *r, enum format format, int32_t rows)
{
    const size_t count = (size_t)rows * (size_t)r->k;
    if (format == BF16) {
        uint16_t *values = malloc(count * sizeof *values);
        for (size_t i = 0; i < count; i++) {
            float v = random_normal(&r->random) / sqrtf((float)r->k);
            uint32_t word;
            memcpy(&word, &v, 4);
            values[i] = (uint16_t)(word >> 16);
        }
        return weight_view_plain(values, DTYPE_BF16, rows, r->k);
    }
    return has_bytes(format) ? bytes_view(r, format, rows) : four_bits_view(r, format, rows);
}

static struct linear *create(struct rig *r, enum format format, enum linear_kind kind)
{
    struct linear_desc desc = {
        .kind = kind, .num_parts = kind == LINEAR_GATE_UP ? 2 : 1, .quantise_input = has_bytes(format)};
    struct error err = {0};
    struct linear *made;
    for (int i = 0; i < desc.num_parts; i++) desc.parts[i] = view_of(r, format, r->n / desc.num_parts);
    if (kind != LINEAR_GATE_UP) desc.biases[0] = weight_view_plain(r->biases, DTYPE_F32, 1, r->n);
    if (r->d->ops->linear_create(r->d, &desc, &made, &err)) fail_msg("linear_create: %s", err.text);
    for (int i = 0; i < desc.num_parts; i++) {
        free((void *)(uintptr_t)desc.parts[i].data);
        free((void *)(uintptr_t)desc.parts[i].codes.scales.data);
    }
    return made;
}

static void rig_open(struct rig *r, int32_t k, int32_t n, enum format format)
{
    const struct step_limits limits = {TOKENS_MAX, 1, TOKENS_MAX, 1, TOKENS_MAX, 1, 1, 0, false, 0};
    const struct attention_args attention = {.num_heads = 1, .num_kv_heads = 1, .head_dim = 64};
    struct error err = {0};
    *r = (struct rig){.d = test_device_open("auto", 2), .random = {.seed = test_seed()}, .k = k, .n = n};
    struct device *d = r->d;
    assert_int_equal(d->ops->prepare(d, &limits, 64, k, n, &attention, 1, &err), 0);
    r->x = random_values(&r->random, (size_t)(ROWS * k), d->res_bytes, 3);
    r->delta = random_values(&r->random, (size_t)(ROWS * k), d->act_bytes, 1);
    r->weight = random_values(&r->random, (size_t)k, 4, 1);
    r->biases = random_values(&r->random, (size_t)n, 4, 1);
    r->device_weight = device_upload(d, r->weight, (size_t)k);
    r->device_x = device_floats(d, (size_t)(TOKENS_MAX * k), true);
    r->device_sum = device_floats(d, (size_t)k, true);
    r->device_delta = device_floats(d, (size_t)(TOKENS_MAX * k), false);
    r->normed = device_floats(d, (size_t)(TOKENS_MAX * k), false);
    r->out = device_floats(d, (size_t)(TOKENS_MAX * n), false);
    r->step = test_step_new(TOKENS_MAX, 1, 2);
    r->plain = create(r, format, LINEAR_PLAIN);
    r->gated = create(r, format, LINEAR_GATE_UP);
    assert_int_equal(d->ops->weights_done(d, &err), 0);
}

static void rig_close(struct rig *r)
{
    r->d->ops->close(r->d);
    test_step_free(r->step);
    free(r->x);
    free(r->delta);
    free(r->weight);
    free(r->biases);
}

static struct batch *begin(const struct rig *r, int32_t num_tokens)
{
    const int32_t blocks[2] = {0, 1};
    test_step_clear(r->step);
    test_step_add(r->step, blocks, 0, num_tokens, false);
    return r->d->ops->step_begin(r->d, &r->step->step);
}

static void write_rows(const struct rig *r, int32_t first, int32_t num_rows, const void *delta)
{
    const size_t at = (size_t)first * (size_t)r->k, count = (size_t)num_rows * (size_t)r->k;
    device_write(r->d, r->device_x, r->x + at, count, true);
    if (delta) device_write(r->d, r->device_delta, r->delta + at, count, false);
    device_poison(r->d, r->normed, count, false);
    device_poison(r->d, r->out, (size_t)num_rows * (size_t)r->n, false);
}

/* What is made of num_rows rows from first on, by one operation after the other; sums: what becomes of x. */
static void compute_apart(const struct rig *r, int32_t first, int32_t num_rows, const void *delta, bool gated,
                          float *out, float *sums)
{
    const struct kernel_table *k = r->d->ops;
    const int32_t width = gated ? r->n / 2 : r->n;
    const struct norm_args norm = {
        .weight = r->device_weight, .delta_scale = 0.75f, .eps = 1e-5f, .hidden_size = r->k};
    write_rows(r, first, num_rows, delta);
    struct batch *b = begin(r, num_rows);
    k->rms_norm(r->d, b, ROWS_TOKENS, r->normed, r->device_x, delta, &norm);
    (gated ? k->linear_gated : k->linear)(r->d, b, ROWS_TOKENS, r->out, r->normed,
                                          gated ? r->gated : r->plain);
    test_step_end(r->d, NULL);
    device_read(r->d, out, r->out, (size_t)num_rows * (size_t)width, false);
    device_read(r->d, sums, r->device_x, (size_t)num_rows * (size_t)r->k, true);
}

/* False: the device does nothing of the kind. */
static bool compute_together(const struct rig *r, int32_t row, const void *delta, bool gated, float *out,
                             float *sum)
{
    const struct norm_args norm = {
        .weight = r->device_weight, .delta_scale = 0.75f, .eps = 1e-5f, .hidden_size = r->k};
    write_rows(r, row, 1, delta);
    device_poison(r->d, r->device_sum, (size_t)r->k, true);
    struct batch *b = begin(r, 1);
    bool done = r->d->ops->norm_linear(r->d, b, ROWS_TOKENS, r->out, r->device_sum, r->device_x, delta, &norm,
                                       gated ? r->gated : r->plain);
    test_step_end(r->d, NULL);
    device_read(r->d, out, r->out, (size_t)(gated ? r->n / 2 : r->n), false);
    device_read(r->d, sum, delta ? r->device_sum : r->device_x, (size_t)r->k, true);
    return done;
}

static void compare(const struct rig *r, const char *what, enum format format, const float *got,
                    const float *expected, int32_t count)
{
    int64_t different = num_bits_different(got, expected, (size_t)count);
    if (different)
        fail_msg("%s, K %d, N %d, format %d: %lld of %d have other bits", what, r->k, r->n, (int)format,
                 (long long)different, count);
}

static void check_row(const struct rig *r, enum format format, const void *delta, bool gated)
{
    const int32_t width = gated ? r->n / 2 : r->n;
    float *all = malloc((size_t)(ROWS * r->n) * sizeof *all), *got = malloc((size_t)r->n * sizeof *got),
          *sums = malloc((size_t)(ROWS * r->k) * sizeof *sums), *sum = malloc((size_t)r->k * sizeof *sum);
    compute_apart(r, 0, ROWS, delta, gated, all, sums);
    for (int32_t row = 0; row < ROWS; row++) {
        compute_apart(r, row, 1, delta, gated, got, sum);
        compare(r, "a row alone", format, got, all + row * width, width);
        if (!compute_together(r, row, delta, gated, got, sum)) {
            printf("(K %d, format %d: two operations here)\n", r->k, (int)format);
            break;
        }
        compare(r, "norm and product in one", format, got, all + row * width, width);
        compare(r, "sum", format, sum, sums + row * r->k, r->k);
    }
    free(all);
    free(got);
    free(sums);
    free(sum);
}

static void one_row_is_normed_where_it_is_multiplied(void **state)
{
    static const struct {
        int32_t k, n;
    } shapes[] = {{64, 64},    {640, 96},   {128, 4608}, {1024, 512}, {1096, 160},
                  {2880, 160}, {4096, 224}, {5120, 128}, {8192, 64},  {8320, 64}};
    (void)state;
    struct device *d = test_device_open("auto", 1);
    const bool has_it = d->ops->norm_linear != NULL;
    d->ops->close(d);
    if (!has_it) skip();
    for (size_t i = 0; i < array_length(shapes); i++)
        for (int format = BF16; format < NUM_FORMATS; format++) {
            struct rig r;
            if (shapes[i].k % group_size((enum format)format) != 0 || !takes_part(i + (size_t)format))
                continue;
            rig_open(&r, shapes[i].k, shapes[i].n, (enum format)format);
            for (int gated = 0; gated < 2; gated++) {
                check_row(&r, (enum format)format, NULL, gated);
                check_row(&r, (enum format)format, r.device_delta, gated);
            }
            rig_close(&r);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_row_is_normed_where_it_is_multiplied)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
