/* rope_table.h - cosines and sines of the rotary position embedding, for every position that a model may see.
 *
 * The same numbers as transformers computes: frequencies in f32, the angle as the f32 product of position and
 * frequency, then cosine and sine, times yarn's attention factor. Types: default, linear, llama3, yarn (Peng
 * et al., "YaRN", 2023). Thread: any. */
#ifndef MODEL_ROPE_TABLE_H
#define MODEL_ROPE_TABLE_H

#include <stdint.h>

#include "model/model_config.h"

/* frequencies: rotary_dim / 2, in radians a position. divisors: as many, from a GGUF file's rope_freqs; NULL:
 * none. */
void rope_table_frequencies(const struct rope_config *rope, const float *divisors, float *frequencies);

/* out[num_positions][rotary_dim / 2][2]: cosine, sine of the positions from first_position on. */
void rope_table_fill(const struct rope_config *rope, const float *frequencies, int32_t first_position,
                     int32_t num_positions, float *out);

#endif
