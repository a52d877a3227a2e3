#define DELTA_VECTOR_LANES 8
#include "kernels/cpu/delta_loops.h"

const struct delta_kernels delta_kernels_avx2 = DELTA_KERNELS;
