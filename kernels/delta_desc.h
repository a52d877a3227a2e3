/* delta_desc.h - what every device does with the description of a layer with a state before it takes that in (device.h). Any thread.
 */
#ifndef KERNELS_DELTA_DESC_H
#define KERNELS_DELTA_DESC_H

#include "kernels/device.h"

/* The delta rule, with one decay or many: what the state answers to k is taken from v first. */
static inline bool delta_kind_corrects(enum delta_kind kind)
{
    return kind == DELTA_RULE || kind == DELTA_CHANNELS;
}

/* Of q, k and v: what the convolution has weights for. */
int64_t delta_desc_num_channels(const struct delta_desc *desc);
/* What dt_bias has a value for. */
int64_t delta_desc_num_decays(const struct delta_desc *desc);
/* STATUS_INVALID where a weight has not the shape that the others say. */
int delta_desc_check(const struct delta_desc *desc, struct error *err) must_check;
/* Tokens that a convolution sees. */
int32_t delta_desc_num_taps(const struct delta_desc *desc);
/* out[taps][channels]: a tap of all channels is a row, with what its channel's input is multiplied by. */
void delta_desc_read_taps(const struct delta_desc *desc, float *out);
/* out[Gv]: e^decay. */
void delta_desc_read_decay(const struct delta_desc *desc, float *out);

#endif
