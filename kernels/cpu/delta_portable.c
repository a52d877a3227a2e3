#include "kernels/cpu/delta_loops.h"

const struct delta_kernels delta_kernels_portable = DELTA_KERNELS;
