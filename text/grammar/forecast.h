/* forecast.h - what an answer is expected to go on with, because its form leaves no choice: the bytes that must come next, with the
 * white space that may stand between them where the answer has put it so far (spacing.h).
 *
 * A guess: whoever uses it lets the form and the model decide. Bounded work. Thread: any; all is only read. */
#ifndef TEXT_GRAMMAR_FORECAST_H
#define TEXT_GRAMMAR_FORECAST_H

#include <stddef.h>
#include <stdint.h>

#include "text/grammar/matcher.h"
#include "text/grammar/spacing.h"
#include "text/grammar/vocabulary.h"

enum { FORECAST_BYTES_MAX = 128 };

/* Writes at most FORECAST_BYTES_MAX of them and returns how many. They may end within a character. */
size_t forecast_text(const struct matcher *m, const struct spacing *s, char *out);

/* Such a text in tokens, each the longest that there is, where nobody knows better: at most max ids. Returns how many. */
int32_t forecast_tokens(const struct vocabulary *v, const char *text, size_t num_bytes, int32_t *ids,
                        int32_t max);

#endif
