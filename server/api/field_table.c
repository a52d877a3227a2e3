/* A new plain field is one row. Fields that vLLM or OpenAI know and flashd does not have yet stand in a second table with their
 * neutral values: to ignore bad_words would be to give a wrong answer, politely. */
#include "server/api/field_table.h"

#include <string.h>

#include "base/check.h"
#include "server/api/json_field.h"

enum {
    ON_COMPLETIONS = 1 << API_COMPLETIONS,
    ON_CHAT = 1 << API_CHAT,
    ON_POOLING = 1 << API_POOLING,
    ON_BOTH = ON_COMPLETIONS | ON_CHAT,
    ON_SCORING = 1 << API_SCORING,
    ON_ALL = ON_BOTH | ON_POOLING,
};

/* ---- plain fields ---- */

struct field {
    const char *name;
    unsigned endpoints;
    enum field_type type;
    bool in_slot; /* offset: in request_slot_input, else in params */
    size_t offset;
    double min, max;
};

#define PARAM(member) false, offsetof(struct params, member)
#define SLOT(member) true, offsetof(struct request_slot_input, member)
static const struct field fields[] = {
    {"temperature", ON_BOTH, FIELD_FLOAT, SLOT(sampling.temperature), 0, 100},
    {"top_p", ON_BOTH, FIELD_FLOAT, SLOT(sampling.top_p), 0, 1},
    {"top_k", ON_BOTH, FIELD_INT32, SLOT(sampling.top_k), -1, INT32_MAX},
    {"min_p", ON_BOTH, FIELD_FLOAT, SLOT(sampling.min_p), 0, 1},
    {"presence_penalty", ON_BOTH, FIELD_FLOAT, SLOT(sampling.presence_penalty), -2, 2},
    {"frequency_penalty", ON_BOTH, FIELD_FLOAT, SLOT(sampling.frequency_penalty), -2, 2},
    {"repetition_penalty", ON_BOTH, FIELD_FLOAT, SLOT(sampling.repetition_penalty), 0.01, 100},
    {"repeat_penalty", ON_BOTH, FIELD_FLOAT, SLOT(sampling.repetition_penalty), 0.01, 100},
    {"ignore_eos", ON_BOTH, FIELD_BOOL, SLOT(ignore_eos), 0, 0},
    {"stream", ON_BOTH, FIELD_BOOL, PARAM(stream), 0, 0},
    {"stream_interval", ON_BOTH, FIELD_INT32, PARAM(stream_interval), 1, INT32_MAX},
    {"n_indent", ON_BOTH, FIELD_INT32, PARAM(n_indent), 0, INT32_MAX},
    {"echo", ON_BOTH, FIELD_BOOL, PARAM(echo), 0, 0},
    {"return_tokens_as_token_ids", ON_BOTH, FIELD_BOOL, PARAM(return_tokens_as_token_ids), 0, 0},
    {"return_token_ids", ON_BOTH, FIELD_BOOL, PARAM(return_token_ids), 0, 0},
    {"return_prompt_text", ON_BOTH, FIELD_BOOL, PARAM(return_prompt_text), 0, 0},
    {"skip_special_tokens", ON_BOTH, FIELD_BOOL, PARAM(skip_special_tokens), 0, 0},
    {"spaces_between_special_tokens", ON_BOTH, FIELD_BOOL, PARAM(spaces_between_special_tokens), 0, 0},
    {"include_stop_str_in_output", ON_BOTH, FIELD_BOOL, PARAM(include_stop_str_in_output), 0, 0},
    {"add_special_tokens", ON_ALL, FIELD_BOOL, PARAM(add_special_tokens), 0, 0},
    {"parse_special", ON_COMPLETIONS | ON_POOLING, FIELD_BOOL, PARAM(parse_special), 0, 0},
    {"timings_per_token", ON_BOTH, FIELD_BOOL, PARAM(timings), 0, 0},
    {"truncate_prompt_tokens", ON_ALL, FIELD_INT32, PARAM(truncate_prompt_tokens), -1, INT32_MAX},
    {"add_generation_prompt", ON_CHAT, FIELD_BOOL, PARAM(add_generation_prompt), 0, 0},
    {"continue_final_message", ON_CHAT, FIELD_BOOL, PARAM(continue_final_message), 0, 0},
    {"parallel_tool_calls", ON_CHAT, FIELD_BOOL, PARAM(parallel_tool_calls), 0, 0},
    {"separate_reasoning", ON_CHAT, FIELD_BOOL, PARAM(separate_reasoning), 0, 0},
    {"include_reasoning", ON_CHAT, FIELD_BOOL, PARAM(include_reasoning), 0, 0},
};

static int read_field(const cJSON *body, const struct field *f, struct params *out, struct api_error *err)
{
    void *at = (f->in_slot ? (char *)out->input : (char *)out) + f->offset;
    if (f->type == FIELD_BOOL) return json_field_bool(body, f->name, at, err);
    if (f->type == FIELD_INT32) {
        int64_t value = *(int32_t *)at;
        int status = json_field_int(body, f->name, (int64_t)f->min, (int64_t)f->max, &value, err);
        *(int32_t *)at = (int32_t)value;
        return status;
    }
    double value = (double)*(float *)at;
    int status = json_field_real(body, f->name, f->min, f->max, &value, err);
    *(float *)at = (float)value;
    return status;
}

int field_table_read(const cJSON *body, struct params *out, struct api_error *err)
{
    for (size_t i = 0; i < array_length(fields); i++) {
        if (!(fields[i].endpoints & 1u << out->kind)) continue;
        int status = read_field(body, &fields[i], out, err);
        if (status < 0) return status;
    }
    return 0;
}

/* ---- known, not there yet ---- */

struct named_field {
    const char *name;
    unsigned endpoints;
};

/* Accepted when they say nothing: null, false, 0, "" , [] or {}. */
static const struct named_field unsupported[] = {
    {"functions", ON_CHAT},
    {"audio", ON_CHAT},
    {"chat_template", ON_CHAT},
    {"use_beam_search", ON_BOTH},
    {"prompt_embeds", ON_ALL},
    {"truncate_prompt_tokens", ON_SCORING},
    {"max_repetition_pattern_size", ON_BOTH},
    {"min_repetition_pattern_size", ON_BOTH},
    {"repetition_min_count", ON_BOTH},
    {"thinking_token_budget", ON_BOTH},
    {"repetition_detection", ON_BOTH},
    {"kv_transfer_params", ON_BOTH},
    {"ec_transfer_params", ON_BOTH},
    {"watermarking", ON_BOTH},
    {"previous_input_messages", ON_CHAT},
    {"vllm_xargs", ON_BOTH},
    {"logits_processors", ON_BOTH},
    {"length_penalty", ON_BOTH},
    {"typical_p", ON_BOTH},
    {"mirostat", ON_BOTH},
    {"dry_multiplier", ON_BOTH},
    {"xtc_probability", ON_BOTH},
    {"dynatemp_range", ON_BOTH},
    {"samplers", ON_BOTH},
    {"n_probs", ON_BOTH},
    {"post_sampling_probs", ON_BOTH},
    {"lora", ON_BOTH},
    {"tfs_z", ON_BOTH},
    {"top_n_sigma", ON_BOTH},
    {"n_cmpl", ON_BOTH},
    {"grammar_lazy", ON_BOTH},
    {"preserved_tokens", ON_BOTH},
    {"stop_regex", ON_BOTH},
    {"no_stop_trim", ON_BOTH},
    {"custom_logit_processor", ON_BOTH},
    {"lora_path", ON_BOTH},
    {"return_hidden_states", ON_BOTH},
    {"reasoning_budget_tokens", ON_CHAT},
    {"thinking_forced_open", ON_CHAT},
    {"parse_tool_calls", ON_CHAT},
    {"use_activation", ON_SCORING},
    {"chat_template_kwargs", ON_SCORING},
};

/* Numbers and booleans that say nothing, where it is not 0 or false that does. */
static double neutral_of(const char *name)
{
    static const struct {
        const char *name;
        double value;
    } rows[] = {
        {"length_penalty", 1},   {"typical_p", 1},      {"tfs_z", 1},        {"n_cmpl", 1},
        {"parse_tool_calls", 1}, {"use_activation", 1}, {"top_n_sigma", -1}, {"reasoning_budget_tokens", -1}};
    for (size_t i = 0; i < array_length(rows); i++)
        if (!strcmp(rows[i].name, name)) return rows[i].value;
    return 0;
}

static bool says_nothing(const cJSON *value)
{
    if (!value) return true;
    if (cJSON_IsBool(value)) return cJSON_IsTrue(value) == (neutral_of(value->string) != 0);
    if (cJSON_IsNumber(value)) return value->valuedouble == neutral_of(value->string);
    if (cJSON_IsString(value)) return value->valuestring[0] == '\0';
    return (cJSON_IsArray(value) || cJSON_IsObject(value)) && !value->child;
}

int field_table_check_unsupported(const cJSON *body, enum api_kind kind, struct api_error *err)
{
    for (size_t i = 0; i < array_length(unsupported); i++) {
        const char *name = unsupported[i].name;
        if (!(unsupported[i].endpoints & 1u << kind) || says_nothing(json_field_find(body, name))) continue;
        return api_error_invalid(err, "unsupported_parameter", name,
                                 "%s is not supported by this server; leave it out", name);
    }
    return 0;
}

/* ---- what nothing reads ---- */

/* Beside the tables: what params.c and the readers of prompts look for. */
static const struct named_field read_elsewhere[] = {
    {"priority", ON_ALL | ON_SCORING},
    {"model", ON_ALL | ON_SCORING},
    {"messages", ON_CHAT},
    {"prompt", ON_COMPLETIONS | ON_POOLING},
    {"max_tokens", ON_BOTH},
    {"max_completion_tokens", ON_CHAT},
    {"n_predict", ON_BOTH},
    {"repeat_last_n", ON_BOTH},
    {"reasoning_format", ON_CHAT},
    {"min_tokens", ON_BOTH},
    {"n", ON_BOTH},
    {"best_of", ON_COMPLETIONS},
    {"suffix", ON_COMPLETIONS},
    {"seed", ON_BOTH},
    {"logprobs", ON_BOTH},
    {"top_logprobs", ON_CHAT},
    {"prompt_logprobs", ON_BOTH},
    {"logprob_token_ids", ON_BOTH},
    {"stop", ON_BOTH},
    {"stop_token_ids", ON_BOTH},
    {"logit_bias", ON_BOTH},
    {"stream_options", ON_BOTH},
    {"cache_salt", ON_ALL | ON_SCORING},
    {"response_format", ON_BOTH},
    {"tools", ON_CHAT},
    {"tool_choice", ON_CHAT},
    {"modalities", ON_CHAT},
    {"reasoning_effort", ON_CHAT},
    {"reasoning", ON_CHAT},
    {"thinking", ON_CHAT},
    {"enable_thinking", ON_CHAT},
    {"chat_template_kwargs", ON_CHAT},
    {"documents", ON_CHAT | ON_SCORING},
    {"structured_outputs", ON_BOTH},
    {"guided_json", ON_BOTH},
    {"guided_regex", ON_BOTH},
    {"guided_choice", ON_BOTH},
    {"guided_json_object", ON_BOTH},
    {"guided_grammar", ON_BOTH},
    {"guided_whitespace_pattern", ON_BOTH},
    {"guided_decoding_backend", ON_BOTH},
    {"grammar", ON_BOTH},
    {"json_schema", ON_BOTH},
    {"regex", ON_BOTH},
    {"ebnf", ON_BOTH},
    {"allowed_token_ids", ON_BOTH},
    {"bad_words", ON_BOTH},
    {"prediction", ON_BOTH},
    {"truncation_side", ON_ALL},
    {"request_id", ON_ALL | ON_SCORING},
    {"verbosity", ON_CHAT},
    {"encoding_format", ON_POOLING},
    {"dimensions", ON_POOLING},
    {"task", ON_POOLING},
    {"normalize", ON_POOLING},
    {"use_activation", ON_POOLING},
    {"embed_dtype", ON_POOLING},
    {"embedding_type", ON_POOLING},
    {"output_dtype", ON_POOLING},
    {"output_dimension", ON_POOLING},
    {"endianness", ON_POOLING},
    {"padding", ON_POOLING},
    {"queries", ON_SCORING},
    {"instruction", ON_SCORING},
    {"top_n", ON_SCORING},
    {"max_tokens_per_query", ON_SCORING},
    {"max_tokens_per_doc", ON_SCORING},
    {"return_documents", ON_SCORING},
};

/* The field at a place of all tables, one behind the other. False: there are no more. */
static bool field_at(size_t at, struct field_facts *out, unsigned *endpoints)
{
    size_t num_plain = array_length(fields), num_own = array_length(read_elsewhere);
    const struct named_field *named = NULL;
    if (at < num_plain) {
        const struct field *f = &fields[at];
        *out = (struct field_facts){f->name, f->type, f->min, f->max, 0};
        *endpoints = f->endpoints;
        return true;
    }
    if (at < num_plain + num_own)
        named = &read_elsewhere[at - num_plain];
    else if (at < num_plain + num_own + array_length(unsupported))
        named = &unsupported[at - num_plain - num_own];
    if (!named) return false;
    *out = (struct field_facts){.name = named->name, .type = FIELD_OWN};
    if (at >= num_plain + num_own) {
        out->type = FIELD_REFUSED;
        out->neutral = neutral_of(named->name);
    }
    *endpoints = named->endpoints;
    return true;
}

bool field_table_next(enum api_kind kind, size_t *at, struct field_facts *out)
{
    unsigned endpoints = 0;
    while (field_at((*at)++, out, &endpoints))
        if (endpoints & 1u << kind) return true;
    return false;
}

/* This kind's first, then the others', which are no misspelt names either. */
static size_t list_names(enum api_kind kind, const char **names, size_t *num_of_kind)
{
    size_t n = 0;
    for (int own = 1; own >= 0; own--) {
        struct field_facts f;
        unsigned endpoints = 0;
        for (size_t at = 0; field_at(at, &f, &endpoints); at++)
            if (!!(endpoints & 1u << kind) == own) names[n++] = f.name;
        if (own) *num_of_kind = n;
    }
    return n;
}

void field_table_find_ignored(const cJSON *body, enum api_kind kind, struct ignored_fields *out)
{
    const char *known[array_length(fields) + array_length(unsupported) + array_length(read_elsewhere)];
    size_t num_read = 0, num_known = list_names(kind, known, &num_read);
    field_names_find_ignored(body, known, num_read, num_known, out);
}
