/* inspect.h - `flashd inspect MODEL`: one screen about a model, without loading its weights. */
#ifndef SERVER_INSPECT_H
#define SERVER_INSPECT_H

#include "config/config.h"

/* Prints to stdout; returns the process's exit code. */
int inspect_run(const struct config *config);

#endif
