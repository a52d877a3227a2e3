/* request.h - what one client asks for, as HTTP bytes and as the engine must be told of it. */
#ifndef TESTS_SIM_REQUEST_H
#define TESTS_SIM_REQUEST_H

#include "sim/net.h"

enum { PROMPTS_MAX = 2, STOPS_MAX = 2, CHOICES_MAX = 4, SILENT_ID = FAKE_VOCAB - 1 };

#define SILENT_IDS ((uint64_t)1 << SILENT_ID)

/* Why a request must be refused whatever else happens. */
enum request_flaw { FLAW_NONE, FLAW_TOO_LONG, FLAW_BAD_FIELD, FLAW_BAD_KEY, FLAW_TOO_MANY };

enum { PREDICTION_BYTES_MAX = 300 };

struct request {
    int client_idx, idx;
    char id[24];
    enum request_flaw flaw;
    int num_prompts, n;
    int32_t num_prompt[PROMPTS_MAX];
    int32_t prompt[PROMPTS_MAX][PROMPT_MAX];
    int32_t max_tokens, min_tokens, top_k, num_logprobs; /* num_logprobs -1: none */
    float temperature, frequency_penalty, repetition_penalty;
    bool embeds; /* rows instead of answers */
    bool stream, echo, include_usage, ignore_eos, include_stop, has_seed, close_after;
    int64_t seed;
    int num_stops;
    char stops[STOPS_MAX][8];
    int32_t stop_token_id; /* -1: none */
    int32_t bias_id;       /* -1: none */
    int32_t bias;
    int form;                                  /* form.h; 0: none */
    char prediction[PREDICTION_BYTES_MAX + 1]; /* of the answer's text; "": none */
    int key, salt;                             /* salt 0: none */
    int padding_bytes;
    int32_t priority, timeout_ms;    /* timeout_ms 0: none */
    bool is_poison, kills_at_launch; /* or when the step runs */
    int32_t fatal_offset;            /* of the token that kills, from the prompt's end; may be negative */
    /* what became of it */
    bool sent, was_submitted;
    uint64_t sent_ns;
    uint64_t failed_allocations_before;
    int num_records;
    char record_reason[24];
    uint64_t used_seed; /* as the server says */
    int32_t num_preemptions;
    bool was_handed_over;    /* with tokens published, to another engine */
    bool failed_by_recovery; /* the engine dies of it */
};

/* r is one of an array: it may go on where the one before it ended. */
void request_make(struct request *r, struct rng *rng, int client_idx, int idx);
/* Appends head and body. */
void request_append_http(const struct request *r, struct bytes *out);
/* What choice i of a prompt means for the engine. seed: of the whole request. */
struct expected_input {
    struct request_slot_input input;
    struct logit_bias logit_bias[2];
    int form;
};
void request_expected_input(const struct request *r, int prompt_idx, int i, uint64_t seed,
                            struct expected_input *out);
/* Where the engine dies of it; -1: nowhere. */
int32_t request_fatal_position(const struct request *r, int32_t num_prompt);
int request_num_sequences(const struct request *r);
/* Requests that may share K and V have equal numbers. */
uint32_t request_tenant(const struct request *r);
/* client.c: the request of this id, as it stands in x-request-id. */
struct request *request_find(const char *id);

/* ---- answer.c: what it gives alone ---- */

/* SOLO_STUCK: no token goes on with its form. */
enum solo_end { SOLO_STOP, SOLO_LENGTH, SOLO_BAD_ROW, SOLO_TOO_BIG, SOLO_STUCK };

struct solo {
    enum solo_end end;
    bool by_form; /* SOLO_STOP, but without a token: nothing may follow */
    int32_t num_tokens;
    int32_t tokens[MODEL_LEN];
    float row[FAKE_HIDDEN];    /* with pooling */
    float logprobs[MODEL_LEN]; /* by position; [0] unused */
};

void solo_run(const struct expected_input *expected, const int32_t *prompt, struct solo *out);

struct response;
/* A whole response, or what came of it when the connection ended before. */
void answer_check(const struct request *r, const struct response *response);

#endif
