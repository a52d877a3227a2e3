/* fim_tokens.h - the control tokens by which a model fills in the middle of a text: what stands before a gap, what stands
 * behind it, and where the answer begins.
 *
 *   PREFIX before SUFFIX behind MIDDLE answer        most models
 *   SUFFIX behind PREFIX before [MIDDLE] answer      suffix_first: Codestral, Seed-Coder
 *
 * A GGUF file's keys say which they are; otherwise the names that families gave them do. Thread: any. */
#ifndef TEXT_FIM_TOKENS_H
#define TEXT_FIM_TOKENS_H

#include "text/tokenizer.h"

enum { FIM_ENDS_MAX = 16 };

/* Ids; -1: there is none. */
struct fim_tokens {
    int32_t prefix, suffix, middle;
    int32_t repository, file; /* stand before a repository's name, and before a file's */
    bool suffix_first;
    int32_t ends[FIM_ENDS_MAX]; /* what ends an answer beside the end of a sequence */
    int num_ends;
};

/* gguf: the file that t is of; NULL: a directory. */
void fim_tokens_find(const struct tokenizer *t, const struct gguf *gguf, struct fim_tokens *out);

/* Whether a gap can be told of. */
static inline bool fim_tokens_fill(const struct fim_tokens *f)
{
    return f->prefix >= 0 && f->suffix >= 0 && (f->middle >= 0 || f->suffix_first);
}

#endif
