/* test_moe.c - mixtures of experts through the kernel table of whatever device: against a double-precision reference,
 * and the bits of a token against itself among others that choose otherwise. */
#include "e4m3.h"
#include "fixture.h"

/* Scales of e4m3. */
enum scales { NO_SCALES, OF_ALL, OF_ROWS, OF_BLOCKS, OF_INTEGERS }; /* the last: of rows */

enum { BLOCK = 128 /* columns, and rows, with one scale */ };

enum { TOKENS_MAX = 2100, EXPERTS_MAX = 268, HIDDEN_MAX = 3328, CROWDED_EXPERT = 3 };

struct shape {
    int32_t num_tokens;                                           /* that are run together */
    int32_t hidden, inner, shared_inner, num_experts, num_chosen; /* shared_inner 0: no shared expert */
    enum router_scores scores;
    enum gate_function gate;
    bool normalize, shared_gate, choice_bias,
        biases;      /* biases: of the router and of all products of experts */
    bool crowded;    /* the bias of choices sends every token to CROWDED_EXPERT */
    bool f32_router; /* else bf16 */
    bool scale_input;
    bool sees_other; /* experts are chosen by other rows than they get, and their scores have factors */
    bool mxfp4;      /* all but the router: floats of four bits, a scale for 32 columns */
    bool blocks;     /* as GGUF files have them */
    int32_t int4; /* all but the router: integers of four bits, a scale of bf16 for so many columns; 0: not */
    enum scales fp8; /* all but the router: e4m3 or integers, for a model whose rows are quantised, too */
    int32_t num_groups, num_chosen_groups; /* 0: none */
    int32_t own;                           /* values of experts' own space; 0: they get x */
};

static const struct shape shapes[] = {
    {150, 64, 96, 0, 8, 2, ROUTER_SOFTMAX, GATE_SILU, .normalize = true},
    {150, 128, 48, 80, 24, 6, ROUTER_SOFTMAX, GATE_SILU, .shared_gate = true},
    {150, 72, 64, 64, 9, 9, ROUTER_SIGMOID, GATE_SILU, .normalize = true, .choice_bias = true},
    {150, 72, 64, 64, 20, 5, ROUTER_SIGMOID, GATE_SILU, .normalize = true, .shared_gate = true,
     .choice_bias = true, .f32_router = true},
    {150, 256, 160, 0, 16, 1, ROUTER_SOFTMAX, GATE_GELU_TANH, .normalize = true},
    {150, 96, 64, 0, 8, 4, ROUTER_SOFTMAX, GATE_CLAMPED_SWISH, .normalize = true, .biases = true},
    {150, 72, 40, 0, 9, 2, ROUTER_SOFTMAX, GATE_CLAMPED_SWISH, .normalize = true, .biases = true,
     .f32_router = true},
    {TOKENS_MAX, 200, 72, 0, 12, 4, ROUTER_SOFTMAX, GATE_CLAMPED_SWISH, .normalize = true, .biases = true},
    /* all rows of a step for one expert, none for the other 15; nothing of it a multiple of a tile */
    {150, 136, 200, 0, 16, 1, ROUTER_SIGMOID, GATE_SILU, .choice_bias = true, .crowded = true},
    {150, 200, 24, 0, 10, 3, ROUTER_SIGMOID, GATE_SILU, .normalize = true, .choice_bias = true,
     .crowded = true},
    /* weights of four bits: rows of an expert that fill no tile; several stages of columns */
    {TOKENS_MAX, 160, 96, 0, 12, 4, ROUTER_SOFTMAX, GATE_CLAMPED_SWISH, .normalize = true, .biases = true,
     .mxfp4 = true},
    {150, 96, 64, 0, 9, 3, ROUTER_SIGMOID, GATE_SILU, .normalize = true, .choice_bias = true, .mxfp4 = true},
    /* so many rows of an expert that its weights become bf16 first */
    {TOKENS_MAX, 96, 64, 0, 3, 2, ROUTER_SOFTMAX, GATE_SILU, .normalize = true, .mxfp4 = true},
    {150, 160, 64, 0, 9, 3, ROUTER_SOFTMAX, GATE_CLAMPED_SWISH, .normalize = true, .biases = true,
     .f32_router = true, .mxfp4 = true, .blocks = true},
    {150, 2880, 32, 0, 8, 4, ROUTER_SOFTMAX, GATE_CLAMPED_SWISH, .normalize = true, .biases = true,
     .mxfp4 = true},
    {150, 64, 2880, 0, 8, 4, ROUTER_SOFTMAX, GATE_CLAMPED_SWISH, .normalize = true, .biases = true,
     .mxfp4 = true},
    /* several tiles of rows for every expert */
    {TOKENS_MAX, 64, 24, 0, 12, 3, ROUTER_SOFTMAX, GATE_SILU, .normalize = true},
    /* the input of experts is scaled */
    {150, 72, 64, 48, 8, 1, ROUTER_SIGMOID, GATE_SILU, .scale_input = true},
    {150, 128, 48, 0, 9, 4, ROUTER_SIGMOID, GATE_SILU, .normalize = true, .choice_bias = true,
     .f32_router = true, .scale_input = true},
    /* in groups, as good as their best two, or their best */
    {150, 72, 64, 48, 24, 6, ROUTER_SIGMOID, GATE_SILU, .normalize = true, .choice_bias = true,
     .f32_router = true, .num_groups = 6, .num_chosen_groups = 3},
    {150, 64, 48, 0, 20, 3, ROUTER_SOFTMAX, GATE_SILU, .num_groups = 5, .num_chosen_groups = 2},
    {150, 64, 48, 0, 16, 8, ROUTER_SIGMOID, GATE_SILU, .normalize = true, .num_groups = 8,
     .num_chosen_groups = 4},
    /* several experts for each lane of a warp that chooses, and more than a kernel for few of them has room for */
    {150, 64, 16, 0, 72, 9, ROUTER_SOFTMAX, GATE_SILU, .normalize = true},
    {40, 64, 8, 0, 136, 8, ROUTER_SIGMOID, GATE_SILU, .normalize = true, .choice_bias = true},
    {40, 64, 8, 0, 268, 12, ROUTER_SIGMOID, GATE_SILU, .normalize = true, .choice_bias = true},
    {40, 64, 8, 0, 264, 8, ROUTER_SIGMOID, GATE_SILU, .normalize = true, .choice_bias = true,
     .f32_router = true, .num_groups = 8, .num_chosen_groups = 4},
    /* more columns than a token's kernel has of the router at a time */
    {40, 3328, 8, 0, 40, 4, ROUTER_SOFTMAX, GATE_SILU, .normalize = true},
    /* as many tiles of W for an SM when they are wide: two of 128 rows for each of 132 */
    {700, 128, 128, 0, 132, 4, ROUTER_SOFTMAX, GATE_SILU, .normalize = true},
    {200, 128, 128, 0, 132, 4, ROUTER_SOFTMAX, GATE_CLAMPED_SWISH, .normalize = true, .biases = true},
    {150, 72, 64, 0, 8, 2, ROUTER_SOFTMAX, GATE_GELU_TANH, .normalize = true, .sees_other = true},
    {TOKENS_MAX, 128, 48, 0, 40, 6, ROUTER_SOFTMAX, GATE_GELU_TANH, .normalize = true, .f32_router = true,
     .sees_other = true},
    /* weighed against those that are near */
    {150, 72, 48, 0, 16, 2, ROUTER_SPARSE, GATE_SILU, .normalize = false},
    /* without a gate: all methods of a GPU, and weights of four bits */
    {150, 72, 64, 96, 20, 5, ROUTER_SIGMOID, GATE_RELU_SQUARED, .normalize = true, .choice_bias = true,
     .f32_router = true},
    {TOKENS_MAX, 136, 72, 48, 12, 4, ROUTER_SIGMOID, GATE_RELU_SQUARED, .normalize = true,
     .choice_bias = true},
    {TOKENS_MAX, 160, 96, 0, 9, 3, ROUTER_SIGMOID, GATE_RELU_SQUARED, .normalize = true, .choice_bias = true,
     .mxfp4 = true},
    /* integers of four bits, a scale for 128 columns and for 32 */
    {TOKENS_MAX, 256, 96, 0, 12, 4, ROUTER_SOFTMAX, GATE_SILU, .normalize = true, .int4 = 128},
    {150, 160, 288, 0, 9, 3, ROUTER_SIGMOID, GATE_RELU_SQUARED, .normalize = true, .choice_bias = true,
     .int4 = 32},
    /* e4m3: stages that end within K, a shared expert, tiles of 192 and of 128 rows of W, some beyond an expert's */
    {150, 640, 128, 0, 8, 2, ROUTER_SOFTMAX, GATE_SILU, .normalize = true, .fp8 = OF_BLOCKS},
    {150, 256, 640, 128, 12, 3, ROUTER_SOFTMAX, GATE_SILU, .shared_gate = true, .fp8 = OF_ROWS},
    {300, 2048, 384, 0, 4, 2, ROUTER_SIGMOID, GATE_SILU, .normalize = true, .choice_bias = true,
     .fp8 = OF_BLOCKS},
    {600, 384, 384, 0, 6, 2, ROUTER_SOFTMAX, GATE_SILU, .normalize = true, .fp8 = OF_ALL},
    {TOKENS_MAX, 128, 128, 0, 6, 1, ROUTER_SIGMOID, GATE_RELU_SQUARED, .choice_bias = true, .crowded = true,
     .f32_router = true, .fp8 = OF_BLOCKS},
    {150, 256, 640, 128, 12, 3, ROUTER_SOFTMAX, GATE_SILU, .shared_gate = true, .fp8 = OF_INTEGERS},
    {600, 640, 384, 0, 6, 2, ROUTER_SOFTMAX, GATE_SILU, .normalize = true, .fp8 = OF_INTEGERS},
    /* a space of their own */
    {TOKENS_MAX, 136, 72, 48, 12, 4, ROUTER_SIGMOID, GATE_RELU_SQUARED, .normalize = true,
     .choice_bias = true, .own = 56},
    {150, 72, 64, 0, 9, 3, ROUTER_SIGMOID, GATE_RELU_SQUARED, .normalize = true, .choice_bias = true,
     .f32_router = true, .own = 104},
    {150, 256, 128, 128, 8, 2, ROUTER_SIGMOID, GATE_SILU, .normalize = true, .choice_bias = true, .own = 128},
};

/* Values as a weight of BF16 holds them, [rows][cols]. */
struct matrix {
    float *values;
    uint16_t *bits;
    uint8_t *codes, *scales; /* of MXFP4, two to a byte, and one for 32 columns; NULL: bits */
    uint8_t *blocks;         /* both, as GGUF files have them */
    int32_t int4; /* of codes that are integers of four bits, two to a byte: columns with one scale */
    uint16_t *int4_scales;
    enum scales fp8; /* of codes in e4m3, or of integers */
    float *fp8_scales;
    int32_t rows, cols;
};

struct mixture {
    struct shape s;
    struct matrix to_experts, from_experts;
    struct matrix router, shared_gate, gate[EXPERTS_MAX + 1], up[EXPERTS_MAX + 1], down[EXPERTS_MAX + 1];
    float choice_bias[EXPERTS_MAX], router_bias[EXPERTS_MAX], score_factors[EXPERTS_MAX];
    float biases[HIDDEN_MAX +
                 3 * EXPERTS_MAX]; /* of products of experts, each from another place on (bias_of) */
    struct moe *moe;
    float *x, *seen; /* [num_tokens][hidden] */
    void *device_x, *device_seen, *device_out;
};

static struct matrix matrix_new(struct random *random, int32_t rows, int32_t cols, float deviation)
{
    size_t count = (size_t)rows * (size_t)cols;
    struct matrix m = {.values = malloc(count * sizeof(float)),
                       .bits = malloc(count * sizeof(uint16_t)),
                       .rows = rows,
                       .cols = cols};
    for (size_t i = 0; i < count; i++) {
        m.bits[i] = dtype_f32_to_bf16(deviation * random_normal(random));
        m.values[i] = dtype_bf16_to_f32(m.bits[i]);
    }
    return m;
}

/* The same of values that MXFP4 has. */
static struct matrix matrix_new_mxfp4(struct random *random, int32_t rows, int32_t cols, float deviation)
{
    static const float magnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    struct matrix m = matrix_new(random, rows, cols, deviation);
    size_t count = (size_t)rows * (size_t)cols;
    m.codes = calloc(count / 2, 1);
    m.scales = malloc(count / 32);
    for (size_t i = 0; i < count / 32; i++)
        m.scales[i] = (uint8_t)(127 + (int)lroundf(log2f(deviation / 3)) + random_below(random, 3) - 1);
    for (size_t i = 0; i < count; i++) {
        int32_t code = random_below(random, 16);
        m.codes[i / 2] |= (uint8_t)(code << (i % 2 * 4));
        m.values[i] = ldexpf(code & 8 ? -magnitudes[code & 7] : magnitudes[code & 7], m.scales[i / 32] - 127);
    }
    return m;
}

static int32_t num_int4_groups(const struct matrix *m)
{
    return (m->cols + m->int4 - 1) / m->int4;
}

/* The same of integers of four bits less 8. */
static struct matrix matrix_new_int4(struct random *random, int32_t rows, int32_t cols, float deviation,
                                     int32_t group)
{
    struct matrix m = matrix_new(random, rows, cols, deviation);
    m.int4 = group;
    const int32_t num_groups = num_int4_groups(&m);
    m.codes = calloc((size_t)rows * (size_t)cols / 2, 1);
    m.int4_scales = malloc((size_t)(rows * num_groups) * sizeof(uint16_t));
    for (int32_t i = 0; i < rows * num_groups; i++)
        m.int4_scales[i] = dtype_f32_to_bf16(deviation / 5 * (0.5f + (float)random_uniform(random)));
    for (int32_t i = 0; i < rows * cols; i++) {
        int32_t code = random_below(random, 16);
        m.codes[i / 2] |= (uint8_t)(code << (i % 2 * 4));
        m.values[i] =
            (float)(code - 8) * dtype_bf16_to_f32(m.int4_scales[i / cols * num_groups + i % cols / group]);
    }
    return m;
}

/* Rows and columns that share a scale. */
static int32_t scale_rows(const struct matrix *m)
{
    return m->fp8 == OF_ALL ? m->rows : m->fp8 == OF_BLOCKS ? BLOCK : 1;
}

static int32_t scale_cols(const struct matrix *m)
{
    return m->fp8 == OF_BLOCKS ? BLOCK : m->cols;
}

/* The same in e4m3, or in integers. */
static struct matrix matrix_new_fp8(struct random *random, int32_t rows, int32_t cols, float deviation,
                                    enum scales fp8)
{
    struct matrix m = matrix_new(random, rows, cols, deviation);
    m.fp8 = fp8;
    const int32_t num_across = cols / scale_cols(&m), num_scales = rows / scale_rows(&m) * num_across;
    m.codes = malloc((size_t)rows * (size_t)cols);
    m.fp8_scales = malloc((size_t)num_scales * sizeof(float));
    for (int32_t i = 0; i < num_scales; i++)
        m.fp8_scales[i] = deviation / (fp8 == OF_INTEGERS ? 72 : 8) * (0.5f + (float)random_uniform(random));
    for (int32_t i = 0; i < rows * cols; i++) {
        int32_t row = i / cols, col = i % cols;
        const float scale = m.fp8_scales[row / scale_rows(&m) * num_across + col / scale_cols(&m)];
        const bool is_integer = fp8 == OF_INTEGERS;
        m.codes[i] = is_integer ? (uint8_t)random_below(random, 256) : random_e4m3(random);
        m.values[i] = scale * (is_integer ? (float)(int8_t)m.codes[i] : (float)e4m3_value(m.codes[i]));
    }
    return m;
}

/* A scale before its 32 codes, of which i and i + 16 share a byte. */
static void matrix_put_in_blocks(struct matrix *m)
{
    size_t num_blocks = (size_t)m->rows * (size_t)m->cols / 32;
    m->blocks = malloc(num_blocks * 17);
    for (size_t b = 0; b < num_blocks; b++) {
        const uint8_t *codes = m->codes + 16 * b;
        m->blocks[17 * b] = m->scales[b];
        for (size_t i = 0; i < 16; i++)
            m->blocks[17 * b + 1 + i] =
                (uint8_t)((codes[i / 2] >> (i % 2 * 4) & 15) | (codes[8 + i / 2] >> (i % 2 * 4) & 15) << 4);
    }
}

static void matrix_free(struct matrix *m)
{
    free(m->blocks);
    free(m->codes);
    free(m->scales);
    free(m->fp8_scales);
    free(m->int4_scales);
    free(m->values);
    free(m->bits);
}

static struct weight_view view_of(const struct matrix *m)
{
    if (m->blocks) return weight_view_plain(m->blocks, DTYPE_MXFP4, m->rows, m->cols);
    if (m->fp8)
        return scaled_view(m->codes, m->fp8 == OF_INTEGERS ? DTYPE_I8 : DTYPE_F8_E4M3, m->rows, m->cols,
                           m->fp8_scales, SCALE_F32, scale_rows(m), scale_cols(m));
    if (m->int4)
        return scaled_view(m->codes, DTYPE_U4, m->rows, m->cols, m->int4_scales, SCALE_BF16, 1, m->int4);
    if (m->codes) return scaled_view(m->codes, DTYPE_MXFP4, m->rows, m->cols, m->scales, SCALE_E8M0, 1, 32);
    return m->values ? weight_view_plain(m->bits, DTYPE_BF16, m->rows, m->cols) : (struct weight_view){0};
}

#define NEAR 0.5f /* moe_desc */

enum { OF_GATE, OF_UP, OF_DOWN };

static const float *bias_of(const struct mixture *m, int32_t expert, int product)
{
    return m->biases + product * EXPERTS_MAX + expert;
}

/* Experts have none where the function is of up alone. */
static bool has_gate(const struct mixture *m)
{
    return m->s.gate != GATE_RELU_SQUARED;
}

static struct expert_desc expert_of(const struct mixture *m, int32_t e)
{
    struct expert_desc desc = {.up = view_of(&m->up[e]), .down = view_of(&m->down[e])};
    if (has_gate(m)) desc.gate = view_of(&m->gate[e]);
    if (!m->s.biases) return desc;
    desc.gate_bias = weight_view_plain(bias_of(m, e, OF_GATE), DTYPE_F32, 1, m->gate[e].rows);
    desc.up_bias = weight_view_plain(bias_of(m, e, OF_UP), DTYPE_F32, 1, m->gate[e].rows);
    desc.down_bias = weight_view_plain(bias_of(m, e, OF_DOWN), DTYPE_F32, m->s.hidden, 1);
    return desc;
}

/* Of an expert. */
static struct matrix matrix_create(const struct shape *s, struct random *random, int32_t rows, int32_t cols)
{
    const float deviation = 1 / sqrtf((float)cols);
    struct matrix m = s->fp8     ? matrix_new_fp8(random, rows, cols, deviation, s->fp8)
                      : s->int4  ? matrix_new_int4(random, rows, cols, deviation, s->int4)
                      : s->mxfp4 ? matrix_new_mxfp4(random, rows, cols, deviation)
                                 : matrix_new(random, rows, cols, deviation);
    if (s->blocks) matrix_put_in_blocks(&m);
    return m;
}

/* Experts 1 and 2 have the same row in the router: of equal scores the lower expert's is chosen. */
static void mixture_fill(struct mixture *m, struct random *random)
{
    const struct shape *s = &m->s;
    int32_t num = s->num_experts + (s->shared_inner > 0);
    m->router = matrix_new(random, s->num_experts, s->hidden, 2 / sqrtf((float)s->hidden));
    memcpy(m->router.values + 2 * s->hidden, m->router.values + s->hidden, (size_t)s->hidden * sizeof(float));
    memcpy(m->router.bits + 2 * s->hidden, m->router.bits + s->hidden, (size_t)s->hidden * sizeof(uint16_t));
    for (int32_t e = 0; e < num; e++) {
        const bool is_shared = e == s->num_experts;
        const int32_t inner = is_shared ? s->shared_inner : s->inner,
                      hidden = s->own && !is_shared ? s->own : s->hidden;
        m->gate[e] = matrix_create(s, random, inner, hidden);
        m->up[e] = matrix_create(s, random, inner, hidden);
        m->down[e] = matrix_create(s, random, hidden, inner);
    }
    if (s->own) m->to_experts = matrix_create(s, random, s->own, s->hidden);
    if (s->own) m->from_experts = matrix_create(s, random, s->hidden, s->own);
    if (s->shared_gate) m->shared_gate = matrix_new(random, 1, s->hidden, 1 / sqrtf((float)s->hidden));
    for (int32_t e = 0; e < s->num_experts; e++)
        m->choice_bias[e] = e == 2 ? m->choice_bias[1] : random_normal(random);
    if (s->crowded) m->choice_bias[CROWDED_EXPERT] = 100;
    for (int32_t e = 0; e < s->num_experts && s->biases; e++)
        m->router_bias[e] = e == 2 ? m->router_bias[1] : random_normal(random);
    for (size_t i = 0; i < array_length(m->biases) && s->biases; i++)
        m->biases[i] = 4 * random_normal(random); /* some beyond 7 */
}

/* false where the device has no such mixtures. */
static bool mixture_open(struct mixture *m, struct device *d, struct random *random)
{
    const struct shape *s = &m->s;
    struct expert_desc experts[EXPERTS_MAX];
    struct error err = {0};
    mixture_fill(m, random);
    for (int32_t e = 0; e < s->num_experts; e++) experts[e] = expert_of(m, e);
    struct moe_desc desc = {
        .num_experts = s->num_experts,
        .num_chosen = s->num_chosen,
        .num_groups = s->num_groups,
        .num_chosen_groups = s->num_chosen_groups,
        .groups_by_two = s->scores == ROUTER_SIGMOID,
        .scores = s->scores,
        .normalize = s->normalize,
        .scale = 1.5f,
        .quantise_input = s->fp8 != NO_SCALES,
        .scale_input = s->scale_input,
        .gate = s->gate,
        .router = s->f32_router ? weight_view_plain(m->router.values, DTYPE_F32, s->num_experts, s->hidden)
                                : view_of(&m->router),
        .experts = experts,
        .to_experts = view_of(&m->to_experts),
        .from_experts = view_of(&m->from_experts),
        .shared_gate = view_of(&m->shared_gate)};
    if (s->choice_bias) desc.choice_bias = weight_view_plain(m->choice_bias, DTYPE_F32, 1, s->num_experts);
    if (s->biases) desc.router_bias = weight_view_plain(m->router_bias, DTYPE_F32, 1, s->num_experts);
    for (int32_t e = 0; e < s->num_experts; e++)
        m->score_factors[e] = s->sees_other ? 0.5f + (float)random_uniform(random) : 1;
    if (s->sees_other) desc.score_factors = weight_view_plain(m->score_factors, DTYPE_F32, 1, s->num_experts);
    if (s->shared_inner) desc.shared = expert_of(m, s->num_experts);
    desc.near = NEAR;
    int status = d->ops->moe_create(d, &desc, &m->moe, &err);
    if (status == STATUS_UNSUPPORTED && (s->scale_input || s->num_groups)) return false;
    if (status) fail_msg("moe_create: %s", err.text);
    size_t count = (size_t)s->num_tokens * (size_t)s->hidden;
    m->x = random_values(random, count, d->act_bytes, 1);
    m->seen = s->sees_other ? random_values(random, count, d->act_bytes, 1) : m->x;
    m->device_x = m->device_seen = device_floats(d, count, false);
    if (s->sees_other) m->device_seen = device_floats(d, count, false);
    m->device_out = device_floats(d, count, false);
    return true;
}

static void mixture_free(struct mixture *m)
{
    matrix_free(&m->router);
    matrix_free(&m->shared_gate);
    matrix_free(&m->to_experts);
    matrix_free(&m->from_experts);
    for (int32_t e = 0; e <= EXPERTS_MAX; e++) {
        matrix_free(&m->gate[e]);
        matrix_free(&m->up[e]);
        matrix_free(&m->down[e]);
    }
    if (m->seen != m->x) free(m->seen);
    free(m->x);
}

static void mixture_run(const struct mixture *m, struct device *d, struct test_step *step, int32_t first,
                        int32_t num_tokens, float *out)
{
    int32_t blocks[TOKENS_MAX / BLOCK_SIZE + 1] = {0};
    size_t count = (size_t)num_tokens * (size_t)m->s.hidden;
    device_write(d, m->device_x, m->x + (size_t)first * (size_t)m->s.hidden, count, false);
    device_write(d, m->device_seen, m->seen + (size_t)first * (size_t)m->s.hidden, count, false);
    device_poison(d, m->device_out, count, false);
    test_step_clear(step);
    test_step_add(step, blocks, 0, num_tokens, false);
    struct batch *b = d->ops->step_begin(d, &step->step);
    d->ops->moe(d, b, ROWS_TOKENS, m->device_out, m->device_x, m->device_seen, m->moe);
    test_step_end(d, NULL);
    device_read(d, out, m->device_out, count, false);
}

/* ---- the reference ---- */

static double dot_wide(const float *a, const double *b, int32_t n)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)a[i] * b[i];
    return sum;
}

static double dot(const float *a, const float *b, int32_t n)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* What is multiplied in the place of factor times a row. */
static void take_row(const struct mixture *m, const struct device *d, const float *x, int32_t count,
                     float factor, double *out)
{
    const int32_t step = m->s.fp8 == OF_BLOCKS ? BLOCK : count;
    for (int32_t i = 0; i < count; i++) out[i] = (double)(factor * x[i]);
    if (!m->s.fp8 || takes_rows_as_they_are(d)) return;
    for (int32_t i = 0; i < count; i += step)
        (m->s.fp8 == OF_INTEGERS ? int8_quantise : e4m3_quantise)(x + i, step, factor, out + i);
}

static double gated(enum gate_function gate, double x, double up)
{
    switch (gate) {
    case GATE_SILU:
        return x / (1 + exp(-x)) * up;
    case GATE_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) * up;
    case GATE_RELU_SQUARED:
        return up > 0 ? up * up : 0;
    default:
        x = fmin(x, 7);
        return x / (1 + exp(-1.702 * x)) * (fmax(fmin(up, 7), -7) + 1);
    }
}

/* What a device's rounding may make of the result. */
struct tolerance {
    double magnitude; /* of what is summed */
    double jump;      /* what it changes that a value between two codes becomes the one or the other */
};

/* Adds weight times what expert e makes of x, or what it makes of weight times x. */
static void add_expert(const struct mixture *m, const struct device *d, int32_t e, const double *x,
                       double weight, double *out, struct tolerance *tolerance)
{
    const float a_little = 0x1p-6f; /* of roundings before values are quantised */
    int32_t inner = m->gate[e].rows, hidden = m->gate[e].cols;
    const float *gate_bias = bias_of(m, e, OF_GATE), *up_bias = bias_of(m, e, OF_UP),
                *bias = bias_of(m, e, OF_DOWN);
    float *made = malloc((size_t)inner * sizeof *made);
    double *h = malloc((size_t)inner * sizeof *h), *low = malloc((size_t)inner * sizeof *h),
           *high = malloc((size_t)inner * sizeof *h), of_input = m->s.scale_input ? weight : 1;
    for (int32_t i = 0; i < inner; i++) {
        h[i] = gated(m->s.gate,
                     of_input * dot_wide(m->gate[e].values + i * hidden, x, hidden) + (double)gate_bias[i],
                     of_input * dot_wide(m->up[e].values + i * hidden, x, hidden) + (double)up_bias[i]);
        made[i] = (float)h[i];
    }
    if (m->s.fp8) {
        take_row(m, d, made, inner, 1, h);
        take_row(m, d, made, inner, 1 - a_little, low);
        take_row(m, d, made, inner, 1 + a_little, high);
    }
    if (m->s.scale_input) weight = 1;
    for (int32_t o = 0; o < hidden; o++) {
        out[o] += weight * (double)bias[o];
        tolerance[o].magnitude += fabs(weight * (double)bias[o]);
        for (int32_t i = 0; i < inner; i++) {
            double of_h = weight * (double)m->down[e].values[o * inner + i];
            out[o] += of_h * h[i];
            tolerance[o].magnitude += fabs(of_h * h[i]);
            if (m->s.fp8 && !takes_rows_as_they_are(d)) tolerance[o].jump += fabs(of_h * (high[i] - low[i]));
        }
    }
    free(h);
    free(low);
    free(high);
    free(made);
}

/* Whether the expert's group is one of those that are chosen from; *clear becomes false where that is almost a tie. */
static bool is_in_chosen_group(const struct mixture *m, const double *keys, int32_t expert, bool *clear)
{
    const struct shape *s = &m->s;
    if (s->num_groups == 0) return true;
    const int32_t size = s->num_experts / s->num_groups;
    double of_groups[EXPERTS_MAX];
    int32_t num_better = 0;
    for (int32_t g = 0; g < s->num_groups; g++) {
        double best = -INFINITY, second = -INFINITY;
        for (int32_t e = g * size; e < (g + 1) * size; e++) {
            second = fmax(second, fmin(best, keys[e]));
            best = fmax(best, keys[e]);
        }
        of_groups[g] = s->scores == ROUTER_SIGMOID ? best + second : best;
    }
    for (int32_t g = 0; g < s->num_groups; g++) {
        num_better += of_groups[g] > of_groups[expert / size];
        if (g != expert / size && fabs(of_groups[g] - of_groups[expert / size]) < 1e-3) *clear = false;
    }
    return num_better < s->num_chosen_groups;
}

/* The scores, by which chosen[] says who takes part; false where the last of them is almost a tie, but for experts
 * 1 and 2, which have the same score always. */
static bool choose(const struct mixture *m, const float *x, double *scores, bool *chosen)
{
    const struct shape *s = &m->s;
    double sum = 0, worst = INFINITY, best_other = -INFINITY, keys[EXPERTS_MAX];
    bool is_open[EXPERTS_MAX], clear = true;
    for (int32_t e = 0; e < s->num_experts; e++) {
        double logit = dot(m->router.values + e * s->hidden, x, s->hidden) + (double)m->router_bias[e];
        scores[e] = s->scores == ROUTER_SIGMOID ? 1 / (1 + exp(-logit)) : exp(logit);
        sum += scores[e];
        chosen[e] = false;
    }
    for (int32_t e = 0; e < s->num_experts; e++) {
        if (s->scores == ROUTER_SOFTMAX) scores[e] /= sum;
        keys[e] = scores[e] + (s->choice_bias ? (double)m->choice_bias[e] : 0);
    }
    for (int32_t e = 0; e < s->num_experts; e++) is_open[e] = is_in_chosen_group(m, keys, e, &clear);
    for (int32_t i = 0; i < s->num_chosen; i++) {
        int32_t best = -1;
        for (int32_t e = 0; e < s->num_experts; e++)
            if (is_open[e] && !chosen[e] && (best < 0 || keys[e] > keys[best])) best = e;
        chosen[best] = true;
        worst = keys[best];
    }
    assert_true(chosen[CROWDED_EXPERT] || !s->crowded);
    for (int32_t e = 0; e < s->num_experts; e++)
        if (is_open[e] && !chosen[e] && !(e == 2 && chosen[1])) best_other = fmax(best_other, keys[e]);
    return clear && worst - best_other > 1e-3;
}

/* e^logit of all experts become the weights of the two that were chosen; false where one is almost a tie. */
static bool weigh_sparsely(const struct mixture *m, double *scores, const bool *chosen)
{
    double weights[EXPERTS_MAX] = {0};
    bool clear = true, is_out[EXPERTS_MAX] = {false};
    for (int32_t i = 0; i < m->s.num_chosen; i++) {
        int32_t best = -1;
        double sum = 0;
        for (int32_t e = 0; e < m->s.num_experts; e++)
            if (chosen[e] && !is_out[e] && (best < 0 || scores[e] > scores[best])) best = e;
        for (int32_t e = 0; e < m->s.num_experts; e++) {
            const double logit = log(scores[e]), top = log(scores[best]),
                         far = (top - logit) / fmax(fabs(logit), top);
            if (fabs(far - (double)NEAR) < 1e-3) clear = false;
            if (far <= (double)NEAR && !is_out[e]) sum += scores[e] / scores[best];
        }
        weights[best] = 1 / sum;
        is_out[best] = true;
    }
    memcpy(scores, weights, sizeof weights);
    return clear;
}

/* What experts get where they have a space of their own, as the device has it. */
static void enter_own(const struct mixture *m, const struct device *d, const double *x, double *out)
{
    for (int32_t i = 0; i < m->s.own; i++) {
        const float value = (float)dot_wide(m->to_experts.values + i * m->s.hidden, x, m->s.hidden);
        out[i] = (double)(d->act_bytes == 2 ? dtype_bf16_to_f32(dtype_f32_to_bf16(value)) : value);
    }
}

/* made and its tolerance: [own]. */
static void leave_own(const struct mixture *m, const double *made, const struct tolerance *tolerance,
                      double *out, struct tolerance *of_out)
{
    for (int32_t i = 0; i < m->s.hidden; i++)
        for (int32_t j = 0; j < m->s.own; j++) {
            const double weight = (double)m->from_experts.values[i * m->s.own + j];
            out[i] += weight * made[j];
            of_out[i].magnitude += fabs(weight) * (fabs(made[j]) + tolerance[j].magnitude);
            of_out[i].jump += fabs(weight) * tolerance[j].jump;
        }
}

/* The chosen experts', of what they get. */
static void add_chosen(const struct mixture *m, const struct device *d, const bool *chosen,
                       const double *scores, const double *x, double *out, struct tolerance *tolerance)
{
    double sum = 0;
    for (int32_t e = 0; e < m->s.num_experts; e++) sum += chosen[e] ? scores[e] : 0;
    for (int32_t e = 0; e < m->s.num_experts; e++)
        if (chosen[e])
            add_expert(m, d, e, x, (double)m->score_factors[e] * 1.5 * scores[e] / (m->s.normalize ? sum : 1),
                       out, tolerance);
}

/* Whether the token could be checked. */
static bool check_token(const struct mixture *m, const struct device *d, int32_t token, const float *out)
{
    const struct shape *s = &m->s;
    const float *x = m->x + (size_t)token * (size_t)s->hidden;
    double taken[HIDDEN_MAX], scores[EXPERTS_MAX], *expected = calloc((size_t)s->hidden, sizeof *expected);
    struct tolerance *tolerance = calloc((size_t)s->hidden, sizeof *tolerance);
    bool chosen[EXPERTS_MAX], clear = choose(m, m->seen + (size_t)token * (size_t)s->hidden, scores, chosen);
    if (s->scores == ROUTER_SPARSE) clear = weigh_sparsely(m, scores, chosen) && clear;
    take_row(m, d, x, s->hidden, 1, taken);
    if (s->own && clear) {
        double own[HIDDEN_MAX], made[HIDDEN_MAX] = {0};
        struct tolerance of_own[HIDDEN_MAX] = {{0}};
        enter_own(m, d, taken, own);
        add_chosen(m, d, chosen, scores, own, made, of_own);
        leave_own(m, made, of_own, expected, tolerance);
    } else if (clear)
        add_chosen(m, d, chosen, scores, taken, expected, tolerance);
    double shared = m->shared_gate.values ? 1 / (1 + exp(-dot(m->shared_gate.values, x, s->hidden))) : 1;
    if (s->shared_inner && clear) add_expert(m, d, s->num_experts, taken, shared, expected, tolerance);
    double rounding = d->act_bytes == 2 ? 3 * 0x1p-8 : 64 * 0x1p-24;
    for (int32_t i = 0; i < s->hidden && clear; i++)
        if (!(fabs((double)out[i] - expected[i]) <= rounding * tolerance[i].magnitude + tolerance[i].jump))
            fail_msg("%d experts, token %d, element %d: %g, not %g", s->num_experts, token, i, (double)out[i],
                     expected[i]);
    free(expected);
    free(tolerance);
    return clear;
}

static void check_mixture(const struct shape *shape, struct device *d, struct test_step *step,
                          struct random *random)
{
    static const int32_t sizes[] = {1, 2, 7, 16, 33, 64, 129, 513, 1025};
    struct mixture m = {.s = *shape};
    size_t hidden = (size_t)shape->hidden;
    int32_t num_tokens = shape->num_tokens;
    struct error err = {0};
    float *all = malloc((size_t)num_tokens * hidden * sizeof *all),
          *part = malloc((size_t)num_tokens * hidden * sizeof *part);
    int num_checked = 0;
    if (!mixture_open(&m, d, random)) goto unsupported;
    assert_int_equal(d->ops->weights_done(d, &err), 0);
    mixture_run(&m, d, step, 0, num_tokens, all);
    for (int32_t token = 0; token < num_tokens; token += num_tokens / 30)
        num_checked += check_token(&m, d, token, all + (size_t)token * hidden);
    assert_true(num_checked > 10);
    for (size_t i = 0; i < array_length(sizes) && sizes[i] <= num_tokens; i++) {
        int32_t first = random_below(random, num_tokens - sizes[i] + 1);
        mixture_run(&m, d, step, first, sizes[i], part);
        int64_t different = num_bits_different(part, all + (size_t)first * hidden, (size_t)sizes[i] * hidden);
        if (different)
            fail_msg("%d experts: %lld results differ among %d tokens", shape->num_experts,
                     (long long)different, sizes[i]);
    }
unsupported:
    mixture_free(&m);
    free(all);
    free(part);
}

static void mixtures(const char *isa)
{
    struct random random = {.seed = test_seed()};
    struct attention_args attention = {.num_heads = 1, .num_kv_heads = 1, .head_dim = 64};
    for (size_t i = 0; i < array_length(shapes); i++) {
        if (!takes_part(i)) continue;
        int32_t num_tokens = shapes[i].num_tokens;
        struct step_limits limits = {num_tokens, 1, num_tokens, 1, num_tokens, 1, 1, 0, false, 0};
        struct error err = {0};
        struct device *d = test_device_open(isa, 1 + (int)i % 2);
        if (!d->ops->moe_create) {
            d->ops->close(d);
            skip();
        }
        assert_int_equal(d->ops->prepare(d, &limits, 64, HIDDEN_MAX, HIDDEN_MAX, &attention, 1, &err), 0);
        struct test_step *step = test_step_new(num_tokens, 1, num_tokens / BLOCK_SIZE + 1);
        check_mixture(&shapes[i], d, step, &random);
        test_step_free(step);
        d->ops->close(d);
    }
}

static void test_mixtures(void **state)
{
    (void)state;
    for_each_isa(mixtures);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mixtures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
