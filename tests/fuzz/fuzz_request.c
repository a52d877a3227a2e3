/* A body through the JSON gate, and what passes through every codec, the validator and the prompts, by templates of several
 * kinds. What comes out must hold what params.h promises, and no text of the client's may become a control token. */
#include "base/arena.h"
#include "fuzz/fuzz_server.h"
#include "fuzz/json_mutator.h"
#include "server/api/api.h"
#include "server/api/json_gate.h"
#include "server/api/nul_text.h"
#include "server/api/prepare.h"
#include "server/api/response_store.h"

enum { ARENA_BYTES_MAX = 16 << 20 };

static const struct json_gate_limits limits = {.max_depth = 64, .max_nodes = 100000, .max_keys = 4096};
static struct server server;

static bool json_place(const uint8_t *data, size_t size, size_t *begin, size_t *end)
{
    (void)data;
    *begin = 0;
    *end = size;
    return true;
}

static bool is_in(double value, double min, double max)
{
    return value >= min && value <= max;
}

static bool is_id(int32_t id)
{
    return id >= 0 && id < fuzz_facts.vocab_size;
}

static void check_params(const struct params *p)
{
    const struct request_slot_input *in = p->input;
    assert_always(is_in(in->sampling.temperature, 0, 100) && is_in(in->sampling.top_p, 0, 1) &&
                  is_in(in->sampling.min_p, 0, 1));
    assert_always(is_in(in->sampling.presence_penalty, -2, 2) &&
                  is_in(in->sampling.frequency_penalty, -2, 2));
    assert_always(is_in(in->sampling.repetition_penalty, 0.009, 100));
    assert_always(in->sampling.top_k >= -1 && in->sampling.num_logprobs >= -1 &&
                  in->sampling.num_logprobs <= TOP_LOGPROBS_MAX);
    assert_always(p->n >= 1 && p->n <= fuzz_config.max_n && in->min_tokens >= 0);
    assert_always(p->max_tokens >= MAX_TOKENS_DEFAULT && p->max_tokens <= FUZZ_MODEL_LEN);
    assert_always(in->num_stop_token_ids >= 0 && in->num_stop_token_ids <= STOP_TOKEN_IDS_MAX);
    for (int i = 0; i < in->num_stop_token_ids; i++) assert_always(is_id(in->stop_token_ids[i]));
    assert_always(in->num_logprob_ids >= 0 && in->num_logprob_ids <= TOP_LOGPROBS_MAX &&
                  (in->num_logprob_ids == 0 || in->sampling.num_logprobs >= 0));
    for (int i = 0; i < in->num_logprob_ids; i++) assert_always(is_id(p->payload->logprob_ids[i]));
    assert_always(in->num_logit_bias >= 0 && in->num_logit_bias <= LOGIT_BIAS_MAX);
    for (int i = 0; i < in->num_logit_bias; i++) {
        assert_always(is_id(p->payload->logit_bias[i].token_id) &&
                      is_in(p->payload->logit_bias[i].bias, -100, 100));
        if (i > 0) assert_always(p->payload->logit_bias[i - 1].token_id < p->payload->logit_bias[i].token_id);
    }
    assert_always(p->stop.count <= fuzz_config.max_stop_strings);
    for (int i = 0; i < p->stop.count; i++)
        assert_always(p->stop.items[i].num_bytes >= 1 &&
                      p->stop.items[i].num_bytes <= fuzz_config.max_stop_bytes);
}

static int count_control(const struct token_list *list)
{
    int count = 0;
    for (int32_t i = 0; i < list->num_ids; i++) count += tokenizer_is_special(server.tokenizer, list->ids[i]);
    return count;
}

/* The template's own control tokens, whatever the messages say. */
static int expected_control(const struct params *p, const cJSON *body)
{
    const cJSON *prompt = cJSON_GetObjectItemCaseSensitive(body, "prompt");
    int num_messages = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(body, "messages"));
    if (p->truncate_prompt_tokens) return -1; /* cut, perhaps in the template's */
    if (p->kind == API_COMPLETIONS) return cJSON_IsString(prompt) && !p->parse_special ? 0 : -1;
    if (p->continue_final_message) return 2 * num_messages - 1;
    return 2 * num_messages + p->add_generation_prompt;
}

static void check_prompts(const struct params *p, const struct prompts *prompts, const cJSON *body)
{
    assert_always(prompts->count >= 1 && prompts->count <= fuzz_config.max_prompts);
    for (int i = 0; i < prompts->count; i++) {
        const struct token_list *list = &prompts->items[i].tokens;
        assert_always(list->num_ids >= 1 && list->num_ids <= FUZZ_MODEL_LEN);
        if (p->max_tokens >= 0) assert_always(list->num_ids + p->max_tokens <= FUZZ_MODEL_LEN);
        for (int32_t k = 0; k < list->num_ids; k++) assert_always(is_id(list->ids[k]));
    }
    int expected = expected_control(p, body);
    if (expected >= 0) assert_always(count_control(&prompts->items[0].tokens) == expected);
}

/* A sentence in the protocol's own shape; the client's fault, unless there was no memory. */
static void check_refusal(const struct codec *codec, const struct api_error *err)
{
    struct buffer out;
    struct error why = {0};
    const struct failure failure = api_error_failure(err, "r");
    assert_always(err->text[0] && (err->http_status / 100 == 4 || !strcmp(err->text, "out of memory")));
    buffer_init(&out, SIZE_MAX / 2);
    codec->append_error(&out, &failure);
    if (json_gate_check(out.data, out.num_bytes, &limits, &why) != 0) {
        fprintf(stderr, "%s: %s\n", why.text, err->text);
        abort();
    }
    buffer_deinit(&out);
}

static void prepare(const struct codec *codec, const char *text, size_t n, const cJSON *body)
{
    struct prepare_input in = {
        .server = &server, .codec = codec, .body = text, .body_bytes = n, .now_seconds = 1};
    struct arena arena;
    struct request_slot_input input;
    static struct request_payload payload;
    struct params params = {.input = &input, .payload = &payload};
    struct prompts prompts = {0};
    struct api_error err = {0};
    arena_init(&arena, ARENA_BYTES_MAX);
    if (prepare_run(&in, &arena, &params, &prompts, &err) == 0) {
        check_params(&params);
        if (!codec->fields && server.chat_template == fuzz_templates[0].chat_template)
            check_prompts(&params, &prompts, body);
    } else {
        check_refusal(codec, &err);
    }
    grammars_release(server.grammars, params.form.grammar);
    token_limits_release(params.limits);
    cJSON_Delete(params.tools);
    prompts_deinit(&prompts);
    arena_deinit(&arena);
}

/* What cJSON prints of a tree that passed must pass again. */
static void check_printed(const cJSON *body)
{
    char *printed = cJSON_PrintUnformatted(body);
    struct error err = {0};
    assert_always(printed);
    if (json_gate_check(printed, strlen(printed), &limits, &err) != 0) {
        fprintf(stderr, "%s\n%s\n", printed, err.text);
        abort();
    }
    cJSON *again = cJSON_Parse(printed);
    char *printed_again = cJSON_PrintUnformatted(again);
    assert_always(printed_again && !strcmp(printed, printed_again));
    cJSON_Delete(again);
    free(printed_again);
    free(printed);
}

/* With a store of responses, in which there is the one that a body may name. */
static void make_store(void)
{
    static struct api api;
    static const struct response_texts texts = {{"{}", "[{\"role\":\"user\",\"content\":\"a\"}]"}, {2, 31}};
    api.server = &server;
    api.responses = response_store_create(1 << 20);
    assert_always(api.responses);
    response_store_put(api.responses, 0, 1, "resp_1", &texts);
    server.api = &api;
}

static void init(void)
{
    fuzz_server_init(&server);
    fuzz_server_open_reranker(&server);
    make_store();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err = {0};
    if (!server.config) init();
    if (json_gate_check((const char *)data, size, &limits, &err) != 0) {
        assert_always(err.text[0]);
        return 0;
    }
    char *text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    bool conflict;
    cJSON *body = nul_text_parse(text, size, &conflict);
    assert_always(body || conflict);
    if (body) check_printed(body);
    for (int t = 0; t < FUZZ_NUM_TEMPLATES; t++) {
        fuzz_server_use_template(&server, t);
        for (size_t i = 0; i < array_length(all_codecs); i++)
            if (t == 0 || all_codecs[i]->kind == API_CHAT) prepare(all_codecs[i], text, size, body);
    }
    assert_always(arena_total_bytes() == fuzz_arena_bytes);
    cJSON_Delete(body);
    free(text);
    return 0;
}
