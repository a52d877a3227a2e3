/* arguments.h - the options of a command line. */
#ifndef CONFIG_ARGUMENTS_H
#define CONFIG_ARGUMENTS_H

#include "config/config.h"

/* --config is skipped: it was read before. */
int arguments_load(struct config *c, int num_args, char *const *args, struct error *err) must_check;

#endif
