/* prediction.h - what a client expects of an answer: OpenAI's `prediction`, {"type": "content", "content": TEXT or parts of it}.
 *
 * It changes no byte of the answer; what of it comes true makes it come sooner (engine/drafter.h). Thread: any. */
#ifndef SERVER_API_PREDICTION_H
#define SERVER_API_PREDICTION_H

#include "server/api/params.h"
#include "text/tokenizer.h"

/* Its tokens, as many as the context has room for; none where nothing is drafted. Control tokens in it are plain text. Sets
 * params->predicts. The caller frees the list, after a failure, too. */
int prediction_read(const struct server *server, struct params *params, const cJSON *body,
                    struct token_list *out, struct api_error *err) must_check;

#endif
