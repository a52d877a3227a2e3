/* command.h - how a command of the program ends. Thread: any. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include <stdio.h>

#include "base/status.h"

enum { EXIT_USAGE = 2 };

/* Says why on stderr, and returns the exit code. */
static inline int command_fail(const struct error *err, int code)
{
    fprintf(stderr, "flashd: %s\n", err->text);
    return code;
}

#endif
