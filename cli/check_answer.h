/* check_answer.h - one request to a server of OpenAI's protocol, and its answer in one form, streamed or not. Thread: any, one
 * answer each. */
#ifndef CLI_CHECK_ANSWER_H
#define CLI_CHECK_ANSWER_H

#include <stdint.h>

#include <cjson/cJSON.h>

#include "cli/http_client.h"

enum { CHECK_CHOICES_MAX = 4 };

struct check_answer {
    int http_status;   /* 0: none came */
    char problem[256]; /* the server's sentence, or why none came; "": none */
    struct buffer raw;
    cJSON *json; /* of the whole body; NULL: it is a stream, or no JSON */
    struct {
        struct buffer text; /* reasoning and content; data NULL: none */
        size_t num_reasoning_bytes;
        char finish_reason[24];
    } choices[CHECK_CHOICES_MAX]; /* by their index */
    struct {
        struct buffer name, arguments; /* of the first one of the first choice */
        bool has_id;
        int count;
    } call;
    int num_choices;                                        /* the largest index that came, and one */
    int64_t prompt_tokens, completion_tokens, total_tokens; /* -1: not told */
    bool done;                                              /* [DONE] came last, and once */
};

/* body: JSON; NULL: GET. check_answer_deinit in the end. */
void check_ask(const struct http_client *client, const char *path, const char *body, struct check_answer *a);
void check_answer_deinit(struct check_answer *a);

/* Of a choice, "" where it has none. */
const char *check_text(const struct check_answer *a, int choice);

/* Of the first choice, without its reasoning. */
const char *check_content(const struct check_answer *a);

#endif
