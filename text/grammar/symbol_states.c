#include "text/grammar/symbol_states.h"

#include <stdlib.h>
#include <string.h>

#include "text/grammar/repetition.h"
#include "text/grammar/symbol_dfa.h"

enum { CLASSES_MAX = 32 }; /* each is an automaton over bytes: some milliseconds */

/* The characters of some symbols. */
struct known_class {
    uint8_t *has; /* by symbol */
    uint16_t number;
    uint32_t rule; /* one such character */
};

struct spelling {
    struct builder *b;
    const struct symbol_dfa *d;
    enum regex_text text;
    uint32_t base; /* state 1 of the automaton is the one behind it */
    struct known_class classes[CLASSES_MAX];
    int num_classes, status;
};

/* One character of the class: from state 1 to state 2. */
static int spell_class(const struct spelling *s, const uint8_t *has, struct dfa *out)
{
    struct symbol_dfa one = *s->d;
    uint32_t accepts[] = {0, 0, 1};
    one.num_states = 3;
    one.start = 1;
    one.accepts = accepts;
    one.next = calloc(3 * (size_t)one.num_symbols, sizeof *one.next);
    if (!one.next) return STATUS_NO_MEMORY;
    for (uint32_t i = 0; i < one.num_symbols; i++) one.next[one.num_symbols + i] = has[i] ? 2 : DFA_DEAD;
    int status = regex_spell_out(&one, s->text, out);
    free(one.next);
    return status;
}

static const struct known_class *make_class(struct spelling *s, const uint8_t *has)
{
    struct regex_repetition r = {0};
    struct known_class *k = &s->classes[s->num_classes];
    if (s->num_classes == CLASSES_MAX) {
        s->status = STATUS_LIMIT;
        return NULL;
    }
    *k = (struct known_class){.has = malloc(s->d->num_symbols)};
    s->status = k->has ? spell_class(s, has, &r.one) : STATUS_NO_MEMORY;
    if (s->status == 0) {
        memcpy(k->has, has, s->d->num_symbols);
        k->rule = builder_rule(s->b);
        k->number = repetition_class(s->b, &r);
        builder_set_start(s->b, k->rule, builder_dfa(s->b, &r.one, -1, NULL, 0));
        s->num_classes++;
    } else {
        free(k->has);
    }
    dfa_deinit(&r.one);
    return s->status ? NULL : k;
}

static const struct known_class *class_of(struct spelling *s, const uint8_t *has)
{
    for (int i = 0; i < s->num_classes; i++)
        if (!memcmp(s->classes[i].has, has, s->d->num_symbols)) return &s->classes[i];
    return make_class(s, has);
}

/* The symbols that lead where the one does. */
static void find_symbols(const struct spelling *s, const uint32_t *row, uint32_t symbol, uint8_t *has)
{
    for (uint32_t k = 0; k < s->d->num_symbols; k++) has[k] = row[k] == row[symbol];
}

/* What the state's loop takes, which is quick: what leads back to the state, or what leads anywhere. */
static uint32_t find_loop(const struct spelling *s, const uint32_t *row, uint32_t number)
{
    uint32_t loop = s->d->num_symbols;
    for (uint32_t i = s->d->num_symbols; i-- > 0;) {
        if (row[i] == number) return i;
        if (row[i] != DFA_DEAD) loop = i;
    }
    return loop;
}

/* Other classes are called. */
static void spell_state(struct spelling *s, uint32_t number, uint8_t *has, uint8_t *is_done)
{
    const uint32_t *row = s->d->next + (size_t)number * s->d->num_symbols, n = s->d->num_symbols;
    const uint32_t loop = find_loop(s, row, number);
    struct pool calls;
    pool_init(&calls, sizeof(struct rule_call), UINT16_MAX);
    memset(is_done, 0, n);
    for (uint32_t i = 0; i < n && !s->status; i++) {
        if (row[i] == DFA_DEAD || is_done[i]) continue;
        find_symbols(s, row, i, has);
        for (uint32_t k = 0; k < n; k++) is_done[k] |= has[k];
        const struct known_class *k = class_of(s, has);
        const uint32_t target = s->base + row[i];
        struct rule_call *call = k && !has[loop] ? pool_push(&calls, 1) : NULL;
        if (call) *call = (struct rule_call){k->rule, target};
        if (k && has[loop])
            builder_set_loop(s->b, s->base + number, (struct char_loop){k->number, false, target, 0, 0});
    }
    if (calls.count > 0) builder_set_calls(s->b, s->base + number, calls.items, calls.count);
    if (calls.status) s->status = calls.status;
    pool_deinit(&calls);
}

int symbol_states_make(struct builder *b, const struct symbol_dfa *d, enum regex_text text, int closing,
                       uint32_t end, uint32_t *state)
{
    struct spelling s = {.b = b, .d = d, .text = text, .base = b->states.count - 1};
    uint8_t *memory = calloc(2, (size_t)d->num_symbols + 1);
    *state = STATE_DEAD;
    if (!memory) return STATUS_NO_MEMORY;
    for (uint32_t i = 1; i < d->num_states; i++) (void)builder_state(b, 0);
    for (uint32_t i = 1; i < d->num_states && !builder_status(b) && !s.status; i++) {
        spell_state(&s, i, memory, memory + d->num_symbols);
        if (d->accepts[i] && closing >= 0) builder_set_edge(b, s.base + i, (uint8_t)closing, end);
        if (d->accepts[i] && closing < 0) builder_at(b, s.base + i)->flags |= STATE_FINAL;
    }
    if (d->start != DFA_DEAD) *state = s.base + d->start;
    for (int i = 0; i < s.num_classes; i++) free(s.classes[i].has);
    free(memory);
    return s.status;
}

int symbol_states_of_pattern(struct builder *b, const char *pattern, size_t num_bytes,
                             const struct regex_options *options, int closing, uint32_t end, uint32_t *state,
                             struct error *err)
{
    struct symbol_dfa tails = {0};
    struct regex_options shares = *options;
    struct error why = {0};
    struct dfa d;
    const uint32_t exits[] = {STATE_DEAD, end};
    *state = STATE_DEAD;
    shares.tails = &tails;
    int status = regex_compile(pattern, num_bytes, options, &d, &why);
    if (status == STATUS_LIMIT) status = regex_compile(pattern, num_bytes, &shares, &d, &why);
    if (status == 0)
        *state = builder_dfa(b, &d, closing, exits, 2);
    else if (tails.num_states > 0)
        status = symbol_states_make(b, &tails, options->text, closing, end, state);
    dfa_deinit(&d);
    symbol_dfa_deinit(&tails);
    return status ? error_set(err, status, "%s", why.text) : 0;
}
