/* Rotary tables against those of Hugging Face transformers (rope_goldens.h), from the same config.json. */
#include "model_bytes.h"

#include <math.h>

#include "model/hf_config.h"
#include "model/rope_table.h"
#include "rope_goldens.h"

static void read_golden_config(const struct rope_golden *golden, struct model_config *c)
{
    char directory[TEST_PATH_BYTES];
    struct generation_defaults defaults;
    struct error err = {0};
    make_directory(directory);
    write_text(directory, "config.json", golden->config);
    if (hf_config_read(directory, c, &defaults, &err)) fail_msg("%s", err.text);
    remove_directory(directory);
}

static void frequencies_equal_the_reference(void **state)
{
    (void)state;
    for (size_t g = 0; g < array_length(rope_goldens); g++) {
        const struct rope_golden *golden = &rope_goldens[g];
        struct model_config c;
        float frequencies[64];
        read_golden_config(golden, &c);
        assert_int_equal(c.rope.rotary_dim, 2 * golden->num_frequencies);
        rope_table_frequencies(&c.rope, 1, NULL, frequencies);
        for (int i = 0; i < golden->num_frequencies; i++) {
            /* both round a power and a few operations more to f32: at most three units in the last place */
            float tolerance = 3 * 0x1p-23f * golden->frequencies[i];
            if (!(fabsf(frequencies[i] - golden->frequencies[i]) <= tolerance))
                fail_msg("%s: frequency %d is %a, not %a", golden->name, i, (double)frequencies[i],
                         (double)golden->frequencies[i]);
        }
    }
}

/* With the reference's own frequencies only the cosine and sine are left to differ: one unit in the last
 * place. */
static void cosines_and_sines_equal_the_reference(void **state)
{
    (void)state;
    for (size_t g = 0; g < array_length(rope_goldens); g++) {
        const struct rope_golden *golden = &rope_goldens[g];
        int n = golden->num_frequencies * 2;
        struct model_config c;
        float row[128];
        read_golden_config(golden, &c);
        for (int p = 0; p < GOLDEN_POSITIONS; p++) {
            rope_table_fill(&c.rope, golden->frequencies, rope_table_scale(&c.rope, 1 << 20),
                            golden_positions[p], 1, row);
            for (int i = 0; i < n; i++)
                if (!(fabsf(row[i] - golden->cos_sin[p * n + i]) <= 2 * 0x1p-23f))
                    fail_msg("%s: position %d: value %d is %a, not %a", golden->name, golden_positions[p], i,
                             (double)row[i], (double)golden->cos_sin[p * n + i]);
        }
    }
}

static void rows_do_not_depend_on_where_filling_starts(void **state)
{
    (void)state;
    struct model_config c;
    float whole[8 * 64], part[3 * 64];
    read_golden_config(&rope_goldens[0], &c);
    rope_table_fill(&c.rope, rope_goldens[0].frequencies, 1, 0, 8, whole);
    rope_table_fill(&c.rope, rope_goldens[0].frequencies, 1, 5, 3, part);
    assert_memory_equal(whole + 5 * 64, part, sizeof part);
}

static void divisors_divide_the_frequencies(void **state)
{
    (void)state;
    struct rope_config rope = {.theta = 10000, .factor = 1, .attention_factor = 1, .rotary_dim = 8};
    float divisors[4] = {1, 2, 4, 8}, plain[4], divided[4];
    rope_table_frequencies(&rope, 1, NULL, plain);
    rope_table_frequencies(&rope, 1, divisors, divided);
    for (int i = 0; i < 4; i++) assert_true(divided[i] == plain[i] / divisors[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies_equal_the_reference),
        cmocka_unit_test(cosines_and_sines_equal_the_reference),
        cmocka_unit_test(rows_do_not_depend_on_where_filling_starts),
        cmocka_unit_test(divisors_divide_the_frequencies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
