#include "cli/check_probes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "cli/check_request.h"

enum { SHORTEST_STOP = 3 };

static const char prompt[] = "Why is the sky blue?";

/* ---- streams ---- */

static int compare_stream(const struct check_answer *whole, const struct check_answer *stream,
                          struct error *why)
{
    int status = check_is_same(whole, stream, "whole and streamed", why);
    if (status) return status;
    if (!stream->done) return error_set(why, STATUS_INVALID, "the stream does not end with one [DONE]");
    if (whole->completion_tokens != stream->completion_tokens ||
        whole->prompt_tokens != stream->prompt_tokens)
        return error_set(why, STATUS_INVALID, "usage: %lld and %lld tokens whole, %lld and %lld streamed",
                         (long long)whole->prompt_tokens, (long long)whole->completion_tokens,
                         (long long)stream->prompt_tokens, (long long)stream->completion_tokens);
    return STATUS_OK;
}

static int stream_is_whole(const struct check *c, const char *path, struct error *why)
{
    struct check_answer whole, stream;
    check_ask_prompt(c, path, prompt, GREEDY, &whole);
    check_ask_prompt(c, path, prompt, GREEDY STREAMED, &stream);
    int status = check_is_offered(&whole, why);
    if (!status) status = check_is_answer(&stream, why);
    if (!status) status = compare_stream(&whole, &stream, why);
    check_answer_deinit(&whole);
    check_answer_deinit(&stream);
    return status;
}

static int chat_stream(const struct check *c, struct error *why)
{
    return stream_is_whole(c, CHAT, why);
}

static int completion_stream(const struct check *c, struct error *why)
{
    return stream_is_whole(c, COMPLETIONS, why);
}

/* ---- fields ---- */

/* A word from the middle of an answer, which JSON and the comparison may hold as it is; false: there is none. */
static bool find_stop(const char *text, char *stop, size_t capacity)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    for (const char *at = text + strlen(text) / 3; *at; at += strspn(at, letters)) {
        at += strcspn(at, letters);
        size_t n = strspn(at, letters);
        if (n < SHORTEST_STOP || n >= capacity) continue;
        snprintf(stop, capacity, "%.*s", (int)n, at);
        return true;
    }
    return false;
}

static int compare_stopped(const char *whole, const struct check_answer *a, const char *stop,
                           struct error *why)
{
    size_t n = (size_t)(strstr(whole, stop) - whole);
    if (!strncmp(check_text(a, 0), whole, n) && strlen(check_text(a, 0)) == n &&
        !strcmp(a->choices[0].finish_reason, "stop"))
        return STATUS_OK;
    return error_set(why, STATUS_INVALID, "stop \"%s\": \"%.80s\" (%s), where \"%.*s\" (stop) is right", stop,
                     check_text(a, 0), a->choices[0].finish_reason, (int)(n < 80 ? n : 80), whole);
}

static int stop_strings(const struct check *c, struct error *why)
{
    struct check_answer whole, stopped;
    char stop[32], members[128];
    check_ask_prompt(c, CHAT, prompt, GREEDY, &whole);
    int status = check_is_answer(&whole, why);
    if (!status && !find_stop(check_text(&whole, 0), stop, sizeof stop))
        status = error_set(why, STATUS_UNSUPPORTED, "the answer has no word to stop at");
    if (!status) {
        snprintf(members, sizeof members, GREEDY ",\"stop\":[\"zzzz\",\"%s\"]", stop);
        check_ask_prompt(c, CHAT, prompt, members, &stopped);
        status = check_is_answer(&stopped, why);
        if (!status) status = compare_stopped(check_text(&whole, 0), &stopped, stop, why);
        check_answer_deinit(&stopped);
    }
    check_answer_deinit(&whole);
    return status;
}

/* Of one token: at most 0, and the most likely ones together at most 1; greedy takes the first of them. */
static int check_token(const cJSON *token, struct error *why)
{
    const cJSON *chosen = cJSON_GetObjectItemCaseSensitive(token, "logprob"), *one;
    double sum = 0, most = -INFINITY;
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(token, "top_logprobs"))
    {
        double logprob = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(one, "logprob"));
        sum += exp(logprob);
        most = fmax(most, logprob);
    }
    if (!cJSON_IsNumber(chosen) || !(chosen->valuedouble <= 1e-4))
        return error_set(why, STATUS_INVALID, "a logprob that is none, or above 0");
    if (!(sum > 0 && sum <= 1.001))
        return error_set(why, STATUS_INVALID, "top_logprobs add up to a probability of %g", sum);
    if (fabs(most - chosen->valuedouble) > 1e-3)
        return error_set(why, STATUS_INVALID, "greedy took a token of logprob %g, the best has %g",
                         chosen->valuedouble, most);
    return STATUS_OK;
}

static int check_logprobs(const struct check_answer *a, struct error *why)
{
    const cJSON *choice = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(a->json, "choices"), 0);
    const cJSON *logprobs = cJSON_GetObjectItemCaseSensitive(choice, "logprobs");
    const cJSON *tokens = cJSON_GetObjectItemCaseSensitive(logprobs, "content"), *token;
    int status = STATUS_OK, count = cJSON_GetArraySize(tokens);
    cJSON_ArrayForEach(token, tokens) if (!status) status = check_token(token, why);
    /* the token that ends an answer may be left out */
    if (!status && (count == 0 || llabs((long long)a->completion_tokens - count) > 1))
        status = error_set(why, STATUS_INVALID, "%d tokens with logprobs, %lld in usage", count,
                           (long long)a->completion_tokens);
    return status;
}

static int logprobs_add_up(const struct check *c, struct error *why)
{
    struct check_answer a;
    check_ask_prompt(c, CHAT, prompt, GREEDY ",\"logprobs\":true,\"top_logprobs\":5", &a);
    int status = check_is_offered(&a, why);
    if (!status) status = check_logprobs(&a, why);
    check_answer_deinit(&a);
    return status;
}

static int check_usage(const struct check_answer *a, int64_t most, struct error *why)
{
    bool adds_up = a->prompt_tokens > 0 && a->completion_tokens > 0 &&
                   a->prompt_tokens + a->completion_tokens == a->total_tokens;
    bool is_cut = !strcmp(a->choices[0].finish_reason, "length");
    if (!adds_up || a->completion_tokens > most || (is_cut && a->completion_tokens != most))
        return error_set(why, STATUS_INVALID, "%lld and %lld make %lld, of at most %lld; finish_reason %s",
                         (long long)a->prompt_tokens, (long long)a->completion_tokens,
                         (long long)a->total_tokens, (long long)most, a->choices[0].finish_reason);
    return STATUS_OK;
}

static int usage_counts(const struct check *c, struct error *why)
{
    static const struct {
        const char *members;
        int64_t most;
    } sizes[] = {{"\"temperature\":0,\"max_tokens\":1", 1}, {"\"temperature\":0,\"max_tokens\":5", 5}};
    int status = STATUS_OK;
    for (size_t i = 0; i < array_length(sizes) && !status; i++) {
        struct check_answer a;
        check_ask_prompt(c, CHAT, prompt, sizes[i].members, &a);
        status = check_is_answer(&a, why);
        if (!status) status = check_usage(&a, sizes[i].most, why);
        check_answer_deinit(&a);
    }
    return status;
}

static int several_choices(const struct check *c, struct error *why)
{
    struct check_answer a;
    check_ask_prompt(c, CHAT, prompt, GREEDY ",\"n\":3", &a);
    int status = check_is_offered(&a, why);
    if (!status && a.num_choices != 3)
        status = error_set(why, STATUS_INVALID, "%d choices of 3", a.num_choices);
    for (int i = 1; i < 3 && !status; i++)
        if (strcmp(check_text(&a, 0), check_text(&a, i)) != 0)
            status = error_set(why, STATUS_INVALID, "greedy choices differ: \"%.80s\" and \"%.80s\"",
                               check_text(&a, 0), check_text(&a, i));
    check_answer_deinit(&a);
    return status;
}

const struct check_row check_field_rows[] = {
    {"chat: a stream is what the whole is", chat_stream},
    {"completions: a stream is what the whole is", completion_stream},
    {"stop strings cut before themselves", stop_strings},
    {"logprobs are probabilities", logprobs_add_up},
    {"usage counts", usage_counts},
    {"n gives as many choices", several_choices},
    {.name = NULL}};

/* ---- refusals ---- */

#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]"

const struct check_refusal check_refusals[] = {
    {"no JSON", CHAT, "!{\"messages\":"},
    {"no object", CHAT, "![]"},
    {"no messages", CHAT, "\"max_tokens\":1"},
    {"messages that are no list", CHAT, "\"messages\":\"a\""},
    {"a message that is no object", CHAT, "\"messages\":[7]"},
    {"a role that is none", CHAT, "\"messages\":[{\"role\":\"nobody\",\"content\":\"a\"}]"},
    {"no prompt", COMPLETIONS, "\"max_tokens\":1"},
    {"max_tokens below -1", CHAT, MESSAGES ",\"max_tokens\":-2"},
    {"max_tokens that is text", CHAT, MESSAGES ",\"max_tokens\":\"many\""},
    {"temperature below 0", CHAT, MESSAGES ",\"temperature\":-1"},
    {"temperature that is text", CHAT, MESSAGES ",\"temperature\":\"hot\""},
    {"top_p above 1", CHAT, MESSAGES ",\"top_p\":2"},
    {"n of 0", CHAT, MESSAGES ",\"n\":0"},
    {"stop that is an object", CHAT, MESSAGES ",\"stop\":{\"a\":1}"},
    {"logit_bias of no token", CHAT, MESSAGES ",\"logit_bias\":{\"a\":1}"},
    {"a model that is not there", CHAT, "!{\"model\":\"no-such-model\"," MESSAGES "}"},
    {"a route that is not there", "/v1/no-such-route", "\"a\":1"},
    {.name = NULL},
};

int check_refusal_holds(const struct check *c, const struct check_refusal *refusal, struct error *why)
{
    struct check_answer a;
    int status = STATUS_OK;
    if (refusal->body[0] == '!')
        check_ask(c->client, refusal->path, refusal->body + 1, &a);
    else
        check_ask_members(c, refusal->path, refusal->body, &a);
    if (a.http_status < 400 || a.http_status > 499)
        status = error_set(why, STATUS_INVALID, "status %d %s", a.http_status, a.problem);
    else if (!a.problem[0])
        status =
            error_set(why, STATUS_INVALID, "status %d without an error object with a message", a.http_status);
    check_answer_deinit(&a);
    return status;
}
