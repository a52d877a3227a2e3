/* linear_fp8.cuh - products of bytes: rows of x that were quantised in the step (quantise.cu), weights as their file has them, both e4m3
 * or both integers.
 *
 * Of the columns of a block of 128 the tensor cores make a sum, with scales of rows of four blocks. With scales of blocks it is multiplied by
 * the scale of x times that of W and added in f32, in the order of K; with scales of rows the sums are added, and the whole is multiplied
 * by that of x and then by that of W. Sums of integers are exact, rounded to f32 and multiplied likewise. So a row's bits depend on that row alone, whatever kernel computes it. */
#ifndef KERNELS_CUDA_LINEAR_FP8_CUH
#define KERNELS_CUDA_LINEAR_FP8_CUH

#include "kernels/cuda/device.cuh"

enum {
    FP8_BLOCK = 128,                 /* columns */
    FP8_SUM_BLOCKS = 4,              /* that the tensor cores add where rows have scales */
    LINEAR_FP8_SMALL_ROWS_MAX = 128, /* the most that the kernel for few rows can */
    LINEAR_FP8_NARROW = 64
};

/* What codes are, and what has a scale of its own: a row, or of a row of x each block of columns and of W each block of eight rows. */
enum byte_form : int { E4M3_OF_ROWS, E4M3_OF_BLOCKS, INT8_OF_ROWS };

/* Rows of W that a CTA of the kernel for few rows may own: they change the speed and nothing else. */
static const int32_t linear_fp8_tile_rows[] = {32, 48, 112};
/* And those of the kernel for many; the narrow one, of products that are not gated, where there would be fewer tiles than SMs. */
static const int32_t linear_fp8_widths[] = {192, 128, LINEAR_FP8_NARROW};

/* K is a multiple of 128, N of 16. */
struct fp8_product {
    void *out; /* [rows][N], or [rows][N / 2] of silu(gate) * up */
    const float *bias;
    int32_t rows, n, k;
    const uint8_t *x, *w;     /* [rows][K], [N][K]; of gate and up rows alternate by 8 */
    const float *x_scales;    /* [rows]; in blocks [K / 128][x_pitch] */
    const float *w_scales;    /* [N]; in blocks [K / 128][w_pitch], one for 8 rows of W each */
    int32_t x_pitch, w_pitch; /* multiples of 4; room for a tile behind the last row */
    enum byte_form form;
    bool silu_mul;
};

struct row_args; /* linear_row.cuh */

/* False where the driver cannot, or there are too many rows. row: NULL, or says of what the kernel makes the only row, a norm of
 * ROW_NORM_MAX columns or a row of ROW_VALUES_MAX at most; what p says of x is not used then. */
bool cuda_linear_fp8_small(struct cuda_device *d, int32_t tile_rows, const struct fp8_product *p,
                           const struct row_args *row = NULL);
bool cuda_linear_fp8_large(struct cuda_device *d, int32_t width, const struct fp8_product *p);

/* x[rows][K] in bf16 to codes and scales, as fp8_product has them. list: NULL, or the rows that are meant, in any order. */
bool cuda_quantise_rows(struct cuda_device *d, int32_t rows, int32_t k, const void *x, uint8_t *out,
                        float *scales, int32_t pitch, enum byte_form form, const int32_t *list = NULL);

/* The same in d->fp8_rows, unless the norm before has put them there; until the next product. NULL: the driver cannot. */
const struct fp8_rows *cuda_fp8_rows(struct cuda_device *d, int32_t rows, int32_t k, const void *x,
                                     enum byte_form form);
/* Before cuda_linear_plans: there will be products of k columns behind norms that are no linears. */
void cuda_fp8_rows_expect(struct cuda_device *d, int32_t k, enum byte_form form);

/* Where a norm puts its rows in codes, beside what it writes in bf16, so that the product that comes next need not quantise them. */
struct fp8_target {
    uint8_t *codes; /* NULL: nowhere */
    float *scales;
    int32_t pitch;
    enum byte_form form;
};
/* Of the norm that is queued next, with so many rows of k columns in x: it must fill what it is given. */
struct fp8_target cuda_fp8_target(struct cuda_device *d, int32_t rows, int32_t k, const void *x);
/* What it filled is not to be used: others may write x. */
void cuda_fp8_target_forget(struct cuda_device *d);

#endif
