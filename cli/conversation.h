/* conversation.h - turns between a person at the terminal and a server: questions from standard input, answers to
 * standard output as they come, all else to standard error. Thread: the only one. */
#ifndef CLI_CONVERSATION_H
#define CLI_CONVERSATION_H

#include "cli/http_client.h"

/* Until the input ends, or /quit. model NULL: the first that the server lists. SIGINT stops an answer; at the
 * prompt it ends the conversation. */
int conversation_run(const struct http_client *client, const char *model, struct error *err) must_check;

#endif
