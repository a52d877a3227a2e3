/* content_probe.c - whether a template that loops over content shows a text that is no list of parts, too.
 *
 * Many do: where content is a string they print it, and where it is a list they loop. Some of these know lists in messages of the
 * user alone, and print a list elsewhere (a tool's result, a system message) as a list. So conversations of strings are rendered,
 * and every text must be there. What a template raises says nothing. */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/chat_template.h"
#include "text/jinja/ast.h"

enum { OUTPUT_BYTES_MAX = 1 << 20 };

#define SAYS(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define REST SAYS("user", "QuestionOne") "," SAYS("assistant", "AnswerOne") "," SAYS("user", "QuestionTwo")
#define CONVERSATION(messages)                                                                               \
    "{\"bos_token\":\"\",\"eos_token\":\"\",\"tools\":null,\"documents\":null,"                              \
    "\"add_generation_prompt\":true,\"messages\":[" messages "]}"

struct conversation {
    const char *context;
    const char *texts[5];
};

/* The first that is not refused counts; then that with a tool's result does, too. */
static const struct conversation conversations[] = {
    {CONVERSATION(SAYS("system", "SystemOne") "," REST),
     {"SystemOne", "QuestionOne", "AnswerOne", "QuestionTwo"}},
    {CONVERSATION(REST), {"QuestionOne", "AnswerOne", "QuestionTwo"}},
};
static const struct conversation with_tool = {
    CONVERSATION(SAYS("user", "QuestionOne") ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{"
                                             "\"id\":\"abcdefghi\",\"type\":\"function\",\"function\":{"
                                             "\"name\":\"f\",\"arguments\":{}}}]},{\"role\":\"tool\","
                                             "\"tool_call_id\":\"abcdefghi\",\"name\":\"f\","
                                             "\"content\":\"ResultOne\"}"),
    {"QuestionOne", "ResultOne"}};

/* The status of rendering, and whether all texts are shown. */
static int render(const struct chat_template *t, const struct conversation *c, bool *shows)
{
    static const char *const trusted[] = {NULL};
    struct text_range *ranges = NULL;
    struct buffer text;
    int num_ranges;
    cJSON *context = cJSON_Parse(c->context);
    buffer_init(&text, OUTPUT_BYTES_MAX);
    int status = context ? chat_template_render(t, context, trusted, 0, &chat_template_limits_default, &text,
                                                &ranges, &num_ranges, NULL)
                         : STATUS_NO_MEMORY;
    *shows = status == 0;
    for (int i = 0; *shows && c->texts[i]; i++) *shows = text.data && strstr(text.data, c->texts[i]);
    free(ranges);
    cJSON_Delete(context);
    buffer_deinit(&text);
    return status;
}

int template_shows_strings(const struct chat_template *t, bool *out)
{
    int status = STATUS_TEMPLATE;
    *out = false;
    for (size_t i = 0; i < array_length(conversations) && status == STATUS_TEMPLATE; i++)
        status = render(t, &conversations[i], out);
    if (status || !*out) return status == STATUS_NO_MEMORY ? status : 0;
    status = render(t, &with_tool, out);
    if (status && status != STATUS_NO_MEMORY) *out = true;
    return status == STATUS_NO_MEMORY ? status : 0;
}
