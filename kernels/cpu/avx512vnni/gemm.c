/* gemm.c - panel kernels for AVX-512 with VNNI. */
#include "kernels/cpu/avx512vnni/dot.h"

DEFINE_KERNELS(linear_kernels_avx512vnni, integers);
