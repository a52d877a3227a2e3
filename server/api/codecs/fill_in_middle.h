/* fill_in_middle.h - a gap in a text as a prompt: what stands around it between the model's own control tokens (text/fim_tokens.h).
 *
 *   [BOS] [REPOSITORY name FILE name text ... FILE name] PREFIX before SUFFIX behind MIDDLE begun
 *
 * Texts are the client's: control tokens in them are plain text. Where all of it has no room beside the answer, the oldest
 * of what stands beside goes first, then what is far from the gap, three quarters of the room being what is before it.
 * Thread: any. */
#ifndef SERVER_API_CODECS_FILL_IN_MIDDLE_H
#define SERVER_API_CODECS_FILL_IN_MIDDLE_H

#include "server/api/codec.h"

struct gap {
    const cJSON *before, *behind; /* strings */
    const cJSON *begun;           /* a string that the answer goes on from; NULL: none */
    const cJSON *extra;           /* an array of {filename, text}, the oldest first; NULL: none */
};

/* The body's prompt, and in stop_token_ids what ends an answer there. param: what the client calls before. */
int fill_in_middle(struct translation *t, const struct gap *gap, const char *param) must_check;

/* OpenAI's suffix of a text completion, where the body has one. */
int fill_in_middle_read_suffix(struct translation *t) must_check;

#endif
