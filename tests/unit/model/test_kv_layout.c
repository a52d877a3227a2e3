#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <string.h>

#include <cmocka.h>

#include "base/bit_set.h"
#include "model/kv_layout.h"

static struct model_config config;

/* period: every so many layers one sees all; 0: none does. */
static struct kv_layout layout_of(int32_t num_layers, int32_t period, int32_t window, int32_t max_model_len)
{
    model_config_init(&config);
    config.num_layers = num_layers;
    config.sliding_window = window;
    if (window > 0) model_config_add_layers(config.windowed_layers, num_layers, period);
    return kv_layout_of(&config, max_model_len);
}

static void expect_layout(struct kv_layout l, int32_t layers_per_block, int32_t num_full,
                          int32_t num_windowed)
{
    assert_int_equal(l.layers_per_block, layers_per_block);
    assert_int_equal(l.num_full, num_full);
    assert_int_equal(l.num_windowed, num_windowed);
    assert_int_equal(l.window > 0, num_windowed > 0);
}

static void test_known_models(void **state)
{
    (void)state;
    expect_layout(layout_of(32, 0, 0, 131072), 32, 1, 0);    /* no windows */
    expect_layout(layout_of(32, 0, 4096, 32768), 32, 0, 1);  /* Mistral 7B */
    expect_layout(layout_of(26, 2, 4096, 8192), 13, 1, 1);   /* Gemma 2 2B */
    expect_layout(layout_of(24, 2, 128, 131072), 12, 1, 1);  /* gpt-oss 20b */
    expect_layout(layout_of(32, 4, 4096, 65536), 8, 1, 3);   /* OLMo 3 7B */
    expect_layout(layout_of(48, 6, 1024, 131072), 8, 1, 5);  /* Gemma 3 12B */
    expect_layout(layout_of(26, 6, 512, 32768), 4, 1, 6);    /* Gemma 3 1B: 22 and 4, 2 places empty */
    expect_layout(layout_of(62, 6, 1024, 131072), 13, 1, 4); /* Gemma 3 27B: 52 and 10, 3 places empty */
}

/* A block is filled by groups of one kind; of both as many layers fit as have room. */
static void test_layers_of_other_heads(void **state)
{
    (void)state;
    static const struct {
        int32_t num_layers, period;
        struct head_config full, windowed;
        int32_t full_per_block, windowed_per_block, num_full, num_windowed;
    } models[] = {
        {60, 6, {4, 512, 0}, {16, 256, 0}, 20, 10, 1, 5}, /* Gemma 4 31B */
        {30, 6, {2, 512, 0}, {8, 256, 0}, 10, 5, 1, 5},   /* 26B-A4B */
        {15, 5, {1, 512, 0}, {1, 256, 0}, 3, 6, 1, 2},    /* E2B: the layers that keep K and V */
        {24, 6, {2, 512, 0}, {2, 256, 0}, 2, 4, 2, 5},    /* E4B: the same */
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        (void)layout_of(models[i].num_layers, models[i].period, 512, 1000);
        config.num_kv_heads = models[i].full.num_kv_heads;
        config.head_dim = models[i].full.head_dim;
        config.window_heads = models[i].windowed;
        const struct kv_layout l = kv_layout_of(&config, 1000), same = kv_layout_of(&config, 100),
                               single = kv_layout_single(&config);
        expect_layout(l, models[i].full_per_block, models[i].num_full, models[i].num_windowed);
        assert_int_equal(l.windowed_per_block, models[i].windowed_per_block);
        assert_int_equal(same.windowed_per_block, l.windowed_per_block);
        assert_int_equal(single.windowed_per_block, l.windowed_per_block);
        expect_layout(same, models[i].full_per_block, models[i].num_full, models[i].num_windowed);
        assert_true(kv_layout_block_bytes(&l, &config, DTYPE_BF16) >=
                    4 * (uint64_t)(l.windowed_per_block * models[i].windowed.num_kv_heads * 256));
    }
}

/* They have no places of their own. */
static void test_layers_that_share(void **state)
{
    (void)state;
    (void)layout_of(35, 5, 512, 1000); /* Gemma 4 E2B */
    config.num_kv_sharing_layers = 20;
    config.num_kv_heads = 1;
    config.head_dim = 512;
    config.window_heads = (struct head_config){1, 256, 0};
    const struct kv_layout l = kv_layout_of(&config, 1000);
    expect_layout(l, 3, 1, 2);
    for (int32_t i = 15; i < 35; i++) {
        const bool windowed = (i + 1) % 5 != 0;
        const struct kv_place own = kv_layout_place(&l, &config, i),
                              theirs = kv_layout_place(&l, &config, windowed ? 13 : 14);
        assert_true(own.group == theirs.group && own.layer == theirs.layer);
    }
    assert_int_equal(model_config_kv_bytes_per_token(&config, DTYPE_BF16), 2 * 2 * (3 * 512 + 12 * 256));
}

/* Layers with fewer heads have the places that those with most would have, counted in places of their own size. */
static void test_layers_that_differ_one_by_one(void **state)
{
    static const int32_t kv_heads[] = {2, 0, 8, 4}, places[] = {0, 0, 1, 4};
    (void)state;
    (void)layout_of(4, 1, 0, 1000);
    config.num_kv_heads = 8;
    config.head_dim = 64;
    for (int32_t i = 0; i < 4; i++) {
        config.layer_shapes[i] = (struct layer_shape){kv_heads[i], 256};
        if (kv_heads[i] == 0) bit_set_add(config.layers_without_attention, (size_t)i);
    }
    const struct kv_layout l = kv_layout_of(&config, 1000);
    expect_layout(l, 3, 1, 0);
    for (int32_t i = 0; i < 4; i++)
        if (kv_heads[i] > 0) assert_int_equal(kv_layout_place(&l, &config, i).layer, places[i]);
    assert_int_equal(kv_layout_block_bytes(&l, &config, DTYPE_BF16), 3 * 2 * 8 * 64 * 2);
    assert_int_equal(model_config_kv_bytes_per_token(&config, DTYPE_BF16), (2 + 8 + 4) * 2 * 64 * 2);
}

static void test_a_window_that_nobody_leaves_is_none(void **state)
{
    (void)state;
    expect_layout(layout_of(26, 2, 4096, 4096), 26, 1, 0);
    expect_layout(layout_of(26, 2, 4096, 4097), 13, 1, 1);
}

/* Each layer has a place of its own in a group of its kind. */
static void test_places(void **state)
{
    (void)state;
    for (int32_t num_layers = 1; num_layers <= 80; num_layers++)
        for (int32_t period = 0; period <= 7; period++) {
            bool taken[KV_LAYOUT_GROUPS_MAX][80] = {{false}};
            struct kv_layout l = layout_of(num_layers, period, 100, 1000);
            assert_in_range(kv_layout_num_groups(&l), 1, KV_LAYOUT_GROUPS_MAX);
            for (int32_t i = 0; i < num_layers; i++) {
                struct kv_place p = kv_layout_place(&l, &config, i);
                assert_in_range(p.layer, 0, l.layers_per_block - 1);
                assert_in_range(p.group, 0, kv_layout_num_groups(&l) - 1);
                assert_int_equal(p.group >= l.num_full, model_config_layer(&config, i).sliding_window > 0);
                assert_false(taken[p.group][p.layer]);
                taken[p.group][p.layer] = true;
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_models),
        cmocka_unit_test(test_layers_of_other_heads),
        cmocka_unit_test(test_layers_that_share),
        cmocka_unit_test(test_layers_that_differ_one_by_one),
        cmocka_unit_test(test_a_window_that_nobody_leaves_is_none),
        cmocka_unit_test(test_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
