/* tokenize.c - POST /tokenize, /detokenize, /v1/messages/count_tokens and /v1/responses/input_tokens: text to ids and back, with the same tables and rules as
 * generation.
 *
 *   /tokenize    {prompt | messages, add_special_tokens, parse_special, add_generation_prompt, return_token_strs}
 *                or llama.cpp's {content, add_special, parse_special, with_pieces}
 *                -> {count, max_model_len, tokens[, token_strs]}
 *   /detokenize  {tokens} -> {prompt, content}
 *   /apply-template  {messages} -> {prompt}
 *   /v1/messages/count_tokens  a body of Messages -> {input_tokens}
 *   /v1/responses/input_tokens  a body of Responses -> {object, input_tokens}
 *
 * The work is a pure function of the body, which a worker does (job.h). */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "server/api/api.h"
#include "server/api/job.h"
#include "server/api/loras.h"
#include "server/api/json_field.h"
#include "server/api/nul_text.h"
#include "server/api/prepare.h"

enum {
    SHORT_BODY_BYTES_MAX = 8 << 10,
    ANSWER_BYTES_MAX = 256 << 20,
    TOKEN_BYTES_MAX = 1 << 20,
    ARENA_BYTES_MAX = 1 << 20
};

/* ---- /tokenize ---- */

static void append_token_strings(struct buffer *out, const struct tokenizer *t, const struct token_list *list)
{
    struct buffer text;
    buffer_init(&text, TOKEN_BYTES_MAX);
    buffer_append_text(out, ",\"token_strs\":[");
    for (int32_t i = 0; i < list->num_ids; i++) {
        buffer_clear(&text);
        tokenizer_decode(t, &list->ids[i], 1, false, &text);
        if (i > 0) buffer_append_char(out, ',');
        buffer_append_json(out, text.data, text.num_bytes);
    }
    buffer_append_char(out, ']');
    buffer_deinit(&text);
}

/* As text, or, where it is part of a character, its bytes as numbers. text is scratch. */
static void append_piece(struct buffer *out, const struct tokenizer *t, int32_t id, struct buffer *text)
{
    size_t num_bytes;
    const unsigned char *bytes = (const unsigned char *)tokenizer_token_bytes(t, id, &num_bytes);
    if (utf8_is_valid(bytes, num_bytes)) {
        buffer_clear(text);
        tokenizer_decode(t, &id, 1, false, text);
        buffer_append_json(out, text->data, text->num_bytes);
        return;
    }
    for (size_t i = 0; i < num_bytes; i++) buffer_printf(out, i > 0 ? ",%d" : "[%d", bytes[i]);
    buffer_append_char(out, ']');
}

/* llama.cpp's with_pieces. */
static void append_pieces(struct buffer *out, const struct tokenizer *t, const struct token_list *list)
{
    struct buffer text;
    buffer_init(&text, TOKEN_BYTES_MAX);
    for (int32_t i = 0; i < list->num_ids; i++) {
        buffer_printf(out, "%s{\"id\":%d,\"piece\":", i > 0 ? "," : "", list->ids[i]);
        append_piece(out, t, list->ids[i], &text);
        buffer_append_char(out, '}');
    }
    buffer_deinit(&text);
}

static void append_tokens(struct job *job, const struct token_list *list, const cJSON *body)
{
    bool with_strings = cJSON_IsTrue(json_field_find(body, "return_token_strs"));
    bool with_pieces = cJSON_IsTrue(json_field_find(body, "with_pieces"));
    struct buffer *out = &job->answer;
    buffer_printf(out, "{\"count\":%d,\"max_model_len\":%d,\"tokens\":[", list->num_ids,
                  job->server->facts->max_model_len);
    if (with_pieces) append_pieces(out, job->server->tokenizer, list);
    for (int32_t i = 0; i < list->num_ids && !with_pieces; i++)
        buffer_printf(out, i ? ",%d" : "%d", list->ids[i]);
    buffer_append_char(out, ']');
    if (with_strings) append_token_strings(out, job->server->tokenizer, list);
    buffer_append_char(out, '}');
}

/* What is to be tokenised: the prompt as it stands, or the messages rendered. */
struct source {
    struct buffer rendered;
    const char *text;
    size_t num_bytes;
    struct text_range *untrusted;
    int num_untrusted;
    unsigned flags;
};

static int read_source(struct job *job, cJSON *body, const struct params *params, struct source *s)
{
    const cJSON *prompt = json_field_find(body, "prompt");
    if (params->kind == API_CHAT) {
        int64_t now_seconds = (int64_t)(clock_wall_ns() / 1000000000);
        int status = prompts_render_chat(job->server, params, body, now_seconds, &s->rendered, &s->untrusted,
                                         &s->num_untrusted, &job->error);
        s->text = s->rendered.data ? s->rendered.data : "";
        s->num_bytes = s->rendered.num_bytes;
        s->flags = TOKENIZER_PARSE_SPECIAL;
        return status;
    }
    if (!prompt)
        return api_error_invalid(&job->error, "missing_required_parameter", "prompt",
                                 "prompt (a string) or messages is missing");
    if (!cJSON_IsString(prompt)) return json_field_refuse_type(prompt, "prompt", "a string", &job->error);
    s->text = prompt->valuestring;
    s->num_bytes = strlen(s->text);
    if (params->has_nul) s->num_bytes = nul_text_restore(prompt->valuestring, s->num_bytes);
    s->flags = params->parse_special ? TOKENIZER_PARSE_SPECIAL : 0;
    return 0;
}

/* A prompt that could be answered can be tokenised, too. */
static int32_t max_tokens(const struct server *server)
{
    return max_of((int32_t)server->config->max_tokenize_tokens, server->facts->max_model_len);
}

static int refuse_too_many(struct job *job, const char *param)
{
    return api_error_set(&job->error, 413, "invalid_request_error", NULL, param,
                         "%s has more than %d tokens, which is the most that is taken at once "
                         "(--max-tokenize-tokens); send it in parts",
                         param, max_tokens(job->server));
}

static int encode_source(struct job *job, const struct params *params, const struct source *s,
                         struct token_list *list)
{
    unsigned flags = s->flags | (params->add_special_tokens ? TOKENIZER_ADD_SPECIAL : 0u);
    int status = tokenizer_encode(job->server->tokenizer, s->text, s->num_bytes, s->untrusted,
                                  s->num_untrusted, flags, max_tokens(job->server), list);
    if (status == STATUS_LIMIT) return refuse_too_many(job, params->kind == API_CHAT ? "messages" : "prompt");
    if (status < 0)
        return api_error_set(&job->error, 500, "server_error", NULL, NULL, "tokenising: %s",
                             status_text(status));
    return 0;
}

/* What a source becomes in the answer. */
typedef int answer_source(struct job *job, const struct params *params, const struct source *s,
                          const cJSON *body);

static int answer_tokens(struct job *job, const struct params *params, const struct source *s,
                         const cJSON *body)
{
    struct token_list list = {0};
    int status = encode_source(job, params, s, &list);
    if (status == 0) append_tokens(job, &list, body);
    token_list_deinit(&list);
    return status;
}

static int answer_count(struct job *job, const struct params *params, const struct source *s,
                        const cJSON *body)
{
    struct token_list list = {0};
    int status = encode_source(job, params, s, &list);
    (void)body;
    if (status == 0) buffer_printf(&job->answer, "\"input_tokens\":%d}", list.num_ids);
    token_list_deinit(&list);
    return status;
}

static int answer_text(struct job *job, const struct params *params, const struct source *s,
                       const cJSON *body)
{
    (void)params, (void)body;
    buffer_append_text(&job->answer, "{\"prompt\":");
    buffer_append_json(&job->answer, s->text, s->num_bytes);
    buffer_append_char(&job->answer, '}');
    return 0;
}

/* Reads the source out of a canonical body, as a generation does, and hands it to answer. */
static int with_source(struct job *job, enum api_kind kind, cJSON *body, answer_source *answer)
{
    struct request_slot_input input;
    struct request_payload payload;
    struct params params = {.input = &input, .payload = &payload};
    struct arena arena;
    struct source source = {0};
    buffer_init(&source.rendered, chat_template_limits_default.output_bytes);
    arena_init(&arena, ARENA_BYTES_MAX);
    int status =
        params_read(job->server, kind, body, job->text, job->text_bytes, &arena, &params, &job->error);
    loras_let_go(job->server->loras, params.lora); /* nothing is computed with it */
    if (status == 0) status = read_source(job, body, &params, &source);
    if (status == 0) status = answer(job, &params, &source, body);
    free(source.untrusted);
    buffer_deinit(&source.rendered);
    arena_deinit(&arena);
    return status;
}

/* llama.cpp's content is a prompt without the tokens that one begins with, unless add_special says so. */
static int take_content(struct job *job, cJSON *body)
{
    const cJSON *content = json_field_find(body, "content");
    bool adds = false;
    if (!content || json_field_find(body, "prompt") || json_field_find(body, "messages")) return 0;
    if (!cJSON_IsString(content)) return json_field_refuse_type(content, "content", "a string", &job->error);
    int status = json_field_bool(body, "add_special", &adds, &job->error);
    if (status < 0) return status;
    cJSON_DeleteItemFromObjectCaseSensitive(body, "prompt"); /* null */
    cJSON_DeleteItemFromObjectCaseSensitive(body, "add_special_tokens");
    cJSON *prompt = cJSON_DetachItemFromObjectCaseSensitive(body, "content");
    if (cJSON_AddBoolToObject(body, "add_special_tokens", adds) &&
        cJSON_AddItemToObject(body, "prompt", prompt))
        return 0;
    cJSON_Delete(prompt);
    return api_error_no_memory(&job->error);
}

static int run_tokenize(struct job *job, cJSON *body)
{
    bool checked;
    int status = json_field_bool(body, "return_token_strs", &checked, &job->error);
    if (status == 0) status = json_field_bool(body, "with_pieces", &checked, &job->error);
    if (status == 0) status = take_content(job, body);
    if (status < 0) return status;
    return with_source(job, json_field_find(body, "messages") ? API_CHAT : API_COMPLETIONS, body,
                       answer_tokens);
}

/* POST /apply-template: the messages as the model's template writes them. */
static int run_apply_template(struct job *job, cJSON *body)
{
    return with_source(job, API_CHAT, body, answer_text);
}

static int count_tokens_of(const struct codec *codec, struct job *job, cJSON *body)
{
    struct arena arena;
    arena_init(&arena, ANSWER_BYTES_MAX);
    struct translation t = {.server = job->server,
                            .body = body,
                            .kind = API_CHAT,
                            .arena = &arena,
                            .api_key_idx = job->api_key_idx,
                            .err = &job->error};
    int status = codec_translate(codec, &t);
    if (status == 0) status = with_source(job, API_CHAT, body, answer_count);
    if (status < 0) codec_name_error(codec, &t);
    cJSON_Delete(t.custom_tools);
    arena_deinit(&arena);
    return status;
}

static int run_count_tokens(struct job *job, cJSON *body)
{
    buffer_append_char(&job->answer, '{');
    return count_tokens_of(&codec_messages, job, body);
}

static int run_input_tokens(struct job *job, cJSON *body)
{
    buffer_append_text(&job->answer, "{\"object\":\"response.input_tokens\",");
    return count_tokens_of(&codec_responses, job, body);
}

/* ---- /detokenize ---- */

static int read_tokens(struct job *job, const cJSON *tokens, struct token_list *list)
{
    const cJSON *item;
    int32_t last = job->server->facts->vocab_size - 1;
    list->capacity = cJSON_GetArraySize(tokens);
    if (list->capacity > max_tokens(job->server)) return refuse_too_many(job, "tokens");
    list->ids = malloc(max_of((size_t)list->capacity, (size_t)1) * sizeof *list->ids);
    if (!list->ids) return api_error_no_memory(&job->error);
    cJSON_ArrayForEach(item, tokens)
    {
        int64_t id;
        char path[40];
        snprintf(path, sizeof path, "tokens[%d]", list->num_ids);
        if (!cJSON_IsNumber(item)) return json_field_refuse_type(item, path, "an integer", &job->error);
        if (!json_field_as_int(item, 0, last, &id))
            return api_error_invalid(&job->error, "invalid_value", path, "%s must be a token id from 0 to %d",
                                     path, last);
        list->ids[list->num_ids++] = (int32_t)id;
    }
    return 0;
}

static int run_detokenize(struct job *job, cJSON *body)
{
    struct token_list list = {0};
    struct buffer text;
    const cJSON *tokens = json_field_find(body, "tokens");
    int status = params_check_model(job->server, body, &job->error);
    if (status < 0) return status;
    if (!tokens)
        return api_error_invalid(&job->error, "missing_required_parameter", "tokens",
                                 "tokens is missing: an array of ids");
    if (!cJSON_IsArray(tokens))
        return json_field_refuse_type(tokens, "tokens", "an array of token ids", &job->error);
    buffer_init(&text, ANSWER_BYTES_MAX);
    status = read_tokens(job, tokens, &list);
    if (status == 0) {
        tokenizer_decode(job->server->tokenizer, list.ids, list.num_ids, false, &text);
        buffer_append_text(&job->answer, "{\"prompt\":");
        buffer_append_json(&job->answer, text.data, text.num_bytes);
        buffer_append_text(&job->answer, ",\"content\":"); /* llama.cpp's name of it */
        buffer_append_json(&job->answer, text.data, text.num_bytes);
        buffer_append_char(&job->answer, '}');
    }
    buffer_deinit(&text);
    token_list_deinit(&list);
    return status;
}

/* ---- routes ---- */

static void start_job(struct exchange *x, int (*run)(struct job *job, cJSON *body))
{
    struct job *job = job_create(x, sizeof *job, ANSWER_BYTES_MAX);
    if (!job) return;
    job->name = "a tokenised text";
    job->run = run;
    job->has_body = true;
    job_start(job, x->body_bytes > SHORT_BODY_BYTES_MAX);
}

void endpoint_tokenize(struct exchange *x)
{
    start_job(x, run_tokenize);
}

void endpoint_apply_template(struct exchange *x)
{
    start_job(x, run_apply_template);
}

void endpoint_count_tokens(struct exchange *x)
{
    start_job(x, run_count_tokens);
}

void endpoint_input_tokens(struct exchange *x)
{
    start_job(x, run_input_tokens);
}

void endpoint_detokenize(struct exchange *x)
{
    start_job(x, run_detokenize);
}
