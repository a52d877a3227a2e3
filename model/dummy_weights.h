/* dummy_weights.h - random matrices of BF16, of FP8 and of four bits for measuring a model's speed from its config.json alone.
 *
 * Values are uniform with variance 1 / cols, so that a product with a vector of ones' size has that size
 * again. They depend on the seed given for a matrix only. Memory is the matrices' own and is filled when one
 * is asked for: every row is distinct, so that nothing is faster by being cached. Thread: one at a time. */
#ifndef MODEL_DUMMY_WEIGHTS_H
#define MODEL_DUMMY_WEIGHTS_H

#include "kernels/device.h"

struct dummy_weights;

struct dummy_weights *dummy_weights_create(uint64_t seed); /* NULL: out of memory */
void dummy_weights_clear(struct dummy_weights *d);         /* frees all that were made */
void dummy_weights_destroy(struct dummy_weights *d);

/* data is NULL when there is no memory. */
struct weight_view dummy_weights_matrix(struct dummy_weights *d, uint64_t stream, int64_t rows, int64_t cols);
/* In e4m3 or integers of eight bits, of the same variance, with one scale for scale_rows x scale_cols. */
struct weight_view dummy_weights_bytes(struct dummy_weights *d, enum dtype dtype, uint64_t stream,
                                       int64_t rows, int64_t cols, int64_t scale_rows, int64_t scale_cols);
/* In four bits as AWQ has them, of that variance; group columns have one scale and zero point. rows: a multiple of 8. */
struct weight_view dummy_weights_awq(struct dummy_weights *d, uint64_t stream, int64_t rows, int64_t cols,
                                     int64_t group);
/* In four bits as compressed-tensors has them without zero points, of that variance; group columns have one scale, a number of bf16. */
struct weight_view dummy_weights_symmetric(struct dummy_weights *d, uint64_t stream, int64_t rows,
                                           int64_t cols, int64_t group);
/* Floats of four bits with a scale for 32 columns, of which cols is a multiple. */
struct weight_view dummy_weights_mxfp4(struct dummy_weights *d, uint64_t stream, int64_t rows, int64_t cols);
/* One row around center: norm weights around 1, biases around 0. */
struct weight_view dummy_weights_vector(struct dummy_weights *d, uint64_t stream, int64_t cols, float center);

#endif
