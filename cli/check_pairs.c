#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "cli/check_request.h"

/* A control is asked for after each pair, and must be what it was. */
#define CONTROL "\"temperature\":0,\"max_tokens\":4"

/* Beside messages and a max_tokens of 1, so that no value makes an answer long. */
static const char *const fields[] = {"temperature",
                                     "top_p",
                                     "n",
                                     "stop",
                                     "seed",
                                     "stream",
                                     "logprobs",
                                     "top_logprobs",
                                     "logit_bias",
                                     "user",
                                     "presence_penalty",
                                     "frequency_penalty",
                                     "tools",
                                     "tool_choice",
                                     "metadata",
                                     "stream_options",
                                     "response_format",
                                     "parallel_tool_calls"};

static const char *const values[] = {"null",
                                     "true",
                                     "false",
                                     "0",
                                     "-1",
                                     "1",
                                     "1.5",
                                     "1e308",
                                     "-9223372036854775808",
                                     "\"\"",
                                     "\"1\"",
                                     "\"none\"",
                                     "\"x\\u0000y\"",
                                     "\"\\ud83d\\ude00\\ud83d\\ude00\"",
                                     "\"\\ud83d\"",
                                     "[]",
                                     "[1,2]",
                                     "[\"a\",\"\"]",
                                     "[[]]",
                                     "[null]",
                                     "{}",
                                     "{\"a\":{\"b\":[]}}",
                                     "{\"5\":1}",
                                     "{\"type\":\"json_schema\"}",
                                     "{\"type\":\"function\"}",
                                     "[{\"type\":\"function\",\"function\":{}}]"};

struct pair {
    const char *field[2], *value[2];
};

/* Two fields that are not the same, a value each. */
static struct pair choose_pair(const struct check *c, int64_t index)
{
    struct rng_block draw = rng_philox((uint64_t)c->seed, (uint64_t)index, 0);
    size_t first = draw.word[0] % array_length(fields);
    size_t step = 1 + draw.word[1] % (array_length(fields) - 1);
    return (struct pair){
        {fields[first], fields[(first + step) % array_length(fields)]},
        {values[draw.word[2] % array_length(values)], values[draw.word[3] % array_length(values)]}};
}

static int check_reaction(const struct check_answer *a, struct error *why)
{
    if (a->http_status == 200 && !a->problem[0]) return check_is_answer(a, why);
    if (a->http_status >= 400 && a->http_status < 500 && a->problem[0]) return STATUS_OK;
    if (a->http_status >= 400 && a->http_status < 500)
        return error_set(why, STATUS_INVALID, "status %d without an error object with a message",
                         a->http_status);
    return error_set(why, STATUS_INVALID, "status %d %s", a->http_status, a->problem);
}

static int check_pair(const struct check *c, const struct pair *p, struct error *why)
{
    char members[512];
    struct check_answer a;
    struct error found = {0};
    snprintf(members, sizeof members, "\"max_tokens\":1,\"%s\":%s,\"%s\":%s", p->field[0], p->value[0],
             p->field[1], p->value[1]);
    check_ask_prompt(c, CHAT, "Hello.", members, &a);
    int status = check_reaction(&a, &found);
    check_answer_deinit(&a);
    return status ? error_set(why, status, "%.200s: %.200s", members, found.text) : STATUS_OK;
}

static int check_control(const struct check *c, const struct check_answer *before, const struct pair *p,
                         struct error *why)
{
    struct check_answer a;
    struct error found = {0};
    check_ask_prompt(c, CHAT, "Hello.", CONTROL, &a);
    int status = check_is_answer(&a, &found);
    if (!status) status = check_is_same(before, &a, "before and after", &found);
    check_answer_deinit(&a);
    return !status ? STATUS_OK
                   : error_set(why, status, "after \"%s\":%s,\"%s\":%s: %.200s", p->field[0], p->value[0],
                               p->field[1], p->value[1], found.text);
}

static int pairs_do_no_harm(const struct check *c, struct error *why)
{
    struct check_answer before;
    check_ask_prompt(c, CHAT, "Hello.", CONTROL, &before);
    int status = check_is_answer(&before, why);
    for (int64_t i = 0; i < c->num_pairs && !status; i++) {
        struct pair pair = choose_pair(c, i);
        status = check_pair(c, &pair, why);
        if (!status) status = check_control(c, &before, &pair, why);
    }
    check_answer_deinit(&before);
    return status;
}

const struct check_row check_pair_rows[] = {
    {"pairs of hostile fields: answered or refused, and the next is as ever", pairs_do_no_harm},
    {.name = NULL}};
