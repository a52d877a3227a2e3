/* Numbers within bounds, and multiples: automata over their decimal digits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/grammar/schema.h"
#include "text/grammar/text_dfa.h"

enum { DIGITS_MAX = 48, MODULUS_MAX = 4000 };

static const double exact_max = 9007199254740992.0; /* 2^53 */

bool schema_number_text(double value, char out[32])
{
    if (!(fabs(value) < 1e300)) return false;
    if (value == floor(value)) {
        if (fabs(value) > exact_max) return false;
        snprintf(out, 32, "%.0f", value == 0 ? 0.0 : value);
        return true;
    }
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(out, 32, "%.*g", precision, value);
        if (strtod(out, NULL) == value) break;
    }
    return true;
}

/* ---- a decimal number, digit by digit ---- */

struct decimal {
    bool negative;
    char whole[DIGITS_MAX + 1], fraction[DIGITS_MAX + 1]; /* without needless zeros */
};

/* Digits with the point moved by the exponent of "1.5e-7". */
static bool read_decimal(long double value, struct decimal *out)
{
    char text[32], digits[DIGITS_MAX + 1];
    *out = (struct decimal){.negative = value < 0};
    if (value == floorl(value) && fabsl(value) >= exact_max && fabsl(value) < 1e40L)
        return snprintf(out->whole, sizeof out->whole, "%.0Lf", fabsl(value)) >
               0; /* a bound may be any number */
    if (!schema_number_text((double)fabsl(value), text)) return false;
    char *mark = strchr(text, 'e');
    int exponent = mark ? atoi(mark + 1) : 0, n = 0, point = -1;
    if (mark) *mark = '\0';
    for (const char *p = text; *p; p++) {
        if (*p == '.')
            point = n;
        else
            digits[n++] = *p;
    }
    point = (point < 0 ? n : point) + exponent;
    if (point > DIGITS_MAX || n - point > DIGITS_MAX) return false;
    int w = 0, f = 0;
    for (int i = min_of(0, point); i < max_of(n, point); i++) {
        char digit = i >= 0 && i < n ? digits[i] : '0';
        if (i < point) {
            if (w > 0 || digit != '0') out->whole[w++] = digit;
        } else {
            out->fraction[f++] = digit;
        }
    }
    while (f > 0 && out->fraction[f - 1] == '0') f--;
    out->whole[w] = out->fraction[f] = '\0';
    return true;
}

static const char alphabet[] = "0123456789-.";

/* ---- syntax: no exponent, no negative zero ---- */

enum { IN_START, IN_SIGN, IN_WHOLE, IN_ZERO, IN_POINT, IN_FRACTION };
enum syntax { SYNTAX_INTEGER = 1, SYNTAX_FRACTION = 2 };

/* {where, negative, some digit is not 0, some digit of the fraction is not 0} */
static bool step_syntax(const void *context, const uint32_t *from, uint8_t byte, uint32_t *to)
{
    unsigned syntax = *(const unsigned *)context;
    bool digit = byte >= '0' && byte <= '9';
    memcpy(to, from, TEXT_STATE_NUMBERS * sizeof *to);
    if (digit && byte != '0') to[2] = 1;
    switch (from[0]) {
    case IN_START:
        to[1] = byte == '-';
        to[0] = byte == '-' ? IN_SIGN : byte == '0' ? IN_ZERO : IN_WHOLE;
        return digit || byte == '-';
    case IN_SIGN:
        to[0] = byte == '0' ? IN_ZERO : IN_WHOLE;
        return digit;
    case IN_WHOLE:
        if (digit) return true;
        /* fall through */
    case IN_ZERO:
        to[0] = IN_POINT;
        return byte == '.' && syntax & SYNTAX_FRACTION;
    default:
        to[0] = IN_FRACTION;
        if (digit && byte != '0') to[3] = 1;
        return digit;
    }
}

static uint32_t label_syntax(const void *context, const uint32_t *s)
{
    unsigned syntax = *(const unsigned *)context;
    if (s[0] == IN_START || s[0] == IN_SIGN || s[0] == IN_POINT || (s[1] && !s[2])) return 0;
    if (s[0] == IN_FRACTION && !s[3] && !(syntax & SYNTAX_INTEGER)) return 0;
    return s[0] == IN_FRACTION || syntax & SYNTAX_INTEGER;
}

/* ---- comparison with a bound; label 1, 2, 3: less, equal, greater ---- */

enum { LESS = 1, EQUAL = 2, GREATER = 3 };
enum { COMPARES_START, COMPARES_WHOLE, COMPARES_FRACTION, COMPARED };

static uint32_t order_of(char a, char b)
{
    return a < b ? LESS : a > b ? GREATER : EQUAL;
}

/* {phase, negative, order so far, digits read}; leading zeros are no digits. */
static bool step_compare(const void *context, const uint32_t *from, uint8_t byte, uint32_t *to)
{
    const struct decimal *d = context;
    uint32_t n = (uint32_t)strlen(d->whole);
    memcpy(to, from, TEXT_STATE_NUMBERS * sizeof *to);
    if (from[0] == COMPARES_START) to[0] = COMPARES_WHOLE;
    if (from[0] == COMPARES_START && byte == '-') {
        to[1] = 1;
        return true;
    }
    if (byte == '.') {
        to[0] = COMPARES_FRACTION;
        if (from[3] != n) to[2] = from[3] < n ? LESS : GREATER;
        if (to[2] != EQUAL) to[0] = COMPARED;
        to[3] = 0;
        return true;
    }
    if (byte < '0' || byte > '9' || from[0] == COMPARED) return byte >= '0' && byte <= '9';
    if (from[0] == COMPARES_FRACTION) {
        char own = from[3] < strlen(d->fraction) ? d->fraction[from[3]] : '0';
        to[2] = order_of((char)byte, own);
        if (to[2] != EQUAL) {
            to[0] = COMPARED;
            to[3] = 0;
        } else {
            to[3] = min_of(from[3] + 1, (uint32_t)DIGITS_MAX);
        }
        return true;
    }
    if (byte == '0' && from[3] == 0) return true;
    to[3] = min_of(from[3] + 1, n + 1);
    if (from[2] == EQUAL && from[3] < n) to[2] = order_of((char)byte, d->whole[from[3]]);
    return true;
}

static uint32_t label_compare(const void *context, const uint32_t *s)
{
    const struct decimal *d = context;
    uint32_t n = (uint32_t)strlen(d->whole), order = s[2];
    if (s[0] <= COMPARES_WHOLE && s[3] != n) order = s[3] < n ? LESS : GREATER;
    if (s[0] <= COMPARES_WHOLE && order == EQUAL && *d->fraction) order = LESS;
    if (s[0] == COMPARES_FRACTION && order == EQUAL && s[3] < strlen(d->fraction)) order = LESS;
    if (s[1] && d->negative) return order == LESS ? GREATER : order == GREATER ? LESS : EQUAL;
    if (s[1]) return LESS; /* no negative zero is written */
    return d->negative ? GREATER : order;
}

/* ---- multiples ---- */

struct modulus {
    uint32_t of, places; /* multiples of of / 10^places */
};

static bool read_modulus(double value, struct modulus *m)
{
    struct decimal d;
    char digits[2 * DIGITS_MAX + 1];
    if (!read_decimal(value, &d)) return false;
    snprintf(digits, sizeof digits, "%s%s", d.whole, d.fraction);
    double of = strtod(digits, NULL);
    m->places = (uint32_t)strlen(d.fraction);
    m->of = of <= MODULUS_MAX ? (uint32_t)of : 0;
    return m->of > 0;
}

/* {remainder, digits behind the point + 1 or 0, -, -} */
static bool step_multiple(const void *context, const uint32_t *from, uint8_t byte, uint32_t *to)
{
    const struct modulus *m = context;
    memcpy(to, from, TEXT_STATE_NUMBERS * sizeof *to);
    if (byte == '-') return true;
    if (byte == '.') {
        to[1] = 1;
        return from[1] == 0;
    }
    if (byte < '0' || byte > '9') return false;
    if (from[1] > m->places) return byte == '0'; /* further places are zeros */
    to[0] = (from[0] * 10 + (byte - '0')) % m->of;
    if (from[1] > 0) to[1] = from[1] + 1;
    return true;
}

static uint32_t label_multiple(const void *context, const uint32_t *s)
{
    const struct modulus *m = context;
    uint32_t value = s[0];
    for (uint32_t i = s[1] > 0 ? s[1] - 1 : 0; i < m->places; i++) value = value * 10 % m->of;
    return value == 0;
}

/* ---- all together ---- */

enum { NUMBER_PARTS_MAX = 8 };

struct numbers {
    const struct shape *s;
    struct dfa parts[NUMBER_PARTS_MAX];
    const struct dfa *pointers[NUMBER_PARTS_MAX];
    int count;
    int min_part, max_part; /* 0: none */
    uint32_t negated;       /* bit i: part i must not fit */
};

static uint32_t label_numbers(const uint32_t *labels, int num_parts, const void *context)
{
    const struct numbers *n = context;
    for (int i = 0; i < num_parts; i++)
        if ((labels[i] == 0) != (n->negated >> i & 1)) return 0;
    if (n->min_part && !(labels[n->min_part] == GREATER || (labels[n->min_part] == EQUAL && !n->s->min_open)))
        return 0;
    if (n->max_part && !(labels[n->max_part] == LESS || (labels[n->max_part] == EQUAL && !n->s->max_open)))
        return 0;
    return 1;
}

static bool add_part(struct compiler *c, struct numbers *n, const struct text_automaton *a)
{
    if (n->count == NUMBER_PARTS_MAX || text_dfa_make(a, &n->parts[n->count]))
        return schema_fail(c, STATUS_LIMIT, "a number has too many conditions"), false;
    n->pointers[n->count] = &n->parts[n->count];
    n->count++;
    return true;
}

static void add_bound(struct compiler *c, struct numbers *n, long double bound, int *part)
{
    struct decimal d;
    if (isinf(bound) || c->status) return;
    if (!read_decimal(bound, &d)) {
        if ((bound > 0) == (part == &n->max_part))
            return; /* beyond every number that is written without an exponent */
        schema_fail(c, STATUS_UNSUPPORTED, "the bound %g of a number is not supported", (double)bound);
        return;
    }
    *part = n->count;
    add_part(
        c, n,
        &(struct text_automaton){alphabet, {COMPARES_START, 0, EQUAL, 0}, step_compare, label_compare, &d});
}

static void add_multiples(struct compiler *c, struct numbers *n, const struct schema_list *list)
{
    for (int i = 0; i < list->count && !c->status; i++) {
        struct modulus m;
        double value = list->nodes[i]->valuedouble;
        if (list == &n->s->not_multiples) n->negated |= 1u << n->count;
        if (!read_modulus(value, &m))
            schema_fail(c, STATUS_UNSUPPORTED,
                        "\"multipleOf\" %g is not supported: its digits must not exceed %d", value,
                        MODULUS_MAX);
        else
            add_part(c, n, &(struct text_automaton){alphabet, {0}, step_multiple, label_multiple, &m});
    }
}

static uint32_t label_not(const uint32_t *labels, int num_parts, const void *context)
{
    (void)num_parts, (void)context;
    return labels[0] && !labels[1];
}

/* Takes away what not and its like exclude; a number has one spelling without needless zeros, so those go
 * too. */
static void exclude_numbers(struct compiler *c, const struct shape *s, struct dfa *d)
{
    for (int i = 0; i < s->excluded.count && !c->status; i++) {
        struct dfa less;
        struct decimal own;
        const cJSON *node = s->excluded.nodes[i];
        if (!cJSON_IsNumber(node)) continue;
        if (!read_decimal(node->valuedouble, &own)) {
            schema_fail(c, STATUS_UNSUPPORTED, "not %g is not supported", node->valuedouble);
            return;
        }
        struct text_automaton a = {
            alphabet, {COMPARES_START, 0, EQUAL, 0}, step_compare, label_compare, &own};
        struct dfa compare, equal = {0};
        const struct dfa *parts[] = {d, &equal};
        if (text_dfa_make(&a, &compare)) {
            schema_fail(c, STATUS_NO_MEMORY, "no memory for a number");
            return;
        }
        for (uint32_t state = 0; state < compare.num_states; state++)
            compare.labels[state] = compare.labels[state] == EQUAL;
        equal = compare;
        int status = dfa_product(parts, 2, label_not, NULL, &less, c->err);
        dfa_deinit(&equal);
        if (status) {
            c->status = status;
            return;
        }
        dfa_deinit(d);
        *d = less;
    }
}

static bool excludes_numbers(const struct shape *s)
{
    for (int i = 0; i < s->excluded.count; i++)
        if (cJSON_IsNumber(s->excluded.nodes[i])) return true;
    return false;
}

struct number_memo {
    struct number_memo *next;
    const struct shape *limits; /* a copy */
    uint32_t state;
};

static bool same_numbers(const struct schema_list *a, const struct schema_list *b)
{
    if (a->count != b->count) return false;
    for (int i = 0; i < a->count; i++)
        if (a->nodes[i]->valuedouble != b->nodes[i]->valuedouble) return false;
    return true;
}

static bool same_limits(const struct shape *a, const struct shape *b)
{
    return (a->types & TYPE_NUMBER) == (b->types & TYPE_NUMBER) && a->min == b->min && a->max == b->max &&
           a->min_open == b->min_open && a->max_open == b->max_open &&
           same_numbers(&a->multiples, &b->multiples) && same_numbers(&a->not_multiples, &b->not_multiples);
}

static uint32_t limited_state(struct compiler *c, const struct shape *s, unsigned syntax)
{
    struct numbers n = {.s = s};
    struct dfa all = {0};
    uint32_t state = STATE_DEAD;
    add_part(c, &n, &(struct text_automaton){alphabet, {IN_START}, step_syntax, label_syntax, &syntax});
    add_bound(c, &n, s->min, &n.min_part);
    add_bound(c, &n, s->max, &n.max_part);
    add_multiples(c, &n, &s->multiples);
    add_multiples(c, &n, &s->not_multiples);
    if (!c->status) {
        int status = dfa_product(n.pointers, n.count, label_numbers, &n, &all, c->err);
        if (status) c->status = status;
    }
    if (!c->status) exclude_numbers(c, s, &all);
    if (!c->status) state = builder_dfa(&c->b, &all, -1, NULL, 0);
    dfa_deinit(&all);
    for (int i = 0; i < n.count; i++) dfa_deinit(&n.parts[i]);
    return state;
}

static uint32_t rule_start(struct compiler *c, uint32_t *rule, uint32_t (*make)(struct builder *))
{
    uint32_t first = c->b.states.count;
    if (*rule == RULE_NEVER) *rule = make(&c->b);
    for (uint32_t s = first; s < c->b.states.count; s++) builder_at(&c->b, s)->flags |= STATE_NUMBER;
    return builder_status(&c->b) ? STATE_DEAD : pool_items(struct rule, &c->b.rules)[*rule].start;
}

static void remember(struct compiler *c, const struct shape *s, uint32_t state)
{
    struct number_memo *m = schema_alloc(c, sizeof *m);
    struct shape *copy = schema_alloc(c, sizeof *copy);
    if (c->status) return;
    *copy = *s;
    *m = (struct number_memo){c->numbers, copy, state};
    c->numbers = m;
}

uint32_t schema_number_state(struct compiler *c, const struct shape *s)
{
    unsigned numbers = s->types & TYPE_NUMBER;
    bool is_limited = !isinf(s->min) || !isinf(s->max) || s->multiples.count > 0 ||
                      s->not_multiples.count > 0 || excludes_numbers(s);
    if (!is_limited && numbers == TYPE_INTEGER) return rule_start(c, &c->integer, json_integer_rule);
    if (!is_limited && numbers == TYPE_NUMBER) return rule_start(c, &c->number, json_number_rule);
    for (struct number_memo *m = c->numbers; m; m = m->next)
        if (!excludes_numbers(s) && same_limits(m->limits, s)) return m->state;
    uint32_t state = limited_state(c, s,
                                   (numbers & TYPE_INTEGER ? SYNTAX_INTEGER : 0) |
                                       (numbers & TYPE_FRACTION ? SYNTAX_FRACTION : 0));
    if (!excludes_numbers(s)) remember(c, s, state);
    return state;
}

bool schema_number_fits(struct compiler *c, const struct shape *s, double value)
{
    (void)c;
    bool is_whole = value == floor(value);
    if (!(s->types & (is_whole ? TYPE_INTEGER : TYPE_FRACTION))) return false;
    if (value < s->min || value > s->max || (s->min_open && value == s->min) ||
        (s->max_open && value == s->max))
        return false;
    for (int i = 0; i < s->multiples.count; i++) {
        double quotient = value / s->multiples.nodes[i]->valuedouble;
        if (quotient != floor(quotient)) return false;
    }
    for (int i = 0; i < s->not_multiples.count; i++) {
        double quotient = value / s->not_multiples.nodes[i]->valuedouble;
        if (quotient == floor(quotient)) return false;
    }
    return true;
}
