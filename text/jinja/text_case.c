/* text_case.c - upper and lower case as Python has it: full mappings up, simple ones down. */
#include <utf8proc.h>

#include "text/jinja/run.h"

/* Characters whose upper case is several characters (Unicode SpecialCasing, the unconditional ones that are
 * not Greek with iota subscript). */
static const struct {
    int32_t from;
    const char *to;
} special_upper[] = {
    {0xDF, "SS"},
    {0x149, "\u02BCN"},
    {0x1F0, "J\u030C"},
    {0x390, "\u0399\u0308\u0301"},
    {0x3B0, "\u03A5\u0308\u0301"},
    {0x587, "\u0535\u0552"},
    {0x1E96, "H\u0331"},
    {0x1E97, "T\u0308"},
    {0x1E98, "W\u030A"},
    {0x1E99, "Y\u030A"},
    {0x1E9A, "A\u02BE"},
    {0xFB00, "FF"},
    {0xFB01, "FI"},
    {0xFB02, "FL"},
    {0xFB03, "FFI"},
    {0xFB04, "FFL"},
    {0xFB05, "ST"},
    {0xFB06, "ST"},
};

static bool is_cased(int32_t c)
{
    if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    utf8proc_category_t category = utf8proc_category(c);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
           category == UTF8PROC_CATEGORY_LT;
}

int32_t char_to_lower(int32_t c)
{
    if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
    return utf8proc_tolower(c);
}

/* title: as the first letter of a word, where only the first of several letters is upper case (SS, Ss). */
static void append_upper(struct text_builder *b, int32_t c, bool title, bool untrusted)
{
    if (c < 0x80) {
        text_builder_append_char(b, c >= 'a' && c <= 'z' ? c - 32 : c, untrusted);
        return;
    }
    for (size_t i = 0; i < array_length(special_upper); i++) {
        if (special_upper[i].from != c) continue;
        for (const char *p = special_upper[i].to; *p; p++) {
            char lower =
                title && p > special_upper[i].to && *p >= 'A' && *p <= 'Z' && c != 0x149 ? *p + 32 : *p;
            text_builder_append(b, &lower, 1, untrusted);
        }
        return;
    }
    text_builder_append_char(b, title ? utf8proc_totitle(c) : utf8proc_toupper(c), untrusted);
}

/* A capital sigma at the end of a word has a form of its own. */
static bool is_final_sigma(const struct text *t, size_t at, size_t size)
{
    size_t step;
    bool before = at > 0 && is_cased(text_char_at(t, text_char_before(t, at), &step));
    bool after = at + size < t->num_bytes && is_cased(text_char_at(t, at + size, &step));
    return before && !after;
}

static void append_lower(struct text_builder *b, const struct text *t, size_t at, size_t size, int32_t c,
                         bool untrusted)
{
    if (c == 0x3A3) {
        text_builder_append_char(b, is_final_sigma(t, at, size) ? 0x3C2 : 0x3C3, untrusted);
    } else if (c == 0x130) {
        text_builder_append(b, "i\u0307", 3, untrusted);
    } else {
        text_builder_append_char(b, char_to_lower(c), untrusted);
    }
}

static bool wants_upper(enum text_case change, int32_t c, bool first, bool in_word)
{
    switch (change) {
    case CASE_UPPER:
        return true;
    case CASE_CAPITALIZE:
        return first;
    case CASE_TITLE:
        return !in_word;
    case CASE_SWAP:
        return is_cased(c) && char_to_lower(c) == c;
    default:
        return false;
    }
}

const struct text *text_change_case(struct heap *h, const struct text *t, enum text_case change)
{
    struct text_builder b;
    text_builder_init(&b, h);
    bool in_word = false;
    size_t size;
    for (size_t at = 0; at < t->num_bytes && !h->failed; at += size) {
        int32_t c = text_char_at(t, at, &size);
        bool untrusted = text_is_untrusted_at(t, at);
        if (wants_upper(change, c, at == 0, in_word)) {
            append_upper(&b, c, change == CASE_TITLE || change == CASE_CAPITALIZE, untrusted);
        } else {
            append_lower(&b, t, at, size, c, untrusted);
        }
        in_word = is_cased(c);
    }
    return text_as_markup(h, text_builder_take(&b), t->markup);
}

const struct text *text_escape_html(struct heap *h, const struct text *t)
{
    static const char special[] = "&<>'\"";
    static const char *const escapes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    if (t->markup) return t;
    struct text_builder b;
    text_builder_init(&b, h);
    size_t from = 0;
    for (size_t at = 0; at < t->num_bytes; at++) {
        const char *which = t->bytes[at] ? strchr(special, t->bytes[at]) : NULL;
        if (!which) continue;
        const char *escape = escapes[which - special];
        text_builder_append_slice(&b, t, from, at);
        text_builder_append(&b, escape, strlen(escape), text_is_untrusted_at(t, at));
        from = at + 1;
    }
    if (from == 0) return text_as_markup(h, t, true);
    text_builder_append_slice(&b, t, from, t->num_bytes);
    return text_as_markup(h, text_builder_take(&b), true);
}
