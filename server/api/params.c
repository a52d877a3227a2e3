/* Most fields are rows of a table (field_table.h); those with a shape of their own (lists, maps, objects) are read here. */
#include "server/api/params.h"

#include <string.h>

#include "base/check.h"
#include "server/api/field_table.h"
#include "server/api/json_field.h"
#include "server/api/logit_bias.h"
#include "server/api/loras.h"
#include "server/api/model_names.h"
#include "server/api/nul_text.h"
#include "server/api/token_offsets.h"
#include "server/api/tool_params.h"
#include "text/rerank_template.h"

struct reader {
    const struct server *server;
    const cJSON *body;
    const char *text; /* the same body, for integers that a double would round */
    size_t text_bytes;
    struct arena *arena;
    struct params *out;
    struct api_error *err;
};

/* ---- plain fields, and those that are not there yet ---- */

static int read_plain_fields(struct reader *r)
{
    return field_table_read(r->body, r->out, r->err);
}

static bool text_equals(const cJSON *value, const char *text)
{
    return value && cJSON_IsString(value) && !strcmp(value->valuestring, text);
}

static int check_modalities(struct reader *r)
{
    const cJSON *modalities = json_field_find(r->body, "modalities"), *item;
    if (modalities && !cJSON_IsArray(modalities))
        return json_field_refuse_type(modalities, "modalities", "an array of strings", r->err);
    cJSON_ArrayForEach(item, modalities)
    {
        if (!text_equals(item, "text"))
            return api_error_invalid(r->err, "unsupported_value", "modalities",
                                     "modalities may hold \"text\" only: this model reads and writes text");
    }
    return 0;
}

static int check_unsupported(struct reader *r)
{
    int status = field_table_check_unsupported(r->body, r->out->kind, r->err);
    if (r->out->kind != API_CHAT) return status;
    if (status == 0) status = tool_params_read(r->body, r->arena, r->out, r->err);
    return status < 0 ? status : check_modalities(r);
}

static int note_ignored(struct reader *r)
{
    struct ignored_fields ignored;
    field_table_find_ignored(r->body, r->out->kind, &ignored);
    if (!ignored.names[0]) return 0;
    r->out->ignored = (void *)arena_copy(r->arena, &ignored, sizeof ignored);
    return r->out->ignored ? 0 : api_error_no_memory(r->err);
}

/* ---- counts ---- */

/* -1, as programs for llama.cpp and LM Studio say it: as many as fit. */
static int read_most_tokens(struct reader *r, const char *name, int64_t least, int64_t *value)
{
    const cJSON *field = json_field_find(r->body, name);
    if (!field || !json_field_as_int(field, MAX_TOKENS_DEFAULT, MAX_TOKENS_DEFAULT, value))
        return json_field_int(r->body, name, least, INT32_MAX, value, r->err);
    r->out->fills_context = true;
    return 0;
}

static int read_max_tokens(struct reader *r)
{
    struct params *p = r->out;
    int64_t value = p->max_tokens;
    int64_t least = p->kind == API_COMPLETIONS && p->echo ? 0 : 1;
    int status = read_most_tokens(r, "max_tokens", least, &value);
    if (status == 0 && p->kind == API_CHAT)
        status = read_most_tokens(r, "max_completion_tokens", least, &value);
    if (status < 0) return status;
    p->max_tokens = (int32_t)value;
    int64_t min_tokens = 0;
    status = json_field_int(r->body, "min_tokens", 0, INT32_MAX, &min_tokens, r->err);
    if (status < 0) return status;
    if (p->max_tokens != MAX_TOKENS_DEFAULT && min_tokens > p->max_tokens)
        return api_error_invalid(r->err, "invalid_value", "min_tokens",
                                 "min_tokens must not be more than max_tokens (%d); got %lld", p->max_tokens,
                                 (long long)min_tokens);
    p->input->min_tokens = (int32_t)min_tokens;
    return 0;
}

/* llama.cpp's name of max_tokens; -1: all the room there is, in a text completion, too, where 0 computes the prompt for
 * those that begin alike and generates nothing. */
static int read_n_predict(struct reader *r)
{
    int64_t value = 0;
    int status = json_field_int(r->body, "n_predict", -1, INT32_MAX, &value, r->err);
    if (status < 0 || !json_field_find(r->body, "n_predict")) return status;
    if (value == 0 && r->out->kind != API_COMPLETIONS)
        return api_error_invalid(r->err, "invalid_value", "n_predict",
                                 "n_predict must be at least 1, or -1 for as many as fit");
    if (value < 0) r->out->fills_context = true;
    r->out->max_tokens = (int32_t)value;
    return 0;
}

/* llama.cpp's: how far back penalties look. Here they look at everything. */
static int check_penalty_window(struct reader *r)
{
    int64_t window = -1;
    int status = json_field_int(r->body, "repeat_last_n", -1, INT32_MAX, &window, r->err);
    bool is_whole = window < 0 || window >= r->server->facts->max_model_len;
    if (status < 0 || is_whole || !sampling_uses_history(&r->out->input->sampling)) return status;
    return api_error_invalid(r->err, "unsupported_value", "repeat_last_n",
                             "repeat_last_n must be -1 beside a penalty: this server's penalties look at the "
                             "whole of a sequence");
}

/* Among as many answers the n likeliest are returned. */
static int read_best_of(struct reader *r)
{
    int64_t n = r->out->n, best_of = 0, max_n = r->server->config->max_n;
    int status = json_field_int(r->body, "best_of", 0, INT32_MAX, &best_of, r->err);
    if (status < 0 || best_of == 0) return status;
    if (best_of < n || best_of > max_n)
        return api_error_invalid(r->err, "invalid_value", "best_of",
                                 "best_of must be an integer from n (%lld) to %lld (--max-n)", (long long)n,
                                 (long long)max_n);
    if (best_of > n && r->out->stream)
        return api_error_invalid(
            r->err, "invalid_value", "best_of",
            "best_of above n needs stream: false: which answers are the best is known at "
            "their end");
    r->out->n = (int32_t)best_of;
    return 0;
}

static int read_n(struct reader *r)
{
    int64_t n = 1, max_n = r->server->config->max_n;
    int status = json_field_int(r->body, "n", 1, max_n, &n, r->err);
    if (status < 0) {
        if (!strcmp(r->err->code, "invalid_value"))
            return api_error_invalid(r->err, "invalid_value", "n",
                                     "n must be an integer from 1 to %lld (--max-n)", (long long)max_n);
        return status;
    }
    r->out->n = r->out->num_returned = (int32_t)n;
    return r->out->kind == API_COMPLETIONS ? read_best_of(r) : 0;
}

static int read_priority(struct reader *r)
{
    int64_t priority = 0;
    int status = json_field_int(r->body, "priority", -PRIORITY_MAX, PRIORITY_MAX, &priority, r->err);
    r->out->priority = (int32_t)priority;
    return status;
}

static int read_seed(struct reader *r)
{
    const cJSON *seed = json_field_find(r->body, "seed");
    if (!seed) return 0;
    double number;
    if (!json_field_number(seed, &number)) return json_field_refuse_type(seed, "seed", "an integer", r->err);
    int64_t exact = 1LL << 53;
    if (!json_field_text_int64(seed, &r->out->seed) &&
        !json_field_raw_int64(r->text, r->text_bytes, "seed", &r->out->seed) &&
        !json_field_as_int(seed, -exact, exact, &r->out->seed))
        return api_error_invalid(r->err, "invalid_value", "seed",
                                 "seed must be an integer from -2^63 to 2^63-1");
    r->out->has_seed = true;
    return 0;
}

/* ---- log probabilities ---- */

static int read_chat_logprobs(struct reader *r)
{
    bool wanted = false;
    int64_t top = 0;
    int status = json_field_bool(r->body, "logprobs", &wanted, r->err);
    if (status == 0)
        status = json_field_int(r->body, "top_logprobs", 0, r->server->config->max_logprobs, &top, r->err);
    if (status < 0) return status;
    if (top > 0 && !wanted)
        return api_error_invalid(r->err, "invalid_value", "top_logprobs",
                                 "top_logprobs needs logprobs: true");
    r->out->logprobs = wanted;
    r->out->num_top_logprobs = (int32_t)top;
    r->out->input->sampling.num_logprobs = wanted ? (int32_t)top : -1;
    return 0;
}

static int read_answer_logprobs(struct reader *r)
{
    if (r->out->kind == API_CHAT) return read_chat_logprobs(r);
    int64_t top = -1;
    int status = json_field_int(r->body, "logprobs", 0, r->server->config->max_logprobs, &top, r->err);
    if (status < 0) return status;
    r->out->logprobs = top >= 0;
    r->out->num_top_logprobs = (int32_t)top;
    r->out->input->sampling.num_logprobs = (int32_t)top;
    r->out->input->prompt_logprobs = r->out->echo && (top >= 0 || r->out->max_tokens == 0);
    bool needed = r->out->input->prompt_logprobs || r->out->n > r->out->num_returned;
    if (needed && top < 0) r->out->input->sampling.num_logprobs = 0;
    return 0;
}

/* The engine reports as many alternatives as either wants, of the answer and of the prompt. */
static int read_logprobs(struct reader *r)
{
    int64_t top = -1;
    int status = read_answer_logprobs(r);
    if (status == 0)
        status = json_field_int(r->body, "prompt_logprobs", 0, r->server->config->max_logprobs, &top, r->err);
    if (status < 0 || top < 0) return status;
    if (r->out->stream)
        return api_error_invalid(r->err, "invalid_value", "prompt_logprobs",
                                 "prompt_logprobs needs stream: false");
    r->out->num_prompt_logprobs = (int32_t)top;
    r->out->input->prompt_logprobs = true;
    r->out->input->sampling.num_logprobs = max_of(r->out->input->sampling.num_logprobs, (int32_t)top);
    return 0;
}

/* ---- lists and maps ---- */

static int read_stop_text(struct reader *r, const cJSON *item, const char *path, struct text *out)
{
    if (!cJSON_IsString(item)) return json_field_refuse_type(item, path, "a string", r->err);
    size_t n = strlen(item->valuestring);
    if (r->out->has_nul) n = nul_text_restore(item->valuestring, n);
    *out = (struct text){item->valuestring, n};
    if (n == 0)
        return api_error_invalid(r->err, "invalid_value", path, "%s must not be an empty string", path);
    if (n > (size_t)r->server->config->max_stop_bytes)
        return api_error_invalid(r->err, "invalid_value", path,
                                 "%s must have at most %lld bytes (--max-stop-bytes); got %zu", path,
                                 (long long)r->server->config->max_stop_bytes, n);
    return 0;
}

static int read_stop(struct reader *r)
{
    enum { COUNT_MAX = 256 }; /* --max-stop-strings goes no higher */
    struct text texts[COUNT_MAX];
    const cJSON *stop = json_field_find(r->body, "stop"), *item;
    int count = 0, max = min_of((int)r->server->config->max_stop_strings, (int)COUNT_MAX);
    if (cJSON_IsString(stop)) {
        int status = read_stop_text(r, stop, "stop", &texts[count++]);
        if (status < 0) return status;
    } else if (cJSON_IsArray(stop)) {
        cJSON_ArrayForEach(item, stop)
        {
            char path[32];
            snprintf(path, sizeof path, "stop[%d]", count);
            if (count == max)
                return api_error_invalid(r->err, "invalid_value", "stop",
                                         "stop must have at most %d strings (--max-stop-strings)", max);
            int status = read_stop_text(r, item, path, &texts[count++]);
            if (status < 0) return status;
        }
    } else if (stop) {
        return json_field_refuse_type(stop, "stop", "a string or an array of strings", r->err);
    }
    return stop_strings_init(&r->out->stop, r->arena, texts, count) ? 0 : api_error_no_memory(r->err);
}

/* Appends the ids of the member to ids, of which there may be most. */
static int read_ids(struct reader *r, const char *name, int32_t most, int32_t *ids, int32_t *num_ids)
{
    const cJSON *list = json_field_find(r->body, name), *item;
    if (!list) return 0;
    if (!cJSON_IsArray(list)) return json_field_refuse_type(list, name, "an array of integers", r->err);
    cJSON_ArrayForEach(item, list)
    {
        char path[40];
        snprintf(path, sizeof path, "%s[%d]", name, *num_ids);
        int64_t id, last = r->server->facts->vocab_size - 1;
        if (*num_ids == most)
            return api_error_invalid(r->err, "invalid_value", name, "%s must have at most %d ids", name,
                                     most);
        double number;
        if (!json_field_number(item, &number))
            return json_field_refuse_type(item, path, "an integer", r->err);
        if (!json_field_as_int(item, 0, last, &id))
            return api_error_invalid(r->err, "invalid_value", path,
                                     "%s must be a token id from 0 to %lld; got %.17g", path, (long long)last,
                                     number);
        ids[(*num_ids)++] = (int32_t)id;
    }
    return 0;
}

static int read_stop_token_ids(struct reader *r)
{
    struct request_slot_input *input = r->out->input;
    return read_ids(r, "stop_token_ids", STOP_TOKEN_IDS_MAX, input->stop_token_ids,
                    &input->num_stop_token_ids);
}

/* These instead of the best, beside each generated token. */
static int read_logprob_token_ids(struct reader *r)
{
    struct request_slot_input *input = r->out->input;
    int32_t most = min_of((int32_t)r->server->config->max_logprobs, (int32_t)TOP_LOGPROBS_MAX);
    int status =
        read_ids(r, "logprob_token_ids", most, r->out->payload->logprob_ids, &input->num_logprob_ids);
    if (status < 0 || input->num_logprob_ids == 0) return status;
    if (!r->out->logprobs)
        return api_error_invalid(r->err, "invalid_value", "logprob_token_ids",
                                 "logprob_token_ids needs logprobs%s",
                                 r->out->kind == API_CHAT ? ": true" : "");
    r->out->num_top_logprobs = input->num_logprob_ids;
    return 0;
}

static int read_logit_bias(struct reader *r)
{
    struct request_slot_input *input = r->out->input;
    return logit_bias_read(r->server, r->body, r->out->payload->logit_bias, &input->num_logit_bias, r->err);
}

static int read_stream_options(struct reader *r)
{
    const cJSON *options = json_field_find(r->body, "stream_options");
    if (!options) return 0;
    if (!cJSON_IsObject(options))
        return json_field_refuse_type(options, "stream_options", "an object", r->err);
    int status = json_field_bool(options, "include_usage", &r->out->include_usage, r->err);
    if (status == 0)
        status = json_field_bool(options, "continuous_usage_stats", &r->out->continuous_usage, r->err);
    if (status < 0) {
        char path[sizeof r->err->param];
        snprintf(path, sizeof path, "stream_options.%.90s", r->err->param);
        memcpy(r->err->param, path, sizeof path);
    }
    return status;
}

static int read_form(struct reader *r)
{
    return constraint_read(r->server, r->body, r->out->has_nul, r->arena, &r->out->form, r->err);
}

static int read_cache_salt(struct reader *r)
{
    const cJSON *salt = json_field_find(r->body, "cache_salt");
    if (!salt) return 0;
    if (!cJSON_IsString(salt)) return json_field_refuse_type(salt, "cache_salt", "a string", r->err);
    int chars = (int)count_characters(salt->valuestring, strlen(salt->valuestring));
    if (chars == 0 || chars > CACHE_SALT_CHARS_MAX)
        return api_error_invalid(r->err, "invalid_value", "cache_salt",
                                 "cache_salt must have 1 to %d characters; got %d", (int)CACHE_SALT_CHARS_MAX,
                                 chars);
    r->out->cache_salt_bytes = strlen(salt->valuestring);
    r->out->cache_salt = arena_copy(r->arena, salt->valuestring, r->out->cache_salt_bytes);
    return r->out->cache_salt ? 0 : api_error_no_memory(r->err);
}

static int read_truncation_side(struct reader *r)
{
    const cJSON *side = json_field_find(r->body, "truncation_side");
    r->out->truncates_right = text_equals(side, "right");
    if (!side || text_equals(side, "left") || r->out->truncates_right) return 0;
    return api_error_invalid(r->err, "invalid_value", "truncation_side",
                             "truncation_side must be \"left\" or \"right\"");
}

/* llama.cpp's: "none" leaves reasoning in the content. */
static int read_reasoning_format(struct reader *r)
{
    const cJSON *form = json_field_find(r->body, "reasoning_format");
    if (!form || r->out->kind != API_CHAT || text_equals(form, "auto")) return 0;
    r->out->separate_reasoning = text_equals(form, "deepseek");
    if (text_equals(form, "none") || r->out->separate_reasoning) return 0;
    return api_error_invalid(r->err, "unsupported_value", "reasoning_format",
                             "reasoning_format must be \"none\", \"deepseek\" or \"auto\"");
}

/* Goes into JSON and logs as it is. */
static int read_request_id(struct reader *r)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:";
    const cJSON *id = json_field_find(r->body, "request_id");
    if (!id) return 0;
    if (!cJSON_IsString(id)) return json_field_refuse_type(id, "request_id", "a string", r->err);
    size_t n = strlen(id->valuestring);
    if (n == 0 || n > REQUEST_ID_MAX || strspn(id->valuestring, plain) != n)
        return api_error_invalid(
            r->err, "invalid_value", "request_id",
            "request_id must have 1 to %d letters, digits or any of - _ . :", (int)REQUEST_ID_MAX);
    r->out->request_id = arena_copy(r->arena, id->valuestring, n);
    return r->out->request_id ? 0 : api_error_no_memory(r->err);
}

/* ---- rows of floats ---- */

/* By the names of the model's own; a model without tasks passes the field over. */
static int refuse_task(struct reader *r, const char *name)
{
    const struct tasks *tasks = &r->server->facts->tasks;
    char names[TASKS_MAX * (TASK_NAME_BYTES + 2)] = "";
    for (int32_t i = 0, at = 0; i < tasks->num; i++)
        at +=
            snprintf(names + at, sizeof names - (size_t)at, "%s%s", i > 0 ? ", " : "", tasks->items[i].name);
    return api_error_invalid(r->err, "invalid_value", "task", "task \"%.40s\" is none of this model's: %s",
                             name, names);
}

static int read_task(struct reader *r)
{
    const struct tasks *tasks = &r->server->facts->tasks;
    const cJSON *value = json_field_find(r->body, "task");
    const char *name = cJSON_GetStringValue(value);
    if (value && !name) return json_field_refuse_type(value, "task", "a string", r->err);
    if (!value || tasks->num == 0) return 0;
    for (int32_t i = 0; i < tasks->num; i++) {
        if (strcmp(tasks->items[i].name, name) != 0) continue;
        r->out->input->lora = (uint8_t)(i + 1);
        return 0;
    }
    return refuse_task(r, name);
}

static int read_pooling(struct reader *r)
{
    enum pooling pooling = r->server->facts->pooling;
    r->out->max_tokens = 0;
    r->out->input->pooling = pooling;
    if (pooling == POOLING_NONE)
        return api_error_invalid(
            r->err, "unsupported_value", "model",
            "this model's files ask for embeddings of a kind that this server does not make; "
            "--pooling first, last or mean chooses one that it does");
    const int status = read_task(r);
    return status < 0 ? status : embedding_form_read(r->server, r->body, &r->out->embedding, r->err);
}

/* A head makes a number of the first token, or of the mean; others say how likely they answer yes, and no. */
static int ask_for_score(struct reader *r)
{
    struct request_slot_input *input = r->out->input;
    if (r->server->facts->scores_pairs) {
        input->pooling = r->server->facts->score_pooling;
        input->scores_pair = true;
        return 0;
    }
    if (!r->server->reranker)
        return api_error_invalid(r->err, "unsupported_value", "model",
                                 "this model is no reranker: neither its file nor its name says so; "
                                 "--rerank-template FILE says how it is to be asked");
    input->pooling = POOLING_LOGITS;
    input->num_row_logits = RERANK_IDS;
    memcpy(r->out->payload->row_logits, rerank_template_ids(r->server->reranker),
           RERANK_IDS * sizeof(int32_t));
    return 0;
}

static int read_scoring(struct reader *r)
{
    int64_t top_n = INT32_MAX, per_query = 0, per_doc = 0;
    r->out->max_tokens = 0;
    int status = ask_for_score(r);
    if (status == 0) status = json_field_int(r->body, "top_n", 1, INT32_MAX, &top_n, r->err);
    if (status == 0)
        status = json_field_int(r->body, "max_tokens_per_query", 0, INT32_MAX, &per_query, r->err);
    if (status == 0) status = json_field_int(r->body, "max_tokens_per_doc", 0, INT32_MAX, &per_doc, r->err);
    r->out->scoring =
        (struct scoring_form){(int32_t)top_n, (int32_t)per_query, (int32_t)per_doc, .return_documents = true};
    return status < 0
               ? status
               : json_field_bool(r->body, "return_documents", &r->out->scoring.return_documents, r->err);
}

/* ---- defaults, and all together ---- */

static float default_of(float from_model, float least, float most, float otherwise)
{
    return from_model >= least && from_model <= most ? from_model : otherwise;
}

static void set_defaults(const struct server *server, enum api_kind kind, struct params *p)
{
    static const struct generation_defaults none = {-1, -1, -1, -1, -1, -1};
    bool from_model = strcmp(server->config->generation_config, "vllm") != 0;
    const struct generation_defaults *d = from_model ? &server->facts->generation : &none;
    *p->input = (struct request_slot_input){
        .sampling = {.num_logprobs = -1,
                     .temperature = default_of(d->temperature, 0, 100, 1),
                     .top_p = default_of(d->top_p, 1e-6f, 1, 1),
                     .min_p = default_of(d->min_p, 0, 1, 0),
                     .top_k = d->top_k > 0 ? d->top_k : 0,
                     .repetition_penalty = default_of(d->repetition_penalty, 0.01f, 100, 1)},
    };
    *p = (struct params){
        .kind = kind,
        .input = p->input,
        .payload = p->payload,
        .n = 1,
        .num_returned = 1,
        .max_tokens = MAX_TOKENS_DEFAULT,
        .num_prompt_logprobs = -1,
        .skip_special_tokens = true,
        .add_special_tokens = kind != API_CHAT,
        .parse_special = kind == API_COMPLETIONS && server->config->completions_parse_special,
        .add_generation_prompt = true,
        .parallel_tool_calls = true,
        .separate_reasoning = server->config->separate_reasoning,
        .include_reasoning = true,
        .stream_interval = 1,
        .spaces_between_special_tokens = true,
    };
}

/* A temperature that would turn logits into infinities means the smallest that does not, as in vLLM. A top_p of 0 is the
 * likeliest token alone, as is what no token is as unlikely as. */
static void settle_sampling(struct sampling *s)
{
    if (s->temperature > 0 && s->temperature < 0.01f) s->temperature = 0.01f;
    s->top_p = max_of(s->top_p, 1e-6f);
    s->top_k = max_of(s->top_k, 0);
}

static int check_combinations(struct reader *r)
{
    const struct params *p = r->out;
    if (p->continue_final_message && p->add_generation_prompt)
        return api_error_invalid(r->err, "invalid_value", "continue_final_message",
                                 "continue_final_message needs add_generation_prompt: false");
    if (p->truncate_prompt_tokens && p->echo)
        return api_error_invalid(r->err, "invalid_value", "truncate_prompt_tokens",
                                 "truncate_prompt_tokens needs echo: false");
    bool is_json = p->form.constraint.kind == CONSTRAINT_NONE ||
                   p->form.constraint.kind == CONSTRAINT_JSON_OBJECT ||
                   p->form.constraint.kind == CONSTRAINT_JSON_SCHEMA;
    if (p->uses_tools && !is_json)
        return api_error_invalid(
            r->err, "unsupported_value", p->form.param,
            "%s stands beside tools: an answer that may call them can be held to JSON alone; "
            "leave one of them out, or say tool_choice: \"none\"",
            p->form.param);
    return 0;
}

int params_refuse_model(const struct server *server, const char *name, struct api_error *err)
{
    return api_error_set(
        err, 404, "invalid_request_error", "model_not_found", "model",
        "The model `%.160s` does not exist; this server serves `%.160s` (GET /v1/models lists "
        "every name of it). Name that, or leave model out",
        name, server->model_names[0]);
}

/* Where given. */
static int find_model_name(const cJSON *body, const char **name, struct api_error *err)
{
    const cJSON *model = json_field_find(body, "model");
    *name = cJSON_IsString(model) ? model->valuestring : NULL;
    return model && !*name ? json_field_refuse_type(model, "model", "a string", err) : 0;
}

/* A name that stands for all that begin alike is the model's, unless it is an adapter's. */
static int take_model(const struct server *server, const cJSON *body, struct params *out,
                      struct api_error *err)
{
    const char *name;
    int status = find_model_name(body, &name, err);
    if (status < 0 || !name) return status;
    out->lora = loras_take(server->loras, name);
    return out->lora || model_name_is_models(server, name) ? 0 : params_refuse_model(server, name, err);
}

int params_check_model(const struct server *server, const cJSON *body, struct api_error *err)
{
    struct params params = {.lora = 0};
    int status = take_model(server, body, &params, err);
    loras_let_go(server->loras, params.lora);
    return status;
}

typedef int step(struct reader *r);

int params_read(const struct server *server, enum api_kind kind, const cJSON *body, const char *text,
                size_t text_bytes, struct arena *arena, struct params *out, struct api_error *err)
{
    static step *const pooling_steps[] = {read_plain_fields, check_unsupported,    read_priority,
                                          read_cache_salt,   read_truncation_side, read_request_id,
                                          read_pooling,      note_ignored,         NULL};
    static step *const scoring_steps[] = {
        check_unsupported, read_priority, read_cache_salt, read_request_id, read_scoring, note_ignored, NULL};
    static step *const steps[] = {
        read_plain_fields,
        check_unsupported,
        check_penalty_window,
        read_n_predict,
        read_max_tokens,
        read_n,
        read_priority,
        read_seed,
        read_logprobs,
        read_logprob_token_ids,
        read_stop,
        read_stop_token_ids,
        read_logit_bias,
        read_stream_options,
        read_cache_salt,
        read_form,
        read_truncation_side,
        read_reasoning_format,
        read_request_id,
        note_ignored,
        check_combinations,
        NULL,
    };
    struct reader r = {server, body, text, text_bytes, arena, out, err};
    set_defaults(server, kind, out);
    out->has_nul = nul_text_is_in(text, text_bytes);
    if (!cJSON_IsObject(body)) return json_field_refuse_type(body, "body", "a JSON object", err);
    int status = take_model(server, body, out, err);
    out->input->lora = (uint8_t)out->lora; /* LORA_MODULES_MAX at most */
    step *const *next = kind == API_POOLING ? pooling_steps : kind == API_SCORING ? scoring_steps : steps;
    for (; status == 0 && *next; next++) status = (*next)(&r);
    if (status == 0) settle_sampling(&out->input->sampling);
    assert_debug(status < 0 ||
                 (out->num_top_logprobs <= TOP_LOGPROBS_MAX && out->num_prompt_logprobs <= TOP_LOGPROBS_MAX));
    return status;
}
