/* admission.h - whether one more request may come in: bounded in sequences and in tokens.
 *
 * A slot is a sequence that runs or waits, so free slots bound the number of sequences (--max-num-seqs plus
 * --max-queued-requests); --max-queued-tokens bounds the tokens that they may still ask for. Past either the
 * answer is 429 before any work is done, with the time after which, at the present speed, room is expected. A
 * server with nothing to do takes any request that its slots can hold. Thread: the loop's. */
#ifndef SERVER_API_ADMISSION_H
#define SERVER_API_ADMISSION_H

#include "server/api/api_error.h"
#include "server/server.h"

/* An answer without max_tokens may fill the context, but few do: it counts as this many. */
enum { TYPICAL_ANSWER_TOKENS = 256 };

/* What is in flight. */
struct admission {
    int32_t num_sequences;
    uint64_t num_tokens; /* of prompts and answers, not computed yet */
};

/* 0, or 429 (or 400 when it could never be admitted) in err. Changes nothing. */
int admission_check(const struct admission *a, const struct server *server, int32_t num_sequences,
                    uint64_t num_tokens, struct api_error *err) must_check;

/* 503 while loading, draining or failed; 429 when not even one sequence fits: known before the body is read.
 */
int admission_check_early(const struct admission *a, const struct server *server,
                          struct api_error *err) must_check;

/* Seconds until num_sequences and num_tokens more will fit, in 1..60: sequences end at the speed at which the
 * tokens in flight are worked off. Pure. */
int admission_retry_after(const struct admission *a, int32_t missing_sequences, uint64_t missing_tokens,
                          double tokens_per_second);

#endif
