/* step_builder.h - writes a plan down as the arrays of struct step that devices read.
 *
 * Has as many step buffers as steps may be in flight, and a copy of each running request's sampling
 * parameters by batch_slot: a step refers to nothing else, so a request slot can be given back while a step
 * still runs. Thread: the engine's. */
#ifndef ENGINE_STEP_BUILDER_H
#define ENGINE_STEP_BUILDER_H

#include "link/request_slots.h"
#include "scheduler/scheduler.h"

struct step_builder;

/* limits->has_masks: all tokens of a sequence see each other; each comes in one step. */
int step_builder_create(const struct step_limits *limits, struct step_builder **out,
                        struct error *err) must_check;
void step_builder_destroy(struct step_builder *b);

/* batch_slot belongs to this request from now on. eos_ids: what ends an answer beside the request's own stop
 * tokens. */
void step_builder_set_request(struct step_builder *b, int32_t batch_slot,
                              const struct request_slot_input *input, const struct request_payload *payload,
                              const int32_t *eos_ids, int32_t num_eos_ids);

/* Fills in buffer buffer_idx and returns its step, valid until the buffer is built again. */
const struct step *step_builder_build(struct step_builder *b, int buffer_idx, struct scheduler *s,
                                      const struct plan *plan);

/* Of the step in the buffer, while its tokens are not drawn yet: how many rows draw from masks, and what a row
 * may draw (kernels/step.h). allowed: NULL, the row is withheld. */
bool step_builder_is_constrained(const struct step_builder *b, int32_t batch_slot);
int32_t step_builder_num_constrained(const struct step_builder *b, int buffer_idx);
void step_builder_set_allowed(struct step_builder *b, int buffer_idx, int32_t row, const uint64_t *allowed);

#endif
