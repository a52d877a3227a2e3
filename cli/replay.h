/* replay.h - `flashd replay JOURNAL`: what a server has answered, answered again. */
#ifndef CLI_REPLAY_H
#define CLI_REPLAY_H

#include "config/flags.h"

extern const struct flag replay_flags[];

/* Returns the process's exit code: 0: the same answers; 1: others, or none; 2: usage. */
int replay_run(int num_args, char **args);

#endif
