/* warm_up.h - the first steps of a device, before anybody waits for them.
 *
 * What a GPU loads or makes when it is first used (kernels, choices of algorithms, graphs) is there
 * afterwards: without it the first request pays. What the two steps take is a first idea of what steps take.
 * All steps are in the first blocks of a pool that nobody uses yet; what they leave there is overwritten by
 * whoever owns the blocks next. Thread: whoever owns the model. */
#ifndef MODEL_WARM_UP_H
#define MODEL_WARM_UP_H

#include "model/model.h"

/* Microseconds of both steps. */
struct warm_up_times {
    double prompt_us, token_us;
};

/* A prompt of num_tokens >= 1 and one token after it. The model must allow one token more than num_tokens. */
int model_warm_up(struct model *m, int32_t num_tokens, struct warm_up_times *times,
                  struct error *err) must_check;

/* Steps of decoding sequences of every size that the device records, up to num_seqs, recorded and not run: nothing is recorded
 * afterwards. The pool has a block for each sequence. */
int model_record_graphs(struct model *m, int32_t num_seqs, struct error *err) must_check;

#endif
