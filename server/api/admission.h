/* admission.h - whether one more request may come in: what waits is bounded, and nothing else.
 *
 * A sequence waits until its first step begins. Slots bound how many there are (--max-num-seqs that run plus
 * --max-queued-requests that wait), --max-queued-tokens bounds the prompt tokens of those that wait. What
 * running sequences may still generate counts for nothing: the scheduler sees to it that they share the K/V
 * cache. Past a limit the answer is 429 before any work is done, with the time after which room is expected
 * (backlog.h). Thread: the loop's. */
#ifndef SERVER_API_ADMISSION_H
#define SERVER_API_ADMISSION_H

#include "server/api/api_error.h"
#include "server/server.h"

struct generation;

/* Without max_tokens an answer may fill the context, but few do: it is expected to have as many as this. */
enum { TYPICAL_ANSWER_TOKENS = 256 };

/* When there will be room, of all or of one key: all that is in flight is looked at. Many are refused at once, and are told
 * the same for a quarter of a second. */
struct room_estimate {
    uint64_t made_ns; /* 0: never */
    int retry_after_seconds;
};

struct admission {
    uint64_t num_submitted, submitted_prompt_tokens; /* sequences, ever */
    double answer_share;                             /* of what answers may have, what they have had lately */
    struct room_estimate room;
};

void admission_init(struct admission *a);

/* 0, or 429 (or 400 when it could never be admitted) in err. Submits nothing. */
int admission_check(struct admission *a, const struct server *server, int32_t num_sequences,
                    uint64_t num_prompt_tokens, struct api_error *err) must_check;

/* 503 while loading, draining or failed; 429 when not even one sequence fits: known before the body is read.
 */
int admission_check_early(struct admission *a, const struct server *server, struct api_error *err) must_check;

/* Seconds until so many of this key's sequences have ended, 1 at least. room: the key's. */
int admission_retry_after(const struct admission *a, const struct server *server, int api_key_idx,
                          int32_t num_missing, struct room_estimate *room);

/* Before its slots go to the engine. */
void admission_count_submitted(struct admission *a, const struct generation *g);
/* An answer came to its end: estimates learn from its length. */
void admission_learn(struct admission *a, const struct generation *g);

/* An engine has died, perhaps between a sequence's first step and its count: what waits is counted anew. */
void admission_recount(struct admission *a, const struct server *server);

/* Waiting, right now. */
uint64_t admission_num_waiting(const struct admission *a, const struct link_stats *stats);
/* The prompt tokens of this key's sequences that wait, of all tenants (0) or of one, and how many of all keys may;
 * UINT64_MAX: any. */
uint64_t admission_num_waiting_tokens(const struct server *server, int api_key_idx, uint64_t tenant);
uint64_t admission_token_limit(const struct server *server);

#endif
