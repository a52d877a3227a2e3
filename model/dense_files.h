/* dense_files.h - the weights of what an embedding goes through behind its pooling: of a Hugging Face directory each layer's
 * own folder (linear.weight, linear.bias), of a GGUF file dense_2.weight and dense_3.weight. Thread: one. */
#ifndef MODEL_DENSE_FILES_H
#define MODEL_DENSE_FILES_H

#include "files/gguf.h"
#include "files/safetensors.h"
#include "model/model_config.h"

struct dense_files {
    struct safetensors *opened[DENSE_LAYERS_MAX];  /* of a directory */
    struct weight_view matrices[DENSE_LAYERS_MAX], /* [num_out][num_in] */
        biases[DENSE_LAYERS_MAX];                  /* [1][num_out]; data NULL: none */
};

/* Of what c->dense has; gguf: NULL for a directory. All shapes are as they should be, and fit each other and the hidden size.
 * What was opened is the caller's to close, after an error too. */
int dense_files_open(struct dense_files *d, const struct model_config *c, const char *path,
                     const struct gguf *gguf, struct error *err) must_check;
void dense_files_close(struct dense_files *d);
/* As stored. */
uint64_t dense_files_bytes(const struct dense_files *d);

#endif
