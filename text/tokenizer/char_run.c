#include "text/tokenizer/char_run.h"

#include <string.h>

#include "text/tokenizer/unicode.h"

/* ---- parsing ---- */

static bool skip_text(const char **at, const char *text)
{
    size_t n = strlen(text);
    if (strncmp(*at, text, n) != 0) return false;
    *at += n;
    return true;
}

/* \p{X}, \s */
static bool parse_property(const char **at, struct char_run *run)
{
    static const struct {
        const char *name;
        unsigned categories, properties;
    } known[] = {
        {"\\p{L}", 1u << CATEGORY_UPPER | 1u << CATEGORY_LOWER | 1u << CATEGORY_UNCASED, 0},
        {"\\p{M}", 1u << CATEGORY_MARK, 0},
        {"\\p{N}", 1u << CATEGORY_NUMBER, 0},
        {"\\p{P}", 0, UNICODE_PUNCTUATION},
        {"\\p{S}", 0, UNICODE_SYMBOL},
        {"\\s", 1u << CATEGORY_SPACE, 0},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!skip_text(at, known[i].name)) continue;
        run->categories |= known[i].categories;
        run->properties |= known[i].properties;
        return true;
    }
    return false;
}

/* A character that stands for itself, or behind a backslash one that would not; \r and \n. */
static bool parse_character(const char **at, uint32_t *code_point)
{
    *code_point = '\r';
    if (skip_text(at, "\\r")) return true;
    *code_point = '\n';
    if (skip_text(at, "\\n")) return true;
    const bool is_escaped = (*at)[0] == '\\' && (*at)[1] && strchr("\\[](){}^&-$+*?.|~", (*at)[1]);
    if (is_escaped)
        ++*at;
    else if (!**at || strchr("\\[]^&-", **at))
        return false;
    int num_bytes;
    const unsigned char *p = (const unsigned char *)*at;
    *code_point = utf8_decode(p, p + strlen(*at), &num_bytes);
    *at += num_bytes;
    return true;
}

/* Keeps the list ascending; what touches or overlaps becomes one. */
static bool add_range(struct char_run *run, struct char_range range)
{
    int kept = 0, num_before = 0;
    for (int i = 0; i < run->num_ranges; i++) {
        struct char_range r = run->ranges[i];
        if (r.first <= range.last + 1 && range.first <= r.last + 1) {
            range.first = range.first < r.first ? range.first : r.first;
            range.last = range.last > r.last ? range.last : r.last;
            continue;
        }
        num_before += r.first < range.first;
        run->ranges[kept++] = r;
    }
    if (kept == CHAR_RANGES_MAX) return false;
    memmove(run->ranges + num_before + 1, run->ranges + num_before,
            (size_t)(kept - num_before) * sizeof range);
    run->ranges[num_before] = range;
    run->num_ranges = kept + 1;
    return true;
}

/* The sets within are part of the one around them. */
static bool parse_item(const char **at, int *depth, struct char_run *run)
{
    struct char_range range;
    if (skip_text(at, "[")) return **at != ']' && **at != ':' && ++*depth > 0;
    if (skip_text(at, "]")) return --*depth >= 0;
    if (parse_property(at, run)) return true;
    if (!parse_character(at, &range.first)) return false;
    range.last = range.first;
    if (skip_text(at, "-") && (!parse_character(at, &range.last) || range.last < range.first)) return false;
    return add_range(run, range);
}

static bool parse_set(const char **at, struct char_run *run)
{
    int depth = 1;
    if (!skip_text(at, "[")) return parse_property(at, run);
    run->is_negated = skip_text(at, "^");
    if (**at == ']') return false;
    while (depth > 0 && **at)
        if (!parse_item(at, &depth, run)) return false;
    return depth == 0;
}

static int parse_repetition(const char **at)
{
    if (skip_text(at, "+")) return INT32_MAX;
    return skip_text(at, "{1,3}") ? 3 : 1;
}

bool char_run_parse(const char *regex, struct char_run *run)
{
    *run = (struct char_run){.may_follow_space = skip_text(&regex, "\\s?"),
                             .may_follow_blank = skip_text(&regex, " ?")};
    if (!parse_set(&regex, run)) return false;
    run->num_max = parse_repetition(&regex);
    return !*regex;
}

/* ---- matching ---- */

static bool is_in_ranges(const struct char_run *run, uint32_t code_point)
{
    int low = 0, high = run->num_ranges;
    while (low < high) {
        int middle = (low + high) / 2;
        if (run->ranges[middle].last < code_point)
            low = middle + 1;
        else
            high = middle;
    }
    return low < run->num_ranges && run->ranges[low].first <= code_point;
}

bool char_run_has(const struct char_run *run, uint32_t code_point)
{
    unsigned properties = unicode_properties(code_point);
    const bool is_listed = (run->categories >> (properties & UNICODE_CATEGORY) & 1) ||
                           (run->properties & properties) || is_in_ranges(run, code_point);
    return is_listed != run->is_negated;
}

/* What of the set stands at p: p itself when nothing does. */
static const unsigned char *skip_set(const struct char_run *run, const unsigned char *p,
                                     const unsigned char *end)
{
    for (int i = 0; i < run->num_max && p < end; i++) {
        int num_bytes;
        if (!char_run_has(run, utf8_decode(p, end, &num_bytes))) break;
        p += num_bytes;
    }
    return p;
}

const unsigned char *char_run_match(const struct char_run *run, const unsigned char *p,
                                    const unsigned char *end)
{
    if (p == end) return NULL;
    const unsigned char *found;
    int num_bytes;
    unsigned properties = unicode_properties_at(p, end, &num_bytes);
    if ((run->may_follow_space && (properties & UNICODE_CATEGORY) == CATEGORY_SPACE) ||
        (run->may_follow_blank && *p == ' ')) {
        found = skip_set(run, p + num_bytes, end);
        if (found > p + num_bytes) return found;
    }
    found = skip_set(run, p, end);
    return found > p ? found : NULL;
}
