#include "kernels/cpu/avx512/vector.h"

#include "kernels/cpu/attention_loops.h"

const struct attention_kernels attention_kernels_avx512 = {run_tile, widen_chunk, merge, finish};
