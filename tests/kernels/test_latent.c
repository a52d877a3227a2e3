/* test_latent.c - what latent attention has before and behind attention, and attention over latents, of a prompt and of a token behind it,
 * against double precision; and the bits of a token against itself among fewer others. A token far back, and one among many. Then all of it in a row, on a device that may compute
 * prompts over what latents stand for. Whole models are in unit/model/test_families.c. */
#include "fixture.h"

enum { TOKENS = 70, LONG = 301 }; /* LONG: of attention, more than one split of it */

struct shape {
    int32_t hidden, num_heads, plain, rotary, value, rank, q_rank; /* q_rank 0: q comes of x at once */
    bool is_split;                                                 /* k_b and v_b lie apart */
};

static const struct shape shapes[] = {
    {64, 2, 16, 8, 16, 24, 0, false},     {96, 3, 32, 16, 24, 40, 56, false},
    {72, 5, 24, 8, 40, 64, 32, true},     {128, 4, 128, 64, 128, 512, 0, true},
    {64, 3, 64, 64, 128, 256, 40, false}, {128, 16, 48, 32, 64, 96, 0, false},
    {72, 3, 192, 64, 256, 512, 0, false}, {64, 40, 16, 64, 16, 256, 0, false}};

/* As BF16 holds it. */
struct matrix {
    float *values;
    uint16_t *bits;
    int32_t rows, cols;
};

struct layer {
    struct shape s;
    struct matrix q_a, q, kv_a, kv_b, k_b, v_b; /* kv_b: always there; k_b and v_b: the same, apart */
    float *q_norm, *kv_norm;
    float *x, *sums; /* [TOKENS][hidden] [TOKENS][heads][rotary + rank] */
    struct latent *latent;
    void *device_x, *device_qkv, *device_sums, *device_out;
};

static struct matrix matrix_new(int32_t rows, int32_t cols)
{
    const size_t count = (size_t)rows * (size_t)cols;
    return (struct matrix){calloc(count, sizeof(float)), calloc(count, sizeof(uint16_t)), rows, cols};
}

static void matrix_set(struct matrix *m, int32_t row, int32_t col, float value)
{
    const size_t at = (size_t)row * (size_t)m->cols + (size_t)col;
    m->bits[at] = dtype_f32_to_bf16(value);
    m->values[at] = dtype_bf16_to_f32(m->bits[at]);
}

static struct matrix matrix_random(struct random *r, int32_t rows, int32_t cols)
{
    struct matrix m = matrix_new(rows, cols);
    for (int32_t i = 0; i < rows; i++)
        for (int32_t j = 0; j < cols; j++) matrix_set(&m, i, j, random_normal(r) / sqrtf((float)cols));
    return m;
}

static void matrix_free(struct matrix *m)
{
    free(m->values);
    free(m->bits);
}

static struct weight_view view_of(const struct matrix *m, bool is_there)
{
    return is_there ? weight_view_plain(m->bits, DTYPE_BF16, m->rows, m->cols) : (struct weight_view){0};
}

/* k_b and v_b of kv_b. */
static void split(struct layer *l)
{
    const struct shape *s = &l->s;
    const int32_t both = s->plain + s->value;
    l->k_b = matrix_new(s->num_heads * s->rank, s->plain);
    l->v_b = matrix_new(s->num_heads * s->value, s->rank);
    for (int32_t row = 0; row < s->num_heads * both; row++)
        for (int32_t i = 0; i < s->rank; i++) {
            const int32_t head = row / both, in_head = row % both;
            const float value = l->kv_b.values[row * s->rank + i];
            if (in_head < s->plain)
                matrix_set(&l->k_b, head * s->rank + i, in_head, value);
            else
                matrix_set(&l->v_b, head * s->value + in_head - s->plain, i, value);
        }
}

static float *norm_new(struct random *r, int32_t count)
{
    float *norm = malloc((size_t)max_of(count, 1) * sizeof *norm);
    for (int32_t i = 0; i < count; i++) norm[i] = 1 + 0.3f * random_normal(r);
    return norm;
}

static void layer_open(struct layer *l, struct device *d, struct random *r)
{
    const struct shape *s = &l->s;
    const int32_t dim = s->rotary + s->rank, q_cols = s->q_rank ? s->q_rank : s->hidden;
    struct error err = {0};
    l->q_a = matrix_random(r, max_of(s->q_rank, 1), s->hidden);
    l->q = matrix_random(r, s->num_heads * (s->plain + s->rotary), q_cols);
    l->kv_a = matrix_random(r, dim, s->hidden);
    l->kv_b = matrix_random(r, s->num_heads * (s->plain + s->value), s->rank);
    split(l);
    l->q_norm = norm_new(r, s->q_rank);
    l->kv_norm = norm_new(r, s->rank);
    const struct latent_desc desc = {
        .num_heads = s->num_heads,
        .plain_dim = s->plain,
        .rotary_dim = s->rotary,
        .value_dim = s->value,
        .rank = s->rank,
        .norm_eps = 1e-5f,
        .q = view_of(&l->q, !s->q_rank),
        .q_a = view_of(&l->q_a, s->q_rank),
        .q_b = view_of(&l->q, s->q_rank),
        .q_norm = s->q_rank ? weight_view_plain(l->q_norm, DTYPE_F32, 1, s->q_rank) : (struct weight_view){0},
        .kv_a = view_of(&l->kv_a, true),
        .kv_norm = weight_view_plain(l->kv_norm, DTYPE_F32, 1, s->rank),
        .kv_b = view_of(&l->kv_b, !s->is_split),
        .k_b = view_of(&l->k_b, s->is_split),
        .v_b = view_of(&l->v_b, s->is_split)};
    if (d->ops->latent_create(d, &desc, &l->latent, &err)) fail_msg("latent_create: %s", err.text);
    l->x = random_values(r, (size_t)TOKENS * (size_t)s->hidden, d->act_bytes, 1);
    l->sums = random_values(r, (size_t)TOKENS * (size_t)(s->num_heads * dim), d->act_bytes, 1);
    l->device_x = device_floats(d, (size_t)LONG * (size_t)s->hidden, false); /* products round rows up */
    l->device_qkv = device_floats(d, (size_t)TOKENS * (size_t)((s->num_heads + 2) * dim), false);
    l->device_sums = device_floats(d, (size_t)TOKENS * (size_t)(s->num_heads * dim), false);
    l->device_out = device_floats(d, (size_t)TOKENS * (size_t)(s->num_heads * s->value), false);
}

static void layer_close(struct layer *l)
{
    struct matrix *const all[] = {&l->q_a, &l->q, &l->kv_a, &l->kv_b, &l->k_b, &l->v_b};
    for (size_t i = 0; i < array_length(all); i++) matrix_free(all[i]);
    free(l->q_norm);
    free(l->kv_norm);
    free(l->x);
    free(l->sums);
}

/* Tokens [first, first + num): qkv, and what comes of sums. */
static void layer_run(const struct layer *l, struct device *d, struct test_step *step, int32_t first,
                      int32_t num, float *qkv, float *out)
{
    const struct shape *s = &l->s;
    const int32_t blocks[TOKENS / BLOCK_SIZE + 1] = {0};
    const size_t n = (size_t)num, dim = (size_t)(s->rotary + s->rank), heads = (size_t)s->num_heads;
    device_write(d, l->device_x, l->x + first * s->hidden, n * (size_t)s->hidden, false);
    device_write(d, l->device_sums, l->sums + (size_t)first * heads * dim, n * heads * dim, false);
    device_poison(d, l->device_qkv, n * (heads + 2) * dim, false);
    device_poison(d, l->device_out, n * heads * (size_t)s->value, false);
    test_step_clear(step);
    test_step_add(step, blocks, 0, num, false);
    struct batch *b = d->ops->step_begin(d, &step->step);
    d->ops->latent_qkv(d, b, l->device_qkv, l->device_x, l->latent);
    d->ops->latent_values(d, b, l->device_out, l->device_sums, l->latent);
    test_step_end(d, NULL);
    device_read(d, qkv, l->device_qkv, n * (heads + 2) * dim, false);
    device_read(d, out, l->device_out, n * heads * (size_t)s->value, false);
}

/* ---- the reference ---- */

enum { WIDTH_MAX = 4096 };

static void product(const struct matrix *m, const double *x, double *out)
{
    for (int32_t i = 0; i < m->rows; i++) {
        out[i] = 0;
        for (int32_t j = 0; j < m->cols; j++) out[i] += (double)m->values[i * m->cols + j] * x[j];
    }
}

static void normalize(double *x, const float *norm, int32_t n)
{
    double squares = 0;
    for (int32_t i = 0; i < n; i++) squares += x[i] * x[i];
    for (int32_t i = 0; i < n; i++) x[i] = x[i] / sqrt(squares / n + (double)1e-5f) * (double)norm[i];
}

static void check_value(const struct layer *l, const struct device *d, const char *what, double got,
                        double expected)
{
    const double bound = d->act_bytes == 2 ? 0.1 : 2e-5; /* values are of size 1 */
    if (!(fabs(got - expected) <= bound * (1 + fabs(expected))))
        fail_msg("%d heads, rank %d: %s is %g, not %g", l->s.num_heads, l->s.rank, what, got, expected);
}

static void check_head_of_q(const struct layer *l, const struct device *d, int32_t head, const double *q,
                            const float *got)
{
    const struct shape *s = &l->s;
    for (int32_t i = 0; i < s->rotary; i++)
        check_value(l, d, "what is rotated of q", (double)got[i], q[s->plain + i]);
    for (int32_t i = 0; i < s->rank; i++) {
        double sum = 0;
        for (int32_t j = 0; j < s->plain; j++)
            sum += q[j] * (double)l->kv_b.values[(head * (s->plain + s->value) + j) * s->rank + i];
        check_value(l, d, "q", (double)got[s->rotary + i], sum);
    }
}

/* A token's q, its heads one after another, and its latent and what is rotated beside it. Nothing is rotated. */
static void project(const struct layer *l, const float *x, double *q, double *kv)
{
    const struct shape *s = &l->s;
    double in[WIDTH_MAX], low[WIDTH_MAX];
    for (int32_t i = 0; i < s->hidden; i++) in[i] = (double)x[i];
    if (s->q_rank) product(&l->q_a, in, low);
    if (s->q_rank) normalize(low, l->q_norm, s->q_rank);
    product(&l->q, s->q_rank ? low : in, q);
    product(&l->kv_a, in, kv);
    normalize(kv, l->kv_norm, s->rank);
}

static void check_qkv(const struct layer *l, const struct device *d, int32_t token, const float *qkv)
{
    const struct shape *s = &l->s;
    const int32_t dim = s->rotary + s->rank, q_dim = s->plain + s->rotary;
    double q[WIDTH_MAX], kv[WIDTH_MAX];
    project(l, l->x + token * s->hidden, q, kv);
    for (int32_t h = 0; h < s->num_heads; h++) check_head_of_q(l, d, h, q + h * q_dim, qkv + h * dim);
    const float *k = qkv + s->num_heads * dim, *v = k + dim;
    for (int32_t i = 0; i < dim; i++) {
        check_value(l, d, "K", (double)k[i], i < s->rotary ? kv[s->rank + i] : kv[i - s->rotary]);
        check_value(l, d, "V", (double)v[i], i < s->rank ? kv[i] : 0);
    }
}

static void check_values(const struct layer *l, const struct device *d, int32_t token, const float *out)
{
    const struct shape *s = &l->s;
    for (int32_t row = 0; row < s->num_heads * s->value; row++) {
        const int32_t head = row / s->value, both = s->plain + s->value;
        const float *weights = l->kv_b.values + (head * both + s->plain + row % s->value) * s->rank,
                    *x = l->sums + (token * s->num_heads + head) * (s->rotary + s->rank);
        double sum = 0;
        for (int32_t i = 0; i < s->rank; i++) sum += (double)weights[i] * (double)x[i];
        check_value(l, d, "a head's value", (double)out[row], sum);
    }
}

static void check_layer(struct layer *l, struct device *d, struct test_step *step)
{
    const struct shape *s = &l->s;
    const int32_t qkv_width = (s->num_heads + 2) * (s->rotary + s->rank), out_width = s->num_heads * s->value;
    const size_t qkv_count = (size_t)TOKENS * (size_t)qkv_width,
                 out_count = (size_t)TOKENS * (size_t)out_width;
    float *qkv = malloc(qkv_count * sizeof *qkv), *out = malloc(out_count * sizeof *out),
          *qkv_part = malloc(qkv_count * sizeof *qkv), *out_part = malloc(out_count * sizeof *out);
    layer_run(l, d, step, 0, TOKENS, qkv, out);
    for (int32_t token = 0; token < TOKENS; token += 23) {
        check_qkv(l, d, token, qkv + token * qkv_width);
        check_values(l, d, token, out + token * out_width);
    }
    for (int32_t first = 3, num = 1; first + num <= TOKENS; first += num, num *= 3) {
        layer_run(l, d, step, first, num, qkv_part, out_part);
        assert_int_equal(num_bits_different(qkv_part, qkv + first * qkv_width, (size_t)(num * qkv_width)), 0);
        assert_int_equal(num_bits_different(out_part, out + first * out_width, (size_t)(num * out_width)), 0);
    }
    free(qkv);
    free(out);
    free(qkv_part);
    free(out_part);
}

/* ---- attention over latents ---- */

/* One head of a token, over keys up to its own: K and V are parts of a row of qkv. */
static void check_head(const struct layer *l, const struct device *d, const float *qkv, int32_t token,
                       int32_t head, const float *got)
{
    const struct shape *s = &l->s;
    const int32_t dim = s->rotary + s->rank, row = (s->num_heads + 2) * dim;
    const float *q = qkv + token * row + head * dim;
    double *weights = malloc((size_t)(token + 1) * sizeof *weights), sum = 0, out[WIDTH_MAX] = {0};
    for (int32_t j = 0; j <= token; j++) {
        double score = 0;
        for (int32_t i = 0; i < dim; i++)
            score += (double)q[i] * (double)qkv[j * row + s->num_heads * dim + i];
        sum += weights[j] = exp(score / sqrt(dim));
    }
    for (int32_t j = 0; j <= token; j++)
        for (int32_t i = 0; i < s->rank; i++)
            out[i] += weights[j] / sum * (double)qkv[j * row + s->num_heads * dim + s->rotary + i];
    const double bound = d->act_bytes == 2 ? 0.02 : 1e-5; /* values are of size 1 */
    for (int32_t i = 0; i < s->rank; i++)
        if (!(fabs((double)got[i] - out[i]) <= bound))
            fail_msg("%d heads, rank %d: token %d sees %g, not %g", s->num_heads, s->rank, token,
                     (double)got[i], out[i]);
    free(weights);
}

/* So many random rows of qkv as latent_qkv leaves them. */
static float *latent_rows(const struct layer *l, const struct device *d, struct random *random, int32_t num)
{
    const int32_t rotary = l->s.rotary, rank = l->s.rank, dim = rotary + rank,
                  row = (l->s.num_heads + 2) * dim;
    float *qkv = random_values(random, (size_t)num * (size_t)row, d->act_bytes, 1);
    for (int32_t t = 0; t < num; t++) {
        float *k = qkv + t * row + l->s.num_heads * dim;
        memcpy(k + dim, k + rotary, (size_t)rank * sizeof *k);
        memset(k + dim + rank, 0, (size_t)rotary * sizeof *k);
    }
    return qkv;
}

/* K and V of a layer, so many tokens. */
static struct kv_pool *pool_of(struct device *d, const struct shape *s, int32_t num)
{
    const struct kv_shape shape = {.num_layers = 1,
                                   .num_blocks = num / BLOCK_SIZE + 1,
                                   .num_kv_heads = 1,
                                   .head_dim = s->rotary + s->rank,
                                   .dtype = d->is_gpu ? DTYPE_BF16 : DTYPE_F32};
    struct kv_pool *pool = NULL;
    struct error err = {0};
    assert_int_equal(d->ops->kv_pool_create(d, &shape, &pool, &err), 0);
    return pool;
}

/* Of so many positions, none of which rotates. */
static struct rope_args unrotated(struct device *d, const struct shape *s, int32_t num)
{
    float *cos_sin = calloc((size_t)(num * s->rotary), sizeof *cos_sin);
    for (int32_t i = 0; i < num * s->rotary; i += 2) cos_sin[i] = 1;
    const struct rope_args rope = {.num_heads = s->num_heads,
                                   .num_kv_heads = 1,
                                   .head_dim = s->rotary + s->rank,
                                   .rotary_dim = s->rotary,
                                   .style = ROPE_PAIRS,
                                   .cos_sin = device_upload(d, cos_sin, (size_t)(num * s->rotary))};
    free(cos_sin);
    return rope;
}

/* A prompt of all tokens but the last, which is decoded. */
static void check_attention(const struct layer *l, struct device *d, struct random *random)
{
    const struct shape *s = &l->s;
    const int32_t dim = s->rotary + s->rank, row = (s->num_heads + 2) * dim, out_row = s->num_heads * dim;
    float *qkv = latent_rows(l, d, random, LONG), *out = malloc((size_t)(LONG * out_row) * sizeof *out);
    const struct attention_args attention = {
        .num_heads = s->num_heads, .num_kv_heads = 1, .head_dim = dim, .scale = 1 / sqrtf((float)dim)};
    const struct rope_args rope = unrotated(d, s, LONG);
    void *device_qkv = device_floats(d, (size_t)(LONG * row), false),
         *device_out = device_floats(d, (size_t)(LONG * out_row), false);
    struct test_step *step = test_step_new(LONG, 1, LONG / BLOCK_SIZE + 1);
    int32_t blocks[LONG / BLOCK_SIZE + 1];
    struct kv_pool *pool = pool_of(d, s, LONG);
    for (int32_t i = 0; i <= LONG / BLOCK_SIZE; i++) blocks[i] = LONG / BLOCK_SIZE - i;
    for (int32_t first = 0, num = LONG - 1; first < LONG; first += num, num = 1) {
        device_write(d, device_qkv, qkv + first * row, (size_t)(num * row), false);
        device_poison(d, device_out, (size_t)(num * out_row), false);
        test_step_clear(step);
        test_step_add(step, blocks, first, num, num == 1);
        struct batch *b = d->ops->step_begin(d, &step->step);
        d->ops->rope_kv_write(d, b, device_qkv, pool, 0, &rope);
        d->ops->attention(d, b, device_out, device_qkv, pool, 0, &attention);
        test_step_end(d, NULL);
        device_read(d, out + first * out_row, device_out, (size_t)(num * out_row), false);
    }
    for (int32_t token = 0; token < LONG; token += 60)
        for (int32_t head = 0; head < s->num_heads; head += 3)
            check_head(l, d, qkv, token, head, out + token * out_row + head * dim);
    test_step_free(step);
    free(qkv);
    free(out);
}

/* ---- decoding far back, and among many ---- */

enum {
    FAR = 17010,
    CHUNK = 2430,
    MANY = 90
}; /* FAR: more splits than other attention has; MANY: of short ones */

struct far {
    struct layer layer;
    struct kv_pool *pool;
    struct rope_args rope;
    struct test_step *step;
    float *qkv; /* [FAR][row] */
    void *device_qkv, *device_out;
    int32_t row, out_row, blocks[FAR / BLOCK_SIZE + 1];
};

static void far_open(struct far *f, struct device *d, struct random *random)
{
    const struct shape *s = &f->layer.s;
    const int32_t dim = s->rotary + s->rank;
    for (int32_t i = 0; i <= FAR / BLOCK_SIZE; i++) f->blocks[i] = FAR / BLOCK_SIZE - i;
    f->pool = pool_of(d, s, FAR);
    f->row = (s->num_heads + 2) * dim;
    f->out_row = s->num_heads * dim;
    f->rope = unrotated(d, s, FAR);
    f->qkv = latent_rows(&f->layer, d, random, FAR);
    f->device_qkv = device_floats(d, (size_t)(CHUNK * f->row), false);
    f->device_out = device_floats(d, (size_t)(CHUNK * f->out_row), false);
    f->step = test_step_new(CHUNK, MANY, FAR / BLOCK_SIZE + 1);
    for (int32_t first = 0; first < FAR; first += CHUNK) { /* K and V of all tokens */
        device_write(d, f->device_qkv, f->qkv + first * f->row, (size_t)(CHUNK * f->row), false);
        test_step_clear(f->step);
        test_step_add(f->step, f->blocks, first, CHUNK, false);
        struct batch *b = d->ops->step_begin(d, &f->step->step);
        d->ops->rope_kv_write(d, b, f->device_qkv, f->pool, 0, &f->rope);
        test_step_end(d, NULL);
    }
}

/* Attention of a decoded token, by so many sequences at once. */
static void far_decode(struct far *f, struct device *d, int32_t token, int32_t num, float *out)
{
    const struct shape *s = &f->layer.s;
    const int32_t dim = s->rotary + s->rank;
    const struct attention_args attention = {
        .num_heads = s->num_heads, .num_kv_heads = 1, .head_dim = dim, .scale = 1 / sqrtf((float)dim)};
    test_step_clear(f->step);
    for (int32_t i = 0; i < num; i++) test_step_add(f->step, f->blocks, token, 1, true);
    float *rows = malloc((size_t)(num * f->row) * sizeof *rows);
    for (int32_t i = 0; i < num; i++)
        memcpy(rows + i * f->row, f->qkv + (size_t)token * (size_t)f->row, (size_t)f->row * sizeof *rows);
    device_write(d, f->device_qkv, rows, (size_t)(num * f->row), false);
    device_poison(d, f->device_out, (size_t)(num * f->out_row), false);
    struct batch *b = d->ops->step_begin(d, &f->step->step);
    d->ops->attention(d, b, f->device_out, f->device_qkv, f->pool, 0, &attention);
    test_step_end(d, NULL);
    device_read(d, out, f->device_out, (size_t)(num * f->out_row), false);
    free(rows);
}

static void check_far(struct far *f, struct device *d)
{
    const int32_t dim = f->layer.s.rotary + f->layer.s.rank;
    const size_t count = (size_t)f->out_row;
    float *out = malloc(MANY * count * sizeof *out), *alone = malloc(count * sizeof *alone);
    far_decode(f, d, FAR - 1, 1, out);
    for (int32_t head = 0; head < f->layer.s.num_heads; head++)
        check_head(&f->layer, d, f->qkv, FAR - 1, head, out + head * dim);
    far_decode(f, d, LONG - 1, 1, alone);
    far_decode(f, d, LONG - 1, MANY, out);
    for (size_t i = 0; i < MANY; i++) assert_int_equal(num_bits_different(out + i * count, alone, count), 0);
    free(out);
    free(alone);
}

static void far_back_by(const char *isa)
{
    const struct step_limits limits = {CHUNK, MANY, MANY, MANY, FAR, 1, 1, 0, false, 0};
    struct random random = {.seed = test_seed()};
    struct far f = {.layer.s = {64, 3, 64, 64, 128, 256, 0, false}};
    const struct attention_args attention = {.num_heads = 3, .num_kv_heads = 1, .head_dim = 320};
    struct error err = {0};
    struct device *d = test_device_open(isa, 2);
    if (!d->ops->latent_create) {
        d->ops->close(d);
        skip();
    }
    assert_int_equal(d->ops->prepare(d, &limits, 64, 512, 512, &attention, 1, &err), 0);
    layer_open(&f.layer, d, &random); /* says that K and V are latents */
    far_open(&f, d, &random);
    check_far(&f, d);
    test_step_free(f.step);
    free(f.qkv);
    layer_close(&f.layer);
    d->ops->close(d);
}

static void far_back(void **state)
{
    (void)state;
    for_each_isa(far_back_by);
}

/* ---- all of it ---- */

/* A head's attention of the last of n tokens, over what their latents stand for: its value_dim values. kv: [n][rank + rotary]. */
static void attend(const struct layer *l, int32_t head, const double *q, const double *kv, int32_t n,
                   double *out)
{
    const struct shape *s = &l->s;
    const int32_t both = s->plain + s->value, q_dim = s->plain + s->rotary, row = s->rank + s->rotary;
    const struct matrix of_head = {l->kv_b.values + head * both * s->rank, NULL, both, s->rank};
    double made[WIDTH_MAX], sum = 0;
    memset(out, 0, (size_t)s->value * sizeof *out);
    for (int32_t j = 0; j < n; j++) {
        double score = 0;
        product(&of_head, kv + j * row, made);
        for (int32_t i = 0; i < s->plain; i++) score += q[head * q_dim + i] * made[i];
        for (int32_t i = 0; i < s->rotary; i++)
            score += q[head * q_dim + s->plain + i] * kv[j * row + s->rank + i];
        const double weight = exp(score / sqrt(q_dim));
        sum += weight;
        for (int32_t i = 0; i < s->value; i++) out[i] += weight * made[s->plain + i];
    }
    for (int32_t i = 0; i < s->value; i++) out[i] /= sum;
}

struct chain {
    struct layer *layer;
    struct kv_pool *pool;
    struct rope_args rope;
    struct attention_args attention;
    struct test_step *step;
    float *x; /* [LONG][hidden] */
    void *device_x, *device_qkv, *device_sums, *device_out;
};

/* Tokens [first, first + num) as a prompt's chunk, or decoding. */
static void chain_run(const struct chain *c, struct device *d, int32_t first, int32_t num, bool decode,
                      float *out)
{
    const struct shape *s = &c->layer->s;
    const size_t width = (size_t)(s->num_heads * s->value);
    int32_t blocks[LONG / BLOCK_SIZE + 1];
    for (int32_t i = 0; i <= LONG / BLOCK_SIZE; i++) blocks[i] = LONG / BLOCK_SIZE - i;
    device_write(d, c->device_x, c->x + first * s->hidden, (size_t)(num * s->hidden), false);
    device_poison(d, c->device_out, (size_t)num * width, false);
    test_step_clear(c->step);
    test_step_add(c->step, blocks, first, num, decode);
    struct batch *b = d->ops->step_begin(d, &c->step->step);
    d->ops->latent_qkv(d, b, c->device_qkv, c->device_x, c->layer->latent);
    d->ops->rope_kv_write(d, b, c->device_qkv, c->pool, 0, &c->rope);
    d->ops->attention(d, b, c->device_sums, c->device_qkv, c->pool, 0, &c->attention);
    d->ops->latent_values(d, b, c->device_out, c->device_sums, c->layer->latent);
    test_step_end(d, NULL);
    device_read(d, out + (size_t)first * width, c->device_out, (size_t)num * width, false);
}

static void check_chain(const struct chain *c, const struct device *d, const float *out)
{
    const struct shape *s = &c->layer->s;
    const int32_t row = s->rank + s->rotary, width = s->num_heads * s->value;
    const double bound = d->act_bytes == 2 ? 0.03 : 2e-5; /* values are of size 1 */
    double *kv = malloc((size_t)(LONG * row) * sizeof *kv), q[WIDTH_MAX], expected[WIDTH_MAX];
    for (int32_t token = 0; token < LONG; token++) {
        project(c->layer, c->x + token * s->hidden, q, kv + token * row);
        for (int32_t head = 0; head < s->num_heads && token % 50 == 0; head += 2) {
            const float *got = out + token * width + head * s->value;
            attend(c->layer, head, q, kv, token + 1, expected);
            for (int32_t i = 0; i < s->value; i++)
                if (!(fabs((double)got[i] - expected[i]) <= bound))
                    fail_msg("%d heads, rank %d: token %d has %g, not %g", s->num_heads, s->rank, token,
                             (double)got[i], expected[i]);
        }
    }
    free(kv);
}

static void chain_open(struct chain *c, struct layer *l, struct device *d, struct random *random)
{
    const struct shape *s = &l->s;
    const int32_t dim = s->rotary + s->rank;
    c->pool = pool_of(d, s, LONG);
    c->layer = l;
    c->attention = (struct attention_args){.num_heads = s->num_heads,
                                           .num_kv_heads = 1,
                                           .head_dim = dim,
                                           .scale = 1 / sqrtf((float)(s->plain + s->rotary)),
                                           .latent_k_dim = s->plain + s->rotary,
                                           .latent_v_dim = s->value,
                                           .latent = l->latent};
    c->rope = unrotated(d, s, LONG);
    c->step = test_step_new(LONG, 1, LONG / BLOCK_SIZE + 1);
    c->x = random_values(random, (size_t)LONG * (size_t)s->hidden, d->act_bytes, 1);
    c->device_x = device_floats(d, (size_t)(LONG + 16) * (size_t)s->hidden, false);
    c->device_qkv = device_floats(d, (size_t)LONG * (size_t)((s->num_heads + 2) * dim), false);
    c->device_sums = device_floats(d, (size_t)LONG * (size_t)(s->num_heads * dim), false);
    c->device_out = device_floats(d, (size_t)LONG * (size_t)(s->num_heads * s->value), false);
}

/* A prompt at once and in chunks, each with a token behind it that is decoded. */
static void check_all(struct layer *l, struct device *d, struct random *random)
{
    static const int32_t cuts[] = {0, 1, 130, 192, LONG - 1};
    const size_t count = (size_t)LONG * (size_t)(l->s.num_heads * l->s.value);
    float *out = malloc(count * sizeof *out), *in_chunks = malloc(count * sizeof *in_chunks);
    struct chain c = {0};
    chain_open(&c, l, d, random);
    chain_run(&c, d, 0, LONG - 1, false, out);
    chain_run(&c, d, LONG - 1, 1, true, out);
    check_chain(&c, d, out);
    for (size_t i = 0; i + 1 < array_length(cuts); i++)
        chain_run(&c, d, cuts[i], cuts[i + 1] - cuts[i], false, in_chunks);
    chain_run(&c, d, LONG - 1, 1, true, in_chunks);
    assert_int_equal(num_bits_different(out, in_chunks, count), 0);
    test_step_free(c.step);
    free(c.x);
    free(out);
    free(in_chunks);
}

/* tells: of what the latents stand for. */
static void layer_test(struct layer *l, const char *isa, int num_threads, bool tells, struct random *random)
{
    const struct shape *s = &l->s;
    const struct step_limits limits = {LONG, 1, TOKENS, 1, LONG, 1, 1, 0, false, 0};
    const struct attention_args attention = {.num_heads = s->num_heads,
                                             .num_kv_heads = 1,
                                             .head_dim = s->rotary + s->rank,
                                             .latent_k_dim = tells ? s->plain + s->rotary : 0,
                                             .latent_v_dim = tells ? s->value : 0};
    struct error err = {0};
    struct device *d = test_device_open(isa, num_threads);
    if (!d->ops->latent_create) {
        d->ops->close(d);
        skip();
    }
    assert_int_equal(d->ops->prepare(d, &limits, 64, 512, 512, &attention, 1, &err), 0);
    struct test_step *step = test_step_new(TOKENS, 1, TOKENS / BLOCK_SIZE + 1);
    layer_open(l, d, random);
    if (tells) {
        check_all(l, d, random);
    } else {
        check_layer(l, d, step);
        check_attention(l, d, random);
    }
    layer_close(l);
    test_step_free(step);
    d->ops->close(d);
}

static void layers(const char *isa)
{
    struct random random = {.seed = test_seed()};
    for (size_t i = 0; i < 2 * array_length(shapes); i++) {
        struct layer l = {.s = shapes[i / 2]};
        if (!takes_part(i / 2)) continue;
        layer_test(&l, isa, 1 + (int)i / 2 % 2, i % 2 == 1, &random);
    }
}

static void latents(void **state)
{
    (void)state;
    for_each_isa(layers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(latents), cmocka_unit_test(far_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
