/* matcher_state.h - the inside of a matcher, for who computes its masks. */
#ifndef TEXT_GRAMMAR_MATCHER_STATE_H
#define TEXT_GRAMMAR_MATCHER_STATE_H

#include "base/buffer.h"
#include "text/grammar/matcher.h"
#include "text/grammar/step.h"

struct matcher {
    const struct grammar *grammar;
    struct frames frames;
    struct thread
        *threads; /* the sets behind the last tokens, one behind the other; the newest is the last */
    uint32_t num_threads, capacity;
    uint32_t begins[MATCHER_ROLLBACK_MAX + 1]; /* of the num_sets sets */
    int num_sets;
    uint32_t live_frames;                       /* after the last compaction */
    struct buffer text;                         /* of the answer, where the grammar has_unique */
    size_t text_ends[MATCHER_ROLLBACK_MAX + 1]; /* behind which of the sets */
};

static inline const struct thread *matcher_threads(const struct matcher *m, int *n)
{
    uint32_t begin = m->begins[m->num_sets - 1];
    *n = (int)(m->num_threads - begin);
    return m->threads + begin;
}

#endif
