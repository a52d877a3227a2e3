#include "text/tokenizer/normalizer.h"

#include <string.h>

#include "text/tokenizer/bert_text.h"
#include "text/tokenizer/nfc.h"
#include "text/tokenizer/unicode.h"

bool normalizer_add(struct normalizer *n, enum normalizer_kind kind, const char *from, const char *to)
{
    size_t from_bytes = strlen(from), to_bytes = strlen(to);
    if (n->num_steps == NORMALIZER_STEPS_MAX || from_bytes > NORMALIZER_TEXT_BYTES ||
        to_bytes > NORMALIZER_TEXT_BYTES)
        return false;
    struct normalizer_step *step = &n->steps[n->num_steps++];
    *step = (struct normalizer_step){.kind = kind, .from_bytes = from_bytes, .to_bytes = to_bytes};
    memcpy(step->from, from, from_bytes);
    memcpy(step->to, to, to_bytes);
    return true;
}

bool normalizer_add_bert(struct normalizer *n, unsigned bert_steps)
{
    if (!normalizer_add(n, NORMALIZE_BERT, "", "")) return false;
    n->steps[n->num_steps - 1].bert_steps = bert_steps;
    return true;
}

bool normalizer_add_charsmap(struct normalizer *n, const struct charsmap *charsmap)
{
    if (!normalizer_add(n, NORMALIZE_CHARSMAP, "", "")) return false;
    n->steps[n->num_steps - 1].charsmap = charsmap;
    return true;
}

static bool begins_with(const char *text, size_t num_bytes, const char *prefix, size_t prefix_bytes)
{
    return num_bytes >= prefix_bytes && memcmp(text, prefix, prefix_bytes) == 0;
}

static void replace(const struct normalizer_step *step, const char *text, size_t num_bytes,
                    struct buffer *out)
{
    const char *end = text + num_bytes, *found;
    while ((found = memmem(text, (size_t)(end - text), step->from, step->from_bytes))) {
        buffer_append(out, text, (size_t)(found - text));
        buffer_append(out, step->to, step->to_bytes);
        text = found + step->from_bytes;
    }
    buffer_append(out, text, (size_t)(end - text));
}

static void replace_runs(const struct normalizer_step *step, const char *text, size_t num_bytes,
                         struct buffer *out)
{
    for (size_t i = 0, end; i < num_bytes; i = end) {
        for (end = i + 1; end < num_bytes && (text[end] == ' ') == (text[i] == ' ');) end++;
        if (text[i] == ' ' && end - i > 1)
            buffer_append(out, step->to, step->to_bytes);
        else
            buffer_append(out, text + i, end - i);
    }
}

/* Of the white space at the start, or of what is none. */
static size_t run_bytes(const char *text, size_t num_bytes, bool of_space)
{
    const unsigned char *p = (const unsigned char *)text, *const begin = p, *const end = p + num_bytes;
    for (int length; p < end; p += length) {
        const bool is_space = (unicode_properties_at(p, end, &length) & UNICODE_CATEGORY) == CATEGORY_SPACE;
        if (is_space != of_space) break;
    }
    return (size_t)(p - begin);
}

static size_t bytes_without_end(const char *text, size_t num_bytes)
{
    const unsigned char *const begin = (const unsigned char *)text;
    for (const unsigned char *p = begin + num_bytes; p > begin;) {
        int length;
        do p--;
        while (p > begin && (*p & 0xC0) == 0x80);
        if ((unicode_properties_at(p, begin + num_bytes, &length) & UNICODE_CATEGORY) != CATEGORY_SPACE)
            break;
        num_bytes = (size_t)(p - begin);
    }
    return num_bytes;
}

static void mark_words(const struct normalizer_step *step, const char *text, size_t num_bytes,
                       struct buffer *out)
{
    const char *const end = text + num_bytes;
    for (;;) {
        text += run_bytes(text, (size_t)(end - text), true);
        const size_t word_bytes = run_bytes(text, (size_t)(end - text), false);
        if (word_bytes == 0) return;
        if (!begins_with(text, word_bytes, step->to, step->to_bytes))
            buffer_append(out, step->to, step->to_bytes);
        buffer_append(out, text, word_bytes);
        text += word_bytes;
    }
}

static bool is_needed(const struct normalizer_step *step, const char *text, size_t num_bytes, bool is_first)
{
    switch (step->kind) {
    case NORMALIZE_NFC:
        return !nfc_is_normal(text, num_bytes);
    case NORMALIZE_PREPEND:
        return num_bytes > 0;
    case NORMALIZE_PREPEND_MISSING:
        return num_bytes > 0 && !begins_with(text, num_bytes, step->to, step->to_bytes);
    case NORMALIZE_PREPEND_MISSING_FIRST:
        return is_first && num_bytes > 0 && !begins_with(text, num_bytes, step->to, step->to_bytes);
    case NORMALIZE_REPLACE:
        return memmem(text, num_bytes, step->from, step->from_bytes);
    case NORMALIZE_RUNS:
        return memmem(text, num_bytes, "  ", 2);
    case NORMALIZE_BERT:
    case NORMALIZE_CHARSMAP:
    case NORMALIZE_STRIP_LEFT:
    case NORMALIZE_STRIP_RIGHT:
    case NORMALIZE_WORDS:
        return num_bytes > 0;
    }
    return false;
}

/* Steps of an own file, or function. */
static bool run_special_step(const struct normalizer_step *step, const char *text, size_t num_bytes,
                             struct buffer *out)
{
    size_t begin = 0;
    (void)buffer_reserve(out, 1); /* there is a text when nothing of it is left, too */
    switch (step->kind) {
    case NORMALIZE_CHARSMAP:
        charsmap_append(step->charsmap, text, num_bytes, out);
        return true;
    case NORMALIZE_RUNS:
        replace_runs(step, text, num_bytes, out);
        return true;
    case NORMALIZE_STRIP_LEFT:
        begin = run_bytes(text, num_bytes, true);
        buffer_append(out, text + begin, num_bytes - begin);
        return true;
    case NORMALIZE_STRIP_RIGHT:
        buffer_append(out, text, bytes_without_end(text, num_bytes));
        return true;
    case NORMALIZE_WORDS:
        mark_words(step, text, num_bytes, out);
        return true;
    default:
        return false;
    }
}

static void run_step(const struct normalizer_step *step, const char *text, size_t num_bytes,
                     struct buffer *out)
{
    if (run_special_step(step, text, num_bytes, out)) return;
    if (step->kind == NORMALIZE_NFC) {
        nfc_append(text, num_bytes, out);
    } else if (step->kind == NORMALIZE_BERT) {
        bert_normalize(step->bert_steps, text, num_bytes, out);
    } else if (step->kind == NORMALIZE_REPLACE) {
        replace(step, text, num_bytes, out);
    } else {
        buffer_append(out, step->to, step->to_bytes);
        buffer_append(out, text, num_bytes);
    }
}

const char *normalizer_run(const struct normalizer *n, const char *text, size_t num_bytes, bool is_first,
                           struct buffer buffers[2], size_t *out_bytes)
{
    int turn = 0;
    for (int i = 0; i < n->num_steps; i++) {
        if (!is_needed(&n->steps[i], text, num_bytes, is_first)) continue;
        struct buffer *out = &buffers[turn];
        buffer_clear(out);
        run_step(&n->steps[i], text, num_bytes, out);
        if (buffer_failed(out)) return NULL;
        text = out->data;
        num_bytes = out->num_bytes;
        turn = !turn;
    }
    *out_bytes = num_bytes;
    return text;
}
