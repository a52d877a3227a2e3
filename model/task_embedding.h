/* task_embedding.h - what the adapters of tasks (lora_files.h) add to embeddings, as a product that devices have: each token has a row of
 * what the adapters of all T tasks make of it, 2 r values each, r of the token's and r of its type's; a linear of zeros multiplies it, and a
 * task's adapter of that linear picks the values that are its own. Owner: the model's files. Thread: one. */
#ifndef MODEL_TASK_EMBEDDING_H
#define MODEL_TASK_EMBEDDING_H

#include "kernels/device.h"

struct model_files;
struct task_embedding;

/* NULL in *out: the tasks of this model add nothing to embeddings, or it has none. */
int task_embedding_create(const struct model_files *model, struct task_embedding **out,
                          struct error *err) must_check;
void task_embedding_destroy(struct task_embedding *e);

/* [V][width] and [H][width]; they live as long as e. */
struct weight_view task_embedding_table(const struct task_embedding *e);
struct weight_view task_embedding_zeros(const struct task_embedding *e);
struct lora_part task_embedding_part(const struct task_embedding *e, int32_t task);

#endif
