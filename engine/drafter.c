#include "engine/drafter.h"

#include <string.h>

#include "base/check.h"

enum {
    GRAM = 3,          /* tokens that must have stood there before */
    LOOK_BACK = 16384, /* tokens, for where they did */
    LANES = 16         /* compared together */
};

static const double FIRST_HOPE = 0.5, FIRST_HOPE_OF_FORMS = 0.8, FIRST_GAIN = 1;
static const double MEMORY = 0.2; /* of the newest expectation */
static const double LIKELY = 0.3; /* that a token comes, to be offered */

void drafter_init(struct drafter *d, enum drafter_source source)
{
    *d = (struct drafter){
        .source = source, .hope = FIRST_HOPE, .told_hope = FIRST_HOPE_OF_FORMS, .gain = FIRST_GAIN};
}

/* The last place before end where id stands, not before begin; -1: none. */
static int32_t find_last(const int32_t *tokens, int32_t begin, int32_t end, int32_t id)
{
    while (end - begin >= LANES) {
        int32_t any = 0;
        for (int32_t i = 1; i <= LANES; i++) any |= tokens[end - i] == id;
        if (any) break;
        end -= LANES;
    }
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
    for (; d->next > 0 && d->num_seen < num_tokens; d->num_seen++) {
        bool came_true = tokens[d->next] == tokens[d->num_seen];
        d->hope += MEMORY * (came_true - d->hope);
        d->next = came_true ? d->next + 1 : 0;
    }
    d->num_seen = num_tokens;
    if (d->next == 0) d->next = look_up(tokens, num_tokens);
}

int32_t drafter_found(const struct drafter *d, const int32_t *tokens, int32_t *ids, int32_t max)
{
    int32_t num = 0, most = d->next > 0 ? min_of(max, d->num_seen - d->next) : 0;
    for (double all = d->hope; num < most && all > LIKELY; all *= d->hope, num++)
        ids[num] = tokens[d->next + num];
    return num;
}

static double hope_of(const struct drafter *d)
{
    return d->source == DRAFTER_IS_TOLD && !d->told_own ? d->told_hope : d->hope;
}

/* Tokens that are expected, max at most. */
static int32_t num_expected(const struct drafter *d, int32_t max)
{
    if (d->source == DRAFTER_IS_TOLD) return min_of(d->num_told, max);
    return d->next > 0 ? max : 0;
}

bool drafter_expects(const struct drafter *d)
{
    return num_expected(d, 1) > 0;
}

/* What was written is read again where the draft goes beyond what is known: a loop goes on as a loop. */
int32_t drafter_write(const struct drafter *d, int32_t *tokens, int32_t max)
{
    int32_t num = num_expected(d, max);
    bool is_told = d->source == DRAFTER_IS_TOLD;
    for (int32_t i = 0; i < num; i++) tokens[d->num_seen + i] = is_told ? d->told[i] : tokens[d->next + i];
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
