#include "text/grammar/repeats.h"

#include <string.h>

#include "base/bit_set.h"
#include "text/grammar/unique_text.h"

enum { FRAMES_LOOKED_AT = 4 }; /* a character of several bytes has one of its own */

struct removal {
    const struct vocabulary *v;
    const struct matcher *m;
    struct frames *frames;
    uint64_t *words;
    bool of_strings;
    int status;
};

static void remove_set(struct removal *r, enum repeated_tokens which)
{
    const uint64_t *set = r->v->repeated[which];
    for (size_t i = 0; i < r->v->num_words; i++) r->words[i] &= ~set[i];
}

static void remove_values(struct removal *r, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) bit_set_remove(r->words, r->v->trie.values[i]);
}

/* Whether something other than the element's end may follow the bytes. */
static bool goes_on(struct removal *r, const char *bytes, size_t num_bytes)
{
    struct thread sets[2][THREADS_MAX], last[THREADS_MAX];
    int n;
    const struct thread *from = matcher_threads(r->m, &n);
    bool found = false;
    r->frames->count = 0;
    if (!frames_reserve(r->frames, r->m->frames.count)) r->status = STATUS_NO_MEMORY;
    if (r->status) return true;
    memcpy(r->frames->items, r->m->frames.items, r->m->frames.count * sizeof *r->frames->items);
    r->frames->count = r->m->frames.count;
    r->frames->text = NULL;
    for (size_t i = 0; i < num_bytes && n > 0; i++) {
        n = step_threads(r->m->grammar, r->frames, from, n, (uint8_t)bytes[i], sets[i & 1]);
        from = sets[i & 1];
    }
    for (int byte = 0; byte < 256 && n > 0 && !found; byte++) {
        bool is_end = r->of_strings ? byte == '"' : !(byte >= '0' && byte <= '9');
        if (!is_end) found = step_threads(r->m->grammar, r->frames, from, n, (uint8_t)byte, last) != 0;
    }
    return found;
}

/* null once more: nothing else begins so. */
static void remove_null(struct removal *r)
{
    const struct trie *t = &r->v->trie;
    for (const char *before = " \n\t\r"; *before; before++) {
        uint32_t space = trie_child(t, TRIE_ROOT, (uint8_t)*before);
        uint32_t child = space == UINT32_MAX ? space : trie_child(t, space, 'n');
        if (child != UINT32_MAX) remove_values(r, t->nodes[child].first_value, t->nodes[child].end_value);
    }
    uint32_t child = trie_child(t, TRIE_ROOT, 'n');
    if (child != UINT32_MAX) remove_values(r, t->nodes[child].first_value, t->nodes[child].end_value);
}

/* element: from its first byte; num_written of its bytes stand there. */
static void remove_repeat(struct removal *r, const char *element, size_t num_bytes, size_t num_written)
{
    static const char ends_of_numbers[] = ",] \n\t\r";
    const struct trie *t = &r->v->trie;
    size_t inside = num_bytes - r->of_strings;
    uint32_t node = TRIE_ROOT;
    for (size_t i = num_written; i < inside && node != UINT32_MAX; i++)
        node = trie_child(t, node, (uint8_t)element[i]);
    if (node == UINT32_MAX) return;
    for (const char *end = r->of_strings ? "\"" : ends_of_numbers; *end; end++) {
        uint32_t child = trie_child(t, node, (uint8_t)*end);
        if (child != UINT32_MAX) remove_values(r, t->nodes[child].first_value, t->nodes[child].end_value);
    }
    uint32_t first = t->nodes[node].first_value, own_end = first + t->nodes[node].num_values;
    bool some = false;
    for (uint32_t i = first; i < own_end && node != TRIE_ROOT; i++)
        some |= bit_set_has(r->words, t->values[i]);
    if (some && !goes_on(r, element + num_written, inside - num_written)) remove_values(r, first, own_end);
}

/* written: where the element that is being written begins; the end of the text where none has begun. */
static void remove_repeats(struct removal *r, size_t written)
{
    const char *text = r->m->text.data;
    size_t n = r->m->text.num_bytes, begin = written, end, num_written = n - written;
    while (unique_text_previous(text, &begin, &end)) {
        const char *element = text + begin;
        size_t num_bytes = end - begin;
        if (r->of_strings && *element != '"') {
            if (num_written == 0) remove_null(r);
            continue;
        }
        if (num_written < num_bytes + !r->of_strings && !memcmp(element, text + written, num_written))
            remove_repeat(r, element, num_bytes, num_written);
        if (!r->of_strings && unique_text_equal(element, num_bytes, "0", 1)) {
            if (num_written <= 1 && !memcmp("0", text + written, num_written))
                remove_repeat(r, "0", 1, num_written);
            if (num_written <= 2 && !memcmp("-0", text + written, num_written))
                remove_repeat(r, "-0", 2, num_written);
        }
    }
}

/* Behind the first letters of null, and not within a string that has them. */
static bool is_in_null(const struct removal *r, const struct thread *t)
{
    const struct state *s = &r->m->grammar->states[t->state];
    const char *text = r->m->text.data;
    size_t n = r->m->text.num_bytes, begin = unique_text_begin(text, n, false);
    if (!(s->flags & STATE_LITERAL) || n - begin > 3 || begin == n) return false;
    return !memcmp("null", text + begin, n - begin) && begin > 0 && strchr(" \n\t\r,[", text[begin - 1]);
}

static void look_at(struct removal *r, const struct thread *t)
{
    const struct state *states = r->m->grammar->states;
    const unsigned both = STATE_UNIQUE_STRINGS | STATE_UNIQUE_INTEGERS;
    unsigned flags = states[t->state].flags & both;
    bool is_inside = !flags;
    uint32_t frame = t->stack;
    for (int i = 0; !flags && i < FRAMES_LOOKED_AT && frame != STACK_BOTTOM; i++) {
        flags = states[r->m->frames.items[frame].state].flags & both;
        frame = r->m->frames.items[frame].parent;
    }
    if (!flags || (is_inside && is_in_null(r, t))) return;
    r->of_strings = flags == STATE_UNIQUE_STRINGS;
    remove_set(r, !r->of_strings ? REPEATED_INTEGERS
                  : is_inside    ? REPEATED_THREE_QUOTES
                                 : REPEATED_TWO_QUOTES);
    size_t n = r->m->text.num_bytes;
    remove_repeats(r, is_inside ? unique_text_begin(r->m->text.data, n, r->of_strings) : n);
}

int repeats_remove(const struct vocabulary *v, const struct matcher *m, struct frames *frames,
                   uint64_t *words)
{
    struct removal r = {.v = v, .m = m, .frames = frames, .words = words};
    int n;
    const struct thread *threads = matcher_threads(m, &n);
    remove_set(&r, REPEATED_FOUR_QUOTES);
    remove_set(&r, REPEATED_INTEGERS);
    for (int i = 0; i < n && r.status == 0 && m->text.num_bytes > 0; i++) look_at(&r, &threads[i]);
    bool is_empty = !matcher_can_end(m);
    for (size_t i = 0; i < v->num_words && is_empty; i++) is_empty = words[i] == 0;
    return r.status == 0 && is_empty ? STATUS_LIMIT : r.status;
}
