/* request_metrics.h - what the metrics page says of requests, tokens and the engine.
 *
 * Names that begin with vllm: have vLLM's meaning, labels and bucket bounds (with finer ones below where its
 * first bucket says nothing on fast hardware); flashd_ names are our own. Most of them count sequences
 * (choices), as vLLM does; the ledger flashd_requests_admitted_total == sum of flashd_requests_finished_total
 * + flashd_requests_in_flight counts requests and holds at every moment. Times of tokens are the engine's,
 * which a client that reads slowly does not spoil; what a client sees of its stream has names of its own
 * (flashd_stream_...). Thread: the loop's. */
#ifndef SERVER_API_REQUEST_METRICS_H
#define SERVER_API_REQUEST_METRICS_H

#include "server/api/choice.h"
#include "server/server.h"

enum outcome {
    OUTCOME_DONE,         /* answered to the end */
    OUTCOME_CLIENT_GONE,  /* the client left, or read too slowly */
    OUTCOME_ENGINE_FAULT, /* the engine failed it */
    OUTCOME_ABORTED,      /* draining timed out, the device failed, or its form went past a limit */
    OUTCOME_MOVED,        /* another process goes on with it, and tells of it in the end */
    NUM_OUTCOMES,
};

extern const char *const outcome_names[NUM_OUTCOMES];

/* Once, when the model is known. */
void request_metrics_register(struct server *server, const char *const *phase_names,
                              const double *phase_seconds, int num_phases);

/* There are other adapters than before. */
void request_metrics_tell_loras(const struct server *server);

void request_metrics_count_admitted(void);
void request_metrics_count_prompt(int32_t num_tokens, int32_t num_cached_tokens);
/* num_new tokens were taken; num_gaps of them came one after another from from_ns to to_ns. */
void request_metrics_count_tokens(int num_new, int num_gaps, uint64_t from_ns, uint64_t to_ns);
void request_metrics_observe_first_token(uint64_t arrival_ns, uint64_t first_token_ns);
/* num_new tokens of a stream went to its socket; previous_ns: when others did, 0: these are the first. */
void request_metrics_observe_write(int num_new, uint64_t previous_ns, uint64_t arrival_ns, uint64_t now_ns);
void request_metrics_observe_choice(const struct choice *c, int32_t n, uint64_t arrival_ns, uint64_t now_ns,
                                    enum outcome outcome);
void request_metrics_count_finished(enum outcome outcome, int32_t most_generated_tokens);

/* Gauges and engine totals, before the page is rendered. */
void request_metrics_refresh(const struct server *server, int num_in_flight);

#endif
