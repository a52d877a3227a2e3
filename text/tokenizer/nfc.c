/* utf8proc knows how code points decompose and compose, but its own ordering of marks is an insertion sort:
 * one megabyte of marks in the wrong order would take hours. So the marks are ordered here, by a counting
 * sort, and utf8proc only decomposes single code points and composes at the end, which are both linear.
 *
 * Most text needs none of it. The text is cut into stretches: code points that are not UNICODE_NFC_ACTIVE are
 * copied; a run of active ones is normalised together with the one starter before it, with which it may
 * compose. */
#include "text/tokenizer/nfc.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/tokenizer/unicode.h"

enum { DECOMPOSED_MAX = 8 }; /* canonical decompositions have at most 4 */
static const utf8proc_option_t nfc_options = (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

struct points {
    int32_t *items;
    size_t num_items, capacity;
};

static bool points_reserve(struct points *p, size_t more)
{
    if (p->capacity - p->num_items >= more) return true;
    size_t capacity = (p->capacity + more) * 2;
    int32_t *items = realloc(p->items, capacity * sizeof *items);
    if (!items) return false;
    p->items = items;
    p->capacity = capacity;
    return true;
}

static int combining_class(int32_t point)
{
    return utf8proc_get_property(point)->combining_class & 0xFF;
}

static bool decompose(const unsigned char *p, const unsigned char *end, struct points *out)
{
    while (p < end) {
        int num_bytes, last_boundary = 0;
        int32_t point = (int32_t)utf8_decode(p, end, &num_bytes);
        if (!points_reserve(out, DECOMPOSED_MAX)) return false;
        utf8proc_ssize_t n = utf8proc_decompose_char(point, out->items + out->num_items, DECOMPOSED_MAX,
                                                     nfc_options, &last_boundary);
        if (n < 0 || n > DECOMPOSED_MAX) return false;
        out->num_items += (size_t)n;
        p += num_bytes;
    }
    return true;
}

/* Stable sort of a run of marks by their class, 1 to 255. */
static void sort_marks(int32_t *marks, size_t n, int32_t *scratch)
{
    size_t begins[257] = {0};
    for (size_t i = 0; i < n; i++) begins[combining_class(marks[i]) + 1]++;
    for (int class = 0; class < 256; class ++) begins[class + 1] += begins[class];
    for (size_t i = 0; i < n; i++) scratch[begins[combining_class(marks[i])]++] = marks[i];
    memcpy(marks, scratch, n * sizeof *marks);
}

static void sort_few_marks(int32_t *marks, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        int32_t mark = marks[i];
        size_t at = i;
        for (; at > 0 && combining_class(marks[at - 1]) > combining_class(mark); at--)
            marks[at] = marks[at - 1];
        marks[at] = mark;
    }
}

static bool order_marks(struct points *p)
{
    enum { FEW = 32 };
    int32_t *scratch = NULL;
    for (size_t begin = 0; begin < p->num_items;) {
        size_t end = begin;
        while (end < p->num_items && combining_class(p->items[end]) > 0) end++;
        if (end - begin > FEW && !scratch && !(scratch = malloc(p->num_items * sizeof *scratch)))
            return false;
        if (end - begin > FEW)
            sort_marks(p->items + begin, end - begin, scratch);
        else
            sort_few_marks(p->items + begin, end - begin);
        begin = end + 1;
    }
    free(scratch);
    return true;
}

static bool encode_points(const int32_t *items, size_t n, struct buffer *out)
{
    char *to = buffer_reserve(out, n * 4);
    if (!to) return false;
    size_t num_bytes = 0;
    for (size_t i = 0; i < n; i++)
        num_bytes += (size_t)utf8_encode((uint32_t)items[i], (unsigned char *)to + num_bytes);
    buffer_commit(out, num_bytes);
    return true;
}

static bool normalize_stretch(const unsigned char *p, const unsigned char *end, struct points *points,
                              struct buffer *out)
{
    points->num_items = 0;
    if (!decompose(p, end, points) || !order_marks(points)) return false;
    utf8proc_ssize_t n =
        utf8proc_normalize_utf32(points->items, (utf8proc_ssize_t)points->num_items, nfc_options);
    return n >= 0 && encode_points(points->items, (size_t)n, out);
}

static bool is_active(const unsigned char *p, const unsigned char *end, int *num_bytes)
{
    *num_bytes = 1;
    if (*p < 0xC0) return false;
    return unicode_properties_at(p, end, num_bytes) & UNICODE_NFC_ACTIVE;
}

static const unsigned char *skip_points(const unsigned char *p, const unsigned char *end, bool active)
{
    int num_bytes;
    while (p < end && is_active(p, end, &num_bytes) == active) p += num_bytes;
    return p;
}

bool nfc_is_normal(const char *text, size_t num_bytes)
{
    const unsigned char *end = (const unsigned char *)text + num_bytes;
    return skip_points((const unsigned char *)text, end, false) == end;
}

/* The start of the stretch whose first active code point is at p: that of the starter before it. A mark there
 * is one that the reference does not know; it takes no part. */
static const unsigned char *stretch_begin(const unsigned char *copied, const unsigned char *p)
{
    if (p == copied) return p;
    const unsigned char *before = utf8_previous(copied, p);
    int num_bytes;
    return combining_class((int32_t)utf8_decode(before, p, &num_bytes)) == 0 ? before : p;
}

void nfc_append(const char *text, size_t num_bytes, struct buffer *out)
{
    const unsigned char *at = (const unsigned char *)text, *end = at + num_bytes;
    struct points points = {0};
    while (at < end) {
        const unsigned char *active = skip_points(at, end, false);
        const unsigned char *begin = active < end ? stretch_begin(at, active) : end;
        buffer_append(out, at, (size_t)(begin - at));
        at = skip_points(active, end, true);
        if (begin < at && !normalize_stretch(begin, at, &points, out)) {
            out->failed = true;
            break;
        }
    }
    free(points.items);
}
