/* linear_plan.cuh - what a device knows of its products: linear_plan.cu finds it out when the weights are in, linear.cu goes by it. */
#ifndef KERNELS_CUDA_LINEAR_PLAN_CUH
#define KERNELS_CUDA_LINEAR_PLAN_CUH

#include <map>
#include <tuple>
#include <vector>

#include "kernels/cuda/linear_blas.cuh"

/* Up to so many rows a choice holds; the last one also beyond. */
static const int32_t linear_bucket_rows[] = {8,   16,  32,  64,  128,  192,  256, 384,
                                             512, 640, 768, 896, 1024, 2048, 4096};

enum { NUM_LINEAR_BUCKETS = sizeof linear_bucket_rows / sizeof *linear_bucket_rows };

/* Of all linears of a shape. */
struct linear_plan {
    blas_plans blas;
    struct linear_choice choices[NUM_LINEAR_BUCKETS]; /* what was measured to be fastest */
    std::vector<struct linear *> linears;
};

/* Of a device. */
struct linears {
    std::map<std::tuple<int32_t, int32_t, int, int, int, int, int, bool>, struct linear_plan> plans;
    std::vector<struct linear *> packed;
    int32_t
        after_norm_k; /* columns of the products of e4m3 that norms quantise their rows for; 0: there are none */
    enum byte_form after_norm_form;
    /* What the norm queued last has quantised, until the next product. */
    const void *quantised;
    int32_t num_quantised;
};

/* linear.cu: a product by this kernel, and its gate, if it has one. False where it cannot. */
bool cuda_linear_run(struct cuda_device *d, const struct linear_choice &c, int32_t rows, void *out,
                     const void *x, const struct linear *w, bool gates = true);

#endif
