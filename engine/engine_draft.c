/* engine_draft.c - drafts for sequences that decode, where what a row more takes is less than what it may save.
 *
 * A token that comes true saves its sequence a step, of which it has a part; a row that is in vain takes what a row takes. Few
 * sequences in a step: a row takes little of what it may save. Many: nothing is drafted, and nothing is looked up either.
 *
 * Who is to get a draft must know its newest token, so the step in flight is ended first, and the device waits meanwhile:
 * only when that is less than what is expected of the drafts.
 *
 * Not for sequences with penalties or a form: what a row of theirs draws depends on what the row before it has drawn. Nor for those
 * that another engine has begun: a request that kills engines is to do so at one place (server/recovery.h). */
#include "base/check.h"
#include "engine/engine_internal.h"

/* What is expected must be more than what it takes by so much. */
static const double MARGIN = 1.5;
/* Of the newest time that the device had to wait; of the gap, each time that nothing is drafted because of it. */
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
};

static struct terms terms_of(const struct engine *e)
{
    struct scheduler_stats stats;
    scheduler_stats(e->scheduler, &stats);
    return (struct terms){step_cost_prices(&e->cost), engine_knows_prices(e), stats.num_running};
}

static bool may_draft(const struct engine *e, const struct sequence *seq)
{
    const struct request_slot_input *in = &request_slots_get(e->slots, seq->slot_idx)->input;
    return sequence_is_decoding(seq) && sequence_num_drafted_max(seq) > 0 &&
           !sampling_uses_history(&in->sampling) && !in->constrained && !e->drafters[seq->slot_idx].is_off;
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

/* A step's fixed part is shared by all that run. Nothing is looked up where not even a certain token would be worth its row. */
static struct stakes stakes_of(struct engine *e, const struct terms *t, const struct sequence *seq)
{
    struct drafter *d = &e->drafters[seq->slot_idx];
    const struct step_prices *p = &t->prices;
    const int32_t most = e->options.num_draft_tokens, num_left = max_of(sequence_num_drafted_max(seq), 0);
    double row_us = step_prices_decode_us(p, seq->num_computed, most) / most;
    struct stakes s = {.saved_us =
                           p->decode_step / t->num_running + step_prices_decode_us(p, seq->num_computed, 1)};
    if (t->are_known && s.saved_us <= MARGIN * row_us) return s;
    drafter_follow(d, seq->tokens, seq->num_tokens);
    s.num = drafter_num_worth(d, s.saved_us, MARGIN * row_us, min_of(most, num_left));
    s.expected_us = drafter_num_expected(d, s.num) * s.saved_us - s.num * row_us;
    return s;
}

/* A gap from a bad moment becomes shorter until it is tried and measured again. */
static bool is_worth_the_gap(struct engine *e, double us)
{
    if (us > MARGIN * e->gap_us) return true;
    if (us > 0) e->gap_us *= GAP_HOPE;
    return false;
}

/* Whose newest token is in flight gets a draft if it is the expected one; who has a draft in flight misses the next step unless that
 * is waited for. */
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
        any = any || s.num > 0 || seq->num_draft_pending > 0;
        us += seq->num_draft_pending > 0 ? s.saved_us : e->drafters[seq->slot_idx].hope * s.expected_us;
    }
    return any && (!t.are_known || is_worth_the_gap(e, us));
}

/* Drafts of all of which nothing is in flight. Returns what is expected of them together, in microseconds. */
static double draft_all(struct engine *e, const struct terms *t)
{
    double us = 0;
    for (int32_t id = NO_SEQUENCE; (id = next_of(e, id)) != NO_SEQUENCE;) {
        const struct sequence *seq = scheduler_sequence(e->scheduler, id);
        if (seq->num_steps_in_flight > 0) continue;
        struct stakes s = stakes_of(e, t, seq);
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
    double us = draft_all(e, &t);
    if (t.are_known && e->limits.num_steps_in_flight > 1 && !is_worth_the_gap(e, us)) forget_all(e);
}

void engine_learn_gap(struct engine *e, uint64_t begin_ns)
{
    double us = (double)(begin_ns - e->ended_ns) * 1e-3;
    e->gap_us += (us - e->gap_us) * (e->gap_us > 0 ? GAP_MEMORY : 1);
}
