/* What an engine process leaves as it dies: the fault in the link, and its log. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/log_writer.h"
#include "engine/last_words.h"

enum { LINES = 500 };

static _Noreturn void log_and_abort(int fd, struct link *link)
{
    struct error err;
    dup2(fd, STDERR_FILENO);
    assert_always(log_writer_start(&err) == 0);
    last_words_prepare(link);
    for (int i = 0; i < LINES; i++) log_info("line %d", i);
    abort();
}

static void an_abort_writes_the_log_and_notes_the_fault(void **state)
{
    struct link *link;
    struct error err;
    char line[256];
    int ends[2], status, count = 0;
    (void)state;
    assert_int_equal(link_create(&link, &err), 0);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) log_and_abort(ends[1], link);
    close(ends[1]);
    FILE *log = fdopen(ends[0], "r");
    while (fgets(line, sizeof line, log)) count++;
    fclose(log);
    assert_int_equal(count, LINES);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_true(link_has_fault(link));
    link_destroy(link);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_abort_writes_the_log_and_notes_the_fault)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
