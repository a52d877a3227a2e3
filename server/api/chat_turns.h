/* chat_turns.h - the messages of a chat in an order and in forms that the model's template takes.
 *
 * Messages are checked and have their content in one form, a string or a list of text parts (chat_messages.h). False: nothing
 * has changed, or there was no memory; the messages are whole in any case. Thread: any. */
#ifndef SERVER_API_CHAT_TURNS_H
#define SERVER_API_CHAT_TURNS_H

#include <cjson/cJSON.h>
#include <stdbool.h>

/* The text of a message, which was not checked; of several parts the last one's. NULL: it has none. */
const char *chat_turns_text(const cJSON *message);
/* Text behind a message's content, which may be null. */
bool chat_turns_append(cJSON *message, const char *text);
/* An empty content: no parts, or no text. */
bool chat_turns_empty(cJSON *message, bool wants_parts);

/* For a template that shows one call of an answer: each further call becomes an answer of its own, behind the result of the one
 * before it. content_is_null: what such an answer's content is. False: no memory. */
bool chat_turns_split(cJSON *messages, bool wants_parts, bool content_is_null);

/* For a template that shows no results: those that no call is in front of (calls may be written in the content) become the
 * user's, in Hermes' notation. False: no memory. */
bool chat_turns_give_results_to_user(cJSON *messages, bool *changed);

/* What is done, one after the other, for a template that refuses the messages, until it takes them. */
enum chat_turns_change {
    TURNS_NUMBERED, /* calls whose ids are not what Mistral's templates want, nine letters and digits, have such, and their
                       results; those without one, too */
    TURNS_JOINED, /* system messages at the beginning become one, later ones the user's; two of the user's, or of the
                      assistant's without calls, become one */
    TURNS_RESULTS, /* results become the user's as above */
    TURNS_EMPTY, /* an assistant that says nothing stands between a result and the user, a user in front of an assistant */
    TURNS_PARTS,  /* what an assistant says who says nothing is a list with an empty text */
    TURNS_SYSTEM, /* system messages are the user's, of one message with those of the user behind them */
    NUM_TURNS_CHANGES,
};
bool chat_turns_change(cJSON *messages, enum chat_turns_change change, bool wants_parts);

/* Takes the oldest turns out (a user's message and what follows it up to the next one), until so much of all the messages' text
 * went; system messages at the beginning and the last turn stay. How many messages went. */
int chat_turns_drop(cJSON *messages, double share);

#endif
