#include "kernels/cpu/sample_row.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/id_list.h"
#include "base/rng.h"
#include "kernels/cpu/ranking.h"

static const float log2_e = 1.44269504f;

bool sampling_has_penalties(const struct sample_params *p)
{
    return p->sampling.repetition_penalty != 1.0f || p->sampling.frequency_penalty != 0.0f ||
           p->sampling.presence_penalty != 0.0f;
}

static bool changes_logits(const struct sample_params *p)
{
    return sampling_has_penalties(p) || p->num_logit_bias > 0 || p->num_banned > 0 || p->constrained;
}

bool sampling_is_plain_greedy(const struct sample_params *p)
{
    return p->sampling.temperature < SAMPLING_GREEDY_BELOW && p->score_token_id < 0 && !sample_pools(p) &&
           p->sampling.num_logprobs < 0 && !changes_logits(p);
}

/* ---- log probabilities ---- */

static void sort_by_rank(const struct ranking *r, int32_t num)
{
    for (int32_t i = 1; i < num; i++) {
        int32_t id = r->ids[i], j = i;
        for (; j > 0 && ranking_before(r, id, r->ids[j - 1]); j--) r->ids[j] = r->ids[j - 1];
        r->ids[j] = id;
    }
}

/* The ids that are reported beside the token: those asked for, else the best, which become r->ids. */
static int32_t find_reported(struct ranking *r, const struct sample_params *p, const int32_t **ids)
{
    int32_t num_top = min_of(min_of(p->sampling.num_logprobs, TOP_LOGPROBS_MAX), r->num_values);
    *ids = p->num_logprob_ids > 0 ? p->logprob_ids : r->ids;
    if (p->num_logprob_ids > 0) return p->num_logprob_ids;
    if (num_top <= 0) return 0;
    num_top = ranking_lead_count(r, num_top);
    sort_by_rank(r, num_top);
    return num_top;
}

static void report_logprobs(struct ranking *r, const struct sample_params *p, struct sample_result *result)
{
    double log_sum = log(r->kernels->sum_exp(r->values, r->num_values, r->max, r->scale, -INFINITY));
    struct token_logprobs *out = &result->logprobs;
    const int32_t *ids;
    out->logprob = (float)((double)(r->values[result->token_id] - r->max) - log_sum);
    out->num_top = find_reported(r, p, &ids);
    for (int32_t i = 0; i < out->num_top; i++) {
        out->top_ids[i] = ids[i];
        out->top_logprobs[i] = (float)((double)(r->values[ids[i]] - r->max) - log_sum);
    }
}

/* ---- from raw logits to values: steps 2 and 3 ---- */

static void apply_bias(float *values, const struct sample_params *p)
{
    for (int32_t i = 0; i < p->num_logit_bias; i++)
        values[p->logit_bias[i].token_id] += p->logit_bias[i].bias;
    for (int32_t i = 0; i < p->num_banned; i++) values[p->banned[i]] = -INFINITY;
}

/* Those of 64 values that have their bit; masks mostly have all of them, or few. */
static void exclude_word(float *values, uint64_t bits)
{
    if (bits == UINT64_MAX)
        for (int i = 0; i < 64; i++) values[i] = -INFINITY;
    else
        for (; bits != 0; bits &= bits - 1) values[__builtin_ctzll(bits)] = -INFINITY;
}

/* What is not allowed, or forbidden: each may be NULL. */
static void exclude(float *values, int32_t num, const uint64_t *allowed, const uint64_t *forbidden)
{
    if (!allowed && !forbidden) return;
    for (size_t word = 0; word < bit_set_words((size_t)num); word++) {
        uint64_t bits = (allowed ? ~allowed[word] : 0) | (forbidden ? forbidden[word] : 0);
        int32_t num_here = num - (int32_t)word * 64;
        if (num_here < 64) bits &= ((uint64_t)1 << num_here) - 1;
        exclude_word(values + word * 64, bits);
    }
}

static float repetition_penalised(float value, float penalty)
{
    return value > 0.0f ? value / penalty : value * penalty;
}

/* What has come before the token to draw: what was drawn, or was the prompt, and behind it a draft. */
struct past {
    const int32_t *tokens, *drafted;
    int32_t num_prompt, num_tokens, num_drafted;
};

/* A token once, however often it occurs: counts[id] becomes -1 when it has been dealt with. */
static void penalise(float *values, int32_t *counts, int32_t id, const struct sampling *s)
{
    int32_t count = counts[id];
    if (count < 0) return;
    values[id] = repetition_penalised(values[id], s->repetition_penalty);
    if (count > 0) values[id] -= s->frequency_penalty * (float)count + s->presence_penalty;
    counts[id] = -1;
}

static void apply_penalties(float *values, int32_t *counts, const struct past *p, const struct sampling *s)
{
    for (int32_t i = p->num_prompt; i < p->num_tokens; i++) counts[p->tokens[i]]++;
    for (int32_t i = 0; i < p->num_drafted; i++) counts[p->drafted[i]]++;
    for (int32_t i = 0; i < p->num_tokens; i++) penalise(values, counts, p->tokens[i], s);
    for (int32_t i = 0; i < p->num_drafted; i++) penalise(values, counts, p->drafted[i], s);
    for (int32_t i = 0; i < p->num_tokens; i++) counts[p->tokens[i]] = 0;
    for (int32_t i = 0; i < p->num_drafted; i++) counts[p->drafted[i]] = 0;
}

/* ---- the draw: steps 5 to 9 ---- */

/* The num_left leading candidates stay: the others get -infinity, or lie below the threshold that is returned. */
static float leave_leading(const struct ranking *r, float *values, int32_t num_left)
{
    assert_debug(num_left > 0 && num_left <= r->num_candidates); /* the best one stays, whatever leaves */
    float least = r->max;
    for (int32_t i = 0; i < num_left; i++) least = min_of(least, values[r->ids[i]]);
    for (int32_t i = num_left; i < r->num_candidates; i++)
        if (values[r->ids[i]] == least)
            values[r->ids[i]] = -INFINITY; /* equal to the last in rank, higher id */
    return least;
}

/* Steps 6 and 7, as leave_leading has it, then 8: ids[0 .. *num_kept) are what that leaves; 0: all. */
static float truncate_tail(struct ranking *r, float *values, const struct sample_params *p, int32_t *num_kept)
{
    float share = p->sampling.top_p;
    *num_kept = 0;
    if (p->sampling.min_p > 0.0f) r->floor = r->max + log2f(p->sampling.min_p) / r->scale;
    if (p->sampling.top_k > 0 && p->sampling.top_k < r->num_values) {
        int32_t num_left = ranking_lead_count(r, p->sampling.top_k);
        float threshold = leave_leading(r, values, num_left);
        if (share < 1.0f) *num_kept = ranking_lead_share_of(r, num_left, share);
        return threshold;
    }
    if (share < 1.0f) *num_kept = ranking_lead_share(r, share);
    return r->floor;
}

/* The token of segment_sums and weights at which the cumulative weight exceeds target. */
static int32_t find_cumulative(const float *weights, int32_t num, const double *segment_sums, double target)
{
    double sum = 0.0;
    int32_t begin = 0, found = -1;
    for (int32_t s = 0; begin + ROW_SEGMENT < num && sum + segment_sums[s] <= target; s++) {
        sum += segment_sums[s];
        begin += ROW_SEGMENT;
    }
    for (int32_t i = begin; i < num; i++) {
        if (weights[i] > 0.0f) found = i;
        sum += (double)weights[i];
        if (sum > target && found >= 0) break;
    }
    return found;
}

/* At u of the tokens ids[0 .. num), in order of id. Changes the weights. */
static int32_t draw_among(float *weights, int32_t num_values, const int32_t *ids, int32_t num, double u)
{
    double total = 0.0, sum = 0.0;
    int32_t found = -1;
    for (int32_t i = 0; i < num; i++) weights[ids[i]] = -weights[ids[i]];
    for (int32_t id = 0; id < num_values; id++)
        if (weights[id] < 0.0f) total -= (double)weights[id];
    for (int32_t id = 0; id < num_values && sum <= u * total; id++) {
        if (!(weights[id] < 0.0f)) continue;
        sum -= (double)weights[id];
        found = id;
    }
    return found;
}

static int32_t draw(struct ranking *r, float *values, double *segment_sums, const struct sample_params *p)
{
    int32_t n = r->num_values, num_kept;
    float threshold = truncate_tail(r, values, p, &num_kept);
    uint64_t seed = p->sampling.seed, position = (uint64_t)p->position;
    double total = 0.0;
    r->kernels->exp_segments(values, n, r->max, r->scale, threshold, segment_sums);
    for (int32_t s = 0; s < sampling_num_segments(n); s++) total += segment_sums[s];
    assert_debug(total > 0.0);
    for (uint64_t i = 0; i < DRAW_TRIES; i++) {
        int32_t id = find_cumulative(values, n, segment_sums, (double)rng_uniform(seed, position, i) * total);
        if (num_kept == 0 || id_list_has(r->ids, num_kept, id)) return id;
    }
    return draw_among(values, n, r->ids, num_kept, (double)rng_uniform(seed, position, DRAW_TRIES));
}

static struct past past_of(const struct history *h, const int32_t *drafted, const struct sample_params *p)
{
    int32_t num_tokens = p->position - p->num_drafted;
    assert_debug(num_tokens >= h->slots[p->batch_slot].num_prompt && num_tokens <= h->max_tokens);
    return (struct past){history_tokens(h, p->batch_slot), drafted, h->slots[p->batch_slot].num_prompt,
                         num_tokens, p->num_drafted};
}

/* past: NULL without penalties. */
static int32_t choose_token(struct ranking *r, struct sampling_scratch *scratch, const struct past *past,
                            const uint64_t *forbidden, const struct sample_params *p)
{
    bool greedy = p->sampling.temperature < SAMPLING_GREEDY_BELOW;
    bool raw = !changes_logits(p) && !forbidden;
    if (!raw || !greedy) {
        memcpy(scratch->values, r->values, (size_t)r->num_values * sizeof *r->values);
        r->values = scratch->values;
    }
    if (!raw) {
        bool has_nan;
        apply_bias(scratch->values, p);
        exclude(scratch->values, r->num_values, p->allowed, forbidden);
        if (past) apply_penalties(scratch->values, scratch->counts, past, &p->sampling);
        r->max = r->kernels->max(r->values, r->num_values, &has_nan);
        if (has_nan || !isfinite(r->max)) return -1;
    }
    if (!greedy) {
        r->scale = log2_e / p->sampling.temperature;
        return draw(r, scratch->values, scratch->segment_sums, p);
    }
    return r->kernels->gather(r->values, r->num_values, r->max, r->ids, 1) == 1 ? r->ids[0] : -1;
}

void sampling_row(const struct row_kernels *kernels, struct sampling_scratch *scratch,
                  const struct history *history, const int32_t *drafted, const float *logits,
                  int32_t vocab_size, const uint64_t *forbidden, const struct sample_params *p,
                  struct sample_result *result)
{
    bool has_nan;
    *result = (struct sample_result){.withheld = p->withheld};
    if (p->withheld) return;
    struct ranking raw = {
        .kernels = kernels, .values = logits, .num_values = vocab_size, .ids = scratch->ids};
    raw.max = kernels->max(logits, vocab_size, &has_nan);
    raw.scale = log2_e;
    raw.floor = -INFINITY;
    result->failed = has_nan || !isfinite(raw.max);
    if (result->failed) return;
    if (p->score_token_id >= 0) {
        result->token_id = p->score_token_id;
    } else {
        struct ranking chosen = raw;
        bool penalties = sampling_has_penalties(p);
        struct past past = penalties ? past_of(history, drafted, p) : (struct past){0};
        int32_t token_id = choose_token(&chosen, scratch, penalties ? &past : NULL, forbidden, p);
        result->failed = token_id < 0;
        if (result->failed) return;
        result->token_id = token_id;
    }
    if (p->sampling.num_logprobs >= 0) report_logprobs(&raw, p, result);
}
