/* engine_draft.c - drafts for sequences that decode, where what a row more takes is less than what it may save.
 *
 * A token that comes true saves its sequence a step, of which it has a part; a row that is in vain takes what a row takes. Few
 * sequences in a step: a row takes little of what it may save. Many: nothing is drafted, and nothing is looked up either.
 *
 * Who is to get a draft must know its newest token, so the step in flight is ended first, and the device waits meanwhile:
 * only when that is less than what is expected of the drafts.
 *
 * An answer that must have a form says what its form lets it, and what that probably is comes from the front, with a mask for each
 * row (engine_guess.c); there what was found is offered. It is waited for a moment, where that is less than what such guesses have brought so far.
 *
 * A row of a sequence with penalties counts the draft before it as drawn (struct sample_params): where that does not come
 * true the row is in vain.
 *
 * Not for sequences that another engine has begun: a request that kills engines is to do so at one place (server/recovery.h). */
#include "base/check.h"
#include "base/clock.h"
#include "engine/engine_internal.h"

enum { GUESS_WAIT_NS = 300000 };

/* What is expected must be more than what it takes by so much. */
static const double MARGIN = 1.5;
/* Of the newest time that the device had to wait; of what is known of it, each time that nothing is drafted because of it. */
static const double GAP_MEMORY = 0.3, GAP_HOPE = 0.999;

/* What all drafts of a plan go by. */
struct terms {
    struct step_prices prices;
    bool are_known; /* the prices: if not, all is worth it */
    int32_t num_running;
};

/* Of one sequence's draft. */
struct stakes {
    int32_t num;        /* tokens of it that are worth their rows */
    double saved_us;    /* of a step, by each that comes true */
    double expected_us; /* saved by all of them, less what their rows take */
    double later_us;    /* saved by the next draft, when what is in flight is known */
    bool is_too_dear;   /* nothing is drafted because of what a row takes */
};

static struct terms terms_of(const struct engine *e)
{
    struct scheduler_stats stats;
    scheduler_stats(e->scheduler, &stats);
    return (struct terms){step_cost_prices(&e->cost), engine_knows_prices(e), stats.num_running};
}

static bool may_draft(const struct engine *e, const struct sequence *seq)
{
    return sequence_is_decoding(seq) && sequence_num_drafted_max(seq) > 0 &&
           e->drafters[seq->slot_idx].source != DRAFTER_OFF;
}

/* The next running sequence that may have a draft, or has one in flight; NO_SEQUENCE: no more. */
static int32_t next_of(const struct engine *e, int32_t seq_id)
{
    while ((seq_id = scheduler_next(e->scheduler, seq_id)) != NO_SEQUENCE) {
        const struct sequence *seq = scheduler_sequence(e->scheduler, seq_id);
        if (seq->state != SEQUENCE_RUNNING) return NO_SEQUENCE;
        if (seq->num_draft_pending > 0 || may_draft(e, seq)) return seq_id;
    }
    return NO_SEQUENCE;
}

/* What guesses have brought a step so far, less what their rows take. */
static double gained_us(const struct drafter *d, double saved_us, double row_us)
{
    return max_of(d->gain * (saved_us - row_us / d->told_hope), 0.0);
}

/* A step's fixed part is shared by all that run. Nothing is looked up or guessed where not even a certain token would be worth
 * its row. */
static struct stakes stakes_of(struct engine *e, const struct terms *t, const struct sequence *seq)
{
    struct drafter *d = &e->drafters[seq->slot_idx];
    const struct step_prices *p = &t->prices;
    const int32_t most = e->options.num_draft_tokens, num_left = max_of(sequence_num_drafted_max(seq), 0);
    double row_us = step_prices_decode_us(p, seq->num_computed, most) / most;
    struct stakes s = {.saved_us =
                           p->decode_step / t->num_running + step_prices_decode_us(p, seq->num_computed, 1)};
    bool is_formed = d->source == DRAFTER_IS_TOLD, any = !t->are_known || s.saved_us > MARGIN * row_us;
    if (is_formed) engine_want_guess(e, seq, any ? most : 0);
    s.is_too_dear = !any;
    if (!any) return s;
    bool knows = engine_hear_guess(e, seq) || !is_formed;
    if (knows) s.num = drafter_num_worth(d, s.saved_us, MARGIN * row_us, min_of(most, num_left));
    s.is_too_dear = knows && s.num == 0 && num_left > 0 && drafter_expects(d);
    s.expected_us = drafter_num_expected(d, s.num) * s.saved_us - s.num * row_us;
    s.later_us = is_formed ? gained_us(d, s.saved_us, row_us) : d->hope * s.expected_us;
    return s;
}

/* Once a plan. Steps of one row never say what a second one takes: a price that was learned at a bad moment would keep drafts away
 * for good. */
static void hope_if_alone(struct engine *e, const struct terms *t, const struct sequence *seq,
                          const struct stakes *s)
{
    if (s->is_too_dear && t->are_known && t->num_running == 1)
        step_cost_hope_rows(&e->cost, seq->num_computed);
}

/* A wait from a bad moment becomes shorter until it is tried and measured again. */
static bool is_worth_waiting(double us, double *wait_us)
{
    if (us > MARGIN * *wait_us) return true;
    if (us > 0) *wait_us *= GAP_HOPE;
    return false;
}

static void learn_wait(double *wait_us, uint64_t ns)
{
    double us = (double)ns * 1e-3;
    *wait_us += (us - *wait_us) * (*wait_us > 0 ? GAP_MEMORY : 1);
}

/* Whose newest token is in flight gets a draft if it is the expected one, or if something is guessed behind it; who has a draft in
 * flight misses the next step unless that is waited for. */
bool engine_wants_to_draft(struct engine *e)
{
    double us = 0;
    bool any = false;
    if (e->options.num_draft_tokens == 0 || e->num_in_flight == 0) return false;
    const struct terms t = terms_of(e);
    for (int32_t id = NO_SEQUENCE; (id = next_of(e, id)) != NO_SEQUENCE;) {
        const struct sequence *seq = scheduler_sequence(e->scheduler, id);
        if (seq->num_pending == 0) continue;
        struct stakes s = stakes_of(e, &t, seq);
        hope_if_alone(e, &t, seq, &s);
        any = any || s.num > 0 || seq->num_draft_pending > 0;
        us += seq->num_draft_pending > 0 ? s.saved_us : s.later_us;
    }
    return t.are_known ? is_worth_waiting(us, &e->gap_us) : any;
}

/* The next of those whose guess is not known yet. */
static int32_t next_unheard(struct engine *e, int32_t id)
{
    while ((id = next_of(e, id)) != NO_SEQUENCE) {
        const struct sequence *seq = scheduler_sequence(e->scheduler, id);
        bool is_formed = e->drafters[seq->slot_idx].source == DRAFTER_IS_TOLD;
        if (is_formed && seq->num_steps_in_flight == 0 && !engine_hear_guess(e, seq)) return id;
    }
    return NO_SEQUENCE;
}

/* The device has nothing to do meanwhile. */
static void await_guesses(struct engine *e, const struct terms *t)
{
    double us = 0;
    bool any = false;
    if (e->num_in_flight > 0) return;
    for (int32_t id = NO_SEQUENCE; (id = next_unheard(e, id)) != NO_SEQUENCE;) {
        const struct stakes s = stakes_of(e, t, scheduler_sequence(e->scheduler, id));
        any = any || s.later_us > 0;
        us += s.later_us;
    }
    if (!any || (t->are_known && !is_worth_waiting(us, &e->guess_us))) return;
    uint64_t begin_ns = clock_monotonic_ns();
    for (int32_t id = NO_SEQUENCE; (id = next_unheard(e, id)) != NO_SEQUENCE;)
        engine_await_guess(e, scheduler_sequence(e->scheduler, id), begin_ns + GUESS_WAIT_NS);
    learn_wait(&e->guess_us, clock_monotonic_ns() - begin_ns);
}

/* Drafts of all of which nothing is in flight. Returns what is expected of them together, in microseconds. */
static double draft_all(struct engine *e, const struct terms *t)
{
    double us = 0;
    for (int32_t id = NO_SEQUENCE; (id = next_of(e, id)) != NO_SEQUENCE;) {
        const struct sequence *seq = scheduler_sequence(e->scheduler, id);
        if (seq->num_steps_in_flight > 0) continue;
        struct stakes s = stakes_of(e, t, seq);
        hope_if_alone(e, t, seq, &s);
        int32_t *tokens = request_slots_tokens(e->slots, seq->slot_idx);
        scheduler_draft(e->scheduler, id, drafter_write(&e->drafters[seq->slot_idx], tokens, s.num));
        us += s.expected_us;
    }
    return us;
}

static void forget_all(struct engine *e)
{
    for (int32_t id = NO_SEQUENCE; (id = next_of(e, id)) != NO_SEQUENCE;)
        if (scheduler_sequence(e->scheduler, id)->num_drafted > 0) scheduler_draft(e->scheduler, id, 0);
}

/* All drafts together are to be worth that the next step is waited for, where two could be in flight. */
void engine_draft(struct engine *e)
{
    if (e->options.num_draft_tokens == 0) return;
    const struct terms t = terms_of(e);
    await_guesses(e, &t);
    double us = draft_all(e, &t);
    if (t.are_known && e->limits.num_steps_in_flight > 1 && !is_worth_waiting(us, &e->gap_us)) forget_all(e);
}

void engine_learn_gap(struct engine *e, uint64_t begin_ns)
{
    learn_wait(&e->gap_us, begin_ns - e->ended_ns);
}
