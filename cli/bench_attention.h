/* bench_attention.h - `flashd bench attention`: the lab (lab/attention/README.md). */
#ifndef CLI_BENCH_ATTENTION_H
#define CLI_BENCH_ATTENTION_H

#include "config/flags.h"

extern const struct flag bench_attention_flags[];

/* Returns the process's exit code: 0: every row is right; 1: one is not, or the device cannot be had; 2: usage. */
int bench_attention_run(int num_args, char **args);

#endif
