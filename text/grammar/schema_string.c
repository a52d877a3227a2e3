#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/grammar/counted_text.h"
#include "text/grammar/regex.h"
#include "text/grammar/repetition.h"
#include "text/grammar/schema.h"
#include "text/grammar/symbol_dfa.h"
#include "text/grammar/symbol_states.h"
#include "text/grammar/text_dfa.h"

struct regex_memo {
    struct regex_memo *next;
    const char *text;
    bool is_format, drops_lengths;
    uint32_t min_length, max_length;
    struct dfa dfa;
};

static const struct dfa *find_regex(const struct compiler *c, const struct pattern *p, uint32_t min_length,
                                    uint32_t max_length)
{
    for (struct regex_memo *m = c->regexes; m; m = m->next)
        if (m->is_format == p->is_format && m->drops_lengths == p->drops_lengths &&
            m->min_length == min_length && m->max_length == max_length && !strcmp(m->text, p->text))
            return &m->dfa;
    return NULL;
}

/* The pattern's texts of min_length to max_length characters. tails: of regex_options, or NULL. */
static const struct dfa *limited_regex(struct compiler *c, const struct pattern *p, uint32_t min_length,
                                       uint32_t max_length, struct symbol_dfa *tails)
{
    const struct dfa *known = find_regex(c, p, min_length, max_length);
    struct regex_memo *m = known ? NULL : schema_alloc(c, sizeof *m);
    if (known || c->status) return known;
    const struct regex_options options = {.text = REGEX_JSON_STRING,
                                          .whole = p->is_format,
                                          .has_lengths = min_length > 0 || max_length != NO_LIMIT,
                                          .min_length = min_length,
                                          .max_length = max_length,
                                          .work_left = &c->b.regex_work,
                                          .drops_look_lengths = p->drops_lengths,
                                          .tails = tails};
    int status = regex_compile(p->text, strlen(p->text), &options, &m->dfa, c->err);
    if (status) {
        c->status = status;
        return NULL;
    }
    m->text = p->text;
    m->is_format = p->is_format;
    m->drops_lengths = p->drops_lengths;
    m->min_length = min_length;
    m->max_length = max_length;
    m->next = c->regexes;
    c->regexes = m;
    return &m->dfa;
}

const struct dfa *schema_regex(struct compiler *c, const struct pattern *p)
{
    return limited_regex(c, p, 0, NO_LIMIT, NULL);
}

void schema_free_regexes(struct compiler *c)
{
    for (struct regex_memo *m = c->regexes; m; m = m->next) dfa_deinit(&m->dfa);
    c->regexes = NULL;
}

/* ---- the text of a JSON string ---- */

const char *schema_escape(struct compiler *c, const char *text, size_t *num_bytes)
{
    static const char names[] = "\"\\bfnrt", values[] = "\"\\\b\f\n\r\t";
    size_t n = strlen(text), length = 0;
    char *out = schema_alloc(c, 6 * n + 1);
    if (c->status) n = 0;
    for (size_t i = 0; i < n; i++) {
        const char *special = memchr(values, text[i], sizeof values - 1);
        if (special) {
            out[length++] = '\\';
            out[length++] = names[special - values];
        } else if ((unsigned char)text[i] < 0x20) {
            length += (size_t)snprintf(out + length, 7, "\\u%04x", (unsigned char)text[i]);
        } else {
            out[length++] = text[i];
        }
    }
    out[length] = '\0';
    *num_bytes = length;
    return out;
}

static uint32_t count_characters(const char *text)
{
    uint32_t n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

/* ---- what limits a string ---- */

static bool excludes_strings(const struct shape *s)
{
    for (int i = 0; i < s->excluded.count; i++)
        if (cJSON_IsString(s->excluded.nodes[i])) return true;
    return false;
}

static bool is_one_pattern(const struct shape *s)
{
    return s->patterns.count == 1 && !s->patterns.items[0].negated && !excludes_strings(s);
}

bool schema_string_fits(struct compiler *c, const struct shape *s, const char *text)
{
    size_t n;
    uint32_t length = count_characters(text);
    const char *escaped = schema_escape(c, text, &n);
    if (!(s->types & TYPE_STRING) || length < s->min_length || length > s->max_length) return false;
    for (int i = 0; i < s->patterns.count && !c->status; i++) {
        const struct dfa *d = schema_regex(c, &s->patterns.items[i]);
        if (d && (dfa_run(d, escaped, n) != 0) == s->patterns.items[i].negated) return false;
    }
    for (int i = 0; i < s->excluded.count; i++)
        if (cJSON_IsString(s->excluded.nodes[i]) && !strcmp(s->excluded.nodes[i]->valuestring, text))
            return false;
    return true;
}

/* Part 0 bounds the language and must match; bit i of the context: part i must not. */
static uint32_t label_all(const uint32_t *labels, int num_parts, const void *context)
{
    uint32_t negated = *(const uint32_t *)context;
    for (int i = 0; i < num_parts; i++)
        if ((labels[i] != 0) == (negated >> i & 1)) return 0;
    return 1;
}

/* The shape's pattern that is not negated and bounds the others, or any text; -1 for any text. */
static int bounding_pattern(const struct shape *s)
{
    for (int i = 0; i < s->patterns.count; i++)
        if (!s->patterns.items[i].negated) return i;
    return -1;
}

static void excluded_dfa(struct compiler *c, const struct shape *s, struct dfa *out)
{
    const char **texts = schema_alloc(c, (size_t)(s->excluded.count + 1) * sizeof *texts);
    size_t *sizes = schema_alloc(c, (size_t)(s->excluded.count + 1) * sizeof *sizes);
    int n = 0;
    for (int i = 0; i < s->excluded.count && !c->status; i++) {
        if (!cJSON_IsString(s->excluded.nodes[i])) continue;
        texts[n] = schema_escape(c, s->excluded.nodes[i]->valuestring, &sizes[n]);
        n++;
    }
    if (!c->status && text_dfa_of(texts, sizes, n, out))
        schema_fail(c, STATUS_LIMIT, "too many texts are excluded");
}

bool schema_string_dfa(struct compiler *c, const struct shape *s, struct dfa *out)
{
    const struct dfa
        *parts[DFA_PARTS_MAX + 2]; /* any text before the patterns, and what is excluded; refused later */
    uint32_t negated = 0;
    struct dfa excluded = {0};
    int n = 0, bound = bounding_pattern(s);
    const struct pattern any = {.text = ""};
    *out = (struct dfa){0};
    if (s->patterns.count > DFA_PARTS_MAX)
        schema_fail(c, STATUS_LIMIT, "one value has %d patterns; at most %d are supported", s->patterns.count,
                    DFA_PARTS_MAX);
    if (c->status) return false;
    parts[n++] =
        limited_regex(c, bound >= 0 ? &s->patterns.items[bound] : &any, s->min_length, s->max_length, NULL);
    for (int i = 0; i < s->patterns.count && !c->status; i++) {
        if (i == bound) continue;
        if (s->patterns.items[i].negated) negated |= 1u << n;
        parts[n++] = schema_regex(c, &s->patterns.items[i]);
    }
    if (excludes_strings(s) && !c->status) {
        excluded_dfa(c, s, &excluded);
        negated |= 1u << n;
        parts[n++] = &excluded;
    }
    if (!c->status) {
        int status = dfa_product(parts, n, label_all, &negated, out, c->err);
        if (status) c->status = status;
    }
    dfa_deinit(&excluded);
    return !c->status;
}

void schema_literal_names_dfa(struct compiler *c, const struct shape *s, struct dfa *out)
{
    const char **texts = schema_alloc(c, (size_t)(s->literals.count + 1) * sizeof *texts);
    size_t *sizes = schema_alloc(c, (size_t)(s->literals.count + 1) * sizeof *sizes);
    int n = 0;
    for (int i = 0; i < s->literals.count && !c->status; i++) {
        const cJSON *literal = s->literals.nodes[i];
        if (!cJSON_IsString(literal) || !schema_literal_fits(c, s, literal)) continue;
        texts[n] = schema_escape(c, literal->valuestring, &sizes[n]);
        n++;
    }
    if (!c->status && text_dfa_of(texts, sizes, n, out))
        schema_fail(c, STATUS_LIMIT, "propertyNames has too many names");
}

/* A set of characters so and so many times: one state that counts. */
static uint32_t string_of_repetition(struct compiler *c, const struct shape *s,
                                     const struct regex_repetition *r)
{
    uint32_t min = max_of(r->min, s->min_length),
             max = min_of(r->max == REGEX_ANY ? NO_LIMIT : r->max, s->max_length);
    uint32_t body = STATE_DEAD, end = BUILDER_FINAL;
    if (min > max) return STATE_DEAD;
    body = builder_state(&c->b, 0);
    if (min > 0) end = builder_final_if(&c->b, (struct entry){.kind = ENTRY_AT_LEAST, .a = min});
    builder_set_edge(&c->b, body, '"', end);
    bool counts = min > 0 || max != NO_LIMIT;
    builder_set_loop(&c->b, body, (struct char_loop){repetition_class(&c->b, r), counts, body, max, min});
    if (body != STATE_DEAD && !counts && r->has_all_plain) builder_at(&c->b, body)->plain_left = PLAIN_ANY;
    return body;
}

struct lengths {
    uint32_t min, max;
};

/* The states of an automaton of texts of so many characters, where it does not know that itself. */
static uint32_t text_state(struct compiler *c, const struct dfa *d, struct lengths own)
{
    const uint32_t exits[] = {STATE_DEAD, BUILDER_FINAL};
    uint32_t state;
    if (own.min == 0 && own.max == NO_LIMIT) return builder_dfa(&c->b, d, '"', exits, 2);
    if (!counted_text_state(&c->b, d, own.min, own.max, &state))
        schema_fail(c, STATUS_LIMIT, "a pattern beside \"minLength\" %u needs too many states", own.min);
    return state;
}

static void forget_failure(struct compiler *c)
{
    c->status = 0;
    if (c->err) *c->err = (struct error){0};
}

/* The shape's own lengths are part of its automaton. One pattern and nothing else needs no product. */
static uint32_t automaton_state(struct compiler *c, const struct shape *s, struct lengths counted)
{
    struct dfa all;
    if (is_one_pattern(s)) {
        const struct dfa *d = limited_regex(c, &s->patterns.items[0], s->min_length, s->max_length, NULL);
        return d ? text_state(c, d, counted) : STATE_DEAD;
    }
    if (!schema_string_dfa(c, s, &all)) return STATE_DEAD;
    uint32_t state = text_state(c, &all, counted);
    dfa_deinit(&all);
    return state;
}

/* The same shape, with the lengths that look-aheads of its patterns say as its own. False: they say none. */
static bool take_look_lengths(struct compiler *c, const struct shape *s, struct shape *out)
{
    bool found = false;
    *out = *s;
    out->patterns.items = schema_alloc(c, (size_t)s->patterns.count * sizeof *out->patterns.items);
    for (int i = 0; i < s->patterns.count && !c->status; i++) {
        uint32_t min, max;
        struct pattern *p = &out->patterns.items[i];
        *p = s->patterns.items[i];
        if (p->negated || p->is_format || p->drops_lengths) continue;
        p->drops_lengths = regex_look_lengths(p->text, strlen(p->text), &min, &max);
        if (!p->drops_lengths) continue;
        found = true;
        out->min_length = max_of(out->min_length, min);
        if (max != REGEX_ANY) out->max_length = min_of(out->max_length, max);
    }
    return found && !c->status;
}

/* An automaton that would be too large with all lengths goes along with a counter: of the longest, or of all. */
static uint32_t counted_state(struct compiler *c, const struct shape *s)
{
    struct lengths counted = {0, NO_LIMIT};
    uint32_t state = automaton_state(c, s, counted);
    for (int i = 0; i < 2 && c->status == STATUS_LIMIT; i++) {
        uint32_t limit = i == 0 ? s->max_length : s->min_length;
        if (limit == (i == 0 ? NO_LIMIT : 0)) continue;
        struct shape rest = *s;
        counted.max = s->max_length;
        rest.max_length = NO_LIMIT;
        if (i == 1) {
            counted.min = s->min_length;
            rest.min_length = 0;
        }
        forget_failure(c);
        state = automaton_state(c, &rest, counted);
    }
    return state;
}

/* The states of one pattern whose automaton is too large, but mostly of bytes within characters. */
static uint32_t tails_state(struct compiler *c, const struct shape *s)
{
    struct symbol_dfa tails = {0};
    uint32_t state = STATE_DEAD;
    forget_failure(c);
    (void)limited_regex(c, &s->patterns.items[0], s->min_length, s->max_length, &tails);
    if (tails.num_states > 0) {
        forget_failure(c);
        int status = symbol_states_make(&c->b, &tails, REGEX_JSON_STRING, '"', BUILDER_FINAL, &state);
        if (status) schema_fail(c, status, "no memory for a pattern");
    }
    symbol_dfa_deinit(&tails);
    return state;
}

static uint32_t patterns_state(struct compiler *c, const struct shape *s)
{
    struct shape own;
    struct error why = c->err ? *c->err : (struct error){0};
    uint32_t state = counted_state(c, s);
    if (c->status != STATUS_LIMIT) return state;
    if (c->err) why = *c->err;
    forget_failure(c);
    if (take_look_lengths(c, s, &own))
        return own.min_length > own.max_length ? STATE_DEAD : counted_state(c, &own);
    if (c->status) return STATE_DEAD;
    if (is_one_pattern(s)) {
        state = tails_state(c, s);
        if (c->status != STATUS_LIMIT) return state;
    }
    c->status = STATUS_LIMIT;
    if (c->err) *c->err = why;
    return STATE_DEAD;
}

static uint32_t pattern_state(struct compiler *c, const struct shape *s)
{
    struct regex_repetition repetition;
    const struct pattern *first = s->patterns.items;
    if (is_one_pattern(s) && !first->is_format &&
        regex_is_repetition(first->text, strlen(first->text), REGEX_JSON_STRING, false, &repetition)) {
        uint32_t state = string_of_repetition(c, s, &repetition);
        dfa_deinit(&repetition.one);
        return state;
    }
    return patterns_state(c, s);
}

uint32_t schema_string_state(struct compiler *c, const struct shape *s)
{
    uint32_t rule;
    if (s->min_length > s->max_length) return STATE_DEAD;
    if (s->patterns.count > 0 || excludes_strings(s)) {
        uint32_t body = pattern_state(c, s);
        return body == STATE_DEAD ? STATE_DEAD : builder_text(&c->b, "\"", 1, body);
    }
    if (s->min_length == 0 && s->max_length == NO_LIMIT) {
        if (c->string == RULE_NEVER) c->string = json_string_rule(&c->b, 0, NO_LIMIT);
        rule = c->string;
    } else {
        rule = json_string_rule(&c->b, s->min_length, s->max_length);
    }
    return builder_status(&c->b) ? STATE_DEAD : pool_items(struct rule, &c->b.rules)[rule].start;
}
