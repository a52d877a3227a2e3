/* A symbol automaton spelled out in bytes: what a code point's bytes, or its escape in a JSON string, pass
 * through on the way from one state to the next. Such a state in between is told by a few numbers, its key.
 */
#include "text/grammar/regex.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"
#include "text/grammar/code_points.h"
#include "text/grammar/symbol_dfa.h"
#include "text/grammar/tuple_set.h"

/* The kinds of states and what follows the kind in a key. */
enum byte_state {
    AT_CHARACTER, /* the symbol state */
    IN_ESCAPE,    /* behind the backslash: the symbol state */
    IN_HEX,       /* behind \u, \u0, \u00, \u000, \u001: the symbol state, digits read, the last digit */
    IN_UTF8,      /* the symbol state, bytes missing, the code point's bits so far */
    IN_ANY_UTF8,  /* all code points lead to one symbol state: that, bytes missing, the bits so far where they
                     limit  the next byte, else ANY_BITS */
};

enum { ANY_BITS = 0x200, KEY_NUMBERS = 4, TAILS_MANY = 1000, TAILS_A_CHARACTER = 16 };

struct encoder {
    const struct symbol_dfa *symbols;
    enum regex_text text;
    struct tuple_set keys; /* by the state's number */
    uint32_t *characters;  /* by symbol state: its AT_CHARACTER state, 0 if there is none yet */
    uint32_t num_characters;
    uint32_t ascii[128];  /* the symbols of code points */
    uint8_t twin[256];    /* an earlier byte (or itself) that surely leads to the same states from each */
    uint8_t columns[256]; /* the bytes that are their own twins */
    uint32_t num_columns;
    struct pool next, labels; /* next: a row of num_columns for each state */
};

static uint32_t add_key(struct encoder *e, enum byte_state kind, uint32_t a, uint32_t b, uint32_t c)
{
    const uint32_t key[KEY_NUMBERS] = {kind, a, b, c};
    return tuple_set_add(&e->keys, key, KEY_NUMBERS);
}

static uint32_t symbol_step(const struct encoder *e, uint32_t state, uint32_t code_point)
{
    const struct symbol_dfa *d = e->symbols;
    uint32_t symbol = code_point < 128 ? e->ascii[code_point] : d->symbols[symbol_dfa_find(d, code_point)];
    return d->next[state * d->num_symbols + symbol];
}

static uint32_t character_state(struct encoder *e, uint32_t symbol_state)
{
    uint32_t *known = &e->characters[symbol_state];
    if (symbol_state != DFA_DEAD && *known == DFA_DEAD) {
        *known = add_key(e, AT_CHARACTER, symbol_state, 0, 0);
        e->num_characters++;
    }
    return *known;
}

/* ---- UTF-8 ---- */

/* The valid code points among those that begin with these bits and miss n bytes. False: there are none. */
static bool utf8_range(uint32_t bits, uint32_t missing, uint32_t num_lead_bytes, uint32_t *lo, uint32_t *hi)
{
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    *lo = bits << (6 * missing);
    *hi = *lo + (1u << (6 * missing)) - 1;
    *lo = max_of(*lo, least[num_lead_bytes]);
    *hi = min_of(*hi, (uint32_t)CODE_POINT_MAX);
    if (*lo >= 0xD800 && *lo <= 0xDFFF) *lo = 0xE000;
    if (*hi >= 0xD800 && *hi <= 0xDFFF) *hi = 0xD7FF;
    return *lo <= *hi;
}

/* Whether all code points of a range (without surrogates) lead to one state. */
static bool uniform_target(const struct encoder *e, uint32_t state, uint32_t lo, uint32_t hi,
                           uint32_t *target)
{
    const struct symbol_dfa *d = e->symbols;
    const uint32_t *row = d->next + state * d->num_symbols;
    uint32_t cut = symbol_dfa_find(d, lo);
    *target = row[d->symbols[cut]];
    for (cut++; cut < d->num_cuts && d->cuts[cut] <= hi; cut++) {
        uint32_t begin = d->cuts[cut], end = cut + 1 < d->num_cuts ? d->cuts[cut + 1] - 1 : CODE_POINT_MAX;
        if (begin >= 0xD800 && end <= 0xDFFF) continue;
        if (row[d->symbols[cut]] != *target) return false;
    }
    return true;
}

/* Only behind E0, ED, F0 and F4 does it matter which bits were read. */
static uint32_t limiting_bits(uint32_t bits, uint32_t missing)
{
    bool limits = (missing == 2 && (bits == 0 || bits == 13)) || (missing == 3 && (bits == 0 || bits == 4));
    return limits ? bits : ANY_BITS;
}

/* The state behind bits that miss further bytes, of a code point whose bytes but the first were num_more. */
static uint32_t utf8_state(struct encoder *e, uint32_t state, uint32_t bits, uint32_t missing,
                           uint32_t num_more)
{
    uint32_t lo, hi, target;
    if (!utf8_range(bits, missing, num_more, &lo, &hi)) return DFA_DEAD;
    if (missing == 0) return character_state(e, symbol_step(e, state, lo));
    if (!uniform_target(e, state, lo, hi, &target))
        return add_key(e, IN_UTF8, state, missing, bits << 2 | num_more);
    if (target == DFA_DEAD) return DFA_DEAD;
    return add_key(e, IN_ANY_UTF8, target, missing,
                   missing == num_more ? limiting_bits(bits, missing) : ANY_BITS);
}

/* Bytes that begin a code point which leads to target whatever it is: few states, shared by many bytes. */
static void any_lead_bytes(struct encoder *e, uint32_t target, uint32_t row[256])
{
    uint32_t last_missing = 0, last_bits = 0, state = DFA_DEAD;
    for (uint32_t byte = 0xC2; byte <= 0xF4; byte++) {
        uint32_t missing = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
        uint32_t bits = limiting_bits(byte & (0x3Fu >> missing), missing);
        if (missing != last_missing || bits != last_bits)
            state = add_key(e, IN_ANY_UTF8, target, missing, bits);
        row[byte] = state;
        last_missing = missing;
        last_bits = bits;
    }
}

static void lead_bytes(struct encoder *e, uint32_t state, uint32_t row[256])
{
    uint32_t target;
    bool is_uniform = uniform_target(e, state, 0x80, CODE_POINT_MAX, &target);
    if (is_uniform && target == DFA_DEAD) return;
    if (is_uniform) {
        any_lead_bytes(e, target, row);
        return;
    }
    for (uint32_t byte = 0xC2; byte <= 0xF4; byte++) {
        uint32_t num_more = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
        if (e->twin[byte] != byte) continue;
        row[byte] = utf8_state(e, state, byte & (0x3Fu >> num_more), num_more, num_more);
    }
}

static void continuation_bytes(struct encoder *e, const uint32_t *key, uint32_t row[256])
{
    uint32_t missing = key[2] - 1, bits = key[3] >> 2, num_more = key[3] & 3;
    for (uint32_t byte = 0x80; byte < 0xC0; byte++)
        if (e->twin[byte] == byte)
            row[byte] = utf8_state(e, key[1], bits << 6 | (byte & 0x3F), missing, num_more);
}

static void any_continuation_bytes(struct encoder *e, const uint32_t *key, uint32_t row[256])
{
    uint32_t lo = 0x80, hi = 0xBF, missing = key[2];
    if (key[3] != ANY_BITS && missing == 2) {
        if (key[3] == 0) lo = 0xA0;
        if (key[3] == 13) hi = 0x9F;
    } else if (key[3] != ANY_BITS) {
        if (key[3] == 0) lo = 0x90;
        if (key[3] == 4) hi = 0x8F;
    }
    uint32_t target =
        missing == 1 ? character_state(e, key[1]) : add_key(e, IN_ANY_UTF8, key[1], missing - 1, ANY_BITS);
    for (uint32_t byte = lo; byte <= hi; byte++) row[byte] = target;
}

/* ---- JSON strings ---- */

static const char short_escapes[] = "\"\\bfnrt";
static const char short_escaped[] = "\"\\\b\f\n\r\t";

static bool is_escaped(const struct encoder *e, uint32_t c)
{
    return e->text == REGEX_JSON_STRING && (c < 0x20 || c == '"' || c == '\\');
}

static bool some_escaped(const struct encoder *e, uint32_t state, bool only_long)
{
    for (uint32_t c = 0; c <= '\\'; c++) {
        if (!is_escaped(e, c) || (only_long && memchr(short_escaped, (int)c, sizeof short_escaped - 1)))
            continue;
        if (symbol_step(e, state, c) != DFA_DEAD) return true;
    }
    return false;
}

static void escape_letters(struct encoder *e, uint32_t state, uint32_t row[256])
{
    for (size_t i = 0; i < sizeof short_escapes - 1; i++)
        row[(unsigned char)short_escapes[i]] =
            character_state(e, symbol_step(e, state, (unsigned char)short_escaped[i]));
    if (some_escaped(e, state, true)) row['u'] = add_key(e, IN_HEX, state, 0, 0);
}

static void hex_digits(struct encoder *e, const uint32_t *key, uint32_t row[256])
{
    uint32_t state = key[1], num_read = key[2];
    if (num_read < 2) {
        row['0'] = add_key(e, IN_HEX, state, num_read + 1, 0);
    } else if (num_read == 2) {
        row['0'] = add_key(e, IN_HEX, state, 3, 0);
        row['1'] = add_key(e, IN_HEX, state, 3, 1);
    } else {
        for (uint32_t digit = 0; digit < 16; digit++) {
            uint32_t c = key[3] << 4 | digit;
            if (memchr(short_escaped, (int)c, sizeof short_escaped - 1)) continue;
            uint32_t target = character_state(e, symbol_step(e, state, c));
            row[(unsigned char)"0123456789abcdef"[digit]] = target;
            row[(unsigned char)"0123456789ABCDEF"[digit]] = target;
        }
    }
}

static void character_bytes(struct encoder *e, uint32_t state, uint32_t row[256])
{
    for (uint32_t c = 0; c < 0x80; c++)
        if (e->twin[c] == c && !is_escaped(e, c)) row[c] = character_state(e, symbol_step(e, state, c));
    if (e->text == REGEX_JSON_STRING && some_escaped(e, state, false))
        row['\\'] = add_key(e, IN_ESCAPE, state, 0, 0);
    lead_bytes(e, state, row);
}

/* ---- columns: bytes that no state tells apart ---- */

/* Where, among the bytes beyond ASCII, one begins that may lead elsewhere than the one before it: those that
 * UTF-8 tells apart, and those of the code points at which symbols change. */
static void find_bands(const struct symbol_dfa *d, bool begins[257])
{
    static const uint8_t always[] = {0x80, 0x90, 0xA0, 0xC0, 0xC2, 0xE0, 0xE1,
                                     0xED, 0xEE, 0xF0, 0xF1, 0xF4, 0xF5};
    for (size_t i = 0; i < array_length(always); i++) begins[always[i]] = true;
    for (uint32_t cut = 0; cut < d->num_cuts; cut++) {
        unsigned char bytes[4];
        int n = d->cuts[cut] < 0x80 ? 0 : utf8_encode(d->cuts[cut], bytes);
        for (int i = 0; i < n; i++) begins[bytes[i]] = begins[bytes[i] + 1] = true;
    }
}

static uint8_t find_ascii_twin(const struct encoder *e, unsigned byte)
{
    static const char escapes[] = "\"\\bfnrtu0123456789abcdefABCDEF";
    bool is_json = e->text == REGEX_JSON_STRING;
    if (is_json && byte && strchr(escapes, (int)byte)) return (uint8_t)byte;
    for (unsigned other = 0; other < byte; other++) {
        bool is_escape = is_json && other && strchr(escapes, (int)other);
        bool is_other_kind = is_json && (other < 0x20) != (byte < 0x20);
        if (!is_escape && !is_other_kind && e->ascii[other] == e->ascii[byte]) return (uint8_t)other;
    }
    return (uint8_t)byte;
}

static void find_columns(struct encoder *e)
{
    bool begins[257] = {false};
    find_bands(e->symbols, begins);
    for (unsigned byte = 0; byte < 256; byte++) {
        bool is_own = byte >= 0x80 && begins[byte];
        e->twin[byte] = is_own ? (uint8_t)byte : byte < 0x80 ? find_ascii_twin(e, byte) : e->twin[byte - 1];
        if (e->twin[byte] == byte) e->columns[e->num_columns++] = (uint8_t)byte;
    }
}

/* ---- the automaton ---- */

static void expand(struct encoder *e, uint32_t number)
{
    uint32_t key[KEY_NUMBERS], row[256] = {0};
    uint32_t *label = pool_push(&e->labels, 1);
    memcpy(key, tuple_set_at(&e->keys, number), sizeof key);
    if (label) *label = key[0] == AT_CHARACTER && e->symbols->accepts[key[1]];
    switch ((enum byte_state)key[0]) {
    case AT_CHARACTER:
        character_bytes(e, key[1], row);
        break;
    case IN_ESCAPE:
        escape_letters(e, key[1], row);
        break;
    case IN_HEX:
        hex_digits(e, key, row);
        break;
    case IN_UTF8:
        continuation_bytes(e, key, row);
        break;
    case IN_ANY_UTF8:
        any_continuation_bytes(e, key, row);
        break;
    }
    uint32_t *own = pool_push(&e->next, e->num_columns);
    for (uint32_t i = 0; own && i < e->num_columns; i++) own[i] = row[e->columns[i]];
}

/* Columns that are equal get one class, by their hashes. */
static void classes_by_hash(const struct encoder *e, uint32_t num_states, struct dfa *out,
                            uint32_t *representative)
{
    uint64_t hashes[256] = {0};
    const uint32_t *row = e->next.items;
    for (uint32_t s = 0; s < num_states; s++, row += e->num_columns)
        for (uint32_t i = 0; i < e->num_columns; i++)
            hashes[i] = (hashes[i] ^ row[i]) * 0x9E3779B97F4A7C15u + 1;
    out->num_classes = 0;
    for (uint32_t i = 0; i < e->num_columns; i++) {
        uint32_t c = 0;
        while (c < out->num_classes && hashes[representative[c]] != hashes[i]) c++;
        if (c == out->num_classes) representative[out->num_classes++] = i;
        out->class_of[e->columns[i]] = (uint8_t)c;
    }
}

/* A column that only has the hash of its class gets a class of its own: more classes than needed are no harm.
 * Row by row, as they lie in memory. */
static void split_false_classes(const struct encoder *e, uint32_t num_states, struct dfa *out,
                                uint32_t *representative)
{
    const uint32_t *row = e->next.items;
    for (uint32_t s = 0; s < num_states; s++, row += e->num_columns) {
        for (uint32_t i = 0; i < e->num_columns; i++) {
            uint8_t *own = &out->class_of[e->columns[i]];
            if (row[i] == row[representative[*own]]) continue;
            representative[out->num_classes] = i;
            *own = (uint8_t)out->num_classes++;
        }
    }
}

static int join_columns(const struct encoder *e, struct dfa *out)
{
    uint32_t representative[256] = {0};
    const uint32_t *row = e->next.items;
    classes_by_hash(e, out->num_states, out, representative);
    split_false_classes(e, out->num_states, out, representative);
    for (unsigned byte = 0; byte < 256; byte++) out->class_of[byte] = out->class_of[e->twin[byte]];
    uint32_t *next = out->next = malloc((size_t)out->num_states * out->num_classes * sizeof *out->next);
    if (!next) return STATUS_NO_MEMORY;
    for (uint32_t s = 0; s < out->num_states; s++, row += e->num_columns)
        for (uint32_t c = 0; c < out->num_classes; c++) *next++ = row[representative[c]];
    return 0;
}

static bool is_mostly_tails(const struct encoder *e)
{
    return e->keys.count > TAILS_MANY && e->keys.count > TAILS_A_CHARACTER * e->num_characters;
}

/* gives_up: unless NULL, set with STATUS_LIMIT where it is a large automaton of tails. */
static int encode(const struct symbol_dfa *symbols, enum regex_text text, bool *gives_up, struct dfa *out)
{
    struct encoder e = {.symbols = symbols, .text = text};
    *out = (struct dfa){0};
    tuple_set_init(&e.keys, DFA_STATES_MAX);
    pool_init(&e.next, sizeof(uint32_t), DFA_STATES_MAX * 256);
    pool_init(&e.labels, sizeof(uint32_t), DFA_STATES_MAX);
    (void)add_key(&e, AT_CHARACTER, DFA_DEAD, 0, 0);
    e.characters = calloc(symbols->num_states, sizeof *e.characters);
    if (!e.characters) e.keys.status = STATUS_NO_MEMORY;
    for (uint32_t c = 0; c < 128; c++) e.ascii[c] = symbols->symbols[symbol_dfa_find(symbols, c)];
    find_columns(&e);
    if (e.characters) out->start = character_state(&e, symbols->start);
    for (uint32_t s = 0; s < e.keys.count && !e.keys.status; s++) {
        expand(&e, s);
        if (!gives_up || !is_mostly_tails(&e)) continue;
        *gives_up = true;
        e.keys.status = STATUS_LIMIT;
    }
    int status = e.keys.status ? e.keys.status : e.next.status ? e.next.status : e.labels.status;
    if (status == 0) {
        out->num_states = e.labels.count;
        out->labels = e.labels.items;
        e.labels.items = NULL;
        status = join_columns(&e, out);
    }
    free(e.characters);
    tuple_set_deinit(&e.keys);
    pool_deinit(&e.next);
    pool_deinit(&e.labels);
    return status ? status : dfa_trim(out);
}

int regex_spell_out(const struct symbol_dfa *symbols, enum regex_text text, struct dfa *out)
{
    return encode(symbols, text, NULL, out);
}

static int make_symbols(const struct regex_tree *tree, uint32_t node, const struct regex_options *options,
                        struct symbol_dfa *out)
{
    int status = symbol_dfa_make(tree, node, options->whole, options->work_left, out);
    if (status == 0 && options->has_lengths)
        status = symbol_dfa_limit(out, options->min_length, options->max_length);
    return status;
}

static int compile_node(const struct regex_tree *tree, uint32_t node, const struct regex_options *options,
                        struct dfa *out)
{
    struct symbol_dfa symbols;
    bool gives_up = false;
    *out = (struct dfa){0};
    int status = make_symbols(tree, node, options, &symbols);
    if (status == 0) status = encode(&symbols, options->text, options->tails ? &gives_up : NULL, out);
    if (status) dfa_deinit(out);
    if (gives_up)
        *options->tails = symbols;
    else
        symbol_dfa_deinit(&symbols);
    return status;
}

/* ---- (?=[set]{min,max}$) right behind a leading ^ ---- */

/* Its repetition; NULL: it says something else. */
static struct regex_node *length_of(const struct regex_tree *tree, uint32_t look)
{
    struct regex_node *nodes = tree->nodes.items, *body = &nodes[nodes[look].a];
    bool is_length = nodes[look].min == 0 && body->kind == REGEX_CONCAT && nodes[body->b].kind == REGEX_END &&
                     nodes[body->a].kind == REGEX_REPEAT && nodes[nodes[body->a].a].kind == REGEX_SET;
    return is_length ? &nodes[body->a] : NULL;
}

bool regex_look_lengths(const char *pattern, size_t num_bytes, uint32_t *min, uint32_t *max)
{
    struct regex_tree tree;
    bool found = false;
    *min = 0;
    *max = REGEX_ANY;
    int status = regex_parse(pattern, num_bytes, &tree, NULL);
    for (int i = 0; status == 0 && i < tree.num_leading; i++) {
        const struct regex_node *repeat = length_of(&tree, tree.leading[i]);
        if (!repeat) continue;
        found |= repeat->min > 0 || repeat->max != REGEX_UNBOUNDED;
        *min = max_of(*min, (uint32_t)repeat->min);
        if (repeat->max != REGEX_UNBOUNDED) *max = min_of(*max, (uint32_t)repeat->max);
    }
    regex_tree_deinit(&tree);
    return found;
}

static void drop_look_lengths(struct regex_tree *tree)
{
    for (int i = 0; i < tree->num_leading; i++) {
        struct regex_node *repeat = length_of(tree, tree->leading[i]);
        if (!repeat) continue;
        repeat->min = 0;
        repeat->max = REGEX_UNBOUNDED;
    }
}

int regex_compile(const char *pattern, size_t num_bytes, const struct regex_options *options, struct dfa *out,
                  struct error *err)
{
    struct regex_tree tree;
    *out = (struct dfa){0};
    if (options->tails) *options->tails = (struct symbol_dfa){0};
    int status = regex_parse(pattern, num_bytes, &tree, err);
    if (status == 0) {
        if (options->drops_look_lengths) drop_look_lengths(&tree);
        status = compile_node(&tree, tree.root, options, out);
        if (status && err && !err->text[0])
            status = error_set(err, status, "the pattern \"%.*s\" %s", (int)min_of(num_bytes, (size_t)200),
                               pattern, status == STATUS_LIMIT ? "needs too many states" : "found no memory");
    }
    regex_tree_deinit(&tree);
    return status;
}

/* ---- ^[set]{min,max}$ ---- */

/* What stands between ^ and $; NULL: they are not there. */
static const struct regex_node *between_anchors(const struct regex_tree *tree)
{
    const struct regex_node *nodes = tree->nodes.items, *root = &nodes[tree->root];
    if (root->kind != REGEX_CONCAT || nodes[root->b].kind != REGEX_END) return NULL;
    const struct regex_node *left = &nodes[root->a];
    return left->kind == REGEX_CONCAT && nodes[left->a].kind == REGEX_BEGIN ? &nodes[left->b] : NULL;
}

static const struct regex_node *repeated_set(const struct regex_tree *tree, bool whole)
{
    const struct regex_node *nodes = tree->nodes.items, *repeat = between_anchors(tree);
    if (!repeat && whole) repeat = &nodes[tree->root];
    return repeat && repeat->kind == REGEX_REPEAT && nodes[repeat->a].kind == REGEX_SET ? repeat : NULL;
}

static bool has_range(const struct pool *set, uint32_t lo, uint32_t hi)
{
    const struct code_point_range *r = set->items;
    for (uint32_t i = 0; i < set->count; i++)
        if (r[i].lo <= lo && r[i].hi >= hi) return true;
    return false;
}

static bool has_all_plain(const struct pool *set)
{
    return has_range(set, ' ', '!') && has_range(set, '#', '[') && has_range(set, ']', '~') &&
           has_range(set, 0x80, 0x2027) && has_range(set, 0x202A, CODE_POINT_MAX);
}

bool regex_is_repetition(const char *pattern, size_t num_bytes, enum regex_text text, bool whole,
                         struct regex_repetition *out)
{
    struct regex_tree tree;
    const struct regex_options options = {.text = text, .whole = true};
    *out = (struct regex_repetition){0};
    bool ok = regex_parse(pattern, num_bytes, &tree, NULL) == 0;
    const struct regex_node *repeat = ok ? repeated_set(&tree, whole) : NULL;
    if (repeat && compile_node(&tree, repeat->a, &options, &out->one) == 0) {
        const struct regex_node *set = pool_items(struct regex_node, &tree.nodes) + repeat->a;
        out->min = (uint32_t)repeat->min;
        out->max = repeat->max == REGEX_UNBOUNDED ? REGEX_ANY : (uint32_t)repeat->max;
        const struct pool *members = pool_items(struct pool, &tree.sets) + set->a;
        out->has_all_utf8 = has_range(members, 0x80, CODE_POINT_MAX);
        out->has_all_plain = has_all_plain(members);
    }
    regex_tree_deinit(&tree);
    return out->one.start != DFA_DEAD;
}
