/* load_files.h - the files that the options name: the model's, and those of the adapters that are served beside it. Owner: the caller
 * (model_files_close). Thread: one. */
#ifndef ENGINE_LOAD_FILES_H
#define ENGINE_LOAD_FILES_H

#include "config/config.h"
#include "link/link.h"
#include "model/model_files.h"

/* NULL in *out where it fails. link: one that another engine had opened says which adapters there are by now; NULL: there is none. */
int load_files_open(const struct config *config, const struct link *link, struct model_files **out,
                    struct error *err) must_check;

#endif
