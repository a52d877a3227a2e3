/* inspect.h - `flashd inspect MODEL`: one screen about a model, without loading its weights. */
#ifndef CLI_INSPECT_H
#define CLI_INSPECT_H

#include "config/config.h"

/* Prints to stdout; returns the process's exit code. */
int inspect_run(const struct config *config);

#endif
