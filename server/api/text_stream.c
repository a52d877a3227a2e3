#include "server/api/text_stream.h"

#include <string.h>

#include "base/check.h"

static void fill_fallback(const char *text, int n, int *fallback)
{
    fallback[0] = 0;
    for (int i = 1, border = 0; i < n; i++) {
        while (border > 0 && text[i] != text[border]) border = fallback[border - 1];
        if (text[i] == text[border]) border++;
        fallback[i] = border;
    }
}

bool stop_strings_init(struct stop_strings *s, struct arena *arena, const struct text *texts, int count)
{
    *s = (struct stop_strings){.count = count};
    s->items = arena_alloc_array(arena, (size_t)count, sizeof *s->items);
    if (count > 0 && !s->items) return false;
    for (int i = 0; i < count; i++) {
        size_t n = texts[i].num_bytes;
        char *text = arena_copy(arena, texts[i].bytes, n);
        int *fallback = arena_alloc_array(arena, n, sizeof *fallback);
        if (!text || !fallback) return false;
        fill_fallback(text, (int)n, fallback);
        s->items[i] = (struct stop_string){.text = text, .num_bytes = (int)n, .fallback = fallback};
    }
    return true;
}

bool text_stream_init(struct text_stream *t, const struct tokenizer *tokenizer, bool skip_special,
                      const struct stop_strings *stop, bool include_stop, size_t max_held_bytes,
                      struct arena *arena)
{
    *t = (struct text_stream){.stop = stop, .include_stop = include_stop, .num_blanks = -1, .stop_idx = -1};
    detokenizer_init(&t->detokenizer, tokenizer, skip_special);
    t->detokenizer.at_start = false;
    buffer_init(&t->held, max_held_bytes);
    t->matched = arena_alloc_array(arena, (size_t)stop->count, sizeof *t->matched);
    return stop->count == 0 || t->matched;
}

void text_stream_deinit(struct text_stream *t)
{
    buffer_deinit(&t->held);
}

/* Feeds one byte to every automaton. Returns the index of the longest stop string that it completes, or -1.
 */
static int match_byte(struct text_stream *t, char c)
{
    int found = -1;
    for (int i = 0; i < t->stop->count; i++) {
        const struct stop_string *s = &t->stop->items[i];
        int m = t->matched[i];
        while (m > 0 && s->text[m] != c) m = s->fallback[m - 1];
        if (s->text[m] == c) m++;
        t->matched[i] = m;
        if (m == s->num_bytes && (found < 0 || m > t->stop->items[found].num_bytes)) found = i;
    }
    return found;
}

static size_t num_bytes_in_doubt(const struct text_stream *t)
{
    int longest = 0;
    for (int i = 0; i < t->stop->count; i++) longest = max_of(longest, t->matched[i]);
    return (size_t)longest;
}

static void release(struct text_stream *t, size_t n, struct buffer *out)
{
    if (n == 0) return;
    buffer_append(out, t->held.data, n);
    buffer_consume(&t->held, n);
}

/* Whether the text ends in front of this byte, since its line begins further to the left than it may. */
static bool begins_too_far_left(struct text_stream *t, char c)
{
    bool is_blank = c == ' ' || c == '\t';
    if (t->num_blanks >= 0 && !is_blank && t->num_blanks < t->min_indent) return true;
    if (c == '\n')
        t->num_blanks = 0;
    else if (t->num_blanks >= 0)
        t->num_blanks = is_blank ? t->num_blanks + 1 : -1;
    return false;
}

/* Looks at held[from..] and releases what is certain. */
static bool match_held(struct text_stream *t, size_t from, bool look_for_stop, struct buffer *out)
{
    size_t i = from;
    while (look_for_stop && t->stop_idx < 0 && i < t->held.num_bytes) {
        t->is_outdented = begins_too_far_left(t, t->held.data[i]);
        if (t->is_outdented) {
            release(t, i, out);
            return true;
        }
        t->stop_idx = match_byte(t, t->held.data[i++]);
    }
    if (t->stop_idx >= 0) {
        size_t stop_bytes = (size_t)t->stop->items[t->stop_idx].num_bytes;
        release(t, t->include_stop ? i : i - stop_bytes, out);
        return true;
    }
    size_t in_doubt = num_bytes_in_doubt(t);
    assert_debug(in_doubt <= t->held.num_bytes); /* only what is held was matched */
    release(t, t->held.num_bytes - in_doubt, out);
    return false;
}

bool text_stream_push(struct text_stream *t, int32_t token_id, bool look_for_stop, struct buffer *out)
{
    size_t from = t->held.num_bytes;
    assert_debug(t->stop_idx < 0 && !t->is_outdented); /* over */
    detokenizer_push(&t->detokenizer, token_id, &t->held);
    return match_held(t, from, look_for_stop, out);
}

bool text_stream_finish(struct text_stream *t, struct buffer *out)
{
    size_t from = t->held.num_bytes;
    detokenizer_finish(&t->detokenizer, &t->held);
    if (match_held(t, from, true, out)) return true;
    release(t, t->held.num_bytes, out);
    return false;
}
