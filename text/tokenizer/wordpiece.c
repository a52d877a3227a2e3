#include "text/tokenizer/wordpiece.h"

#include <string.h>

#include "base/check.h"
#include "base/utf8.h"
#include "text/tokenizer/bert_text.h"

enum { NAME_BYTES_MAX = 4096 };

void wordpiece_finish(struct wordpiece *w, const struct vocab *v)
{
    w->longest_bytes = 0;
    for (int32_t id = 0; id < v->num_ids; id++) {
        size_t num_bytes = 0;
        if (vocab_has(v, id)) (void)vocab_key(v, id, &num_bytes);
        w->longest_bytes = max_of(w->longest_bytes, min_of(num_bytes, (size_t)NAME_BYTES_MAX));
    }
}

static bool is_gap(const char *piece, size_t num_bytes)
{
    const unsigned char *p = (const unsigned char *)piece;
    int length;
    return num_bytes == 0 || (bert_properties_at(p, p + num_bytes, &length) & BERT_GAP);
}

/* Up to one more than may be. */
static int32_t num_characters(const struct wordpiece *w, const char *piece, size_t num_bytes)
{
    int32_t num = 0;
    for (size_t i = 0; i < num_bytes && num <= w->max_characters; i++)
        num += ((unsigned char)piece[i] & 0xC0) != 0x80;
    return num;
}

/* The longest token at the start of text, and its bytes there; -1: none. */
static int32_t find_longest(const struct wordpiece *w, const struct vocab *v, const char *text,
                            size_t num_bytes, bool continues, size_t *found_bytes)
{
    char name[NAME_BYTES_MAX];
    const size_t prefix_bytes = continues ? w->prefix_bytes : 0;
    if (w->longest_bytes <= prefix_bytes) return -1;
    size_t n = min_of(num_bytes, w->longest_bytes - prefix_bytes);
    memcpy(name, w->prefix, prefix_bytes);
    memcpy(name + prefix_bytes, text, n);
    for (; n > 0; n--) {
        if (n < num_bytes && ((unsigned char)text[n] & 0xC0) == 0x80) continue; /* inside a character */
        int32_t id = vocab_find_plain(v, name, prefix_bytes + n);
        *found_bytes = n;
        if (id >= 0) return id;
    }
    return -1;
}

int wordpiece_encode(const struct wordpiece *w, const struct vocab *v, const char *piece, size_t num_bytes,
                     bpe_take *take, void *context)
{
    int32_t ids[WORD_CHARACTERS_MAX], num_ids = 0;
    assert_debug(w->max_characters <= WORD_CHARACTERS_MAX);
    if (is_gap(piece, num_bytes)) return STATUS_OK;
    if (num_characters(w, piece, num_bytes) > w->max_characters) return take(context, &w->unknown_id, 1);
    for (size_t at = 0, found = 0; at < num_bytes; at += found) {
        int32_t id = find_longest(w, v, piece + at, num_bytes - at, at > 0, &found);
        if (id < 0) return take(context, &w->unknown_id, 1);
        ids[num_ids++] = id;
    }
    return take(context, ids, num_ids);
}
