/* dense_layers.h - what an embedding goes through behind its pooling: y = f(W x + b), one layer behind the other, f nothing or
 * tanh. One row at a time, on the host, in one order of sums, so that an embedding's bits depend on its row alone. Thread: the
 * engine's. */
#ifndef MODEL_DENSE_LAYERS_H
#define MODEL_DENSE_LAYERS_H

#include "model/model_files.h"

struct dense_layers;

/* Takes the weights as f32. */
int dense_layers_create(const struct model_files *files, struct dense_layers **out,
                        struct error *err) must_check;
void dense_layers_destroy(struct dense_layers *d);

/* x: [H]; gives [model_config_embedding_size], which the next call overwrites. Allocates nothing. */
const float *dense_layers_apply(struct dense_layers *d, const float *x);

#endif
