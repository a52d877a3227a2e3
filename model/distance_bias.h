/* distance_bias.h - scores by a learned table of distances, as T5 has it (Raffel et al., "Exploring the Limits of Transfer Learning", 2020):
 * near distances have a bucket each, those farther away share one, the wider the farther, to DISTANCE_REACH, behind which all share the last.
 * Half of the buckets are of keys behind the query. Thread: any. */
#ifndef MODEL_DISTANCE_BIAS_H
#define MODEL_DISTANCE_BIAS_H

#include <stdint.h>

#include "files/weight_view.h"

enum { DISTANCE_BUCKETS = 32, DISTANCE_REACH = 128, DISTANCE_ROW = 2 * DISTANCE_REACH + 1 };

/* distance: from query to key, by which a key behind the query is above 0; |distance| <= DISTANCE_REACH. */
int32_t distance_bucket(int32_t distance);

/* out: [heads][DISTANCE_ROW], from -DISTANCE_REACH on; buckets: [DISTANCE_BUCKETS][heads]; row: room for a value a head. */
void distance_bias_fill(const struct weight_view *buckets, float *row, float *out);

#endif
