#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "server/api/json_gate.h"
#include "server/api/nul_text.h"
#include "server/api/params.h"
#include "unit/server/fake_tokenizer.h"

static struct config config;
static struct link_facts facts = {
    .vocab_size = FAKE_LOGITS_WIDTH, .generation = {-1, -1, -1, -1, -1, -1}, .max_model_len = 128};
static const char *const names[] = {"model-a", "org/alias"};
static struct server server = {
    .config = &config, .facts = &facts, .model_names = names, .num_model_names = 2};
static struct arena arena;
static struct api_error error;
static struct request_slot_input input;
static struct request_payload payload;
static struct params params = {.input = &input, .payload = &payload};

static int set_up(void **state)
{
    (void)state;
    arena_init(&arena, 1 << 20);
    return config_init(&config, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    arena_deinit(&arena);
    config_deinit(&config);
    return 0;
}

static int read_as(enum api_kind kind, const char *text)
{
    bool conflict;
    cJSON *body = nul_text_parse(text, strlen(text), &conflict);
    assert_non_null(body);
    int status = params_read(&server, kind, body, text, strlen(text), &arena, &params, &error);
    cJSON_Delete(body);
    return status;
}

static void assert_ok(enum api_kind kind, const char *text)
{
    if (read_as(kind, text) < 0) fail_msg("%s: %s", text, error.text);
}

static void assert_refused(enum api_kind kind, const char *text, const char *param, const char *code)
{
    if (read_as(kind, text) == 0) fail_msg("accepted: %s", text);
    assert_int_equal(error.http_status, 400);
    assert_string_equal(error.type, "invalid_request_error");
    if (strcmp(error.param, param) != 0) fail_msg("%s: param %s", text, error.param);
    if (strcmp(error.code, code) != 0) fail_msg("%s: code %s", text, error.code);
    assert_true(strlen(error.text) > 10);
}

static void defaults_are_openais(void **state)
{
    (void)state;
    for (enum api_kind kind = API_COMPLETIONS; kind <= API_CHAT; kind++) {
        assert_ok(kind, "{}");
        assert_true(params.input->sampling.temperature == 1 && params.input->sampling.top_p == 1 &&
                    params.input->sampling.min_p == 0);
        assert_true(params.input->sampling.repetition_penalty == 1);
        assert_int_equal(params.input->sampling.top_k, 0);
        assert_int_equal(params.input->sampling.num_logprobs, -1);
        assert_int_equal(params.n, 1);
        assert_int_equal(params.max_tokens, MAX_TOKENS_DEFAULT);
        assert_true(params.skip_special_tokens && params.add_generation_prompt && !params.stream);
        assert_int_equal(params.add_special_tokens, kind == API_COMPLETIONS);
        assert_false(params.has_seed || params.logprobs || params.echo);
        assert_int_equal(params.stop.count, 0);
    }
}

static void the_models_defaults_come_between(void **state)
{
    (void)state;
    struct generation_defaults model_defaults = {.temperature = 0.6f,
                                                 .top_p = 0.9f,
                                                 .min_p = 0.05f,
                                                 .repetition_penalty = 1.1f,
                                                 .top_k = 40,
                                                 .max_new_tokens = -1};
    facts.generation = model_defaults;
    assert_ok(API_CHAT, "{}");
    assert_true(params.input->sampling.temperature == 0.6f && params.input->sampling.top_p == 0.9f &&
                params.input->sampling.min_p == 0.05f);
    assert_true(params.input->sampling.repetition_penalty == 1.1f);
    assert_int_equal(params.input->sampling.top_k, 40);
    assert_ok(API_CHAT,
              "{\"temperature\":0,\"top_p\":1,\"top_k\":-1,\"min_p\":null,\"repetition_penalty\":1}");
    assert_true(params.input->sampling.temperature == 0 && params.input->sampling.top_p == 1 &&
                params.input->sampling.min_p == 0.05f);
    assert_int_equal(params.input->sampling.top_k, 0);
    assert_int_equal(config_set(&config, "generation-config", "vllm", "test", NULL), 0);
    assert_ok(API_CHAT, "{}");
    assert_true(params.input->sampling.temperature == 1 && params.input->sampling.top_p == 1);
    assert_int_equal(params.input->sampling.top_k, 0);
    facts.generation = (struct generation_defaults){-1, -1, -1, -1, -1, -1};
}

/* Every plain field: its ends are in, what lies beyond is out, null is absent, other types are refused. */
struct range {
    const char *name;
    const char *in[4], *out[6];
};

static const struct range ranges[] = {
    {"temperature", {"0", "100", "1.0", "1e-3"}, {"-0.1", "100.1", "1e308", "-1", NULL}},
    {"top_p", {"1", "0.5", "1e-300", "0"}, {"-0.1", "1.01", "1e308", NULL}},
    {"top_k",
     {"-1", "0", "1", "2147483647"},
     {"-2", "2147483648", "1.5", "9223372036854775807", "1e308", NULL}},
    {"min_p", {"0", "1", NULL}, {"-0.01", "1.01", NULL}},
    {"presence_penalty", {"-2", "2", "0", NULL}, {"-2.1", "2.1", "1e308", NULL}},
    {"frequency_penalty", {"-2", "2", "0", NULL}, {"-2.1", "2.1", "1e308", NULL}},
    {"repetition_penalty", {"0.01", "1", "2", NULL}, {"0", "-1", "1e308", NULL}},
    {"n", {"1", "16", "1.0", NULL}, {"0", "17", "-1", "2147483648", "9223372036854775808", "1.5"}},
    {"max_tokens",
     {"1", "-1", "2147483647", NULL},
     {"0", "-2", "2147483648", "9223372036854775808", "1e308", "3.9"}},
    {"min_tokens", {"0", "5", NULL}, {"-1", "2147483648", "0.5", NULL}},
};

static void numbers_have_ranges(void **state)
{
    (void)state;
    char text[128];
    for (size_t i = 0; i < array_length(ranges); i++) {
        const struct range *r = &ranges[i];
        for (int k = 0; k < 4 && r->in[k]; k++) {
            snprintf(text, sizeof text, "{\"%s\":%s}", r->name, r->in[k]);
            assert_ok(API_COMPLETIONS, text);
            assert_ok(API_CHAT, text);
            snprintf(text, sizeof text, "{\"%s\":\"%s\"}", r->name, r->in[k]);
            assert_ok(API_CHAT, text);
        }
        for (int k = 0; k < 6 && r->out[k]; k++) {
            snprintf(text, sizeof text, "{\"%s\":%s}", r->name, r->out[k]);
            assert_refused(API_COMPLETIONS, text, r->name, "invalid_value");
            assert_refused(API_CHAT, text, r->name, "invalid_value");
            snprintf(text, sizeof text, "{\"%s\":\"%s\"}", r->name,
                     r->out[k]); /* a number in a text is one */
            assert_refused(API_CHAT, text, r->name, "invalid_value");
        }
        static const char *const wrong[] = {"\"one\"", "\"1 2\"", "\"\"", "\"0x1\"",
                                            "\"nan\"", "true",    "[]",   "{}"};
        for (size_t k = 0; k < array_length(wrong); k++) {
            snprintf(text, sizeof text, "{\"%s\":%s}", r->name, wrong[k]);
            assert_refused(API_COMPLETIONS, text, r->name, "invalid_type");
        }
        snprintf(text, sizeof text, "{\"%s\":null}", r->name);
        assert_ok(API_CHAT, text);
    }
}

static void booleans_are_booleans(void **state)
{
    (void)state;
    static const char *const common[] = {"stream",
                                         "ignore_eos",
                                         "skip_special_tokens",
                                         "include_stop_str_in_output",
                                         "add_special_tokens",
                                         "return_tokens_as_token_ids"};
    char text[128];
    for (size_t i = 0; i < array_length(common); i++) {
        static const char *const wrong[] = {"0", "1", "\"yes\"", "[]", "{}"};
        for (size_t k = 0; k < array_length(wrong); k++) {
            snprintf(text, sizeof text, "{\"%s\":%s}", common[i], wrong[k]);
            assert_refused(API_COMPLETIONS, text, common[i], "invalid_type");
            assert_refused(API_CHAT, text, common[i], "invalid_type");
        }
        snprintf(text, sizeof text, "{\"%s\":true}", common[i]);
        assert_ok(API_COMPLETIONS, text);
        snprintf(text, sizeof text, "{\"%s\":null}", common[i]);
        assert_ok(API_CHAT, text);
    }
}

/* What nothing reads is named, and a slip of the pen explained; what would change the answer is refused. */
static void ignored_fields_are_named(void **state)
{
    (void)state;
    assert_ok(API_CHAT, "{\"temperature\":0,\"user\":null,\"messages\":[],\"chat_template_kwargs\":{}}");
    assert_null(params.ignored);
    assert_ok(API_CHAT, "{\"user\":\"u\",\"metadata\":{},\"whatever\":1}");
    assert_string_equal(params.ignored->names, "user,metadata,whatever");
    assert_string_equal(params.ignored->misspelt, "");
    assert_ok(API_CHAT, "{\"user\":\"u\",\"temprature\":1}");
    assert_string_equal(params.ignored->misspelt, "temprature is no field; did you mean temperature?");
    assert_ok(API_COMPLETIONS, "{\"max_token\":1}");
    assert_string_equal(params.ignored->misspelt, "max_token is no field; did you mean max_tokens?");
    char text[8192] = "{\"a\":1", copy[8192], name[64];
    for (int i = 1; i < 32; i++) { /* each is compared with all fields: not with too many */
        if (i == 31) assert_ok(API_CHAT, strcat(strcpy(copy, text), ",\"temprature\":1}"));
        if (i == 31) assert_string_not_equal(params.ignored->misspelt, "");
        snprintf(name, sizeof name, ",\"zz%d\":1", i);
        strcat(text, name);
    }
    assert_ok(API_CHAT, strcat(text, ",\"temprature\":1}"));
    assert_string_equal(params.ignored->misspelt, "");
    strcpy(text, "{\"a\":1");
    for (int i = 0; i < 200; i++) { /* bounded, whatever a client names */
        snprintf(name, sizeof name, ",\"%d\\r\\n\\u00e9\":1", i);
        strcat(text, name);
    }
    strcat(text, "}");
    assert_ok(API_CHAT, text);
    assert_true(strlen(params.ignored->names) < IGNORED_NAMES_BYTES);
    assert_string_equal(params.ignored->misspelt, "");
    assert_refused(API_CHAT, "{\"thinking_token_budget\":5}", "thinking_token_budget",
                   "unsupported_parameter");
    assert_refused(API_CHAT, "{\"typical_p\":0.5}", "typical_p", "unsupported_parameter");
    assert_refused(API_CHAT, "{\"length_penalty\":2}", "length_penalty", "unsupported_parameter");
    assert_ok(API_CHAT, "{\"typical_p\":1,\"spaces_between_special_tokens\":true,\"length_penalty\":1.0}");
}

/* A raw prompt may hold control tokens; a chat's texts never do, whoever asks for it. */
static void control_tokens_are_parsed_in_raw_prompts_only(void **state)
{
    (void)state;
    assert_ok(API_COMPLETIONS, "{}");
    assert_true(params.parse_special);
    assert_ok(API_COMPLETIONS, "{\"parse_special\":false}");
    assert_false(params.parse_special);
    assert_ok(API_CHAT, "{\"parse_special\":true}");
    assert_false(params.parse_special);
    config.completions_parse_special = false;
    assert_ok(API_COMPLETIONS, "{}");
    assert_false(params.parse_special);
    assert_ok(API_COMPLETIONS, "{\"parse_special\":true}");
    assert_true(params.parse_special);
}

static void seeds_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t seed;
    } good[] = {
        {"{\"seed\":0}", 0},
        {"{\"seed\":-1}", -1},
        {"{\"seed\":9007199254740993}", 9007199254740993LL},
        {"{\"a\":{\"seed\":5},\"seed\" : 9223372036854775807 }", INT64_MAX},
        {"{\"x\":\"seed\\\",\",\"seed\":-9223372036854775808}", INT64_MIN},
        {"{\"x\":[1,{\"y\":\"}\"}],\"seed\":9007199254740995,\"z\":1}", 9007199254740995LL},
        {"{\"\\u0073eed\":7}", 7},
        {"{\"seed\":1e3}", 1000},
        {"{\"seed\":\" 9007199254740993 \"}", 9007199254740993LL},
    };
    for (size_t i = 0; i < array_length(good); i++) {
        assert_ok(API_CHAT, good[i].text);
        assert_true(params.has_seed);
        assert_true(params.seed == good[i].seed);
    }
    static const char *const bad[] = {"{\"seed\":9223372036854775808}", "{\"seed\":-9223372036854775809}",
                                      "{\"seed\":1.5}", "{\"seed\":1e30}",
                                      "{\"\\u0073eed\":9007199254740995}"};
    for (size_t i = 0; i < array_length(bad); i++) assert_refused(API_CHAT, bad[i], "seed", "invalid_value");
    assert_refused(API_CHAT, "{\"seed\":\"one\"}", "seed", "invalid_type");
    assert_ok(API_CHAT, "{\"seed\":null}");
    assert_false(params.has_seed);
}

static void stop_strings(void **state)
{
    (void)state;
    assert_ok(API_CHAT, "{\"stop\":\"a\"}");
    assert_int_equal(params.stop.count, 1);
    assert_ok(API_CHAT, "{\"stop\":[\"a\",\"\\n\\n\",\"\xC3\xA9\"]}");
    assert_int_equal(params.stop.count, 3);
    assert_string_equal(params.stop.items[2].text, "\xC3\xA9");
    assert_ok(API_CHAT, "{\"stop\":[]}");
    assert_ok(API_CHAT, "{\"stop\":null}");
    assert_int_equal(params.stop.count, 0);
    assert_refused(API_CHAT, "{\"stop\":\"\"}", "stop", "invalid_value");
    assert_refused(API_CHAT, "{\"stop\":[\"a\",\"\"]}", "stop[1]", "invalid_value");
    assert_refused(API_CHAT, "{\"stop\":[\"a\",1]}", "stop[1]", "invalid_type");
    assert_refused(API_CHAT, "{\"stop\":[null]}", "stop[0]", "invalid_type");
    assert_refused(API_CHAT, "{\"stop\":5}", "stop", "invalid_type");
    assert_refused(API_CHAT, "{\"stop\":{}}", "stop", "invalid_type");
    char text[4096] = "{\"stop\":[\"1\"";
    for (int i = 0; i < 63; i++) strcat(text, ",\"x\"");
    char more[4200];
    snprintf(more, sizeof more, "%s]}", text);
    assert_ok(API_CHAT, more);
    snprintf(more, sizeof more, "%s,\"x\"]}", text);
    assert_refused(API_CHAT, more, "stop", "invalid_value");
    assert_non_null(strstr(error.text, "--max-stop-strings"));
    snprintf(more, sizeof more, "{\"stop\":\"%0256d\"}", 0);
    assert_ok(API_CHAT, more);
    snprintf(more, sizeof more, "{\"stop\":\"%0257d\"}", 0);
    assert_refused(API_CHAT, more, "stop", "invalid_value");
    assert_non_null(strstr(error.text, "--max-stop-bytes"));
}

/* Ids are checked against the width of the logits: the index that would reach a kernel. */
static void token_ids_stay_below_the_width(void **state)
{
    (void)state;
    assert_ok(API_CHAT, "{\"stop_token_ids\":[0,269],\"logit_bias\":{\"0\":-100,\"269\":100}}");
    assert_int_equal(params.input->num_stop_token_ids, 2);
    assert_int_equal(params.input->stop_token_ids[1], 269);
    assert_int_equal(params.input->num_logit_bias, 2);
    assert_refused(API_CHAT, "{\"stop_token_ids\":[1,270]}", "stop_token_ids[1]", "invalid_value");
    assert_refused(API_CHAT, "{\"stop_token_ids\":[-1]}", "stop_token_ids[0]", "invalid_value");
    assert_refused(API_CHAT, "{\"stop_token_ids\":[1.5]}", "stop_token_ids[0]", "invalid_value");
    assert_refused(API_CHAT, "{\"stop_token_ids\":[4294967297]}", "stop_token_ids[0]", "invalid_value");
    assert_refused(API_CHAT, "{\"stop_token_ids\":[\"one\"]}", "stop_token_ids[0]", "invalid_type");
    assert_refused(API_CHAT, "{\"stop_token_ids\":1}", "stop_token_ids", "invalid_type");
    assert_refused(API_CHAT, "{\"logit_bias\":{\"270\":1}}", "logit_bias.270", "invalid_value");
    assert_refused(API_CHAT, "{\"logit_bias\":{\"-1\":1}}", "logit_bias.-1", "invalid_value");
    assert_refused(API_CHAT, "{\"logit_bias\":{\"foo\":0}}", "logit_bias.foo", "invalid_value");
    assert_refused(API_CHAT, "{\"logit_bias\":{\"\":0}}", "logit_bias.", "invalid_value");
    assert_refused(API_CHAT, "{\"logit_bias\":{\"01\":0}}", "logit_bias.01", "invalid_value");
    assert_refused(API_CHAT, "{\"logit_bias\":{\"4294967296\":0}}", "logit_bias.4294967296", "invalid_value");
    assert_refused(API_CHAT, "{\"logit_bias\":{\"1\":101}}", "logit_bias.1", "invalid_value");
    assert_refused(API_CHAT, "{\"logit_bias\":{\"1\":null}}", "logit_bias.1", "invalid_type");
    char text[1024] = "{\"stop_token_ids\":[0";
    for (int i = 0; i < 63; i++) strcat(text, ",1");
    char more[1100];
    snprintf(more, sizeof more, "%s]}", text);
    assert_ok(API_CHAT, more);
    snprintf(more, sizeof more, "%s,1]}", text);
    assert_refused(API_CHAT, more, "stop_token_ids", "invalid_value");
}

static void biases_are_sorted(void **state)
{
    (void)state;
    assert_ok(API_COMPLETIONS, "{\"logit_bias\":{\"200\":1,\"3\":2.5,\"50\":-3}}");
    static const int32_t ids[] = {3, 50, 200};
    for (int i = 0; i < 3; i++) assert_int_equal(params.payload->logit_bias[i].token_id, ids[i]);
    assert_true(params.payload->logit_bias[0].bias == 2.5f);
}

static void logprobs_differ_by_endpoint(void **state)
{
    (void)state;
    assert_ok(API_CHAT, "{\"logprobs\":true,\"top_logprobs\":20}");
    assert_true(params.logprobs);
    assert_int_equal(params.input->sampling.num_logprobs, 20);
    assert_ok(API_CHAT, "{\"logprobs\":true}");
    assert_int_equal(params.input->sampling.num_logprobs, 0);
    assert_ok(API_CHAT, "{\"logprobs\":false,\"top_logprobs\":0}");
    assert_int_equal(params.input->sampling.num_logprobs, -1);
    assert_refused(API_CHAT, "{\"top_logprobs\":5}", "top_logprobs", "invalid_value");
    assert_refused(API_CHAT, "{\"logprobs\":true,\"top_logprobs\":21}", "top_logprobs", "invalid_value");
    assert_refused(API_CHAT, "{\"logprobs\":true,\"top_logprobs\":-1}", "top_logprobs", "invalid_value");
    assert_refused(API_CHAT, "{\"logprobs\":3}", "logprobs", "invalid_type");
    assert_ok(API_COMPLETIONS, "{\"logprobs\":0}");
    assert_true(params.logprobs && params.input->sampling.num_logprobs == 0 &&
                !params.input->prompt_logprobs);
    assert_ok(API_COMPLETIONS, "{\"logprobs\":5,\"echo\":true}");
    assert_true(params.input->prompt_logprobs && params.input->sampling.num_logprobs == 5);
    assert_refused(API_COMPLETIONS, "{\"logprobs\":true}", "logprobs", "invalid_type");
    assert_refused(API_COMPLETIONS, "{\"logprobs\":21}", "logprobs", "invalid_value");
}

/* The engine is asked for the most that answer and prompt want; 0 alternatives are not none. */
static void prompt_logprobs_are_taken_on_both(void **state)
{
    (void)state;
    static const enum api_kind kinds[] = {API_CHAT, API_COMPLETIONS};
    for (int i = 0; i < 2; i++) {
        assert_ok(kinds[i], "{}");
        assert_int_equal(params.num_prompt_logprobs, -1);
        assert_ok(kinds[i], "{\"prompt_logprobs\":0}");
        assert_true(params.input->prompt_logprobs && !params.logprobs && params.num_prompt_logprobs == 0);
        assert_int_equal(params.input->sampling.num_logprobs, 0);
        assert_refused(kinds[i], "{\"prompt_logprobs\":21}", "prompt_logprobs", "invalid_value");
        assert_refused(kinds[i], "{\"prompt_logprobs\":-1}", "prompt_logprobs", "invalid_value");
        assert_refused(kinds[i], "{\"prompt_logprobs\":[1]}", "prompt_logprobs", "invalid_type");
        assert_refused(kinds[i], "{\"prompt_logprobs\":1,\"stream\":true}", "prompt_logprobs",
                       "invalid_value");
    }
    assert_ok(API_COMPLETIONS, "{\"logprobs\":2,\"prompt_logprobs\":5}");
    assert_int_equal(params.input->sampling.num_logprobs, 5);
    assert_int_equal(params.num_top_logprobs, 2);
    assert_ok(API_CHAT, "{\"logprobs\":true,\"top_logprobs\":3,\"prompt_logprobs\":1}");
    assert_int_equal(params.input->sampling.num_logprobs, 3);
    assert_int_equal(params.num_prompt_logprobs, 1);
}

static void max_tokens_of_nothing_needs_echo(void **state)
{
    (void)state;
    assert_ok(API_COMPLETIONS, "{\"max_tokens\":0,\"echo\":true,\"logprobs\":1}");
    assert_true(params.input->prompt_logprobs && params.max_tokens == 0);
    assert_ok(API_COMPLETIONS, "{\"max_tokens\":0,\"echo\":true}");
    assert_true(params.input->prompt_logprobs && !params.logprobs);
    assert_refused(API_COMPLETIONS, "{\"max_tokens\":0}", "max_tokens", "invalid_value");
    assert_refused(API_CHAT, "{\"max_tokens\":0,\"echo\":false}", "max_tokens", "invalid_value");
    assert_ok(API_CHAT, "{\"max_tokens\":3,\"max_completion_tokens\":9}");
    assert_int_equal(params.max_tokens, 9);
    assert_refused(API_CHAT, "{\"max_tokens\":3,\"min_tokens\":4}", "min_tokens", "invalid_value");
}

/* llama.cpp's pairs: of ids, and of texts, whose every token is meant; the last word counts. */
static void biases_come_in_pairs_too(void **state)
{
    (void)state;
    assert_ok(API_CHAT, "{\"logit_bias\":[]}");
    assert_int_equal(params.input->num_logit_bias, 0);
    assert_ok(API_COMPLETIONS, "{\"logit_bias\":[[269,1],[\"ab\",-2.5],[0,false],[97,3]]}");
    const struct logit_bias expected[] = {{0, -100}, {'a', 3}, {'b', -2.5f}, {269, 1}};
    assert_int_equal(params.input->num_logit_bias, 4);
    for (size_t i = 0; i < array_length(expected); i++) {
        assert_int_equal(params.payload->logit_bias[i].token_id, expected[i].token_id);
        assert_true(params.payload->logit_bias[i].bias == expected[i].bias);
    }
    assert_ok(API_CHAT, "{\"logit_bias\":{\"5\":false}}");
    assert_true(params.payload->logit_bias[0].bias == -100);
    assert_refused(API_CHAT, "{\"logit_bias\":5}", "logit_bias", "invalid_type");
    assert_refused(API_CHAT, "{\"logit_bias\":[[1]]}", "logit_bias[0]", "invalid_type");
    assert_refused(API_CHAT, "{\"logit_bias\":[[1,2],5]}", "logit_bias[1]", "invalid_type");
    assert_refused(API_CHAT, "{\"logit_bias\":[[1,2,3]]}", "logit_bias[0]", "invalid_type");
    assert_refused(API_CHAT, "{\"logit_bias\":[[270,2]]}", "logit_bias[0]", "invalid_value");
    assert_refused(API_CHAT, "{\"logit_bias\":[[-1,2]]}", "logit_bias[0]", "invalid_value");
    assert_refused(API_CHAT, "{\"logit_bias\":[[null,2]]}", "logit_bias[0]", "invalid_value");
    assert_refused(API_CHAT, "{\"logit_bias\":[[1,true]]}", "logit_bias[0]", "invalid_type");
    assert_refused(API_CHAT, "{\"logit_bias\":[[1,101]]}", "logit_bias[0]", "invalid_value");
    char text[2 * LOGIT_BIAS_MAX] =
        "{\"logit_bias\":[[\""; /* more tokens than there may be, but few different ones */
    memset(text + strlen(text), 'x', LOGIT_BIAS_MAX);
    assert_ok(API_CHAT, strcat(text, "\",1]]}"));
    assert_int_equal(params.input->num_logit_bias, 1);
}

static void unknown_fields_pass_and_unsupported_do_not(void **state)
{
    (void)state;
    assert_ok(
        API_CHAT,
        "{\"user\":\"u\",\"metadata\":{\"a\":\"b\"},\"store\":true,\"Temperature\":99,\"new_in_2030\":[1],"
        "\"service_tier\":\"auto\",\"parallel_tool_calls\":true,\"tools\":[],\"tool_choice\":\"auto\","
        "\"response_format\":{\"type\":\"text\"},\"modalities\":[\"text\"],\"use_beam_search\":false,"
        "\"priority\":0,\"guided_json\":null,\"suffix\":\"x\",\"best_of\":\"x\"}");
    assert_refused(API_CHAT, "{\"tools\":[{}]}", "tools[0].function", "invalid_type");
    assert_ok(API_CHAT, "{\"priority\":-100}");
    assert_refused(API_CHAT, "{\"priority\":101}", "priority", "invalid_value");
    assert_refused(API_CHAT, "{\"priority\":\"one\"}", "priority", "invalid_type");
    assert_ok(API_CHAT, "{\"tools\":[{}],\"tool_choice\":\"none\"}");
    assert_refused(API_CHAT, "{\"tool_choice\":\"required\"}", "tool_choice", "invalid_value");
    assert_refused(API_CHAT, "{\"modalities\":[\"text\",\"audio\"]}", "modalities", "unsupported_value");
    assert_ok(API_COMPLETIONS, "{\"best_of\":2}");
    assert_ok(API_COMPLETIONS, "{\"best_of\":2,\"n\":2,\"stream\":true}");
    assert_refused(API_COMPLETIONS, "{\"best_of\":2,\"stream\":true}", "best_of", "invalid_value");
    assert_refused(API_COMPLETIONS, "{\"best_of\":1,\"n\":2}", "best_of", "invalid_value");
    assert_refused(API_COMPLETIONS, "{\"best_of\":1000000}", "best_of", "invalid_value");
    static const char *const fields[] = {"use_beam_search", "prompt_embeds", "vllm_xargs"};
    for (size_t i = 0; i < array_length(fields); i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"%s\":[1]}", fields[i]);
        assert_refused(API_COMPLETIONS, text, fields[i], "unsupported_parameter");
        assert_refused(API_CHAT, text, fields[i], "unsupported_parameter");
    }
}

enum { TOOLS_MAX = 2048 };

/* {"type": "function", "function": {"name": "f0"}}, ... */
static void write_tools(struct buffer *text, int num_tools)
{
    for (int i = 0; i < num_tools; i++)
        buffer_printf(text, "%s{\"type\":\"function\",\"function\":{\"name\":\"f%d\"}}", i ? "," : "",
                      i % TOOLS_MAX);
}

/* Of so many tools so many are allowed. */
static const char *write_allowed(struct buffer *text, int num_tools, int num_allowed)
{
    text->num_bytes = 0;
    buffer_append_text(text, "{\"tools\":[");
    write_tools(text, num_tools);
    buffer_append_text(text,
                       "],\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\","
                       "\"tools\":[");
    write_tools(text, num_allowed);
    buffer_append(text, "]}}}", sizeof "]}}}");
    return text->data;
}

static void tools_are_not_too_many(void **state)
{
    (void)state;
    struct buffer text;
    buffer_init(&text, 1 << 20);
    assert_ok(API_CHAT, write_allowed(&text, TOOLS_MAX, TOOLS_MAX));
    assert_refused(API_CHAT, write_allowed(&text, TOOLS_MAX + 1, 1), "tools", "invalid_value");
    assert_refused(API_CHAT, write_allowed(&text, TOOLS_MAX, TOOLS_MAX + 1), "tool_choice", "invalid_value");
    buffer_deinit(&text);
}

/* llama.cpp's names: the same as another field, or refused by their own name. */
static void llama_cpps_names_are_read(void **state)
{
    (void)state;
    assert_ok(API_COMPLETIONS, "{\"repeat_penalty\":1.5,\"repeat_last_n\":-1,\"n_predict\":7}");
    assert_true(params.input->sampling.repetition_penalty == 1.5f && params.max_tokens == 7);
    assert_ok(API_CHAT, "{\"repeat_last_n\":64,\"n_predict\":7,\"max_tokens\":8}");
    assert_int_equal(params.max_tokens, 8);
    assert_ok(API_COMPLETIONS, "{\"n_predict\":-1}");
    assert_true(params.max_tokens == MAX_TOKENS_DEFAULT && params.fills_context);
    assert_ok(API_COMPLETIONS, "{\"n_predict\":0}"); /* the prompt is computed, and that is all */
    assert_int_equal(params.max_tokens, 0);
    assert_refused(API_CHAT, "{\"n_predict\":0}", "n_predict", "invalid_value");
    assert_ok(API_CHAT, "{\"n_indent\":4}");
    assert_int_equal(params.n_indent, 4);
    assert_refused(API_COMPLETIONS, "{\"n_indent\":-1}", "n_indent", "invalid_value");
    assert_refused(API_CHAT, "{\"repeat_penalty\":1.1,\"repeat_last_n\":64}", "repeat_last_n",
                   "unsupported_value");
    assert_refused(API_CHAT, "{\"presence_penalty\":1,\"repeat_last_n\":0}", "repeat_last_n",
                   "unsupported_value");
    assert_ok(API_CHAT, "{\"reasoning_format\":\"none\",\"top_n_sigma\":-1,\"tfs_z\":1,\"n_cmpl\":1}");
    assert_false(params.separate_reasoning);
    assert_refused(API_CHAT, "{\"reasoning_format\":\"x\"}", "reasoning_format", "unsupported_value");
    assert_refused(API_CHAT, "{\"top_n_sigma\":2}", "top_n_sigma", "unsupported_parameter");
}

static void ids_of_log_probabilities(void **state)
{
    (void)state;
    assert_ok(API_CHAT, "{\"logprobs\":true,\"logprob_token_ids\":[3,1,\"2\"]}");
    assert_true(params.input->num_logprob_ids == 3 && params.num_top_logprobs == 3 &&
                params.payload->logprob_ids[0] == 3 && params.payload->logprob_ids[2] == 2);
    assert_ok(API_COMPLETIONS, "{\"logprobs\":0,\"logprob_token_ids\":[3]}");
    assert_ok(API_CHAT, "{\"logprob_token_ids\":[]}");
    assert_refused(API_CHAT, "{\"logprob_token_ids\":[1]}", "logprob_token_ids", "invalid_value");
    assert_refused(API_CHAT, "{\"logprobs\":true,\"logprob_token_ids\":[-1]}", "logprob_token_ids[0]",
                   "invalid_value");
    assert_refused(API_COMPLETIONS, "{\"logprobs\":1,\"logprob_token_ids\":[1e9]}", "logprob_token_ids[0]",
                   "invalid_value");
    assert_refused(API_COMPLETIONS,
                   "{\"logprobs\":1,\"logprob_token_ids\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}",
                   "logprob_token_ids", "invalid_value");
}

static void assert_form(const char *body, enum constraint_kind kind, const char *text, int max_spaces)
{
    assert_ok(API_CHAT, body);
    const struct constraint *c = &params.form.constraint;
    assert_int_equal(c->kind, kind);
    assert_string_equal(c->text ? c->text : "", text);
    assert_int_equal(c->max_spaces, max_spaces);
}

static void forms_become_one_constraint(void **state)
{
    (void)state;
    assert_form("{\"response_format\":{\"type\":\"text\"}}", CONSTRAINT_NONE, "", 20);
    assert_form("{\"response_format\":{\"type\":\"json_object\"}}", CONSTRAINT_JSON_OBJECT, "", 20);
    assert_form(
        "{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"strict\":true,"
        "\"schema\":{\"type\" : \"string\"}}}}",
        CONSTRAINT_JSON_SCHEMA, "{\"type\":\"string\"}", 20);
    assert_form("{\"structured_outputs\":{\"json\":{},\"disable_any_whitespace\":true,\"regex\":null}}",
                CONSTRAINT_JSON_SCHEMA, "{}", 0);
    assert_form("{\"structured_outputs\":{\"json\":{},\"disable_additional_properties\":true}}",
                CONSTRAINT_JSON_SCHEMA, "{}", 20);
    assert_form("{\"guided_whitespace_pattern\":\" ?\",\"guided_json\":{}}", CONSTRAINT_JSON_SCHEMA, "{}",
                20);
    assert_string_equal(params.form.constraint.whitespace_pattern, " ?");
    assert_form("{\"structured_outputs\":{\"json_object\":true}}", CONSTRAINT_JSON_OBJECT, "", 20);
    assert_form("{\"structured_outputs\":{}}", CONSTRAINT_NONE, "", 20);
    assert_form("{\"guided_json\":\"{\\\"type\\\": 1}\"}", CONSTRAINT_JSON_SCHEMA, "{\"type\": 1}", 20);
    assert_form("{\"guided_regex\":\"a+\",\"guided_json\":null}", CONSTRAINT_REGEX, "a+", 20);
    assert_form("{\"regex\":\"a+\",\"ebnf\":null}", CONSTRAINT_REGEX, "a+", 20);
    assert_form("{\"ebnf\":\"root ::= \\\"a\\\"\"}", CONSTRAINT_EBNF, "root ::= \"a\"", 20);
    assert_form("{\"guided_choice\":[\"a\",\"b\"]}", CONSTRAINT_CHOICE, "[\"a\",\"b\"]", 20);
    assert_form("{\"guided_grammar\":\"root ::= \\\"a\\\"\"}", CONSTRAINT_EBNF, "root ::= \"a\"", 20);
}

static void forms_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *body, *param, *code;
    } cases[] = {
        {"{\"response_format\":\"text\"}", "response_format", "invalid_type"},
        {"{\"response_format\":{}}", "response_format.type", "invalid_type"},
        {"{\"response_format\":{\"type\":\"xml\"}}", "response_format.type", "unsupported_value"},
        {"{\"response_format\":{\"type\":\"json_schema\"}}", "response_format.json_schema", "invalid_type"},
        {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\"}}}",
         "response_format.json_schema.schema", "invalid_type"},
        {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"strict\":1,\"schema\":{}}}}",
         "response_format.json_schema.strict", "invalid_type"},
        {"{\"structured_outputs\":[]}", "structured_outputs", "invalid_type"},
        {"{\"structured_outputs\":{\"regexp\":\"a\"}}", "structured_outputs.regexp", "unsupported_parameter"},
        {"{\"structured_outputs\":{\"whitespace_pattern\":1}}", "structured_outputs.whitespace_pattern",
         "invalid_type"},
        {"{\"structured_outputs\":{\"whitespace_pattern\":\" ?\",\"disable_any_whitespace\":true}}",
         "structured_outputs.whitespace_pattern", "invalid_value"},
        {"{\"structured_outputs\":{\"whitespace_pattern\":\" ?\"},\"guided_whitespace_pattern\":\" ?\"}",
         "guided_whitespace_pattern", "invalid_value"},
        {"{\"structured_outputs\":{\"regex\":\"a\",\"choice\":[\"a\"]}}", "structured_outputs.choice",
         "invalid_value"},
        {"{\"structured_outputs\":{\"regex\":\"a\"},\"guided_choice\":[\"a\"]}", "guided_choice",
         "invalid_value"},
        {"{\"response_format\":{\"type\":\"json_object\"},\"guided_json\":{}}", "guided_json",
         "invalid_value"},
        {"{\"guided_choice\":[]}", "guided_choice", "invalid_value"},
        {"{\"guided_choice\":[\"a\",1]}", "guided_choice[1]", "invalid_type"},
        {"{\"guided_regex\":\"\"}", "guided_regex", "invalid_value"},
        {"{\"guided_grammar\":[]}", "guided_grammar", "invalid_type"},
        {"{\"regex\":\"a\",\"ebnf\":\"b\"}", "ebnf", "invalid_value"},
        {"{\"regex\":[]}", "regex", "invalid_type"},
        {"{\"guided_json\":[]}", "guided_json", "invalid_type"},
        {"{\"guided_json\":\"{\"}", "guided_json", "invalid_value"},
        {"{\"guided_json\":\"\\\"\\\\u0000\\\"\"}", "guided_json", "invalid_value"},
        {"{\"guided_json\":{\"const\":\"\\u0000\"}}", "guided_json", "invalid_value"},
        {"{\"guided_regex\":\"a\\u0000\"}", "guided_regex", "invalid_value"},
        {"{\"guided_whitespace_pattern\":[],\"guided_json\":{}}", "guided_whitespace_pattern",
         "invalid_type"},
    };
    for (size_t i = 0; i < array_length(cases); i++) {
        assert_refused(API_CHAT, cases[i].body, cases[i].param, cases[i].code);
        assert_refused(API_COMPLETIONS, cases[i].body, cases[i].param, cases[i].code);
    }
}

static void stream_options(void **state)
{
    (void)state;
    assert_ok(API_CHAT,
              "{\"stream\":true,\"stream_options\":{\"include_usage\":true,\"include_obfuscation\":false}}");
    assert_true(params.stream && params.include_usage && !params.continuous_usage);
    assert_ok(API_CHAT, "{\"stream\":false,\"stream_options\":{\"include_usage\":true}}");
    assert_refused(API_CHAT, "{\"stream_options\":{\"include_usage\":1}}", "stream_options.include_usage",
                   "invalid_type");
    assert_refused(API_CHAT, "{\"stream_options\":true}", "stream_options", "invalid_type");
}

static void models_have_names(void **state)
{
    (void)state;
    assert_ok(API_CHAT, "{\"model\":\"model-a\"}");
    assert_ok(API_CHAT, "{\"model\":\"org/alias\"}");
    assert_ok(API_CHAT, "{\"model\":null}");
    assert_int_equal(read_as(API_CHAT, "{\"model\":\"other\"}"), STATUS_INVALID);
    assert_int_equal(error.http_status, 404);
    assert_string_equal(error.code, "model_not_found");
    assert_non_null(
        strstr(error.text, "The model `other` does not exist; this server serves `model-a` (GET"));
    assert_refused(API_CHAT, "{\"model\":5}", "model", "invalid_type");
    assert_refused(API_CHAT, "[]", "body", "invalid_type");
}

static void salts(void **state)
{
    (void)state;
    char text[1024];
    assert_ok(API_CHAT, "{\"cache_salt\":\"abc\"}");
    assert_string_equal(params.cache_salt, "abc");
    snprintf(text, sizeof text, "{\"cache_salt\":\"%0128d\"}", 0);
    assert_ok(API_CHAT, text);
    snprintf(text, sizeof text, "{\"cache_salt\":\"%0129d\"}", 0);
    assert_refused(API_CHAT, text, "cache_salt", "invalid_value");
    assert_refused(API_CHAT, "{\"cache_salt\":\"\"}", "cache_salt", "invalid_value");
    assert_refused(API_CHAT, "{\"cache_salt\":1}", "cache_salt", "invalid_type");
}

/* The dominant failure of such servers is a pair of parameters. Every pair of values, good and bad: the
 * result is either a refusal with a param, or a request whose every number is in the slot's range. */
static const char *const values[] = {
    "\"temperature\":0",
    "\"temperature\":2",
    "\"top_p\":0",
    "\"top_k\":2147483647",
    "\"top_k\":-1",
    "\"min_p\":1",
    "\"n\":16",
    "\"max_tokens\":1",
    "\"max_tokens\":0",
    "\"max_completion_tokens\":2147483647",
    "\"min_tokens\":2147483647",
    "\"min_tokens\":1",
    "\"echo\":true",
    "\"logprobs\":0",
    "\"logprobs\":20",
    "\"logprobs\":true",
    "\"top_logprobs\":20",
    "\"seed\":-9223372036854775808",
    "\"stop\":[\"a\",\"ab\",\"b\"]",
    "\"stop_token_ids\":[269]",
    "\"stop_token_ids\":[270]",
    "\"ignore_eos\":true",
    "\"logit_bias\":{\"269\":-100}",
    "\"logit_bias\":{\"270\":0}",
    "\"repetition_penalty\":0.01",
    "\"presence_penalty\":-2",
    "\"frequency_penalty\":2",
    "\"stream\":true",
    "\"stream_options\":{\"include_usage\":true}",
    "\"continue_final_message\":true",
    "\"add_generation_prompt\":false",
    "\"best_of\":1",
    "\"skip_special_tokens\":false",
    "\"include_stop_str_in_output\":true",
    "\"cache_salt\":\"x\"",
};

static void assert_in_slot_range(const struct params *p)
{
    const struct request_slot_input *in = p->input;
    assert_true(in->sampling.temperature >= 0 && in->sampling.temperature <= 2 &&
                (in->sampling.temperature == 0 || in->sampling.temperature >= 0.01f));
    assert_true(in->sampling.top_p > 0 && in->sampling.top_p <= 1 && in->sampling.min_p >= 0 &&
                in->sampling.min_p <= 1 && in->sampling.top_k >= 0);
    assert_true(in->sampling.repetition_penalty > 0 && in->sampling.num_logprobs >= -1 &&
                in->sampling.num_logprobs <= TOP_LOGPROBS_MAX);
    assert_true(p->n >= 1 && p->n <= 16 && p->max_tokens >= MAX_TOKENS_DEFAULT && in->min_tokens >= 0);
    assert_true(p->max_tokens != 0 || in->prompt_logprobs);
    assert_true(!p->logprobs || in->sampling.num_logprobs >= 0);
    assert_true(p->max_tokens == MAX_TOKENS_DEFAULT || in->min_tokens <= p->max_tokens);
    for (int i = 0; i < in->num_stop_token_ids; i++)
        assert_in_range(in->stop_token_ids[i], 0, FAKE_LOGITS_WIDTH - 1);
    for (int i = 0; i < in->num_logit_bias; i++)
        assert_in_range(p->payload->logit_bias[i].token_id, 0, FAKE_LOGITS_WIDTH - 1);
}

static void every_pair_is_refused_or_in_range(void **state)
{
    (void)state;
    int num_accepted = 0, num_refused = 0;
    for (size_t a = 0; a < array_length(values); a++) {
        for (size_t b = 0; b < array_length(values); b++) {
            for (enum api_kind kind = API_COMPLETIONS; kind <= API_CHAT; kind++) {
                char text[256];
                snprintf(text, sizeof text, a == b ? "{%s}" : "{%s,%s}", values[a], values[b]);
                struct json_gate_limits limits = {8, 1000, 100};
                if (json_gate_check(text, strlen(text), &limits, NULL) != 0)
                    continue; /* the same field twice */
                if (read_as(kind, text) == 0) {
                    assert_in_slot_range(&params);
                    num_accepted++;
                } else {
                    assert_int_equal(error.http_status, 400);
                    assert_true(error.param[0] && error.code);
                    num_refused++;
                }
            }
        }
        arena_deinit(&arena);
    }
    assert_true(num_accepted > 500 && num_refused > 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(defaults_are_openais, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_models_defaults_come_between, set_up, tear_down),
        cmocka_unit_test_setup_teardown(numbers_have_ranges, set_up, tear_down),
        cmocka_unit_test_setup_teardown(booleans_are_booleans, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ignored_fields_are_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(control_tokens_are_parsed_in_raw_prompts_only, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stop_strings, set_up, tear_down),
        cmocka_unit_test_setup_teardown(seeds_are_exact, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ids_of_log_probabilities, set_up, tear_down),
        cmocka_unit_test_setup_teardown(token_ids_stay_below_the_width, set_up, tear_down),
        cmocka_unit_test_setup_teardown(biases_are_sorted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(logprobs_differ_by_endpoint, set_up, tear_down),
        cmocka_unit_test_setup_teardown(prompt_logprobs_are_taken_on_both, set_up, tear_down),
        cmocka_unit_test_setup_teardown(biases_come_in_pairs_too, set_up, tear_down),
        cmocka_unit_test_setup_teardown(unknown_fields_pass_and_unsupported_do_not, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tools_are_not_too_many, set_up, tear_down),
        cmocka_unit_test_setup_teardown(max_tokens_of_nothing_needs_echo, set_up, tear_down),
        cmocka_unit_test_setup_teardown(llama_cpps_names_are_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(forms_become_one_constraint, set_up, tear_down),
        cmocka_unit_test_setup_teardown(forms_that_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stream_options, set_up, tear_down),
        cmocka_unit_test_setup_teardown(models_have_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(salts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_pair_is_refused_or_in_range, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
