#include "text/grammar/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#include "base/bit_set.h"
#include "base/check.h"
#include "text/grammar/builder.h"
#include "text/grammar/json_text.h"
#include "text/grammar/step.h"
#include "text/grammar/vocabulary_parts.h"

/* ---- which tokens stand inside a string: asked of a grammar that is one string ---- */

struct scanner {
    struct grammar *grammar;
    struct frames frames;
    struct thread body; /* right behind the opening quote */
};

enum scan_result { SCAN_OUTSIDE, SCAN_INSIDE, SCAN_ENDS };

static int make_scanner(struct scanner *s)
{
    struct builder b;
    struct thread start = {0}, out[THREADS_MAX];
    *s = (struct scanner){0};
    builder_init(&b, 0);
    json_add_classes(&b);
    uint32_t rule = json_string_rule(&b, 0, NO_LIMIT - 1); /* limited, so that characters are counted */
    int status = builder_finish(&b, rule, false, &s->grammar, NULL);
    builder_deinit(&b);
    if (status) return status;
    if (!frames_init(&s->frames)) return STATUS_NO_MEMORY;
    start.state = s->grammar->start;
    if (step_threads(s->grammar, &s->frames, &start, 1, '"', out) != 1) return STATUS_NO_MEMORY;
    s->body = out[0];
    return 0;
}

static void free_scanner(struct scanner *s)
{
    grammar_free(s->grammar);
    frames_deinit(&s->frames);
}

/* *chars: those the token has inside the string (one that is cut off counts); *end: behind the closing quote.
 */
static enum scan_result scan(struct scanner *s, const uint8_t *bytes, size_t n, uint32_t *chars, size_t *end)
{
    struct thread t = s->body, out[THREADS_MAX];
    s->frames.count = 1;
    *chars = 0;
    for (size_t i = 0; i < n; i++) {
        if (step_threads(s->grammar, &s->frames, &t, 1, bytes[i], out) != 1) return SCAN_OUTSIDE;
        t = out[0];
        *end = i + 1;
        if (s->grammar->states[t.state].flags & STATE_BARE_FINAL) return SCAN_ENDS;
        *chars = t.stack == STACK_BOTTOM ? t.count : s->frames.items[t.stack].count;
    }
    return SCAN_INSIDE;
}

/* ---- making ---- */

static void set_slices(struct vocabulary *v, uint32_t id, uint32_t chars)
{
    for (uint32_t slice = min_of(chars, (uint32_t)SLICES - 1); slice < SLICES; slice++)
        bit_set_add(v->slices + slice * v->num_words, id);
    if (chars > SLICE_CHARS_MAX) v->long_values[v->num_long++] = (struct tail){id, chars};
    v->max_chars = max_of(v->max_chars, chars);
}

static int make_slices(struct vocabulary *v, const struct trie_text *texts, uint32_t num_texts,
                       struct trie_text *tails)
{
    struct scanner s;
    int status = make_scanner(&s);
    for (uint32_t i = 0; status == 0 && i < num_texts; i++) {
        uint32_t chars;
        size_t end = 0;
        switch (scan(&s, texts[i].bytes, texts[i].num_bytes, &chars, &end)) {
        case SCAN_OUTSIDE:
            break;
        case SCAN_INSIDE:
            set_slices(v, texts[i].value, chars);
            break;
        case SCAN_ENDS:
            tails[v->num_tails] =
                (struct trie_text){texts[i].bytes + end, texts[i].num_bytes - (uint32_t)end, v->num_tails};
            v->tail_values[v->num_tails++] = (struct tail){texts[i].value, chars};
            v->max_tail_chars = max_of(v->max_tail_chars, chars);
        }
    }
    free_scanner(&s);
    return status;
}

static uint32_t collect(const struct vocabulary_source *source, struct trie_text *texts)
{
    uint32_t n = 0;
    for (int32_t id = 0; id < source->num_ids; id++) {
        size_t num_bytes = 0;
        const char *bytes = source->token_bytes(source->context, id, &num_bytes);
        if (num_bytes == 0 || num_bytes > TOKEN_BYTES_MAX) continue;
        texts[n++] = (struct trie_text){(const uint8_t *)bytes, (uint32_t)num_bytes, (uint32_t)id};
    }
    return n;
}

/* Whether a token inside a string is plain text. */
static bool is_plain(const struct trie_text *t)
{
    for (uint32_t i = 0; i < t->num_bytes; i++)
        if (t->bytes[i] == '\\' || t->bytes[i] == 0x7F) return false;
    return !memmem(t->bytes, t->num_bytes, "\xE2\x80\xA8", 3) &&
           !memmem(t->bytes, t->num_bytes, "\xE2\x80\xA9", 3);
}

/* The tokens that are not plain text; texts are used up. */
static int make_rest(struct vocabulary *v, struct trie_text *texts, uint32_t num_texts)
{
    const uint64_t *inside = v->slices + (SLICES - 1) * v->num_words;
    uint32_t n = 0;
    for (uint32_t i = 0; i < num_texts; i++) {
        uint32_t id = texts[i].value;
        if (bit_set_has(inside, id) && is_plain(&texts[i]))
            bit_set_add(v->plain, id);
        else
            texts[n++] = texts[i];
    }
    return trie_make(texts, n, &v->rest);
}

static bool ends_integer(uint8_t c)
{
    return c == ',' || c == '[' || c == ']' || c == ' ' || (c >= '\t' && c <= '\r');
}

/* Behind a comma, and spaces perhaps, the first letter of null, true or false. */
static void add_repeated_literals(struct vocabulary *v, const struct trie_text *t)
{
    bool has_quote = false, is_behind_comma = false;
    for (uint32_t i = 0; i < t->num_bytes; i++) {
        uint8_t c = t->bytes[i];
        if (is_behind_comma && (c == 'n' || c == 't' || c == 'f')) {
            bit_set_add(v->repeated[REPEATED_LITERALS], t->value);
            if (has_quote) bit_set_add(v->repeated[REPEATED_LITERALS_BEHIND_QUOTE], t->value);
        }
        has_quote |= c == '"';
        is_behind_comma = c == ',' || (is_behind_comma && ends_integer(c));
    }
}

static void add_repeated(struct vocabulary *v, const struct trie_text *t)
{
    int num_quotes = 0;
    bool is_behind_end = false, is_integer = false, was_digit = false;
    for (uint32_t i = 0; i < t->num_bytes; i++) {
        uint8_t c = t->bytes[i];
        bool is_digit = c >= '0' && c <= '9', ends = ends_integer(c);
        num_quotes += c == '"';
        if (ends && is_integer) bit_set_add(v->repeated[REPEATED_INTEGERS], t->value);
        if (ends && was_digit) bit_set_add(v->repeated[REPEATED_NUMBERS], t->value);
        was_digit = is_digit;
        is_integer = is_digit && (is_integer || is_behind_end);
        is_behind_end = ends || (is_behind_end && c == '-');
    }
    for (int i = 0; i < num_quotes - 1 && i <= REPEATED_FOUR_QUOTES; i++)
        bit_set_add(v->repeated[i], t->value);
    add_repeated_literals(v, t);
}

static void shrink(struct tail **values, uint32_t n)
{
    struct tail *smaller = realloc(*values, ((size_t)n + 1) * sizeof *smaller);
    if (smaller) *values = smaller;
}

static int make_parts(struct vocabulary *v, const struct vocabulary_source *source, struct trie_text *texts,
                      struct trie_text *tails)
{
    uint32_t num_texts = collect(source, texts);
    for (uint32_t i = 0; i < num_texts; i++) add_repeated(v, &texts[i]);
    int status = make_slices(v, texts, num_texts, tails);
    if (status == 0) status = trie_make(texts, num_texts, &v->trie);
    if (status == 0) status = trie_make(tails, v->num_tails, &v->tails);
    if (status == 0) status = make_rest(v, texts, num_texts);
    shrink(&v->tail_values, v->num_tails);
    shrink(&v->long_values, v->num_long);
    v->num_bytes = sizeof *v + v->num_words * (SLICES + 1 + NUM_REPEATED) * 8 +
                   ((size_t)v->num_tails + v->num_long) * sizeof(struct tail) +
                   (size_t)v->trie.num_nodes * (sizeof(struct trie_node) + 1) +
                   (size_t)v->trie.num_values * 4 +
                   ((size_t)v->tails.num_nodes + v->rest.num_nodes) * (sizeof(struct trie_node) + 1);
    return status;
}

int vocabulary_make(const struct vocabulary_source *source, struct vocabulary **out, struct error *err)
{
    size_t n = (size_t)max_of(source->num_ids, 1);
    struct vocabulary *v = calloc(1, sizeof *v);
    struct trie_text *texts = calloc(n, sizeof *texts), *tails = calloc(n, sizeof *tails);
    int status = STATUS_NO_MEMORY;
    bool has_all = true;
    *out = NULL;
    if (v) {
        v->num_ids = source->num_ids;
        v->num_words = bit_set_words(n);
        v->slices = calloc(v->num_words * SLICES, 8);
        v->plain = calloc(v->num_words, 8);
        for (int i = 0; i < NUM_REPEATED; i++) has_all &= (v->repeated[i] = calloc(v->num_words, 8)) != NULL;
        v->tail_values = calloc(n, sizeof *v->tail_values);
        v->long_values = calloc(n, sizeof *v->long_values);
        v->num_end_ids = source->num_end_ids;
        v->end_ids = calloc((size_t)source->num_end_ids + 1, sizeof *v->end_ids);
    }
    if (v && texts && tails && v->slices && v->plain && v->tail_values && v->long_values && v->end_ids &&
        has_all) {
        for (int i = 0; i < source->num_end_ids; i++) v->end_ids[i] = source->end_ids[i];
        status = make_parts(v, source, texts, tails);
    }
    free(texts);
    free(tails);
    if (status == 0) {
        *out = v;
        return 0;
    }
    vocabulary_free(v);
    return error_set(err, status, "no memory for the masks of %d tokens", source->num_ids);
}

void vocabulary_free(struct vocabulary *v)
{
    if (!v) return;
    trie_deinit(&v->trie);
    trie_deinit(&v->tails);
    trie_deinit(&v->rest);
    free(v->plain);
    for (int i = 0; i < NUM_REPEATED; i++) free(v->repeated[i]);
    free(v->slices);
    free(v->tail_values);
    free(v->long_values);
    free(v->end_ids);
    free(v);
}

size_t vocabulary_num_words(const struct vocabulary *v)
{
    return v->num_words;
}

size_t vocabulary_bytes(const struct vocabulary *v)
{
    return v->num_bytes;
}
