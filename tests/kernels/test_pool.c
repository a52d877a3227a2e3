/* Rows that leave floats instead of tokens: means of hidden states against double precision, over one step or many,
 * whatever stands beside them; chosen logits; a row that is no number. */
#include "fixture.h"

enum { HIDDEN = 72, VOCAB = 160, SLOTS = 4, LENGTH = 48, ROWS_MAX = SLOTS * LENGTH };

struct bench {
    struct device *d;
    struct linear *head;
    struct test_step *step;
    void *x;
    float *states[SLOTS]; /* [LENGTH][HIDDEN], as an activation holds them */
    float *rows;          /* [ROWS_MAX][HIDDEN] of the step */
    struct sample_result results[ROWS_MAX];
};

static struct bench *bench_new(const char *isa, struct random *random)
{
    struct bench *b = calloc(1, sizeof *b);
    struct error err = {0};
    b->d = test_device_open(isa, 2);
    struct step_limits limits = {ROWS_MAX, SLOTS, ROWS_MAX, SLOTS, LENGTH, 1, 1, 0, false, 0};
    struct attention_args attention = {.num_heads = 1, .num_kv_heads = 1, .head_dim = 64};
    if (b->d->ops->prepare(b->d, &limits, VOCAB, HIDDEN, 64, &attention, 1, &err)) fail_msg("%s", err.text);
    float *weights = random_values(random, VOCAB * HIDDEN, 2, 0.1f);
    struct linear_desc desc = {.kind = LINEAR_PLAIN, .num_parts = 1, .wide_output = true};
    desc.parts[0] = weight_view_plain(weights, DTYPE_F32, VOCAB, HIDDEN);
    if (b->d->ops->linear_create(b->d, &desc, &b->head, &err)) fail_msg("%s", err.text);
    if (b->d->ops->weights_done(b->d, &err)) fail_msg("%s", err.text);
    free(weights);
    b->step = test_step_new(ROWS_MAX, SLOTS, LENGTH / BLOCK_SIZE);
    b->x = device_floats(b->d, ROWS_MAX * HIDDEN, false);
    b->rows = malloc(ROWS_MAX * HIDDEN * sizeof *b->rows);
    for (int i = 0; i < SLOTS; i++)
        b->states[i] = random_values(random, LENGTH * HIDDEN, b->d->act_bytes, 1.0f);
    return b;
}

static void bench_free(struct bench *b)
{
    b->d->ops->close(b->d);
    test_step_free(b->step);
    for (int i = 0; i < SLOTS; i++) free(b->states[i]);
    free(b->rows);
    free(b);
}

static void begin(struct bench *b)
{
    test_step_clear(b->step);
    b->step->step.num_pooled = 0;
}

/* Tokens [first, first + count) of the sequence of this slot; those from pool_begin on have a row. pool_end 0: the last
 * one draws greedily, or leaves the logits of ids. */
static void add(struct bench *b, int32_t slot, int32_t first, int32_t count, int32_t pool_begin,
                int32_t pool_end, const int32_t *ids, int32_t num_ids)
{
    static const int32_t blocks[SLOTS][LENGTH / BLOCK_SIZE] = {{0, 5, 7}, {1, 4, 8}, {2, 3, 9}, {6, 10, 11}};
    struct step *s = &b->step->step;
    int32_t first_token = s->num_tokens, from = pool_end > 0 ? pool_begin : first + count - 1;
    test_step_add(b->step, blocks[slot], first, count, false);
    for (int32_t p = max_of(from, first); p < first + count; p++) {
        int32_t row = s->num_logits++;
        b->step->logit_rows[row] = first_token + p - first;
        b->step->sample[row] =
            (struct sample_params){.batch_slot = slot,
                                   .position = p + 1,
                                   .score_token_id = num_ids > 0 ? 0 : -1,
                                   .sampling = {.top_p = 1, .repetition_penalty = 1, .num_logprobs = -1},
                                   .num_row_logits = num_ids,
                                   .row_logits = ids,
                                   .pool_begin = pool_begin,
                                   .pool_end = pool_end};
        s->num_pooled += pool_end > 0;
        memcpy(b->rows + row * HIDDEN, b->states[slot] + p * HIDDEN, HIDDEN * sizeof *b->rows);
    }
}

/* As the forward pass ends. logits: of all rows, [R][VOCAB]; NULL: not wanted. */
static void run(struct bench *b, float *logits)
{
    struct step *s = &b->step->step;
    const struct kernel_table *k = b->d->ops;
    device_write(b->d, b->x, b->rows, (size_t)s->num_logits * HIDDEN, false);
    struct batch *batch = k->step_begin(b->d, s);
    if (s->num_pooled > 0) k->pool(b->d, batch, b->x);
    if (s->num_pooled < s->num_logits) k->logits(b->d, batch, b->x, b->head);
    k->sample(b->d, batch);
    for (int32_t r = 0; logits && r < s->num_logits; r++)
        assert_int_equal(k->read_logits(b->d, r, logits + r * VOCAB), 0);
    memset(b->results, 0xa5, sizeof b->results);
    test_step_end(b->d, b->results);
}

static void expect_mean(struct bench *b, int32_t slot, int32_t begin, int32_t end)
{
    const float *row = b->d->ops->row(b->d, slot);
    for (int32_t i = 0; i < HIDDEN; i++) {
        double sum = 0;
        for (int32_t p = begin; p < end; p++) sum += (double)b->states[slot][p * HIDDEN + i];
        assert_float_equal(row[i], (float)(sum / (end - begin)), 0);
    }
}

static void expect_none_failed(const struct bench *b)
{
    for (int32_t r = 0; r < b->step->step.num_logits; r++) assert_false(b->results[r].failed);
}

static void check_means(const char *isa)
{
    struct random random = {test_seed(), 0};
    struct bench *b = bench_new(isa, &random);
    for (int round = 0; round < 20; round++) {
        int32_t n = 3 + random_below(&random, LENGTH - 3), a = 1 + random_below(&random, n - 2),
                c = a + 1 + random_below(&random, n - a - 1);
        begin(b); /* in one step, beside others that end in it or do not */
        add(b, 0, 0, n, 0, n, NULL, 0);
        add(b, 1, 0, LENGTH, LENGTH - 1, LENGTH, NULL, 0);
        add(b, 2, 0, a, 0, n, NULL, 0);
        run(b, NULL);
        expect_none_failed(b);
        expect_mean(b, 0, 0, n);
        expect_mean(b, 1, LENGTH - 1, LENGTH);
        begin(b); /* one that draws stands between them, and is not disturbed */
        add(b, 3, 0, 5, 0, 0, NULL, 0);
        add(b, 2, a, c - a, 0, n, NULL, 0);
        run(b, NULL);
        expect_none_failed(b);
        int32_t drawn = b->results[0].token_id;
        begin(b);
        add(b, 2, c, n - c, 0, n, NULL, 0);
        add(b, 3, 0, 5, 0, 0, NULL, 0);
        run(b, NULL);
        expect_none_failed(b);
        expect_mean(b, 2, 0, n);
        assert_int_equal(b->results[n - c].token_id, drawn);
    }
    bench_free(b);
}

static void test_means(void **state)
{
    (void)state;
    for_each_isa(check_means);
}

static void check_logits(const char *isa)
{
    static const int32_t ids[ROW_LOGITS_MAX] = {0, 159, 7, 7, 64, 31, 100, 2};
    static float logits[ROWS_MAX * VOCAB];
    struct random random = {test_seed(), 0};
    struct bench *b = bench_new(isa, &random);
    begin(b);
    add(b, 0, 0, 9, 0, 9, NULL, 0);
    add(b, 1, 0, 7, 0, 0, ids, ROW_LOGITS_MAX);
    add(b, 2, 0, 7, 0, 0, ids + 1, 2);
    add(b, 3, 0, 7, 0, 0, NULL, 0);
    run(b, logits);
    expect_none_failed(b);
    for (int i = 0; i < ROW_LOGITS_MAX; i++)
        assert_float_equal(b->d->ops->row(b->d, 1)[i], logits[9 * VOCAB + ids[i]], 0);
    for (int i = 0; i < 2; i++)
        assert_float_equal(b->d->ops->row(b->d, 2)[i], logits[10 * VOCAB + ids[1 + i]], 0);
    expect_mean(b, 0, 0, 9);
    bench_free(b);
}

static void test_logits(void **state)
{
    (void)state;
    for_each_isa(check_logits);
}

static void check_failures(const char *isa)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    struct random random = {test_seed(), 0};
    struct bench *b = bench_new(isa, &random);
    for (size_t i = 0; i < array_length(bad); i++) {
        b->states[0][3 * HIDDEN + (int)i * 31] = bad[i];
        begin(b);
        add(b, 0, 0, 6, 0, 6, NULL, 0);
        add(b, 1, 0, 6, 0, 6, NULL, 0);
        run(b, NULL);
        for (int32_t r = 0; r < 12; r++) assert_int_equal(b->results[r].failed, r == 3);
        expect_mean(b, 1, 0, 6);
        b->states[0][3 * HIDDEN + (int)i * 31] = 0;
    }
    begin(b); /* the sum begins anew */
    add(b, 0, 0, 6, 0, 6, NULL, 0);
    run(b, NULL);
    expect_none_failed(b);
    expect_mean(b, 0, 0, 6);
    bench_free(b);
}

static void test_failures(void **state)
{
    (void)state;
    for_each_isa(check_failures);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_means),
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
