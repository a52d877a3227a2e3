/* logit_bias.h - what is added to the logits of some tokens, as clients write it.
 *
 *   {"ID": BIAS, ...}                 OpenAI's
 *   [[ID or TEXT, BIAS], ...]         llama.cpp's; a text stands for each of its tokens
 *
 * BIAS: -100 to 100; false: -100, with which a token is not drawn unless all that may be are as unlikely, so that there
 * is always something to draw. What is said of a token last counts. Thread: any. */
#ifndef SERVER_API_LOGIT_BIAS_H
#define SERVER_API_LOGIT_BIAS_H

#include <cjson/cJSON.h>

#include "link/sampling.h"
#include "server/api/api_error.h"
#include "server/server.h"

/* The body's logit_bias, where there is one: sorted by id, each once, LOGIT_BIAS_MAX at most. */
int logit_bias_read(const struct server *server, const cJSON *body, struct logit_bias *out, int32_t *num_out,
                    struct api_error *err) must_check;

#endif
