#include "text/jinja/text.h"

#include <utf8proc.h>

const struct text text_empty = {.bytes = ""};

/* A text and room for its ranges in one allocation. */
static struct text *text_create(struct heap *h, const char *bytes, size_t n, int num_ranges)
{
    struct text *t = heap_alloc(h, sizeof *t + (size_t)num_ranges * sizeof(struct text_range));
    if (!t) return NULL;
    *t = (struct text){.bytes = bytes, .num_bytes = n};
    if (num_ranges > 0) t->untrusted = (struct text_range *)(t + 1);
    return t;
}

const struct text *text_wrap(struct heap *h, const char *bytes, size_t n, bool untrusted)
{
    if (n == 0) return &text_empty;
    struct text *t = text_create(h, bytes, n, untrusted);
    if (!t) return &text_empty;
    if (untrusted) {
        *(struct text_range *)t->untrusted = (struct text_range){0, n};
        t->num_untrusted = 1;
    }
    return t;
}

/* The indices [*first, *last) of the ranges that touch [begin, end). */
static void find_ranges(const struct text *t, size_t begin, size_t end, int *first, int *last)
{
    int low = 0, high = t->num_untrusted;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (t->untrusted[middle].end <= begin) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *first = low;
    while (low < t->num_untrusted && t->untrusted[low].begin < end) low++;
    *last = low;
}

const struct text *text_slice(struct heap *h, const struct text *t, size_t begin, size_t end)
{
    if (begin == 0 && end == t->num_bytes) return t;
    if (begin >= end) return t->markup ? text_as_markup(h, &text_empty, true) : &text_empty;
    int first, last;
    find_ranges(t, begin, end, &first, &last);
    struct text *slice = text_create(h, t->bytes + begin, end - begin, last - first);
    if (!slice) return &text_empty;
    struct text_range *ranges = (struct text_range *)slice->untrusted;
    for (int i = first; i < last; i++) {
        struct text_range range = text_range_of(t, i);
        ranges[i - first] = /* NOLINT: text_create made room for them */
            (struct text_range){max_of(range.begin, begin) - begin, min_of(range.end, end) - begin};
    }
    slice->num_untrusted = last - first;
    slice->markup = t->markup;
    return slice;
}

const struct text *text_concat(struct heap *h, const struct text *a, const struct text *b)
{
    if (b->num_bytes == 0) return a;
    if (a->num_bytes == 0) return b;
    struct text_builder *builder = a->builder;
    if (!builder || builder->num_bytes != a->num_bytes) {
        builder = heap_alloc(h, sizeof *builder);
        if (!builder) return &text_empty;
        text_builder_init(builder, h);
        text_builder_append_text(builder, a);
    }
    text_builder_append_text(builder, b);
    struct text *t = (struct text *)text_builder_take(builder);
    if (t != &text_empty) t->builder = builder;
    return t;
}

const struct text *text_as_markup(struct heap *h, const struct text *t, bool markup)
{
    if (t->markup == markup) return t;
    struct text *copy = heap_alloc(h, sizeof *copy);
    if (!copy) return &text_empty;
    *copy = *t;
    copy->markup = markup;
    return copy;
}

bool text_is_untrusted_at(const struct text *t, size_t at)
{
    int first, last;
    find_ranges(t, at, at + 1, &first, &last);
    return first < last;
}

int text_compare(const struct text *a, const struct text *b)
{
    int order = memcmp(a->bytes, b->bytes, min_of(a->num_bytes, b->num_bytes));
    if (order != 0) return order;
    return (a->num_bytes > b->num_bytes) - (a->num_bytes < b->num_bytes);
}

size_t text_find(const struct text *t, const struct text *needle, size_t begin, size_t end)
{
    if (begin > end || end - begin < needle->num_bytes) return SIZE_MAX;
    if (needle->num_bytes == 0) return begin;
    const char *at = memmem(t->bytes + begin, end - begin, needle->bytes, needle->num_bytes);
    return at ? (size_t)(at - t->bytes) : SIZE_MAX;
}

size_t text_find_last(const struct text *t, const struct text *needle, size_t begin, size_t end)
{
    if (begin > end || end - begin < needle->num_bytes) return SIZE_MAX;
    for (size_t at = end - needle->num_bytes + 1; at-- > begin;) {
        if (memcmp(t->bytes + at, needle->bytes, needle->num_bytes) == 0) return at;
    }
    return SIZE_MAX;
}

bool text_starts_with(const struct text *t, const struct text *prefix)
{
    return t->num_bytes >= prefix->num_bytes && memcmp(t->bytes, prefix->bytes, prefix->num_bytes) == 0;
}

bool text_ends_with(const struct text *t, const struct text *suffix)
{
    size_t n = suffix->num_bytes;
    return t->num_bytes >= n && memcmp(t->bytes + t->num_bytes - n, suffix->bytes, n) == 0;
}

/* ---- code points ---- */

static bool is_continuation(char byte)
{
    return ((unsigned char)byte & 0xC0) == 0x80;
}

int32_t text_char_at(const struct text *t, size_t at, size_t *size)
{
    unsigned char byte = (unsigned char)t->bytes[at];
    *size = 1;
    if (byte < 0x80) return byte;
    int32_t c;
    size_t rest = min_of(t->num_bytes - at, (size_t)4);
    utf8proc_ssize_t n = utf8proc_iterate((const unsigned char *)t->bytes + at, (utf8proc_ssize_t)rest, &c);
    if (n < 1) return 0xDC00 + byte;
    *size = (size_t)n;
    return c;
}

size_t text_char_before(const struct text *t, size_t at)
{
    for (size_t back = 1; back <= 4 && back <= at; back++) {
        size_t size;
        if (is_continuation(t->bytes[at - back])) continue;
        text_char_at(t, at - back, &size);
        if (size == back) return at - back;
        break;
    }
    return at - 1;
}

static bool is_ascii(const struct text *t)
{
    unsigned char all = 0;
    for (size_t i = 0; i < t->num_bytes; i++) all |= (unsigned char)t->bytes[i];
    return all < 0x80;
}

size_t text_num_chars(const struct text *t)
{
    if (is_ascii(t)) return t->num_bytes;
    return text_char_of_byte(t, t->num_bytes);
}

size_t text_byte_of_char(const struct text *t, size_t idx)
{
    if (is_ascii(t)) return min_of(idx, t->num_bytes);
    size_t at = 0, size;
    for (; idx > 0 && at < t->num_bytes; idx--, at += size) text_char_at(t, at, &size);
    return at;
}

size_t text_char_of_byte(const struct text *t, size_t byte)
{
    size_t num = 0, size;
    for (size_t at = 0; at < byte; at += size, num++) text_char_at(t, at, &size);
    return num;
}

bool char_is_space(int32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool is_stripped(const struct text *t, size_t at, const struct text *chars)
{
    size_t size;
    int32_t c = text_char_at(t, at, &size);
    if (!chars) return char_is_space(c);
    for (size_t i = 0, step; i < chars->num_bytes; i += step) {
        if (text_char_at(chars, i, &step) == c) return true;
    }
    return false;
}

void text_strip_bounds(const struct text *t, const struct text *chars, bool left, bool right, size_t *begin,
                       size_t *end)
{
    size_t from = 0, to = t->num_bytes, size;
    while (left && from < to && is_stripped(t, from, chars)) {
        text_char_at(t, from, &size);
        from += size;
    }
    while (right && from < to) {
        size_t before = text_char_before(t, to);
        if (!is_stripped(t, before, chars)) break;
        to = before;
    }
    *begin = from;
    *end = to;
}

/* ---- building ---- */

void text_builder_init(struct text_builder *b, struct heap *h)
{
    *b = (struct text_builder){.heap = h};
}

static bool reserve(struct text_builder *b, size_t n)
{
    struct heap *h = b->heap;
    if (!heap_charge(h, n / 8) || n > h->text_bytes_max || b->num_bytes > h->text_bytes_max - n) {
        h->failed = true;
        return false;
    }
    if (n <= b->capacity_bytes - b->num_bytes) return true;
    size_t capacity = max_of(b->num_bytes + n, max_of(b->capacity_bytes * 2, (size_t)64));
    char *bytes = heap_alloc(h, capacity);
    if (!bytes) return false;
    if (b->num_bytes > 0) memcpy(bytes, b->bytes, b->num_bytes);
    b->bytes = bytes;
    b->capacity_bytes = capacity;
    return true;
}

static void mark(struct text_builder *b, size_t begin, size_t end)
{
    if (b->num_untrusted > 0 && b->untrusted[b->num_untrusted - 1].end == begin) {
        b->untrusted[b->num_untrusted - 1].end = end;
        return;
    }
    if (b->num_untrusted == b->capacity_untrusted &&
        !heap_grow(b->heap, (void **)&b->untrusted, b->num_untrusted, &b->capacity_untrusted,
                   sizeof *b->untrusted)) {
        return;
    }
    b->untrusted[b->num_untrusted++] = (struct text_range){begin, end};
}

void text_builder_append(struct text_builder *b, const char *bytes, size_t n, bool untrusted)
{
    if (n == 0 || !reserve(b, n)) return;
    memcpy(b->bytes + b->num_bytes, bytes, n);
    if (untrusted) mark(b, b->num_bytes, b->num_bytes + n);
    b->num_bytes += n;
}

void text_builder_append_literal(struct text_builder *b, const char *literal)
{
    text_builder_append(b, literal, strlen(literal), false);
}

void text_builder_append_slice(struct text_builder *b, const struct text *t, size_t begin, size_t end)
{
    if (begin >= end || !reserve(b, end - begin)) return;
    memcpy(b->bytes + b->num_bytes, t->bytes + begin, end - begin);
    int first, last;
    find_ranges(t, begin, end, &first, &last);
    for (int i = first; i < last; i++) {
        struct text_range range = text_range_of(t, i);
        mark(b, b->num_bytes + max_of(range.begin, begin) - begin,
             b->num_bytes + min_of(range.end, end) - begin);
    }
    b->num_bytes += end - begin;
}

void text_builder_append_text(struct text_builder *b, const struct text *t)
{
    text_builder_append_slice(b, t, 0, t->num_bytes);
}

void text_builder_append_char(struct text_builder *b, int32_t c, bool untrusted)
{
    unsigned char bytes[4];
    bool stray = c > 0xDC00 && c <= 0xDCFF;
    if (stray) bytes[0] = (unsigned char)(c - 0xDC00);
    size_t n = stray ? 1 : (size_t)utf8proc_encode_char(c, bytes);
    text_builder_append(b, (const char *)bytes, n, untrusted);
}

const struct text *text_builder_take(struct text_builder *b)
{
    if (b->num_bytes == 0) return &text_empty;
    struct text *t = text_create(b->heap, b->bytes, b->num_bytes, 0);
    if (!t) return &text_empty;
    t->untrusted = b->untrusted;
    t->num_untrusted = b->num_untrusted;
    return t;
}
