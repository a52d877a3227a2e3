#include "server/api/backlog.h"

#include <stdlib.h>

#include "base/check.h"

/* The decode steps after which the running sequences end, as a heap with the first end on top. */
struct ends {
    double *steps;
    int count;
};

static void swap(double *a, double *b)
{
    double t = *a;
    *a = *b;
    *b = t;
}

static void push(struct ends *e, double steps)
{
    int i = e->count++;
    e->steps[i] = steps;
    for (; i > 0 && e->steps[(i - 1) / 2] > e->steps[i]; i = (i - 1) / 2)
        swap(&e->steps[i], &e->steps[(i - 1) / 2]);
}

static double pop(struct ends *e)
{
    double first = e->steps[0];
    e->steps[0] = e->steps[--e->count];
    for (int i = 0, child; (child = 2 * i + 1) < e->count; i = child) {
        if (child + 1 < e->count && e->steps[child + 1] < e->steps[child]) child++;
        if (e->steps[i] <= e->steps[child]) break;
        swap(&e->steps[i], &e->steps[child]);
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
    push(&r->ends, max_of(r->steps, s->num_prompt_tokens > 0 ? r->prefill_steps : 0) + s->num_answer_tokens);
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
    struct run_ahead r = {.b = b, .ends.steps = malloc((size_t)num_places * sizeof(double))};
    if (!r.ends.steps) return limit_seconds;
    assert_debug(b->num_places >= 1 && b->num_step_tokens > 0 && b->num_running <= b->num_sequences);
    while (r.next < b->num_sequences && (r.ends.count < b->num_places || r.next < b->num_running))
        begin_next(&r);
    while ((num_ends > 0 || r.num_tokens_begun < num_tokens) && r.ends.count > 0) {
        r.steps = pop(&r.ends);
        num_ends--;
        if (r.next < b->num_sequences && r.ends.count < b->num_places) begin_next(&r);
        if (seconds_now(&r) > limit_seconds) break;
    }
    double seconds = seconds_now(&r);
    free(r.ends.steps);
    return seconds < limit_seconds ? seconds : limit_seconds;
}
