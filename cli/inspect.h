/* inspect.h - `flashd inspect MODEL`: one screen about a model, without loading its weights: what it is, what a token costs,
 * what fits, and what the roof over this machine allows. */
#ifndef CLI_INSPECT_H
#define CLI_INSPECT_H

#include "config/config.h"

/* Prints to stdout; returns the process's exit code. measures: this machine, too, which takes a second. */
int inspect_run(const struct config *config, bool measures);

#endif
