#include "config/closest.h"

#include <string.h>

#include "base/check.h"

enum { WORD_BYTES_MAX = 64, PREFIX_BYTES_MIN = 4, SLIPS_MAX = 3 };

/* Letters left out, put in, replaced or swapped with their neighbour: the distance of optimal string
 * alignment. */
static size_t count_slips(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    size_t rows[3][WORD_BYTES_MAX + 1]; /* of i - 2, i - 1 and i letters of a */
    for (size_t j = 0; j <= b_bytes; j++) rows[0][j] = j;
    for (size_t i = 1; i <= a_bytes; i++) {
        size_t *row = rows[i % 3], *before = rows[(i + 2) % 3], *two_before = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_bytes; j++) {
            row[j] = min_of(before[j], row[j - 1]) + 1;
            row[j] = min_of(row[j], before[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = min_of(row[j], two_before[j - 2] + 1);
        }
    }
    return rows[a_bytes % 3][b_bytes];
}

/* Every letter that one word has more than the other is a slip. */
static bool can_be_closer(size_t a_bytes, size_t b_bytes, size_t fewest)
{
    return max_of(a_bytes, b_bytes) - min_of(a_bytes, b_bytes) < fewest;
}

const char *closest_word(const char *typed, size_t n, const char *const *words, size_t count)
{
    const char *closest = NULL;
    size_t fewest = min_of(n / 3, (size_t)SLIPS_MAX) + 1; /* not as many */
    if (n > WORD_BYTES_MAX) return NULL;
    for (size_t i = 0; i < count; i++) {
        size_t word_bytes = words[i] ? strlen(words[i]) : 0;
        if (word_bytes == 0 || word_bytes > WORD_BYTES_MAX) continue;
        bool begins = n >= PREFIX_BYTES_MIN && !strncmp(words[i], typed, n);
        if (!begins && !can_be_closer(n, word_bytes, fewest)) continue;
        size_t slips = begins ? 1 : count_slips(typed, n, words[i], word_bytes);
        if (slips >= fewest) continue;
        fewest = slips;
        closest = words[i];
    }
    return closest;
}
