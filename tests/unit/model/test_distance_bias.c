/* Buckets of distances against transformers' (MPNetEncoder.relative_position_bucket, the same in float32 for all to 1000). */
#include "unit/model/model_bytes.h"

#include "base/check.h"
#include "model/distance_bias.h"

static void buckets_are_transformers(void **state)
{
    (void)state;
    static const int32_t firsts[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91};
    int32_t bucket = 0;
    for (int32_t n = 0; n <= DISTANCE_REACH; n++) {
        if (bucket + 1 < (int32_t)array_length(firsts) && n == firsts[bucket + 1]) bucket++;
        assert_int_equal(distance_bucket(-n), bucket);
        assert_int_equal(distance_bucket(n), n > 0 ? bucket + DISTANCE_BUCKETS / 2 : 0);
    }
    assert_int_equal(bucket, DISTANCE_BUCKETS / 2 - 1);
}

static void a_row_a_head(void **state)
{
    (void)state;
    enum { HEADS = 3 };
    float values[DISTANCE_BUCKETS * HEADS], row[HEADS], out[HEADS * DISTANCE_ROW];
    for (int i = 0; i < DISTANCE_BUCKETS * HEADS; i++) values[i] = (float)i;
    const struct weight_view buckets = weight_view_plain(values, DTYPE_F32, DISTANCE_BUCKETS, HEADS);
    distance_bias_fill(&buckets, row, out);
    for (int32_t head = 0; head < HEADS; head++)
        for (int32_t distance = -DISTANCE_REACH; distance <= DISTANCE_REACH; distance++)
            assert_float_equal(out[head * DISTANCE_ROW + DISTANCE_REACH + distance],
                               (float)(distance_bucket(distance) * HEADS + head), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_are_transformers),
        cmocka_unit_test(a_row_a_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
