#include "text/tokenizer/normalizer.h"

#include <string.h>

#include "text/tokenizer/bert_text.h"
#include "text/tokenizer/nfc.h"

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

static bool begins_with(const char *text, size_t num_bytes, const char *prefix, size_t prefix_bytes)
{
    return num_bytes >= prefix_bytes && memcmp(text, prefix, prefix_bytes) == 0;
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
    case NORMALIZE_BERT:
        return num_bytes > 0;
    }
    return false;
}

static void run_step(const struct normalizer_step *step, const char *text, size_t num_bytes,
                     struct buffer *out)
{
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
