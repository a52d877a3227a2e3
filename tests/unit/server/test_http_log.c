/* test_http_log.c - refusals in the log: one line a second of each kind, and how many were left out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "server/http_log.h"

static int saved_stderr;
static FILE *file;

static void begin_capture(void)
{
    fflush(stderr);
    saved_stderr = dup(STDERR_FILENO);
    file = tmpfile();
    dup2(fileno(file), STDERR_FILENO);
    log_configure(LOG_INFO, false);
}

/* What was written. The caller frees. */
static char *end_capture(void)
{
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    long n = (fseek(file, 0, SEEK_END), ftell(file));
    char *text = calloc(1, (size_t)n + 1);
    rewind(file);
    assert_int_equal(fread(text, 1, (size_t)n, file), n);
    fclose(file);
    log_configure(LOG_ERROR, false);
    return text;
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text++) n++;
    return n;
}

static void refuse_one(struct http_log *log, int http_status, const char *code)
{
    http_log_refusal(log, &(struct http_log_refusal){
                              .request_id = "r", .client = "c", .http_status = http_status, .code = code});
}

static void stop_counting(uv_timer_t *timer)
{
    uv_close((uv_handle_t *)timer, NULL);
}

/* Turns the loop for so long. */
static void pass(uv_loop_t *loop, uint64_t ms)
{
    uv_timer_t timer;
    uv_timer_init(loop, &timer);
    uv_timer_start(&timer, stop_counting, ms, 0);
    while (uv_is_active((uv_handle_t *)&timer) || uv_is_closing((uv_handle_t *)&timer)) {
        if (!uv_run(loop, UV_RUN_ONCE)) break;
        if (!uv_is_active((uv_handle_t *)&timer)) break;
    }
    uv_run(loop, UV_RUN_NOWAIT);
}

static void test_one_line_a_kind(void **state)
{
    (void)state;
    uv_loop_t loop;
    struct http_log log = {0};
    assert_int_equal(uv_loop_init(&loop), 0);
    http_log_init(&log, &loop);
    begin_capture();
    for (int i = 0; i < 1000; i++) {
        refuse_one(&log, 400, NULL);
        refuse_one(&log, 401, "invalid_api_key");
        refuse_one(&log, 404, "unknown_url");
        http_log_cut_off(&log, NULL, "c", "slow", 7);
    }
    http_log_close(&log); /* says the rest */
    http_log_close(&log);
    char *text = end_capture();
    assert_int_equal(count(text, "request refused "), 3);
    assert_int_equal(count(text, "slow client cut off "), 1);
    assert_int_equal(count(text, "requests refused "), 3);
    assert_int_equal(count(text, "slow clients cut off left_out=999\n"), 1);
    assert_int_equal(count(text, "requests refused status=401 code=invalid_api_key left_out=999\n"), 1);
    assert_int_equal(count(text, "\n"), 8);
    free(text);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* A kind that has stopped is summed up by the timer, one that goes on by its next line. */
static void test_what_was_left_out_is_said(void **state)
{
    (void)state;
    uv_loop_t loop;
    struct http_log log = {0};
    assert_int_equal(uv_loop_init(&loop), 0);
    http_log_init(&log, &loop);
    begin_capture();
    for (int i = 0; i < 5; i++) refuse_one(&log, 400, NULL);
    pass(&loop, 2500);
    refuse_one(&log, 400, NULL);
    http_log_close(&log);
    uv_run(&loop, UV_RUN_DEFAULT);
    char *text = end_capture();
    assert_int_equal(count(text, "requests refused status=400 left_out=4\n"), 1);
    assert_int_equal(count(text, "request refused "), 2);
    free(text);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* More kinds than there is room for share one. */
static void test_many_kinds(void **state)
{
    (void)state;
    static char codes[100][16];
    uv_loop_t loop;
    struct http_log log = {0};
    assert_int_equal(uv_loop_init(&loop), 0);
    http_log_init(&log, &loop);
    begin_capture();
    for (int i = 0; i < 100; i++) {
        snprintf(codes[i], sizeof codes[i], "c%d", i);
        refuse_one(&log, 400, codes[i]);
    }
    http_log_close(&log);
    char *text = end_capture();
    assert_int_equal(count(text, "request refused "), HTTP_LOG_KINDS_MAX);
    assert_int_equal(count(text, "left_out=68\n"), 1);
    free(text);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_line_a_kind),
        cmocka_unit_test(test_what_was_left_out_is_said),
        cmocka_unit_test(test_many_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
