/* hf_config.h - config.json and generation_config.json of a Hugging Face directory, as a model_config.
 *
 * Reads both forms of the rotation's settings (rope_theta and rope_scaling; rope_parameters) and takes
 * defaults from the family's class in transformers. What flashd does not compute (another architecture,
 * quantised weights, other rotations, linear attention) is refused with STATUS_UNSUPPORTED and a sentence.
 * Thread: any. */
#ifndef MODEL_HF_CONFIG_H
#define MODEL_HF_CONFIG_H

#include "base/status.h"
#include "model/model_config.h"

/* generation_config.json may be missing: nothing is given then. */
int hf_config_read(const char *directory, struct model_config *config, struct generation_defaults *defaults,
                   struct error *err) must_check;

#endif
