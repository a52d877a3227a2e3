/* hf_parts.h - what the files that read config.json have of one another: hf_config.c asks for all in an order in which each finds
 * what it needs of the model's shape. r is at the text model's own fields. Where a function returns a status, the sentence of one
 * that is not STATUS_OK is in r->err. Thread: any. */
#ifndef MODEL_HF_PARTS_H
#define MODEL_HF_PARTS_H

#include "files/json_read.h"
#include "model/model_config.h"

/* A number of something, from 1 on. fallback 0: it must be there. */
int32_t hf_size(struct json_reader *r, const char *key, int32_t fallback);

/* Fields that may be there if they are false. */
int hf_want_false(struct json_reader *r, const char *const *keys, size_t num_keys);

/* ---- hf_layers.c: which layers have what in the place of attention to all that stands before ---- */

/* A kind of layer by its name in a list of kinds, and the set of layers that it goes into; NULL: none. */
struct hf_layer_kind {
    const char *name;
    uint64_t *layers;
};

/* All entries of the list key, layer_types or another. A sentence about another kind names the first two. */
int hf_read_layer_kinds(struct json_reader *r, const char *key, int32_t num_layers,
                        const struct hf_layer_kind *kinds, size_t num_kinds);

/* The layers for which the list key has 1, where it has 0 for all others. */
int hf_read_layer_flags(struct json_reader *r, const char *key, int32_t num_layers, uint64_t *layers);

/* Windows or chunks; layers that do not rotate, which chunks want to know; queries that grow with their place. */
int hf_read_windows(struct json_reader *r, struct model_config *c);
int hf_read_unrotated_layers(struct json_reader *r, struct model_config *c);
void hf_read_temperature(struct json_reader *r, struct model_config *c);
int hf_read_layer_thetas(struct json_reader *r, struct model_config *c);
/* How many heads of Q each kind of layer has, once windows are known. */
int hf_read_layer_heads(struct json_reader *r, struct model_config *c);
/* Of families whose layers differ one by one: each one's attention, if it has any, and MLP (block_configs), or its K/V heads alone
 * (num_key_value_heads_per_layer). */
int hf_read_layer_shapes(struct json_reader *r, struct model_config *c);
/* That layers without a window, and they alone, have the heads that one of them has. */
int hf_check_layer_heads(struct json_reader *r, const struct model_config *c);

/* ---- hf_states.c: layers with a state, of each kind: deltas, state spaces, short convolutions ---- */

int hf_read_states(struct json_reader *r, struct model_config *c);
/* Adds to layers every NAME_period-th of num_layers, from NAME_offset on; period and offset: where nothing is said. */
int hf_read_period(struct json_reader *r, const char *name, int64_t period, int64_t offset,
                   int32_t num_layers, uint64_t *layers);

/* ---- hf_encoder.c: encoders, with a head or without, and what decoders of GPT-2's kind have of them ---- */

/* By the name that the file has for it: some have those of GPT-2. */
const char *hf_own_key(const struct json_reader *r, const struct family *family, const char *key);

/* Of encoders and of decoders, under each name that a class has for it. */
void hf_read_norm_eps(struct json_reader *r, struct model_config *c);

int hf_read_encoder(struct json_reader *r, struct model_config *c);

/* Of decoders with GPT-2's names. */
int hf_read_gpt2(struct json_reader *r, struct model_config *c);

/* ---- hf_altup.c: residual streams beside the first, and gates that are cut ---- */

int hf_read_altup(struct json_reader *r, struct model_config *c);

/* ---- hf_rope.c: the rotation, also of layers with a window. Windows and latents are known. ---- */

int hf_read_rope(struct json_reader *r, struct model_config *c);

#endif
