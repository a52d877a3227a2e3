/* All steps in one walk: what a step leaves of a code point goes on to the next. Decomposed text has its marks in
 * order; of those most go, so the few others are put in order where they are held: a run of more than HELD_MAX stays
 * as it is. */
#include "text/tokenizer/bert_text.h"

#include <utf8proc.h>

#include "base/check.h"
#include "text/tokenizer/unicode.h"

#include "text/tokenizer/bert_table.h"

enum { BLOCK_POINTS = sizeof bert_blocks[0], DECOMPOSED_MAX = 8, HELD_MAX = 32, CAPITAL_I_WITH_DOT = 0x130 };

static unsigned properties_of(uint32_t point)
{
    uint32_t block = point / BLOCK_POINTS;
    return block < sizeof bert_index ? bert_blocks[bert_index[block]][point % BLOCK_POINTS] : 0;
}

unsigned bert_properties_at(const unsigned char *p, const unsigned char *end, int *num_bytes)
{
    return properties_of(utf8_decode(p, end, num_bytes));
}

struct walk {
    unsigned steps;
    struct buffer *out;
    uint32_t held[HELD_MAX]; /* marks behind the last starter, in the order of their classes */
    int classes[HELD_MAX], num_held;
};

static void put(struct walk *w, uint32_t point)
{
    unsigned char bytes[4];
    buffer_append(w->out, bytes, (size_t)utf8_encode(point, bytes));
}

static uint32_t lower_of(uint32_t capital)
{
    for (size_t i = 0; i < array_length(bert_capitals); i++)
        if (bert_capitals[i][0] == capital) return bert_capitals[i][1];
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)capital);
}

static void lower(struct walk *w, uint32_t point)
{
    if (!(w->steps & BERT_LOWER) || !(properties_of(point) & BERT_CAPITAL)) {
        put(w, point);
        return;
    }
    put(w, point == CAPITAL_I_WITH_DOT ? 'i' : lower_of(point));
    if (point == CAPITAL_I_WITH_DOT) put(w, 0x307);
}

static void let_go(struct walk *w)
{
    for (int i = 0; i < w->num_held; i++) lower(w, w->held[i]);
    w->num_held = 0;
}

/* 0 for marks that the reference is too old for. */
static int combining_class(uint32_t point)
{
    if (!(unicode_properties(point) & UNICODE_NFC_ACTIVE)) return 0;
    return utf8proc_get_property((utf8proc_int32_t)point)->combining_class & 0xFF;
}

static void drop_accent(struct walk *w, uint32_t point)
{
    const int class = combining_class(point);
    const bool is_mark = properties_of(point) & BERT_MARK;
    if (class == 0 || w->num_held == HELD_MAX) let_go(w);
    if (is_mark) return;
    if (class == 0) {
        lower(w, point);
        return;
    }
    int at = w->num_held++;
    for (; at > 0 && w->classes[at - 1] > class; at--) {
        w->held[at] = w->held[at - 1];
        w->classes[at] = w->classes[at - 1];
    }
    w->held[at] = point;
    w->classes[at] = class;
}

static void decompose(struct walk *w, uint32_t point)
{
    int32_t parts[DECOMPOSED_MAX];
    int last_boundary = 0;
    if (!(w->steps & BERT_ACCENTS)) {
        lower(w, point);
        return;
    }
    utf8proc_ssize_t num = -1;
    if (properties_of(point) & BERT_DECOMPOSES)
        num = utf8proc_decompose_char((utf8proc_int32_t)point, parts, DECOMPOSED_MAX,
                                      (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE),
                                      &last_boundary);
    if (num < 0 || num > DECOMPOSED_MAX) drop_accent(w, point);
    for (utf8proc_ssize_t i = 0; i < num && num <= DECOMPOSED_MAX; i++) drop_accent(w, (uint32_t)parts[i]);
}

static void take(struct walk *w, uint32_t point, unsigned properties)
{
    const bool has_spaces = (w->steps & BERT_CHINESE) && (properties & BERT_IDEOGRAPH);
    if ((w->steps & BERT_CLEAN) && (properties & BERT_DROPPED)) return;
    if ((w->steps & BERT_CLEAN) && (properties & BERT_SPACE)) point = ' ';
    if (has_spaces) decompose(w, ' ');
    decompose(w, point);
    if (has_spaces) decompose(w, ' ');
}

void bert_normalize(unsigned steps, const char *text, size_t num_bytes, struct buffer *out)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + num_bytes;
    struct walk w = {.steps = steps, .out = out};
    (void)buffer_reserve(out, num_bytes); /* there is a text when nothing of it is left, too */
    while (p < end) {
        int length;
        uint32_t point = utf8_decode(p, end, &length);
        take(&w, point, properties_of(point));
        p += length;
    }
    let_go(&w);
}
