/* A chat template and, behind a NUL, the messages of a chat: the template's format of calls is derived, the messages are checked, put
 * into forms and an order that the template takes, and rendered. There is a sentence, or text that is the same each time and valid,
 * with untrusted ranges that ascend inside it; each message stays an object with a role that templates know. */
#include "fuzz/check_decoding.h"
#include "fuzz/fuzz_server.h"
#define JSON_BYTES_ONE_IN 3 /* the template is no JSON */
#include "fuzz/json_mutator.h"
#include "server/api/chat_turns.h"
#include "server/api/json_gate.h"
#include "server/api/nul_text.h"
#include "server/api/prompts.h"

static struct server server;

static bool json_place(const uint8_t *data, size_t size, size_t *begin, size_t *end)
{
    const uint8_t *nul = memchr(data, 0, size);
    if (!nul) return false;
    *begin = (size_t)(nul - data) + 1;
    *end = size;
    return true;
}

static void check_ranges(const struct buffer *text, const struct text_range *untrusted, int n)
{
    assert_always(is_valid_text(text->data, text->num_bytes));
    for (int i = 0; i < n; i++) {
        assert_always(untrusted[i].begin < untrusted[i].end && untrusted[i].end <= text->num_bytes);
        if (i > 0) assert_always(untrusted[i - 1].end <= untrusted[i].begin);
    }
}

/* The messages are used up. */
static bool render(const cJSON *messages, struct buffer *out)
{
    const struct params params = {.kind = API_CHAT, .add_generation_prompt = true};
    struct text_range *untrusted = NULL;
    int num_untrusted = 0;
    struct api_error err = {0};
    cJSON *body = cJSON_CreateObject();
    assert_always(body && cJSON_AddItemToObject(body, "messages", cJSON_Duplicate(messages, true)));
    buffer_init(out, 1 << 24);
    int status = prompts_render_chat(&server, &params, body, 1, out, &untrusted, &num_untrusted, &err);
    if (status == 0)
        check_ranges(out, untrusted, num_untrusted);
    else
        assert_always(err.text[0]);
    free(untrusted);
    cJSON_Delete(body);
    return status == 0;
}

/* What is done for templates that refuse, whether this one does or not. */
static void change_all(const cJSON *messages, bool wants_parts)
{
    cJSON *changed = cJSON_Duplicate(messages, true), *m;
    assert_always(changed);
    for (int i = 0; i < NUM_TURNS_CHANGES; i++)
        (void)chat_turns_change(changed, (enum chat_turns_change)i, wants_parts);
    assert_always(chat_turns_split(changed, wants_parts, false));
    cJSON_ArrayForEach(m, changed) assert_always(cJSON_IsObject(m));
    char *printed = cJSON_PrintUnformatted(changed);
    assert_always(printed);
    free(printed);
    cJSON_Delete(changed);
}

static bool are_checked(const cJSON *messages)
{
    const cJSON *m;
    cJSON_ArrayForEach(m, messages)
    {
        const cJSON *content = cJSON_GetObjectItemCaseSensitive(m, "content"),
                    *calls = cJSON_GetObjectItemCaseSensitive(m, "tool_calls");
        if (!cJSON_IsObject(m) || !cJSON_IsString(cJSON_GetObjectItemCaseSensitive(m, "role")) ||
            !cJSON_IsString(content) || (calls && !cJSON_IsArray(calls)))
            return false;
    }
    return cJSON_IsArray(messages) && messages->child;
}

static void run(const char *source, const cJSON *messages)
{
    struct chat_template *t = NULL;
    struct tool_format *f = NULL;
    struct error err = {0};
    struct buffer first, again;
    if (chat_template_parse(source, &t, &err) != 0) return;
    cJSON *variables = cJSON_CreateObject();
    assert_always(tool_format_derive(t, variables, &f, &err) == 0);
    cJSON_Delete(variables);
    server.chat_template = t;
    server.tool_format = f;
    bool renders = render(messages, &first);
    assert_always(render(messages, &again) == renders && first.num_bytes == again.num_bytes);
    assert_always(!renders || first.num_bytes == 0 || !memcmp(first.data, again.data, first.num_bytes));
    if (are_checked(messages)) change_all(messages, chat_template_wants_parts(t));
    buffer_deinit(&first);
    buffer_deinit(&again);
    tool_format_free(f);
    chat_template_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct json_gate_limits limits = {.max_depth = 64, .max_nodes = 2000, .max_keys = 256};
    const uint8_t *nul = memchr(data, 0, size);
    bool conflict;
    if (!server.config) fuzz_server_init(&server);
    if (!nul) return 0;
    size_t n = size - (size_t)(nul - data) - 1;
    char *text = malloc(n + 1);
    assert_always(text);
    memcpy(text, nul + 1, n);
    text[n] = '\0';
    if (n > 0 && json_gate_check(text, n, &limits, NULL) == 0) {
        cJSON *messages = nul_text_parse(text, n, &conflict);
        if (messages) run((const char *)data, messages);
        cJSON_Delete(messages);
    }
    free(text);
    return 0;
}
