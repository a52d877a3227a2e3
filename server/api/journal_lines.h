/* journal_lines.h - what the journal keeps of a request (--journal): two lines, each a JSON object.
 *
 *   {"type": "request", "entry": "CHAIN-SERIAL", "time": seconds, "request_id": ..., "key": its name, "path": ...,
 *    "id": the answer's, "seed": "17", "body": {...}}                    when it is admitted, as it came
 *   {"type": "answer", "entry": the same, "outcome": "done", "receipt": {...}}           when it has ended, however
 *
 * Only answers that are complete have a receipt (receipt.h). API keys are in neither. Thread: the loop's. */
#ifndef SERVER_API_JOURNAL_LINES_H
#define SERVER_API_JOURNAL_LINES_H

#include "server/api/generation.h"

/* Once its seed and its answer's id are chosen. */
void journal_tell_request(const struct generation *g, const char *body, size_t body_bytes);
void journal_tell_answer(const struct generation *g, const char *outcome);

#endif
