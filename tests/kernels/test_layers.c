/* test_layers.c - the products and norms of a layer through the kernel table of whatever device, one after another with nothing between
 * them, as a forward pass queues them: a device may compute several at a time, and every result must have the bits that it has
 * when each is read before the next one is queued. Weights of bf16, and of e4m3 with scales of rows and of blocks. */
#include "fixture.h"

enum { TOKENS_MAX = 80, BLOCK = 128, ROUNDS = 6, NUM_BUFFERS = 5 };

/* Shapes of a layer: H, columns of attention's result, MLP, rows of q, k and v. */
struct shape {
    int32_t hidden, attended, intermediate, qkv;
};

enum format { BF16, E4M3_ROWS, E4M3_BLOCKS, INT8_ROWS };

enum operation { O, MLP_NORM, GATE_UP, DOWN, NEXT_NORM, QKV, NUM_OPERATIONS };

struct rig {
    struct device *device;
    struct random random;
    struct shape shape;
    struct test_step *step;
    struct linear *o, *gate_up, *down, *qkv;
    struct norm_args norms[2];
    void *attended, *residual, *delta, *normed, *mlp, *projected;
    void *host[16]; /* what weights are made of: a CPU uses it in place */
    int num_host;
    float *attended_values, *residual_values, *delta_values, *normed_values, *mlp_values;
};

static const struct shape shapes[] = {{256, 384, 640, 336}, {1152, 1024, 4352, 1600}, {4224, 256, 512, 272}};

/* ---- weights ---- */

static void *host_memory(struct rig *r, size_t bytes)
{
    assert_true(r->num_host < (int)array_length(r->host));
    return r->host[r->num_host++] = malloc(bytes);
}

static struct weight_view random_part(struct rig *r, enum format format, int32_t n, int32_t k)
{
    const size_t count = (size_t)n * (size_t)k;
    if (format == BF16) {
        uint16_t *values = host_memory(r, count * sizeof *values);
        for (size_t i = 0; i < count; i++) values[i] = dtype_f32_to_bf16(0.05f * random_normal(&r->random));
        return weight_view_plain(values, DTYPE_BF16, n, k);
    }
    const bool in_blocks = format == E4M3_BLOCKS;
    const int32_t scale_rows = in_blocks ? BLOCK : 1, scale_cols = in_blocks ? BLOCK : k;
    const int64_t rows = div_up(n, scale_rows), cols = div_up(k, scale_cols);
    uint8_t *codes = host_memory(r, count);
    float *scales = host_memory(r, (size_t)(rows * cols) * sizeof *scales);
    for (size_t i = 0; i < count; i++) {
        codes[i] = (uint8_t)random_bits(&r->random);
        if ((codes[i] & 127) > 0x60) codes[i] ^= 0x40; /* 32 at most */
    }
    for (int64_t i = 0; i < rows * cols; i++) scales[i] = (float)(0.004 * (0.1 + random_uniform(&r->random)));
    return scaled_view(codes, format == INT8_ROWS ? DTYPE_I8 : DTYPE_F8_E4M3, n, k, scales, SCALE_F32,
                       scale_rows, scale_cols);
}

/* is_gated: two parts of half of n rows each. */
static struct linear *make_linear(struct rig *r, enum format format, int32_t n, int32_t k, bool is_gated,
                                  bool has_bias)
{
    struct linear_desc desc = {.kind = is_gated ? LINEAR_GATE_UP : LINEAR_PLAIN,
                               .num_parts = is_gated ? 2 : 1,
                               .quantise_input = format != BF16};
    struct error err = {0};
    struct linear *linear;
    float *bias = random_values(&r->random, (size_t)n, 4, 1);
    for (int i = 0; i < desc.num_parts; i++) desc.parts[i] = random_part(r, format, n / desc.num_parts, k);
    if (has_bias) desc.biases[0] = weight_view_plain(bias, DTYPE_F32, 1, n);
    if (r->device->ops->linear_create(r->device, &desc, &linear, &err))
        fail_msg("linear_create: %s", err.text);
    free(bias);
    return linear;
}

/* ---- a layer ---- */

static void write_inputs(const struct rig *r, int32_t num_tokens)
{
    const struct shape *s = &r->shape;
    const size_t n = (size_t)num_tokens;
    device_write(r->device, r->attended, r->attended_values, n * (size_t)s->attended, false);
    device_write(r->device, r->residual, r->residual_values, n * (size_t)s->hidden, true);
    device_write(r->device, r->delta, r->delta_values, n * (size_t)s->hidden, false);
    device_write(r->device, r->normed, r->normed_values, n * (size_t)s->hidden, false);
    device_write(r->device, r->mlp, r->mlp_values, n * (size_t)s->intermediate, false);
    device_poison(r->device, r->projected, n * (size_t)s->qkv, false);
}

static void queue(const struct rig *r, struct batch *b, enum operation operation)
{
    struct device *d = r->device;
    const struct kernel_table *k = d->ops;
    switch (operation) {
    case O:
        k->linear(d, b, ROWS_TOKENS, r->delta, r->attended, r->o);
        break;
    case MLP_NORM:
    case NEXT_NORM:
        k->rms_norm(d, b, ROWS_TOKENS, r->normed, r->residual, r->delta, &r->norms[operation == NEXT_NORM]);
        break;
    case GATE_UP:
        k->linear_gated(d, b, ROWS_TOKENS, r->mlp, r->normed, r->gate_up);
        break;
    case DOWN:
        k->linear(d, b, ROWS_TOKENS, r->delta, r->mlp, r->down);
        break;
    default:
        k->linear(d, b, ROWS_TOKENS, r->projected, r->normed, r->qkv);
        break;
    }
}

/* All buffers after operations [first, first + count) of layers without end. apart: each is read before the next is queued. */
static float *run(const struct rig *r, int32_t num_tokens, int first, int count, bool apart)
{
    const struct shape *s = &r->shape;
    int32_t blocks[TOKENS_MAX / BLOCK_SIZE + 1] = {0};
    float first_value;
    write_inputs(r, num_tokens);
    test_step_clear(r->step);
    test_step_add(r->step, blocks, 0, num_tokens, false);
    struct batch *b = r->device->ops->step_begin(r->device, &r->step->step);
    for (int i = 0; i < count; i++) {
        queue(r, b, (enum operation)((first + i) % NUM_OPERATIONS));
        if (apart) device_read(r->device, &first_value, r->delta, 1, false);
    }
    test_step_end(r->device, NULL);
    const void *const buffers[NUM_BUFFERS] = {r->residual, r->delta, r->normed, r->mlp, r->projected};
    const int32_t widths[NUM_BUFFERS] = {s->hidden, s->hidden, s->hidden, s->intermediate, s->qkv};
    float *values =
              calloc((size_t)num_tokens * (size_t)(3 * s->hidden + s->intermediate + s->qkv), sizeof *values),
          *to = values;
    for (int i = 0; i < NUM_BUFFERS; i++) {
        const size_t size = (size_t)num_tokens * (size_t)widths[i];
        device_read(r->device, to, buffers[i], size, i == 0);
        to += size;
    }
    return values;
}

static void check(const struct rig *r, enum format format, int32_t num_tokens, int first, int count)
{
    const struct shape *s = &r->shape;
    float *apart = run(r, num_tokens, first, count, true),
          *together = run(r, num_tokens, first, count, false);
    int64_t different = num_bits_different(
        apart, together, (size_t)num_tokens * (size_t)(3 * s->hidden + s->intermediate + s->qkv));
    if (different)
        fail_msg(
            "format %d, hidden %d, %d tokens, %d operations from %d on: %lld values have other bits when "
            "none is read between them",
            (int)format, s->hidden, num_tokens, count, first, (long long)different);
    free(apart);
    free(together);
}

static void open_rig(struct rig *r, const char *isa, enum format format)
{
    static const struct step_limits limits = {TOKENS_MAX, 1, TOKENS_MAX, 1, TOKENS_MAX, 1, 1, 0, false, 0};
    static const struct attention_args attention = {.num_heads = 1, .num_kv_heads = 1, .head_dim = 64};
    const struct shape *s = &r->shape;
    const size_t tokens = TOKENS_MAX;
    struct error err = {0};
    r->device = test_device_open(isa, 2);
    struct device *d = r->device;
    assert_int_equal(d->ops->prepare(d, &limits, 64, s->hidden, s->intermediate, &attention, 1, &err), 0);
    r->attended_values = random_values(&r->random, tokens * (size_t)s->attended, d->act_bytes, 1);
    r->residual_values = random_values(&r->random, tokens * (size_t)s->hidden, d->res_bytes, 1);
    r->delta_values = random_values(&r->random, tokens * (size_t)s->hidden, d->act_bytes, 1);
    r->normed_values = random_values(&r->random, tokens * (size_t)s->hidden, d->act_bytes, 1);
    r->mlp_values = random_values(&r->random, tokens * (size_t)s->intermediate, d->act_bytes, 1);
    r->attended = device_floats(d, tokens * (size_t)s->attended, false);
    r->residual = device_floats(d, tokens * (size_t)s->hidden, true);
    r->delta = device_floats(d, tokens * (size_t)s->hidden, false);
    r->normed = device_floats(d, tokens * (size_t)s->hidden, false);
    r->mlp = device_floats(d, tokens * (size_t)s->intermediate, false);
    r->projected = device_floats(d, tokens * (size_t)s->qkv, false);
    for (int i = 0; i < 2; i++) {
        float *weight = random_values(&r->random, (size_t)s->hidden, 4, 1);
        r->norms[i] = (struct norm_args){.weight = device_upload(d, weight, (size_t)s->hidden),
                                         .delta_scale = i ? 1 : 0.5f,
                                         .eps = 1e-5f,
                                         .hidden_size = s->hidden};
        free(weight);
    }
    r->o = make_linear(r, format, s->hidden, s->attended, false, true);
    r->gate_up = make_linear(r, format, 2 * s->intermediate, s->hidden, true, false);
    r->down = make_linear(r, format, s->hidden, s->intermediate, false, false);
    r->qkv = make_linear(r, format, s->qkv, s->hidden, false, true);
    assert_int_equal(d->ops->weights_done(d, &err), 0);
    r->step = test_step_new(TOKENS_MAX, 1, TOKENS_MAX / BLOCK_SIZE + 1);
}

static void close_rig(struct rig *r)
{
    r->device->ops->close(r->device);
    for (int i = 0; i < r->num_host; i++) free(r->host[i]);
    test_step_free(r->step);
    free(r->attended_values);
    free(r->residual_values);
    free(r->delta_values);
    free(r->normed_values);
    free(r->mlp_values);
}

static void check_format(enum format format)
{
    static const int32_t sizes[] = {1, 2, 7, 8, 9, 16, 17, 32, 33, 63, 64, 65, TOKENS_MAX};
    const char *isa = getenv("FLASHD_TEST_ISA");
    const int num_rounds = getenv("FLASHD_TEST_DEVICE") ? ROUNDS : 1;
    for (size_t i = 0; i < array_length(shapes); i++) {
        if (!takes_part(i)) continue;
        struct rig r = {.random = {.seed = test_seed()}, .shape = shapes[i]};
        open_rig(&r, isa ? isa : "auto", format);
        for (size_t j = 0; j < array_length(sizes); j++) {
            check(&r, format, sizes[j], O, 2 * NUM_OPERATIONS); /* two layers */
            for (int k = 0; k < num_rounds; k++)
                check(&r, format, sizes[j], random_below(&r.random, NUM_OPERATIONS),
                      1 + random_below(&r.random, 3 * NUM_OPERATIONS));
        }
        close_rig(&r);
    }
}

static void layers_of_bf16(void **state)
{
    (void)state;
    check_format(BF16);
}

static void layers_of_e4m3_with_scales_of_rows(void **state)
{
    (void)state;
    check_format(E4M3_ROWS);
}

static void layers_of_e4m3_with_scales_of_blocks(void **state)
{
    (void)state;
    check_format(E4M3_BLOCKS);
}

static void layers_of_integers(void **state)
{
    (void)state;
    check_format(INT8_ROWS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_of_bf16), cmocka_unit_test(layers_of_e4m3_with_scales_of_rows),
        cmocka_unit_test(layers_of_e4m3_with_scales_of_blocks), cmocka_unit_test(layers_of_integers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
