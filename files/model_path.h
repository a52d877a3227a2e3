/* model_path.h - whether a path may be a model, before anything is promised about it. */
#ifndef FILES_MODEL_PATH_H
#define FILES_MODEL_PATH_H

#include "base/status.h"

/* 0 for a file that begins like GGUF and a directory with a config.json; whether they can be loaded is
 * another matter.
 */
int model_path_check(const char *path, struct error *err) must_check;

#endif
