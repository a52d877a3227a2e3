#include <string.h>

#include "base/check.h"
#include "text/grammar/code_points.h"
#include "text/grammar/regex.h"
#include "text/grammar/regex_tree.h"

struct parser {
    const char *text;
    size_t at, num_bytes;
    struct regex_tree *tree;
    struct error *err;
    int status;
    int depth, look_depth;
    bool is_behind;    /* within a look-behind */
    bool is_negated;   /* within a negative look-around, or not in one within another */
    bool ignores_case; /* behind (?i) of the group, or within (?i:) */
    bool has_word;
    enum { AT_BEGIN, AT_LOOKS, BEHIND_LOOKS } place; /* in the pattern's first terms */
    uint32_t word;                                   /* the set of word characters, once has_word */
};

static uint32_t parse_alternation(struct parser *p);

static uint32_t fail(struct parser *p, int status, const char *what)
{
    if (p->status == 0)
        p->status = error_set(p->err, status, "the pattern \"%.*s\" has %s at byte %zu",
                              (int)min_of(p->num_bytes, (size_t)200), p->text, what, p->at);
    return 0;
}

static bool looking_at(const struct parser *p, const char *text)
{
    size_t n = strlen(text);
    return p->num_bytes - p->at >= n && !memcmp(p->text + p->at, text, n);
}

static bool skip(struct parser *p, const char *text)
{
    bool found = looking_at(p, text);
    if (found) p->at += strlen(text);
    return found;
}

static uint32_t add_node(struct parser *p, struct regex_node node)
{
    struct regex_node *n = pool_push(&p->tree->nodes, 1);
    if (!n) return fail(p, p->tree->nodes.status, "too many parts");
    *n = node;
    return p->tree->nodes.count - 1;
}

static uint32_t concat(struct parser *p, uint32_t a, uint32_t b)
{
    const struct regex_node *nodes = p->tree->nodes.items;
    if (p->status) return 0;
    if (nodes[a].kind == REGEX_EMPTY) return b;
    if (nodes[b].kind == REGEX_EMPTY) return a;
    return add_node(p, (struct regex_node){.kind = REGEX_CONCAT, .a = a, .b = b});
}

/* The other case of its letters. Some engines match four characters beyond ASCII, too: they are let in nowhere. */
static void add_cases(struct parser *p, struct pool *set, bool complement)
{
    static const struct {
        char letter;
        uint32_t like;
    } others[] = {{'i', 0x130}, {'i', 0x131}, {'k', 0x212A}, {'s', 0x17F}};
    if (!p->ignores_case || p->status) return;
    code_points_normalize(set);
    bool has[26];
    for (uint32_t i = 0; i < array_length(has); i++)
        has[i] = code_points_has(set, 'a' + i) || code_points_has(set, 'A' + i);
    for (uint32_t i = 0; i < array_length(has); i++) {
        if (!has[i]) continue;
        code_points_add(set, 'a' + i, 'a' + i);
        code_points_add(set, 'A' + i, 'A' + i);
    }
    for (size_t i = 0; complement != p->is_negated && i < array_length(others); i++)
        if (has[others[i].letter - 'a']) code_points_add(set, others[i].like, others[i].like);
}

/* A character that a pattern names: what its other case is beyond ASCII is not known here. */
static uint32_t check_case(struct parser *p, uint32_t code_point)
{
    if (!p->ignores_case || code_point < 0x80) return code_point;
    return fail(p, STATUS_UNSUPPORTED,
                "(?i) in front of a character that is not ASCII, which is not supported,");
}

/* Takes the set over. */
static uint32_t add_set(struct parser *p, struct pool *set, bool complement)
{
    if (complement)
        code_points_complement(set);
    else
        code_points_normalize(set);
    struct pool *s = pool_push(&p->tree->sets, 1);
    if (!s || set->status) {
        int status = s ? set->status : p->tree->sets.status;
        if (s) p->tree->sets.count--;
        pool_deinit(set);
        if (status == STATUS_NO_MEMORY) return fail(p, status, "found no memory");
        return fail(p, STATUS_LIMIT, "too many sets of characters");
    }
    *s = *set;
    return add_node(p, (struct regex_node){.kind = REGEX_SET, .a = p->tree->sets.count - 1});
}

/* ---- escapes ---- */

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static bool read_hex(struct parser *p, int num_digits, uint32_t *out)
{
    uint32_t value = 0;
    if (p->num_bytes - p->at < (size_t)num_digits) return false;
    for (int i = 0; i < num_digits; i++) {
        int digit = hex_value(p->text[p->at + (size_t)i]);
        if (digit < 0) return false;
        value = value * 16 + (uint32_t)digit;
    }
    p->at += (size_t)num_digits;
    *out = value;
    return true;
}

static uint32_t read_braced_hex(struct parser *p)
{
    uint32_t value = 0;
    while (p->at < p->num_bytes && hex_value(p->text[p->at]) >= 0 && value <= CODE_POINT_MAX)
        value = value * 16 + (uint32_t)hex_value(p->text[p->at++]);
    if (!skip(p, "}") || value > CODE_POINT_MAX) return fail(p, STATUS_INVALID, "a bad \\u{...}");
    return value;
}

static uint32_t read_unicode_escape(struct parser *p)
{
    uint32_t high, low;
    if (skip(p, "{")) return read_braced_hex(p);
    if (!read_hex(p, 4, &high)) return fail(p, STATUS_INVALID, "a bad \\u escape");
    size_t behind = p->at;
    if (high >= 0xD800 && high < 0xDC00 && skip(p, "\\u") && read_hex(p, 4, &low) && low >= 0xDC00 &&
        low < 0xE000)
        return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    p->at = behind;
    return high;
}

/* A single character behind a backslash that is no class. */
static uint32_t read_escaped_character(struct parser *p)
{
    static const char names[] = "tnvfr";
    static const char values[] = "\t\n\v\f\r";
    uint32_t value;
    char c = p->text[p->at];
    const char *control = c ? strchr(names, c) : NULL;
    if ((unsigned char)c >= 0x80) {
        int n = code_point_read(p->text + p->at, p->num_bytes - p->at, &value);
        p->at += (size_t)n;
        return n > 0 ? value : fail(p, STATUS_INVALID, "bytes that are no UTF-8");
    }
    p->at++;
    if (control) return (uint32_t)values[control - names];
    if (c == '0' && !(p->at < p->num_bytes && p->text[p->at] >= '0' && p->text[p->at] <= '9')) return 0;
    if (c == 'u') return read_unicode_escape(p);
    if (c == 'x') return read_hex(p, 2, &value) ? value : fail(p, STATUS_INVALID, "a bad \\x escape");
    if (c == 'c' && p->at < p->num_bytes) return (uint32_t)p->text[p->at++] & 31;
    if (c >= '0' && c <= '9') return fail(p, STATUS_UNSUPPORTED, "a back reference, which is not supported,");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return fail(p, STATUS_UNSUPPORTED, "an escape that is not supported");
    return (uint32_t)(unsigned char)c;
}

/* \p{...} and \P{...}; the letter was read. */
static void add_property(struct parser *p, bool complement, struct pool *set)
{
    const char *end = NULL;
    struct pool own;
    code_points_init(&own);
    if (skip(p, "{")) end = memchr(p->text + p->at, '}', p->num_bytes - p->at);
    if (!end) {
        fail(p, STATUS_INVALID, "a bad \\p{...}");
        return;
    }
    const char *name = p->text + p->at, *equals = memchr(name, '=', (size_t)(end - name));
    if (equals) name = equals + 1;
    if (p->ignores_case || !code_points_add_property(&own, name, (size_t)(end - name)))
        fail(p, STATUS_UNSUPPORTED,
             p->ignores_case ? "(?i) in front of a Unicode property, which is not supported,"
                             : "a Unicode property that is not supported");
    if (complement) code_points_complement(&own);
    code_points_add_all(set, &own);
    pool_deinit(&own);
    p->at = (size_t)(end - p->text) + 1;
}

/* Whether a class escape stood here (behind the backslash); its code points are added to set. */
static bool read_class_escape(struct parser *p, struct pool *set)
{
    char c = p->text[p->at];
    if (c == '\0' || !strchr("dDwWsSpP", c)) return false;
    p->at++;
    if (c == 'p' || c == 'P') {
        add_property(p, c == 'P', set);
        return true;
    }
    struct pool own;
    code_points_init(&own);
    code_points_add_escape(&own, (char)(c | 32));
    if (c < 'a') code_points_complement(&own);
    code_points_add_all(set, &own);
    pool_deinit(&own);
    return true;
}

/* ---- sets ---- */

static uint32_t read_plain(struct parser *p)
{
    uint32_t value = 0;
    int n = code_point_read(p->text + p->at, p->num_bytes - p->at, &value);
    if (n == 0) {
        p->at++;
        return fail(p, STATUS_INVALID, "bytes that are no UTF-8");
    }
    p->at += (size_t)n;
    return value;
}

/* One member of [...]: returns true when it is a single code point. */
static bool read_member(struct parser *p, struct pool *set, uint32_t *value)
{
    if (!skip(p, "\\")) {
        *value = check_case(p, read_plain(p));
        return true;
    }
    if (p->at >= p->num_bytes) {
        *value = fail(p, STATUS_INVALID, "a backslash at its end");
        return true;
    }
    if (read_class_escape(p, set)) return false;
    if (skip(p, "b")) {
        *value = 8;
        return true;
    }
    *value = check_case(p, read_escaped_character(p));
    return true;
}

static void read_members(struct parser *p, struct pool *set)
{
    while (!p->status && p->at < p->num_bytes && !looking_at(p, "]")) {
        uint32_t lo, hi;
        bool single = read_member(p, set, &lo);
        if (single) hi = lo;
        bool is_range = looking_at(p, "-") && !looking_at(p, "-]") && p->at + 1 < p->num_bytes;
        if (is_range && single) {
            size_t dash = p->at;
            p->at++;
            if (!read_member(p, set, &hi)) { /* [a-\d]: three members */
                hi = lo;
                code_points_add(set, '-', '-');
            } else if (hi < lo) {
                p->at = dash;
                fail(p, STATUS_INVALID, "a range that is out of order");
            }
        }
        if (single) code_points_add(set, lo, hi);
    }
}

static uint32_t parse_set(struct parser *p)
{
    struct pool set;
    code_points_init(&set);
    bool complement = skip(p, "^");
    read_members(p, &set);
    if (!p->status && !skip(p, "]")) fail(p, STATUS_INVALID, "a [ without its ]");
    if (p->status) {
        pool_deinit(&set);
        return 0;
    }
    add_cases(p, &set, complement);
    return add_set(p, &set, complement);
}

static uint32_t single(struct parser *p, uint32_t code_point)
{
    struct pool set;
    code_points_init(&set);
    check_case(p, code_point);
    if (!p->status) code_points_add(&set, code_point, code_point);
    add_cases(p, &set, false);
    return add_set(p, &set, false);
}

/* ---- what takes no character ---- */

static uint32_t add_look(struct parser *p, enum regex_kind kind, uint32_t body, bool negative)
{
    return add_node(p, (struct regex_node){.kind = kind, .a = body, .min = negative});
}

static bool count_look(struct parser *p)
{
    if (p->tree->num_looks == REGEX_LOOKS_MAX) fail(p, STATUS_LIMIT, "too many look-arounds");
    return !p->status && ++p->tree->num_looks;
}

static uint32_t word_set(struct parser *p)
{
    struct pool set;
    if (p->has_word || !count_look(p)) return p->word;
    code_points_init(&set);
    code_points_add_escape(&set, 'w');
    p->has_word = true;
    return p->word = add_set(p, &set, false);
}

/* \b: one of the two characters around it, and not the other, is a word's; \B: both or none. */
static uint32_t parse_word_boundary(struct parser *p, bool negative)
{
    if (p->is_behind)
        return fail(p, STATUS_UNSUPPORTED, "a word boundary within a look-behind, which is not supported,");
    uint32_t word = word_set(p), both[2];
    for (int behind = 0; behind < 2; behind++) {
        uint32_t before = add_look(p, REGEX_BEHIND, word, !behind);
        both[behind] = concat(p, before, add_look(p, REGEX_AHEAD, word, behind != negative));
    }
    return add_node(p, (struct regex_node){.kind = REGEX_ALTERNATE, .a = both[0], .b = both[1]});
}

static uint32_t parse_escape(struct parser *p)
{
    struct pool set;
    if (p->at >= p->num_bytes) return fail(p, STATUS_INVALID, "a backslash at its end");
    bool inside = skip(p, "B");
    if (inside || skip(p, "b")) return parse_word_boundary(p, inside);
    code_points_init(&set);
    if (read_class_escape(p, &set)) return add_set(p, &set, false);
    return single(p, read_escaped_character(p));
}

static uint32_t parse_dot(struct parser *p)
{
    struct pool set;
    code_points_init(&set);
    code_points_add_escape(&set, '.');
    return add_set(p, &set, false);
}

/* ---- groups and repetition ---- */

static void skip_group_name(struct parser *p)
{
    while (p->at < p->num_bytes && p->text[p->at] != '>') p->at++;
    if (!skip(p, ">")) fail(p, STATUS_INVALID, "a group's name without its end");
}

static uint32_t parse_group_body(struct parser *p)
{
    bool ignored_case = p->ignores_case;
    if (++p->depth > REGEX_DEPTH_MAX) return fail(p, STATUS_LIMIT, "groups nested too deeply");
    uint32_t node = parse_alternation(p);
    p->depth--;
    p->ignores_case = ignored_case;
    if (!p->status && !skip(p, ")")) return fail(p, STATUS_INVALID, "a ( without its )");
    return node;
}

/* Behind the opening of (?=, (?!, (?<= or (?<!. */
static uint32_t parse_look(struct parser *p, enum regex_kind kind, bool negative)
{
    bool was_behind = p->is_behind;
    if (was_behind && kind == REGEX_AHEAD)
        return fail(p, STATUS_UNSUPPORTED, "a look-ahead within a look-behind, which is not supported,");
    if (p->look_depth == REGEX_LOOK_DEPTH_MAX) return fail(p, STATUS_LIMIT, "look-arounds nested too deeply");
    if (!count_look(p)) return 0;
    p->look_depth++;
    p->is_behind |= kind == REGEX_BEHIND;
    p->is_negated ^= negative;
    uint32_t body = parse_group_body(p);
    p->is_negated ^= negative;
    p->is_behind = was_behind;
    p->look_depth--;
    return add_look(p, kind, body, negative);
}

/* (?i) holds for what is left of the group around it, (?i:...) for its own; the opening was read. */
static uint32_t parse_ignoring_case(struct parser *p, bool is_group)
{
    bool ignored_case = p->ignores_case;
    p->ignores_case = true;
    if (!is_group) return add_node(p, (struct regex_node){.kind = REGEX_EMPTY});
    uint32_t node = parse_group_body(p);
    p->ignores_case = ignored_case;
    return node;
}

static uint32_t parse_group(struct parser *p)
{
    static const struct {
        const char *opening;
        enum regex_kind kind;
        bool negative;
    } looks[] = {{"?=", REGEX_AHEAD, false},
                 {"?!", REGEX_AHEAD, true},
                 {"?<=", REGEX_BEHIND, false},
                 {"?<!", REGEX_BEHIND, true}};
    for (size_t i = 0; i < array_length(looks); i++)
        if (skip(p, looks[i].opening)) return parse_look(p, looks[i].kind, looks[i].negative);
    if (skip(p, "?i)")) return parse_ignoring_case(p, false);
    if (skip(p, "?i:")) return parse_ignoring_case(p, true);
    if (skip(p, "?:")) return parse_group_body(p);
    if (skip(p, "?P<") || skip(p, "?<"))
        skip_group_name(p);
    else if (looking_at(p, "?"))
        return fail(p, STATUS_UNSUPPORTED, "a kind of group that is not supported");
    return parse_group_body(p);
}

static bool read_number(struct parser *p, int32_t *out)
{
    size_t begin = p->at;
    int64_t value = 0;
    for (; p->at < p->num_bytes && p->text[p->at] >= '0' && p->text[p->at] <= '9'; p->at++)
        value = min_of(value * 10 + (p->text[p->at] - '0'), (int64_t)REGEX_REPEAT_MAX + 1);
    *out = (int32_t)value;
    return p->at > begin;
}

/* {n}, {n,} or {n,m}; anything else is a brace that stands for itself. */
static bool read_counts(struct parser *p, int32_t *min, int32_t *max)
{
    size_t begin = p->at;
    if (!skip(p, "{") || !read_number(p, min)) {
        p->at = begin;
        return false;
    }
    *max = *min;
    if (skip(p, ",") && !read_number(p, max)) *max = REGEX_UNBOUNDED;
    if (!skip(p, "}")) {
        p->at = begin;
        return false;
    }
    return true;
}

static bool read_quantifier(struct parser *p, int32_t *min, int32_t *max)
{
    *min = 0;
    *max = REGEX_UNBOUNDED;
    if (skip(p, "*")) return true;
    if (skip(p, "+")) {
        *min = 1;
        return true;
    }
    if (skip(p, "?")) {
        *max = 1;
        return true;
    }
    return read_counts(p, min, max);
}

static uint32_t parse_quantifiers(struct parser *p, uint32_t node)
{
    int32_t min, max;
    if (p->status || !read_quantifier(p, &min, &max)) return node;
    (void)skip(p, "?"); /* lazy: the same language */
    if (min > REGEX_REPEAT_MAX || max > REGEX_REPEAT_MAX)
        return fail(p, STATUS_LIMIT, "a repetition that is too large");
    if (max != REGEX_UNBOUNDED && max < min) return fail(p, STATUS_INVALID, "a repetition out of order");
    if (looking_at(p, "*") || looking_at(p, "+") || looking_at(p, "?"))
        return fail(p, STATUS_INVALID, "nothing to repeat");
    return add_node(p, (struct regex_node){.kind = REGEX_REPEAT, .a = node, .min = min, .max = max});
}

static uint32_t parse_atom(struct parser *p)
{
    if (skip(p, "(")) return parse_group(p);
    if (skip(p, "[")) return parse_set(p);
    if (skip(p, ".")) return parse_dot(p);
    if (skip(p, "\\")) return parse_escape(p);
    if (looking_at(p, "*") || looking_at(p, "+") || looking_at(p, "?"))
        return fail(p, STATUS_INVALID, "nothing to repeat");
    return single(p, read_plain(p));
}

/* ^ and $, or what Python and Rust call them; ECMA-262 has no such escapes. */
static uint32_t parse_term(struct parser *p)
{
    if (skip(p, "^") || skip(p, "\\A")) return add_node(p, (struct regex_node){.kind = REGEX_BEGIN});
    bool is_end = looking_at(p, "$") || looking_at(p, "\\Z") || looking_at(p, "\\z");
    if (is_end && p->is_behind)
        return fail(p, STATUS_UNSUPPORTED, "a $ within a look-behind, which is not supported,");
    if (is_end) {
        p->at += p->text[p->at] == '$' ? 1 : 2;
        return add_node(p, (struct regex_node){.kind = REGEX_END});
    }
    return parse_quantifiers(p, parse_atom(p));
}

/* ^, and then look-aheads of the pattern's first sequence. */
static void keep_leading(struct parser *p, uint32_t term)
{
    enum regex_kind kind = pool_items(struct regex_node, &p->tree->nodes)[term].kind;
    if (kind == REGEX_EMPTY) /* (?i) */
        return;
    if (p->place == AT_BEGIN && kind == REGEX_BEGIN)
        p->place = AT_LOOKS;
    else if (p->place == AT_LOOKS && kind == REGEX_AHEAD)
        p->tree->leading[p->tree->num_leading++] = term;
    else
        p->place = BEHIND_LOOKS;
}

static uint32_t parse_sequence(struct parser *p)
{
    uint32_t node = add_node(p, (struct regex_node){.kind = REGEX_EMPTY});
    while (!p->status && p->at < p->num_bytes && !looking_at(p, "|") && !looking_at(p, ")")) {
        uint32_t term = parse_term(p);
        if (!p->status && p->depth == 0) keep_leading(p, term);
        node = concat(p, node, term);
    }
    return node;
}

static uint32_t parse_alternation(struct parser *p)
{
    uint32_t node = parse_sequence(p);
    while (!p->status && skip(p, "|")) {
        uint32_t other = parse_sequence(p);
        node = add_node(p, (struct regex_node){.kind = REGEX_ALTERNATE, .a = node, .b = other});
    }
    return node;
}

static uint32_t parse_pattern(struct parser *p)
{
    uint32_t root = parse_alternation(p);
    if (!p->status && pool_items(struct regex_node, &p->tree->nodes)[root].kind == REGEX_ALTERNATE)
        p->tree->num_leading = 0;
    if (!p->status && p->at < p->num_bytes) fail(p, STATUS_INVALID, "a ) without its (");
    return root;
}

int regex_parse(const char *pattern, size_t num_bytes, struct regex_tree *out, struct error *err)
{
    *out = (struct regex_tree){0};
    pool_init(&out->nodes, sizeof(struct regex_node), REGEX_NODES_MAX);
    pool_init(&out->sets, sizeof(struct pool), REGEX_NODES_MAX);
    struct parser p = {.text = pattern, .num_bytes = num_bytes, .tree = out, .err = err};
    out->root = parse_pattern(&p);
    return p.status;
}

void regex_tree_deinit(struct regex_tree *t)
{
    for (uint32_t i = 0; i < t->sets.count; i++) pool_deinit(pool_items(struct pool, &t->sets) + i);
    pool_deinit(&t->sets);
    pool_deinit(&t->nodes);
}
