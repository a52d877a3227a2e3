/* functions.h - what OpenAI's chat had before tools: functions, function_call, and an answer that calls one of them.
 *
 * functions become tools and function_call their tool_choice; an answer makes one call at most. What earlier turns have of it
 * is read with all messages (chat_messages.c). Source: OpenAI's API reference, chat completions, deprecated fields. */
#ifndef SERVER_API_CODECS_FUNCTIONS_H
#define SERVER_API_CODECS_FUNCTIONS_H

#include "server/api/codec.h"

/* Readers of codec_chat's fields of these names, in this order. Thread: any. */
int functions_read(struct translation *t, cJSON *value) must_check;
int functions_read_choice(struct translation *t, cJSON *value) must_check;

/* Whether an answer's call is told as a function_call. */
bool functions_are_asked(const struct answer *a);

#endif
