/* rope_table.h - cosines and sines of the rotary position embedding, for every position that a model may see.
 *
 * The same numbers as transformers computes: frequencies in f32, the angle as the f32 product of position and
 * frequency, then cosine and sine, times the attention factor of yarn (Peng et al., "YaRN", 2023) and longrope (Ding
 * et al., "LongRoPE", 2024). Thread: any. */
#ifndef MODEL_ROPE_TABLE_H
#define MODEL_ROPE_TABLE_H

#include <stdint.h>

#include "model/model_config.h"

/* frequencies: rotary_dim / 2, in radians a position. divisors: as many, from a GGUF file's rope_freqs; NULL:
 * none. num_positions: of the longest sequence, by which longrope chooses its factors. */
void rope_table_frequencies(const struct rope_config *rope, int32_t num_positions, const float *divisors,
                            float *frequencies);

/* What cosines and sines are multiplied by. num_positions: of the longest sequence. */
float rope_table_scale(const struct rope_config *rope, int32_t num_positions);

/* out[num_positions][rotary_dim / 2][2]: cosine, sine of the positions from first_position on. */
void rope_table_fill(const struct rope_config *rope, const float *frequencies, float scale,
                     int32_t first_position, int32_t num_positions, float *out);

#endif
