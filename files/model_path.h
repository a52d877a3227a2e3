/* model_path.h - where a model is, and whether that may be one, before anything is promised about it. */
#ifndef FILES_MODEL_PATH_H
#define FILES_MODEL_PATH_H

#include "base/status.h"

/* model is a path, or a name that is found in the Hugging Face cache (hub_cache.h). 0 for a file that begins like GGUF and a directory with a
 * config.json; whether they can be loaded is another matter. The caller frees *path, on failure, too. */
int model_path_find(const char *model, char **path, struct error *err) must_check;

#endif
