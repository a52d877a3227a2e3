/* Ids to text, one at a time. Decoding a whole list is pushing all of it, so both give the same text.
 *
 * Byte-level tokens are bytes of one stream: what is not yet a whole code point is held, and what cannot
 * become one is replaced by U+FFFD, one for each longest beginning of a code point, as in the reference.
 *
 * With byte fallback a run of <0xNN> tokens is text only if all of it is UTF-8, else each byte is a U+FFFD.
 * So a run is held until it ends or is known to be broken. A run longer than what can be held is let out in
 * part; only if it proves broken after that (more than 250 bytes of valid text, all of them byte tokens) does
 * the text differ from the reference, which replaces those too. */
#include <string.h>

#include "base/check.h"
#include "text/tokenizer/tables.h"
#include "text/tokenizer/unicode.h"

#define REPLACEMENT "\xEF\xBF\xBD"
#define META_SPACE "\u2581"

/* Everything goes out here: the start of the text may be stripped. */
static void put(struct detokenizer *d, const char *bytes, size_t n, struct buffer *out)
{
    const struct decoder *rules = &d->tokenizer->decoder;
    while (d->num_strip > 0 && n > 0) {
        bool strips =
            n >= rules->strip_char_bytes && memcmp(bytes, rules->strip_char, rules->strip_char_bytes) == 0;
        d->num_strip = strips ? d->num_strip - 1 : 0;
        if (strips) {
            bytes += rules->strip_char_bytes;
            n -= rules->strip_char_bytes;
        }
    }
    if (n > 0) buffer_append(out, bytes, n);
}

static void put_replacements(struct detokenizer *d, int count, struct buffer *out)
{
    for (int i = 0; i < count; i++) put(d, REPLACEMENT, 3, out);
}

/* ---- a stream of bytes ---- */

static void stream_byte(struct detokenizer *d, unsigned char byte, struct buffer *out)
{
    if (d->num_held > 0) {
        if (utf8_may_follow(d->held[0], d->num_held, byte)) {
            d->held[d->num_held++] = byte;
            if (d->num_held < utf8_sequence_bytes(d->held[0])) return;
            put(d, (const char *)d->held, (size_t)d->num_held, out);
            d->num_held = 0;
            return;
        }
        d->num_held = 0;
        put(d, REPLACEMENT, 3, out);
    }
    int length = utf8_sequence_bytes(byte);
    if (length == 0) {
        put(d, REPLACEMENT, 3, out);
    } else if (length == 1) {
        put(d, (const char *)&byte, 1, out);
    } else {
        d->held[0] = byte;
        d->num_held = 1;
    }
}

static void push_stream(struct detokenizer *d, const char *text, size_t num_bytes, struct buffer *out)
{
    if (d->num_held == 0 && utf8_is_valid((const unsigned char *)text, num_bytes)) {
        put(d, text, num_bytes, out);
        return;
    }
    for (size_t i = 0; i < num_bytes; i++) stream_byte(d, (unsigned char)text[i], out);
}

/* ---- runs of byte tokens ---- */

static void end_run(struct detokenizer *d, struct buffer *out)
{
    if (d->num_open > 0)
        put_replacements(d, d->num_held, out);
    else
        put(d, (const char *)d->held, (size_t)d->num_held, out);
    d->num_held = d->num_open = 0;
    d->is_run_broken = false;
}

/* Lets out the whole code points of a run that fills the memory for it. */
static void let_out_run(struct detokenizer *d, struct buffer *out)
{
    int num_whole = d->num_held - d->num_open;
    put(d, (const char *)d->held, (size_t)num_whole, out);
    memmove(d->held, d->held + num_whole, (size_t)d->num_open);
    d->num_held = d->num_open;
}

static bool continues_run(const struct detokenizer *d, unsigned char byte)
{
    if (d->num_open == 0) return utf8_sequence_bytes(byte) > 0;
    return utf8_may_follow(d->held[d->num_held - d->num_open], d->num_open, byte);
}

static void push_run_byte(struct detokenizer *d, unsigned char byte, struct buffer *out)
{
    if (d->num_held == (int)sizeof d->held) let_out_run(d, out);
    if (d->is_run_broken || !continues_run(d, byte)) {
        put_replacements(d, d->num_held + 1, out);
        d->num_held = d->num_open = 0;
        d->is_run_broken = true;
        return;
    }
    d->held[d->num_held++] = byte;
    d->num_open++;
    if (d->num_open == utf8_sequence_bytes(d->held[d->num_held - d->num_open])) d->num_open = 0;
}

/* ---- whole texts ---- */

static void put_without_meta(struct detokenizer *d, const char *name, size_t num_bytes, struct buffer *out)
{
    const char *end = name + num_bytes, *found;
    while ((found = memmem(name, (size_t)(end - name), META_SPACE, 3))) {
        put(d, name, (size_t)(found - name), out);
        name = found + 3;
    }
    put(d, name, (size_t)(end - name), out);
}

static void push_text(struct detokenizer *d, int32_t id, bool is_first, struct buffer *out)
{
    const struct vocab *v = &d->tokenizer->vocab;
    size_t num_bytes;
    const char *text = vocab_text(v, id, &num_bytes);
    if (vocab_flags(v, id) & TOKEN_BYTE) {
        push_run_byte(d, (unsigned char)text[0], out);
        return;
    }
    end_run(d, out);
    if (is_first && d->tokenizer->decoder.word_pieces) {
        text = vocab_key(v, id, &num_bytes);
        put(d, text, num_bytes, out);
    } else if (is_first && d->tokenizer->decoder.drop_first_meta) {
        text = vocab_key(v, id, &num_bytes);
        put_without_meta(d, text, num_bytes, out);
    } else {
        put(d, text, num_bytes, out);
    }
}

void detokenizer_init(struct detokenizer *d, const struct tokenizer *t, bool skip_special)
{
    *d = (struct detokenizer){.tokenizer = t, .skip_special = skip_special, .at_start = true};
}

void detokenizer_push(struct detokenizer *d, int32_t id, struct buffer *out)
{
    const struct vocab *v = &d->tokenizer->vocab;
    if (!vocab_has(v, id)) return;
    if (d->skip_special && vocab_is_hidden(v, id)) return;
    bool is_first = d->at_start;
    if (is_first) d->num_strip = d->tokenizer->decoder.num_strip;
    d->at_start = false;
    if (!d->tokenizer->decoder.byte_level) {
        push_text(d, id, is_first, out);
        return;
    }
    size_t num_bytes;
    const char *text = vocab_text(v, id, &num_bytes);
    push_stream(d, text, num_bytes, out);
}

void detokenizer_finish(struct detokenizer *d, struct buffer *out)
{
    if (!d->tokenizer->decoder.byte_level)
        end_run(d, out);
    else if (d->num_held > 0)
        put(d, REPLACEMENT, 3, out);
    d->num_held = 0;
}

void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, int32_t num_ids, bool skip_special,
                      struct buffer *out)
{
    struct detokenizer d;
    detokenizer_init(&d, t, skip_special);
    for (int32_t i = 0; i < num_ids; i++) detokenizer_push(&d, ids[i], out);
    detokenizer_finish(&d, out);
}
