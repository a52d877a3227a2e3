/* check_request.h - what probes ask, and what each answer must be. Thread: any, one answer each. */
#ifndef CLI_CHECK_REQUEST_H
#define CLI_CHECK_REQUEST_H

#include "cli/check_answer.h"
#include "cli/check_probes.h"

#define CHAT "/v1/chat/completions"
#define COMPLETIONS "/v1/completions"
#define GREEDY "\"temperature\":0,\"max_tokens\":20"
#define STREAMED ",\"stream\":true,\"stream_options\":{\"include_usage\":true}"

/* members: of the body behind the model's. check_answer_deinit(a) in the end. */
void check_ask_members(const struct check *c, const char *path, const char *members, struct check_answer *a);

/* prompt: of letters that JSON holds as they are; a chat's only message, or a completion's prompt. */
void check_ask_prompt(const struct check *c, const char *path, const char *prompt, const char *members,
                      struct check_answer *a);

/* 200, and a text that has ended. */
int check_is_answer(const struct check_answer *a, struct error *why);

/* The same; STATUS_UNSUPPORTED where the server says that it has no such thing. */
int check_is_offered(const struct check_answer *a, struct error *why);

/* The same text and the same end; what says of which two. */
int check_is_same(const struct check_answer *a, const struct check_answer *b, const char *what,
                  struct error *why);

#endif
