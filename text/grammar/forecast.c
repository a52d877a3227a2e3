#include "text/grammar/forecast.h"

#include <string.h>

#include "base/check.h"
#include "text/grammar/matcher_state.h"
#include "text/grammar/spaces.h"
#include "text/grammar/vocabulary_parts.h"

enum {
    WORK_MAX = 20000, /* threads that are looked at, some 0.2 ms */
    NO_BYTE = -1,
    SEVERAL = -2
};

/* The text so far, and what is expected of it. */
struct walk {
    const struct grammar *grammar;
    struct frames *frames; /* of a copy */
    struct spacing spacing;
    struct thread threads[THREADS_MAX], next[THREADS_MAX];
    int num_threads, num_next;
    struct byte_set first;
};

static bool leads_on(struct walk *w, int byte)
{
    if (!byte_set_has(&w->first, (unsigned)byte)) return false;
    w->num_next = step_threads(w->grammar, w->frames, w->threads, w->num_threads, (uint8_t)byte, w->next);
    return w->num_next > 0;
}

/* Of white space, or of all else, or of both: the only byte that leads on, or NO_BYTE, or SEVERAL. */
static int only_byte(struct walk *w, bool spaces, bool others)
{
    int only = NO_BYTE;
    for (int byte = 0; byte < 256; byte++) {
        if (!(is_space((uint8_t)byte) ? spaces : others) || !leads_on(w, byte)) continue;
        if (only >= 0) return SEVERAL;
        only = byte;
    }
    return only;
}

static int expected_byte(struct walk *w)
{
    if (step_can_end(w->grammar, w->frames, w->threads, w->num_threads)) return NO_BYTE;
    w->first = (struct byte_set){0};
    step_first_bytes(w->grammar, w->frames, w->threads, w->num_threads, &w->first);
    if (w->spacing.in_string) return only_byte(w, true, true);
    int other = only_byte(w, false, true);
    int space = spacing_next(&w->spacing, (uint8_t)max_of(other, 0));
    if (space && leads_on(w, space)) return space;
    return other == NO_BYTE ? only_byte(w, true, false) : other;
}

static bool go_on(struct walk *w, int byte)
{
    char as_char = (char)byte;
    if (byte < 0 || !leads_on(w, byte)) return false;
    memcpy(w->threads, w->next, (size_t)w->num_next * sizeof w->next[0]);
    w->num_threads = w->num_next;
    spacing_take(&w->spacing, &as_char, 1);
    return !w->frames->status && w->frames->work <= WORK_MAX;
}

size_t forecast_text(const struct matcher *m, const struct spacing *s, char *out)
{
    struct matcher *copy;
    size_t num_bytes = 0;
    if (matcher_copy(m, &copy)) return 0;
    struct walk w = {.grammar = m->grammar, .frames = &copy->frames, .spacing = *s};
    const struct thread *threads = matcher_threads(copy, &w.num_threads);
    memcpy(w.threads, threads, (size_t)w.num_threads * sizeof threads[0]);
    copy->frames.work = 0;
    for (int byte; num_bytes < FORECAST_BYTES_MAX && go_on(&w, byte = expected_byte(&w));)
        out[num_bytes++] = (char)byte;
    matcher_free(copy);
    return num_bytes;
}

/* The longest token that the text begins with; -1: there is none. */
static int32_t longest_token(const struct trie *t, const char *text, size_t num_bytes, size_t *token_bytes)
{
    int32_t id = -1;
    uint32_t node = TRIE_ROOT;
    for (size_t i = 0; i < num_bytes; i++) {
        node = trie_child(t, node, (uint8_t)text[i]);
        if (node == UINT32_MAX) break;
        if (t->nodes[node].num_values == 0) continue;
        id = (int32_t)t->values[t->nodes[node].first_value];
        *token_bytes = i + 1;
    }
    return id;
}

int32_t forecast_tokens(const struct vocabulary *v, const char *text, size_t num_bytes, int32_t *ids,
                        int32_t max)
{
    int32_t num = 0;
    for (size_t at = 0, token_bytes = 0; num < max && at < num_bytes; at += token_bytes, num++) {
        ids[num] = longest_token(&v->trie, text + at, num_bytes - at, &token_bytes);
        if (ids[num] < 0) break;
    }
    return num;
}
