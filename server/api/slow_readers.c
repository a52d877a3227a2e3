#include "server/api/slow_readers.h"

#include "base/clock.h"
#include "server/api/generation.h"
#include "server/tenant_group.h"

enum {
    REST_MS = 5000,
    STREAMS_AT_ONCE = 32, /* all that is in flight is looked at for each */
};

static size_t client_of(int api_key_idx, uint64_t tenant)
{
    return (tenant_group(tenant) + (size_t)(api_key_idx + 1)) % TENANT_GROUPS;
}

static size_t client_of_stream(const struct generation *g)
{
    return client_of(g->api_key_idx, g->tenant);
}

static void count_in_flight(const struct api *api, int64_t counts[TENANT_GROUPS])
{
    for (const struct generation *g = api->generations; g; g = g->next)
        if (g->counts_for_key) counts[client_of_stream(g)] += g->num_choices;
}

static int num_kept_slots(const struct generation *g)
{
    int num = 0;
    for (int i = 0; i < g->num_choices; i++) num += g->choices[i].keeps_slot;
    return num;
}

static bool keeps_places(const struct generation *g, uint64_t now_ns)
{
    return g->x && g->blocked && now_ns - g->last_write_ns >= REST_MS * 1000000ull && num_kept_slots(g) > 0;
}

/* NULL: there is none of a client that has more than least. */
static struct generation *find(const struct api *api, const int64_t counts[TENANT_GROUPS], int64_t least)
{
    const uint64_t now_ns = clock_monotonic_ns();
    struct generation *found = NULL;
    int64_t most = least + 1;
    for (struct generation *g = api->generations; g; g = g->next) {
        const int64_t count = counts[client_of_stream(g)];
        if (count < most || !keeps_places(g, now_ns)) continue;
        if (found && count == most && g->last_write_ns >= found->last_write_ns) continue;
        found = g;
        most = count;
    }
    return found;
}

static void end(struct generation *g)
{
    struct api_error error;
    api_error_set(&error, 429, "rate_limit_error", "slow_reader", NULL,
                  "This stream was not read, and another client needs the place that it kept");
    generation_abort(g, &error, OUTCOME_ABORTED);
    generation_pump(g);
}

void slow_readers_make_room(struct api *api, int api_key_idx, uint64_t tenant, int32_t num_sequences)
{
    int64_t counts[TENANT_GROUPS] = {0};
    int num_missing = num_sequences - request_slots_num_free(api->server->slots);
    if (num_missing <= 0 || api->num_kept_slots == 0) return;
    count_in_flight(api, counts);
    const int64_t least = counts[client_of(api_key_idx, tenant)] + num_sequences;
    for (int i = 0; i < STREAMS_AT_ONCE && num_missing > 0; i++) {
        struct generation *g = find(api, counts, least);
        if (!g) return;
        num_missing -= num_kept_slots(g);
        counts[client_of_stream(g)] -= g->num_choices;
        end(g);
    }
}
