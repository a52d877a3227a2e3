#include "server/api/admission.h"

#include <math.h>

#include "base/check.h"
#include "base/clock.h"
#include "server/api/backlog.h"
#include "server/api/generation.h"

enum {
    RETRY_AFTER_MAX_S = 60,
    RETRY_AFTER_LOADING_S = 1,
    RETRY_AFTER_DRAINING_S = 5,
    ESTIMATE_NS = 250000000,
    LEARN_FROM_ANSWERS = 32,
};

void admission_init(struct admission *a)
{
    *a = (struct admission){.answer_share = 1};
}

static double expected_answer(const struct generation *g, const struct choice *c)
{
    if (g->params.max_tokens != MAX_TOKENS_DEFAULT) return c->max_tokens;
    return min_of(c->max_tokens, (int32_t)TYPICAL_ANSWER_TOKENS);
}

void admission_learn(struct admission *a, const struct generation *g)
{
    for (int i = 0; i < g->num_choices; i++) {
        if (g->choices[i].max_tokens == 0) continue;
        double share = g->choices[i].num_pulled / fmax(expected_answer(g, &g->choices[i]), 1);
        a->answer_share += (share - a->answer_share) / LEARN_FROM_ANSWERS;
    }
}

void admission_count_submitted(struct admission *a, const struct generation *g)
{
    for (int i = 0; i < g->num_choices; i++) {
        const struct choice *c = &g->choices[i];
        if (request_slots_get(g->api->server->slots, c->slot_idx)->scheduled_ns > 0)
            continue; /* another process's engine had begun with it: this one counts it neither */
        a->num_submitted++;
        a->submitted_prompt_tokens += (uint64_t)c->num_prompt_tokens;
    }
}

/* The engine has neither begun nor ended it. */
static bool waits(const struct server *server, const struct choice *c)
{
    if (c->slot_idx < 0) return false;
    const struct request_slot *slot = request_slots_get(server->slots, c->slot_idx);
    return slot->scheduled_ns == 0 && atomic_load(&slot->finish_reason) == FINISH_NONE;
}

void admission_recount(struct admission *a, const struct server *server)
{
    struct link_stats stats;
    link_stats(server->link, &stats);
    a->num_submitted = stats.num_dequeued;
    a->submitted_prompt_tokens = stats.dequeued_prompt_tokens;
    for (const struct generation *g = server->api->generations; g; g = g->next)
        for (int i = 0; i < g->num_choices; i++) {
            const struct choice *c = &g->choices[i];
            if (!waits(server, c)) continue;
            a->num_submitted++;
            a->submitted_prompt_tokens += (uint64_t)c->num_prompt_tokens;
        }
}

uint64_t admission_num_waiting(const struct admission *a, const struct link_stats *stats)
{
    return a->num_submitted - min_of(stats->num_dequeued, a->num_submitted);
}

static uint64_t num_waiting_tokens(const struct admission *a, const struct link_stats *stats)
{
    return a->submitted_prompt_tokens - min_of(stats->dequeued_prompt_tokens, a->submitted_prompt_tokens);
}

uint64_t admission_num_waiting_tokens(const struct server *server, int api_key_idx, uint64_t tenant)
{
    uint64_t sum = 0;
    for (const struct generation *g = server->api->generations; g; g = g->next) {
        if (g->api_key_idx != api_key_idx || (tenant > 0 && g->tenant != tenant)) continue;
        for (int i = 0; i < g->num_choices; i++)
            if (waits(server, &g->choices[i])) sum += (uint64_t)g->choices[i].num_prompt_tokens;
    }
    return sum;
}

/* ---- when there will be room ---- */

/* Of a sequence that the engine has not ended; false for all others. */
static bool look_at(const struct admission *a, const struct generation *g, const struct choice *c,
                    struct backlog_sequence *out, bool *runs)
{
    if (c->slot_idx < 0) return false;
    const struct request_slot *slot = request_slots_get(g->api->server->slots, c->slot_idx);
    if (atomic_load_explicit(&slot->finish_reason, memory_order_relaxed) != FINISH_NONE) return false;
    int32_t computed = atomic_load_explicit(&slot->num_prompt_computed, memory_order_relaxed);
    int32_t published = atomic_load_explicit(&slot->num_published, memory_order_relaxed);
    double expected = expected_answer(g, c);
    *runs = computed > 0 || published > 0;
    out->num_prompt_tokens = published > 0 ? 0 : max_of(c->num_prompt_tokens - computed, 0);
    out->num_answer_tokens = a->answer_share * fmax(expected - published, expected / 8);
    return true;
}

enum { ANY_KEY = -2 };

/* A way through all choices, from the oldest generation on. */
struct cursor {
    const struct generation *g;
    int choice_idx;
};

/* The next one that runs, or that waits, of the key's own or of the others. */
static bool take_next(const struct admission *a, struct cursor *at, int api_key_idx, bool is_other,
                      bool running, struct backlog *b, struct backlog_sequence *out)
{
    for (; at->g; at->g = at->g->previous, at->choice_idx = 0) {
        if ((api_key_idx != ANY_KEY && at->g->api_key_idx != api_key_idx) != is_other) continue;
        while (at->choice_idx < at->g->num_choices) {
            bool runs;
            if (!look_at(a, at->g, &at->g->choices[at->choice_idx++], out, &runs) || runs != running)
                continue;
            out->is_other = is_other;
            b->num_sequences++;
            return true;
        }
    }
    return false;
}

/* Appends those that run, or those that wait: the key's own and the others' by turns, as they are served. */
static void collect(const struct admission *a, const struct api *api, int api_key_idx, bool running,
                    struct backlog *b, struct backlog_sequence *sequences)
{
    const struct generation *oldest = api->generations;
    while (oldest && oldest->next) oldest = oldest->next;
    struct cursor own = {oldest, 0}, other = {oldest, 0};
    bool any;
    do {
        any = take_next(a, &own, api_key_idx, false, running, b, &sequences[b->num_sequences]);
        any |= take_next(a, &other, api_key_idx, true, running, b, &sequences[b->num_sequences]);
    } while (any);
}

static double seconds_to_room(const struct admission *a, const struct server *server,
                              const struct link_stats *stats, int api_key_idx, int32_t missing_sequences,
                              uint64_t missing_tokens)
{
    int capacity = request_slots_count(server->slots);
    struct backlog_sequence *sequences = malloc(((size_t)capacity + 1) * sizeof *sequences);
    struct backlog b = {.sequences = sequences,
                        .num_step_tokens = max_of(server->facts->max_num_batched_tokens, 1),
                        .prefill_seconds_per_token = stats->prefill_seconds_per_token,
                        .decode_seconds_per_step = stats->decode_seconds_per_step};
    if (!sequences) return 1;
    collect(a, server->api, api_key_idx, true, &b, sequences);
    b.num_running = b.num_sequences;
    collect(a, server->api, api_key_idx, false, &b, sequences);
    b.num_places = max_of(stats->num_running, 1);
    double seconds = backlog_seconds(&b, missing_sequences, (double)missing_tokens, RETRY_AFTER_MAX_S);
    free(sequences);
    return seconds;
}

static bool is_fresh(const struct room_estimate *room, uint64_t now_ns)
{
    return room->made_ns > 0 && now_ns - room->made_ns < ESTIMATE_NS;
}

static void estimate(struct room_estimate *room, double seconds, uint64_t now_ns)
{
    room->retry_after_seconds = (int)fmin(fmax(ceil(seconds), 1), RETRY_AFTER_MAX_S);
    room->made_ns = now_ns;
}

int admission_retry_after(const struct admission *a, const struct server *server, int api_key_idx,
                          int32_t num_missing, struct room_estimate *room)
{
    uint64_t now_ns = clock_monotonic_ns();
    struct link_stats stats;
    if (is_fresh(room, now_ns)) return room->retry_after_seconds;
    link_stats(server->link, &stats);
    estimate(room, seconds_to_room(a, server, &stats, api_key_idx, num_missing, 0), now_ns);
    return room->retry_after_seconds;
}

static int refuse(struct admission *a, const struct server *server, const struct link_stats *stats,
                  int32_t missing_sequences, uint64_t missing_tokens, const char *option,
                  struct api_error *err)
{
    uint64_t now_ns = clock_monotonic_ns();
    if (!is_fresh(&a->room, now_ns))
        estimate(&a->room, seconds_to_room(a, server, stats, ANY_KEY, missing_sequences, missing_tokens),
                 now_ns);
    api_error_set(
        err, 429, "rate_limit_error", "rate_limit_exceeded", NULL,
        "The server is full: %d sequences run and %llu wait with %llu prompt tokens; try again in %d s "
        "(%s)",
        stats->num_running, (unsigned long long)admission_num_waiting(a, stats),
        (unsigned long long)num_waiting_tokens(a, stats), a->room.retry_after_seconds, option);
    err->retry_after_seconds = a->room.retry_after_seconds;
    return STATUS_LIMIT;
}

/* ---- the decision ---- */

/* One sequence alone always fits. */
uint64_t admission_token_limit(const struct server *server)
{
    if (server->facts->max_queued_tokens == 0) return UINT64_MAX;
    return max_of(server->facts->max_queued_tokens, (uint64_t)server->facts->max_model_len);
}

int admission_check(struct admission *a, const struct server *server, int32_t num_sequences,
                    uint64_t num_prompt_tokens, struct api_error *err)
{
    int32_t num_slots = request_slots_count(server->slots), num_free = request_slots_num_free(server->slots);
    uint64_t token_limit = admission_token_limit(server);
    if (num_sequences > num_slots)
        return api_error_invalid(err, "invalid_value", "n",
                                 "prompts times n are %d sequences; this server takes at most %d at once "
                                 "(--max-num-seqs plus --max-queued-requests)",
                                 num_sequences, num_slots);
    if (num_prompt_tokens > token_limit)
        return api_error_invalid(
            err, "invalid_value", "prompt",
            "the prompts times n have %llu tokens together; at most %llu may wait at once "
            "(--max-queued-tokens)",
            (unsigned long long)num_prompt_tokens, (unsigned long long)token_limit);
    struct link_stats stats;
    link_stats(server->link, &stats);
    if (num_sequences > num_free)
        return refuse(a, server, &stats, num_sequences - num_free, 0, "--max-queued-requests", err);
    uint64_t total = num_waiting_tokens(a, &stats) + num_prompt_tokens;
    if (total > token_limit)
        return refuse(a, server, &stats, 0, total - token_limit, "--max-queued-tokens", err);
    return 0;
}

static int refuse_state(struct api_error *err, const char *why, int retry_after_seconds)
{
    api_error_set(err, 503, "service_unavailable_error", NULL, NULL, "%s", why);
    err->retry_after_seconds = retry_after_seconds;
    return STATUS_LIMIT;
}

int admission_check_early(struct admission *a, const struct server *server, struct api_error *err)
{
    switch (server->state) {
    case SERVER_LOADING:
        return refuse_state(err, "The model is being loaded", RETRY_AFTER_LOADING_S);
    case SERVER_DRAINING:
        return refuse_state(err, "The server is shutting down", RETRY_AFTER_DRAINING_S);
    case SERVER_FAILED:
        return refuse_state(err, "The device failed; the server is restarting", RETRY_AFTER_DRAINING_S);
    default:
        return admission_check(a, server, 1, 0, err);
    }
}
