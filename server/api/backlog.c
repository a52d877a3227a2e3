#include "server/api/backlog.h"

#include <stdlib.h>

#include "base/check.h"

struct end {
    double steps; /* of decoding, after which it comes */
    bool is_other;
};

/* Those of the running sequences, as a heap with the first end on top. */
struct ends {
    struct end *items;
    int count;
};

static void swap(struct end *a, struct end *b)
{
    struct end t = *a;
    *a = *b;
    *b = t;
}

static void push(struct ends *e, struct end end)
{
    int i = e->count++;
    e->items[i] = end;
    for (; i > 0 && e->items[(i - 1) / 2].steps > e->items[i].steps; i = (i - 1) / 2)
        swap(&e->items[i], &e->items[(i - 1) / 2]);
}

static struct end pop(struct ends *e)
{
    struct end first = e->items[0];
    e->items[0] = e->items[--e->count];
    for (int i = 0, child; (child = 2 * i + 1) < e->count; i = child) {
        if (child + 1 < e->count && e->items[child + 1].steps < e->items[child].steps) child++;
        if (e->items[i].steps <= e->items[child].steps) break;
        swap(&e->items[i], &e->items[child]);
    }
    return first;
}

struct run_ahead {
    const struct backlog *b;
    struct ends ends;
    int next;                /* the first sequence that has not begun */
    double steps;            /* now */
    double prefill_steps;    /* when the prompts of all that have begun are computed */
    double num_prefill;      /* their tokens */
    double num_tokens_begun; /* of those of them that waited */
};

static void begin_next(struct run_ahead *r)
{
    const struct backlog_sequence *s = &r->b->sequences[r->next];
    r->num_prefill += s->num_prompt_tokens;
    r->prefill_steps = max_of(r->prefill_steps, r->steps) + s->num_prompt_tokens / r->b->num_step_tokens;
    if (r->next++ >= r->b->num_running) r->num_tokens_begun += s->num_prompt_tokens;
    double begin = max_of(r->steps, s->num_prompt_tokens > 0 ? r->prefill_steps : 0);
    push(&r->ends, (struct end){begin + s->num_answer_tokens, s->is_other});
}

static double seconds_now(const struct run_ahead *r)
{
    double later = max_of(r->prefill_steps - r->steps, 0) * r->b->num_step_tokens;
    return r->steps * r->b->decode_seconds_per_step +
           max_of(r->num_prefill - later, 0) * r->b->prefill_seconds_per_token;
}

double backlog_seconds(const struct backlog *b, int num_ends, double num_tokens, double limit_seconds)
{
    int num_places = max_of(b->num_places, b->num_running);
    struct run_ahead r = {.b = b, .ends.items = malloc((size_t)num_places * sizeof(struct end))};
    if (!r.ends.items) return limit_seconds;
    assert_debug(b->num_places >= 1 && b->num_step_tokens > 0 && b->num_running <= b->num_sequences);
    while (r.next < b->num_sequences && (r.ends.count < b->num_places || r.next < b->num_running))
        begin_next(&r);
    while ((num_ends > 0 || r.num_tokens_begun < num_tokens) && r.ends.count > 0) {
        struct end end = pop(&r.ends);
        r.steps = end.steps;
        num_ends -= !end.is_other;
        if (r.next < b->num_sequences && r.ends.count < b->num_places) begin_next(&r);
        if (seconds_now(&r) > limit_seconds) break;
    }
    double seconds = seconds_now(&r);
    free(r.ends.items);
    return seconds < limit_seconds ? seconds : limit_seconds;
}
