/* lora_files.h - an adapter of low rank (Hu et al., "LoRA", 2021) beside a model, as PEFT saves it: a directory with adapter_config.json and
 * adapter_model.safetensors.
 *
 * Nothing in the files is trusted, and nothing in them is passed over: a tensor that is not of one of the matrices that adapters
 * work on here, those of attention (q, k, v, o) and of an MLP (gate, up, down), is refused with a sentence that names it. Those of a
 * model that came as GGUF have names of Hugging Face's, too, and rows of q and k are put where its converter put the matrices'.
 * Owner: whoever opened closes, after the device has taken the weights in. Thread: one. */
#ifndef MODEL_LORA_FILES_H
#define MODEL_LORA_FILES_H

#include "kernels/device.h"
#include "model/weights.h"

struct lora_files;
struct model_files;

int lora_files_open(const char *path, const struct model_files *model, struct lora_files **out,
                    struct error *err) must_check;
/* What lies beside the matrices of a directory for one of its tasks (model_config.h: tasks): of all matrices of layers, and of the embeddings of
 * tokens and of types, whose part is down [V][r] and up [r][H]. */
int lora_files_open_task(const struct model_files *model, int32_t task, struct lora_files **out,
                         struct error *err) must_check;
void lora_files_close(struct lora_files *f);

/* Of all that it adds, as stored. */
uint64_t lora_files_bytes(const struct lora_files *f);
/* The highest of all that it adds. */
int32_t lora_files_rank(const struct lora_files *f);

/* What it adds to a matrix; down.data NULL: nothing. f NULL: there is none. */
struct lora_part lora_files_part(const struct lora_files *f, enum weight_role role, int32_t layer);

/* Whether an adapter of this model may add to the matrix. */
bool lora_files_may_add(const struct model_files *model, enum weight_role role, int32_t layer);
/* Of one that adds as much of this rank as it may, in bf16. */
uint64_t lora_files_most_bytes(const struct model_files *model, int32_t rank);

#endif
