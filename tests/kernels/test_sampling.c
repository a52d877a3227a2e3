/* test_sampling.c - sampling against a reference that sorts the whole row in double precision.
 *
 * Rows of logits are made by a product with unit vectors, and the reference starts from the logits that the
 * device reports, so it need not know how the product was rounded. Where a border (top_p's sum, the draw)
 * falls within rounding of a token, either side is right. */
#include "fixture.h"

enum { ROWS_MAX = 32, HISTORY_MAX = 200, VOCAB_MAX = 151936, MASK_WORDS_MAX = VOCAB_MAX / 64 };

struct bench {
    struct device *d;
    struct linear *head;
    struct test_step *step;
    void *x;
    int32_t vocab_size;
    uint64_t forbidden[MASK_WORDS_MAX];
    float *logits; /* [ROWS_MAX][V] as the device had them in the last run */
    struct sample_result results[ROWS_MAX];
    int32_t history[ROWS_MAX][HISTORY_MAX];
    int32_t num_prompt[ROWS_MAX], num_history[ROWS_MAX];
    int32_t token_ids[ROWS_MAX]; /* of the step, a row each */
};

/* weights[v][r]: logit of token v in row r. */
static struct bench *bench_new(const char *isa, int num_threads, int32_t vocab_size, float *weights)
{
    struct bench *b = calloc(1, sizeof *b);
    struct error err = {0};
    b->d = test_device_open(isa, num_threads);
    b->vocab_size = vocab_size;
    struct step_limits limits = {ROWS_MAX, ROWS_MAX, ROWS_MAX, ROWS_MAX, HISTORY_MAX, 1, 1, 0, false, 0};
    struct attention_args attention = {.num_heads = 1, .num_kv_heads = 1, .head_dim = 64};
    if (b->d->ops->prepare(b->d, &limits, vocab_size, ROWS_MAX, 64, &attention, 1, &err))
        fail_msg("%s", err.text);
    struct linear_desc desc = {.kind = LINEAR_PLAIN, .num_parts = 1, .wide_output = true};
    desc.parts[0] = weight_view_plain(weights, DTYPE_F32, vocab_size, ROWS_MAX);
    if (b->d->ops->linear_create(b->d, &desc, &b->head, &err)) fail_msg("%s", err.text);
    b->x = device_floats(b->d, ROWS_MAX * ROWS_MAX, false);
    b->step = test_step_new(ROWS_MAX, ROWS_MAX, 1);
    b->logits = malloc(ROWS_MAX * (size_t)vocab_size * sizeof *b->logits);
    return b;
}

static void bench_free(struct bench *b)
{
    b->d->ops->close(b->d);
    test_step_free(b->step);
    free(b->logits);
    free(b);
}

/* Row i has the logits of column columns[i] and the parameters params[i], of which the device learns only behind
 * the logits what a constrained row may draw. */
static void bench_run(struct bench *b, int32_t num_rows, const int32_t *columns,
                      const struct sample_params *params)
{
    float *x = calloc(ROWS_MAX * ROWS_MAX, sizeof *x);
    test_step_clear(b->step);
    for (int32_t r = 0; r < num_rows; r++) {
        test_step_add(b->step, &(int32_t){r}, 0, 1, true);
        x[r * ROWS_MAX + columns[r]] = 1.0f;
        b->step->logit_rows[r] = r;
        b->step->token_ids[r] = b->token_ids[r];
        b->step->sample[r] = params[r];
        b->step->sample[r].allowed = NULL;
        b->step->sample[r].withheld = false;
    }
    b->step->step.num_logits = num_rows;
    device_write(b->d, b->x, x, ROWS_MAX * ROWS_MAX, false);
    free(x);
    struct batch *batch = b->d->ops->step_begin(b->d, &b->step->step);
    b->d->ops->logits(b->d, batch, b->x, b->head);
    for (int32_t r = 0; r < num_rows; r++) b->step->sample[r] = params[r];
    b->d->ops->sample(b->d, batch);
    for (int32_t r = 0; r < num_rows; r++)
        assert_int_equal(b->d->ops->read_logits(b->d, r, b->logits + (size_t)r * (size_t)b->vocab_size), 0);
    memset(b->results, 0xa5, sizeof b->results);
    test_step_end(b->d, b->results);
}

/* Each id with a chance of one in n. */
static void bench_forbid(struct bench *b, int32_t n, struct random *random)
{
    memset(b->forbidden, 0, sizeof b->forbidden);
    for (int32_t id = 0; id < b->vocab_size; id++)
        if (random_below(random, n) == 0) b->forbidden[id / 64] |= (uint64_t)1 << id % 64;
    b->d->ops->forbid(b->d, b->forbidden);
}

static void bench_set_history(struct bench *b, int32_t slot, int32_t num_prompt, int32_t num_tokens,
                              struct random *random)
{
    /* Few different tokens, so that counts above one are usual. */
    for (int32_t i = 0; i < num_tokens; i++)
        b->history[slot][i] = random_below(random, min_of(b->vocab_size, 40));
    b->num_prompt[slot] = num_prompt;
    b->num_history[slot] = num_tokens;
    assert_int_equal(b->d->ops->history_set(b->d, slot, b->history[slot], num_prompt, num_tokens), 0);
}

/* The last tokens of a row's history are a draft, those of the step: the device's history has others in their place. Returns
 * how many. */
static int32_t bench_draft(struct bench *b, int32_t row, struct random *random)
{
    int32_t most = min_of(row, b->num_history[row] - b->num_prompt[row]),
            num = random_below(random, most + 1);
    for (int32_t i = 0; i < num; i++)
        b->history[row][b->num_history[row] - num + i] = b->token_ids[row + 1 - num + i];
    return num;
}

static struct sample_params plain_params(int32_t slot)
{
    return (struct sample_params){
        .batch_slot = slot,
        .score_token_id = -1,
        .sampling.top_p = 1.0f,
        .sampling.repetition_penalty = 1.0f,
        .sampling.num_logprobs = -1,
    };
}

/* ---- the reference ---- */

struct ranked {
    double logit, weight;
    int32_t id;
};

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static void reference_penalise(const struct bench *b, const struct sample_params *p, double *logits)
{
    const int32_t *tokens = b->history[p->batch_slot];
    int32_t num_prompt = b->num_prompt[p->batch_slot], num = b->num_history[p->batch_slot];
    for (int32_t id = 0; id < b->vocab_size && num > 0; id++) {
        int32_t seen = 0, generated = 0;
        for (int32_t i = 0; i < num; i++) {
            if (tokens[i] != id) continue;
            seen++;
            if (i >= num_prompt) generated++;
        }
        double repetition = (double)p->sampling.repetition_penalty;
        if (seen) logits[id] = logits[id] > 0 ? logits[id] / repetition : logits[id] * repetition;
        if (generated)
            logits[id] -=
                (double)p->sampling.frequency_penalty * generated + (double)p->sampling.presence_penalty;
    }
}

static struct ranked *reference_rank(const struct bench *b, int32_t row, const struct sample_params *p)
{
    int32_t V = b->vocab_size;
    double *logits = malloc((size_t)V * sizeof *logits);
    struct ranked *ranked = malloc((size_t)V * sizeof *ranked);
    for (int32_t i = 0; i < V; i++) logits[i] = (double)b->logits[(size_t)row * (size_t)V + (size_t)i];
    for (int32_t i = 0; i < p->num_logit_bias; i++)
        logits[p->logit_bias[i].token_id] += (double)p->logit_bias[i].bias;
    for (int32_t i = 0; i < p->num_banned; i++) logits[p->banned[i]] = -INFINITY;
    for (int32_t i = 0; i < V; i++)
        if (bit_set_has(b->forbidden, (size_t)i) || (p->allowed && !bit_set_has(p->allowed, (size_t)i)))
            logits[i] = -INFINITY;
    reference_penalise(b, p, logits);
    for (int32_t i = 0; i < V; i++) ranked[i] = (struct ranked){logits[i], 0, i};
    free(logits);
    qsort(ranked, (size_t)V, sizeof *ranked, by_rank);
    return ranked;
}

/* How many leading tokens steps 7 and 8 leave: between these, should a border be too close to call. */
enum { LEAST, MOST, SIDES };

struct cut {
    int32_t left[SIDES], kept[SIDES];
};

static struct cut reference_truncate(struct ranked *ranked, int32_t num, const struct sample_params *p)
{
    struct cut cut;
    for (int32_t i = 0; i < num; i++)
        ranked[i].weight = exp((ranked[i].logit - ranked[0].logit) / (double)p->sampling.temperature);
    for (int side = LEAST; side <= MOST; side++) {
        double slack = side == LEAST ? -2e-5 : 2e-5, sum = 0, before = 0;
        int32_t left = num, kept = 0;
        if (p->sampling.min_p > 0)
            for (left = 0; left < num && ranked[left].weight >= (double)p->sampling.min_p * (1 - slack);
                 left++)
                continue;
        if (p->sampling.top_k > 0) left = min_of(left, p->sampling.top_k);
        left = max_of(left, 1);
        for (int32_t i = 0; i < left; i++) sum += ranked[i].weight;
        for (; kept < left && before < ((double)p->sampling.top_p + slack) * sum; kept++)
            before += ranked[kept].weight;
        cut.left[side] = left;
        cut.kept[side] = p->sampling.top_p >= 1.0f ? left : max_of(kept, 1);
    }
    return cut;
}

static int by_id(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->id < y->id ? -1 : 1;
}

/* The first num ranked in order of id; sums[i]: of the weights up to i. */
struct row_by_id {
    struct ranked *tokens;
    double *sums;
    int32_t num;
};

static struct row_by_id sort_by_id(const struct ranked *ranked, int32_t num)
{
    struct row_by_id row = {malloc((size_t)num * sizeof *row.tokens), malloc((size_t)num * sizeof *row.sums),
                            num};
    double sum = 0;
    memcpy(row.tokens, ranked, (size_t)num * sizeof *ranked);
    qsort(row.tokens, (size_t)num, sizeof *row.tokens, by_id);
    for (int32_t i = 0; i < num; i++) row.sums[i] = sum += row.tokens[i].weight;
    return row;
}

static void row_by_id_free(struct row_by_id *row)
{
    free(row->tokens);
    free(row->sums);
}

static const struct ranked *token_at(const struct row_by_id *row, double u)
{
    double target = u * row->sums[row->num - 1];
    int32_t low = 0, high = row->num - 1;
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (row->sums[middle] > target)
            high = middle;
        else
            low = middle + 1;
    }
    return &row->tokens[low];
}

struct draw {
    const struct row_by_id *left, *kept;
    const struct ranked *last_kept;
    const struct sample_params *p;
    int32_t id;
};

/* Whether step 9 gives id from its try-th token on; what u is within rounding of is right, too. */
static bool reference_draws(const struct draw *d, uint64_t try)
{
    const double slack[] = {0, -2e-6, 2e-6};
    double u = (double)rng_uniform(d->p->sampling.seed, (uint64_t)d->p->position, try);
    bool last = try == 4, right = false;
    for (size_t i = 0; i < array_length(slack) && !right; i++) {
        const struct ranked *token = token_at(last ? d->kept : d->left, u + slack[i]);
        if (last || by_rank(token, d->last_kept) < 0 || token->id == d->last_kept->id)
            right = token->id == d->id && token->weight > 0;
        else
            right = reference_draws(d, try + 1);
    }
    return right;
}

static bool reference_can_draw(const struct ranked *ranked, const struct cut *cut,
                               const struct sample_params *p, int32_t id)
{
    bool right = false;
    for (int32_t num = cut->left[LEAST]; num <= cut->left[MOST] && !right; num++) {
        struct row_by_id left = sort_by_id(ranked, num);
        for (int32_t kept = min_of(cut->kept[LEAST], num); kept <= min_of(cut->kept[MOST], num) && !right;
             kept++) {
            struct row_by_id row = sort_by_id(ranked, kept);
            right = reference_draws(&(struct draw){&left, &row, &ranked[kept - 1], p, id}, 0);
            row_by_id_free(&row);
        }
        row_by_id_free(&left);
    }
    return right;
}

static void check_row(const struct bench *b, int32_t row, const struct sample_params *p)
{
    const struct sample_result *result = &b->results[row];
    struct ranked *ranked = reference_rank(b, row, p);
    assert_int_equal(result->withheld, p->withheld);
    assert_int_equal(result->failed, !p->withheld && ranked[0].logit == -INFINITY);
    if (result->failed || result->withheld) {
        /* there is no token to look at */
    } else if (p->sampling.temperature == 0) {
        /* f32 penalties may round two logits onto each other: equal within rounding is right. */
        double chosen = -INFINITY;
        for (int32_t i = 0; i < b->vocab_size; i++)
            if (ranked[i].id == result->token_id) chosen = ranked[i].logit;
        if (!(chosen >= ranked[0].logit - 1e-6 * (1 + fabs(ranked[0].logit))))
            fail_msg("greedy: token %d has %g, the best is %d with %g", result->token_id, chosen,
                     ranked[0].id, ranked[0].logit);
    } else {
        struct cut cut = reference_truncate(ranked, b->vocab_size, p);
        if (!reference_can_draw(ranked, &cut, p, result->token_id))
            fail_msg("token %d is not what steps 7 and 8 give, which leave %d..%d and %d..%d of %d tokens "
                     "(temperature %g, top_k %d, top_p %g, min_p %g)",
                     result->token_id, cut.left[LEAST], cut.left[MOST], cut.kept[LEAST], cut.kept[MOST],
                     b->vocab_size, (double)p->sampling.temperature, p->sampling.top_k,
                     (double)p->sampling.top_p, (double)p->sampling.min_p);
    }
    free(ranked);
}

static int32_t rank_of(const struct ranked *ranked, int32_t id)
{
    int32_t rank = 0;
    while (ranked[rank].id != id) rank++;
    return rank;
}

static void check_logprobs(const struct bench *b, int32_t row, const struct sample_params *p)
{
    const struct sample_result *result = &b->results[row];
    struct sample_params raw = plain_params(0);
    static struct bench plain;
    plain = *b;
    plain.num_history[0] = 0;
    memset(plain.forbidden, 0, sizeof plain.forbidden);
    struct ranked *ranked = reference_rank(&plain, row, &raw);
    double sum = 0, expected = NAN;
    for (int32_t i = 0; i < b->vocab_size; i++) sum += exp(ranked[i].logit - ranked[0].logit);
    double log_sum = ranked[0].logit + log(sum);
    for (int32_t i = 0; i < b->vocab_size; i++)
        if (ranked[i].id == result->token_id) expected = ranked[i].logit - log_sum;
    assert_true(fabs((double)result->logprobs.logprob - expected) <= 1e-5 * (1 + fabs(expected)));
    int32_t num_best = min_of(max_of(p->sampling.num_logprobs, 0), b->vocab_size);
    assert_int_equal(result->logprobs.num_top, p->num_logprob_ids > 0 ? p->num_logprob_ids : num_best);
    for (int32_t i = 0; i < result->logprobs.num_top; i++) {
        int32_t at = p->num_logprob_ids > 0 ? rank_of(ranked, p->logprob_ids[i]) : i;
        assert_int_equal(result->logprobs.top_ids[i], ranked[at].id);
        expected = ranked[at].logit - log_sum;
        assert_true(fabs((double)result->logprobs.top_logprobs[i] - expected) <= 1e-5 * (1 + fabs(expected)));
    }
    free(ranked);
}

/* ---- tests ---- */

/* Logit of token v in a row of one of eight kinds: of deviations from flat to peaked, full of ties, all
 * equal, falling or rising with the id, and two values in turns. */
static float random_logit(struct random *random, int32_t kind, int32_t v, int32_t vocab_size)
{
    static const float deviations[] = {0.3f, 2.0f, 6.0f};
    float x = random_normal(random), place = (float)v / (float)vocab_size;
    if (kind < 3) return deviations[kind] * x;
    if (kind == 3) return roundf(x);
    if (kind == 4) return 1.25f;
    if (kind == 5) return 8.0f - 16.0f * place;
    if (kind == 6) return 8.0f * place;
    return v % 2 ? 0.5f : -0.5f;
}

static float *random_columns(struct random *random, int32_t vocab_size)
{
    float *weights = malloc((size_t)vocab_size * ROWS_MAX * sizeof *weights);
    for (int32_t v = 0; v < vocab_size; v++)
        for (int32_t r = 0; r < ROWS_MAX; r++)
            weights[v * ROWS_MAX + r] = rounded_to(2, random_logit(random, r % 8, v, vocab_size));
    return weights;
}

/* A device that splits rows gets real vocabularies; for a CPU they would only take longer, and racecheck would not
 * come to an end (FLASHD_TEST_SMALL). */
static int32_t large_vocab(int32_t small, int32_t large)
{
    return getenv("FLASHD_TEST_DEVICE") && !getenv("FLASHD_TEST_SMALL") ? large : small;
}

struct choices {
    struct logit_bias bias[8];
    int32_t banned[8], logprob_ids[TOP_LOGPROBS_MAX];
    uint64_t allowed[MASK_WORDS_MAX];
};

static bool one_in(struct random *random, int32_t n)
{
    return random_below(random, n) == 0;
}

/* One id, some, every second, all but some, or a run of them; sometimes none at all. */
static void random_mask(struct random *random, int32_t vocab_size, uint64_t *allowed)
{
    int32_t kind = random_below(random, 6), begin = random_below(random, vocab_size),
            num = one_in(random, 4) ? 1 : random_below(random, 60);
    bool all_but = kind == 3;
    memset(allowed, all_but ? 0xff : 0, sizeof(uint64_t) * MASK_WORDS_MAX);
    if (kind == 0) num = 1;
    if (kind == 2) num = vocab_size / 2;
    if (kind == 4) num = vocab_size - begin;
    for (int32_t i = 0; i < num; i++) {
        int32_t id = kind == 4 ? begin + i : random_below(random, vocab_size);
        if (all_but)
            allowed[id / 64] &= ~((uint64_t)1 << id % 64);
        else
            allowed[id / 64] |= (uint64_t)1 << id % 64;
    }
}

static void constrain(struct random *random, int32_t vocab_size, struct sample_params *p, struct choices *c)
{
    p->constrained = true;
    p->withheld = one_in(random, 5);
    if (one_in(random, 8)) return;
    random_mask(random, vocab_size, c->allowed);
    p->allowed = c->allowed;
}

static struct sample_params random_params(struct random *random, int32_t slot, int32_t vocab_size,
                                          struct choices *c)
{
    struct sample_params p = plain_params(slot);
    p.sampling.seed = (uint64_t)random_bits(random) << 32 | random_bits(random);
    if (!one_in(random, 4)) p.sampling.temperature = 0.2f + 1.5f * (float)random_uniform(random);
    if (one_in(random, 3)) p.sampling.top_k = 1 + random_below(random, one_in(random, 3) ? vocab_size : 60);
    if (one_in(random, 3)) p.sampling.top_p = 0.05f + 0.94f * (float)random_uniform(random);
    if (one_in(random, 3)) p.sampling.min_p = 0.3f * (float)random_uniform(random);
    if (one_in(random, 3)) p.sampling.repetition_penalty = 0.7f + (float)random_uniform(random);
    if (one_in(random, 3)) p.sampling.frequency_penalty = 2.0f * (float)random_uniform(random) - 1.0f;
    if (one_in(random, 3)) p.sampling.presence_penalty = 2.0f * (float)random_uniform(random) - 1.0f;
    p.sampling.num_logprobs = random_below(random, TOP_LOGPROBS_MAX + 2) - 1;
    p.logit_bias = c->bias;
    p.banned = c->banned;
    p.num_logit_bias = one_in(random, 3) ? 8 : 0;
    p.num_banned = one_in(random, 3) ? 8 : 0;
    p.logprob_ids = c->logprob_ids;
    if (p.sampling.num_logprobs >= 0 && one_in(random, 3))
        p.num_logprob_ids = 1 + random_below(random, TOP_LOGPROBS_MAX);
    for (int i = 0; i < TOP_LOGPROBS_MAX; i++) c->logprob_ids[i] = random_below(random, vocab_size);
    if (one_in(random, 3)) constrain(random, vocab_size, &p, c);
    int32_t at = 0;
    for (int i = 0; i < 8; i++) {
        at += random_below(random, vocab_size / 16) + 1;
        c->bias[i] = (struct logit_bias){at, one_in(random, 5) ? -INFINITY : 5.0f * random_normal(random)};
        c->banned[i] = at - 1;
    }
    return p;
}

static void random_parameters(const char *isa)
{
    const int32_t vocab_sizes[] = {50, 1003, large_vocab(1500, 130003), 20000, large_vocab(700, VOCAB_MAX)};
    static struct choices choices[ROWS_MAX];
    struct random random = {.seed = test_seed()};
    for (size_t i = 0; i < array_length(vocab_sizes); i++) {
        int32_t V = vocab_sizes[i];
        float *weights = random_columns(&random, V);
        struct bench *b = bench_new(isa, 1 + random_below(&random, 3), V, weights);
        for (int round = 0; round < (V > 5000 ? 4 : 20); round++) {
            struct sample_params params[ROWS_MAX];
            int32_t columns[ROWS_MAX], num_rows = V > 5000 ? 8 : ROWS_MAX;
            random_permutation(&random, columns, ROWS_MAX);
            if (round == 2 || round == 10) bench_forbid(b, 2 + random_below(&random, 100), &random);
            for (int32_t r = 0; r < num_rows; r++) b->token_ids[r] = random_below(&random, min_of(V, 40));
            for (int32_t r = 0; r < num_rows; r++) {
                int32_t num = random_below(&random, HISTORY_MAX);
                bench_set_history(b, r, num > 0 ? random_below(&random, num) : 0, num, &random);
                params[r] = random_params(&random, r, V, &choices[r]);
                params[r].position = num;
                if (one_in(&random, 3)) params[r].num_drafted = bench_draft(b, r, &random);
                if (!params[r].constrained && one_in(&random, 10))
                    params[r].score_token_id = random_below(&random, V);
            }
            bench_run(b, num_rows, columns, params);
            for (int32_t r = 0; r < num_rows; r++) {
                if (params[r].score_token_id < 0)
                    check_row(b, r, &params[r]);
                else
                    assert_int_equal(b->results[r].token_id, params[r].score_token_id);
                if (params[r].sampling.num_logprobs >= 0 && !b->results[r].failed && !b->results[r].withheld)
                    check_logprobs(b, r, &params[r]);
            }
        }
        bench_free(b);
        free(weights);
    }
}

static void test_random_parameters(void **state)
{
    (void)state;
    for_each_isa(random_parameters);
}

static void assert_same_result(const struct sample_result *a, const struct sample_result *b)
{
    assert_int_equal(a->failed, b->failed);
    assert_int_equal(a->withheld, b->withheld);
    if (a->failed || a->withheld) return;
    assert_int_equal(a->token_id, b->token_id);
    assert_int_equal(num_bits_different(&a->logprobs.logprob, &b->logprobs.logprob, 1), 0);
    assert_int_equal(a->logprobs.num_top, b->logprobs.num_top);
    assert_memory_equal(a->logprobs.top_ids, b->logprobs.top_ids,
                        (size_t)a->logprobs.num_top * sizeof a->logprobs.top_ids[0]);
    assert_int_equal(
        num_bits_different(a->logprobs.top_logprobs, b->logprobs.top_logprobs, (size_t)a->logprobs.num_top),
        0);
}

/* The same row gives the same result whatever stands beside it and however many threads there are. */
static void neighbours(const char *isa)
{
    struct random random = {.seed = test_seed()};
    static uint64_t forbidden[MASK_WORDS_MAX];
    int32_t V = large_vocab(3001, 130003);
    float *weights = random_columns(&random, V);
    static struct choices choices[ROWS_MAX];
    struct sample_params params[ROWS_MAX];
    struct sample_result first[ROWS_MAX];
    int32_t columns[ROWS_MAX];
    random_permutation(&random, columns, ROWS_MAX);
    for (int32_t r = 0; r < ROWS_MAX; r++) {
        params[r] = random_params(&random, r, V, &choices[r]);
        params[r].position = 20 + 5 * r;
    }
    for (int num_threads = 1; num_threads <= 3; num_threads++) {
        struct bench *b = bench_new(isa, num_threads, V, weights);
        if (num_threads == 1) bench_forbid(b, 50, &random);
        if (num_threads == 1) memcpy(forbidden, b->forbidden, sizeof forbidden);
        b->d->ops->forbid(b->d, forbidden);
        struct random same = {.seed = 1};
        for (int32_t r = 0; r < ROWS_MAX; r++) bench_set_history(b, r, 15, params[r].position, &same);
        bench_run(b, ROWS_MAX, columns, params);
        if (num_threads == 1) memcpy(first, b->results, sizeof first);
        for (int32_t r = 0; r < ROWS_MAX; r++) assert_same_result(&first[r], &b->results[r]);
        for (int32_t r = 0; r < ROWS_MAX; r += 5) {
            bench_run(b, 1, &columns[r], &params[r]);
            assert_same_result(&first[r], &b->results[0]);
        }
        bench_free(b);
    }
    free(weights);
}

static void test_neighbours(void **state)
{
    (void)state;
    for_each_isa(neighbours);
}

/* Drawn tokens occur as often as they should: Pearson's chi-square over many positions. */
static void frequencies(const char *isa)
{
    enum { V = 40, DRAWS = 20000, KEPT = 25 };
    struct random random = {.seed = test_seed()};
    float *weights = random_columns(&random, V);
    struct bench *b = bench_new(isa, 2, V, weights);
    int32_t columns[ROWS_MAX] = {0}, counts[V] = {0};
    struct sample_params params[ROWS_MAX];
    uint64_t seed = random_bits(&random);
    for (int32_t position = 0; position < DRAWS; position += ROWS_MAX) {
        for (int32_t r = 0; r < ROWS_MAX; r++) {
            params[r] = plain_params(r);
            params[r].sampling.temperature = 0.9f;
            params[r].sampling.top_k = KEPT;
            params[r].sampling.seed = seed;
            params[r].position = position + r;
        }
        bench_run(b, ROWS_MAX, columns, params);
        for (int32_t r = 0; r < ROWS_MAX; r++) counts[b->results[r].token_id]++;
    }
    struct ranked *ranked = reference_rank(b, 0, &params[0]);
    double sum = 0, chi_square = 0;
    for (int32_t i = 0; i < KEPT; i++) sum += exp((ranked[i].logit - ranked[0].logit) / 0.9);
    for (int32_t i = 0; i < V; i++) {
        double expected = i < KEPT ? DRAWS * exp((ranked[i].logit - ranked[0].logit) / 0.9) / sum : 0;
        double difference = counts[ranked[i].id] - expected;
        if (i < KEPT)
            chi_square += difference * difference / expected;
        else
            assert_int_equal(counts[ranked[i].id], 0);
    }
    if (chi_square > 90) fail_msg("chi-square %g with 24 degrees of freedom", chi_square); /* p < 1e-9 */
    free(ranked);
    bench_free(b);
    free(weights);
}

static void test_frequencies(void **state)
{
    (void)state;
    for_each_isa(frequencies);
}

static void greedy_ties(const char *isa)
{
    enum { V = 997 };
    float *weights = calloc(V * ROWS_MAX, sizeof *weights);
    int32_t columns[ROWS_MAX];
    struct sample_params params[ROWS_MAX];
    for (int32_t r = 0; r < ROWS_MAX; r++) {
        columns[r] = r;
        params[r] = plain_params(r);
        weights[(r * 31 + 4) * ROWS_MAX + r] = weights[996 * ROWS_MAX + r] = r % 2 ? 1.5f : 0.0f;
        if (r % 3 == 1) params[r].sampling.temperature = 1e-6f;
        if (r % 3 == 2) {
            params[r].sampling.temperature = 1.0f;
            params[r].sampling.top_k = 1;
        }
    }
    struct bench *b = bench_new(isa, 1, V, weights);
    bench_run(b, ROWS_MAX, columns, params);
    for (int32_t r = 0; r < ROWS_MAX; r++) assert_int_equal(b->results[r].token_id, r % 2 ? r * 31 + 4 : 0);
    bench_free(b);
    free(weights);
}

static void test_greedy_ties(void **state)
{
    (void)state;
    for_each_isa(greedy_ties);
}

/* A step of greedy rows alone may take another path than one that asks for more: the tokens are the same, whatever
 * is forbidden. */
static void greedy_with_and_without_logprobs(const char *isa)
{
    static const int32_t vocab_sizes[] = {1, 15, 50, 1003, 20000};
    struct random random = {.seed = test_seed()};
    for (size_t i = 0; i < array_length(vocab_sizes); i++) {
        int32_t V = vocab_sizes[i], columns[ROWS_MAX], tokens[ROWS_MAX];
        float *weights = random_columns(&random, V);
        for (int32_t j = 0; j < V * ROWS_MAX && i % 2; j++) weights[j] = roundf(weights[j]); /* ties */
        for (int num_threads = 1; num_threads <= 3; num_threads++) {
            struct bench *b = bench_new(isa, num_threads, V, weights);
            struct sample_params params[ROWS_MAX];
            random_permutation(&random, columns, ROWS_MAX);
            if (num_threads > 1) bench_forbid(b, num_threads == 2 ? 2 : 40, &random);
            for (int32_t r = 0; r < ROWS_MAX; r++) params[r] = plain_params(r);
            bench_run(b, ROWS_MAX, columns, params);
            for (int32_t r = 0; r < ROWS_MAX; r++) {
                tokens[r] = b->results[r].failed ? -1 : b->results[r].token_id;
                check_row(b, r, &params[r]);
                params[r].sampling.num_logprobs = r % 2 ? 0 : -1;
            }
            bench_run(b, ROWS_MAX, columns, params);
            for (int32_t r = 0; r < ROWS_MAX; r++)
                assert_int_equal(b->results[r].failed ? -1 : b->results[r].token_id, tokens[r]);
            bench_free(b);
        }
        free(weights);
    }
}

static void test_greedy_with_and_without_logprobs(void **state)
{
    (void)state;
    for_each_isa(greedy_with_and_without_logprobs);
}

/* A row with a NaN fails, as does one of which nothing may be drawn; the others do not notice. */
static void failed_rows(const char *isa)
{
    enum { V = 300 };
    struct random random = {.seed = test_seed()};
    float *weights = random_columns(&random, V);
    struct logit_bias ban_all[V];
    for (int32_t i = 0; i < V; i++) ban_all[i] = (struct logit_bias){i, -INFINITY};
    struct bench *b = bench_new(isa, 2, V, weights);
    int32_t columns[4] = {0, 1, 2, 3};
    struct sample_params params[4];
    for (int32_t r = 0; r < 4; r++) {
        params[r] = plain_params(r);
        params[r].sampling.temperature = r % 2 ? 1.0f : 0.0f;
    }
    params[1].logit_bias = params[2].logit_bias = ban_all;
    params[1].num_logit_bias = V;
    params[2].num_logit_bias = V - 1;
    bench_run(b, 4, columns, params);
    assert_false(b->results[0].failed);
    assert_true(b->results[1].failed);
    assert_false(b->results[2].failed);
    assert_int_equal(b->results[2].token_id, V - 1);
    int32_t expected = b->results[3].token_id;
    static const uint64_t none[MASK_WORDS_MAX];
    params[0].constrained = params[3].constrained = true;
    params[0].allowed = params[3].allowed = none;
    params[0].sampling.num_logprobs = 3;
    bench_run(b, 4, columns, params);
    for (int32_t r = 0; r < 4; r++) assert_int_equal(b->results[r].failed, r != 2);
    params[0] = plain_params(0);
    params[3].constrained = false;
    params[3].allowed = NULL;
    bench_free(b);
    weights[(V - 1) * ROWS_MAX] = NAN; /* 0 * NaN: every row has it now */
    b = bench_new(isa, 2, V, weights);
    bench_run(b, 4, columns, params);
    for (int32_t r = 0; r < 4; r++) assert_true(b->results[r].failed);
    bench_free(b);
    weights[(V - 1) * ROWS_MAX] = 0.0f;
    b = bench_new(isa, 2, V, weights);
    bench_run(b, 4, columns, params);
    assert_int_equal(b->results[3].token_id, expected);
    bench_free(b);
    free(weights);
}

static void test_failed_rows(void **state)
{
    (void)state;
    for_each_isa(failed_rows);
}

/* Tokens that were sampled count from the next step on. */
static void sampled_tokens_count(const char *isa)
{
    enum { V = 64, STEPS = 50 };
    struct random random = {.seed = test_seed()};
    float *weights = random_columns(&random, V);
    struct bench *b = bench_new(isa, 1, V, weights);
    bench_set_history(b, 3, 10, 10, &random);
    for (int step = 0; step < STEPS; step++) {
        struct sample_params p = plain_params(3);
        p.sampling.temperature = step % 2 ? 0.8f : 0.0f;
        p.sampling.repetition_penalty = 1.2f;
        p.sampling.frequency_penalty = 0.6f;
        p.sampling.seed = 1;
        p.position = 10 + step;
        p.constrained = step % 3 == 0;
        p.withheld = p.constrained; /* leaves no trace */
        if (p.constrained) bench_run(b, 1, &(int32_t){1}, &p);
        if (p.constrained) assert_true(b->results[0].withheld && !b->results[0].failed);
        p.withheld = false;
        bench_run(b, 1, &(int32_t){1}, &p);
        check_row(b, 0, &p);
        b->history[3][b->num_history[3]++] = b->results[0].token_id;
    }
    bench_free(b);
    free(weights);
}

static void test_sampled_tokens_count(void **state)
{
    (void)state;
    for_each_isa(sampled_tokens_count);
}

/* Of a head that has a bias, and of one that has a soft cap, too. Weights and biases are eighths, which every device keeps. */
static void biases_of_logits(const char *isa)
{
    enum { V = 1000, ROWS = 5 };
    struct random random = {.seed = test_seed()};
    float *weights = malloc(sizeof *weights * V * ROWS_MAX), *bias = malloc(sizeof *bias * V);
    struct error err = {0};
    for (int i = 0; i < V * ROWS_MAX; i++) weights[i] = (float)(random_below(&random, 65) - 32) / 8;
    for (int i = 0; i < V; i++) bias[i] = (float)(random_below(&random, 65) - 32) / 8;
    for (int has_cap = 0; has_cap < 2; has_cap++) {
        struct bench *b = bench_new(isa, 2, V, weights);
        struct linear_desc desc = {
            .kind = LINEAR_PLAIN, .num_parts = 1, .wide_output = true, .softcap = has_cap ? 3 : 0};
        struct sample_params params[ROWS];
        int32_t columns[ROWS];
        desc.parts[0] = weight_view_plain(weights, DTYPE_F32, V, ROWS_MAX);
        desc.biases[0] = weight_view_plain(bias, DTYPE_F32, 1, V);
        if (b->d->ops->linear_create(b->d, &desc, &b->head, &err)) fail_msg("%s", err.text);
        for (int r = 0; r < ROWS; r++) {
            params[r] = plain_params(r);
            columns[r] = random_below(&random, ROWS_MAX);
        }
        bench_run(b, ROWS, columns, params);
        for (int i = 0; i < ROWS * V; i++) {
            const double logit = (double)weights[i % V * ROWS_MAX + columns[i / V]] + (double)bias[i % V];
            assert_true(fabs((double)b->logits[i] - (has_cap ? 3 * tanh(logit / 3) : logit)) <=
                        (has_cap ? 2e-6 : 0));
        }
        bench_free(b);
    }
    free(weights);
    free(bias);
}

static void test_biases_of_logits(void **state)
{
    (void)state;
    for_each_isa(biases_of_logits);
}

/* test_sampling [NAME]: without the test of that name; test_frequencies is too long for racecheck. */
int main(int argc, char **argv)
{
    if (argc > 1) cmocka_set_skip_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_parameters),
        cmocka_unit_test(test_neighbours),
        cmocka_unit_test(test_frequencies),
        cmocka_unit_test(test_greedy_ties),
        cmocka_unit_test(test_greedy_with_and_without_logprobs),
        cmocka_unit_test(test_failed_rows),
        cmocka_unit_test(test_sampled_tokens_count),
        cmocka_unit_test(test_biases_of_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
