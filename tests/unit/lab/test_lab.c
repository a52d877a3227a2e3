/* test_lab.c - every algorithm of the lab against one double-precision reference over the same cases, its bytes
 * against its formula, and the reference's gradients against differences. FLASHD_TEST_DEVICE=cuda: those of a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "lab/attention/flat_products.h"
#include "lab/attention/lab.h"
#include "lab/attention/reference.h"

enum { HEADS = 2, TOKENS_MAX = 1300 };

static const char *device_name(void)
{
    const char *name = getenv("FLASHD_TEST_DEVICE");
    return name ? name : "cpu";
}

static struct problem make(const struct shape *shape)
{
    struct problem p;
    struct error err;
    if (problem_init(&p, shape, 7, &err)) fail_msg("%s", err.text);
    return p;
}

/* bytes: the formula knows this mask. */
static void check_row(struct lab *lab, enum lab_id id, struct problem *p, bool bytes)
{
    struct measurement m;
    struct error err = {0};
    const char *name = lab_algorithms[id].name;
    int32_t n = p->shape.num_keys;
    if (lab_measure(lab, id, p, true, 0, &m, &err)) fail_msg("%s: %s", name, err.text);
    if (!(m.error <= lab_tolerance(lab, id)))
        fail_msg("%s, %d tokens, mask %d: off by %g of the largest", name, n, p->shape.mask, m.error);
    if (bytes && !algorithm_is_servers(id) && fabs(m.counted / m.formula - 1) > 0.02)
        fail_msg("%s, %d tokens, mask %d: %g bytes counted, %g by the formula", name, n, p->shape.mask,
                 m.counted, m.formula);
}

/* A GPU fetches 16 bytes at a time, also where fewer are left of a row of scores. */
static void check_all(struct lab *lab, const struct shape *shape)
{
    bool whole = shape->num_keys % 8 == 0;
    for (enum lab_id id = 0; id < NUM_LAB_ALGORITHMS; id++) {
        if (!lab_has(lab, id) || !algorithm_supports(&lab_algorithms[id], shape)) continue;
        struct problem p = make(shape);
        check_row(lab, id, &p, whole || lab->own->geometries[id].element_bytes == sizeof(float));
        problem_free(&p);
    }
}

static void with_lab(int32_t head_dim, void (*body)(struct lab *lab))
{
    struct lab lab;
    struct error err = {0};
    if (lab_open(&lab, device_name(), HEADS, head_dim, TOKENS_MAX, &err)) fail_msg("%s", err.text);
    body(&lab);
    lab_close(&lab);
}

static void prompts(struct lab *lab)
{
    static const int32_t lengths[] = {1, 65, 256};
    static const enum mask masks[] = {MASK_NONE, MASK_CAUSAL, MASK_DOCUMENTS};
    for (size_t i = 0; i < array_length(lengths); i++)
        for (size_t j = 0; j < array_length(masks); j++) {
            if (masks[j] == MASK_DOCUMENTS && lengths[i] != 256) continue; /* documents of whole tiles */
            struct shape shape = {HEADS, lengths[i], lengths[i], lab->head_dim, masks[j], 128};
            check_all(lab, &shape);
        }
}

static void test_prompts(void **state)
{
    (void)state;
    with_lab(64, prompts);
    if (strcmp(device_name(), "cpu") != 0) with_lab(128, prompts);
}

static void decoding(struct lab *lab)
{
    static const int32_t lengths[] = {2, 100, 512, 513, 1300};
    for (size_t i = 0; i < array_length(lengths); i++) {
        struct shape shape = {HEADS, 1, lengths[i], lab->head_dim, MASK_NONE, 0};
        check_all(lab, &shape);
    }
}

static void test_decoding(void **state)
{
    (void)state;
    with_lab(64, decoding);
}

/* ---- masks ---- */

enum { WINDOW = 50, PREFIX = 70, RAGGED = 37 };

/* Rows [from, to) do not see the key, but for those of [seen, to_seen) between them. */
static void hide_but(struct problem *p, int32_t key, int32_t seen, int32_t to_seen)
{
    int32_t n = p->shape.num_keys;
    p->hidden.upper_start[key] = 0;
    p->hidden.upper_end[key] = seen;
    p->hidden.lower_start[key] = min_of(to_seen, n);
    p->hidden.lower_end[key] = n;
}

static void hide_by(struct problem *p, int which)
{
    int32_t n = p->shape.num_keys;
    for (int32_t key = 0; key < n; key++) {
        int32_t document = key / RAGGED * RAGGED;
        if (which == 0) hide_but(p, key, key, key + WINDOW);                     /* causal window */
        if (which == 1) hide_but(p, key, max_of(key - WINDOW, 0), key + WINDOW); /* both sides */
        if (which == 2) hide_but(p, key, key < PREFIX ? 0 : key, n);             /* prefix */
        if (which == 3) hide_but(p, key, document, document + RAGGED);           /* documents */
        if (which == 4)
            hide_but(p, key, key % 3 ? key : max_of(key - 1, 0), key % 5 ? n : key + 1); /* none alike */
    }
}

static void masks(struct lab *lab)
{
    static const enum lab_id ids[] = {LAB_STANDARD, LAB_ONLINE_SOFTMAX, LAB_FLASH_MASK};
    struct shape shape = {HEADS, 200, 200, lab->head_dim, MASK_INTERVALS, 0};
    for (int which = 0; which < 5; which++)
        for (size_t i = 0; i < array_length(ids); i++) {
            struct problem p = make(&shape);
            hide_by(&p, which);
            check_row(lab, ids[i], &p, false);
            problem_free(&p);
        }
}

static void test_masks(void **state)
{
    (void)state;
    with_lab(64, masks);
}

/* Packed documents: less than half of the bytes that FlashAttention-2 needs for a causal mask. */
static void skipped(struct lab *lab)
{
    struct measurement all, some;
    struct error err = {0};
    struct shape shape = {HEADS, 512, 512, lab->head_dim, MASK_CAUSAL, 64};
    struct problem p = make(&shape);
    assert_int_equal(lab_measure(lab, LAB_FLASH2, &p, false, 0, &all, &err), 0);
    problem_free(&p);
    shape.mask = MASK_DOCUMENTS;
    p = make(&shape);
    assert_int_equal(lab_measure(lab, LAB_FLASH_MASK, &p, false, 0, &some, &err), 0);
    problem_free(&p);
    assert_true(some.counted < all.counted / 2);
}

static void test_masks_skip_tiles(void **state)
{
    (void)state;
    with_lab(64, skipped);
}

/* ---- FlashDecoding++ ---- */

/* A head whose scores are out of range is computed again, and right; the other is not. */
static void fallbacks(struct lab *lab)
{
    struct shape shape = {HEADS, 1, 700, lab->head_dim, MASK_NONE, 0};
    for (int sign = -1; sign <= 1; sign += 2) {
        struct problem p = make(&shape);
        for (int32_t d = 0; d < lab->head_dim; d++) {
            p.q[d] = (float)(4 * sign);
            for (int32_t key = 0; key < 700; key++)
                if (sign < 0 || key == 650) p.k[(int64_t)key * lab->head_dim + d] = 4 + (float)(key % 2) / 8;
        }
        check_row(lab, LAB_FLASH_DECODING_PLUS, &p, false);
        assert_int_equal(p.num_fallbacks, 1);
        problem_free(&p);
    }
}

static void test_fallbacks(void **state)
{
    (void)state;
    with_lab(64, fallbacks);
}

/* ---- the reference itself ---- */

static double objective(const struct problem *p)
{
    struct reference r;
    struct error err;
    double sum = 0;
    assert_int_equal(reference_init(&r, p, 0, false, &err), 0);
    for (int64_t i = 0; i < (int64_t)p->shape.num_queries * p->shape.head_dim; i++)
        sum += r.out[i] * (double)p->d_out[i];
    reference_free(&r);
    return sum;
}

static void check_gradient(const struct problem *p, float *x, double gradient)
{
    float before = *x, above, below;
    *x = above = before + 0x1p-7f;
    double difference = objective(p);
    *x = below = before - 0x1p-7f;
    difference -= objective(p);
    *x = before;
    difference /= (double)above - (double)below;
    if (fabs(difference - gradient) > 2e-4 * (1 + fabs(gradient)))
        fail_msg("the reference says %g, differences %g", gradient, difference);
}

static void test_reference_gradients(void **state)
{
    (void)state;
    struct shape shape = {1, 20, 20, 8, MASK_CAUSAL, 0};
    struct problem p = make(&shape);
    struct reference r;
    struct error err;
    assert_int_equal(reference_init(&r, &p, 0, true, &err), 0);
    for (int i = 0; i < 160; i += 7) {
        check_gradient(&p, &p.q[i], r.d_q[i]);
        check_gradient(&p, &p.k[i], r.d_k[i]);
        check_gradient(&p, &p.v[i], r.d_v[i]);
    }
    reference_free(&r);
    problem_free(&p);
}

/* ---- flat products ---- */

static void check_product(struct flat_product *p, enum dataflow way)
{
    struct traffic t = {.loaded = 0};
    memset(p->out, 0, (size_t)(p->m * p->n) * sizeof *p->out);
    flat_product_run(p, way, &t);
    assert_true((double)(t.loaded + t.stored) == flat_product_bytes(p, way));
    for (int32_t i = 0; i < p->m; i++)
        for (int32_t n = 0; n < p->n; n++) {
            double sum = 0;
            for (int32_t k = 0; k < p->k; k++) sum += (double)p->x[i * p->k + k] * (double)p->w[n * p->k + k];
            assert_true(fabs(sum - (double)p->out[i * p->n + n]) < 1e-5);
        }
}

static void test_flat_products(void **state)
{
    (void)state;
    enum { N = 24, K = 40, ROWS = 70 };
    static float x[ROWS * K], w[N * K], out[ROWS * N];
    static const int32_t rows[] = {1, 7, 8, 9, 64, 70};
    for (int i = 0; i < ROWS * K; i++) x[i] = (float)(i * 37 % 101) / 101 - 0.5f;
    for (int i = 0; i < N * K; i++) w[i] = (float)(i * 53 % 97) / 97 - 0.5f;
    for (size_t i = 0; i < array_length(rows); i++)
        for (int way = 0; way < NUM_DATAFLOWS; way++) {
            struct flat_product p = {rows[i], N, K, x, w, out};
            check_product(&p, (enum dataflow)way);
        }
}

/* ---- the command ---- */

/* Parts of a picture: three panels, a curve for each algorithm in two of them, its point in the third. */
__attribute__((unused)) static void test_picture(void **state)
{
    (void)state;
    struct lab_options o = {.device = device_name(), .longest = 256, .plot = "build/lab-test.svg"};
    struct error err = {0};
    char *table = NULL, *svg = calloc(1, 1 << 20);
    size_t size;
    FILE *out = open_memstream(&table, &size);
    if (lab_run(&o, out, &err)) fail_msg("%s", err.text);
    fclose(out);
    for (enum lab_id id = 0; id < NUM_LAB_ALGORITHMS; id++)
        assert_non_null(strstr(table, lab_algorithms[id].title));
    FILE *in = fopen(o.plot, "r");
    assert_non_null(in);
    assert_true(fread(svg, 1, (1 << 20) - 1, in) > 0);
    fclose(in);
    remove(o.plot);
    int curves = 0;
    for (const char *at = svg; (at = strstr(at, "<polyline class=\"curve\"")); at++) curves++;
    assert_int_equal(curves, 2 * NUM_LAB_ALGORITHMS);
    assert_null(strstr(svg, "nan"));
    assert_null(strstr(svg, "inf"));
    free(svg);
    free(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts),       cmocka_unit_test(test_decoding),
        cmocka_unit_test(test_masks),         cmocka_unit_test(test_masks_skip_tiles),
        cmocka_unit_test(test_fallbacks),     cmocka_unit_test(test_reference_gradients),
        cmocka_unit_test(test_flat_products),
#ifndef FLASHD_DEBUG /* it times everything: half a minute there */
        cmocka_unit_test(test_picture),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
