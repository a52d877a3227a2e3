/* test_quantised_table.c - quantised weights through the kernel table of whatever device: the bits of the same weights
 * unpacked and rounded to what the device has, for many numbers of tokens. */
#include "fixture.h"

enum { CASE_ROWS_MAX = 344, CASE_COLS_MAX = 1152, TOKENS_MAX = 300 };

#include "tests/kernels/quantised_cases.h"

static struct random numbers;

static float draw_between(float low, float high)
{
    return low + (high - low) * (float)random_uniform(&numbers);
}

/* A product with quantised weights, and with the same weights as plain numbers. */
struct pair {
    const char *name;
    struct linear *quantised, *plain;
    bool is_gated, is_packed; /* there */
    int cols;
    int step; /* of the numbers of tokens */
};

enum {
    NUM_GGUF = DTYPE_MXFP4 - DTYPE_Q4_0 + 1, /* types of blocks */
    PAIRS_MAX = 2 * (sizeof layouts / sizeof *layouts + 1 + NUM_GGUF),
    N = 336,
    GATED_N = 160,
    FIRST_ROW = 8,
    BLOCK_COLS = 1024 /* whole blocks of each type */
};

struct rig {
    struct device *device;
    struct test_step *step;
    struct pair pairs[PAIRS_MAX];
    int num_pairs;
    float *x;
    void *device_x, *device_y;
};

static struct linear *make_linear(struct device *d, const struct linear_desc *desc)
{
    struct error err = {0};
    struct linear *l;
    if (d->ops->linear_create(d, desc, &l, &err)) fail_msg("linear_create: %s", err.text);
    return l;
}

static void unpack_rows(const struct quantised *q, float *weights, bool to_bf16)
{
    for (int n = 0; n < q->rows; n++)
        for (int k = 0; k < q->cols; k++) {
            const int at = n * q->cols + k;
            const float value = (float)(value_of(q, n, k) * (double)q->scales[at]);
            weights[at] = to_bf16 ? rounded_to(2, value) : value;
        }
}

static bool is_hopper(const struct device *d)
{
    const bool has_name = strstr(d->description, "NVIDIA H") || strstr(d->description, "NVIDIA GH");
    return d->is_gpu && has_name && !test_portable_kernels();
}

/* What an sm_90 keeps packed; its layout has no room for scales of f32. */
static bool stays_packed(const struct device *d, const struct layout *l)
{
    const bool is_u4 = l->dtype == DTYPE_U4 && l->scale_type != SCALE_F32 && !l->ordered;
    return is_hopper(d) && (is_u4 || l->dtype == DTYPE_MXFP4);
}

/* Else the comparison below would be one of bf16 with itself. */
static void check_is_packed(struct device *d, const struct pair *p)
{
    const uint64_t bytes = d->ops->linear_bytes(d, p->quantised), plain = d->ops->linear_bytes(d, p->plain);
    if (p->is_packed && bytes * 2 > plain)
        fail_msg("%s%s: %llu bytes, of %llu unpacked ones, are not packed", p->name,
                 p->is_gated ? ", gated" : "", (unsigned long long)bytes, (unsigned long long)plain);
}

/* Gate and up are slices of one tensor. */
static void add_pair(struct rig *r, struct pair p, const struct weight_view *quantised, const float *weights)
{
    struct linear_desc desc = {.kind = p.is_gated ? LINEAR_GATE_UP : LINEAR_PLAIN,
                               .num_parts = p.is_gated ? 2 : 1};
    const struct weight_view plain = weight_view_plain(weights, DTYPE_F32, quantised->rows, quantised->cols);
    for (int source = 0; source < 2; source++) {
        const struct weight_view *whole = source ? &plain : quantised;
        for (int i = 0; i < desc.num_parts; i++)
            desc.parts[i] = p.is_gated ? weight_view_rows(whole, FIRST_ROW + i * GATED_N, GATED_N) : *whole;
        *(source ? &p.plain : &p.quantised) = make_linear(r->device, &desc);
    }
    check_is_packed(r->device, &p);
    p.cols = (int)quantised->cols;
    p.step = r->device->act_bytes == 2 ? 1 : 5; /* a CPU's products have tests of their own */
    r->pairs[r->num_pairs++] = p;
}

static int num_rows(bool is_gated)
{
    return is_gated ? FIRST_ROW + 2 * GATED_N : N;
}

static float weights[CODES_MAX]; /* of the pair that is made */

static void add_layout(struct rig *r, const struct layout *l, bool is_gated)
{
    static struct quantised q;
    fill(&q, l, num_rows(is_gated), CASE_COLS_MAX);
    unpack_rows(&q, weights, r->device->act_bytes == 2);
    add_pair(r, (struct pair){.name = l->name, .is_gated = is_gated, .is_packed = stays_packed(r->device, l)},
             &q.view, weights);
}

/* Scales of either sign, with few bits and with many: 0 times one has its sign, in bf16 too. */
static void fill_q4_0(uint8_t *block)
{
    const bool has_few_bits = draw_below(4) == 0;
    const float scale = has_few_bits ? (float)(draw_below(3) - 1) * 0x1p-7f : draw_between(-0.02f, 0.02f);
    const uint16_t half = dtype_f32_to_f16(scale);
    memcpy(block, &half, sizeof half);
    for (int i = 2; i < 18; i++) block[i] = (uint8_t)draw_below(256);
}

static void add_q4_0(struct rig *r, bool is_gated)
{
    static uint8_t blocks[CODES_MAX];
    const int rows = num_rows(is_gated), count = rows * CASE_COLS_MAX;
    for (int i = 0; i < count / 32; i++) fill_q4_0(blocks + (size_t)i * 18);
    dtype_row_to_f32(DTYPE_Q4_0, blocks, count, weights);
    for (int i = 0; i < count; i++) weights[i] = rounded_to(2, weights[i]);
    const struct weight_view view = weight_view_plain(blocks, DTYPE_Q4_0, rows, CASE_COLS_MAX);
    add_pair(r, (struct pair){.name = "q4_0", .is_gated = is_gated, .is_packed = is_hopper(r->device)}, &view,
             weights);
}

/* Random codes, and scales that are numbers: one or two of f16, of which the second is a minimum's. */
static void fill_block(enum dtype dtype, uint8_t *block)
{
    const int num_scales = dtype == DTYPE_MXFP4 ? 0
                           : dtype == DTYPE_Q4_1 || dtype == DTYPE_Q5_1 || dtype == DTYPE_Q4_K ||
                                   dtype == DTYPE_Q5_K || dtype == DTYPE_Q2_K
                               ? 2
                               : 1;
    const int at = dtype == DTYPE_Q6_K ? 208 : dtype == DTYPE_Q2_K ? 80 : dtype == DTYPE_Q3_K ? 108 : 0;
    for (int i = 0; i < dtype_infos[dtype].block_bytes; i++) block[i] = (uint8_t)draw_below(256);
    for (int i = 0; i < num_scales; i++) {
        const uint16_t half = dtype_f32_to_f16(draw_between(-0.002f, 0.002f));
        memcpy(block + at + 2 * i, &half, sizeof half);
    }
    if (dtype == DTYPE_MXFP4) block[0] = (uint8_t)(118 + draw_below(8));
}

static void fill_blocks(enum dtype dtype, uint8_t *blocks, int count)
{
    const struct dtype_info *info = &dtype_infos[dtype];
    for (int i = 0; i < count / info->block_values; i++)
        fill_block(dtype, blocks + (size_t)i * (size_t)info->block_bytes);
}

/* The kept one, and the bf16 one that it must equal. As many parts as q, k and v, or gate and up, each of another type of GGUF's,
 * which no other form of packed weights takes. */
static void add_blocks(struct rig *r, int first_type, bool is_gated)
{
    static uint8_t blocks[CODES_MAX];
    struct linear_desc kept = {.kind = is_gated ? LINEAR_GATE_UP : LINEAR_PLAIN,
                               .num_parts = is_gated ? 2 : 3};
    struct linear_desc plain = kept;
    const int rows = is_gated ? GATED_N : N / 3, count = rows * BLOCK_COLS;
    uint64_t at = 0;
    for (int i = 0; i < kept.num_parts; i++) {
        const enum dtype dtype = (enum dtype)((int)DTYPE_Q4_0 + (first_type + i) % NUM_GGUF);
        float *to = weights + (size_t)i * (size_t)count;
        fill_blocks(dtype, blocks + at, count);
        dtype_row_to_f32(dtype, blocks + at, count, to);
        for (int j = 0; j < count; j++) to[j] = rounded_to(2, to[j]);
        kept.parts[i] = weight_view_plain(blocks + at, dtype, rows, BLOCK_COLS);
        plain.parts[i] = weight_view_plain(to, DTYPE_F32, rows, BLOCK_COLS);
        at += (uint64_t)rows * dtype_row_bytes(dtype, BLOCK_COLS);
    }
    struct pair p = {.name = dtype_infos[(int)DTYPE_Q4_0 + first_type].text,
                     .is_gated = is_gated,
                     .cols = BLOCK_COLS,
                     .step = 3};
    r->device->keeps_packed = true;
    p.quantised = make_linear(r->device, &kept);
    r->device->keeps_packed = false;
    p.plain = make_linear(r->device, &plain);
    assert_in_range(r->device->ops->linear_bytes(r->device, p.quantised), at, at + 1024);
    r->pairs[r->num_pairs++] = p;
}

static float *run(const struct rig *r, const struct pair *p, const struct linear *linear, int32_t first,
                  int32_t num_tokens)
{
    int32_t blocks[TOKENS_MAX / BLOCK_SIZE + 1] = {0};
    struct device *d = r->device;
    const size_t count = (size_t)num_tokens * (size_t)(p->is_gated ? GATED_N : N);
    float *out = malloc(count * sizeof *out);
    device_write(d, r->device_x, r->x + first * p->cols, (size_t)num_tokens * (size_t)p->cols, false);
    device_poison(d, r->device_y, count, false);
    test_step_clear(r->step);
    test_step_add(r->step, blocks, 0, num_tokens, false);
    struct batch *b = d->ops->step_begin(d, &r->step->step);
    (p->is_gated ? d->ops->linear_gated : d->ops->linear)(d, b, ROWS_TOKENS, r->device_y, r->device_x,
                                                          linear);
    test_step_end(d, NULL);
    device_read(d, out, r->device_y, count, false);
    return out;
}

static void check_pair(const struct rig *r, const struct pair *p)
{
    static const int32_t sizes[] = {1, 2, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 200, 256, TOKENS_MAX};
    const int32_t n = p->is_gated ? GATED_N : N;
    float *all = run(r, p, p->plain, 0, TOKENS_MAX);
    for (size_t i = 0; i < array_length(sizes); i += (size_t)p->step) {
        const int32_t first = random_below(&numbers, TOKENS_MAX - sizes[i] + 1);
        float *some = run(r, p, p->quantised, first, sizes[i]);
        const int64_t different = num_bits_different(some, all + first * n, (size_t)(sizes[i] * n));
        if (different)
            fail_msg("%s%s, %d tokens: %lld results are not those of the unpacked weights", p->name,
                     p->is_gated ? ", gated" : "", sizes[i], (long long)different);
        free(some);
    }
    for (int32_t i = 0; i < TOKENS_MAX * n; i++) assert_true(isfinite(all[i]));
    free(all);
}

/* A CPU sums columns that are in no order group by group (test_quantised.c): they have other bits there. */
static bool has_bits_of_unpacked(const struct device *d, const struct layout *l)
{
    return d->act_bytes == 2 || !l->ordered;
}

static void products(const char *isa)
{
    static struct rig r;
    struct error err = {0};
    numbers.seed = test_seed();
    r = (struct rig){.device = test_device_open(isa, 2)};
    struct device *d = r.device;
    struct step_limits limits = {TOKENS_MAX, 1, TOKENS_MAX, 1, TOKENS_MAX, 1, 1, 0};
    struct attention_args attention = {.num_heads = 1, .num_kv_heads = 1, .head_dim = 64};
    assert_int_equal(d->ops->prepare(d, &limits, 64, CASE_COLS_MAX, 2 * N, &attention, 1, &err), 0);
    for (size_t i = 0; i < array_length(layouts); i++)
        for (int is_gated = 0; is_gated < 2 && has_bits_of_unpacked(d, &layouts[i]); is_gated++)
            add_layout(&r, &layouts[i], is_gated);
    for (int is_gated = 0; is_gated < 2 && d->act_bytes == 2; is_gated++) /* a CPU's: test_linear.c */
        add_q4_0(&r, is_gated);
    for (int i = 0; i < NUM_GGUF && d->act_bytes == 2; i += 3) add_blocks(&r, i, false);
    for (int i = 0; i < NUM_GGUF && d->act_bytes == 2; i += 2) add_blocks(&r, i, true);
    r.x = random_values(&numbers, (size_t)TOKENS_MAX * CASE_COLS_MAX, d->act_bytes, 1);
    r.device_x = device_floats(d, (size_t)TOKENS_MAX * CASE_COLS_MAX, false);
    r.device_y = device_floats(d, (size_t)TOKENS_MAX * N, false);
    r.step = test_step_new(TOKENS_MAX, 1, TOKENS_MAX / BLOCK_SIZE + 1);
    assert_int_equal(d->ops->weights_done(d, &err), 0);
    for (int i = 0; i < r.num_pairs; i++) check_pair(&r, &r.pairs[i]);
    test_step_free(r.step);
    free(r.x);
    d->ops->close(d);
}

static void quantised_weights_have_the_bits_of_unpacked_ones(void **state)
{
    (void)state;
    const char *isa = getenv("FLASHD_TEST_ISA");
    products(isa ? isa : "auto"); /* a CPU's sets: test_quantised.c */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantised_weights_have_the_bits_of_unpacked_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
