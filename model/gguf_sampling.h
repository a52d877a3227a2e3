/* gguf_sampling.h - the sampling that a GGUF file's publisher recommends: general.sampling.*, as converters write what
 * generation_config.json says, and as llama.cpp takes it. Thread: any. */
#ifndef MODEL_GGUF_SAMPLING_H
#define MODEL_GGUF_SAMPLING_H

#include "base/status.h"
#include "link/sampling.h"

struct gguf;

/* path: for sentences. temp, top_k, top_p, min_p and penalty_repeat; what is not there stays open. */
int gguf_sampling_read(const struct gguf *g, const char *path, struct generation_defaults *defaults,
                       struct error *err) must_check;

#endif
