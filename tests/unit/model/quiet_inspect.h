/* quiet_inspect.h - `flashd inspect` within a test, thousands of times, without what it prints. */
#ifndef TESTS_UNIT_MODEL_QUIET_INSPECT_H
#define TESTS_UNIT_MODEL_QUIET_INSPECT_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "config/config.h"
#include "cli/inspect.h"

static inline bool inspect_opens(const char *model)
{
    struct config config;
    int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);
    assert_always(out >= 0 && err >= 0 && null >= 0 && config_init(&config, NULL) == 0);
    config.model = strdup(model);
    fflush(stdout);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    int code = inspect_run(&config, false);
    fflush(stdout);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    close(out);
    close(err);
    close(null);
    config_deinit(&config);
    return code == EXIT_SUCCESS;
}

#endif
