/* model_files.h - a model on disk, opened: one GGUF file or a Hugging Face directory, mapped and validated.
 *
 * After a successful open every weight that the family needs exists with the right shape, lies
 * inside its file, and can be viewed without copying. Nothing in a file is trusted: a bad offset, size,
 * shape, count or type is a sentence that names the file and the tensor. With load_format "dummy" only
 * config.json is read and the weights are random (seeded, scaled so that activations stay near 1).
 * Owner: whoever opened closes, after the device has taken the weights in. Thread: one. */
#ifndef MODEL_MODEL_FILES_H
#define MODEL_MODEL_FILES_H

#include "base/status.h"
#include "kernels/device.h"
#include "model/dense_files.h"
#include "model/model_config.h"
#include "model/weights.h"

struct model_files;
struct lora_files;
struct safetensor;
struct task_embedding;

/* path: a .gguf file or a directory. load_format: "auto" or "dummy". */
int model_files_open(const char *path, const char *load_format, struct model_files **out,
                     struct error *err) must_check;
void model_files_close(struct model_files *f);

const struct model_config *model_files_config(const struct model_files *f);
const struct generation_defaults *model_files_generation_defaults(const struct model_files *f);

/* layer is ignored (give 0) for roles that are not per layer. data is NULL when the model has no such weight;
 * dummy weights are made when they are first asked for, so there NULL may also mean no memory. */
struct weight_view model_files_weight(const struct model_files *f, enum weight_role role, int32_t layer);

/* As model_files_weight, of a role that each expert has one of. */
struct weight_view model_files_expert(const struct model_files *f, enum weight_role role, int32_t layer,
                                      int32_t expert);

/* How a directory of Hugging Face's has a matrix of a layer, whatever the model's own files are: name stands behind the layer's number,
 * which is counted as there; the tensor has so many rows and columns, and those that are meant are what model_files_cut leaves. */
struct matrix_in_directory {
    const char *name;
    int32_t layer;
    int64_t rows, cols;
};
/* False: it has none such. */
bool model_files_in_directory(const struct model_files *f, enum weight_role role, int32_t layer,
                              struct matrix_in_directory *out);
/* Of a tensor with such rows those of the role. */
struct weight_view model_files_cut(const struct model_files *f, enum weight_role role, int32_t layer,
                                   const struct weight_view *tensor);

/* Of a directory whose matrices have names that end in "original": the tensor that has ending in its place; NULL: there is none. */
const struct safetensor *model_files_beside(const struct model_files *f, enum weight_role role, int32_t layer,
                                            const char *ending);
/* NULL: tasks add nothing to embeddings. */
const struct task_embedding *model_files_task_embedding(const struct model_files *f);

/* Adapters of low rank (lora_files.h) that are served beside the model, each in a place, in their order, those of its own tasks first. "":
 * the place is empty. */
int model_files_add_lora(struct model_files *f, const char *path, struct error *err) must_check;
/* Other adapters may take the places later (model_lora_set), of this rank at most; 0 at first: none. */
void model_files_set_lora_rank(struct model_files *f, int32_t max_rank);
int32_t model_files_lora_rank(const struct model_files *f);
int32_t model_files_num_loras(const struct model_files *f);                        /* places */
const struct lora_files *model_files_lora(const struct model_files *f, int32_t i); /* NULL: empty */
/* Of all of them, as stored, or of the largest that may come. */
uint64_t model_files_lora_bytes(const struct model_files *f);

/* Behind an embedding's pooling. */
const struct dense_files *model_files_dense(const struct model_files *f);

/* A hint that this layer's weights will be asked for soon: reading them from disk starts. */
void model_files_prefetch(const struct model_files *f, int32_t layer);

/* Nobody reads the weights any more: the system may take their memory back. Views of dummy weights end here;
 * those of files stay valid and are read from disk again if need be. */
void model_files_drop_weights(const struct model_files *f);

bool model_files_is_gguf(const struct model_files *f);
/* Of all weights, as stored; tied ones once. */
uint64_t model_files_weight_bytes(const struct model_files *f);

#endif
