/* sampling.h - how a token is drawn and what is reported of it: the one form in which both travel, from the
 * API's validator to the device and back. Plain data without pointers; no other header. */
#ifndef LINK_SAMPLING_H
#define LINK_SAMPLING_H

#include <stdint.h>

enum { TOP_LOGPROBS_MAX = 20 }; /* alternatives reported for a position */
enum { LOGIT_BIAS_MAX = 1024 }; /* entries of a request's logit_bias */

struct sampling {
    float temperature;        /* 0: greedy (argmax, ties to the lowest id) */
    float top_p;              /* (0,1]; 1: off */
    float min_p;              /* [0,1]; 0: off */
    int32_t top_k;            /* 0: off */
    float presence_penalty;   /* over generated tokens; 0: off */
    float frequency_penalty;  /* over generated tokens; 0: off */
    float repetition_penalty; /* over prompt and generated tokens; 1: off */
    int32_t num_logprobs;     /* -1: none; 0: of the token only; else the k best beside it */
    uint64_t seed;            /* with a token's position: the whole state of the generator */
};

/* Penalties look at what came before. */
static inline int sampling_uses_history(const struct sampling *s)
{
    return s->presence_penalty != 0 || s->frequency_penalty != 0 || s->repetition_penalty != 1;
}

struct logit_bias {
    int32_t token_id; /* in [0, vocab_size) */
    float bias;       /* added to the logit; -INFINITY bans the token */
};

/* The log probabilities of one position. They are of the model's own distribution: log softmax of the raw
 * logits in f32, before penalties, bias, temperature and truncation. */
struct token_logprobs {
    float logprob;
    int32_t num_top; /* entries filled in below, highest first, ties by lower id; or the ids that were asked
                        for, as they stand there */
    int32_t top_ids[TOP_LOGPROBS_MAX];
    float top_logprobs[TOP_LOGPROBS_MAX];
};

/* A request may ask for one row of floats instead of an answer's tokens: the model's hidden states behind its final
 * norm, or logits. */
enum pooling {
    POOLING_NONE,
    POOLING_LAST,   /* the hidden state of the prompt's last token */
    POOLING_MEAN,   /* the mean of all the prompt's; summed in the order of positions, in double */
    POOLING_LOGITS, /* the logits behind the prompt, of a few tokens */
    POOLING_FIRST,  /* the hidden state of the first token */
};

/* Which rows of a prompt it takes: [begin, end). */
static inline int32_t pooling_begin(enum pooling pooling, int32_t num_prompt)
{
    return pooling == POOLING_MEAN || pooling == POOLING_FIRST ? 0 : num_prompt - 1;
}

static inline int32_t pooling_end(enum pooling pooling, int32_t num_prompt)
{
    return pooling == POOLING_FIRST ? 1 : num_prompt;
}

enum {
    ROW_FLOATS_MAX = 16384, /* the widest row: no hidden size is larger */
    ROW_LOGITS_MAX = 8      /* tokens of POOLING_LOGITS */
};

enum { ANSWER_HEADER_MAX = 16 }; /* tokens with which a chat template begins an answer */
enum { EOS_IDS_MAX = 16 };       /* tokens of a model that end an answer */

/* Why the prefix cache did not have more of a prompt. */
enum cache_miss_reason {
    CACHE_MISS_NONE,    /* it had all that it can have, or was not asked */
    CACHE_MISS_NEW,     /* nothing is known that goes on from there */
    CACHE_MISS_DIFFERS, /* what went on from there had another token */
    CACHE_MISS_EVICTED, /* it was there and had to make room */
};

struct cache_miss {
    enum cache_miss_reason reason;
    int32_t position; /* of the first token that differs; of the first one missed */
};

/* What a request gets when it does not say (generation_config.json, a GGUF file's general.sampling). A negative value: not given. */
struct generation_defaults {
    float temperature, top_p, min_p, repetition_penalty;
    int32_t top_k, max_new_tokens;
};

#endif
