/* lab_cuda.cuh - the lab's kernels on a GPU: a problem in device memory, and who launches what.
 *
 * Elements are bf16; what is added to in slow memory (FlashAttention 1's outputs, dQ) is f32. COUNT: the variant of a kernel
 * that adds up the bytes of its loads and stores; the other one counts nothing. Launches are queued on the default stream. */
#ifndef LAB_ATTENTION_CUDA_LAB_CUDA_CUH
#define LAB_ATTENTION_CUDA_LAB_CUDA_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

extern "C" {
#include "lab/attention/problem.h"
}

enum { LAB_TILE = 64, LAB_SPLIT = 512, LAB_THREADS = 128 };

/* Of the intervals of a tile's keys: lower_start, lower_end, upper_start, upper_end. */
struct lab_bounds {
    int32_t least[4], most[4];
};

struct lab_problem {
    int32_t num_heads, num_queries, num_keys,
        row_stride; /* row_stride: of scores and weights, a multiple of 8 */
    enum mask mask;
    float scale_log2; /* scores are in units of ln 2 */
    float unified_max;
    const __nv_bfloat16 *q, *k, *v, *d_out;
    __nv_bfloat16 *out, *d_k, *d_v, *scores, *weights;
    float *out_f32, *lse, *d_q, *row_max, *row_sum, *row_dots, *partials;
    const int32_t *hidden; /* [4][num_keys] */
    struct lab_bounds *bounds;
    int32_t *fallbacks;          /* [num_heads]: the row was out of range */
    unsigned long long *traffic; /* loaded, stored: bytes */
};

void lab_launch_standard(const struct lab_problem *p, int32_t head_dim, bool online, bool count);
void lab_launch_flash1(const struct lab_problem *p, int32_t head_dim, bool count);
void lab_launch_flash2(const struct lab_problem *p, int32_t head_dim, bool intervals, bool count);
void lab_launch_backward(const struct lab_problem *p, int32_t head_dim, bool count);
void lab_launch_decoding(const struct lab_problem *p, int32_t head_dim, bool unified, bool count);

/* Calls body<D, COUNT> for the values at run time. */
#define LAB_DISPATCH(head_dim, count, body)                                                                  \
    do {                                                                                                     \
        if ((head_dim) == 64 && (count)) body<64, true>(*p);                                                 \
        if ((head_dim) == 64 && !(count)) body<64, false>(*p);                                               \
        if ((head_dim) == 128 && (count)) body<128, true>(*p);                                               \
        if ((head_dim) == 128 && !(count)) body<128, false>(*p);                                             \
    } while (0)

#endif
