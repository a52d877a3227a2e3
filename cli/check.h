/* check.h - `flashd check URL`: does a server of OpenAI's protocol hold what its clients rely on? */
#ifndef CLI_CHECK_H
#define CLI_CHECK_H

#include "config/flags.h"

extern const struct flag check_flags[];

/* Returns the process's exit code: 0: all holds, but for what the server refuses to show; 1: not so, or no server is
 * there; 2: usage. */
int check_run(int num_args, char **args);

#endif
