#include "scheduler/step_cost.h"

#include <math.h>

#include "base/check.h"

enum { PER_TOKEN, PER_PAIR, PER_STEP };

static const double NOISE = 0.1;                         /* of a step's time: what equal steps differ by */
static const double DRIFT = 0.02;                        /* of a coefficient, from step to step */
static const double UNKNOWN = 1.0;                       /* of a coefficient, at most and in the beginning */
static const double LIKELY = 3;                          /* standard deviations; times what a copy takes */
static const double DOUBT_MOST = 0.2, DOUBT_KEPT = 0.97; /* of a prediction; from step to step */
static const double COPY_MEMORY = 64; /* blocks, the newest of them, that its mean goes back */
static const double COPY_HOPE = 0.97; /* of its price, when nothing was copied because of it */
static const double ROW_HOPE = 0.998; /* of a decoding row's, when none was added because of it */

/* ---- one fit ---- */

static double size_of(const struct cost_fit *f, int i)
{
    return fmax(f->us[i], 0.1 * f->scale[i]);
}

static void fit_init(struct cost_fit *f, double token, double pair, double step)
{
    *f = (struct cost_fit){.us = {token, pair, step}, .scale = {token, pair, step}};
    for (int i = 0; i < COST_TERMS; i++) f->covariance[i][i] = UNKNOWN * UNKNOWN * f->us[i] * f->us[i];
}

static double fit_us(const struct cost_fit *f, const double x[COST_TERMS])
{
    double us = 0;
    for (int i = 0; i < COST_TERMS; i++) us += f->us[i] * x[i];
    return us;
}

static void let_drift(struct cost_fit *f)
{
    for (int i = 0; i < COST_TERMS; i++) {
        double size = size_of(f, i), most = UNKNOWN * UNKNOWN * size * size;
        if (f->covariance[i][i] < most) f->covariance[i][i] += DRIFT * DRIFT * size * size;
    }
}

static void fit_learn(struct cost_fit *f, const double x[COST_TERMS], double us)
{
    double gain[COST_TERMS] = {0}, expected = fit_us(f, x), variance = 0;
    for (int i = 0; i < COST_TERMS; i++)
        for (int k = 0; k < COST_TERMS; k++) gain[i] += f->covariance[i][k] * x[k];
    for (int i = 0; i < COST_TERMS; i++) variance += x[i] * gain[i];
    double noise = NOISE * fmax(expected, 1), total = variance + noise * noise;
    double most = LIKELY * sqrt(total), error = fmin(fmax(us - expected, -most), most);
    for (int i = 0; i < COST_TERMS; i++) f->us[i] = fmax(f->us[i] + gain[i] / total * error, 0);
    for (int i = 0; i < COST_TERMS; i++)
        for (int k = 0; k < COST_TERMS; k++) f->covariance[i][k] -= gain[i] * gain[k] / total;
    let_drift(f);
}

/* ---- both ---- */

void step_cost_init(struct step_cost *c, const struct step_prices *start)
{
    fit_init(&c->prompt, start->prompt_token, start->prompt_pair, start->prompt_step);
    fit_init(&c->decode, start->decode_token, start->decode_pair, start->decode_step);
    c->block_copy = start->block_copy;
    c->windowed = start->windowed;
    c->window = start->window;
    c->tile = start->tile;
    c->bundle = start->bundle;
    c->doubt = start->doubt;
}

/* What takes longer than anybody could doubt was held up by something else. */
static void learn_doubt(struct step_cost *c, double expected, double us)
{
    double late = us - expected;
    c->doubt *= DOUBT_KEPT;
    if (late > c->doubt && late <= DOUBT_MOST * expected) c->doubt = late;
}

void step_cost_learn(struct step_cost *c, const struct step_work *work, double us)
{
    if (c->prompt.scale[PER_TOKEN] <= 0 || !(us > 0)) return;
    double decode[] = {work->decode_tokens, work->decode_pairs, 1};
    if (work->prompt_tokens > 0) {
        decode[PER_STEP] = 0;
        double prompt[] = {work->prompt_tokens, work->prompt_pairs, 1};
        learn_doubt(c, fit_us(&c->decode, decode) + fit_us(&c->prompt, prompt), us);
        fit_learn(&c->prompt, prompt, fmax(us - fit_us(&c->decode, decode), 0));
    } else if (work->decode_tokens > 0) {
        fit_learn(&c->decode, decode, us);
    }
}

void step_cost_learn_copy(struct step_cost *c, int32_t num_blocks, double us)
{
    if (c->prompt.scale[PER_TOKEN] <= 0 || num_blocks <= 0 || !(us > 0)) return;
    double each = fmin(us / num_blocks, LIKELY * c->block_copy);
    c->block_copy += (each - c->block_copy) * num_blocks / (num_blocks + COPY_MEMORY);
}

void step_cost_hope_copy(struct step_cost *c)
{
    c->block_copy *= COPY_HOPE;
}

void step_cost_hope_rows(struct step_cost *c, double num_keys)
{
    double row = c->decode.us[PER_TOKEN] + num_keys * c->decode.us[PER_PAIR];
    c->decode.us[PER_TOKEN] *= ROW_HOPE;
    c->decode.us[PER_PAIR] *= ROW_HOPE;
    c->decode.us[PER_STEP] += (1 - ROW_HOPE) * row;
}

struct step_prices step_cost_prices(const struct step_cost *c)
{
    return (struct step_prices){.prompt_token = c->prompt.us[PER_TOKEN],
                                .prompt_pair = c->prompt.us[PER_PAIR],
                                .prompt_step = c->prompt.us[PER_STEP],
                                .decode_token = c->decode.us[PER_TOKEN],
                                .decode_pair = c->decode.us[PER_PAIR],
                                .decode_step = c->decode.us[PER_STEP],
                                .block_copy = c->block_copy,
                                .windowed = c->windowed,
                                .window = c->window,
                                .tile = c->tile,
                                .bundle = c->bundle,
                                .doubt = c->doubt};
}

struct step_prices step_prices_guess(double prompt_us, int32_t num_tokens, double token_us,
                                     double pair_per_token)
{
    assert_debug(num_tokens > 1);
    double token = fmax(prompt_us - token_us, prompt_us / 4) / (num_tokens - 1);
    double step = fmax(token_us - token, token_us / 4);
    return (struct step_prices){.prompt_token = token,
                                .prompt_pair = token * pair_per_token,
                                .prompt_step = step,
                                .decode_token = token,
                                .decode_pair = token * pair_per_token,
                                .decode_step = step};
}

/* ---- prices ---- */

/* Of num_tokens queries in tiles, each of which costs as many as it has room for: a tile's queries see the keys of its last. */
static double tile_pairs(double position, double num_tokens, double tile)
{
    double num_tiles = ceil(num_tokens / tile);
    return tile * (num_tiles * position + 0.5 * tile * num_tiles * (num_tiles - 1) + num_tokens);
}

/* The same where the layers with a window see no more than its keys. */
static double mean_pairs(const struct step_prices *p, double position, double num_tokens, double tile)
{
    if (num_tokens <= 0) return 0;
    double all = tile_pairs(position, num_tokens, tile);
    if (p->windowed <= 0) return all;
    /* The first of the tokens see fewer keys than the window has. */
    double num_growing = fmin(fmax(p->window - position, 0), num_tokens);
    double seen =
        (num_growing > 0 ? tile_pairs(position, num_growing, 1) : 0) + (num_tokens - num_growing) * p->window;
    return all + p->windowed * (seen - all);
}

double step_num_pairs(const struct step_prices *p, int32_t position, int32_t num_tokens)
{
    return mean_pairs(p, position, num_tokens, max_of(p->tile, 1));
}

double step_num_decode_pairs(const struct step_prices *p, int32_t position, int32_t num_tokens)
{
    int32_t bundle = min_of(max_of(p->bundle, 1), max_of(num_tokens, 1));
    return mean_pairs(p, position, num_tokens, bundle) / bundle;
}

double step_prices_prompt_us(const struct step_prices *p, int32_t position, int32_t num_tokens)
{
    return p->prompt_token * num_tokens + p->prompt_pair * step_num_pairs(p, position, num_tokens);
}

/* By halves, as the time grows with the tokens. */
int32_t step_prices_num_tokens(const struct step_prices *p, int32_t position, double us, int32_t max_tokens)
{
    int32_t fits = 0, too_many = max_tokens + 1;
    if (us <= 0) return 0;
    while (too_many - fits > 1) {
        int32_t half = fits + (too_many - fits) / 2;
        *(step_prices_prompt_us(p, position, half) <= us ? &fits : &too_many) = half;
    }
    return fits;
}

double step_prices_decode_us(const struct step_prices *p, int32_t position, int32_t num_tokens)
{
    return p->decode_token * num_tokens + p->decode_pair * step_num_decode_pairs(p, position, num_tokens);
}

struct step_prices step_prices_of_decoding(const struct step_prices *p)
{
    struct step_prices decoding = *p;
    decoding.prompt_token = p->decode_token;
    decoding.tile = max_of(p->bundle, 1);
    decoding.prompt_pair = p->decode_pair / decoding.tile;
    decoding.prompt_step = p->decode_step;
    return decoding;
}

double step_prices_us(const struct step_prices *p, const struct step_work *work)
{
    return (work->prompt_tokens > 0 ? p->prompt_step : p->decode_step) +
           p->prompt_token * work->prompt_tokens + p->prompt_pair * work->prompt_pairs +
           p->decode_token * work->decode_tokens + p->decode_pair * work->decode_pairs;
}
