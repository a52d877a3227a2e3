#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/api/json_gate.h"
#include "server/api/prepare.h"
#include "unit/server/fake_tokenizer.h"

static const char template_text[] =
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
    "{% if reasoning_effort is defined %}({{ reasoning_effort }}){% endif %}"
    "{% if enable_thinking is defined and not enable_thinking %}(quiet){% endif %}"
    "{% if thinking is defined and thinking %}(loud){% endif %}";
static const char parts_template_text[] =
    "{% for m in messages %}{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endfor %}";

static struct config config;
static struct link_facts facts = {
    .vocab_size = FAKE_LOGITS_WIDTH, .generation = {-1, -1, -1, -1, -1, -1}, .max_model_len = 64};
static const char *const names[] = {"m"};
static char some_tokenizer;
static struct server server = {
    .config = &config, .facts = &facts, .model_names = names, .num_model_names = 1};
static struct arena arena;
static struct api_error error;
static struct request_slot_input input;
static struct request_payload payload;
static struct params params = {.input = &input, .payload = &payload};
static struct prompts prompts;

static int set_up(void **state)
{
    (void)state;
    struct chat_template *template;
    arena_init(&arena, 1 << 20);
    facts.max_model_len = 64;
    server.tokenizer = (const struct tokenizer *)&some_tokenizer;
    if (config_init(&config, NULL) < 0 || chat_template_parse(template_text, &template, NULL) < 0) return -1;
    server.chat_template = template;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    arena_deinit(&arena);
    config_deinit(&config);
    chat_template_free((struct chat_template *)(uintptr_t)server.chat_template);
    return 0;
}

static int prepare_by(const struct codec *codec, const char *body)
{
    const struct prepare_input in = {
        .server = &server, .codec = codec, .body = body, .body_bytes = strlen(body), .now_seconds = 0};
    prompts = (struct prompts){0};
    return prepare_run(&in, &arena, &params, &prompts, &error);
}

static int prepare(enum api_kind kind, const char *body)
{
    return prepare_by(kind == API_CHAT ? &codec_chat : &codec_completions, body);
}

/* The ids as text: bytes as they are, words by their text, which tells a control token only by being one id.
 */
static void assert_tokens(int prompt_idx, const char *expected, int num_special)
{
    const struct token_list *list = &prompts.items[prompt_idx].tokens;
    struct buffer text;
    int special = 0;
    buffer_init(&text, 1 << 16);
    tokenizer_decode(NULL, list->ids, list->num_ids, false, &text);
    for (int i = 0; i < list->num_ids; i++) special += tokenizer_is_special(NULL, list->ids[i]);
    assert_string_equal(text.data, expected);
    assert_int_equal(special, num_special);
    buffer_deinit(&text);
}

static void assert_prompt(enum api_kind kind, const char *body, const char *expected, int num_special)
{
    if (prepare(kind, body) < 0) fail_msg("%s: %s", body, error.text);
    assert_int_equal(prompts.count, 1);
    assert_tokens(0, expected, num_special);
    cJSON_Delete(params.tools);
    params.tools = NULL;
    prompts_deinit(&prompts);
}

static void assert_refused(enum api_kind kind, const char *body, const char *param, const char *code)
{
    if (prepare(kind, body) == 0) fail_msg("accepted: %s", body);
    prompts_deinit(&prompts);
    if (error.http_status != 400) fail_msg("%s: status %d, %s", body, error.http_status, error.text);
    if (strcmp(error.param, param) != 0) fail_msg("%s: param %s", body, error.param);
    if (strcmp(error.code ? error.code : "", code) != 0) fail_msg("%s: code %s", body, error.code);
}

static void completions_take_every_shape(void **state)
{
    (void)state;
    assert_prompt(API_COMPLETIONS, "{\"prompt\":\"ab\"}", "<s>ab", 1);
    assert_prompt(API_COMPLETIONS, "{\"prompt\":\"ab\",\"add_special_tokens\":false}", "ab", 0);
    assert_prompt(API_COMPLETIONS, "{\"prompt\":[97,98]}", "ab", 0);
    assert_prompt(API_COMPLETIONS, "{\"prompt\":[[97,98]]}", "ab", 0);
    assert_prompt(API_COMPLETIONS, "{\"prompt\":[\"x\"]}", "<s>x", 1);
    assert_prompt(API_COMPLETIONS, "{\"prompt\":null}", "<s>", 1);
    assert_prompt(API_COMPLETIONS, "{\"prompt\":\"\",\"add_special_tokens\":false}", "<s>", 1);
    assert_prompt(API_COMPLETIONS, "{\"prompt\":[[]]}", "<s>", 1);
    assert_int_equal(prepare(API_COMPLETIONS,
                             "{\"prompt\":[\"x\",\"\",\"yz\"],\"add_special_tokens\":false,\"echo\":true}"),
                     0);
    assert_int_equal(prompts.count, 3);
    assert_tokens(2, "yz", 0);
    assert_string_equal(prompts.items[2].text, "yz");
    assert_string_equal(prompts.items[1].text, "");
    prompts_deinit(&prompts);
    assert_int_equal(prepare(API_COMPLETIONS, "{\"prompt\":[97,260,98],\"echo\":true}"), 0);
    assert_string_equal(prompts.items[0].text, "ab");
    prompts_deinit(&prompts);
    assert_int_equal(prepare(API_COMPLETIONS, "{\"prompt\":\"x\"}"), 0);
    assert_null(prompts.items[0].text);
    prompts_deinit(&prompts);
}

/* What a tokenizer adds stands where a prompt begins with a text; texts behind ids go on with them. */
static void ids_and_texts_mix(void **state)
{
    (void)state;
    assert_prompt(API_COMPLETIONS, "{\"prompt\":[97,\"b\",99,\"</s>\"]}", "abc</s>", 1);
    assert_prompt(API_COMPLETIONS, "{\"prompt\":[\"a\",98,\"</s>\"],\"parse_special\":false}", "<s>ab</s>",
                  1);
    assert_prompt(API_COMPLETIONS, "{\"prompt\":[\"a\",98],\"add_special_tokens\":false}", "ab", 0);
    assert_prompt(API_COMPLETIONS, "{\"prompt\":[\"\",98,\"\"]}", "<s>b", 1);
    assert_int_equal(prepare(API_COMPLETIONS, "{\"prompt\":[[97,\"b\"],\"c\",[100]]}"), 0);
    assert_int_equal(prompts.count, 3);
    assert_tokens(0, "ab", 0);
    assert_tokens(1, "<s>c", 1);
    assert_tokens(2, "d", 0);
    prompts_deinit(&prompts);
}

static void completions_refuse_the_rest(void **state)
{
    (void)state;
    assert_refused(API_COMPLETIONS, "{}", "prompt", "missing_required_parameter");
    assert_refused(API_COMPLETIONS, "{\"prompt\":5}", "prompt", "invalid_type");
    assert_refused(API_COMPLETIONS, "{\"prompt\":{}}", "prompt", "invalid_type");
    assert_refused(API_COMPLETIONS, "{\"prompt\":[]}", "prompt", "invalid_value");
    assert_refused(API_COMPLETIONS, "{\"prompt\":[\"a\",1,null]}", "prompt[2]", "invalid_type");
    assert_refused(API_COMPLETIONS, "{\"prompt\":[1,[2]]}", "prompt[1]", "invalid_type");
    assert_refused(API_COMPLETIONS, "{\"prompt\":[[1],[\"a\",{}]]}", "prompt[1][1]", "invalid_type");
    assert_refused(API_COMPLETIONS, "{\"prompt\":[\"a\",270]}", "prompt[1]", "invalid_value");
    assert_refused(API_COMPLETIONS, "{\"prompt\":[null]}", "prompt[0]", "invalid_type");
    assert_refused(API_COMPLETIONS, "{\"prompt\":[270]}", "prompt[0]", "invalid_value");
    assert_refused(API_COMPLETIONS, "{\"prompt\":[-1]}", "prompt[0]", "invalid_value");
    assert_refused(API_COMPLETIONS, "{\"prompt\":[[1],[2,4294967296]]}", "prompt[1][1]", "invalid_value");
    server.tokenizer = NULL; /* the fake without a BOS */
    assert_refused(API_COMPLETIONS, "{\"prompt\":null}", "prompt", "invalid_value");
}

static void control_tokens_count_in_raw_prompts_only(void **state)
{
    (void)state;
    assert_prompt(API_COMPLETIONS, "{\"prompt\":\"a</s>\"}", "<s>a</s>", 2);
    assert_prompt(API_COMPLETIONS, "{\"prompt\":\"a</s>\",\"parse_special\":false}", "<s>a</s>", 1);
    assert_prompt(API_CHAT,
                  "{\"messages\":[{\"role\":\"user\",\"content\":\"</s>\"}],\"parse_special\":true}",
                  "<s>[user]</s></s>[assistant]", 1);
}

static void chat_renders_the_template(void **state)
{
    (void)state;
    assert_prompt(
        API_CHAT,
        "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"U\"}]}",
        "<s>[system]S</s>[user]U</s>[assistant]", 2);
    assert_prompt(
        API_CHAT,
        "{\"messages\":[{\"role\":\"developer\",\"content\":\"S\"}],\"add_generation_prompt\":false}",
        "<s>[system]S</s>", 1);
    assert_prompt(API_CHAT,
                  "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
                  "{\"type\":\"text\",\"text\":\"b\"}]}]}",
                  "<s>[user]a\nb</s>[assistant]", 1);
    assert_prompt(API_CHAT,
                  "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"reasoning_effort\":\"none\"}",
                  "<s>[user]x</s>[assistant](none)(quiet)", 1);
    assert_prompt(API_CHAT,
                  "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"chat_template_kwargs\":{\"enable_"
                  "thinking\":false}}",
                  "<s>[user]x</s>[assistant](quiet)", 1);
    assert_prompt(API_CHAT,
                  "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":"
                  "\" yes \"}],"
                  "\"add_generation_prompt\":false,\"continue_final_message\":true}",
                  "<s>[user]x</s>[assistant] yes", 1);
}

/* Letters of the template's own, and of messages before, are not the message to be continued. */
static void only_the_final_message_is_continued(void **state)
{
    (void)state;
    static const char *const texts[] = {"s", "</", "/s>", "</s>", ">", "assistant", "]", "x", "s</s>s"};
    for (size_t i = 0; i < array_length(texts); i++) {
        char body[256], expected[256];
        snprintf(
            body, sizeof body,
            "{\"messages\":[{\"role\":\"user\",\"content\":\"xs</s>\"},{\"role\":\"assistant\",\"content\":"
            "\" %s\\n\"}],\"add_generation_prompt\":false,\"continue_final_message\":true}",
            texts[i]);
        snprintf(expected, sizeof expected, "<s>[user]xs</s></s>[assistant] %s", texts[i]);
        assert_prompt(API_CHAT, body, expected, 1);
    }
    assert_refused(
        API_CHAT,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":\" \"}],"
        "\"add_generation_prompt\":false,\"continue_final_message\":true}",
        "continue_final_message", "invalid_value");
}

/* Templates add content to text, and have no use for a null there. */
static void calls_without_content_have_empty_content(void **state)
{
    (void)state;
    static const char *const calls[] = {
        "\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]",
        "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]",
        "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]",
        "\"content\":null,\"function_call\":{\"name\":\"f\"}",
        "\"content\":null",
        "\"content\":[]"};
    struct chat_template *usual = (struct chat_template *)(uintptr_t)server.chat_template, *other;
    static const char *const templates[] = {"{% for m in messages %}<{{ '' + m['content'] }}>{% endfor %}",
                                            "{% for m in messages %}<{% for p in m['content'] %}"
                                            "{{ p['text'] + '' }}{% endfor %}>{% endfor %}"};
    for (size_t t = 0; t < array_length(templates); t++) {
        assert_int_equal(chat_template_parse(templates[t], &other, NULL), 0);
        server.chat_template = other;
        for (size_t i = 0; i < array_length(calls); i++) {
            char body[256];
            snprintf(body, sizeof body,
                     "{\"messages\":[{\"role\":\"assistant\",%s},{\"role\":\"user\",\"content\":\"x\"}]}",
                     calls[i]);
            assert_prompt(API_CHAT, body, "<><x>", 0);
        }
        chat_template_free(other);
    }
    server.chat_template = usual;
    assert_refused(API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":null}]}", "messages[0].content",
                   "missing_required_parameter");
}

static void parts_go_to_templates_that_want_them(void **state)
{
    (void)state;
    struct chat_template *template, *usual = (struct chat_template *)(uintptr_t)server.chat_template;
    assert_int_equal(chat_template_parse(parts_template_text, &template, NULL), 0);
    server.chat_template = template;
    assert_prompt(API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", "<a>", 0);
    assert_prompt(API_CHAT,
                  "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
                  "{\"type\":\"text\",\"text\":\"b\"}]}]}",
                  "<a><b>", 0);
    static const char *const nothing[] = {"null", "[]", "\"\""};
    for (size_t i = 0; i < array_length(nothing); i++) {
        char body[256];
        snprintf(body, sizeof body,
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
                 "{\"role\":\"assistant\",\"content\":%s}],"
                 "\"add_generation_prompt\":false,\"continue_final_message\":true}",
                 nothing[i]);
        assert_refused(API_CHAT, body, "continue_final_message", "invalid_value");
    }
    chat_template_free(template);
    server.chat_template = usual;
}

static const char *tools = ""; /* of render_with */

static void render_with(const char *source, const char *messages, const char *expected)
{
    struct chat_template *template, *usual = (struct chat_template *)(uintptr_t)server.chat_template;
    char body[1024];
    snprintf(body, sizeof body, "{\"messages\":[%s],\"tools\":[%s]}", messages, tools);
    assert_int_equal(chat_template_parse(source, &template, NULL), 0);
    server.chat_template = template;
    if (expected)
        assert_prompt(API_CHAT, body, expected, 0);
    else
        assert_refused(API_CHAT, body, "messages", "invalid_value");
    chat_template_free(template);
    server.chat_template = usual;
}

#define SAYS(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"

/* What agents send: instructions and a developer's message, one more in between, the user's in two. */
static void messages_that_a_template_refuses_are_joined(void **state)
{
    (void)state;
    static const char any[] = "{% for m in messages %}[{{ m.role[0] }}]{{ m.content }}{% endfor %}";
    static const char first[] = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
                                "{{ raise_exception('first') }}{% endif %}[{{ m.role[0] }}]{{ m.content }}"
                                "{% endfor %}";
    static const char turns[] =
        "{% set n = namespace(last='') %}{% for m in messages %}{% if m.role == n.last or "
        "(m.role == 'system' and not loop.first) %}{{ raise_exception('turns') }}{% endif %}"
        "{% set n.last = m.role %}[{{ m.role[0] }}]{% for p in m.content %}<{{ p.text }}>{% endfor %}"
        "{% endfor %}";
    static const char messages[] =
        SAYS("system", "a") "," SAYS("developer", "b") "," SAYS("user", "c") "," SAYS("user", "d") "," SAYS(
            "assistant", "e") "," SAYS("system", "f") "," SAYS("user", "g");
    render_with(any, messages, "[s]a[s]b[u]c[u]d[a]e[s]f[u]g");
    render_with(first, messages, "[s]a\nb[u]c\nd[a]e[u]f\ng");
    render_with(first,
                SAYS("system", "") "," SAYS("system", "a") "," SAYS("system", "") "," SAYS("system", "b"),
                "[s]a\nb");
    render_with(turns, messages, "[s]<a><\n><b>[u]<c><\n><d>[a]<e>[u]<f><\n><g>");
    render_with(turns, SAYS("user", "c") "," SAYS("assistant", "e") "," SAYS("assistant", "f"),
                "[u]<c>[a]<e><\n><f>");
    render_with("{{ raise_exception('never') }}", SAYS("user", "c") "," SAYS("user", "d"), NULL);
}

/* The format of calls is what this template gives. */
static void render_calls_with(const char *source, const char *messages, const char *expected)
{
    struct chat_template *template;
    struct tool_format *format;
    struct error why;
    assert_int_equal(chat_template_parse(source, &template, NULL), 0);
    assert_int_equal(tool_format_derive(template, NULL, &format, &why), 0);
    chat_template_free(template);
    server.tool_format = format;
    facts.max_model_len = 512;
    render_with(source, messages, expected);
    server.tool_format = NULL;
    tool_format_free(format);
}

/* Models write such arguments, and agents send them back. */
static void arguments_that_are_no_object_become_one(void **state)
{
    (void)state;
    static const char *const sources[] = {
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}:"
        "{% for k, v in c.function.arguments.items() %}<p={{ k }}>{{ v }}</p>{% endfor %}</call>{% endfor %}"
        "{% endfor %}",
        /* a family whose calls are written into the content */
        "{# List of tools: #}{% for m in messages %}{{ m.content }}{% endfor %}"};
    static const struct {
        const char *arguments, *expected[2];
    } cases[] = {
        {"\"{\\\"a\\\": 1.5}\"",
         {"<call>f:<p=a>1.5</p></call>", "<|tool_call_start|>[f(a=1.5)]<|tool_call_end|>"}},
        {"{\"a\":\"x\"}", {"<call>f:<p=a>x</p></call>", "<|tool_call_start|>[f(a=\"x\")]<|tool_call_end|>"}},
        {"\"\"", {"<call>f:</call>", "<|tool_call_start|>[f()]<|tool_call_end|>"}},
        {"\" \"", {"<call>f:</call>", "<|tool_call_start|>[f()]<|tool_call_end|>"}},
        {"\"null\"", {"<call>f:</call>", "<|tool_call_start|>[f()]<|tool_call_end|>"}},
        {"null", {"<call>f:</call>", "<|tool_call_start|>[f()]<|tool_call_end|>"}},
        {"\"[1, 2]\"",
         {"<call>f:<p=arguments>[1, 2]</p></call>",
          "<|tool_call_start|>[f(arguments=\"[1, 2]\")]<|tool_call_end|>"}},
        {"[1,2]",
         {"<call>f:<p=arguments>[1, 2]</p></call>",
          "<|tool_call_start|>[f(arguments=\"[1, 2]\")]<|tool_call_end|>"}},
        {"\"7\"",
         {"<call>f:<p=arguments>7</p></call>", "<|tool_call_start|>[f(arguments=\"7\")]<|tool_call_end|>"}},
        {"\"{\"",
         {"<call>f:<p=arguments>{</p></call>", "<|tool_call_start|>[f(arguments=\"{\")]<|tool_call_end|>"}},
    };
    for (size_t i = 0; i < array_length(cases); i++) {
        char messages[512];
        snprintf(messages, sizeof messages,
                 "{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"a\",\"type\":\"function\",\"function\":"
                 "{\"name\":\"f\",\"arguments\":%s}}]}",
                 cases[i].arguments);
        for (size_t t = 0; t < array_length(sources); t++)
            render_calls_with(sources[t], messages, cases[i].expected[t]);
    }
    render_calls_with(sources[0], "{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}",
                      "<call>f:</call>");
}

#define CALL(id)                                                                                             \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"f" id "\",\"arguments\":\"{}\"}}"
#define CALLS(calls) "{\"role\":\"assistant\",\"tool_calls\":[" calls "]}"
#define GIVES(id, text) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"" text "\"}"

/* Llama 3.1 refuses several, gpt-oss loses all but the first. */
static void calls_stand_alone_where_a_template_shows_one(void **state)
{
    (void)state;
    static const char one[] =
        "{% for m in messages %}[{{ m.role[0] }}]{{ m.content }}{% if m.tool_calls %}<call>"
        "{{ m.tool_calls[0].function.name }} {{ m.tool_calls[0].function.arguments | tojson }}</call>"
        "{% endif %}{% endfor %}";
    static const char all[] =
        "{% for m in messages %}[{{ m.role[0] }}]{{ m.content }}{% for c in m.tool_calls or [] "
        "%}<call>{{ c.function.name }} {{ c.function.arguments | tojson }}</call>{% endfor %}"
        "{% endfor %}";
    static const struct {
        const char *messages, *expected;
    } cases[] = {
        {CALLS(CALL("1") "," CALL("2")), "[a]<call>f1 {}</call>[a]<call>f2 {}</call>"},
        {CALLS(CALL("1") "," CALL("2")) "," GIVES("1", "x") "," GIVES("2", "y") "," SAYS("user", "u"),
         "[a]<call>f1 {}</call>[t]x[a]<call>f2 {}</call>[t]y[u]u"},
        {CALLS(CALL("1") "," CALL("2")) "," GIVES("2", "y") "," GIVES("1", "x"),
         "[a]<call>f1 {}</call>[t]x[a]<call>f2 {}</call>[t]y"},
        {CALLS(CALL("1") "," CALL("2") "," CALL("3")) "," GIVES("2", "y") "," GIVES("9", "z"),
         "[a]<call>f1 {}</call>[a]<call>f2 {}</call>[t]y[a]<call>f3 {}</call>[t]z"},
        {CALLS(CALL("1") "," CALL("2")) "," SAYS("tool", "x") "," SAYS("tool", "y"),
         "[a]<call>f1 {}</call>[t]x[a]<call>f2 {}</call>[t]y"},
        {CALLS(CALL("1")) "," GIVES("1", "x") "," CALLS(CALL("2")),
         "[a]<call>f1 {}</call>[t]x[a]<call>f2 {}</call>"},
    };
    for (size_t i = 0; i < array_length(cases); i++)
        render_calls_with(one, cases[i].messages, cases[i].expected);
    render_calls_with(all, cases[2].messages, "[a]<call>f1 {}</call><call>f2 {}</call>[t]y[t]x");
}

/* What agents send behind a result, and templates (Mistral's, Gemma's) that want turns to alternate. */
static void results_are_put_where_a_template_takes_them(void **state)
{
    (void)state;
    static const char says_something[] = /* one that lets results be where they are, and nobody say nothing */
        "{% set n = namespace(last='assistant') %}{% for m in messages %}{% if m.role == 'user' or (m.role "
        "== "
        "'assistant' and not m.tool_calls) %}{% if m.role == n.last %}{{ raise_exception('turns') }}{% endif "
        "%}"
        "{% set n.last = m.role %}{% endif %}{% if m.role == 'assistant' and m.content == '' and not "
        "m.tool_calls %}"
        "{{ raise_exception('empty') }}{% endif %}[{{ m.role[0] }}]{% if m.content is string %}{{ m.content "
        "}}"
        "{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% for c in m.tool_calls or [] "
        "%}<call>"
        "{{ c.function.name }} {{ c.function.arguments | tojson }}</call>{% endfor %}{% endfor %}";
    static const char no_tools[] =
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('turns') }}{% endif %}[{{ m.role[0] }}]{{ m.content }}{% endfor %}";
    static const char shows_none[] =
        "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}[{{ m.role[0] }}]"
        "{{ m.content }}{% endif %}{% endfor %}";
    static const char refuses_orphans[] =
        "{% for m in messages %}{% if m.role == 'tool' and (loop.first or not messages[loop.index0 - "
        "1].tool_calls) "
        "%}{{ raise_exception('no call') }}{% endif %}[{{ m.role[0] }}]{{ m.content }}{% for c in "
        "m.tool_calls or [] "
        "%}<call>{{ c.function.name }} {{ c.function.arguments | tojson }}</call>{% endfor %}{% endfor %}";
    static const char messages[] =
        SAYS("user", "u") "," CALLS(CALL("1")) "," GIVES("1", "x") "," SAYS("user", "v");
    render_calls_with(says_something, messages, "[u]u[a]<call>f1 {}</call>[t]x[a][u]v");
    render_calls_with(says_something, SAYS("assistant", "a") "," SAYS("user", "u"), "[u][a]a[u]u");
    render_calls_with(no_tools, messages,
                      "[u]u[a]<tool_call>\n{\"name\": \"f1\", \"arguments\": {}}\n</tool_call>"
                      "[u]<tool_response>\nx\n</tool_response>\nv");
    render_calls_with(shows_none, messages,
                      "[u]u[a]<tool_call>\n{\"name\": \"f1\", \"arguments\": {}}\n</tool_call>"
                      "[u]<tool_response>\nx\n</tool_response>[u]v");
    render_calls_with(refuses_orphans, GIVES("0", "w") "," CALLS(CALL("1")) "," GIVES("1", "x"),
                      "[u]<tool_response>\nw\n</tool_response>[a]<call>f1 {}</call>[t]x");
}

/* Gemma 2 knows no system messages, and Llama 3.1 with tools no chat without a user. */
static void a_system_message_becomes_the_users(void **state)
{
    (void)state;
    static const char alternates[] =
        "{% set n = namespace(last='assistant') %}{% for m in messages %}{% if m.role == 'system' or m.role "
        "== "
        "n.last %}{{ raise_exception('no') }}{% endif %}{% set n.last = m.role %}[{{ m.role[0] "
        "}}]{{ m.content }}{% endfor %}";
    render_with(alternates, SAYS("system", "a") "," SAYS("user", "b"), "[u]a\nb");
    render_with(alternates, SAYS("system", "a"), "[u]a");
    render_with(alternates, SAYS("system", "a") "," SAYS("assistant", "b") "," SAYS("user", "c"),
                "[u]a[a]b[u]c");
}

/* Mistral's templates want ids of nine letters and digits, others want one. */
static void calls_are_numbered_for_a_template_that_wants_other_ids(void **state)
{
    (void)state;
    static const char nine[] =
        "{% for m in messages %}[{{ m.role[0] }}]{% for c in m.tool_calls or [] %}{% if c.id is not defined "
        "or "
        "c.id | length != 9 %}{{ raise_exception('ids') }}{% endif %}<call>{{ c.function.name }} "
        "{{ c.function.arguments | tojson }}#{{ c.id }}</call>{% endfor %}{% if m.role == 'tool' %}{{ "
        "m.tool_call_id }}:{% endif %}{{ m.content }}{% endfor %}";
    static const char no_ids[] =
        "{\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"function\",\"function\":{"
        "\"name\":\"f1\",\"arguments\":\"{}\"}}]}," SAYS("tool", "x");
    static const char named[] = CALLS(CALL("1") "," CALL("call_2")) "," GIVES("call_2", "y") "," GIVES(
        "1", "x") "," CALLS(CALL("abcDEF012")) "," GIVES("abcDEF012", "z") "," GIVES("9", "w");
    render_calls_with(nine, no_ids, "[a]<call>f1 {}#call00000</call>[t]call00000:x");
    render_calls_with(nine, named,
                      "[a]<call>f1 {}#call00000</call><call>fcall_2 {}#call00001</call>[t]call00001:y[t]"
                      "call00000:x[a]<call>fabcDEF012 {}#abcDEF012</call>[t]abcDEF012:z[t]9:w");
}

/* SDKs send one in each of an assistant's messages, and Llama 3.1 counts its calls. */
static void an_empty_list_of_calls_is_none(void **state)
{
    (void)state;
    render_with(
        "{% for m in messages %}{% if 'tool_calls' in m %}{{ m.tool_calls[0].id }}{% endif %}{{ m.content "
        "}}{% endfor %}",
        "{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[]}", "a");
}

/* What OpenAI's API lets out, gpt-oss, Hermes 2 Pro and Command R add to text or loop over. */
static void templates_read_what_tools_leave_out(void **state)
{
    (void)state;
    static const char careless[] =
        "{% for t in tools or [] %}{{ t.function.name + ' ' + t.function.description }}({% for k, v in "
        "t.function.parameters.properties.items() %}{% if v.type is defined and v.type is not string %}{{ "
        "raise_exception('types') }}{% endif %}{{ k + ':' + v.description + (v.type or 'any') }};{% endfor "
        "%}){% endfor %}{% for m in messages %}[{{ m.role[0] }}]{{ m.content }}{% for c in m.tool_calls or "
        "[] %}"
        "<call>{{ c.function.name }} {{ c.function.arguments | tojson }}</call>{% endfor %}{{ ';' }}{% "
        "endfor %}";
    params.uses_tools = true;
    tools =
        "{\"function\":{\"name\":\"f\"}},{\"function\":{\"name\":\"g\",\"description\":null,\"parameters\":{"
        "\"properties\":{\"a\":{\"type\":\"array\"},\"b\":{\"description\":\"x\"}}}}}";
    render_calls_with(careless, SAYS("user", "u"), "f ()g (a:array;b:xany;)[u]u;");
    tools = "{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":{\"type\":[\"null\","
            "\"string\"]},"
            "\"b\":true}}}}";
    render_calls_with(careless, SAYS("user", "u"), "f (a:string;b:any;)[u]u;");
    /* What was not the reason stays as it came. */
    render_calls_with(
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ "
        "m.content }}"
        "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }} {{ c.function.arguments | tojson "
        "}}</call>{% endfor %};{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}",
        SAYS("system", "s"),
        "s;[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {\"a\": {\"type\": [\"null\", "
        "\"string\"]}, \"b\": true}}}}]");
    /* GigaChat 3 minds a tuple of draft 7; Command R and Hermes 2 Pro look for a type that they do not know without an end. */
    static const char picky[] =
        "{% macro say(s) %}{% if s.type == 'array' %}[{{ say({'type': s['items'].get('type')}) }}]{% elif "
        "s.type is defined and "
        "s.type not in ['string', 'number', 'integer', 'boolean', 'object', none] %}{{ say(s) }}{% else %}{{ "
        "s.type or 'any' }}{% "
        "endif %}{% endmacro %}"
        "{% for t in tools or [] %}{{ t.function.name + ' ' + t.function.description }}({% for k, v in "
        "t.function.parameters.properties.items() %}{{ k + ':' + v.description }}{{ say(v) }};{% endfor "
        "%}){% endfor %}"
        "{% for m in messages %}[{{ m.role[0] }}]{{ m.content }}{% for c in m.tool_calls or [] %}<call>{{ "
        "c.function.name }} "
        "{{ "
        "c.function.arguments | tojson }}</call>{% endfor %}{{ ';' }}{% endfor %}";
    tools =
        "{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":{\"type\":\"array\",\"items\":[{"
        "\"type\":\"number\"},{\"type\":\"object\"}]},\"b\":{\"type\":\"NUMBER\"},\"c\":{\"type\":\"number\"}"
        "}}}}";
    render_calls_with(picky, SAYS("user", "u"), "f (a:[number];b:any;c:number;)[u]u;");
    params.uses_tools = false;
    tools = "";
    render_with("{% for t in tools %}{% endfor %}{{ functions }}{{ messages[0].content }}", SAYS("user", "u"),
                "[]u");
    render_with(
        "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ tools is none }}",
        SAYS("system", "s"), "True");
}

/* gpt-oss, SmolLM3 and MiniMax-M1 show the first system message, DeepSeek R1's the last one, and say nothing of the others. */
static void templates_that_lose_system_messages(void **state)
{
    (void)state;
    static const char *const shown[] = {
        "{% if messages[0].role == 'system' %}<{{ messages[0].content }}>{% endif %}",
        "{% set last = namespace(text='') %}{% for m in messages %}{% if m.role == 'system' %}{% set "
        "last.text = m.content "
        "%}{% endif %}{% endfor %}{% if last.text %}<{{ last.text }}>{% endif %}"};
    static const char others[] =
        "{% for m in messages %}{% if m.role != 'system' %}[{{ m.role[0] }}]{{ m.content }};{% endif "
        "%}{% endfor %}";
    for (size_t i = 0; i < array_length(shown); i++) {
        char source[512];
        snprintf(source, sizeof source, "%s%s", shown[i], others);
        render_calls_with(source,
                          SAYS("system", "a") "," SAYS("system", "b") "," SAYS("user", "u") "," SAYS(
                              "assistant", "x") "," SAYS("system", "c") "," SAYS("user", "v"),
                          "<a\nb>[u]u;[a]x;[u]c\nv;");
        render_calls_with(source, SAYS("system", "a") "," SAYS("user", "u") "," SAYS("user", "v"),
                          "<a>[u]u;[u]v;");
    }
    render_calls_with(
        "{% for m in messages %}[{{ m.role[0] }}]{{ m.content }};{% endfor %}",
        SAYS("system", "a") "," SAYS("system", "b") "," SAYS("user", "u") "," SAYS("system", "c"),
        "[s]a;[s]b;[u]u;[s]c;"); /* all are shown: nothing changes */
}

/* By the names that hosts of open models have for it, and that templates have. */
static void chat_says_whether_it_thinks(void **state)
{
    (void)state;
    static const struct {
        const char *fields, *said;
    } cases[] = {
        {"\"enable_thinking\":false", "(quiet)"},
        {"\"enable_thinking\":true", "(loud)"},
        {"\"thinking\":{\"type\":\"disabled\"}", "(quiet)"},
        {"\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":5}", "(loud)"},
        {"\"thinking\":false", "(quiet)"},
        {"\"reasoning\":{\"enabled\":false}", "(quiet)"},
        {"\"reasoning\":{\"effort\":\"low\",\"enabled\":true}", "(low)(loud)"},
        {"\"reasoning\":{\"effort\":\"none\"}", "(none)(quiet)"},
        {"\"reasoning\":{\"effort\":\"low\"},\"reasoning_effort\":\"high\"", "(high)"},
        {"\"chat_template_kwargs\":{\"thinking\":true},\"enable_thinking\":false", "(quiet)(loud)"},
        {"\"chat_template_kwargs\":{\"enable_thinking\":true},\"thinking\":{\"type\":\"disabled\"}",
         "(loud)"},
        {"\"enable_thinking\":null,\"thinking\":null,\"reasoning\":null", ""},
    };
    for (size_t i = 0; i < array_length(cases); i++) {
        char body[512], expected[128];
        snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],%s}",
                 cases[i].fields);
        snprintf(expected, sizeof expected, "<s>[user]x</s>[assistant]%s", cases[i].said);
        assert_prompt(API_CHAT, body, expected, 1);
    }
#define ASKED "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
    assert_refused(API_CHAT, ASKED "\"enable_thinking\":5}", "enable_thinking", "invalid_type");
    assert_refused(API_CHAT, ASKED "\"thinking\":5}", "thinking", "invalid_type");
    assert_refused(API_CHAT, ASKED "\"reasoning\":true}", "reasoning", "invalid_type");
}

static void chat_refuses_bad_messages(void **state)
{
    (void)state;
    static const struct {
        const char *messages, *param, *code;
    } cases[] = {
        {"null", "messages", "missing_required_parameter"},
        {"5", "messages", "invalid_type"},
        {"[]", "messages", "invalid_value"},
        {"[5]", "messages[0]", "invalid_type"},
        {"[{}]", "messages[0].role", "missing_required_parameter"},
        {"[{\"role\":1}]", "messages[0].role", "invalid_type"},
        {"[{\"role\":\"x\",\"content\":\"\"}]", "messages[0].role", "invalid_value"},
        {"[{\"role\":\"user\"}]", "messages[0].content", "missing_required_parameter"},
        {"[{\"role\":\"user\",\"content\":null}]", "messages[0].content", "missing_required_parameter"},
        {"[{\"role\":\"user\",\"content\":{}}]", "messages[0].content", "invalid_type"},
        {"[{\"role\":\"user\",\"content\":[]}]", "messages[0].content", "invalid_value"},
        {"[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":[5]}]",
         "messages[1].content[0]", "invalid_type"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]", "messages[0].content[0]",
         "missing_required_parameter"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":1}]}]", "messages[0].content[0]",
         "invalid_type"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]", "messages[0].content[0]",
         "unsupported_value"},
        {"[{\"role\":\"assistant\",\"tool_calls\":5}]", "messages[0].tool_calls", "invalid_type"},
    };
    for (size_t i = 0; i < array_length(cases); i++) {
        char body[512];
        snprintf(body, sizeof body, "{\"messages\":%s}", cases[i].messages);
        assert_refused(API_CHAT, body, cases[i].param, cases[i].code);
    }
    assert_refused(API_CHAT, "{}", "messages", "missing_required_parameter");
}

/* A role of three-byte characters is quoted up to a byte limit that is no multiple of three. */
static void quoted_text_stays_utf8(void **state)
{
    (void)state;
    char body[1024] = "{\"messages\":[{\"role\":\"x";
    for (int i = 0; i < 60; i++) strcat(body, "\xE2\x82\xAC");
    strcat(body, "\",\"content\":\"\"}]}");
    assert_refused(API_CHAT, body, "messages[0].role", "invalid_value");
    assert_non_null(strstr(error.text, "`x\xE2\x82\xAC"));
    struct buffer text;
    struct json_gate_limits limits = {8, 100, 100};
    buffer_init(&text, 4096);
    buffer_append_json_text(&text, error.text);
    assert_int_equal(json_gate_check(text.data, text.num_bytes, &limits, NULL), 0);
    buffer_deinit(&text);
}

static void assert_ids(const char *bytes, size_t n)
{
    const struct token_list *list = &prompts.items[0].tokens;
    assert_int_equal(list->num_ids, n);
    for (size_t i = 0; i < n; i++)
        if (list->ids[i] < 256) assert_int_equal(list->ids[i], (unsigned char)bytes[i]);
}

/* A NUL is a character like any other, wherever a client may write text. */
static void texts_may_have_nul(void **state)
{
    (void)state;
    assert_int_equal(
        prepare(API_COMPLETIONS, "{\"prompt\":\"a\\u0000b\\\\u0000\",\"echo\":true,\"stop\":\"\\u0000z\"}"),
        0);
    assert_ids("\001a\0b\\u0000", 10);
    assert_int_equal(prompts.items[0].text_bytes, 9);
    assert_memory_equal(prompts.items[0].text, "a\0b\\u0000", 9);
    assert_int_equal(params.stop.items[0].num_bytes, 2);
    assert_memory_equal(params.stop.items[0].text, "\0z", 2);
    prompts_deinit(&prompts);
    assert_int_equal(
        prepare(API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"</s>\\u0000\\u0000</s>\"}]}"), 0);
    assert_ids("<s>[user]</s>\0\0</s>\001[assistant]", 31);
    prompts_deinit(&prompts);
    assert_int_equal(prepare(API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"\\u0000\"},{\"role\":"
                                       "\"assistant\",\"content\":\"x\\u0000y\"}],"
                                       "\"add_generation_prompt\":false,\"continue_final_message\":true}"),
                     0);
    assert_ids("<s>[user]\0\001[assistant]x\0y", 25);
    prompts_deinit(&prompts);
    assert_int_equal(prepare(API_COMPLETIONS, "{\"prompt\":\"\xF4\x8F\xBF\xBF\\uDBFF\\uDFFF\"}"), 0);
    assert_ids("\001\xF4\x8F\xBF\xBF\xF4\x8F\xBF\xBF", 9); /* what stands in for it is itself elsewhere */
    prompts_deinit(&prompts);
    assert_refused(API_COMPLETIONS, "{\"prompt\":\"\\u0000\xF4\x8F\xBF\xBF\"}", "", "invalid_value");
    assert_refused(API_COMPLETIONS, "{\"prompt\":\"\\u0000\\uDBFF\\uDFFF\"}", "", "invalid_value");
}

static void trusted_variables_cannot_be_set(void **state)
{
    (void)state;
    static const char *const taken[] = {"bos_token", "eos_token", "messages", "add_generation_prompt",
                                        "tools"};
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < array_length(taken); i++) {
            char body[256], param[64];
            snprintf(body, sizeof body,
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"chat_template_kwargs\":{\"%s\":"
                     "\"</s>\"}}",
                     taken[i]);
            snprintf(param, sizeof param, "chat_template_kwargs.%s", taken[i]);
            assert_refused(API_CHAT, body, param, "invalid_value");
        }
        server.tokenizer = NULL; /* no BOS: the name stays taken */
    }
}

static void lengths_are_checked(void **state)
{
    (void)state;
    facts.max_model_len = 8;
    assert_prompt(API_COMPLETIONS, "{\"prompt\":[1,2,3,4,5,6,7]}", "\1\2\3\4\5\6\7", 0);
    assert_refused(API_COMPLETIONS, "{\"prompt\":[1,2,3,4,5,6,7,8]}", "prompt", "context_length_exceeded");
    assert_non_null(strstr(error.text, "This model's maximum context length is 8 tokens"));
    assert_refused(API_COMPLETIONS, "{\"prompt\":[1,2,3,4,5,6,7,8,9]}", "prompt", "context_length_exceeded");
    assert_refused(API_COMPLETIONS, "{\"prompt\":\"12345678901234\"}", "prompt", "context_length_exceeded");
    assert_non_null(strstr(error.text, "the prompt has 15 tokens"));
    assert_refused(API_COMPLETIONS, "{\"prompt\":[\"a\",\"12345678901234\"]}", "prompt[1]",
                   "context_length_exceeded");
    assert_prompt(API_COMPLETIONS, "{\"prompt\":[1,2,3],\"max_tokens\":5}", "\1\2\3", 0);
    assert_refused(API_COMPLETIONS, "{\"prompt\":[1,2,3],\"max_tokens\":6}", "prompt",
                   "context_length_exceeded");
    assert_non_null(strstr(error.text, "This model's maximum context length is 8 tokens"));
    assert_refused(API_COMPLETIONS, "{\"prompt\":[1,2,3],\"max_tokens\":2147483647}", "prompt",
                   "context_length_exceeded");
    assert_prompt(API_COMPLETIONS, "{\"prompt\":[1,2,3,4,5,6,7,8],\"max_tokens\":0,\"echo\":true}",
                  "\1\2\3\4\5\6\7\10", 0);
    assert_refused(API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a long one\"}]}", "messages",
                   "context_length_exceeded");
}

/* truncation of Responses, truncate of Ollama: a turn goes whole, with what answers it; instructions and the last turn stay. */
static void old_turns_are_dropped(void **state)
{
    (void)state;
#define CALL_                                                                                                \
    "{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},"                    \
    "{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"oooooooooo\"},"
#define ASK_(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define SAY_(text) "{\"role\":\"assistant\",\"content\":\"" text "\"},"
#define BODY_(rest, last)                                                                                    \
    "{\"instructions\":\"be\"," rest "\"input\":[" ASK_("aaaaaaaaaaaaaaaaaaaa") "," CALL_ SAY_("bb")         \
        ASK_("c") "," SAY_("d") ASK_(last) "]}"
    const char *const cut = BODY_("\"truncation\":\"auto\",\"max_output_tokens\":1,", "e");
    facts.max_model_len = 60;
    assert_int_equal(prepare_by(&codec_responses, cut), 0);
    assert_tokens(0, "<s>[system]be</s>[user]c</s>[assistant]d</s>[user]e</s>[assistant]", 4);
    assert_int_equal(prompts.num_dropped, 4);
    assert_non_null(strstr(params.warnings, "4 were dropped"));
    prompts_deinit(&prompts);
    assert_int_equal(prepare_by(&codec_responses, BODY_("\"truncation\":\"auto\",", "e")), 0);
    assert_tokens(0, "<s>[system]be</s>[user]e</s>[assistant]",
                  2); /* there shall be room for an answer, too */
    assert_int_equal(prompts.num_dropped, 6);
    prompts_deinit(&prompts);
    facts.max_model_len = 300;
    assert_int_equal(prepare_by(&codec_responses, cut), 0);
    assert_int_equal(prompts.num_dropped, 0);
    assert_null(params.warnings);
    prompts_deinit(&prompts);
    facts.max_model_len = 60;
    const char *const whole[] = {
        BODY_("", "e"), BODY_("\"truncation\":\"disabled\",", "e"),
        BODY_("\"truncation\":\"auto\",", "fffffffffffffffffffffffffffffffffffffffff")};
    for (size_t i = 0; i < array_length(whole); i++) {
        assert_true(prepare_by(&codec_responses, whole[i]) < 0);
        assert_string_equal(error.code, "context_length_exceeded");
        assert_string_equal(error.param, "input");
        prompts_deinit(&prompts);
    }
    assert_true(prepare_by(&codec_responses, BODY_("\"truncation\":\"maybe\",", "e")) < 0);
    assert_string_equal(error.param, "truncation");
#define CHAT_(rest)                                                                                          \
    "{\"messages\":[" ASK_("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa") "," SAY_("b")                  \
        ASK_("c") "]" rest "}"
    assert_true(prepare_by(&codec_ollama_chat, CHAT_("")) < 0);
    prompts_deinit(&prompts);
    assert_int_equal(prepare_by(&codec_ollama_chat, CHAT_(",\"truncate\":true")), 0);
    assert_tokens(0, "<s>[user]c</s>[assistant]", 1);
    prompts_deinit(&prompts);
#undef CHAT_
#undef CALL_
#undef ASK_
#undef SAY_
#undef BODY_
}

/* Of one message of an assistant: a model thinks between its calls. */
static void pieces_of_reasoning_are_joined(void **state)
{
    (void)state;
    static const char source[] =
        "{% for m in messages %}{% if m.reasoning_content %}<{{ m.reasoning_content }}>"
        "{% endif %}{{ m.content }}{% endfor %}";
    struct chat_template *usual = (struct chat_template *)(uintptr_t)server.chat_template, *other;
    static const struct {
        const struct codec *codec;
        const char *body;
    } cases[] = {
        {&codec_responses,
         "{\"input\":[{\"role\":\"user\",\"content\":\"u\"},{\"type\":\"reasoning\",\"content\":[{\"type\":"
         "\"reasoning_text\",\"text\":\"a\"},{\"type\":\"reasoning_text\",\"text\":\"b\"}]},{\"type\":"
         "\"function_call\","
         "\"call_id\":\"1\",\"name\":\"f\",\"arguments\":\"{}\"},{\"type\":\"reasoning\",\"content\":[{"
         "\"type\":"
         "\"reasoning_text\",\"text\":\"c\"}]},{\"role\":\"assistant\",\"content\":\"d\"}]}"},
        {&codec_messages, "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"u\"},{\"role\":"
                          "\"assistant\",\"content\":["
                          "{\"type\":\"thinking\",\"thinking\":\"a\",\"signature\":\"\"},{\"type\":"
                          "\"thinking\",\"thinking\":\"b\",\"signature\":"
                          "\"\"},{\"type\":\"tool_use\",\"id\":\"1\",\"name\":\"f\",\"input\":{}},{\"type\":"
                          "\"thinking\",\"thinking\":\"c\","
                          "\"signature\":\"\"},{\"type\":\"text\",\"text\":\"d\"}]}]}"},
    };
    assert_int_equal(chat_template_parse(source, &other, NULL), 0);
    server.chat_template = other;
    for (size_t i = 0; i < array_length(cases); i++) {
        assert_int_equal(prepare_by(cases[i].codec, cases[i].body), 0);
        assert_tokens(0, "u<a\nb\nc>d", 0);
        prompts_deinit(&prompts);
    }
    server.chat_template = usual;
    chat_template_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(completions_take_every_shape, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ids_and_texts_mix, set_up, tear_down),
        cmocka_unit_test_setup_teardown(completions_refuse_the_rest, set_up, tear_down),
        cmocka_unit_test_setup_teardown(control_tokens_count_in_raw_prompts_only, set_up, tear_down),
        cmocka_unit_test_setup_teardown(chat_renders_the_template, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_the_final_message_is_continued, set_up, tear_down),
        cmocka_unit_test_setup_teardown(calls_without_content_have_empty_content, set_up, tear_down),
        cmocka_unit_test_setup_teardown(parts_go_to_templates_that_want_them, set_up, tear_down),
        cmocka_unit_test_setup_teardown(messages_that_a_template_refuses_are_joined, set_up, tear_down),
        cmocka_unit_test_setup_teardown(arguments_that_are_no_object_become_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(calls_stand_alone_where_a_template_shows_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pieces_of_reasoning_are_joined, set_up, tear_down),
        cmocka_unit_test_setup_teardown(results_are_put_where_a_template_takes_them, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_system_message_becomes_the_users, set_up, tear_down),
        cmocka_unit_test_setup_teardown(calls_are_numbered_for_a_template_that_wants_other_ids, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(an_empty_list_of_calls_is_none, set_up, tear_down),
        cmocka_unit_test_setup_teardown(templates_read_what_tools_leave_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(templates_that_lose_system_messages, set_up, tear_down),
        cmocka_unit_test_setup_teardown(chat_says_whether_it_thinks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(chat_refuses_bad_messages, set_up, tear_down),
        cmocka_unit_test_setup_teardown(quoted_text_stays_utf8, set_up, tear_down),
        cmocka_unit_test_setup_teardown(texts_may_have_nul, set_up, tear_down),
        cmocka_unit_test_setup_teardown(trusted_variables_cannot_be_set, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lengths_are_checked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(old_turns_are_dropped, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
