/* verify.h - `flashd verify RECEIPT`: is this what the model answers to that request? */
#ifndef CLI_VERIFY_H
#define CLI_VERIFY_H

#include "config/flags.h"

extern const struct flag verify_flags[];

/* Returns the process's exit code: 0: the same answer; 1: another, or none; 2: usage. */
int verify_run(int num_args, char **args);

#endif
