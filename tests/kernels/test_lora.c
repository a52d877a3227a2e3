/* test_lora.c - products with adapters of low rank (linear_lora) against double precision: prompts and decoding sequences with other
 * adapters, with one that adds nothing to this matrix, and with none, whose rows have the bits of the product without adapters;
 * rows alone, and rows of logits, have the bits that they have among all. So do rows of adapters that are set one after another behind
 * seal, in places where others were. */
#include "fixture.h"
#include "gates.h"

enum {
    ADAPTERS = 4,
    TOKENS_MAX = 64,
    PARTS = 3,
    NUM_PROMPTS = 3,
    NUM_DECODING = 14,
    BLOCK = 128,
    RANK_MAX = 64
};

enum format { BF16, E4M3_ROWS, INT8_ROWS, INT4 };

struct shape {
    enum linear_kind kind;
    enum gate_function gate;
    int32_t k, num_parts, rows[PARTS];
};

struct rig {
    struct device *d;
    struct random random;
    struct shape shape;
    enum format format;
    int32_t n, width; /* of the sums, of the results */
    struct test_step *step;
    int32_t seq_loras[NUM_PROMPTS + NUM_DECODING], *loras; /* of each sequence, and of those of a step */
    struct linear *w;
    struct lora *lora, *later; /* the same adapters: made with them, and set afterwards */
    void *x, *out;
    float *host_x, *weight, *bias; /* weight [n][K], of BF16 */
    struct lora_part parts[ADAPTERS][LINEAR_PARTS_MAX];
    float *halves[2 * ADAPTERS * PARTS]; /* what the views show */
    int num_halves;
};

/* The second has an odd rank for one part alone, the last is of other matrices. */
static const int32_t ranks[ADAPTERS][PARTS] = {{8, 8, 8}, {0, 5, 0}, {64, 33, 16}, {0, 0, 0}};
static const int32_t prompt_tokens[NUM_PROMPTS] = {21, 9, 5}, prompt_loras[NUM_PROMPTS] = {1, 0, 3},
                     decoding_loras[NUM_DECODING] = {2, 0, 1, 1, 3, 2, 4, 0, 3, 1, 2, 2, 0, 1};

/* ---- weights ---- */

static struct weight_view random_part(struct rig *r, int32_t rows, float *values)
{
    const size_t count = (size_t)rows * (size_t)r->shape.k;
    uint8_t *codes = malloc(2 * count);
    const bool is_int4 = r->format == INT4;
    if (r->format == BF16) {
        for (size_t i = 0; i < count; i++) {
            values[i] = rounded_to(2, random_normal(&r->random) / sqrtf((float)r->shape.k));
            const uint16_t bits = dtype_f32_to_bf16(values[i]);
            memcpy(codes + 2 * i, &bits, sizeof bits);
        }
        return weight_view_plain(codes, DTYPE_BF16, rows, r->shape.k);
    }
    const int32_t scale_cols = is_int4 ? BLOCK : r->shape.k;
    const size_t num_scales = (size_t)rows * (size_t)(r->shape.k / scale_cols);
    float *scales = malloc(num_scales * sizeof *scales);
    for (size_t i = 0; i < count; i++)
        codes[i] = r->format == E4M3_ROWS ? random_e4m3(&r->random) : (uint8_t)random_bits(&r->random);
    for (size_t i = 0; i < num_scales; i++)
        scales[i] = rounded_to(2, (float)(0.002 * (0.1 + random_uniform(&r->random))));
    return scaled_view(codes,
                       is_int4                  ? DTYPE_U4
                       : r->format == INT8_ROWS ? DTYPE_I8
                                                : DTYPE_F8_E4M3,
                       rows, r->shape.k, scales, SCALE_F32, 1, scale_cols);
}

static struct linear *make_linear(struct rig *r)
{
    struct linear_desc desc = {.kind = r->shape.kind,
                               .num_parts = r->shape.num_parts,
                               .gate = r->shape.gate,
                               .quantise_input = r->format == E4M3_ROWS || r->format == INT8_ROWS};
    struct error err = {0};
    struct linear *made;
    int32_t row = 0;
    for (int i = 0; i < desc.num_parts; row += r->shape.rows[i++]) {
        desc.parts[i] = random_part(r, r->shape.rows[i], r->weight + (int64_t)row * r->shape.k);
        if (r->shape.kind != LINEAR_GATE_UP)
            desc.biases[i] = weight_view_plain(r->bias + row, DTYPE_F32, 1, r->shape.rows[i]);
    }
    if (r->d->ops->linear_create(r->d, &desc, &made, &err)) fail_msg("linear_create: %s", err.text);
    for (int i = 0; i < desc.num_parts; i++) {
        free((void *)(uintptr_t)desc.parts[i].data);
        free((void *)(uintptr_t)desc.parts[i].codes.scales.data);
    }
    return made;
}

/* Values that bf16 holds, so that every device has the same. */
static struct weight_view random_half(struct rig *r, int32_t rows, int32_t cols, float deviation)
{
    float *values = random_values(&r->random, (size_t)rows * (size_t)cols, 2, deviation);
    r->halves[r->num_halves++] = values;
    return weight_view_plain(values, DTYPE_F32, rows, cols);
}

static void make_lora(struct rig *r)
{
    static const struct lora_part none[ADAPTERS][LINEAR_PARTS_MAX];
    const struct lora_desc desc = {ADAPTERS, (const struct lora_part(*)[LINEAR_PARTS_MAX])r->parts, 0},
                           empty = {ADAPTERS, none, RANK_MAX};
    struct error err = {0};
    for (int a = 0; a < ADAPTERS; a++)
        for (int i = 0; i < r->shape.num_parts; i++) {
            const int32_t rank = ranks[a][i];
            if (rank == 0) continue;
            r->parts[a][i] = (struct lora_part){
                random_half(r, rank, r->shape.k, 1 / sqrtf((float)r->shape.k)),
                random_half(r, r->shape.rows[i], rank, 1 / sqrtf((float)rank)), 0.5f + 0.25f * (float)a};
        }
    if (r->d->ops->lora_create(r->d, r->w, &desc, &r->lora, &err)) fail_msg("lora_create: %s", err.text);
    if (r->d->ops->lora_create(r->d, r->w, &empty, &r->later, &err)) fail_msg("lora_create: %s", err.text);
}

/* Where another one was. */
static void set_loras(struct rig *r)
{
    struct error err = {0};
    for (int32_t a = 0; a < ADAPTERS; a++)
        if (r->d->ops->lora_set(r->d, r->w, r->later, a, r->parts[(a + 2) % ADAPTERS], &err) ||
            r->d->ops->lora_set(r->d, r->w, r->later, a, r->parts[a], &err))
            fail_msg("lora_set: %s", err.text);
}

/* ---- steps ---- */

static void rig_open(struct rig *r, const char *isa, const struct shape *shape, enum format format)
{
    const struct step_limits limits = {
        TOKENS_MAX, NUM_PROMPTS + NUM_DECODING, TOKENS_MAX, NUM_PROMPTS + NUM_DECODING, 256, 1, 1, 0, false,
        0};
    const struct attention_args attention = {.num_heads = 1, .num_kv_heads = 1, .head_dim = 64};
    struct error err = {0};
    *r = (struct rig){
        .d = test_device_open(isa, 2), .random = {.seed = test_seed()}, .shape = *shape, .format = format};
    struct device *d = r->d;
    for (int i = 0; i < shape->num_parts; i++) r->n += shape->rows[i];
    r->width = shape->kind == LINEAR_GATE_UP ? r->n / 2 : r->n;
    assert_int_equal(d->ops->prepare(d, &limits, 64, shape->k, r->n, &attention, 1, &err), 0);
    r->weight = calloc((size_t)r->n * (size_t)shape->k, sizeof *r->weight);
    r->bias = random_values(&r->random, (size_t)r->n, 4, 1);
    r->host_x = random_values(&r->random, (size_t)(TOKENS_MAX * shape->k), d->act_bytes, 1);
    r->x = device_floats(d, (size_t)(TOKENS_MAX * shape->k), false);
    r->out = device_floats(d, (size_t)(TOKENS_MAX * r->n), false);
    r->step = test_step_new(TOKENS_MAX, NUM_PROMPTS + NUM_DECODING, 16);
    r->loras = calloc(NUM_PROMPTS + NUM_DECODING, sizeof *r->loras);
    r->w = make_linear(r);
    make_lora(r);
    assert_int_equal(d->ops->weights_done(d, &err), 0);
}

static void rig_close(struct rig *r)
{
    r->d->ops->close(r->d);
    test_step_free(r->step);
    free(r->loras);
    free(r->weight);
    free(r->bias);
    free(r->host_x);
    for (int i = 0; i < r->num_halves; i++) free(r->halves[i]);
}

/* A step of all sequences, or of one row with an adapter; which rows are rows of logits is said by num_logits. */
static struct batch *begin(struct rig *r, const float *x, int32_t num_tokens, int32_t only,
                           int32_t num_logits)
{
    static const int32_t blocks[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    test_step_clear(r->step);
    if (only >= 0) {
        test_step_add(r->step, blocks, 0, 1, false);
        r->loras[0] = only;
    }
    for (int i = 0; i < NUM_PROMPTS && only < 0; i++) {
        test_step_add(r->step, blocks, 0, prompt_tokens[i], false);
        r->loras[i] = prompt_loras[i];
    }
    for (int i = 0; i < NUM_DECODING && only < 0; i++) {
        test_step_add(r->step, blocks, 7, 1, true);
        r->loras[NUM_PROMPTS + i] = decoding_loras[i];
    }
    assert_int_equal(r->step->step.num_tokens, num_tokens);
    r->step->step.loras = r->loras;
    r->step->step.num_logits = num_logits;
    for (int32_t i = 0; i < num_logits; i++) {
        r->step->logit_rows[i] = 2 * i + 1;
        r->step->sample[i] =
            (struct sample_params){.score_token_id = 0, .position = 1, .sampling = {.num_logprobs = -1}};
    }
    device_write(r->d, r->x, x, (size_t)(num_tokens * r->shape.k), false);
    device_poison(r->d, r->out, (size_t)(num_tokens * r->n), false);
    return r->d->ops->step_begin(r->d, &r->step->step);
}

static int32_t lora_of_token(int32_t token)
{
    for (int i = 0; i < NUM_PROMPTS; token -= prompt_tokens[i++])
        if (token < prompt_tokens[i]) return prompt_loras[i];
    return decoding_loras[token];
}

static void end(struct rig *r, float *out, int32_t num_rows)
{
    struct sample_result results[TOKENS_MAX];
    test_step_end(r->d, results);
    device_read(r->d, out, r->out, (size_t)(num_rows * r->width), false);
}

/* ---- what is expected ---- */

/* What adapter a adds to column n of a row; *magnitude: of the terms, as the numbers between are rounded. */
static double added(const struct rig *r, int32_t a, const float *x, int32_t n, double *magnitude)
{
    int part = 0;
    for (; n >= r->shape.rows[part]; part++) n -= r->shape.rows[part];
    const struct lora_part *p = &r->parts[a - 1][part];
    const float *down = p->down.data, *up = p->up.data;
    double sum = 0;
    *magnitude = 0;
    for (int64_t i = 0; i < p->down.rows && p->down.data; i++) {
        double narrow = 0;
        for (int32_t k = 0; k < r->shape.k; k++) narrow += (double)down[i * r->shape.k + k] * (double)x[k];
        sum += (double)p->scale * (double)up[n * p->up.cols + i] * narrow;
        *magnitude += fabs((double)p->scale * (double)up[n * p->up.cols + i] * narrow);
    }
    return sum;
}

/* The sum of column n before a gate; bound: how far off it may be. */
static double sum_of(const struct rig *r, int32_t a, const float *x, int32_t n, double *bound)
{
    const double eps = r->d->act_bytes == 2 ? 0x1p-7 : 1e-5;
    double magnitude = 0, sum = a > 0 ? added(r, a, x, n, &magnitude) : 0;
    for (int32_t k = 0; k < r->shape.k; k++)
        sum += (double)r->weight[(int64_t)n * r->shape.k + k] * (double)x[k];
    if (r->shape.kind != LINEAR_GATE_UP) sum += (double)r->bias[n];
    *bound = eps * (magnitude + fabs(sum) + 1);
    return sum;
}

/* Of column n of the results. */
static double result_of(const struct rig *r, int32_t a, const float *x, int32_t n, double *bound)
{
    double of_gate, of_up = 0, gate = sum_of(r, a, x, n, &of_gate), up = 1;
    if (r->shape.kind == LINEAR_PLAIN) {
        *bound = of_gate;
        return gate;
    }
    if (r->shape.kind == LINEAR_GATE_UP) up = sum_of(r, a, x, r->width + n, &of_up);
    const double value = gate_of(r->shape.gate, gate);
    *bound = gate_slope(r->shape.gate, gate, of_gate) * of_gate * (fabs(up) + of_up) + fabs(value) * of_up +
             0x1p-8 * fabs(value * up) + 1e-4;
    return value * up;
}

static void check_values(const struct rig *r, const float *out, const float *plain, int32_t num_tokens)
{
    for (int32_t t = 0; t < num_tokens; t++)
        for (int32_t n = 0; n < r->width; n++) {
            const float *x = r->host_x + (int64_t)t * r->shape.k;
            const int32_t a = lora_of_token(t);
            const double got = (double)out[t * r->width + n], before = (double)plain[t * r->width + n];
            double bound = 0, expected;
            if (r->format == BF16) {
                expected = result_of(r, a, x, n, &bound);
            } else { /* what is added to what the product gives */
                double magnitude = 0;
                expected = before + (a > 0 ? added(r, a, x, n, &magnitude) : 0);
                bound = (r->d->act_bytes == 2 ? 0x1p-7 : 1e-5) * (fabs(expected) + magnitude + 1);
            }
            if (!(fabs(got - expected) <= bound))
                fail_msg("format %d, kind %d, token %d, adapter %d, column %d: %g where %g is expected, %g "
                         "off at most",
                         (int)r->format, (int)r->shape.kind, t, a, n, got, expected, bound);
        }
}

static void check_shape(const char *isa, const struct shape *shape, enum format format)
{
    struct rig r;
    int32_t num_tokens = NUM_DECODING;
    for (int i = 0; i < NUM_PROMPTS; i++) num_tokens += prompt_tokens[i];
    rig_open(&r, isa, shape, format);
    const struct kernel_table *k = r.d->ops;
    const size_t row = (size_t)r.width;
    float *plain = malloc(TOKENS_MAX * row * sizeof *plain), *out = malloc(TOKENS_MAX * row * sizeof *out),
          *own = malloc(TOKENS_MAX * row * sizeof *own);

    struct batch *b = begin(&r, r.host_x, num_tokens, -1, 0);
    (shape->kind == LINEAR_PLAIN ? k->linear : k->linear_gated)(r.d, b, ROWS_TOKENS, r.out, r.x, r.w);
    end(&r, plain, num_tokens);
    b = begin(&r, r.host_x, num_tokens, -1, 0);
    k->linear_lora(r.d, b, ROWS_TOKENS, r.out, r.x, r.w, r.lora);
    end(&r, out, num_tokens);
    check_values(&r, out, plain, num_tokens);
    for (int32_t t = 0; t < num_tokens; t++) {
        const int32_t a = lora_of_token(t);
        const bool is_plain = a == 0 || a == ADAPTERS;
        if (is_plain && num_bits_different(out + (size_t)t * row, plain + (size_t)t * row, row))
            fail_msg("kind %d, token %d without an adapter: other bits than without adapters",
                     (int)shape->kind, t);
        b = begin(&r, r.host_x + (size_t)t * (size_t)shape->k, 1, a, 0);
        k->linear_lora(r.d, b, ROWS_TOKENS, r.out, r.x, r.w, r.lora);
        end(&r, own, 1);
        if (num_bits_different(out + (size_t)t * row, own, row))
            fail_msg("kind %d, token %d, adapter %d: other bits alone", (int)shape->kind, t, a);
    }
    r.d->ops->seal(r.d);
    for (int is_set = 0; is_set < 2; is_set++) { /* at first they add nothing */
        if (is_set) set_loras(&r);
        b = begin(&r, r.host_x, num_tokens, -1, 0);
        k->linear_lora(r.d, b, ROWS_TOKENS, r.out, r.x, r.w, r.later);
        end(&r, own, num_tokens);
        if (num_bits_different(is_set ? out : plain, own, (size_t)num_tokens * row))
            fail_msg("kind %d, adapters %s: other bits", (int)shape->kind,
                     is_set ? "that were set later" : "that are still to come");
    }
    enum { LOGITS = 12 }; /* every other token */
    float *picked = malloc((size_t)(LOGITS * shape->k) * sizeof *picked);
    for (int32_t i = 0; i < LOGITS; i++)
        memcpy(picked + i * shape->k, r.host_x + (2 * i + 1) * shape->k, (size_t)shape->k * sizeof *picked);
    b = begin(&r, r.host_x, num_tokens, -1, LOGITS);
    device_write(r.d, r.x, picked, (size_t)(LOGITS * shape->k), false);
    k->linear_lora(r.d, b, ROWS_LOGITS, r.out, r.x, r.w, r.lora);
    end(&r, own, LOGITS);
    for (int32_t i = 0; i < LOGITS; i++)
        if (num_bits_different(out + (size_t)(2 * i + 1) * row, own + (size_t)i * row, row))
            fail_msg("kind %d, row of logits %d: other bits", (int)shape->kind, i);
    free(picked);
    free(plain);
    free(out);
    free(own);
    rig_close(&r);
}

static const struct shape shapes[] = {
    {LINEAR_PLAIN, GATE_SILU, 256, 3, {192, 64, 32}},
    {LINEAR_PLAIN, GATE_SILU, 72, 1, {40}},
    {LINEAR_PLAIN, GATE_SILU, 1152, 1, {576}},
    {LINEAR_GATE_UP, GATE_SILU, 256, 2, {384, 384}},
    {LINEAR_GATE_UP, GATE_GELU_TANH, 128, 2, {200, 200}},
    {LINEAR_UP, GATE_RELU_SQUARED, 128, 1, {160}},
};

static void with_isa(const char *isa)
{
    for (size_t i = 0; i < array_length(shapes); i++)
        if (takes_part(i)) check_shape(isa, &shapes[i], BF16);
    for (int format = E4M3_ROWS; format <= INT4; format++)
        if (takes_part((size_t)format)) check_shape(isa, &shapes[0], (enum format)format);
}

static void adapters_add_to_their_rows_alone(void **state)
{
    (void)state;
    for_each_isa(with_isa);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(adapters_add_to_their_rows_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
