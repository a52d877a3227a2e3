/* test_kv_groups.c - layers whose K and V have block tables of their own (kernels/step.h, G): attention against the untiled
 * reference, and its bits against those of one table for all layers.
 *
 * Blocks in front of what a step sees have been given back: each stands for anybody's, and holds NaNs here. */
#include "attention_rig.h"

enum { GROUP_SEQS = 5 };

/* Two prompts, one of them behind what is in the pool, and decoding sequences, of which two are rows of one. */
static const int32_t lengths[GROUP_SEQS] = {210, 77, 301, 40, 18};
static const struct rig_part parts_of_step[] = {{.seq = 0, .first = 150, .count = 60},
                                                {.seq = 1, .first = 0, .count = 77},
                                                {.seq = 2, .first = 299, .count = 1, .decode = true},
                                                {.seq = 2, .first = 300, .count = 1, .decode = true},
                                                {.seq = 3, .first = 39, .count = 1, .decode = true},
                                                {.seq = 4, .first = 17, .count = 1, .decode = true}};
enum { GROUP_PARTS = sizeof parts_of_step / sizeof *parts_of_step, GROUP_TOKENS = 301 };

/* What comes before the step's tokens goes into the pool in steps of so many. */
static void run_before(struct rig *r, int32_t chunk)
{
    for (int i = 0; i < GROUP_PARTS; i++) {
        const struct rig_part *p = &parts_of_step[i];
        if (i > 0 && p->seq == parts_of_step[i - 1].seq) continue;
        for (int32_t at = 0; at < p->first; at += chunk)
            rig_run(r, &(struct rig_part){.seq = p->seq, .first = at, .count = min_of(chunk, p->first - at)},
                    1);
    }
}

static struct rig *run(const char *isa, const struct rig_shape *shape, float *out, struct rig_part *parts)
{
    struct random random = {.seed = test_seed()};
    struct rig *r = rig_new(isa, 2, shape, GROUP_TOKENS, &random);
    if (!r) return NULL;
    run_before(r, 1 + random_below(&random, GROUP_TOKENS));
    for (int i = 0; i < GROUP_PARTS; i++) {
        parts[i] = parts_of_step[i];
        parts[i].out = out;
        out += parts[i].count * shape->num_heads * shape->head_dim;
    }
    rig_run(r, parts, GROUP_PARTS);
    return r;
}

static void check(const char *isa, struct rig_shape shape)
{
    struct random random = {.seed = test_seed()};
    struct rig_part parts[GROUP_PARTS];
    size_t count = 0;
    shape.num_seqs = GROUP_SEQS;
    memcpy(shape.lengths, lengths, sizeof lengths);
    for (int i = 0; i < GROUP_PARTS; i++)
        count += (size_t)(parts_of_step[i].count * shape.num_heads * shape.head_dim);
    float *apart = malloc(count * sizeof *apart), *together = malloc(count * sizeof *together);
    shape.has_groups = true;
    struct rig *r = run(isa, &shape, apart, parts);
    if (r) {
        rig_check(r, parts, GROUP_PARTS, &random);
        rig_free(r);
        shape.has_groups = false;
        rig_free(run(isa, &shape, together, parts));
        int64_t different = num_bits_different(apart, together, count);
        if (different)
            fail_msg("window %d beside %d, chunk %d: %lld of %zu bit patterns differ from those of one table",
                     shape.sliding_window, shape.other_window, shape.chunk, (long long)different, count);
    }
    free(apart);
    free(together);
}

/* From one token to more than a sequence has, and what the other layer sees; 0: all. */
static void windows(const char *isa)
{
    static const struct {
        int32_t window, other, head_dim;
        enum dtype kv_dtype;
        bool has_sinks;
    } cases[] = {
        {1, 0, 64, DTYPE_BF16, false},     {7, 0, 128, DTYPE_F8_E4M3, false},
        {17, 0, 256, DTYPE_BF16, true},    {100, 33, 64, DTYPE_F8_E4M3, true},
        {150, 0, 80, DTYPE_BF16, false},   {1000, 0, 128, DTYPE_BF16, false},
        {0, 1, 64, DTYPE_BF16, false},     {17, 0, 256, DTYPE_BF16, false},
        {100, 33, 256, DTYPE_BF16, false},
    };
    for (size_t i = 0; i < array_length(cases); i++) {
        struct rig_shape shape = rig_shape_of(2, 1, cases[i].head_dim, cases[i].kv_dtype);
        shape.sliding_window = cases[i].window;
        shape.other_window = cases[i].other;
        shape.has_sinks = cases[i].has_sinks;
        check(isa, shape);
    }
}

static void test_windows(void **state)
{
    (void)state;
    for_each_isa(windows);
}

/* Attention of a GPU by another kernel. */
static void chunks(const char *isa)
{
    static const int32_t of_layers[] = {16, 100};
    for (size_t i = 0; i < array_length(of_layers); i++) {
        struct rig_shape shape = rig_shape_of(2, 1, 64, DTYPE_BF16);
        shape.chunk = of_layers[i];
        shape.sliding_window = i == 1 ? 40 : 0;
        check(isa, shape);
    }
}

static void test_chunks(void **state)
{
    (void)state;
    for_each_isa(chunks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_windows), cmocka_unit_test(test_chunks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
