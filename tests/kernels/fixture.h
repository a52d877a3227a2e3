/* fixture.h - what the kernel tests share: which devices to test, fresh random numbers, steps by hand.
 *
 * The tests speak to the kernel table only. FLASHD_TEST_DEVICE names a device ("cpu" if unset) and
 * FLASHD_TEST_ISA an instruction set; without the latter the CPU is tested over every one that the machine
 * has. FLASHD_TEST_CUDA_PORTABLE has a Hopper run what every GPU from sm_80 on does (--cuda-path portable). The seed is fresh
 * each run and printed; FLASHD_TEST_SEED repeats a run. FLASHD_TEST_PART=n: where all shapes take long (under the sanitizers, on an
 * emulated GPU), each run has one in n of them, as its seed has it. */
#ifndef TESTS_KERNELS_FIXTURE_H
#define TESTS_KERNELS_FIXTURE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rng.h"
#include "group_members.h"
#include "kernels/device.h"

#define UNUSED_FUNCTION __attribute__((unused))

/* ---- random numbers ---- */

struct random {
    uint64_t seed, counter;
};

UNUSED_FUNCTION static uint64_t test_seed(void)
{
    static uint64_t seed;
    if (seed == 0) {
        const char *text = getenv("FLASHD_TEST_SEED");
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        seed = text ? strtoull(text, NULL, 10) : (uint64_t)now.tv_sec * 1000003u + (uint64_t)now.tv_nsec;
        printf("FLASHD_TEST_SEED=%llu\n", (unsigned long long)seed);
    }
    return seed;
}

/* Whether this run has a test's idx-th shape. */
UNUSED_FUNCTION static bool takes_part(size_t idx)
{
    const char *text = getenv("FLASHD_TEST_PART");
    const uint64_t parts = text ? strtoull(text, NULL, 10) : 1;
    return parts <= 1 || (idx + test_seed()) % parts == 0;
}

UNUSED_FUNCTION static uint32_t random_bits(struct random *r)
{
    return rng_philox(r->seed, r->counter++, 77).word[0];
}

UNUSED_FUNCTION static int32_t random_below(struct random *r, int32_t bound)
{
    return (int32_t)((uint64_t)random_bits(r) * (uint64_t)bound >> 32);
}

UNUSED_FUNCTION static double random_uniform(struct random *r)
{
    return (random_bits(r) + 0.5) / 4294967296.0;
}

/* Close to normal, mean 0, deviation 1: the sum of four uniform numbers. */
UNUSED_FUNCTION static float random_normal(struct random *r)
{
    struct rng_block b = rng_philox(r->seed, r->counter++, 77);
    double sum = ((double)b.word[0] + b.word[1] + b.word[2] + b.word[3]) / 4294967296.0;
    return (float)((sum - 2.0) * 1.7320508);
}

UNUSED_FUNCTION static void random_permutation(struct random *r, int32_t *p, int32_t n)
{
    for (int32_t i = 0; i < n; i++) p[i] = i;
    for (int32_t i = n - 1; i > 0; i--) {
        int32_t j = random_below(r, i + 1), t = p[i];
        p[i] = p[j];
        p[j] = t;
    }
}

/* ---- devices ---- */

UNUSED_FUNCTION static bool test_portable_kernels(void)
{
    return getenv("FLASHD_TEST_CUDA_PORTABLE") != NULL;
}

UNUSED_FUNCTION static struct device *test_device_open(const char *isa, int num_threads)
{
    const char *name = getenv("FLASHD_TEST_DEVICE");
    struct device_options options = {.cpu_isa = isa,
                                     .num_threads = num_threads,
                                     .num_devices = test_num_members(),
                                     .on_one_gpu = test_on_one_gpu(),
                                     .cuda_portable = test_portable_kernels()};
    struct device *d = NULL;
    struct error err = {0};
    int status = device_open(name ? name : "cpu", &options, &d, &err);
    if (status == STATUS_UNSUPPORTED && !getenv("FLASHD_TEST_ISA") && !name) return NULL;
    if (status) fail_msg("device_open: %s", err.text);
    return d;
}

/* The emulated GPU's free memory is to the byte what is not allocated (tests/emulator). */
UNUSED_FUNCTION static bool is_emulated(const struct device *d)
{
    return strstr(d->description, "emulated") != NULL;
}

/* Calls body for every instruction set to test. */
UNUSED_FUNCTION static void for_each_isa(void (*body)(const char *isa))
{
    const char *isa = getenv("FLASHD_TEST_ISA");
    if (isa || getenv("FLASHD_TEST_DEVICE")) {
        body(isa ? isa : "auto");
        return;
    }
#ifdef FLASHD_DEBUG
    /* The others share all but products of integers, which test_linear*.c has for every set. */
    static const char *const isas[] = {"portable", "avx2", "avx512"};
#else
    static const char *const isas[] = {"portable", "avx2", "avxvnni", "avx512", "avx512vnni", "amx"};
#endif
    for (size_t i = 0; i < array_length(isas); i++) {
        struct device *d = test_device_open(isas[i], 1);
        if (!d) {
            printf("(no %s on this machine)\n", isas[i]);
            continue;
        }
        d->ops->close(d);
        body(isas[i]);
    }
}

/* ---- weights of codes ---- */

/* Codes whose scales lie apart, one for scale_rows x scale_cols of them. Integers of four bits are less 8. */
UNUSED_FUNCTION static struct weight_view scaled_view(const void *codes, enum dtype dtype, int64_t rows,
                                                      int64_t cols, const void *scales, enum scale_type type,
                                                      int64_t scale_rows, int64_t scale_cols)
{
    struct weight_view v = weight_view_plain(codes, dtype, rows, cols);
    v.scheme = WEIGHT_SCALED;
    v.codes = (struct weight_codes){
        .scales = {.data = scales,
                   .type = type,
                   .rows = (rows + scale_rows - 1) / scale_rows,
                   .cols = (cols + scale_cols - 1) / scale_cols},
        .scale_rows = scale_rows,
        .scale_cols = scale_cols,
        .scale_factor = 1,
        .scale_divisor = 1,
        .zero = dtype == DTYPE_U4 ? 8 : 0,
    };
    return v;
}

/* Of e4m3, 32 at most. */
UNUSED_FUNCTION static uint8_t random_e4m3(struct random *r)
{
    uint8_t code;
    do code = (uint8_t)random_bits(r);
    while ((code & 127) > 0x60);
    return code;
}

/* For a model whose rows are quantised, too, a Hopper quantises them as they come; the portable kernels and a CPU take them as they are. */
UNUSED_FUNCTION static bool takes_rows_as_they_are(const struct device *d)
{
    return d->act_bytes != 2 || test_portable_kernels();
}

/* ---- device memory ---- */

UNUSED_FUNCTION static void *device_floats(struct device *d, size_t count, bool res)
{
    void *p = d->ops->alloc(d, count * (size_t)(res ? d->res_bytes : d->act_bytes), "test");
    assert_non_null(p);
    return p;
}

UNUSED_FUNCTION static void device_write(struct device *d, void *to, const float *from, size_t count,
                                         bool res)
{
    assert_int_equal(d->ops->write_f32(d, to, from, count, res), 0);
}

UNUSED_FUNCTION static void device_read(struct device *d, float *to, const void *from, size_t count, bool res)
{
    assert_int_equal(d->ops->read_f32(d, to, from, count, res), 0);
}

/* Plain f32 device memory (norm weights, cosines). */
UNUSED_FUNCTION static float *device_upload(struct device *d, const float *from, size_t count)
{
    float *p = d->ops->alloc(d, count * sizeof *from, "test");
    assert_non_null(p);
    assert_int_equal(d->ops->upload(d, p, from, count * sizeof *from), 0);
    return p;
}

UNUSED_FUNCTION static void device_poison(struct device *d, void *p, size_t count, bool res)
{
    float *nan = malloc(count * sizeof *nan);
    for (size_t i = 0; i < count; i++) nan[i] = NAN;
    device_write(d, p, nan, count, res);
    free(nan);
}

/* What a value becomes when it is stored in an element of this size. */
UNUSED_FUNCTION static float rounded_to(int element_bytes, float x)
{
    return element_bytes == 2 ? dtype_bf16_to_f32(dtype_f32_to_bf16(x)) : x;
}

/* Random values that an activation (or residual) holds exactly. */
UNUSED_FUNCTION static float *random_values(struct random *r, size_t count, int element_bytes,
                                            float deviation)
{
    float *x = malloc(count * sizeof *x);
    for (size_t i = 0; i < count; i++) x[i] = rounded_to(element_bytes, deviation * random_normal(r));
    return x;
}

/* ---- steps ---- */

/* A step with room for its arrays, built one sequence after another (prefilling ones first). */
struct test_step {
    struct step step;
    int32_t *token_ids, *positions, *slot_mapping, *cu_seqlens_q, *seqlens_k, *block_tables, *logit_rows;
    struct sample_params *sample;
    int32_t max_tokens, max_seqs;
};

UNUSED_FUNCTION static struct test_step *test_step_new_groups(int32_t max_tokens, int32_t max_seqs,
                                                              int32_t max_blocks, int32_t num_kv_groups)
{
    size_t groups = (size_t)num_kv_groups;
    struct test_step *s = calloc(1, sizeof *s);
    s->max_tokens = max_tokens;
    s->max_seqs = max_seqs;
    s->token_ids = calloc((size_t)max_tokens, sizeof(int32_t));
    s->positions = calloc((size_t)max_tokens, sizeof(int32_t));
    s->slot_mapping = calloc(groups * (size_t)max_tokens, sizeof(int32_t));
    s->cu_seqlens_q = calloc((size_t)max_seqs + 1, sizeof(int32_t));
    s->seqlens_k = calloc((size_t)max_seqs, sizeof(int32_t));
    s->block_tables = calloc(groups * (size_t)max_seqs * (size_t)max_blocks, sizeof(int32_t));
    s->logit_rows = calloc((size_t)max_tokens, sizeof(int32_t));
    s->sample = calloc((size_t)max_tokens, sizeof *s->sample);
    s->step = (struct step){
        .num_kv_groups = num_kv_groups,
        .block_table_stride = max_blocks,
        .token_ids = s->token_ids,
        .positions = s->positions,
        .slot_mapping = s->slot_mapping,
        .cu_seqlens_q = s->cu_seqlens_q,
        .seqlens_k = s->seqlens_k,
        .block_tables = s->block_tables,
        .logit_rows = s->logit_rows,
        .sample = s->sample,
    };
    return s;
}

UNUSED_FUNCTION static struct test_step *test_step_new(int32_t max_tokens, int32_t max_seqs,
                                                       int32_t max_blocks)
{
    return test_step_new_groups(max_tokens, max_seqs, max_blocks, 1);
}

UNUSED_FUNCTION static void test_step_free(struct test_step *s)
{
    free(s->token_ids);
    free(s->positions);
    free(s->slot_mapping);
    free(s->cu_seqlens_q);
    free(s->seqlens_k);
    free(s->block_tables);
    free(s->logit_rows);
    free(s->sample);
    free(s);
}

UNUSED_FUNCTION static void test_step_clear(struct test_step *s)
{
    struct step *p = &s->step;
    p->num_tokens = p->num_seqs = p->num_logits = p->num_prefill_tokens = p->num_prefill_seqs = 0;
}

/* Tokens [first, first + count) of a sequence with these blocks. decode: it goes into the decoding half. */
UNUSED_FUNCTION static void test_step_add(struct test_step *s, const int32_t *blocks, int32_t first,
                                          int32_t count, bool decode)
{
    struct step *p = &s->step;
    assert_true(p->num_tokens + count <= s->max_tokens && p->num_seqs < s->max_seqs);
    for (int32_t i = 0; i < count; i++) {
        int32_t t = p->num_tokens + i, position = first + i;
        s->token_ids[t] = 0;
        s->positions[t] = position;
        s->slot_mapping[t] = blocks[position / BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE;
    }
    int32_t num_blocks = (int32_t)div_up(first + count, BLOCK_SIZE);
    memcpy(s->block_tables + p->num_seqs * p->block_table_stride, blocks,
           (size_t)num_blocks * sizeof *blocks);
    p->num_tokens += count;
    s->seqlens_k[p->num_seqs++] = first + count;
    s->cu_seqlens_q[p->num_seqs] = p->num_tokens;
    if (decode) return;
    assert_int_equal(p->num_prefill_tokens + count, p->num_tokens);
    p->num_prefill_seqs++;
    p->num_prefill_tokens += count;
}

/* The step's sequence in one of several groups. Once all sequences were added. */
UNUSED_FUNCTION static void test_step_set_blocks(struct test_step *s, int32_t group, int32_t seq,
                                                 const int32_t *blocks)
{
    const struct step *p = &s->step;
    int32_t *slots = s->slot_mapping + group * p->num_tokens,
            *table = s->block_tables + (group * p->num_seqs + seq) * p->block_table_stride;
    for (int32_t t = p->cu_seqlens_q[seq]; t < p->cu_seqlens_q[seq + 1]; t++)
        slots[t] = blocks[p->positions[t] / BLOCK_SIZE] * BLOCK_SIZE + p->positions[t] % BLOCK_SIZE;
    memcpy(table, blocks, (size_t)div_up(p->seqlens_k[seq], BLOCK_SIZE) * sizeof *blocks);
}

UNUSED_FUNCTION static void test_step_end(struct device *d, struct sample_result *results)
{
    struct error err = {0};
    if (d->ops->step_end(d, results, &err)) fail_msg("step_end: %s", err.text);
}

/* Bits, not values: -0 differs from 0, and a NaN equals itself. */
UNUSED_FUNCTION static int64_t num_bits_different(const float *a, const float *b, size_t count)
{
    int64_t different = 0;
    for (size_t i = 0; i < count; i++) different += memcmp(&a[i], &b[i], sizeof *a) != 0;
    return different;
}

#endif
