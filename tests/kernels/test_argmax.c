/* test_argmax.c - greedy decoding without logits chooses the token that sampling chooses from the logits. */
#include "kernels/cpu/sample_row.h"
#include "tests/kernels/linear_cases.h"

enum { THREADS_MAX = 3, VALUES_MAX = 400, NUM_SIZES = 5 };
#ifdef FLASHD_DEBUG
enum { SIZES_STEP = NUM_SIZES }; /* a sanitized build takes its time: one size for a type and a set */
#else
enum { SIZES_STEP = 1 };
#endif

static struct random_source random_numbers;
static struct thread_pool *pools[THREADS_MAX];

static int start(void **state)
{
    (void)state;
    random_numbers = random_source_new();
    print_message("FLASHD_TEST_SEED=%llu\n", (unsigned long long)random_numbers.seed);
    for (int i = 0; i < THREADS_MAX; i++) {
        struct error err;
        if (thread_pool_create(i + 1, &pools[i], &err)) return -1;
    }
    return 0;
}

static int stop(void **state)
{
    (void)state;
    for (int i = 0; i < THREADS_MAX; i++) thread_pool_destroy(pools[i]);
    return 0;
}

static int below(int limit)
{
    /* limit itself where it was rounded up */
    const int drawn = (int)random_uniform(&random_numbers, 0, (float)limit);
    return min_of(drawn, limit - 1);
}

/* What the path with logits makes of a row; -1: it failed. */
static int32_t token_of_logits(enum cpu_isa_level isa, const float *logits, int32_t num,
                               const uint64_t *forbidden)
{
    struct sampling_scratch scratch = {.ids = test_alloc((size_t)num * sizeof(int32_t)),
                                       .values = test_alloc((size_t)num * sizeof(float))};
    const struct sample_params greedy = {.score_token_id = -1,
                                         .sampling.top_p = 1,
                                         .sampling.repetition_penalty = 1,
                                         .sampling.num_logprobs = -1};
    struct history history = {0};
    struct sample_result result;
    assert_true(sampling_is_plain_greedy(&greedy));
    sampling_row(cpu_isa_kernels(isa)->rows, &scratch, &history, NULL, logits, num, forbidden, &greedy,
                 &result);
    free(scratch.ids);
    free(scratch.values);
    return result.failed ? -1 : result.token_id;
}

/* The same by sample_row.h's words. */
static int32_t token_by_definition(const float *logits, int32_t num, const uint64_t *forbidden)
{
    int32_t best = -1;
    for (int32_t i = 0; i < num; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY) return -1;
        if (forbidden && bit_set_has(forbidden, (size_t)i)) continue;
        if (logits[i] > (best < 0 ? -INFINITY : logits[best])) best = i;
    }
    return best;
}

/* Values that are often equal; the worse kinds are rare, so that most rows have a token. */
static float hostile_value(int kind)
{
    const float rare[] = {NAN, -NAN, INFINITY, -INFINITY};
    if (kind == 0) return -INFINITY;
    if (below(600) == 0) return rare[below(4)];
    if (kind == 1) return below(2) ? 0.0f : -0.0f;
    if (kind == 2) return (float)(below(3) - 3) * 0x1p-140f;
    return below(4) == 0 ? -INFINITY : (float)(below(5) - 3);
}

/* values[num] in panels dealt out to shares at random, each share's in ascending order. */
static int32_t token_of_panels(enum cpu_isa_level isa, const float *values, int32_t num, int num_shares)
{
    struct argmax shares[THREADS_MAX];
    for (int i = 0; i < num_shares; i++) argmax_clear(&shares[i]);
    for (int32_t col = 0; col < num; col += PANEL_ROWS) {
        _Alignas(64) float results[PANEL_ROWS];
        for (int r = 0; r < PANEL_ROWS; r++) results[r] = col + r < num ? values[col + r] : -INFINITY;
        case_kernels(isa)->argmax_add(1, results, col, &shares[below(num_shares)]);
    }
    return argmax_col(shares, num_shares, 1);
}

static void test_panels_against_rows(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    {
        int num_failed = 0;
        for (int i = 0; i < 4000; i++) {
            float values[VALUES_MAX];
            const int32_t num = 1 + below(i % 2 ? VALUES_MAX : 40);
            const int kind = i % 100 == 0 ? 0 : 1 + below(3);
            for (int32_t v = 0; v < num; v++) values[v] = hostile_value(kind);
            const int32_t expected = token_by_definition(values, num, NULL);
            assert_int_equal(token_of_logits(isa, values, num, NULL), expected);
            assert_int_equal(token_of_panels(isa, values, num, 1 + below(THREADS_MAX)), expected);
            num_failed += expected < 0;
        }
        assert_in_range(num_failed, 40, 3000); /* both outcomes were tried */
    }
}

/* Only a few different rows, so that the highest result is met again and again. */
static void repeat_rows(struct linear_case *c, int num_different)
{
    const struct weight_view *const w = &c->desc.parts[0];
    const uint64_t row_bytes = dtype_row_bytes(w->dtype, (uint64_t)w->cols);
    for (int64_t row = num_different; row < w->rows; row++)
        memcpy(c->data[0] + 1 + (uint64_t)row * row_bytes,
               c->data[0] + 1 + (uint64_t)below(num_different) * row_bytes, row_bytes);
}

static void check_argmax(const struct linear_case *c, const struct linear *l, int num_threads,
                         const float *out, const uint64_t *forbidden)
{
    struct thread_pool *const pool = pools[num_threads - 1];
    int32_t *const cols = test_alloc((size_t)c->num_tokens * sizeof *cols);
    const size_t share_bytes = (size_t)c->num_tokens * (size_t)num_threads * sizeof(struct argmax);
    struct argmax *const shares = test_alloc(share_bytes);
    void *const scratch = poisoned(cpu_linear_scratch_bytes(c->num_tokens, c->cols) / sizeof(float));
    memset(shares, 0xa5, share_bytes);
    cpu_linear_argmax(l, pool, scratch, shares, c->num_tokens, c->x, forbidden, cols);
    for (int t = 0; t < c->num_tokens; t++) {
        const float *const row = out + (int64_t)t * c->rows;
        assert_int_equal(cols[t], token_by_definition(row, c->rows, forbidden));
        assert_int_equal(cols[t], token_of_logits(c->isa, row, c->rows, forbidden));
    }
    assert_int_equal(cols[c->num_tokens / 2], -1); /* it holds a NaN */
    free(scratch);
    free(shares);
    free(cols);
}

static void check_product(struct linear_case *c)
{
    const int chances[] = {1, 2, 30}; /* one in so many is forbidden; with 1 there is nothing left */
    uint64_t *const forbidden = test_alloc(bit_set_words((size_t)c->rows) * sizeof *forbidden);
    for (int i = 0; i < THREADS_MAX; i++) {
        struct linear *const l = case_create(c, pools[i]);
        float *const out = case_run(c, l, pools[i], c->num_tokens, c->x);
        memset(forbidden, 0, bit_set_words((size_t)c->rows) * sizeof *forbidden);
        for (int id = 0; id < c->rows; id++)
            forbidden[id / 64] |= (uint64_t)(below(chances[i]) == 0) << id % 64;
        check_argmax(c, l, i + 1, out, NULL);
        check_argmax(c, l, i + 1, out, forbidden);
        free(out);
        cpu_linear_destroy(l);
    }
    free(forbidden);
}

/* The product that keeps its results to itself, against the one that writes them. */
static void test_products(void **state)
{
    const int rows[NUM_SIZES] = {1, 15, 16, 37, 600}, num_tokens[NUM_SIZES] = {2, 1, 7, 33, 130};
    (void)state;
    FOR_EACH_ISA(isa)
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        for (int i = ((int)isa + dtype) % SIZES_STEP; i < NUM_SIZES; i += SIZES_STEP) {
            struct linear_case c = {.isa = isa, .cols = cols_for(dtype, 3)};
            case_add_part(&c, &random_numbers, dtype, rows[i], i % 2);
            if (i != 3) repeat_rows(&c, min_of(rows[i], 4));
            case_add_tokens(&c, &random_numbers, num_tokens[i]);
            if (num_tokens[i] > 2) memset(c.x, 0, (size_t)c.cols * sizeof *c.x); /* every result is equal */
            c.x[(int64_t)(num_tokens[i] / 2) * c.cols + c.cols / 2] = NAN;
            check_product(&c);
            case_free(&c);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_panels_against_rows),
        cmocka_unit_test(test_products),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
