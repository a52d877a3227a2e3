#include <string.h>

#include "base/check.h"
#include "cli/check_request.h"

/* One form for answers and for arguments of a function, of which nothing is long. */
#define FORM                                                                                                 \
    "{\"type\":\"object\",\"properties\":{\"color\":{\"type\":\"string\",\"enum\":[\"red\",\"green\","       \
    "\"blue\"]},"                                                                                            \
    "\"coats\":{\"type\":\"integer\",\"enum\":[1,2,3]},\"dry\":{\"type\":\"boolean\"}},"                     \
    "\"required\":[\"color\",\"coats\",\"dry\"],\"additionalProperties\":false}"
#define FUNCTION                                                                                             \
    "{\"type\":\"function\",\"function\":{\"name\":\"paint_wall\",\"description\":\"Paints the wall.\","     \
    "\"strict\":true,\"parameters\":" FORM "}}"
#define OTHER_FUNCTION                                                                                       \
    "{\"type\":\"function\",\"function\":{\"name\":\"open_door\",\"description\":\"Opens the door.\","       \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"wide\":{\"type\":\"boolean\"}}}}}"
#define RESPONSE_FORMAT                                                                                      \
    ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"paint\",\"strict\":true,"    \
    "\"schema\":" FORM "}}"
#define TOOLS ",\"tools\":[" OTHER_FUNCTION "," FUNCTION "]"
#define ANY_FUNCTION ",\"tools\":[" FUNCTION "],\"tool_choice\":\"required\""
#define NAMED_FUNCTION TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"paint_wall\"}}"
#define LONG_GREEDY "\"temperature\":0,\"max_tokens\":400"
#define LONG_SEEDED(seed) "\"temperature\":1,\"seed\":" #seed ",\"max_tokens\":400"

static const char prompt[] = "The wall must be red. Paint it twice.";

/* ---- is it of the form? ---- */

static bool is_one_of(const cJSON *value, const char *const *words, size_t count)
{
    const char *text = cJSON_GetStringValue(value);
    for (size_t i = 0; text && i < count; i++)
        if (!strcmp(text, words[i])) return true;
    return false;
}

static bool has_form(const cJSON *value)
{
    static const char *const colors[] = {"red", "green", "blue"};
    double coats = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(value, "coats"));
    return cJSON_IsObject(value) && cJSON_GetArraySize(value) == 3 &&
           is_one_of(cJSON_GetObjectItemCaseSensitive(value, "color"), colors, array_length(colors)) &&
           (coats == 1 || coats == 2 || coats == 3) &&
           cJSON_IsBool(cJSON_GetObjectItemCaseSensitive(value, "dry"));
}

static int check_form(const char *text, const char *what, struct error *why)
{
    cJSON *value = cJSON_ParseWithOpts(text, NULL, true);
    bool right = has_form(value);
    cJSON_Delete(value);
    return right ? STATUS_OK : error_set(why, STATUS_INVALID, "%s: \"%.120s\"", what, text);
}

/* ---- answers ---- */

static int check_formed(const struct check *c, const char *members, struct error *why)
{
    struct check_answer a;
    check_ask_prompt(c, CHAT, prompt, members, &a);
    int status = check_is_offered(&a, why);
    if (!status) status = check_form(check_content(&a), "an answer that is not of its json_schema", why);
    check_answer_deinit(&a);
    return status;
}

static int answers_have_form(const struct check *c, struct error *why)
{
    static const char *const variants[] = {LONG_GREEDY RESPONSE_FORMAT, LONG_GREEDY RESPONSE_FORMAT STREAMED,
                                           LONG_SEEDED(1) RESPONSE_FORMAT, LONG_SEEDED(2) RESPONSE_FORMAT,
                                           LONG_SEEDED(3) RESPONSE_FORMAT STREAMED};
    int status = STATUS_OK;
    for (size_t i = 0; i < array_length(variants) && !status; i++) status = check_formed(c, variants[i], why);
    return status;
}

/* ---- calls ---- */

static int check_call(const struct check_answer *a, struct error *why)
{
    const char *reason = a->choices[0].finish_reason;
    const char *name = a->call.name.data ? a->call.name.data : "", *arguments = a->call.arguments.data;
    if (a->call.count < 1) return error_set(why, STATUS_INVALID, "no call: \"%.80s\"", check_text(a, 0));
    if (strcmp(name, "paint_wall") != 0)
        return error_set(why, STATUS_INVALID, "a call of \"%.80s\", not of paint_wall", name);
    if (!a->call.has_id) return error_set(why, STATUS_INVALID, "a call without an id");
    if (strcmp(reason, "tool_calls") != 0 && strcmp(reason, "stop") != 0)
        return error_set(why, STATUS_INVALID, "a call whose finish_reason is %s", reason);
    return check_form(arguments ? arguments : "", "arguments that are not of the function's form", why);
}

static int check_called(const struct check *c, const char *members, struct error *why)
{
    struct check_answer a;
    check_ask_prompt(c, CHAT, prompt, members, &a);
    int status = check_is_offered(&a, why);
    if (!status) status = check_call(&a, why);
    check_answer_deinit(&a);
    return status;
}

static int required_call(const struct check *c, struct error *why)
{
    int status = check_called(c, LONG_GREEDY ANY_FUNCTION, why);
    if (!status) status = check_called(c, LONG_SEEDED(1) ANY_FUNCTION, why);
    return status;
}

static int named_call(const struct check *c, struct error *why)
{
    return check_called(c, LONG_SEEDED(2) NAMED_FUNCTION, why);
}

static int no_call(const struct check *c, struct error *why)
{
    struct check_answer a;
    check_ask_prompt(c, CHAT, prompt, GREEDY TOOLS ",\"tool_choice\":\"none\"", &a);
    int status = check_is_offered(&a, why);
    if (!status && a.call.count > 0) status = error_set(why, STATUS_INVALID, "a call where none is allowed");
    check_answer_deinit(&a);
    return status;
}

static int compare_calls(const struct check_answer *whole, const struct check_answer *stream,
                         struct error *why)
{
    if (!strcmp(whole->call.arguments.data, stream->call.arguments.data)) return STATUS_OK;
    return error_set(why, STATUS_INVALID, "whole and streamed: %.80s and %.80s", whole->call.arguments.data,
                     stream->call.arguments.data);
}

static int streamed_call(const struct check *c, struct error *why)
{
    struct check_answer whole, stream;
    check_ask_prompt(c, CHAT, prompt, LONG_GREEDY NAMED_FUNCTION, &whole);
    check_ask_prompt(c, CHAT, prompt, LONG_GREEDY NAMED_FUNCTION STREAMED, &stream);
    int status = check_is_offered(&whole, why);
    if (!status) status = check_is_answer(&stream, why);
    if (!status) status = check_call(&whole, why);
    if (!status) status = check_call(&stream, why);
    if (!status) status = compare_calls(&whole, &stream, why);
    check_answer_deinit(&whole);
    check_answer_deinit(&stream);
    return status;
}

static int result_is_taken(const struct check *c, struct error *why)
{
    struct check_answer a;
    check_ask_members(
        c, CHAT,
        "\"messages\":[{\"role\":\"user\",\"content\":\"Paint the "
        "wall.\"},{\"role\":\"assistant\",\"content\":null,"
        "\"tool_calls\":[{\"id\":\"call_12345678\",\"type\":\"function\",\"function\":{\"name\":\"paint_"
        "wall\","
        "\"arguments\":\"{\\\"color\\\":\\\"red\\\",\\\"coats\\\":2,\\\"dry\\\":true}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"call_12345678\",\"content\":\"It is red.\"}]," GREEDY TOOLS,
        &a);
    int status = check_is_offered(&a, why);
    check_answer_deinit(&a);
    return status;
}

const struct check_row check_form_rows[] = {{"json_schema: answers have the form", answers_have_form},
                                            {"tools: a required call has its form", required_call},
                                            {"tools: the named function is called", named_call},
                                            {"tools: none calls none", no_call},
                                            {"tools: a streamed call is what the whole is", streamed_call},
                                            {"tools: a result is taken", result_is_taken},
                                            {.name = NULL}};
