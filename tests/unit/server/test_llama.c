/* llama.cpp's bodies as canonical ones, gaps as prompts, and members of an answer by their paths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "server/api/codecs/llama.h"
#include "server/api/prepare.h"
#include "text/fim_tokens.h"
#include "unit/server/fake_tokenizer.h"

static struct config config;
static struct link_facts facts = {
    .vocab_size = FAKE_LOGITS_WIDTH, .generation = {-1, -1, -1, -1, -1, -1}, .max_model_len = 64};
static const char *const names[] = {"m"};
static char some_tokenizer;
static struct server server = {
    .config = &config, .facts = &facts, .model_names = names, .num_model_names = 1};
static struct fim_tokens fim;
static struct arena arena;
static struct api_error error;
static struct request_slot_input input;
static struct request_payload payload;
static struct params params = {.input = &input, .payload = &payload};
static struct prompts prompts;

static int set_up(void **state)
{
    (void)state;
    arena_init(&arena, 1 << 20);
    facts.max_model_len = 64;
    server.tokenizer = (const struct tokenizer *)&some_tokenizer;
    fim = (struct fim_tokens){.prefix = 'P',
                              .suffix = 'S',
                              .middle = 'M',
                              .repository = -1,
                              .file = -1,
                              .ends = {7, 8},
                              .num_ends = 2};
    server.fim = &fim;
    return config_init(&config, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    arena_deinit(&arena);
    config_deinit(&config);
    return 0;
}

static int prepare(const struct codec *codec, const char *body)
{
    const struct prepare_input in = {
        .server = &server, .codec = codec, .body = body, .body_bytes = strlen(body), .now_seconds = 0};
    prompts = (struct prompts){0};
    return prepare_run(&in, &arena, &params, &prompts, &error);
}

static void take(const struct codec *codec, const char *body)
{
    if (prepare(codec, body) < 0) fail_msg("%s: %s", body, error.text);
}

static void assert_prompt(const struct codec *codec, const char *body, const char *expected)
{
    struct buffer text;
    buffer_init(&text, 1 << 16);
    take(codec, body);
    assert_int_equal(prompts.count, 1);
    tokenizer_decode(NULL, prompts.items[0].tokens.ids, prompts.items[0].tokens.num_ids, false, &text);
    assert_string_equal(text.data, expected);
    buffer_deinit(&text);
    prompts_deinit(&prompts);
}

static void assert_refused(const struct codec *codec, const char *body, const char *param, const char *code)
{
    if (prepare(codec, body) == 0) fail_msg("accepted: %s", body);
    prompts_deinit(&prompts);
    if (error.http_status != 400) fail_msg("%s: status %d, %s", body, error.http_status, error.text);
    if (strcmp(error.param, param) != 0) fail_msg("%s: param %s: %s", body, error.param, error.text);
    if (strcmp(error.code ? error.code : "", code) != 0) fail_msg("%s: code %s", body, error.code);
}

/* ---- /completion ---- */

static void prompts_are_unwrapped(void **state)
{
    (void)state;
    const struct codec *c = &codec_llama_completion;
    assert_prompt(c, "{\"prompt\":{\"prompt_string\":\"ab\"}}", "<s>ab");
    assert_prompt(c, "{\"prompt\":[{\"prompt_string\":\"ab\",\"multimodal_data\":[]}]}", "<s>ab");
    assert_prompt(c, "{\"prompt\":[97,\"b\"]}", "ab");
    assert_refused(c, "{\"prompt\":[\"a\",{\"prompt_string\":\"a\",\"multimodal_data\":[\"x\"]}]}", "prompt",
                   "unsupported_value");
    assert_refused(c, "{\"prompt\":{\"prompt_string\":5}}", "prompt", "invalid_type");
    assert_refused(c, "{}", "prompt", "missing_required_parameter");
}

static void values_that_say_nothing_are_taken(void **state)
{
    (void)state;
    take(&codec_llama_completion,
         "{\"prompt\":\"a\",\"seed\":-1,\"grammar\":\"\",\"json_schema\":null,\"n_probs\":0,"
         "\"n_cmpl\":1,\"mirostat\":0,\"typical_p\":1.0,\"dynatemp_range\":0.0,\"lora\":[],"
         "\"t_max_predict_ms\":0,\"cache_prompt\":true,\"id_slot\":-1,\"n_keep\":-1,"
         "\"logit_bias\":[],\"stop\":[],\"xtc_probability\":0,\"post_sampling_probs\":false}");
    assert_false(params.has_seed || params.logprobs || params.return_token_ids);
    assert_true(params.fills_context && params.ends_with_context && params.tells_prompt_last);
    const struct llama_kept *kept = params.kept;
    assert_int_equal(kept->num_response_fields, -1);
    prompts_deinit(&prompts);
    take(&codec_llama_completion,
         "{\"prompt\":\"a\",\"seed\":4294967295,\"stream\":true,\"response_fields\":[]}");
    assert_true(!params.has_seed && params.return_token_ids);
    prompts_deinit(&prompts);
}

static void what_changes_an_answer_is_refused(void **state)
{
    (void)state;
    static const char *const names_refused[] = {"mirostat",           "typical_p",      "dynatemp_range",
                                                "xtc_probability",    "dry_multiplier", "lora",
                                                "post_sampling_probs"};
    for (size_t i = 0; i < array_length(names_refused); i++) {
        char body[128];
        snprintf(body, sizeof body, "{\"prompt\":\"a\",\"%s\":0.5}", names_refused[i]);
        assert_refused(&codec_llama_completion, body, names_refused[i], "unsupported_parameter");
    }
    assert_refused(&codec_llama_completion, "{\"prompt\":\"a\",\"n_probs\":21}", "n_probs", "invalid_value");
    assert_refused(&codec_llama_completion, "{\"prompt\":\"a\",\"n_probs\":\"x\"}", "n_probs",
                   "invalid_type");
    assert_refused(&codec_llama_completion, "{\"prompt\":\"a\",\"return_tokens\":1}", "return_tokens",
                   "invalid_type");
    assert_refused(&codec_llama_completion, "{\"prompt\":\"a\",\"response_fields\":\"x\"}", "response_fields",
                   "invalid_type");
    assert_refused(&codec_llama_completion, "{\"prompt\":\"a\",\"response_fields\":[5]}", "response_fields",
                   "invalid_type");
}

static void samplers_without_a_name_do_nothing(void **state)
{
    (void)state;
    const char *all = "\"temperature\":0.5,\"top_k\":5,\"top_p\":0.5,\"min_p\":0.25,\"repeat_penalty\":1.5,"
                      "\"presence_penalty\":1,\"frequency_penalty\":1,\"prompt\":\"a\"";
    const struct {
        const char *samplers;
        struct sampling expected;
    } cases[] = {
        {"[\"penalties\",\"top_k\",\"top_p\",\"min_p\",\"temperature\"]",
         {0.5f, 0.5f, 0.25f, 5, 1, 1, 1.5f, -1, 0}},
        {"[\"top_k\",\"top_p\",\"infill\"]", {0, 0.5f, 0, 5, 0, 0, 1, -1, 0}},
        {"[]", {1, 1, 0, 0, 0, 0, 1, -1, 0}},
        {"[\"temp\",\"xtc\",\"dry\",\"typ_p\",\"top_n_sigma\"]", {0.5f, 1, 0, 0, 0, 0, 1, -1, 0}},
        {"\"kpe\"", {1, 0.5f, 0, 5, 1, 1, 1.5f, -1, 0}},
    };
    for (size_t i = 0; i < array_length(cases); i++) {
        char body[512];
        snprintf(body, sizeof body, "{%s,\"samplers\":%s}", all, cases[i].samplers);
        take(&codec_llama_completion, body);
        const struct sampling *s = params.sampling, *e = &cases[i].expected;
        if (s->temperature != e->temperature || s->top_p != e->top_p || s->min_p != e->min_p ||
            s->top_k != e->top_k || s->presence_penalty != e->presence_penalty ||
            s->frequency_penalty != e->frequency_penalty || s->repetition_penalty != e->repetition_penalty)
            fail_msg("%s", cases[i].samplers);
        prompts_deinit(&prompts);
    }
    assert_refused(&codec_llama_completion, "{\"prompt\":\"a\",\"samplers\":[\"top_q\"]}", "samplers",
                   "invalid_value");
    assert_refused(&codec_llama_completion, "{\"prompt\":\"a\",\"samplers\":\"kz\"}", "samplers",
                   "invalid_value");
    assert_refused(&codec_llama_completion, "{\"prompt\":\"a\",\"samplers\":[5]}", "samplers",
                   "invalid_type");
    assert_refused(&codec_llama_completion, "{\"prompt\":\"a\",\"samplers\":5}", "samplers", "invalid_type");
}

/* ---- gaps ---- */

#define SIDES "\"input_prefix\":\"ab\",\"input_suffix\":\"cd\""

static void a_gap_is_told_in_the_models_order(void **state)
{
    (void)state;
    const struct codec *c = &codec_llama_infill;
    assert_prompt(c, "{" SIDES "}", "<s>PabScdM");
    assert_prompt(c, "{" SIDES ",\"prompt\":\"x\"}", "<s>PabScdMx");
    assert_prompt(c, "{\"input_prefix\":\"\",\"input_suffix\":\"\"}", "<s>PSM");
    assert_prompt(c, "{" SIDES ",\"input_extra\":[{\"text\":\"e\",\"filename\":\"f\"}]}", "<s>\nePabScdM");
    fim.file = 'F';
    fim.repository = 'R';
    assert_prompt(c, "{" SIDES ",\"input_extra\":[{\"text\":\"e\",\"filename\":\"f\"},{\"text\":\"g\"}]}",
                  "<s>Rproject\nFf\neFfile\ngFfile\nPabScdM");
    fim.suffix_first = true;
    assert_prompt(c, "{" SIDES "}", "<s>ScdPabM");
    fim.middle = -1;
    assert_prompt(c, "{" SIDES "}", "<s>ScdPab");
    assert_prompt(&codec_completions, "{\"prompt\":\"ab\",\"suffix\":\"cd\"}", "<s>ScdPab");
    assert_prompt(&codec_completions, "{\"prompt\":\"ab\",\"suffix\":\"\"}", "<s>ab");
    assert_prompt(&codec_llama_completion, "{\"prompt\":\"ab\",\"suffix\":\"cd\"}", "<s>ScdPab");
}

/* A control token that the client types is plain text, and what ends an answer in a gap is added to its own ends. */
static void a_gaps_texts_are_the_clients(void **state)
{
    (void)state;
    take(&codec_llama_infill,
         "{\"input_prefix\":\"</s>\",\"input_suffix\":\"\\u0000\",\"stop_token_ids\":[3]}");
    assert_int_equal(prompts.items[0].tokens.num_ids, 1 + 3 + 4 + 1);
    assert_int_equal(prompts.items[0].tokens.ids[2], '<');
    assert_int_equal(prompts.items[0].tokens.ids[7], 0);
    assert_int_equal(params.input->num_stop_token_ids, 3);
    assert_int_equal(params.input->stop_token_ids[0], 3);
    assert_int_equal(params.input->stop_token_ids[2], 8);
    prompts_deinit(&prompts);
}

/* Of the extra texts the newest stay, whole ones; then what is near the gap, a quarter of it behind. */
static void what_has_no_room_is_cut(void **state)
{
    (void)state;
    const struct codec *c = &codec_llama_infill;
    facts.max_model_len = 20; /* 16 for the prompt: 1 before, 3 marks, 12 */
    assert_prompt(c,
                  "{\"input_prefix\":\"0123456789abcdef\",\"input_suffix\":\"0123456789\",\"n_predict\":4}",
                  "<s>P789abcdefS012M");
    assert_prompt(c, "{\"input_prefix\":\"ab\",\"input_suffix\":\"0123456789abcdef\",\"n_predict\":4}",
                  "<s>PabS0123456789M");
    assert_prompt(c,
                  "{\"input_prefix\":\"ab\",\"input_suffix\":\"c\",\"n_predict\":4,\"input_extra\":"
                  "[{\"text\":\"1234\"},{\"text\":\"5678\"},{\"text\":\"90\"}]}",
                  "<s>\n5678\n90PabScM");
    fim.file = 'F'; /* what announces files has no room without them */
    assert_prompt(c,
                  "{\"input_prefix\":\"ab\",\"input_suffix\":\"c\",\"n_predict\":4,\"input_extra\":"
                  "[{\"text\":\"5678\"}]}",
                  "<s>PabScM");
    assert_prompt(c, "{\"input_prefix\":\"0123456789abcdef\",\"input_suffix\":\"\",\"n_predict\":500}",
                  "<s>P56789abcdefSM"); /* more than there is: a quarter of the context is the answer's */
}

static void gaps_are_refused_for_a_reason(void **state)
{
    (void)state;
    const struct codec *c = &codec_llama_infill;
    assert_refused(c, "{\"input_suffix\":\"a\"}", "input_prefix", "missing_required_parameter");
    assert_refused(c, "{\"input_prefix\":\"a\"}", "input_suffix", "missing_required_parameter");
    assert_refused(c, "{" SIDES ",\"prompt\":[1]}", "prompt", "invalid_type");
    assert_refused(c, "{" SIDES ",\"input_extra\":{}}", "input_extra", "invalid_type");
    assert_refused(c, "{" SIDES ",\"input_extra\":[{\"text\":\"a\"},5]}", "input_extra[1]", "invalid_type");
    assert_refused(c, "{" SIDES ",\"input_extra\":[{\"filename\":\"a\"}]}", "input_extra[0]", "invalid_type");
    assert_refused(&codec_completions, "{\"prompt\":[\"a\"],\"suffix\":\"b\"}", "suffix", "invalid_value");
    assert_refused(&codec_completions, "{\"prompt\":\"a\",\"suffix\":5}", "suffix", "invalid_type");
    assert_refused(&codec_completions, "{\"prompt\":\"a\",\"suffix\":\"b\",\"echo\":true}", "echo",
                   "invalid_value");
    fim.middle = -1;
    assert_refused(c, "{" SIDES "}", "input_prefix", "unsupported_value");
    assert_non_null(strstr(error.text, "for the middle"));
    server.fim = NULL;
    assert_refused(&codec_completions, "{\"prompt\":\"a\",\"suffix\":\"b\"}", "suffix", "unsupported_value");
}

/* ---- response_fields ---- */

static void fields_are_picked_by_their_paths(void **state)
{
    (void)state;
    static const char object[] = "{\"a\":\"x,}\\\"y\",\"b\":{\"c\":[1,{\"d\":2}],\"e\":-1.5},\"f\":true}";
    static const char *const paths[] = {"a", "b/e", "b/c", "b", "f", "g", "b/x", "a/b", "", "b/", "f/x"};
    const struct llama_kept kept = {paths, array_length(paths)}, none = {paths, 0};
    struct buffer out;
    buffer_init(&out, 1 << 12);
    llama_pick_fields(&out, object, &kept);
    buffer_append(&out, "", 1);
    assert_string_equal(out.data, "{\"a\":\"x,}\\\"y\",\"b/e\":-1.5,\"b/c\":[1,{\"d\":2}],"
                                  "\"b\":{\"c\":[1,{\"d\":2}],\"e\":-1.5},\"f\":true}");
    buffer_clear(&out);
    llama_pick_fields(&out, object, &none);
    assert_memory_equal(out.data, "{}", 2);
    buffer_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(prompts_are_unwrapped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(values_that_say_nothing_are_taken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_changes_an_answer_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(samplers_without_a_name_do_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_gap_is_told_in_the_models_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_gaps_texts_are_the_clients, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_has_no_room_is_cut, set_up, tear_down),
        cmocka_unit_test_setup_teardown(gaps_are_refused_for_a_reason, set_up, tear_down),
        cmocka_unit_test(fields_are_picked_by_their_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
