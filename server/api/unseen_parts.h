/* unseen_parts.h - what a tool has given back that is no text: a picture, a sound, a file.
 *
 * It is no question of the user's, and the agent that sends it sends it again in each later turn: a short text stands in its
 * place, so that the model knows that there was something. Thread: any. */
#ifndef SERVER_API_UNSEEN_PARTS_H
#define SERVER_API_UNSEEN_PARTS_H

#include <stdbool.h>

#include <cjson/cJSON.h>

/* Makes text of the parts of a tool's message whose type is another; what has a text keeps it, and *num_unseen counts the rest.
 * What is no part at all stays for the check behind it, as does content that is no list. False: out of memory. */
bool unseen_parts_settle(cJSON *message, int *num_unseen);

#endif
