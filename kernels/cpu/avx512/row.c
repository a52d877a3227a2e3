#include "kernels/cpu/avx512/vector.h"

#include "kernels/cpu/row_loops.h"

const struct row_kernels row_kernels_avx512 = {row_max, row_gather, row_sum_exp, row_exp_segments};
