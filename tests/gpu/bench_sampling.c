/* bench_sampling.c - what sampling costs beyond greedy decoding: microseconds a step of a head with 128,256
 * rows and the sampler, nothing else, from recorded graphs, two steps in flight as the engine has them.
 *
 *   bench_sampling
 *
 * Rows are like a trained model's (most tokens far below some tens of good ones) or flat (normally
 * distributed with a deviation of 0.3, as a model of random weights has them). Every row of a step asks for
 * the same; masks are each row's own. */
#include "base/clock.h"
#include "kernels/fixture.h"

enum {
    VOCAB = 128256,
    HIDDEN = 512,
    ROWS_MAX = 256,
    HISTORY = 2048,
    BANNED = 267,
    WARM_STEPS = 20,
    TIMED_STEPS = 200
};

static struct logit_bias banned[BANNED];
static uint64_t forbidden[VOCAB / 64], none[VOCAB / 64]; /* the same ids, and none */
static uint64_t masks[ROWS_MAX][VOCAB / 64];             /* half of the ids */

/* What is 0 or false is off. */
struct mode {
    const char *name;
    float temperature, top_p, min_p;
    int32_t top_k, alternatives;
    bool flat, logprob, bans, penalties, forbids, masks;
};

static const struct mode modes[] = {
    {.name = "greedy"},
    {.name = "temperature", .temperature = 1},
    {.name = "temperature, flat", .temperature = 1, .flat = true},
    {.name = "top_k 20, top_p 0.95", .temperature = 0.6f, .top_k = 20, .top_p = 0.95f},
    {.name = "top_k 20, top_p 0.95, flat", .temperature = 0.6f, .top_k = 20, .top_p = 0.95f, .flat = true},
    {.name = "top_k 1000", .temperature = 1, .top_k = 1000},
    {.name = "top_k 40000", .temperature = 1, .top_k = 40000},
    {.name = "top_p 0.9", .temperature = 0.6f, .top_p = 0.9f},
    {.name = "top_p 0.99, flat", .temperature = 1, .top_p = 0.99f, .flat = true},
    {.name = "min_p 0.05", .temperature = 1, .min_p = 0.05f},
    {.name = "log probability", .logprob = true},
    {.name = "5 alternatives", .logprob = true, .alternatives = 5},
    {.name = "20 alternatives", .logprob = true, .alternatives = 20},
    {.name = "20 alternatives, flat", .logprob = true, .alternatives = 20, .flat = true},
    {.name = "267 banned", .bans = true},
    {.name = "267 forbidden", .forbids = true},
    {.name = "267 forbidden, temperature", .temperature = 1, .forbids = true},
    {.name = "masks", .masks = true},
    {.name = "masks, temperature", .temperature = 1, .masks = true},
    {.name = "masks, top_k 20, top_p 0.95", .temperature = 0.6f, .top_k = 20, .top_p = 0.95f, .masks = true},
    {.name = "penalties over 2,048 tokens", .temperature = 1, .penalties = true},
    {.name = "top_k, top_p, penalties, bans, 20",
     .temperature = 0.6f,
     .top_k = 20,
     .top_p = 0.95f,
     .logprob = true,
     .alternatives = 20,
     .bans = true,
     .penalties = true},
};

/* Columns below ROWS_MAX are like a trained model's logits, the others are flat. */
static uint16_t *make_weights(struct random *random)
{
    enum { NORMALS = 1 << 16 };
    static float normals[NORMALS];
    uint16_t *weights = malloc((size_t)VOCAB * HIDDEN * sizeof *weights);
    uint32_t state = random_bits(random);
    for (int i = 0; i < NORMALS; i++) normals[i] = random_normal(random);
    for (size_t i = 0; i < (size_t)VOCAB * HIDDEN; i++) {
        state = state * 1664525u + 1013904223u;
        float x = normals[state >> 16];
        weights[i] = dtype_f32_to_bf16(i % HIDDEN < ROWS_MAX ? 2.5f * x : 0.3f * x);
    }
    for (int column = 0; column < ROWS_MAX; column++)
        for (int i = 0; i < 64; i++)
            weights[(size_t)random_below(random, VOCAB) * HIDDEN + (size_t)column] =
                dtype_f32_to_bf16(10 + 8 * (float)random_uniform(random));
    return weights;
}

struct bench {
    struct device *d;
    struct linear *head;
    void *x;
    struct test_step *step;
};

static void bench_open(struct bench *b)
{
    struct random random = {.seed = test_seed()};
    struct error err = {0};
    uint16_t *weights = make_weights(&random);
    b->d = test_device_open("auto", 0);
    struct step_limits limits = {ROWS_MAX, ROWS_MAX, ROWS_MAX, ROWS_MAX, 2 * HISTORY, 2, 1, 0, false, 0};
    struct attention_args attention = {.num_heads = 1, .num_kv_heads = 1, .head_dim = 64};
    if (b->d->ops->prepare(b->d, &limits, VOCAB, HIDDEN, 64, &attention, 1, &err)) fail_msg("%s", err.text);
    struct linear_desc desc = {.kind = LINEAR_PLAIN, .num_parts = 1, .wide_output = true};
    desc.parts[0] = weight_view_plain(weights, DTYPE_BF16, VOCAB, HIDDEN);
    if (b->d->ops->linear_create(b->d, &desc, &b->head, &err)) fail_msg("%s", err.text);
    if (b->d->ops->weights_done(b->d, &err)) fail_msg("%s", err.text);
    b->x = device_floats(b->d, ROWS_MAX * HIDDEN, false);
    b->d->ops->seal(b->d);
    b->step = test_step_new(ROWS_MAX, ROWS_MAX, 2 * HISTORY / BLOCK_SIZE);
    free(weights);
}

static void begin_step(struct bench *b, const struct mode *m, int32_t num_rows, int32_t position)
{
    for (int32_t r = 0; r < num_rows; r++) {
        b->step->sample[r] =
            (struct sample_params){.batch_slot = r,
                                   .position = position,
                                   .score_token_id = -1,
                                   .sampling = {.temperature = m->temperature,
                                                .top_p = m->top_p > 0 ? m->top_p : 1,
                                                .min_p = m->min_p,
                                                .top_k = m->top_k,
                                                .presence_penalty = m->penalties ? 0.5f : 0,
                                                .repetition_penalty = 1,
                                                .seed = (uint64_t)r,
                                                .num_logprobs = m->logprob ? m->alternatives : -1},
                                   .logit_bias = banned,
                                   .num_logit_bias = m->bans ? BANNED : 0,
                                   .constrained = m->masks,
                                   .allowed = m->masks ? masks[r] : NULL};
    }
    struct batch *batch = b->d->ops->step_begin(b->d, &b->step->step);
    if (!b->d->ops->replay(b->d, batch)) {
        b->d->ops->record_begin(b->d, batch);
        b->d->ops->logits(b->d, batch, b->x, b->head);
        b->d->ops->record_end(b->d, batch);
    }
    b->d->ops->sample(b->d, batch);
}

static double microseconds(struct bench *b, const struct mode *m, int32_t num_rows)
{
    static struct sample_result results[ROWS_MAX];
    static int32_t history[HISTORY], blocks[1];
    static float x[ROWS_MAX * HIDDEN];
    struct random random = {.seed = 7};
    memset(x, 0, sizeof x);
    test_step_clear(b->step);
    for (int32_t i = 0; i < HISTORY; i++) history[i] = random_below(&random, VOCAB);
    for (int32_t r = 0; r < num_rows; r++) {
        test_step_add(b->step, blocks, 0, 1, true);
        x[r * HIDDEN + r + (m->flat ? ROWS_MAX : 0)] = 1;
        b->step->logit_rows[r] = r;
        assert_int_equal(b->d->ops->history_set(b->d, r, history, HISTORY / 2, HISTORY), 0);
    }
    b->step->step.num_logits = num_rows;
    b->d->ops->forbid(b->d, m->forbids ? forbidden : none);
    device_write(b->d, b->x, x, ROWS_MAX * HIDDEN, false);
    uint64_t begin_ns = 0;
    for (int i = 0; i < WARM_STEPS + TIMED_STEPS; i++) {
        begin_step(b, m, num_rows, i);
        if (i > 0) test_step_end(b->d, results);
        if (i == WARM_STEPS) begin_ns = clock_monotonic_ns();
    }
    test_step_end(b->d, results);
    for (int32_t r = 0; r < num_rows; r++) assert_false(results[r].failed);
    return (double)(clock_monotonic_ns() - begin_ns) / 1e3 / TIMED_STEPS;
}

static void print_table(void **state)
{
    static const int32_t rows[] = {1, 64, 256};
    struct bench b;
    double greedy[array_length(rows)];
    (void)state;
    struct random random = {.seed = 11};
    for (int32_t i = 0; i < BANNED; i++) {
        int32_t id = VOCAB - BANNED + i;
        banned[i] = (struct logit_bias){id, -INFINITY};
        forbidden[id / 64] |= (uint64_t)1 << id % 64;
    }
    for (int32_t r = 0; r < ROWS_MAX; r++)
        for (int32_t i = 0; i < VOCAB / 64; i++)
            masks[r][i] = (uint64_t)random_bits(&random) << 32 | random_bits(&random);
    bench_open(&b);
    printf("%-34s", "us a step and beyond greedy");
    for (size_t i = 0; i < array_length(rows); i++) printf("%11d rows    ", rows[i]);
    for (size_t m = 0; m < array_length(modes); m++) {
        printf("\n%-34s", modes[m].name);
        for (size_t i = 0; i < array_length(rows); i++) {
            double us = microseconds(&b, &modes[m], rows[i]);
            if (m == 0) greedy[i] = us;
            printf("%9.1f (%+7.1f)", us, us - greedy[i]);
            fflush(stdout);
        }
    }
    printf("\n");
    test_step_free(b.step);
    b.d->ops->close(b.d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(print_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
