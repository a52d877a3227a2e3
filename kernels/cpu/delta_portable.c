#define DELTA_VECTOR_LANES 4
#include "kernels/cpu/delta_loops.h"

const struct delta_kernels delta_kernels_portable = DELTA_KERNELS;
