/* model.h - a model on a device: its weights, its activations, and the forward pass.
 *
 * The forward pass is one flat function for all families (forward.c); it calls the device's table only. Thread: the engine's. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "model/model_files.h"

struct model;

/* Takes all weights in and allocates activations for the largest step. files may be closed afterwards only
 * when the device says that it copied (the CPU uses some weights in place): keep files open as long as the
 * model. allowed_len: tokens of the longest sequence that was asked for, by which longrope chooses its factors;
 * limits->max_model_len are fewer where there is no room for so many. progress (may be NULL) is called with the fraction
 * done. */
int model_create(struct device *device, const struct model_files *files, const struct step_limits *limits,
                 int32_t allowed_len, void (*progress)(void *context, double fraction), void *context,
                 struct model **out, struct error *err) must_check;
void model_destroy(struct model *m);

const struct model_config *model_config(const struct model *m);
/* Of layers, whose block tables a step has: 1, or as many as limits->num_kv_groups asked for. */
int32_t model_num_kv_groups(const struct model *m);

/* A layer of the adapter becomes what is in the place, from 0 on, or nothing does (f NULL), once for each layer, while no step in flight has
 * a sequence with this adapter. Only where model_files_lora_rank is what it has at most. f is not needed afterwards. */
int model_lora_set(struct model *m, int32_t place, const struct lora_files *f, int32_t layer,
                   struct error *err) must_check;

/* Host blocks are memory of the host, taken when it is needed, where blocks can be saved. */
int model_kv_pool_create(struct model *m, int32_t num_blocks, int32_t num_host_blocks, enum dtype kv_dtype,
                         struct error *err) must_check;
uint64_t model_kv_block_bytes(const struct model *m,
                              enum dtype kv_dtype); /* one block of a group, K and V of its layers */
/* What the pool takes on the device however few blocks it has. */
uint64_t model_kv_beside_bytes(const struct model *m, enum dtype kv_dtype);

/* Copies K/V blocks, all their layers: block_ids[i] to host block host_ids[i], or back. Behind the steps begun so far; done
 * on return. */
int model_kv_save(struct model *m, const int32_t *block_ids, const int32_t *host_ids,
                  int32_t num_blocks) must_check;
int model_kv_load(struct model *m, const int32_t *block_ids, const int32_t *host_ids,
                  int32_t num_blocks) must_check;

/* Of each layer that has one (step.h). Behind the steps begun so far, before the next. */
int model_states_copy(struct model *m, const struct state_copy *copies, int32_t num_copies) must_check;

/* Launches one step's forward pass (may return before it is computed), then the drawing of its tokens, before
 * another step begins: until model_step_sample it may still be decided what constrained rows may draw. Later
 * waits for the oldest step launched. results: step->num_logits entries. */
void model_step_begin(struct model *m, const struct step *step);
void model_step_sample(struct model *m);
int model_step_end(struct model *m, struct sample_result *results, struct error *err) must_check;
/* Whether the oldest step launched has ended, so that model_step_end would not wait. */
bool model_step_has_ended(struct model *m);

/* What a step that has ended has left for a batch_slot instead of tokens: device.h, row. */
const float *model_row(struct model *m, int32_t batch_slot);
/* Of an embedding: what it goes through behind its pooling makes of that row, [model_config_embedding_size]. */
const float *model_embedding(struct model *m, int32_t batch_slot);
/* Of a model that scores pairs: what its head makes of that row. */
float model_score(struct model *m, int32_t batch_slot);

struct device *model_device(struct model *m);

#endif
