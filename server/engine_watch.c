#include "server/engine_watch.h"

#include "base/check.h"
#include "base/clock.h"

enum { STUCK_SECONDS_MIN = 30, STUCK_SECONDS_MAX = 600, STEPS_OF_PATIENCE = 10 };

static double patience_seconds(const struct server *server, const struct link_stats *stats)
{
    if (stats->tokens_per_second <= 0) return STUCK_SECONDS_MAX;
    double step_seconds = server->facts->max_num_batched_tokens / stats->tokens_per_second;
    return max_of((double)STUCK_SECONDS_MIN,
                  min_of(STEPS_OF_PATIENCE * step_seconds, (double)STUCK_SECONDS_MAX));
}

bool engine_is_stuck(const struct server *server)
{
    struct link_stats stats;
    uint64_t since_ns = server->facts && !server->engine_is_down ? api_engine_owes_since_ns(server) : 0;
    if (since_ns == 0) return false;
    link_stats(server->link, &stats);
    since_ns = max_of(since_ns, max_of(stats.last_step_end_ns, server->engine_ready_ns));
    uint64_t now_ns = clock_monotonic_ns();
    return now_ns > since_ns && (double)(now_ns - since_ns) / 1e9 > patience_seconds(server, &stats);
}
