/* pretokenizer.h - cuts a text into the pieces that the merges never cross.
 *
 * Each kind is a regular expression of a known model written as a matcher by hand: linear time, no
 * backtracking stack. Stages are applied one after another, each to the pieces of the one before; what an
 * expression does not match is a piece, too. Thread: any.
 */
#ifndef TEXT_TOKENIZER_PRETOKENIZER_H
#define TEXT_TOKENIZER_PRETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "text/tokenizer/char_run.h"

enum pretokenizer_kind {
    PRETOKENIZE_GPT2,
    PRETOKENIZE_LLAMA3,     /* numbers in threes */
    PRETOKENIZE_QWEN2,      /* as Llama 3, each digit by itself */
    PRETOKENIZE_MINICPM5,   /* as Llama 3, numbers whole */
    PRETOKENIZE_QWEN35,     /* as Qwen 2, marks are letters */
    PRETOKENIZE_TEKKEN,     /* Mistral Nemo: also between lower and upper case */
    PRETOKENIZE_O200K,      /* as tekken, contractions with their word, numbers in threes */
    PRETOKENIZE_YOUTU,      /* as o200k, each digit by itself */
    PRETOKENIZE_KIMI,       /* as o200k, runs of Chinese characters by themselves */
    PRETOKENIZE_EXAONE_MOE, /* as Qwen 2, words with marks and with single spaces between them in one piece */
    PRETOKENIZE_UFAKZEKA,   /* as Qwen 2, without contractions */
    PRETOKENIZE_JAIS2,      /* as Llama 3, runs of spaces by powers of two */
    PRETOKENIZE_SEED,       /* Seed-Coder: as Qwen 2, line breaks apart from what stands before them */
    PRETOKENIZE_DEEPSEEK3,  /* words may begin with one character of ASCII's punctuation; numbers are gone */
    PRETOKENIZE_SPARK,      /* as DeepSeek V3, line breaks each by itself */
    PRETOKENIZE_SPACES_END, /* white space at the end */
    PRETOKENIZE_RUN,        /* each match of the stage's char_run */
    PRETOKENIZE_DIGITS,     /* each digit by itself, the text between in one */
    PRETOKENIZE_NUMBERS,    /* runs of digits, the text between in one */
    PRETOKENIZE_THREES,     /* digits in threes, counted from a run's end, the text between in one */
    PRETOKENIZE_DECIMAL_THREES, /* the same of decimals alone, what else a number has stays beside them */
    PRETOKENIZE_WORD_THREES,    /* the same of runs that end where a word does */
    PRETOKENIZE_THREE_DIGITS,   /* each three of ASCII's digits, the text between in one */
    PRETOKENIZE_PUNCTUATION, /* each character of ASCII's punctuation or Unicode's, the text between in one */
    PRETOKENIZE_PUNCTUATION_RUNS,
    PRETOKENIZE_METASPACE,  /* before each U+2581 */
    PRETOKENIZE_META_WORDS, /* before each run of U+2581 */
    PRETOKENIZE_BERT,       /* punctuation by itself, runs of white space, and what is between */
};

enum { PRETOKENIZER_STAGES_MAX = 8 };

struct pretokenizer {
    int num_stages;
    enum pretokenizer_kind stages[PRETOKENIZER_STAGES_MAX];
    struct char_run runs[PRETOKENIZER_STAGES_MAX]; /* of the stages that are PRETOKENIZE_RUN */
};

/* Adds a stage; false when there are too many. */
bool pretokenizer_add(struct pretokenizer *p, enum pretokenizer_kind kind);

/* Adds the stage whose regular expression this is: a char_run, or one spelled as in the known models' files (a
 * line break may stand there as it is). False when it is none. */
bool pretokenizer_add_regex(struct pretokenizer *p, const char *regex);

/* Whether the last stage's expression matches every text everywhere, so that nothing is between its matches. */
bool pretokenizer_leaves_nothing(const struct pretokenizer *p);

/* A walk over the pieces of a text, which cover it without gaps. */
struct piece_walk {
    const struct pretokenizer *pretokenizer;
    const unsigned char *begin, *at;
    const unsigned char
        *ends[PRETOKENIZER_STAGES_MAX + 1]; /* of the text, then of the current piece of each stage */
};
struct piece_walk piece_walk_start(const struct pretokenizer *p, const char *text, size_t num_bytes);
bool piece_walk_next(struct piece_walk *w, const char **piece, size_t *num_bytes);

#endif
