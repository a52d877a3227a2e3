#include "kernels/cpu/avx2/vector.h"

#include "kernels/cpu/attention_loops.h"

const struct attention_kernels attention_kernels_avx2 = {run_tile, widen_chunk, merge, finish};
