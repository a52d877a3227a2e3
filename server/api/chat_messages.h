/* chat_messages.h - a chat body as the variables of the model's template.
 *
 * Messages are checked (role, content, parts), content becomes a string or a list of text parts as the
 * template reads it, and the variables that Hugging Face's apply_chat_template defines are put beside them.
 * What the client sends is data to the template, never source, and cannot name one of the trusted variables.
 * Thread: any. */
#ifndef SERVER_API_CHAT_MESSAGES_H
#define SERVER_API_CHAT_MESSAGES_H

#include "server/api/chat_tools.h"
#include "server/api/chat_turns.h"
#include "server/api/params.h"

struct chat_context {
    cJSON *json; /* the template's variables */
    bool wants_parts;
    int num_unseen;     /* parts of tools' results that are no text: unseen_parts.h */
    cJSON *given_tools; /* the list before it was changed; NULL: it was not, or there is none */
    char *final_text;   /* content of the last message, for continue_final_message; NULL else */
};

/* Names of the variables whose text counts as the template's own. NULL-terminated. */
extern const char *const chat_context_trusted[];

/* Moves what it needs out of body. On failure too, chat_context_deinit is due. */
int chat_context_init(struct chat_context *c, const struct server *server, const struct params *params,
                      cJSON *body, int64_t now_seconds, struct api_error *err) must_check;
/* What is done for a template that has refused, one after the other. Ids come first; then what tools lack, which is taken back
 * where it was not the reason, so that the list of tools stays the same for all turns of a conversation; then the messages, and
 * at last both. */
enum context_change {
    CONTEXT_IDS,         /* TURNS_NUMBERED */
    CONTEXT_TOOLS_WHOLE, /* TOOLS_WHOLE; without tools the list is empty, where there was none */
    CONTEXT_TOOLS_PLAIN, /* TOOLS_PLAIN */
    CONTEXT_TURNS,       /* tools as they were, TURNS_JOINED; and so on */
    CONTEXT_BOTH_WHOLE = CONTEXT_TURNS + NUM_TURNS_CHANGES - TURNS_JOINED,
    CONTEXT_BOTH_PLAIN,
    NUM_CONTEXT_CHANGES,
};
/* Whether anything has changed. */
bool chat_context_change(struct chat_context *c, enum context_change change, int64_t now_seconds);
/* Whether it may help a template that has done too much: those that take a tool's types apart may do so without end. */
static inline bool chat_context_is_about_tools(enum context_change change)
{
    return change == CONTEXT_TOOLS_WHOLE || change == CONTEXT_TOOLS_PLAIN;
}
/* For messages that have no room: chat_turns_drop. */
int chat_context_drop(struct chat_context *c, double share);
void chat_context_deinit(struct chat_context *c);

#endif
