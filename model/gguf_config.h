/* gguf_config.h - the keys of a GGUF file as a model_config.
 *
 * Architectures: family.h. Files of architecture llama (Llama, Mistral, SmolLM2: one graph) have the rows of
 * Q and K permuted, so that the rotation pairs neighbours (ROPE_PAIRS); the rows stay as they are here too.
 * What flashd does not compute is refused with STATUS_UNSUPPORTED and a sentence. Thread: any. */
#ifndef MODEL_GGUF_CONFIG_H
#define MODEL_GGUF_CONFIG_H

#include "base/status.h"
#include "model/model_config.h"

struct gguf;

/* path: for sentences. vocab_size and tie_word_embeddings come from the tensors. */
int gguf_config_read(const struct gguf *g, const char *path, struct model_config *config,
                     struct error *err) must_check;

#endif
