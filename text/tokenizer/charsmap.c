#include "text/tokenizer/charsmap.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/tokenizer/grapheme.h"

enum { GRAPHEME_BYTES_MAX = 5 };

static uint32_t load_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Takes bytes, which are malloc'd. */
static int take_bytes(struct charsmap *c, unsigned char *bytes, size_t num_bytes, struct error *err)
{
    const uint32_t trie_bytes = num_bytes >= 4 ? load_u32(bytes) : 0;
    charsmap_deinit(c);
    c->bytes = bytes;
    if (trie_bytes < 4 || trie_bytes % 4 != 0 || trie_bytes > num_bytes - 4 ||
        !utf8_is_valid(bytes + 4 + trie_bytes, num_bytes - 4 - trie_bytes))
        return error_set(err, STATUS_INVALID, "The tokenizer's precompiled_charsmap is damaged.");
    c->units = bytes + 4;
    c->num_units = trie_bytes / 4;
    c->texts = (const char *)bytes + 4 + trie_bytes;
    c->num_text_bytes = num_bytes - 4 - trie_bytes;
    return 0;
}

int charsmap_read(struct charsmap *c, const void *bytes, size_t num_bytes, struct error *err)
{
    unsigned char *copy = malloc(num_bytes + 1);
    if (!copy) return error_set(err, STATUS_NO_MEMORY, "No memory for the tokenizer's precompiled_charsmap.");
    memcpy(copy, bytes, num_bytes);
    return take_bytes(c, copy, num_bytes, err);
}

static int base64_value(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = c ? strchr(digits, c) : NULL;
    return found ? (int)(found - digits) : -1;
}

int charsmap_read_base64(struct charsmap *c, const char *text, struct error *err)
{
    size_t num_chars = strlen(text), num_bytes = 0;
    uint32_t bits = 0;
    int num_bits = 0;
    while (num_chars > 0 && text[num_chars - 1] == '=') num_chars--;
    unsigned char *bytes = malloc(num_chars + 1);
    if (!bytes)
        return error_set(err, STATUS_NO_MEMORY, "No memory for the tokenizer's precompiled_charsmap.");
    for (size_t i = 0; i < num_chars; i++) {
        const int value = base64_value(text[i]);
        if (value < 0) {
            free(bytes);
            return error_set(err, STATUS_INVALID, "The tokenizer's precompiled_charsmap is no base64.");
        }
        bits = (bits << 6 | (uint32_t)value) & 0xFFFF;
        num_bits += 6;
        if (num_bits < 8) continue;
        num_bits -= 8;
        bytes[num_bytes++] = (unsigned char)(bits >> num_bits);
    }
    return take_bytes(c, bytes, num_bytes, err);
}

void charsmap_deinit(struct charsmap *c)
{
    free(c->bytes);
    *c = (struct charsmap){0};
}

static uint32_t offset_of(uint32_t unit)
{
    return (unit >> 10) << ((unit & 1u << 9) >> 6);
}

/* The text for the shortest beginning of the bytes that has one; NULL: none has. */
static const char *find(const struct charsmap *c, const unsigned char *p, size_t num_bytes,
                        size_t *found_bytes)
{
    uint32_t at = offset_of(load_u32(c->units));
    for (size_t i = 0; i < num_bytes && p[i]; i++) {
        at ^= p[i];
        if (at >= c->num_units) return NULL;
        const uint32_t unit = load_u32(c->units + (size_t)at * 4);
        if ((unit & (1u << 31 | 0xFF)) != p[i]) return NULL;
        at ^= offset_of(unit);
        if (!(unit & 1u << 8)) continue;
        const uint32_t begin =
            at < c->num_units ? load_u32(c->units + (size_t)at * 4) & 0x7FFFFFFF : UINT32_MAX;
        if (begin > c->num_text_bytes) return NULL;
        const char *text = c->texts + begin;
        const size_t rest = c->num_text_bytes - begin;
        if (rest > 0 && ((unsigned char)*text & 0xC0) == 0x80) return NULL; /* inside a character */
        const char *nul = memchr(text, '\0', rest);
        *found_bytes = nul ? (size_t)(nul - text) : rest;
        return text;
    }
    return NULL;
}

static bool append_rule(const struct charsmap *c, const unsigned char *p, size_t num_bytes,
                        struct buffer *out)
{
    size_t found_bytes;
    const char *found = find(c, p, num_bytes, &found_bytes);
    if (found) buffer_append(out, found, found_bytes);
    return found;
}

void charsmap_append(const struct charsmap *c, const char *text, size_t num_bytes, struct buffer *out)
{
    const unsigned char *p = (const unsigned char *)text, *const end = p + num_bytes;
    (void)buffer_reserve(out, num_bytes); /* there is a text when nothing of it is left, too */
    while (p < end) {
        const unsigned char *const next = grapheme_end(p, end);
        if (next - p <= GRAPHEME_BYTES_MAX && append_rule(c, p, (size_t)(next - p), out)) p = next;
        while (p < next) {
            int length;
            (void)utf8_decode(p, end, &length);
            if (!append_rule(c, p, (size_t)length, out)) buffer_append(out, p, (size_t)length);
            p += length;
        }
    }
}
