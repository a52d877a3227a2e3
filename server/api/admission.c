#include "server/api/admission.h"

#include <math.h>

#include "base/check.h"

enum { RETRY_AFTER_MAX_S = 60, RETRY_AFTER_LOADING_S = 1, RETRY_AFTER_DRAINING_S = 5 };

int admission_retry_after(const struct admission *a, int32_t missing_sequences, uint64_t missing_tokens,
                          double tokens_per_second)
{
    if (!(tokens_per_second > 0)) return 1;
    double tokens_a_sequence = a->num_sequences > 0 ? (double)a->num_tokens / a->num_sequences : 0;
    double tokens = fmax((double)missing_tokens, missing_sequences * tokens_a_sequence);
    double seconds = ceil(tokens / tokens_per_second);
    return (int)fmin(fmax(seconds, 1), RETRY_AFTER_MAX_S);
}

static int refuse(const struct admission *a, const struct server *server, int32_t missing_sequences,
                  uint64_t missing_tokens, const char *option, struct api_error *err)
{
    struct link_stats stats;
    link_stats(server->link, &stats);
    int seconds = admission_retry_after(a, missing_sequences, missing_tokens, stats.tokens_per_second);
    api_error_set(err, 429, "rate_limit_error", "rate_limit_exceeded", NULL,
                  "The server is full: %d sequences with %llu tokens run or wait; try again in %d s (%s)",
                  a->num_sequences, (unsigned long long)a->num_tokens, seconds, option);
    err->retry_after_seconds = seconds;
    return STATUS_LIMIT;
}

int admission_check(const struct admission *a, const struct server *server, int32_t num_sequences,
                    uint64_t num_tokens, struct api_error *err)
{
    int32_t num_slots = request_slots_count(server->slots), num_free = request_slots_num_free(server->slots);
    if (num_sequences > num_slots)
        return api_error_invalid(err, "invalid_value", "n",
                                 "prompts times n are %d sequences; this server takes at most %d at once "
                                 "(--max-num-seqs plus --max-queued-requests)",
                                 num_sequences, num_slots);
    if (num_sequences > num_free)
        return refuse(a, server, num_sequences - num_free, 0, "--max-queued-requests", err);
    uint64_t limit = server->facts->max_queued_tokens, total;
    if (limit == 0 || a->num_sequences == 0) return 0;
    if (!checked_add(a->num_tokens, num_tokens, &total)) total = UINT64_MAX;
    if (total > limit) return refuse(a, server, 0, total - limit, "--max-queued-tokens", err);
    return 0;
}

static int refuse_state(struct api_error *err, const char *why, int retry_after_seconds)
{
    api_error_set(err, 503, "service_unavailable_error", NULL, NULL, "%s", why);
    err->retry_after_seconds = retry_after_seconds;
    return STATUS_LIMIT;
}

int admission_check_early(const struct admission *a, const struct server *server, struct api_error *err)
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
