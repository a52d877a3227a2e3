/* chat_messages.h - a chat body as the variables of the model's template.
 *
 * Messages are checked (role, content, parts), content becomes a string or a list of text parts as the
 * template reads it, and the variables that Hugging Face's apply_chat_template defines are put beside them.
 * What the client sends is data to the template, never source, and cannot name one of the trusted variables.
 * Thread: any. */
#ifndef SERVER_API_CHAT_MESSAGES_H
#define SERVER_API_CHAT_MESSAGES_H

#include "server/api/chat_turns.h"
#include "server/api/params.h"

struct chat_context {
    cJSON *json; /* the template's variables */
    bool wants_parts;
    char *final_text; /* content of the last message, for continue_final_message; NULL else */
};

/* Names of the variables whose text counts as the template's own. NULL-terminated. */
extern const char *const chat_context_trusted[];

/* Moves what it needs out of body. On failure too, chat_context_deinit is due. */
int chat_context_init(struct chat_context *c, const struct server *server, const struct params *params,
                      cJSON *body, int64_t now_seconds, struct api_error *err) must_check;
/* For a template that has refused the messages. Whether anything has changed. */
bool chat_context_change(struct chat_context *c, enum chat_turns_change change);
/* For messages that have no room: chat_turns_drop. */
int chat_context_drop(struct chat_context *c, double share);
void chat_context_deinit(struct chat_context *c);

#endif
