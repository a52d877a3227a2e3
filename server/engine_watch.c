#include "server/engine_watch.h"

#include "base/check.h"
#include "base/clock.h"

enum { STUCK_SECONDS_MIN = 30, STUCK_SECONDS_MAX = 600, TIMES_OF_PATIENCE = 10 };

/* With what took that long at most before. */
static double patience_seconds(double seconds)
{
    return max_of((double)STUCK_SECONDS_MIN, min_of(TIMES_OF_PATIENCE * seconds, (double)STUCK_SECONDS_MAX));
}

static bool is_over(uint64_t since_ns, double seconds)
{
    uint64_t now_ns = clock_monotonic_ns();
    return now_ns > since_ns && (double)(now_ns - since_ns) / 1e9 > seconds;
}

static bool is_stuck_loading(const struct server *server)
{
    uint64_t since_ns = max_of(server->engine_start_ns, server->engine_excused_ns);
    return server->engine_load_seconds > 0 &&
           is_over(since_ns, patience_seconds(server->engine_load_seconds));
}

static double longest_step_seconds(const struct server *server, const struct link_stats *stats)
{
    if (stats->tokens_per_second <= 0) return STUCK_SECONDS_MAX;
    return server->facts->max_num_batched_tokens / stats->tokens_per_second;
}

static double step_patience_seconds(const struct server *server, const struct link_stats *stats)
{
    if (server->config->step_timeout > 0) return (double)server->config->step_timeout;
    return patience_seconds(longest_step_seconds(server, stats));
}

static void look(struct server *server)
{
    if (is_over(server->engine_seen_ns, LOOK_SECONDS)) server->engine_excused_ns = clock_monotonic_ns();
    server->engine_seen_ns = clock_monotonic_ns();
}

bool engine_is_stuck(struct server *server)
{
    struct link_stats stats;
    look(server);
    if (server->engine_is_down) return is_stuck_loading(server);
    uint64_t since_ns = server->facts ? api_engine_owes_since_ns(server) : 0;
    if (since_ns == 0) return false;
    link_stats(server->link, &stats);
    since_ns = max_of(since_ns, max_of(stats.last_step_end_ns, server->engine_ready_ns));
    since_ns = max_of(since_ns, server->engine_excused_ns);
    return is_over(since_ns, step_patience_seconds(server, &stats));
}
