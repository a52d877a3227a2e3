/* test_memory.c - what a device tells of its memory: a K/V pool takes what was told of it, and a step takes none.
 *
 * A CPU's free memory is the machine's, which others take and give: only a GPU's can be held to a number. */
#include "attention_rig.h"

enum {
    SLACK_BYTES = 8 << 20, /* a GPU gives memory by 2 MiB */
    BLOCKS = 40,
    LAYERS = 3,
    HEADS = 2,
    DIM = 64,
    CHUNK = 96,
    LENGTH = 3 * CHUNK,
    LONGEST = 100000 /* tokens: more than those whose keys every pool of e4m3 has room to widen */
};

static bool is_gpu(void)
{
    struct device *d = test_device_open("auto", 1);
    const bool is = d->is_gpu;
    d->ops->close(d);
    if (!is) printf("(no GPU)\n");
    return is;
}

/* What it differs by from what was told, either way, and more than the device's free memory may. 0 also where it has no such pool. */
static int64_t untold_bytes(enum dtype dtype, int32_t num_kv_heads, int32_t head_dim, int32_t max_model_len)
{
    struct device *d = test_device_open("auto", 1);
    const struct attention_args layer = {
        .num_heads = num_kv_heads, .num_kv_heads = num_kv_heads, .head_dim = head_dim, .scale = 1};
    const struct step_limits limits = {.num_tokens = 32,
                                       .num_seqs = 2,
                                       .num_logits = 2,
                                       .num_batch_slots = 2,
                                       .max_model_len = max_model_len,
                                       .num_steps_in_flight = 1,
                                       .num_kv_groups = 1};
    const struct kv_shape shape = {.num_layers = LAYERS,
                                   .num_blocks = BLOCKS,
                                   .num_kv_heads = num_kv_heads,
                                   .head_dim = head_dim,
                                   .dtype = dtype};
    struct error err = {0};
    struct kv_pool *pool;
    if (d->ops->prepare(d, &limits, 32, 512, 512, &layer, 1, &err)) fail_msg("prepare: %s", err.text);
    const int64_t told = (int64_t)d->ops->kv_pool_bytes(d, &shape), before = (int64_t)d->ops->free_bytes(d);
    const int status = d->ops->kv_pool_create(d, &shape, &pool, &err);
    const int64_t differs = llabs(before - (int64_t)d->ops->free_bytes(d) - told),
                  may = is_emulated(d) ? 0 : SLACK_BYTES;
    d->ops->close(d);
    if (status && status != STATUS_UNSUPPORTED) fail_msg("kv_pool_create: %s", err.text);
    return !status && differs > may ? differs : 0;
}

/* Of bf16, and of e4m3, of which prompts may want more beside it. */
static void test_a_pool_takes_what_was_told(void **state)
{
    (void)state;
    static const int32_t head_dims[] = {64, 80, 128, 256}, lengths[] = {64, LONGEST};
    static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F8_E4M3};
    if (!is_gpu()) return;
    for (size_t i = 0; i < array_length(head_dims); i++)
        for (size_t j = 0; j < array_length(lengths); j++)
            for (size_t k = 0; k < array_length(dtypes); k++) {
                const int64_t untold = untold_bytes(dtypes[k], 4, head_dims[i], lengths[j]);
                if (untold)
                    fail_msg("head_dim %d, %s, %d tokens at most: %lld bytes were not told", head_dims[i],
                             dtype_infos[dtypes[k]].text, lengths[j], (long long)untold);
            }
}

/* A device that allocates in one breaks off; what it would allocate by another way is not free any more. */
static void run_steps(struct rig *r)
{
    float out[2][CHUNK * HEADS * DIM];
    r->d->ops->seal(r->d);
    const uint64_t before = r->d->ops->free_bytes(r->d);
    for (int32_t first = 0; first < LENGTH; first += CHUNK) {
        const struct rig_part prompts[] = {{0, first, CHUNK - 1, false, out[0]},
                                           {1, first, 1, false, out[1]}};
        const struct rig_part rows[] = {{0, first + CHUNK - 1, 1, true, out[0]},
                                        {1, first + 1, 1, true, out[1]}};
        rig_run(r, prompts, 2);
        rig_run(r, rows, 2);
    }
    if (is_emulated(r->d)) assert_int_equal(before, r->d->ops->free_bytes(r->d));
}

/* Of as many tokens as there may be, up to the longest sequence's last one; K and V of e4m3 are widened for prompts. */
static void test_steps_take_nothing(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F8_E4M3};
    struct random random = {.seed = test_seed()};
    for (size_t i = 0; i < array_length(dtypes); i++) {
        struct rig_shape shape = rig_shape_of(HEADS, 1, DIM, dtypes[i]);
        shape.num_seqs = 2;
        shape.lengths[0] = shape.lengths[1] = LENGTH;
        struct rig *r = rig_new("auto", 2, &shape, CHUNK, &random);
        if (!r) continue;
        run_steps(r);
        rig_free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_pool_takes_what_was_told),
                                       cmocka_unit_test(test_steps_take_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
