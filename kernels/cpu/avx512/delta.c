#define DELTA_VECTOR_LANES 16
#include "kernels/cpu/delta_loops.h"

const struct delta_kernels delta_kernels_avx512 = DELTA_KERNELS;
