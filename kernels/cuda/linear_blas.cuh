/* linear_blas.cuh - products x W^T by cuBLASLt, with algorithms that do not split K. */
#ifndef KERNELS_CUDA_LINEAR_BLAS_CUH
#define KERNELS_CUDA_LINEAR_BLAS_CUH

#include <map>
#include <vector>

#include "kernels/cuda/linear.cuh"

/* The product of so many rows of a shape. */
struct blas_plan {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    bool usable; /* an algorithm was found that computes it in order */
};

/* Of a shape, by numbers of rows. */
using blas_plans = std::map<int32_t, struct blas_plan>;

/* Whether a comparison would tell that cuBLASLt sums in another order: of rows that are not aligned its kernels round otherwise in one
 * of some thousand sums, and few columns have fewer (test_quantised_table.c, rows of W that no tile divides). */
bool cuda_blas_is_compared(const struct linear *w);

/* out = x W^T, without bias or SiLU; false where no algorithm is known to have the bits of linear_plain.cu. The first product of so many
 * rows looks for one, and waits for the stream; none is found while it is recorded. */
bool cuda_blas(struct cuda_device *d, blas_plans *plans, int32_t rows, void *out, const void *x,
               const struct linear *w);

/* Begins to load, in a thread of its own and by running them, what the products of w's shape with so many rows each want: the library's first
 * kernel takes a tenth of a second, each other one some milliseconds. */
void cuda_blas_load(struct cuda_device *d, const struct linear *w, const std::vector<int32_t> &rows);
/* Until all of that is loaded; the thread has ended then. */
void cuda_blas_loaded(struct cuda_device *d);

#endif
