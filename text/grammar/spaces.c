#include "text/grammar/spaces.h"

#include <string.h>

#include "base/check.h"
#include "text/grammar/pool.h"
#include "text/grammar/regex.h"

static const uint8_t space_bytes[SPACE_KINDS] = {' ', '\n', '\t', '\r'}; /* by space_kind */

void spaces_up_to(struct pool *states, uint32_t max)
{
    max = min_of(max, (uint32_t)SPACE_STATES_MAX - 1);
    struct space_state *s = pool_push(states, max + 1);
    for (uint32_t i = 0; s && i <= max; i++) {
        uint16_t next = i < max ? (uint16_t)(i + 1) : SPACE_NONE;
        s[i] = (struct space_state){{next, next, next, next},
                                    (uint16_t)min_of(max - i, (uint32_t)SPACES_LEFT_MAX)};
    }
}

/* How many may follow, from the assumption of very many down to what is so. */
static void find_left(struct space_state *states, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) states[i].left = SPACES_LEFT_MAX;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = n; i-- > 0;) {
            uint32_t left = SPACES_LEFT_MAX;
            for (int k = 0; k < SPACE_KINDS; k++) {
                uint16_t next = states[i].next[k];
                left = next == SPACE_NONE ? 0 : min_of(left, states[next].left + 1u);
            }
            if (left == states[i].left) continue;
            states[i].left = (uint16_t)left;
            changed = true;
        }
    }
}

static uint32_t label_both(const uint32_t *labels, int num_parts, const void *context)
{
    (void)num_parts, (void)context;
    return labels[0] && labels[1];
}

/* What of the pattern is white space. */
static int make_dfa(const char *pattern, struct dfa *out, struct error *err)
{
    const struct regex_options options = {.text = REGEX_UTF8, .whole = true};
    struct dfa spaces, own = {0};
    int status = regex_compile("[ \\n\\t\\r]*", strlen("[ \\n\\t\\r]*"), &options, &spaces, err);
    if (status == 0) status = regex_compile(pattern, strlen(pattern), &options, &own, err);
    const struct dfa *const parts[] = {&spaces, &own};
    if (status == 0) status = dfa_product(parts, 2, label_both, NULL, out, err);
    dfa_deinit(&spaces);
    dfa_deinit(&own);
    return status;
}

static bool accepts_everywhere(const struct dfa *d)
{
    for (uint32_t s = 1; s < d->num_states; s++)
        if (!d->labels[s]) return false;
    return d->start != DFA_DEAD;
}

/* The automaton's states without the dead one, from its start on. */
static void copy_states(const struct dfa *d, struct space_state *out)
{
    uint32_t n = d->num_states - 1;
    for (uint32_t s = 1; s <= n; s++) {
        struct space_state *own = &out[(s + n - d->start) % n];
        for (int k = 0; k < SPACE_KINDS; k++) {
            uint32_t next = dfa_step(d, s, space_bytes[k]);
            own->next[k] = next == DFA_DEAD ? SPACE_NONE : (uint16_t)((next + n - d->start) % n);
        }
    }
    find_left(out, n);
}

int spaces_of_pattern(struct pool *states, const char *pattern, struct error *err)
{
    struct dfa d = {0};
    struct error why = {0};
    int status = make_dfa(pattern, &d, &why);
    if (status) {
        (void)error_set(err, status, "whitespace_pattern: %s", why.text);
    } else if (!accepts_everywhere(&d)) {
        status = error_set(
            err, STATUS_UNSUPPORTED,
            "whitespace_pattern is not supported: it must allow no white space at all, and with some of it "
            "each of its beginnings, as [ \\n]{0,3} does");
    } else {
        struct space_state *own = pool_push(states, d.num_states - 1);
        if (own) copy_states(&d, own);
    }
    dfa_deinit(&d);
    return status;
}
