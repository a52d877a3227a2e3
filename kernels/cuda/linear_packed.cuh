/* linear_packed.cuh - products of few rows with weights of four bits, see linear_packed.cu. */
#ifndef KERNELS_CUDA_LINEAR_PACKED_CUH
#define KERNELS_CUDA_LINEAR_PACKED_CUH

#include "kernels/cuda/linear.cuh"

enum {
    LINEAR_PACKED_COLUMNS =
        256,                   /* rows of x of a CTA at most: up to so many nobody unpacks the weight first */
    LINEAR_PACKED_ROWS = 1024, /* of all CTAs: beyond it the weight is always unpacked first */
    LINEAR_COPY_ROWS = 193     /* from so many on a copy in bf16, where one is kept, may be as fast */
};

/* Rows of W that a CTA may own: they change the speed and nothing else. */
static const int32_t linear_packed_tile_rows[] = {32, 64, 128};

/* Rows of x of a CTA where there are more than LINEAR_PACKED_COLUMNS, to choose from. */
static const int32_t linear_packed_columns[] = {256, 192, 128};

/* out = x W^T (+ bias), or silu(gate) * up. columns: rows of x that a CTA has at most, which changes the speed, too. False where
 * the driver cannot, or tiles do not suit the product. row: what the only row, of which there is no x yet, is made of, at most
 * ROW_NORM_MAX columns (linear_row.cuh); false, too, where a norm of its own would be as fast. */
struct row_args;
bool cuda_linear_packed(struct cuda_device *d, int32_t tile_rows, int32_t columns, int32_t rows, void *out,
                        const void *x, const struct linear *w, bool silu_mul,
                        const struct row_args *row = NULL);

/* linear_relay.cu: the same for few rows, by groups of warps that take turns along K. tile_rows: one of linear_relay_tile_rows. */
enum { LINEAR_RELAY_ROWS = 64 };
static const int32_t linear_relay_tile_rows[] = {32, 64};
bool cuda_linear_relay(struct cuda_device *d, int32_t tile_rows, int32_t rows, void *out, const void *x,
                       const struct linear *w, bool silu_mul, const struct row_args *row = NULL);

#endif
