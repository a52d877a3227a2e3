/* facts.h - what the front has to know of the model and of the engine's limits, as one struct: the engine
 * writes it when it has loaded, and whoever wants to know reads it there. Plain data without pointers. */
#ifndef LINK_FACTS_H
#define LINK_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#include "link/sampling.h"
#include "link/tasks.h"

enum { LINK_TEXT_BYTES = 192 };

/* What the start of an engine takes its time for, in order. */
enum load_phase { LOAD_FILES, LOAD_DEVICE, LOAD_WEIGHTS, LOAD_POOL, LOAD_ENGINE, LOAD_PHASES };

struct link_facts {
    /* the model's */
    char family[16];
    uint64_t num_parameters;
    bool is_gguf;           /* one file, not a directory */
    int32_t vocab_size;     /* the width of the logits */
    int32_t embedding_size; /* values of an embedding */
    enum pooling
        pooling; /* of an embedding, FIRST, LAST or MEAN; NONE: the model's files ask for one that there is not */
    struct tasks tasks; /* that an embedding may be for */
    bool is_reranker;   /* the model's file says so */
    bool is_encoder;    /* it makes embeddings and nothing else, */
    bool scores_pairs, scores_are_plain,
        has_second_type;        /* or scores of pairs, by its head: their sigmoid unless they are plain; and
                                                           the second text's tokens have a type of their own */
    enum pooling score_pooling; /* what that head gets */
    int32_t eos_ids[EOS_IDS_MAX], num_eos_ids;
    struct generation_defaults generation;
    /* the engine's: what the options left open is decided */
    int32_t num_slots;
    int32_t model_positions; /* that the model was made for: what --max-model-len may be at most */
    int32_t max_model_len, max_num_seqs, max_num_batched_tokens;
    int32_t block_size, num_blocks;
    int32_t num_guess_tokens;   /* of an answer with a form (request_slots.h) */
    uint64_t max_queued_tokens; /* 0: no limit */
    bool measures_energy;
    bool keeps_packed; /* there is no room for all weights as bf16 (kernels/device.h) */
    bool keeps_copies; /* there is room for packed weights and the same as bf16 */
    char device[LINK_TEXT_BYTES];
};

#endif
