/* text_generation_body.c - Text Generation Inference's /generate, /generate_stream and POST /: a body as a canonical one.
 *
 * All but the prompt stands in an object of its own, parameters, whose members become the body's. An answer is the likeliest
 * one unless something is said of sampling, and has 100 tokens at most unless max_new_tokens says otherwise. */
#include "server/api/codecs/text_generation.h"

#include <string.h>

#include "server/api/codecs/canonical.h"
#include "server/api/codecs/fill_in_middle.h"
#include "server/api/nul_text.h"

enum { MAX_NEW_TOKENS_DEFAULT = 100, TOP_TOKENS_MAX = 20 };

/* ---- the prompt, what is told ---- */

static struct text_generation_kept *kept_of(struct translation *t)
{
    if (!t->kept && (t->kept = arena_alloc(t->arena, sizeof(struct text_generation_kept))))
        *(struct text_generation_kept *)t->kept = (struct text_generation_kept){.inputs = ""};
    return t->kept;
}

static int keep_inputs(struct translation *t, struct text_generation_kept *kept)
{
    const cJSON *value = json_field_find(t->body, "inputs");
    if (!value)
        return api_error_invalid(t->err, "missing_required_parameter", "inputs",
                                 "inputs is missing: a string");
    if (!cJSON_IsString(value)) return json_field_refuse_type(value, "inputs", "a string", t->err);
    kept->num_bytes = strlen(value->valuestring);
    char *inputs = arena_copy(t->arena, value->valuestring, kept->num_bytes);
    if (!inputs) return api_error_no_memory(t->err);
    if (t->has_nul) kept->num_bytes = nul_text_restore(inputs, kept->num_bytes);
    kept->inputs = inputs;
    return 0;
}

static int begin(struct translation *t, bool is_list)
{
    struct text_generation_kept *kept = kept_of(t);
    if (!kept) return api_error_no_memory(t->err);
    kept->is_list = is_list;
    return keep_inputs(t, kept);
}

static int put_bool(struct translation *t, const char *name, bool value)
{
    return codec_put(t, t->body, name, cJSON_CreateBool(value));
}

static int put_number(struct translation *t, const char *name, double value)
{
    return codec_put(t, t->body, name, cJSON_CreateNumber(value));
}

int text_generation_begin_whole(struct translation *t)
{
    int status = begin(t, false);
    return status == 0 ? put_bool(t, "stream", false) : status;
}

int text_generation_begin_stream(struct translation *t)
{
    int status = begin(t, false);
    return status == 0 ? put_bool(t, "stream", true) : status;
}

int text_generation_begin_either(struct translation *t)
{
    return begin(t, true);
}

static int read_flag(struct translation *t, const char *name, const cJSON *value, bool *out)
{
    if (!cJSON_IsBool(value)) return json_field_refuse_type(value, name, "a boolean", t->err);
    *out = cJSON_IsTrue(value);
    return 0;
}

static int read_details(struct translation *t, cJSON *value)
{
    return read_flag(t, "details", value, &kept_of(t)->details);
}

static int read_full_text(struct translation *t, cJSON *value)
{
    return read_flag(t, "return_full_text", value, &kept_of(t)->full_text);
}

static int read_do_sample(struct translation *t, cJSON *value)
{
    return read_flag(t, "do_sample", value, &kept_of(t)->samples);
}

static int read_prefill(struct translation *t, cJSON *value)
{
    bool wanted = false;
    int status = read_flag(t, "decoder_input_details", value, &wanted);
    if (status < 0 || !wanted) return status;
    return api_error_invalid(t->err, "unsupported_parameter", "decoder_input_details",
                             "decoder_input_details is not supported by this server; leave it out");
}

static int read_top_tokens(struct translation *t, cJSON *value)
{
    if (json_field_as_int(value, 0, TOP_TOKENS_MAX, &kept_of(t)->num_top)) return 0;
    return api_error_invalid(t->err, "invalid_value", "top_n_tokens",
                             "top_n_tokens must be an integer from 0 to %d", (int)TOP_TOKENS_MAX);
}

/* LangChain's client sends one unasked. */
static int read_typical_p(struct translation *t, cJSON *value)
{
    if (!cJSON_IsNumber(value)) return json_field_refuse_type(value, "typical_p", "a number", t->err);
    if (value->valuedouble != 1) translation_warn(t, "typical_p does nothing");
    return 0;
}

/* ---- the form of the answer ---- */

static int put_pattern(struct translation *t, const cJSON *pattern)
{
    if (!cJSON_IsString(pattern)) return json_field_refuse_type(pattern, "grammar.value", "a string", t->err);
    return codec_put(t, t->body, "regex", cJSON_Duplicate(pattern, false));
}

static int read_grammar(struct translation *t, cJSON *value)
{
    const cJSON *form = json_field_find(value, "value");
    if (canonical_is(value, "regex")) return put_pattern(t, form);
    if (canonical_is(value, "json_schema"))
        form = json_field_find(form, "schema");
    else if (!canonical_is(value, "json"))
        return api_error_invalid(t->err, "invalid_value", "grammar",
                                 "grammar must be an object of the type \"json\", \"regex\" or "
                                 "\"json_schema\" with a value");
    if (!cJSON_IsObject(form))
        return json_field_refuse_type(form ? form : value, "grammar.value", "a JSON schema", t->err);
    return canonical_put_schema(t, "answer", cJSON_Duplicate(form, true));
}

/* ---- the parameters ---- */

/* The rows that come behind, and the core, read what was in it. */
static int read_parameters(struct translation *t, cJSON *value)
{
    int status = 0;
    if (!cJSON_IsObject(value)) return json_field_refuse_type(value, "parameters", "an object", t->err);
    while (value->child && status == 0) {
        cJSON *member = cJSON_DetachItemViaPointer(value, value->child);
        char name[64];
        if (cJSON_IsNull(member) || strlen(member->string) >= sizeof name) {
            cJSON_Delete(member); /* says nothing, or is nothing that anyone knows */
            continue;
        }
        snprintf(name, sizeof name, "%s", member->string);
        status = codec_put(t, t->body, name, member);
    }
    return status;
}

static bool has(const struct translation *t, const char *name)
{
    return json_field_find(t->body, name) != NULL;
}

/* The log probability of each token is told beside it. */
static int tell_tokens(struct translation *t)
{
    const struct text_generation_kept *kept = kept_of(t);
    bool is_stream = cJSON_IsTrue(json_field_find(t->body, "stream"));
    return kept->details || is_stream ? put_number(t, "logprobs", (double)kept->num_top) : 0;
}

int text_generation_translate(struct translation *t)
{
    bool samples = kept_of(t)->samples || has(t, "top_k") || has(t, "top_p");
    int status = has(t, "temperature") ? 0 : put_number(t, "temperature", samples ? 1 : 0);
    if (status == 0 && !has(t, "max_tokens")) {
        t->ends_with_context = true;
        status = put_number(t, "max_tokens", MAX_NEW_TOKENS_DEFAULT);
    }
    if (status == 0) status = put_bool(t, "include_stop_str_in_output", true);
    if (status == 0) status = tell_tokens(t);
    return status == 0 ? fill_in_middle_read_suffix(t) : status;
}

const struct codec_field text_generation_fields[] = {
    {.name = "parameters", .read = read_parameters},
    {.name = "inputs", .canonical = "prompt"},
    {.name = "details", .read = read_details},
    {.name = "return_full_text", .read = read_full_text},
    {.name = "do_sample", .read = read_do_sample},
    {.name = "decoder_input_details", .read = read_prefill},
    {.name = "top_n_tokens", .read = read_top_tokens},
    {.name = "typical_p", .read = read_typical_p},
    {.name = "grammar", .read = read_grammar},
    {.name = "n", .read = canonical_read_n},
    {.name = "max_new_tokens", .canonical = "max_tokens"},
    {.name = "truncate", .canonical = "truncate_prompt_tokens"},
    {.name = "watermark", .canonical = "watermarking"},
    {.name = "adapter_id", .canonical = "model"},
    {.name = NULL}};

const struct codec_name text_generation_names[] = {
    {.name = "inputs", .canonical = "prompt"},
    {.name = "grammar.value", .canonical = "response_format.json_schema.schema"},
    {.name = "grammar.value", .canonical = "regex"},
    {.name = "max_new_tokens", .canonical = "max_tokens"},
    {.name = "top_n_tokens", .canonical = "logprobs"},
    {.name = "truncate", .canonical = "truncate_prompt_tokens"},
    {.name = "watermark", .canonical = "watermarking"},
    {.name = NULL}};
