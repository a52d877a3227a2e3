/* drafts.c - what sequences are expected to say. Random answers seldom say a thing twice, so whoever drafts looks ahead here: each
 * token is the one that will follow, more often than not. Of an answer with a form it is what the form says, or anything that
 * this lets through, or it is offered so. */
#include <string.h>

#include "sim/form.h"
#include "sim/watch.h"
#include "sim/wraps.h"

enum { RIGHT_PERCENT = 75, FORCED_PERCENT = 60, GUESSED_WORDS = 8, TRIES = 40 };

static const struct watch *watch_of_tokens(const int32_t *tokens)
{
    for (int32_t i = 0; i < SLOTS_MAX; i++)
        if (watches[i].active && tokens == request_slots_tokens(world.engine->slots, i)) return &watches[i];
    expect(false, "a draft for nobody");
    return NULL;
}

int32_t __wrap_drafter_num_worth(const struct drafter *d, double saved_us, double cost_us, int32_t max)
{
    (void)__real_drafter_num_worth(d, saved_us, cost_us, max);
    if (d->source == DRAFTER_IS_TOLD) max = min_of(max, d->num_told);
    return rng_below(&world.draft_rng, max + 1);
}

/* tokens: the slot's, or a copy that may be written to. */
static void look_ahead(const struct watch *w, const struct drafter *d, int32_t *tokens, int32_t num)
{
    struct reference ref = w->ref;
    const struct request_slot_input *in = &w->expected.input;
    while (ref.num_tokens < d->num_seen) reference_push(&ref, tokens[ref.num_tokens]);
    for (int32_t i = 0; i < num; i++) {
        int32_t num_generated = ref.num_tokens - ref.num_prompt;
        if (w->expected.form > 0)
            ref.allowed = form_allowed(w->expected.form, in, tokens + ref.num_prompt, num_generated);
        struct sample_result row = reference_row(&ref, in, tokens, -1);
        bool is_right = !row.failed && rng_chance(&world.draft_rng, RIGHT_PERCENT);
        int32_t id = is_right ? row.token_id : rng_below(&world.draft_rng, FAKE_VOCAB);
        tokens[ref.num_tokens] = id;
        reference_push(&ref, id);
    }
}

int32_t __wrap_drafter_write(struct drafter *d, int32_t *tokens, int32_t max)
{
    bool is_predicted = d->prediction.num_tokens > 0 && rng_chance(&world.draft_rng, 50);
    if (d->source == DRAFTER_IS_TOLD || is_predicted) return __real_drafter_write(d, tokens, max);
    d->num_predicted = 0;
    look_ahead(watch_of_tokens(tokens), d, tokens, max);
    return max;
}

/* What is offered to an answer that has a form. */
int32_t __wrap_drafter_found(const struct drafter *d, const int32_t *tokens, int32_t *ids, int32_t max)
{
    int32_t copy[MODEL_LEN + GUESS_TOKENS_MAX], num = rng_below(&world.draft_rng, max + 1);
    assert_always(max <= GUESS_TOKENS_MAX);
    memcpy(copy, tokens, (size_t)d->num_seen * sizeof copy[0]);
    look_ahead(watch_of_tokens(tokens), d, copy, num);
    memcpy(ids, copy + d->num_seen, (size_t)num * sizeof ids[0]);
    return num;
}

/* Words in a row that the form allows. */
static size_t write_words(struct matcher *m, char *out)
{
    size_t n = 0;
    for (int tries = 0, words = 0; tries < TRIES && words < GUESSED_WORDS; tries++) {
        const char *word = word_of(rng_below(&world.draft_rng, FAKE_VOCAB));
        size_t length = strlen(word);
        if (length == 0 || n + length > FORECAST_BYTES_MAX || matcher_accept(m, word, length) != 0) continue;
        memcpy(out + n, word, length);
        n += length;
        words++;
    }
    return n;
}

size_t __wrap_forecast_text(const struct matcher *m, const struct spacing *s, char *out)
{
    struct matcher *copy;
    if (rng_chance(&world.draft_rng, FORCED_PERCENT)) return __real_forecast_text(m, s, out);
    if (matcher_copy(m, &copy)) return 0;
    size_t n = write_words(copy, out);
    matcher_free(copy);
    return n;
}
