/* slice.h - pieces of texts, and what two of them have in common at a border.
 *
 * Where a common piece would cut a mark (<...> or [...]) in two, it ends before the mark. Thread: pure. */
#ifndef TEXT_TOOLS_SLICE_H
#define TEXT_TOOLS_SLICE_H

#include <stdbool.h>
#include <stddef.h>

struct slice {
    const char *bytes;
    size_t n;
};

static inline struct slice slice_of(const char *begin, const char *end)
{
    return (struct slice){begin, end > begin ? (size_t)(end - begin) : 0};
}

static inline struct slice slice_from(struct slice s, size_t n)
{
    return (struct slice){s.bytes + n, s.n - n};
}

static inline struct slice slice_without_end(struct slice s, size_t n)
{
    return (struct slice){s.bytes, s.n - n};
}

struct slice slice_text(const char *text);
struct slice slice_strip(struct slice s); /* without white space at its ends */
bool slice_equal(struct slice a, struct slice b);
bool slice_begins(struct slice s, struct slice begin);
bool slice_ends(struct slice s, struct slice end);
bool slice_holds(struct slice s, const char *text);

/* How many bytes both begin, both end with. */
size_t slice_common_begin(struct slice a, struct slice b);
/* The same with any white space between words: how much of a, and in *of_b of b. */
size_t slice_common_begin_loosely(struct slice a, struct slice b, size_t *of_b);
size_t slice_common_end(struct slice a, struct slice b);

#endif
