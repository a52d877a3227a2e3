/* test_base.c - buffers, arenas, ring, metrics page, status sentences. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <string.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "base/parallel.h"
#include "base/ring.h"
#include "base/rng.h"
#include "base/status.h"

static void buffer_stops_at_its_maximum(void **state)
{
    (void)state;
    struct buffer b;
    buffer_init(&b, 10);
    buffer_append_text(&b, "0123456789");
    assert_false(buffer_failed(&b));
    buffer_append_char(&b, 'x');
    assert_true(buffer_failed(&b));
    assert_int_equal(b.num_bytes, 10);
    assert_string_equal(b.data, "0123456789");
    buffer_clear(&b);
    buffer_printf(&b, "%d-%s", 42, "ab");
    assert_string_equal(b.data, "42-ab");
    buffer_consume(&b, 3);
    assert_string_equal(b.data, "ab");
    buffer_deinit(&b);
}

static void buffer_prints_long_texts_whole(void **state)
{
    (void)state;
    char text[2000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    struct buffer b;
    buffer_init(&b, 1 << 20);
    for (int i = 0; i < 3; i++) buffer_printf(&b, "<%s>", text);
    assert_int_equal(b.num_bytes, 3 * (sizeof text + 1));
    assert_int_equal(b.data[b.num_bytes - 1], '>');
    buffer_deinit(&b);
}

static void buffer_escapes_json(void **state)
{
    (void)state;
    struct buffer b;
    buffer_init(&b, 1000);
    buffer_append_json(&b, "a\"\\\n\x01\x7f\0z\xc3\xa9", 10);
    assert_string_equal(b.data, "\"a\\\"\\\\\\n\\u0001\\u007f\\u0000z\xc3\xa9\"");
    buffer_deinit(&b);
}

static void arena_keeps_its_cap_and_gives_everything_back(void **state)
{
    (void)state;
    size_t before = arena_total_bytes();
    struct arena a;
    arena_init(&a, 10000);
    char *p = arena_alloc(&a, 100);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 16, 0);
    for (int i = 0; i < 100; i++) assert_int_equal(p[i], 0);
    assert_non_null(arena_alloc(&a, 8000));
    assert_null(arena_alloc(&a, 8000));
    assert_null(arena_alloc_array(&a, SIZE_MAX / 2, 3));
    assert_string_equal(arena_copy(&a, "hello", 5), "hello");
    assert_true(arena_total_bytes() > before);
    arena_deinit(&a);
    assert_int_equal(arena_total_bytes(), before);
}

enum { RING_ITEMS = 100000 };

static void *push_all(void *context)
{
    struct ring *r = context;
    for (uint32_t i = 0; i < RING_ITEMS;)
        if (ring_push(r, i)) i++;
    return NULL;
}

static void ring_keeps_order_between_threads(void **state)
{
    (void)state;
    uint32_t items[64];
    struct ring_ends ends = {0};
    struct ring r = ring_view(&ends, items, 64);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, push_all, &r), 0);
    for (uint32_t expected = 0, got; expected < RING_ITEMS;)
        if (ring_pop(&r, &got)) assert_int_equal(got, expected++);
    pthread_join(thread, NULL);
    assert_false(ring_pop(&r, &(uint32_t){0}));
}

static void metrics_page_is_exact(void **state)
{
    (void)state;
    static const double bounds[] = {0.5, 1, 2.5};
    struct metric *c = metric_register(METRIC_COUNTER, "x_total", "Things.", "a=\"b\"", NULL, 0);
    struct metric *h = metric_register(METRIC_HISTOGRAM, "y_seconds", "Time.", "", bounds, 3);
    metric_add(c, 3);
    metric_observe(h, 0.5);
    metric_observe(h, 0.75);
    metric_observe(h, 100);
    metric_add(metric_add_counter("x_total", "Things.", "a=\"c\""), 2);
    struct buffer page;
    buffer_init(&page, 1 << 16);
    metrics_render(&page, 0);
    assert_string_equal(page.data, "# HELP x_total Things.\n# TYPE x_total counter\nx_total{a=\"b\"} 3\n"
                                   "x_total{a=\"c\"} 2\n"
                                   "# HELP y_seconds Time.\n# TYPE y_seconds histogram\n"
                                   "y_seconds_bucket{le=\"0.5\"} 1\ny_seconds_bucket{le=\"1.0\"} 2\n"
                                   "y_seconds_bucket{le=\"2.5\"} 2\ny_seconds_bucket{le=\"+Inf\"} 3\n"
                                   "y_seconds_sum 101.25\ny_seconds_count 3\n");
    buffer_clear(&page);
    metrics_render(&page, 1);
    assert_non_null(strstr(page.data, "# TYPE x counter\n"));
    assert_non_null(strstr(page.data, "# EOF\n"));
    metric_add_counter("z_total", "Others.", "");
    metric_register(METRIC_GAUGE, "last", "The last.", "", NULL, 0);
    buffer_clear(&page);
    metrics_render(&page, 0);
    assert_non_null(strstr(
        page.data, "# TYPE z_total counter\nz_total 0\n# HELP last The last.\n# TYPE last gauge\nlast 0\n"));
    buffer_deinit(&page);
    metrics_reset();
}

static void errors_are_cut_on_a_utf8_border(void **state)
{
    (void)state;
    char text[600];
    memset(text, 'a', sizeof text);
    memcpy(text + 510, "\xe2\x82\xac", 4);
    struct error err;
    assert_int_equal(error_set(&err, STATUS_INVALID, "%s", text), STATUS_INVALID);
    assert_int_equal(strlen(err.text), 510);
    assert_string_equal(status_text(STATUS_NO_BLOCKS), "no free K/V blocks");
    assert_int_equal(error_set(NULL, STATUS_IO, "x"), STATUS_IO);
}

static void philox_gives_the_published_numbers(void **state)
{
    (void)state; /* known-answer vectors of the Random123 library, philox4x32-10 */
    struct rng_block zeros = rng_philox(0, 0, 0);
    assert_int_equal(zeros.word[0], 0x6627e8d5);
    assert_int_equal(zeros.word[3], 0x9b00dbd8);
    struct rng_block ones = rng_philox(UINT64_MAX, UINT64_MAX, UINT64_MAX);
    assert_int_equal(ones.word[0], 0x408f276d);
    assert_int_equal(ones.word[3], 0x6d5451fd);
}

static void sizes_do_not_wrap(void **state)
{
    (void)state;
    uint64_t r = 7;
    assert_false(checked_mul(UINT64_MAX, 2, &r));
    assert_false(checked_add(UINT64_MAX, 1, &r));
    assert_int_equal(r, 7);
    assert_true(checked_mul(1u << 31, 2, &r));
    assert_true(r == (uint64_t)1 << 32);
}

static void wall_time_is_rfc3339(void **state)
{
    (void)state;
    char text[32];
    clock_format_wall(1700000000123456789u, text);
    assert_string_equal(text, "2023-11-14T22:13:20.123Z");
}

struct visits {
    int count[1000];
    int64_t least, total;
};

static void visit(void *context, int64_t begin, int64_t end)
{
    struct visits *v = context;
    assert_true(end - begin >= v->least || end - begin == v->total);
    for (int64_t i = begin; i < end; i++) v->count[i]++;
}

static void parallel_ranges_make_up_the_whole(void **state)
{
    (void)state;
    for (int64_t total = 0; total <= 1000; total += total < 20 ? 1 : 49)
        for (int64_t least = 1; least <= 64; least *= 4) {
            struct visits v = {.least = least, .total = total};
            parallel_ranges(total, least, visit, &v);
            for (int64_t i = 0; i < 1000; i++) assert_int_equal(v.count[i], i < total);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffer_stops_at_its_maximum),
        cmocka_unit_test(buffer_prints_long_texts_whole),
        cmocka_unit_test(parallel_ranges_make_up_the_whole),
        cmocka_unit_test(buffer_escapes_json),
        cmocka_unit_test(arena_keeps_its_cap_and_gives_everything_back),
        cmocka_unit_test(ring_keeps_order_between_threads),
        cmocka_unit_test(metrics_page_is_exact),
        cmocka_unit_test(errors_are_cut_on_a_utf8_border),
        cmocka_unit_test(philox_gives_the_published_numbers),
        cmocka_unit_test(sizes_do_not_wrap),
        cmocka_unit_test(wall_time_is_rfc3339),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
