/* test_quantised_table.c - quantised weights through the kernel table of whatever device: the bits of the same weights
 * unpacked and rounded to what the device has, for many numbers of tokens. */
#include "fixture.h"

enum { CASE_ROWS_MAX = 344, CASE_COLS_MAX = 1152, TOKENS_MAX = 300 };

#include "tests/kernels/gguf_blocks.h"
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
    int cols, n;              /* n: of the result */
    int step;                 /* of the numbers of tokens */
};

enum {
    PAIRS_MAX = 2 * (sizeof layouts / sizeof *layouts + 1 + NUM_GGUF),
    N = 336,
    GATED_N = 160,
    FIRST_ROW = 8,
    BLOCK_COLS = 1024,   /* whole blocks of each type */
    FEW_TOKENS_MAX = 65, /* one more than kernels for few take */
    LONG_COLS = 5120,
    WIDE_ROWS = 1040,
    WIDE_COLS = 256
};

struct rig {
    struct device *device;
    struct test_step *step;
    struct pair pairs[PAIRS_MAX];
    int num_pairs;
    int num_tokens; /* of x */
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
    p.n = p.is_gated ? GATED_N : N;
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

/* Parts that a GPU keeps as blocks. */
struct kept {
    const char *name;
    enum linear_kind kind;
    enum gate_function gate;
    int num_parts;
    enum dtype types[3];
    int rows[3], cols;
    bool has_bias;
};

/* The kept one, and the bf16 one that it must equal. */
static void add_kept(struct rig *r, const struct kept *k, int step)
{
    static uint8_t blocks[CODES_MAX];
    static float bias[N];
    struct linear_desc kept = {.kind = k->kind, .gate = k->gate, .num_parts = k->num_parts};
    struct linear_desc plain = kept;
    struct pair p = {.name = k->name, .is_gated = k->kind != LINEAR_PLAIN, .cols = k->cols, .step = step};
    uint64_t at = 0;
    float *to = weights;
    for (int i = 0; i < k->num_parts; i++) {
        const enum dtype dtype = k->types[i];
        const int count = k->rows[i] * k->cols;
        fill_blocks(&numbers, dtype, blocks + at, count);
        dtype_row_to_f32(dtype, blocks + at, count, to);
        for (int j = 0; j < count; j++) to[j] = rounded_to(2, to[j]);
        kept.parts[i] = weight_view_plain(blocks + at, dtype, k->rows[i], k->cols);
        plain.parts[i] = weight_view_plain(to, DTYPE_F32, k->rows[i], k->cols);
        for (int j = 0; j < k->rows[i]; j++) bias[j] = draw_between(-1, 1);
        if (k->has_bias) kept.biases[i] = plain.biases[i] = weight_view_plain(bias, DTYPE_F32, 1, k->rows[i]);
        p.n += k->rows[i];
        to += count;
        at += (uint64_t)k->rows[i] * dtype_row_bytes(dtype, (uint64_t)k->cols);
    }
    if (k->kind == LINEAR_GATE_UP) p.n /= 2;
    r->device->keeps_packed = true;
    p.quantised = make_linear(r->device, &kept);
    r->device->keeps_packed = false;
    p.plain = make_linear(r->device, &plain);
    const uint64_t bias_bytes = k->has_bias ? (uint64_t)p.n * 4 : 0;
    assert_in_range(r->device->ops->linear_bytes(r->device, p.quantised), at, at + bias_bytes + 1024);
    r->pairs[r->num_pairs++] = p;
}

/* As many parts as q, k and v, or gate and up, each of another type of GGUF's, which no other form of packed weights takes. */
static void add_blocks(struct rig *r, int first_type, bool is_gated)
{
    struct kept k = {.name = dtype_infos[gguf_type(first_type)].text,
                     .kind = is_gated ? LINEAR_GATE_UP : LINEAR_PLAIN,
                     .num_parts = is_gated ? 2 : 3,
                     .cols = BLOCK_COLS};
    for (int i = 0; i < k.num_parts; i++) {
        k.types[i] = gguf_type(first_type + i);
        k.rows[i] = is_gated ? GATED_N : N / 3;
    }
    add_kept(r, &k, 3);
}

static float *run(const struct rig *r, const struct pair *p, const struct linear *linear, int32_t first,
                  int32_t num_tokens)
{
    int32_t blocks[TOKENS_MAX / BLOCK_SIZE + 1] = {0};
    struct device *d = r->device;
    const size_t count = (size_t)num_tokens * (size_t)p->n;
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
    static const int32_t sizes[] = {1, 2, 7, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 200, 256, TOKENS_MAX};
    float *all = run(r, p, p->plain, 0, r->num_tokens);
    for (size_t i = 0; i < array_length(sizes) && sizes[i] <= r->num_tokens; i += (size_t)p->step) {
        const int32_t first = random_below(&numbers, r->num_tokens - sizes[i] + 1);
        float *some = run(r, p, p->quantised, first, sizes[i]);
        const int64_t different = num_bits_different(some, all + first * p->n, (size_t)(sizes[i] * p->n));
        if (different)
            fail_msg("%s%s, %d x %d, %d tokens: %lld results are not those of the unpacked weights", p->name,
                     p->is_gated ? ", gated" : "", p->n, p->cols, sizes[i], (long long)different);
        free(some);
    }
    for (int32_t i = 0; i < r->num_tokens * p->n; i++) assert_true(isfinite(all[i]));
    free(all);
}

/* A CPU sums columns that are in no order group by group (test_quantised.c): they have other bits there. */
static bool has_bits_of_unpacked(const struct device *d, const struct layout *l)
{
    return d->act_bytes == 2 || !l->ordered;
}

static void open_rig(struct rig *r, const char *isa, int num_tokens, int cols)
{
    struct error err = {0};
    struct step_limits limits = {num_tokens, 1, num_tokens, 1, num_tokens, 1, 1, 0, false, 0};
    struct attention_args attention = {.num_heads = 1, .num_kv_heads = 1, .head_dim = 64};
    numbers.seed = test_seed();
    *r = (struct rig){.device = test_device_open(isa, 2), .num_tokens = num_tokens};
    assert_int_equal(r->device->ops->prepare(r->device, &limits, 64, cols, 2 * N, &attention, 1, &err), 0);
    r->x = random_values(&numbers, (size_t)num_tokens * (size_t)cols, r->device->act_bytes, 1);
    r->device_x = device_floats(r->device, (size_t)num_tokens * (size_t)cols, false);
    r->device_y = device_floats(r->device, (size_t)num_tokens * N, false);
    r->step = test_step_new(num_tokens, 1, num_tokens / BLOCK_SIZE + 1);
}

static void check_rig(struct rig *r)
{
    struct error err = {0};
    assert_int_equal(r->device->ops->weights_done(r->device, &err), 0);
    for (int i = 0; i < r->num_pairs; i++) check_pair(r, &r->pairs[i]);
    test_step_free(r->step);
    free(r->x);
    r->device->ops->close(r->device);
}

/* As many rows as a library's products want, whose kernels are looked for while weights come: made, not multiplied. */
static void make_wide_q4_0(struct rig *r)
{
    static uint8_t blocks[WIDE_ROWS * WIDE_COLS / 32 * 18];
    for (int i = 0; i < WIDE_ROWS * WIDE_COLS / 32; i++) fill_q4_0(blocks + (size_t)i * 18);
    const struct linear_desc desc = {.num_parts = 1,
                                     .parts = {weight_view_plain(blocks, DTYPE_Q4_0, WIDE_ROWS, WIDE_COLS)}};
    make_linear(r->device, &desc);
}

static void products(const char *isa)
{
    static struct rig r;
    open_rig(&r, isa, TOKENS_MAX, CASE_COLS_MAX);
    struct device *d = r.device;
    for (size_t i = 0; i < array_length(layouts); i++)
        for (int is_gated = 0; is_gated < 2 && has_bits_of_unpacked(d, &layouts[i]); is_gated++)
            add_layout(&r, &layouts[i], is_gated);
    for (int is_gated = 0; is_gated < 2 && d->act_bytes == 2; is_gated++) /* a CPU's: test_linear.c */
        add_q4_0(&r, is_gated);
    make_wide_q4_0(&r);
    for (int i = 0; i < NUM_GGUF && d->act_bytes == 2; i += 3) add_blocks(&r, i, false);
    for (int i = 0; i < NUM_GGUF && d->act_bytes == 2; i += 2) add_blocks(&r, i, true);
    check_rig(&r);
}

/* What stays packed, on a device that keeps it as bf16, too. */
static void products_with_copies(const char *isa)
{
    static struct rig r;
    open_rig(&r, isa, TOKENS_MAX, CASE_COLS_MAX);
    r.device->keeps_copies = true;
    for (int is_gated = 0; is_gated < 2 && is_hopper(r.device); is_gated++) {
        for (size_t i = 0; i < array_length(layouts); i++)
            if (stays_packed(r.device, &layouts[i])) add_layout(&r, &layouts[i], is_gated);
        add_q4_0(&r, is_gated);
    }
    make_wide_q4_0(&r);
    check_rig(&r);
}

/* Q4_0 and MXFP4 alone would be packed. */
static bool is_kept_alone(enum dtype dtype)
{
    return dtype != DTYPE_Q4_0 && dtype != DTYPE_MXFP4;
}

/* Rows of W that no tile divides, columns that no chunk divides, so that rows begin anywhere. */
static void add_each_type(struct rig *r)
{
    for (int i = 0; i < NUM_GGUF; i++) {
        const enum dtype dtype = gguf_type(i);
        const bool is_small = dtype_infos[dtype].block_values == 32, is_alone = is_kept_alone(dtype);
        const int rows = 17 + draw_below(40);
        const struct kept plain = {.name = dtype_infos[dtype].text,
                                   .kind = LINEAR_PLAIN,
                                   .num_parts = is_alone ? 1 : 2,
                                   .types = {dtype, DTYPE_Q8_0},
                                   .rows = {rows, 3},
                                   .cols = is_small ? 32 * (9 + draw_below(30)) : 512};
        const struct kept gated = {.name = dtype_infos[dtype].text,
                                   .kind = LINEAR_GATE_UP,
                                   .gate = i % 2 ? GATE_GELU_TANH : GATE_SILU,
                                   .num_parts = 2,
                                   .types = {dtype, is_small ? DTYPE_Q5_1 : DTYPE_Q5_K},
                                   .rows = {40, 40},
                                   .cols = is_small ? 32 * (9 + draw_below(30)) : 768};
        add_kept(r, &plain, 1);
        add_kept(r, &gated, 2);
    }
}

/* Types that files mix, and rows of more chunks than a ring has stages. */
static void add_mixtures(struct rig *r)
{
    static const struct kept mixtures[] = {
        {"q, k, v",
         LINEAR_PLAIN,
         GATE_SILU,
         3,
         {DTYPE_Q4_K, DTYPE_Q4_K, DTYPE_Q6_K},
         {80, 24, 24},
         1024,
         true},
        {"odd parts",
         LINEAR_PLAIN,
         GATE_SILU,
         3,
         {DTYPE_Q6_K, DTYPE_Q8_0, DTYPE_Q5_K},
         {9, 7, 33},
         512,
         true},
        {"up alone", LINEAR_UP, GATE_GELU, 1, {DTYPE_Q5_K}, {72}, 512, true},
        {"long", LINEAR_PLAIN, GATE_SILU, 1, {DTYPE_Q4_K}, {40}, LONG_COLS, false},
        {"long", LINEAR_PLAIN, GATE_SILU, 1, {DTYPE_Q6_K}, {21}, LONG_COLS, false},
        {"long", LINEAR_PLAIN, GATE_SILU, 1, {DTYPE_Q8_0}, {24}, LONG_COLS - 96, false},
        {"long", LINEAR_GATE_UP, GATE_SILU, 2, {DTYPE_Q4_K, DTYPE_Q6_K}, {24, 24}, LONG_COLS - 256, false},
    };
    for (size_t i = 0; i < array_length(mixtures); i++) add_kept(r, &mixtures[i], 1);
}

static void products_of_blocks(const char *isa)
{
    static struct rig r;
    open_rig(&r, isa, FEW_TOKENS_MAX, LONG_COLS);
    if (r.device->act_bytes == 2) { /* a CPU's: test_linear.c */
        add_each_type(&r);
        add_mixtures(&r);
    }
    check_rig(&r);
}

static void quantised_weights_have_the_bits_of_unpacked_ones(void **state)
{
    (void)state;
    const char *isa = getenv("FLASHD_TEST_ISA");
    products(isa ? isa : "auto"); /* a CPU's sets: test_quantised.c */
}

static void copies_have_the_bits_of_packed_weights(void **state)
{
    (void)state;
    const char *isa = getenv("FLASHD_TEST_ISA");
    products_with_copies(isa ? isa : "auto");
}

static void few_rows_times_blocks_have_the_bits_of_unpacked_ones(void **state)
{
    (void)state;
    const char *isa = getenv("FLASHD_TEST_ISA");
    products_of_blocks(isa ? isa : "auto");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantised_weights_have_the_bits_of_unpacked_ones),
        cmocka_unit_test(copies_have_the_bits_of_packed_weights),
        cmocka_unit_test(few_rows_times_blocks_have_the_bits_of_unpacked_ones),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
