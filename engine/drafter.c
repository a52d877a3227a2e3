#include "engine/drafter.h"

#include <string.h>

#include "base/check.h"

enum {
    GRAM = 3,           /* tokens that must have stood there before */
    PREDICTED_GRAM = 2, /* the same, where it is known about where */
    LOOK_BACK = 16384,  /* tokens, for where they did */
    LANES = 16          /* compared together */
};

static const double FIRST_HOPE = 0.5, FIRST_HOPE_OF_FORMS = 0.8, FIRST_HOPE_OF_PREDICTIONS = 0.8,
                    FIRST_GAIN = 1;
static const double MEMORY = 0.2; /* of the newest expectation */
static const double LIKELY = 0.3; /* that a token comes, to be offered */

void drafter_init(struct drafter *d, enum drafter_source source)
{
    *d = (struct drafter){
        .source = source, .hope = FIRST_HOPE, .told_hope = FIRST_HOPE_OF_FORMS, .gain = FIRST_GAIN};
}

void drafter_predict(struct drafter *d, const int32_t *predicted, int32_t num_predicted, int32_t num_prompt)
{
    assert_debug(d->num_seen == 0);
    d->prediction = (struct prediction){.tokens = predicted,
                                        .num_tokens = num_predicted,
                                        .num_prompt = num_prompt,
                                        .hope = FIRST_HOPE_OF_PREDICTIONS};
}

/* Of LANES tokens. */
static bool is_among(const int32_t *tokens, int32_t id)
{
    int32_t any = 0;
    for (int32_t i = 0; i < LANES; i++) any |= tokens[i] == id;
    return any;
}

/* The last place before end where id stands, not before begin; -1: none. */
static int32_t find_last(const int32_t *tokens, int32_t begin, int32_t end, int32_t id)
{
    while (end - begin >= LANES && !is_among(tokens + end - LANES, id)) end -= LANES;
    while (end > begin)
        if (tokens[--end] == id) return end;
    return -1;
}

static bool ends_alike(const int32_t *tokens, int32_t a, int32_t b)
{
    for (int32_t i = 1; i < GRAM; i++)
        if (tokens[a - i] != tokens[b - i]) return false;
    return true;
}

/* Behind the newest earlier place of the last tokens; 0: there is none. */
static int32_t look_up(const int32_t *tokens, int32_t num_tokens)
{
    int32_t last = num_tokens - 1, begin = max_of(num_tokens - LOOK_BACK, GRAM - 1);
    for (int32_t at = last; (at = find_last(tokens, begin, at, tokens[last])) >= 0;)
        if (ends_alike(tokens, at, last)) return at + 1;
    return 0;
}

/* ---- what was predicted ---- */

/* Tokens that are expected to follow by it. */
static int32_t num_predicted(const struct prediction *p)
{
    return p->next >= 0 ? p->num_tokens - p->next : 0;
}

/* What goes before what was said. */
static bool is_predicted(const struct drafter *d)
{
    return num_predicted(&d->prediction) > 0;
}

/* Behind the first place in [begin, end) where the newest tokens stand; -1: there is none. */
static int32_t find_predicted(const struct prediction *p, const int32_t *newest, int32_t begin, int32_t end)
{
    for (int32_t at = begin; at < end; at++) {
        if (at + LANES <= end && !is_among(p->tokens + at, newest[0]))
            at += LANES - 1;
        else if (p->tokens[at] == newest[0] && p->tokens[at - 1] == newest[-1])
            return at + 1;
    }
    return -1;
}

/* newest: points to the last of PREDICTED_GRAM tokens of the answer. First what comes next in the prediction, then what has come. */
static void find_again(struct prediction *p, const int32_t *newest)
{
    const int32_t first = PREDICTED_GRAM - 1, from = max_of(p->from, first);
    p->next = find_predicted(p, newest, from, min_of(p->num_tokens, from + LOOK_BACK));
    if (p->next < 0)
        p->next = find_predicted(p, newest, max_of(from - LOOK_BACK, first), min_of(from, p->num_tokens));
}

/* tokens[at] has come. */
static void pass_predicted(struct prediction *p, const int32_t *tokens, int32_t at)
{
    if (num_predicted(p) > 0) {
        bool came_true = p->tokens[p->next] == tokens[at];
        p->hope += MEMORY * (came_true - p->hope);
        p->next = came_true ? p->next + 1 : -1;
        if (came_true) p->from = p->next;
    }
    if (num_predicted(p) == 0 && at - p->num_prompt + 1 >= PREDICTED_GRAM) find_again(p, tokens + at);
}

static void pass_told(struct drafter *d, int32_t token)
{
    d->is_told = false;
    if (d->num_told == 0) return;
    bool came_true = token == d->told[0];
    if (!d->told_own) d->told_hope += MEMORY * (came_true - d->told_hope);
    d->num_true += came_true;
    d->num_told = came_true ? d->num_told - 1 : 0;
    memmove(d->told, d->told + 1, (size_t)d->num_told * sizeof d->told[0]);
}

void drafter_tell(struct drafter *d, const int32_t *ids, int32_t num, bool is_own)
{
    assert_debug(d->source == DRAFTER_IS_TOLD && num >= 0 && num <= GUESS_TOKENS_MAX);
    d->gain += MEMORY * (d->num_true - d->gain);
    d->num_true = 0;
    d->is_told = true;
    d->told_own = is_own;
    d->num_told = num;
    for (int32_t i = 0; i < num; i++) d->told[i] = ids[i];
}

void drafter_follow(struct drafter *d, const int32_t *tokens, int32_t num_tokens)
{
    if (d->num_seen == num_tokens || d->source == DRAFTER_OFF) return;
    for (int32_t i = d->num_seen; d->source == DRAFTER_IS_TOLD && i < num_tokens; i++)
        pass_told(d, tokens[i]);
    for (int32_t i = max_of(d->num_seen, d->prediction.num_prompt);
         d->prediction.num_tokens > 0 && i < num_tokens; i++)
        pass_predicted(&d->prediction, tokens, i);
    for (; d->next > 0 && d->num_seen < num_tokens; d->num_seen++) {
        bool came_true = tokens[d->next] == tokens[d->num_seen];
        d->hope += MEMORY * (came_true - d->hope);
        d->next = came_true ? d->next + 1 : 0;
    }
    d->num_seen = num_tokens;
    if (d->next == 0 && !is_predicted(d)) d->next = look_up(tokens, num_tokens);
}

static double hope_of_found(const struct drafter *d)
{
    return is_predicted(d) ? d->prediction.hope : d->hope;
}

/* Of either, if there is something. */
static const int32_t *found_at(const struct drafter *d, const int32_t *tokens)
{
    return is_predicted(d) ? d->prediction.tokens + d->prediction.next : tokens + d->next;
}

static int32_t num_found(const struct drafter *d)
{
    if (is_predicted(d)) return num_predicted(&d->prediction);
    return d->next > 0 ? d->num_seen - d->next : 0;
}

int32_t drafter_found(const struct drafter *d, const int32_t *tokens, int32_t *ids, int32_t max)
{
    const int32_t *from = found_at(d, tokens), most = min_of(max, num_found(d));
    const double hope = hope_of_found(d);
    int32_t num = 0;
    for (double all = hope; num < most && all > LIKELY; all *= hope, num++) ids[num] = from[num];
    return num;
}

static double hope_of(const struct drafter *d)
{
    return d->source == DRAFTER_IS_TOLD && !d->told_own ? d->told_hope : hope_of_found(d);
}

/* Tokens that are expected, max at most. */
static int32_t num_expected(const struct drafter *d, int32_t max)
{
    if (d->source == DRAFTER_IS_TOLD) return min_of(d->num_told, max);
    if (is_predicted(d)) return min_of(num_found(d), max);
    return d->next > 0 ? max : 0;
}

bool drafter_expects(const struct drafter *d)
{
    return num_expected(d, 1) > 0;
}

/* Whoever has said so, too. */
static int32_t count_predicted(const struct prediction *p, const int32_t *draft, int32_t num)
{
    int32_t same = 0, most = min_of(num, num_predicted(p));
    while (same < most && draft[same] == p->tokens[p->next + same]) same++;
    return same;
}

/* What was written is read again where the draft goes beyond what is known: a loop goes on as a loop. */
int32_t drafter_write(struct drafter *d, int32_t *tokens, int32_t max)
{
    const int32_t num = num_expected(d, max),
                  *from = d->source == DRAFTER_IS_TOLD ? d->told : found_at(d, tokens);
    for (int32_t i = 0; i < num; i++) tokens[d->num_seen + i] = from[i];
    d->num_predicted = count_predicted(&d->prediction, tokens + d->num_seen, num);
    return num;
}

int32_t drafter_num_worth(const struct drafter *d, double saved_us, double cost_us, int32_t max)
{
    int32_t num = 0;
    max = num_expected(d, max);
    if (cost_us <= 0) return max;
    const double hope = hope_of(d);
    for (saved_us *= hope; num < max && saved_us > cost_us; saved_us *= hope) num++;
    return num;
}

double drafter_num_expected(const struct drafter *d, int32_t num)
{
    double expected = 0, hope = hope_of(d), all = hope;
    for (int32_t i = 0; i < num; i++, all *= hope) expected += all;
    return expected;
}
