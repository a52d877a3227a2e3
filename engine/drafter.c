#include "engine/drafter.h"

#include "base/check.h"

enum {
    GRAM = 3,          /* tokens that must have stood there before */
    LOOK_BACK = 16384, /* tokens, for where they did */
    LANES = 16         /* compared together */
};

static const double FIRST_HOPE = 0.5, MEMORY = 0.2; /* of the newest expectation */

void drafter_init(struct drafter *d, bool is_off)
{
    *d = (struct drafter){.hope = FIRST_HOPE, .is_off = is_off};
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

void drafter_follow(struct drafter *d, const int32_t *tokens, int32_t num_tokens)
{
    if (d->num_seen == num_tokens || d->is_off) return;
    for (; d->next > 0 && d->num_seen < num_tokens; d->num_seen++) {
        bool came_true = tokens[d->next] == tokens[d->num_seen];
        d->hope += MEMORY * (came_true - d->hope);
        d->next = came_true ? d->next + 1 : 0;
    }
    d->num_seen = num_tokens;
    if (d->next == 0) d->next = look_up(tokens, num_tokens);
}

/* What was written is read again where the draft goes beyond what is known: a loop goes on as a loop. */
int32_t drafter_write(const struct drafter *d, int32_t *tokens, int32_t max)
{
    int32_t num = d->next > 0 ? max : 0;
    for (int32_t i = 0; i < num; i++) tokens[d->num_seen + i] = tokens[d->next + i];
    return num;
}

int32_t drafter_num_worth(const struct drafter *d, double saved_us, double cost_us, int32_t max)
{
    int32_t num = 0;
    if (d->next == 0) return 0;
    if (cost_us <= 0) return max;
    for (saved_us *= d->hope; num < max && saved_us > cost_us; saved_us *= d->hope) num++;
    return num;
}

double drafter_num_expected(const struct drafter *d, int32_t num)
{
    double expected = 0, all = d->hope;
    for (int32_t i = 0; i < num; i++, all *= d->hope) expected += all;
    return expected;
}
