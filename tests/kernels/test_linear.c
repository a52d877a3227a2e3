/* The CPU's matrix products, every instruction set that this machine has. */
#include "tests/kernels/linear_cases.h"

static struct random_source random_numbers;
static struct thread_pool *pools[3]; /* of 1, 2, 3 threads */

static int start(void **state)
{
    (void)state;
    random_numbers = random_source_new();
    print_message("FLASHD_TEST_SEED=%llu\n", (unsigned long long)random_numbers.seed);
    for (int i = 0; i < 3; i++) {
        struct error err;
        if (thread_pool_create(i + 1, &pools[i], &err)) return -1;
    }
    return 0;
}

static int stop(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) thread_pool_destroy(pools[i]);
    return 0;
}

static void test_outputs_are_within_bounds(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa) check_all_dtypes(isa, pools[1], &random_numbers);
}

/* Outputs of the whole case; then of each row alone, and of batches of some of the rows, on other pools. */
static void check_same_bits(const struct linear_case *c)
{
    const int batches[] = {2, 3, 4, 5, 6, 7, 8, 9, 17, 64};
    const int n = case_num_outputs(c);
    struct linear *const l = case_create(c, pools[0]);
    float *const all = case_run(c, l, pools[0], c->num_tokens, c->x);
    for (int t = 0; t < c->num_tokens; t++) {
        float *const alone = case_run(c, l, pools[t % 3], 1, c->x + (int64_t)t * c->cols);
        assert_memory_equal(alone, all + (int64_t)t * n, (size_t)n * sizeof *all);
        free(alone);
    }
    for (size_t i = 0; i < array_length(batches); i++) {
        const int first = (int)(random_uniform(&random_numbers, 0, 1) * (float)(c->num_tokens - batches[i]));
        for (int p = 0; p < 3; p++) {
            float *const some = case_run(c, l, pools[p], batches[i], c->x + (int64_t)first * c->cols);
            assert_memory_equal(some, all + (int64_t)first * n, (size_t)batches[i] * (size_t)n * sizeof *all);
            free(some);
        }
    }
    free(all);
    cpu_linear_destroy(l);
}

static void test_bits_do_not_depend_on_the_batch_or_the_threads(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa) for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
    {
        struct linear_case c = {.isa = isa, .cols = cols_for(dtype, 3)};
        case_add_part(&c, &random_numbers, dtype, 83, true);
        case_add_tokens(&c, &random_numbers, 65 + dtype % 2 * 64); /* one more than a tile or two */
        check_same_bits(&c);
        case_free(&c);
    }
}

/* The SIMD sets share one order of summation for each dtype. */
static void test_simd_sets_agree_bit_for_bit(void **state)
{
    (void)state;
    if (!cpu_isa_has(CPU_ISA_AVX2)) skip();
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        struct linear_case c = {.isa = CPU_ISA_AVX2, .cols = cols_for(dtype, 4)};
        case_add_part(&c, &random_numbers, dtype, 50, true);
        case_add_tokens(&c, &random_numbers, 23);
        struct linear *l = case_create(&c, pools[0]);
        float *const out_avx2 = case_run(&c, l, pools[0], c.num_tokens, c.x);
        cpu_linear_destroy(l);
        for (c.isa = CPU_ISA_AVX2 + 1; c.isa < CPU_ISA_COUNT; c.isa++) {
            if (!cpu_isa_has(c.isa)) continue;
            l = case_create(&c, pools[0]);
            float *const out = case_run(&c, l, pools[0], c.num_tokens, c.x);
            assert_memory_equal(out, out_avx2, (size_t)c.num_tokens * (size_t)c.rows * sizeof *out);
            free(out);
            cpu_linear_destroy(l);
        }
        free(out_avx2);
        case_free(&c);
    }
}

/* Parts of different dtypes and forms of activations: q and k in 4 bits, v in 6; with and without biases. */
static void test_parts_may_differ(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    {
        struct linear_case c = {.isa = isa, .cols = 512};
        case_add_part(&c, &random_numbers, DTYPE_Q4_1, 40, true);
        case_add_part(&c, &random_numbers, DTYPE_Q6_K, 24, false);
        case_add_part(&c, &random_numbers, DTYPE_BF16, 17, true);
        case_add_tokens(&c, &random_numbers, 130);
        struct linear *const l = case_create(&c, pools[2]);
        float *const out = case_run(&c, l, pools[2], c.num_tokens, c.x);
        case_check_outputs(&c, out);
        free(out);
        cpu_linear_destroy(l);
        check_same_bits(&c);
        case_free(&c);
    }
}

static void test_gate_up(void **state)
{
    (void)state;
    const enum dtype dtypes[][2] = {{DTYPE_Q4_1, DTYPE_Q4_1},
                                    {DTYPE_Q4_K, DTYPE_Q6_K},
                                    {DTYPE_F32, DTYPE_F16},
                                    {DTYPE_TQ2_0, DTYPE_TQ2_0}};
    const enum gate_function gates[] = {GATE_SILU, GATE_GELU, GATE_GELU_TANH, GATE_RELU_SQUARED};
    FOR_EACH_ISA(isa) for (int i = 0; i < (int)array_length(gates); i++)
    {
        struct linear_case c = {.isa = isa, .cols = 512, .desc.kind = LINEAR_GATE_UP};
        c.desc.gate = gates[i];
        for (int j = 0; j < 2; j++) case_add_part(&c, &random_numbers, dtypes[i][j], 45, i == 1);
        case_add_tokens(&c, &random_numbers, 70);
        struct linear *const l = case_create(&c, pools[1]);
        float *const out = case_run(&c, l, pools[1], c.num_tokens, c.x);
        case_check_outputs(&c, out);
        free(out);
        cpu_linear_destroy(l);
        check_same_bits(&c);
        case_free(&c);
    }
}

static void test_up_without_a_gate(void **state)
{
    (void)state;
    const enum dtype dtypes[] = {DTYPE_F32,  DTYPE_BF16, DTYPE_Q4_K, DTYPE_F32, DTYPE_Q4_K,
                                 DTYPE_BF16, DTYPE_F32,  DTYPE_Q4_K, DTYPE_BF16};
    const enum gate_function gates[] = {GATE_GELU,         GATE_GELU,         GATE_GELU,
                                        GATE_RELU_SQUARED, GATE_RELU_SQUARED, GATE_GELU_TANH,
                                        GATE_XIELU,        GATE_XIELU,        GATE_RELU};
    FOR_EACH_ISA(isa) for (int i = 0; i < (int)array_length(gates); i++)
    {
        struct linear_case c = {.isa = isa, .cols = 512, .desc = {.kind = LINEAR_UP, .gate = gates[i]}};
        memcpy(c.desc.gate_values, xielu_values, sizeof xielu_values);
        case_add_part(&c, &random_numbers, dtypes[i], 77, i != 1);
        case_add_tokens(&c, &random_numbers, 70);
        struct linear *const l = case_create(&c, pools[1]);
        float *const out = case_run(&c, l, pools[1], c.num_tokens, c.x);
        case_check_outputs(&c, out);
        free(out);
        cpu_linear_destroy(l);
        check_same_bits(&c);
        case_free(&c);
    }
}

/* The two NaNs and the infinities of one row reach its outputs, and no others. */
static void test_nan_stays_in_its_row(void **state)
{
    (void)state;
    const float evil[] = {NAN, -NAN, INFINITY, -INFINITY};
    FOR_EACH_ISA(isa) for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) for (int i = 0; i < 4; i++)
    {
        struct linear_case c = {.isa = isa, .cols = cols_for(dtype, 3)};
        case_add_part(&c, &random_numbers, dtype, 20, false);
        case_add_tokens(&c, &random_numbers, 9);
        struct linear *const l = case_create(&c, pools[0]);
        float *const clean = case_run(&c, l, pools[0], c.num_tokens, c.x);
        c.x[4 * c.cols + 21] = evil[i];
        float *const out = case_run(&c, l, pools[0], c.num_tokens, c.x);
        for (int n = 0; n < c.rows; n++) assert_false(isfinite(out[4 * c.rows + n]));
        memcpy(out + 4 * c.rows, clean + 4 * c.rows, (size_t)c.rows * sizeof *out);
        assert_memory_equal(out, clean, (size_t)c.num_tokens * (size_t)c.rows * sizeof *out);
        free(out);
        free(clean);
        cpu_linear_destroy(l);
        case_free(&c);
    }
}

static void test_extreme_activations(void **state)
{
    (void)state;
    const float magnitudes[] = {1e-45f, 1e-31f, 1e-25f, 1e15f, 1e30f};
    FOR_EACH_ISA(isa) for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) for (int i = 0; i < 5; i++)
    {
        struct linear_case c = {.isa = isa, .cols = cols_for(dtype, 1)};
        case_add_part(&c, &random_numbers, dtype, 16, false);
        case_add_tokens(&c, &random_numbers, 3);
        for (int k = 0; k < 3 * c.cols; k++) c.x[k] = magnitudes[i] * (float)(k % 3 - 1);
        struct linear *const l = case_create(&c, pools[0]);
        float *const out = case_run(&c, l, pools[0], 3, c.x);
        for (int t = 0; t < 3; t++) {
            for (int n = 0; n < 16; n++) {
                const struct expected e = case_expected(&c, t, n);
                assert_true(fabs(out[t * 16 + n] - e.value) <=
                            e.bound + 1e-27); /* tiny blocks may count as zero */
            }
        }
        free(out);
        cpu_linear_destroy(l);
        case_free(&c);
    }
}

/* Each quantised activation, and its sums, in every set as in plain C. */
static void test_packed_activations_agree(void **state)
{
    (void)state;
    enum { COLS = 32 * 50, BYTES = COLS * 2 };
    float *const x = test_alloc(COLS * sizeof *x);
    for (int i = 0; i < COLS; i++) x[i] = ldexpf(random_normal(&random_numbers), i / 32 * 4 - 100);
    x[70] = NAN;
    x[100] = -INFINITY;
    memset(x + 192, 0, 32 * sizeof *x);
    FOR_EACH_ISA(isa)
    {
        if (isa == CPU_ISA_PORTABLE) continue;
        for (enum act_form form = ACT_INT8; form <= ACT_INT16; form++) {
            act_pack *const reference = form == ACT_INT8 ? act_pack_int8 : act_pack_int16;
            uint8_t *const expected = test_alloc(BYTES), *const got = test_alloc(BYTES);
            struct act_scale expected_scales[COLS / 32], got_scales[COLS / 32];
            reference(x, COLS, 0, 1, expected, expected_scales);
            case_kernels(isa)->pack[form](x, COLS, 0, 1, got, got_scales);
            assert_memory_equal(got, expected, (size_t)(COLS / 32 * act_block_bytes(form)));
            for (int b = 0; b < COLS / 32; b++) {
                const float *const g = &got_scales[b].scale, *const e = &expected_scales[b].scale;
                for (int i = 0; i < 4; i++) assert_true(g[i] == e[i] || (isnan(g[i]) && isnan(e[i])));
            }
            free(expected);
            free(got);
        }
    }
    free(x);
}

/* The tie of embeddings: rows come out of the panels as they went in. */
static void test_embedding_rows_are_exact(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        struct linear_case c = {.cols = cols_for(dtype, 3)};
        case_add_part(&c, &random_numbers, dtype, 35, false);
        case_add_part(&c, &random_numbers, dtype, 3, false);
        struct linear *const l = case_create(&c, pools[1]);
        float *const row = poisoned((size_t)c.cols);
        for (int n = 0; n < c.rows; n++) {
            cpu_linear_embed_row(l, n, row);
            assert_memory_equal(row, c.weights + (int64_t)n * c.cols, (size_t)c.cols * sizeof *row);
        }
        free(row);
        cpu_linear_destroy(l);
        case_free(&c);
    }
}

static void test_packed_weights_are_not_expanded(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        struct linear_case c = {.cols = 2048};
        case_add_part(&c, &random_numbers, dtype, 64, false);
        struct linear *const l = case_create(&c, pools[0]);
        const uint64_t file_bytes = 64 * dtype_row_bytes(dtype, 2048);
        /* codes bring their scales along: of every 32 columns, or of 16; grids' signs and scales lie in whole bits and bytes, digits of
         * three in two bits */
        const uint64_t more = dtype == DTYPE_U4 || dtype == DTYPE_F4_E2M1    ? file_bytes / 2
                              : dtype_is_code(dtype) || dtype == DTYPE_MXFP4 ? file_bytes / 16
                              : dtype_is_grid(dtype)                         ? file_bytes / 6
                              : dtype == DTYPE_TQ1_0                         ? file_bytes / 4
                                                                             : file_bytes / 27;
        assert_in_range(cpu_linear_bytes(l), file_bytes, file_bytes + more);
        cpu_linear_destroy(l);
        case_free(&c);
    }
}

/* Files may have any bytes: outputs are then whatever they are, NaN too, but the SIMD sets' are the same. */
static void test_damaged_weights_do_no_harm(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        struct linear_case c = {.cols = cols_for(dtype, 3)};
        case_add_part(&c, &random_numbers, dtype, 40, false);
        case_add_tokens(&c, &random_numbers, 19);
        const size_t num_bytes = 40 * dtype_row_bytes(dtype, (uint64_t)c.cols);
        for (size_t i = 0; i < num_bytes; i++)
            c.data[0][1 + i] = (uint8_t)(random_uniform(&random_numbers, 0, 1) * 256);
        float *expected = NULL;
        for (c.isa = CPU_ISA_PORTABLE; c.isa < CPU_ISA_COUNT; c.isa++) {
            if (!cpu_isa_has(c.isa)) continue;
            struct linear *const l = case_create(&c, pools[0]);
            float *const out = case_run(&c, l, pools[0], c.num_tokens, c.x);
            for (int i = 0; i < c.num_tokens * c.rows && expected; i++)
                assert_true((isnan(out[i]) && isnan(expected[i])) ||
                            !memcmp(&out[i], &expected[i], sizeof *out));
            if (c.isa == CPU_ISA_PORTABLE || expected)
                free(out);
            else
                expected = out;
            cpu_linear_destroy(l);
        }
        free(expected);
        case_free(&c);
    }
}

static void check_refused(struct linear_desc desc, int status)
{
    struct linear *l;
    struct error err;
    assert_int_equal(cpu_linear_create(&desc, CPU_ISA_PORTABLE, pools[0], &l, &err), status);
    assert_null(l);
    assert_true(strlen(err.text) > 0);
}

static void test_wrong_shapes_are_refused(void **state)
{
    (void)state;
    uint8_t data[4096] = {0};
    const struct weight_view good = weight_view_plain(data, DTYPE_Q8_0, 2, 64);
    check_refused((struct linear_desc){.num_parts = 0}, STATUS_INVALID);
    check_refused((struct linear_desc){.num_parts = 1, .parts = {weight_view_plain(data, DTYPE_Q8_0, 2, 63)}},
                  STATUS_INVALID);
    check_refused(
        (struct linear_desc){.num_parts = 1, .parts = {weight_view_plain(data, DTYPE_Q4_K, 2, 128)}},
        STATUS_INVALID);
    check_refused((struct linear_desc){.num_parts = 1, .parts = {weight_view_plain(data, DTYPE_Q8_0, 0, 64)}},
                  STATUS_INVALID);
    check_refused((struct linear_desc){.num_parts = 1, .parts = {weight_view_plain(data, DTYPE_F32, 2, 0)}},
                  STATUS_INVALID);
    check_refused(
        (struct linear_desc){.num_parts = 2, .parts = {good, weight_view_plain(data, DTYPE_Q8_0, 2, 96)}},
        STATUS_INVALID);
    check_refused((struct linear_desc){.num_parts = 1,
                                       .parts = {good},
                                       .biases = {weight_view_plain(data, DTYPE_F32, 1, 3)}},
                  STATUS_INVALID);
    check_refused((struct linear_desc){.kind = LINEAR_GATE_UP, .num_parts = 1, .parts = {good}},
                  STATUS_INVALID);
    check_refused((struct linear_desc){.kind = LINEAR_GATE_UP,
                                       .num_parts = 2,
                                       .parts = {good, weight_view_plain(data, DTYPE_Q8_0, 3, 64)}},
                  STATUS_INVALID);
}

/* A device that computed with the values alone would be wrong without a word. */
static void test_schemes_and_slices_are_refused(void **state)
{
    (void)state;
    uint8_t data[4096] = {0};
    const struct weight_view good = weight_view_plain(data, DTYPE_Q8_0, 2, 64);
    struct weight_view scaled = good, shifted = good, later = good, fewer_rows = good, fewer_cols = good;
    scaled.scheme = (enum weight_scheme)(WEIGHT_PLAIN + 1);
    shifted.codes.zeros = (struct weight_side){.data = data, .rows = 2, .cols = 2};
    later.slice.row_begin = 1;
    fewer_rows.slice.row_end = 1;
    fewer_cols.slice.col_end = 32;
    const struct weight_view unknown[] = {scaled, shifted, later, fewer_rows, fewer_cols};
    for (size_t i = 0; i < array_length(unknown); i++)
        check_refused((struct linear_desc){.num_parts = 2, .parts = {good, unknown[i]}}, STATUS_UNSUPPORTED);
    struct weight_view bias = weight_view_plain(data, DTYPE_F32, 1, 2);
    bias.scheme = scaled.scheme;
    check_refused((struct linear_desc){.num_parts = 1, .parts = {good}, .biases = {bias}},
                  STATUS_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outputs_are_within_bounds),
        cmocka_unit_test(test_bits_do_not_depend_on_the_batch_or_the_threads),
        cmocka_unit_test(test_simd_sets_agree_bit_for_bit),
        cmocka_unit_test(test_parts_may_differ),
        cmocka_unit_test(test_gate_up),
        cmocka_unit_test(test_up_without_a_gate),
        cmocka_unit_test(test_nan_stays_in_its_row),
        cmocka_unit_test(test_extreme_activations),
        cmocka_unit_test(test_packed_activations_agree),
        cmocka_unit_test(test_embedding_rows_are_exact),
        cmocka_unit_test(test_packed_weights_are_not_expanded),
        cmocka_unit_test(test_damaged_weights_do_no_harm),
        cmocka_unit_test(test_wrong_shapes_are_refused),
        cmocka_unit_test(test_schemes_and_slices_are_refused),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
