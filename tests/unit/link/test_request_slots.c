#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "unit/link/link_rig.h"

static struct link *link_of_test;

static struct request_slots *create(int32_t num_slots, int32_t max_model_len)
{
    link_of_test = link_rig_create(num_slots, max_model_len);
    return link_slots(link_of_test);
}

static void destroy(void)
{
    link_destroy(link_of_test);
}

static void expect_initial(struct request_slots *s, int32_t slot_idx, int32_t max_model_len)
{
    struct request_slot fresh;
    memset(&fresh, 0, sizeof(fresh));
    assert_memory_equal(request_slots_get(s, slot_idx), &fresh, sizeof(fresh));
    const unsigned char *payload = (const unsigned char *)request_slots_payload(s, slot_idx);
    for (size_t i = 0; i < sizeof(struct request_payload); i++) assert_int_equal(payload[i], 0);
    const unsigned char *tokens = (const unsigned char *)request_slots_tokens(s, slot_idx);
    const unsigned char *logprobs = (const unsigned char *)request_slots_logprobs(s, slot_idx);
    for (size_t i = 0; i < (size_t)max_model_len * sizeof(int32_t); i++) assert_int_equal(tokens[i], 0);
    for (size_t i = 0; i < (size_t)max_model_len * sizeof(struct token_logprobs); i++)
        assert_int_equal(logprobs[i], 0);
    for (int32_t k = 0; k <= request_slots_num_guess_tokens(s); k++)
        for (int32_t i = 0; i < request_slots_mask_words(s); i++)
            assert_int_equal(request_slots_mask(s, slot_idx, k)[i], 0);
    for (int32_t i = 0; i < ROW_FLOATS_MAX; i++) assert_float_equal(request_slots_row(s, slot_idx)[i], 0, 0);
}

/* As a request that used all there is: every byte of the slot is dirty. */
static void use_up(struct request_slots *s, int32_t slot_idx, int32_t max_model_len)
{
    struct request_slot *slot = request_slots_get(s, slot_idx);
    memset(slot, 0xA5, sizeof(*slot));
    slot->input.num_prompt_tokens = max_model_len / 2;
    slot->input.sampling.num_logprobs = 3;
    slot->input.num_logit_bias = LOGIT_BIAS_MAX;
    slot->input.prompt_logprobs = slot->input.constrained = true;
    slot->input.num_row_logits = ROW_LOGITS_MAX;
    slot->input.num_logprob_ids = TOP_LOGPROBS_MAX;
    slot->num_row_floats = ROW_FLOATS_MAX;
    atomic_store(&slot->num_published, max_model_len - max_model_len / 2);
    atomic_store(&slot->finish_reason, FINISH_LENGTH);
    memset(request_slots_payload(s, slot_idx), 0xA5, sizeof(struct request_payload));
    for (int32_t k = 0; k <= request_slots_num_guess_tokens(s); k++)
        memset(request_slots_mask(s, slot_idx, 100 + k), 0xA5,
               (size_t)request_slots_mask_words(s) * sizeof(uint64_t));
    memset(request_slots_row(s, slot_idx), 0xA5, ROW_FLOATS_MAX * sizeof(float));
    memset(request_slots_tokens(s, slot_idx), 0xA5, (size_t)max_model_len * sizeof(int32_t));
    memset(request_slots_logprobs(s, slot_idx), 0xA5, (size_t)max_model_len * sizeof(struct token_logprobs));
}

static void test_all_or_none(void **state)
{
    (void)state;
    struct request_slots *s = create(4, 32);
    int32_t ids[5] = {-1, -1, -1, -1, -1};
    assert_int_equal(request_slots_count(s), 4);
    assert_int_equal(request_slots_acquire(s, 5, ids), STATUS_NO_SLOT);
    assert_int_equal(request_slots_num_free(s), 4);
    assert_int_equal(ids[0], -1);
    assert_int_equal(request_slots_acquire(s, 3, ids), 0);
    assert_int_equal(request_slots_acquire(s, 2, ids + 3), STATUS_NO_SLOT);
    assert_int_equal(request_slots_acquire(s, 1, ids + 3), 0);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++) assert_int_not_equal(ids[i], ids[k]);
    for (int i = 0; i < 4; i++) request_slots_release(s, ids[i]);
    assert_int_equal(request_slots_num_free(s), 4);
    destroy();
}

/* Short ones are cleared by hand, long ones by the kernel; a slot that never ran is cleared as a whole. */
static void test_a_released_slot_is_as_new(void **state)
{
    (void)state;
    int32_t lengths[] = {1, 16, 1000, 20000};
    for (size_t k = 0; k < array_length(lengths); k++) {
        struct request_slots *s = create(2, lengths[k]);
        for (int round = 0; round < 4; round++) {
            int32_t ids[2];
            assert_int_equal(request_slots_acquire(s, 2, ids), 0);
            expect_initial(s, ids[0], lengths[k]);
            use_up(s, ids[0], lengths[k]);
            expect_initial(s, ids[1], lengths[k]); /* no neighbour was touched */
            if (round % 2) {
                atomic_store(&request_slots_get(s, ids[0])->finish_reason, FINISH_NONE);
                request_slots_get(s, ids[0])->input.num_prompt_tokens = 0;
            }
            request_slots_release(s, ids[1]);
            request_slots_release(s, ids[0]);
            expect_initial(s, ids[0], lengths[k]);
        }
        destroy();
    }
}

static void test_a_large_region_costs_nothing_until_touched(void **state)
{
    (void)state;
    int32_t max_model_len = 131072, ids[600];
    struct request_slots *s = create(600, max_model_len);
    assert_int_equal(request_slots_acquire(s, 600, ids), 0);
    request_slots_tokens(s, ids[599])[max_model_len - 1] = 7;
    request_slots_logprobs(s, ids[599])[max_model_len - 1].num_top = 1;
    for (int i = 0; i < 600; i++) request_slots_release(s, ids[i]);
    assert_int_equal(request_slots_tokens(s, ids[599])[max_model_len - 1], 0);
    destroy();
}

static void test_a_region_beyond_the_address_space_is_refused(void **state)
{
    (void)state;
    struct link *link;
    struct error err;
    const struct link_facts facts = {.num_slots = 2000000000, .max_model_len = 2000000000};
    assert_int_equal(link_create(&link, &err), 0);
    assert_int_equal(link_open(link, &facts, &err), STATUS_NO_MEMORY);
    assert_non_null(strstr(err.text, "--max-model-len"));
    link_destroy(link);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_or_none),
        cmocka_unit_test(test_a_released_slot_is_as_new),
        cmocka_unit_test(test_a_large_region_costs_nothing_until_touched),
        cmocka_unit_test(test_a_region_beyond_the_address_space_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
