/* match.h - whether a text stands at a place of an answer, as far as the answer is known.
 *
 * White space in the text matches any (MATCH_SPACES_MAX bytes at most), none included, and next to JSON's
 * punctuation and in front of a mark's < there may be some that the text does not show. White space at the end of the text is left to
 * whoever matches next. The result for a beginning is never taken back by more bytes. */
#ifndef TEXT_TOOLS_MATCH_H
#define TEXT_TOOLS_MATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { MATCH_SPACES_MAX = 64, MATCH_ID_MAX = 64 /* TOOL_ID_MAX */ };
enum { MATCH_NOT = -1, MATCH_MORE = -2 }; /* not; more bytes are needed to tell */

struct match_id {
    char text[MATCH_ID_MAX + 1]; /* "" when there was none */
};

struct span {
    const char *bytes;
    size_t num_bytes;
    bool is_whole; /* nothing will follow: MATCH_MORE becomes MATCH_NOT */
};

static inline ssize_t match_more(struct span at)
{
    return at.is_whole ? MATCH_NOT : MATCH_MORE;
}

static inline bool match_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* How many bytes match, or a MATCH_. id may be NULL. */
ssize_t match_text(const char *text, struct span at, struct match_id *id);
/* The same byte for byte. */
ssize_t match_exact(const char *text, size_t num_bytes, struct span at);
/* The beginning of a Markdown fence with the white space behind it, "```json\n"; 0: there is none. */
ssize_t match_fence(struct span at);
/* How many bytes of white space stand here, MATCH_SPACES_MAX + 1 for more than a mark has around it. */
size_t match_count_spaces(struct span at);
/* The same; MATCH_MORE when the answer ends with it. */
ssize_t match_spaces(struct span at);
static inline struct span span_from(struct span s, size_t n)
{
    return (struct span){s.bytes + n, s.num_bytes - n, s.is_whole};
}

#endif
