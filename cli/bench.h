/* bench.h - `flashd bench serve [URL]`: a load on a server of OpenAI's protocol, and what it shows. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "config/flags.h"

extern const struct flag bench_flags[];

/* Returns the process's exit code: 0: every request completed; 1: not so, or no server is there; 2: usage. */
int bench_run(int num_args, char **args);

#endif
