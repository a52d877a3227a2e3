/* limit_params.h - allowed_token_ids and bad_words of a canonical body, as what masks are held to.
 *
 * A bad word is forbidden as it is written and behind a space, where that is another word of as many tokens, as
 * vLLM reads it. Thread: any. */
#ifndef SERVER_API_LIMIT_PARAMS_H
#define SERVER_API_LIMIT_PARAMS_H

#include <cjson/cJSON.h>

#include "server/api/api_error.h"
#include "server/api/text_stream.h"
#include "server/server.h"
#include "server/token_limits.h"

enum { BAD_WORDS_MAX = 1024 };

/* has_nul: nul_text.h. *out: NULL when there are none; else token_limits_release is due. */
int limit_params_read(const struct server *server, const cJSON *body, bool has_nul,
                      const struct token_limits **out, struct api_error *err) must_check;

#endif
