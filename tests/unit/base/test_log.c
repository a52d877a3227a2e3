/* test_log.c - what a line may hold, and how it comes out when nobody reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/log_line.h"
#include "base/log_writer.h"

static uint64_t some_time(void)
{
    return 1700000000123456789u;
}

static const struct clock_source fixed_clock = {some_time, some_time, NULL};

/* The line of one text field (or of a message alone, key NULL), NUL-terminated. */
static const char *line_of(bool json, const char *key, const char *text)
{
    static struct log_line line;
    static char out[LOG_LINE_BYTES_MAX + 1];
    clock_set_source(&fixed_clock);
    log_line_choose_format(json);
    log_line_begin(&line, LOG_INFO, key ? "m" : text, key ? 1 : strlen(text));
    if (key) log_line_add(&line, &(struct log_field){key, LOG_FIELD_TEXT, .text = text});
    log_line_end(&line);
    assert_true(line.num_bytes <= LOG_LINE_BYTES_MAX);
    memcpy(out, line.bytes, line.num_bytes);
    out[line.num_bytes] = '\0';
    clock_set_source(NULL);
    return out;
}

static void no_text_moves_the_cursor_or_turns_the_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *shown, *json; /* json NULL: as shown */
    } cases[] = {
        {"plain", "k=plain", NULL},
        {"caf\xc3\xa9", "k=caf\xc3\xa9", "caf\xc3\xa9"},
        {"", "k=\"\"", ""},
        {"a b", "k=\"a b\"", "a b"},
        {"a\"\\", "k=\"a\\\"\\\\\"", "a\\\"\\\\"},
        {"\x1b[2J", "k=\"\\u001b[2J\"", "\\u001b[2J"},
        {"\a\v\b\x7f", "k=\"\\u0007\\u000b\\u0008\\u007f\"", "\\u0007\\u000b\\u0008\\u007f"},
        {"a\nb\r\t", "k=\"a\\u000ab\\u000d\\u0009\"", "a\\u000ab\\u000d\\u0009"},
        {"\xc2\x9b"
         "31m",
         "k=\"\\u009b31m\"", "\\u009b31m"},
        {"\xe2\x80\xa8\xe2\x80\xa9", "k=\"\\u2028\\u2029\"", "\\u2028\\u2029"},
        {"\xe2\x80\xae"
         "fdp",
         "k=\"\\u202efdp\"", "\\u202efdp"},
        {"\xe2\x81\xa6\xd8\x9c\xe2\x80\x8b\xef\xbb\xbf", "k=\"\\u2066\\u061c\\u200b\\ufeff\"",
         "\\u2066\\u061c\\u200b\\ufeff"},
        {"\xf3\xa0\x81\x81", "k=\"\\udb40\\udc41\"", "\\udb40\\udc41"},
        {"\xff\xc3", "k=\"\\xff\\xc3\"", "\\\\xff\\\\xc3"},
        {"\xed\xa0\x80", "k=\"\\xed\\xa0\\x80\"", "\\\\xed\\\\xa0\\\\x80"},
        {"\xef\xbf\xbd", "k=\xef\xbf\xbd", "\xef\xbf\xbd"},
    };
    for (size_t i = 0; i < array_length(cases); i++) {
        char expected[200];
        snprintf(expected, sizeof expected, "2023-11-14T22:13:20.123Z info m %s\n", cases[i].shown);
        assert_string_equal(line_of(false, "k", cases[i].text), expected);
        snprintf(expected, sizeof expected,
                 "{\"ts\":\"2023-11-14T22:13:20.123Z\",\"level\":\"info\",\"msg\":\"m\",\"k\":\"%s\"}\n",
                 cases[i].json ? cases[i].json : cases[i].text);
        assert_string_equal(line_of(true, "k", cases[i].text), expected);
    }
    assert_string_equal(line_of(false, NULL, "to \x1b]0;x\a \"you\"\n"),
                        "2023-11-14T22:13:20.123Z info to \\u001b]0;x\\u0007 \"you\"\\u000a\n");
}

static void long_texts_are_cut_and_the_line_is_whole(void **state)
{
    (void)state;
    static const char *const units[] = {"a",    "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\x1b",
                                        "\xff", "\"",           "\xf3\xa0\x81\x81"};
    char text[3 * LOG_LINE_BYTES_MAX];
    for (size_t u = 0; u < array_length(units); u++) {
        size_t unit_bytes = strlen(units[u]);
        for (size_t n = LOG_LINE_BYTES_MAX / 14; n * unit_bytes < sizeof text && n < LOG_LINE_BYTES_MAX + 10;
             n++) {
            for (size_t i = 0; i < n; i++) memcpy(text + i * unit_bytes, units[u], unit_bytes);
            text[n * unit_bytes] = '\0';
            const char *line = line_of(true, n % 2 ? "key" : NULL, text);
            cJSON *object = cJSON_ParseWithOpts(line, NULL, 0);
            if (!object) fail_msg("%zu times %s: %s", n, units[u], line);
            const char *kept = cJSON_GetStringValue(cJSON_GetObjectItem(object, n % 2 ? "key" : "msg"));
            assert_true(kept[0]);
            if (strlen(line) < LOG_LINE_BYTES_MAX - 30) assert_null(strstr(kept, "..."));
            cJSON_Delete(object);
            line = line_of(false, n % 2 ? "key" : NULL, text);
            assert_true(strchr(line, '\n') == line + strlen(line) - 1);
        }
    }
}

static void a_field_that_does_not_fit_is_left_out(void **state)
{
    (void)state;
    struct log_line line;
    char text[LOG_LINE_BYTES_MAX];
    log_line_choose_format(true);
    for (size_t n = LOG_LINE_BYTES_MAX - 200; n < LOG_LINE_BYTES_MAX; n++) {
        memset(text, 'a', n);
        log_line_begin(&line, LOG_ERROR, text, n);
        for (int i = 0; i < 20; i++) {
            log_line_add(&line, &(struct log_field){"t", LOG_FIELD_TEXT, .text = "\x1b\x1b"});
            log_line_add(&line, &(struct log_field){"i", LOG_FIELD_INT, .integer = INT64_MIN});
            log_line_add(&line, &(struct log_field){"r", LOG_FIELD_REAL, .real = 1e300});
            log_line_add(&line, &(struct log_field){"nan", LOG_FIELD_REAL, .real = 0.0 / 0.0});
        }
        log_line_end(&line);
        assert_true(line.num_bytes <= LOG_LINE_BYTES_MAX && line.bytes[line.num_bytes - 1] == '\n');
        cJSON *object = cJSON_ParseWithLength(line.bytes, line.num_bytes);
        assert_non_null(object);
        cJSON_Delete(object);
    }
}

/* ---- the writer: each test in a process of its own, whose stderr is a pipe of one page ---- */

struct child {
    pid_t pid;
    FILE *log; /* what it writes */
};

static struct child begin(void (*main)(void))
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fcntl(ends[0], F_SETPIPE_SZ, 4096);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[1]);
        alarm(60);
        log_line_choose_format(false);
        main();
        _exit(0);
    }
    close(ends[1]);
    return (struct child){pid, fdopen(ends[0], "r")};
}

static int wait_for(struct child *child)
{
    int status;
    waitpid(child->pid, &status, 0);
    fclose(child->log);
    return status;
}

enum { MANY_LINES = 40000 };

static void log_more_than_is_read(void)
{
    struct error err;
    assert_always(log_writer_start(&err) == 0);
    for (int i = 0; i < MANY_LINES; i++) log_info("line %d %0200d", i, 0);
    assert_always(log_writer_num_dropped() > 0);
    puts("all are logged"); /* nobody has read a byte */
    fflush(stdout);
    log_writer_stop();
    log_info("again");
}

static void a_reader_that_stalls_holds_nobody_up(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    int own_stdout = dup(STDOUT_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    struct child child = begin(log_more_than_is_read);
    dup2(own_stdout, STDOUT_FILENO);
    close(own_stdout);
    close(ends[1]);
    char said[64] = "";
    assert_true(read(ends[0], said, sizeof said - 1) > 0);
    assert_string_equal(said, "all are logged\n");
    close(ends[0]);
    char line[LOG_LINE_BYTES_MAX];
    int next = 0, i, num_dropped = 0;
    while (!num_dropped && fgets(line, sizeof line, child.log)) {
        if (strstr(line, "lines were dropped"))
            num_dropped = atoi(strstr(line, "warning") + 8);
        else if (sscanf(line, "%*s info line %d", &i) == 1)
            assert_int_equal(i, next++); /* whole, and in their order */
        else
            fail_msg("%s", line);
    }
    assert_true(num_dropped > 0);
    assert_int_equal(next + num_dropped, MANY_LINES);
    assert_non_null(fgets(line, sizeof line, child.log));
    assert_non_null(strstr(line, "info again"));
    assert_int_equal(wait_for(&child), 0);
}

static void stop_without_a_reader(void)
{
    struct error err;
    assert_always(log_writer_start(&err) == 0);
    for (int i = 0; i < 1000; i++) log_info("line %d %0200d", i, 0);
    log_writer_stop();
    log_info("after the end");
}

static void the_end_does_not_wait_for_a_reader(void **state)
{
    (void)state;
    struct child child = begin(stop_without_a_reader);
    assert_int_equal(wait_for(&child), 0);
}

static void *log_lines(void *name)
{
    for (int i = 0; i < 2000; i++) log_info("%s %d %0*d", (const char *)name, i, i % 300, 0);
    return NULL;
}

static void log_from_threads(void)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    pthread_t threads[4];
    struct error err;
    log_info("before");
    assert_always(log_writer_start(&err) == 0);
    for (int i = 0; i < 4; i++)
        assert_always(pthread_create(&threads[i], NULL, log_lines, (void *)(uintptr_t)names[i]) == 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    log_writer_stop();
    log_info("after");
    assert_always(log_writer_num_dropped() == 0);
}

static void lines_of_threads_are_whole_and_in_order(void **state)
{
    (void)state;
    struct child child = begin(log_from_threads);
    char line[LOG_LINE_BYTES_MAX], name;
    int next[4] = {0}, i;
    assert_non_null(fgets(line, sizeof line, child.log));
    assert_non_null(strstr(line, "info before\n"));
    while (fgets(line, sizeof line, child.log) && sscanf(line, "%*s info %c %d", &name, &i) == 2)
        assert_int_equal(i, next[name - 'a']++);
    for (int t = 0; t < 4; t++) assert_int_equal(next[t], 2000);
    assert_non_null(strstr(line, "info after\n"));
    assert_int_equal(wait_for(&child), 0);
}

static void log_and_abort(void)
{
    struct error err;
    assert_always(log_writer_start(&err) == 0);
    for (int i = 0; i < 500; i++) log_info("line %d", i);
    abort();
}

static void the_lines_before_an_abort_are_written(void **state)
{
    (void)state;
    struct child child = begin(log_and_abort);
    char line[LOG_LINE_BYTES_MAX];
    int count = 0;
    while (fgets(line, sizeof line, child.log)) count++;
    assert_int_equal(count, 500);
    int status = wait_for(&child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_text_moves_the_cursor_or_turns_the_line),
        cmocka_unit_test(long_texts_are_cut_and_the_line_is_whole),
        cmocka_unit_test(a_field_that_does_not_fit_is_left_out),
        cmocka_unit_test(a_reader_that_stalls_holds_nobody_up),
        cmocka_unit_test(the_end_does_not_wait_for_a_reader),
        cmocka_unit_test(lines_of_threads_are_whole_and_in_order),
        cmocka_unit_test(the_lines_before_an_abort_are_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
