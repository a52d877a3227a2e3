#include "text/grammar/repeats.h"

#include <string.h>

#include "base/bit_set.h"
#include "base/check.h"
#include "text/grammar/unique_text.h"

enum { FRAMES_LOOKED_AT = 4 }; /* a character of several bytes has one of its own */

static const char ends_of_numbers[] = ",] \n\t\r";

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

static void remove_below(struct removal *r, uint32_t parent, char byte)
{
    const struct trie *t = &r->v->trie;
    uint32_t child = trie_child(t, parent, (uint8_t)byte);
    if (child != UINT32_MAX) remove_values(r, t->nodes[child].first_value, t->nodes[child].end_value);
}

/* null, true or false once more: nothing else begins with its first letter. */
static void remove_literal(struct removal *r, char first)
{
    for (const char *before = " \n\t\r"; *before; before++) {
        uint32_t space = trie_child(&r->v->trie, TRIE_ROOT, (uint8_t)*before);
        if (space != UINT32_MAX) remove_below(r, space, first);
    }
    remove_below(r, TRIE_ROOT, first);
}

/* element: from its first byte; num_written of its bytes stand there. */
static void remove_repeat(struct removal *r, const char *element, size_t num_bytes, size_t num_written)
{
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
            if (num_written == 0 && *element >= 'a') remove_literal(r, *element);
            continue;
        }
        if (num_written < num_bytes + !r->of_strings && !memcmp(element, text + written, num_written))
            remove_repeat(r, element, num_bytes, num_written);
    }
}

/* Both of an integer's, which no digit can follow. */
static void remove_zeros(struct removal *r, size_t written)
{
    const char *text = r->m->text.data;
    size_t n = r->m->text.num_bytes, begin = written, end, num_written = n - written;
    bool has_zero = false;
    while (!has_zero && unique_text_previous(text, &begin, &end))
        has_zero = unique_text_equal(text + begin, end - begin, "0", 1);
    if (!has_zero) return;
    r->of_strings = false;
    if (num_written <= 1 && !memcmp("0", text + written, num_written)) remove_repeat(r, "0", 1, num_written);
    if (num_written <= 2 && !memcmp("-0", text + written, num_written))
        remove_repeat(r, "-0", 2, num_written);
}

/* A number's end, if there was one of its value. It can always go on to another value. */
static void remove_end_of_number(struct removal *r)
{
    if (unique_text_is_new(r->m->text.data, r->m->text.num_bytes)) return;
    for (const char *end = ends_of_numbers; *end; end++) remove_below(r, TRIE_ROOT, *end);
}

/* Behind the first letters of null, true or false, and not within a string that has them. */
static bool is_in_literal(const struct removal *r, const struct thread *t)
{
    static const char *const literals[] = {"null", "true", "false"};
    const struct state *s = &r->m->grammar->states[t->state];
    const char *text = r->m->text.data;
    size_t n = r->m->text.num_bytes, begin = unique_text_begin(text, n, false);
    if (!(s->flags & STATE_LITERAL) || begin == n || begin == 0 || !strchr(" \n\t\r,[", text[begin - 1]))
        return false;
    for (size_t i = 0; i < array_length(literals); i++)
        if (n - begin < strlen(literals[i]) && !memcmp(literals[i], text + begin, n - begin)) return true;
    return false;
}

/* The flags of the array around the thread's element; *is_inside: the element has begun. */
static unsigned find_array(const struct removal *r, const struct thread *t, bool *is_inside)
{
    const struct state *states = r->m->grammar->states;
    unsigned flags = states[t->state].flags & STATE_UNIQUE;
    uint32_t frame = t->stack;
    *is_inside = !flags;
    for (int i = 0; !flags && i < FRAMES_LOOKED_AT && frame != STACK_BOTTOM; i++) {
        flags = states[r->m->frames.items[frame].state].flags & STATE_UNIQUE;
        frame = r->m->frames.items[frame].parent;
    }
    return flags;
}

static void look_at(struct removal *r, const struct thread *t)
{
    bool is_inside;
    unsigned flags = find_array(r, t, &is_inside);
    bool in_number =
        is_inside && (flags == STATE_UNIQUE_INTEGERS || r->m->grammar->states[t->state].flags & STATE_NUMBER);
    bool in_string = is_inside && !in_number && flags & STATE_UNIQUE_STRINGS && !is_in_literal(r, t);
    size_t n = r->m->text.num_bytes;
    if (!flags) return;
    r->of_strings = flags & STATE_UNIQUE_STRINGS;
    if (r->of_strings) {
        remove_set(r, in_string ? REPEATED_THREE_QUOTES : REPEATED_TWO_QUOTES);
        remove_set(r, in_string ? REPEATED_LITERALS_BEHIND_QUOTE : REPEATED_LITERALS);
    }
    if (flags == STATE_UNIQUE) remove_set(r, REPEATED_NUMBERS);
    size_t written = is_inside ? unique_text_begin(r->m->text.data, n, in_string) : n;
    if (flags == STATE_UNIQUE && in_number)
        remove_end_of_number(r);
    else if (!is_inside || in_string || in_number)
        remove_repeats(r, written);
    if (flags & STATE_UNIQUE_INTEGERS && (!is_inside || in_number)) remove_zeros(r, written);
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
