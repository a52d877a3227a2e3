#include "link/counters.h"

const double step_tokens_bounds[STEP_TOKENS_BOUNDS] = {1,   8,    16,   32,   64,   128,  256,
                                                       512, 1024, 2048, 4096, 8192, 16384};

void link_counters_read(const struct link_counters *counters, struct link_stats *out)
{
#define X(type, name) out->name = atomic_load_explicit(&counters->name, memory_order_relaxed);
    LINK_COUNTERS(X)
#undef X
}
