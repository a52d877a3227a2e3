/* llama_body.c - llama.cpp's /completion and /infill: a body as a canonical one.
 *
 * Most names are the canonical ones. An answer may fill the context unless n_predict says otherwise, and one that is to be
 * longer than there is room for ends with it. */
#include <string.h>

#include "base/check.h"
#include "server/api/codecs/canonical.h"
#include "server/api/codecs/fill_in_middle.h"
#include "server/api/codecs/llama.h"

/* ---- samplers ---- */

/* One that is not named does nothing: its field has the value with which it does. letter: its name in a text of them. */
static const struct sampler {
    const char *name, *other_name;
    char letter;
    const char *field;
    double neutral;
} samplers[] = {
    {"top_k", "top-k", 'k', "top_k", 0},
    {"top_p", "nucleus", 'p', "top_p", 1},
    {"min_p", "min-p", 'm', "min_p", 0},
    {"temperature", "temp", 't', "temperature", 1},
    {"penalties", NULL, 'e', NULL, 0},
    /* what these need is refused elsewhere */
    {"dry", NULL, 'd', NULL, 0},
    {"top_n_sigma", "top-n-sigma", 's', NULL, 0},
    {"typ_p", "typical_p", 'y', NULL, 0},
    {"xtc", NULL, 'x', NULL, 0},
    {"adaptive_p", "adaptive-p", 'a', NULL, 0},
    {"infill", NULL, 'i', NULL, 0},
};
enum { PENALTIES = 4, INFILL = array_length(samplers) - 1 };

static bool is_sampler(const struct sampler *s, const char *name, bool is_letter)
{
    if (is_letter) return s->letter == *name;
    return !strcmp(s->name, name) || (s->other_name && !strcmp(s->other_name, name));
}

/* Its bit. */
static int name_sampler(struct translation *t, const char *name, bool is_letter, unsigned *named)
{
    for (size_t i = 0; i < array_length(samplers); i++)
        if (is_sampler(&samplers[i], name, is_letter)) {
            *named |= 1u << i;
            return 0;
        }
    return api_error_invalid(t->err, "invalid_value", "samplers",
                             "samplers names \"%.*s\", which is none; there are penalties, dry, top_n_sigma, "
                             "top_k, typ_p, top_p, min_p, xtc, temperature and infill",
                             is_letter ? 1 : 40, name);
}

static int switch_off(struct translation *t, const char *field, double neutral)
{
    return codec_put(t, t->body, field, cJSON_CreateNumber(neutral));
}

static int switch_penalties_off(struct translation *t)
{
    int status = switch_off(t, "presence_penalty", 0);
    cJSON_DeleteItemFromObjectCaseSensitive(t->body, "repetition_penalty");
    if (status == 0) status = switch_off(t, "frequency_penalty", 0);
    return status == 0 ? switch_off(t, "repeat_penalty", 1) : status;
}

/* llama.cpp's infill keeps what the model is sure of: the likeliest token. */
static int apply_samplers(struct translation *t, unsigned named)
{
    int status = named & 1u << PENALTIES ? 0 : switch_penalties_off(t);
    for (size_t i = 0; i < array_length(samplers) && status == 0; i++)
        if (samplers[i].field && !(named & 1u << i))
            status = switch_off(t, samplers[i].field, samplers[i].neutral);
    return status == 0 && named & 1u << INFILL ? switch_off(t, "temperature", 0) : status;
}

/* An array of names, or a text of letters. They are applied in this server's order, whatever theirs is. */
static int read_samplers(struct translation *t, cJSON *value)
{
    unsigned named = 0;
    const cJSON *item;
    int status = 0;
    if (cJSON_IsString(value))
        for (const char *at = value->valuestring; *at && status == 0; at++)
            status = name_sampler(t, at, true, &named);
    else if (!cJSON_IsArray(value))
        return json_field_refuse_type(value, "samplers", "an array of names", t->err);
    cJSON_ArrayForEach(item, value)
    {
        if (status == 0 && !cJSON_IsString(item))
            status = json_field_refuse_type(item, "samplers", "an array of names", t->err);
        if (status == 0) status = name_sampler(t, item->valuestring, false, &named);
    }
    return status == 0 ? apply_samplers(t, named) : status;
}

/* ---- what is told ---- */

/* None are told where none are wanted. */
static int read_n_probs(struct translation *t, cJSON *value)
{
    if (cJSON_IsNumber(value) && value->valuedouble == 0) return 0;
    return codec_put(t, t->body, "logprobs", cJSON_Duplicate(value, false));
}

static int read_return_tokens(struct translation *t, cJSON *value)
{
    if (!cJSON_IsBool(value)) return json_field_refuse_type(value, "return_tokens", "a boolean", t->err);
    return codec_put(t, t->body, "return_token_ids", cJSON_CreateBool(cJSON_IsTrue(value)));
}

static struct llama_kept *kept_of(struct translation *t)
{
    struct llama_kept *kept = t->kept ? t->kept : arena_alloc(t->arena, sizeof *kept);
    if (kept && !t->kept) *kept = (struct llama_kept){.num_response_fields = -1};
    t->kept = kept;
    return kept;
}

static bool is_among(const char *path, const char *const *paths, int num)
{
    for (int i = 0; i < num; i++)
        if (!strcmp(path, paths[i])) return true;
    return false;
}

/* Each once: an object has a key once. */
static int read_response_fields(struct translation *t, cJSON *value)
{
    struct llama_kept *kept = kept_of(t);
    const cJSON *item;
    int num = 0, count = cJSON_GetArraySize(value);
    if (!cJSON_IsArray(value))
        return json_field_refuse_type(value, "response_fields", "an array of strings", t->err);
    if (count > RESPONSE_FIELDS_MAX)
        return api_error_invalid(t->err, "invalid_value", "response_fields",
                                 "response_fields must have at most %d names", (int)RESPONSE_FIELDS_MAX);
    const char **paths = arena_alloc_array(t->arena, (size_t)count + 1, sizeof *paths);
    if (!kept || !paths) return api_error_no_memory(t->err);
    cJSON_ArrayForEach(item, value)
    {
        if (!cJSON_IsString(item))
            return json_field_refuse_type(item, "response_fields", "an array of strings", t->err);
        if (is_among(item->valuestring, paths, num)) continue;
        paths[num] = arena_copy(t->arena, item->valuestring, strlen(item->valuestring));
        if (!paths[num++]) return api_error_no_memory(t->err);
    }
    if (num > 0) kept->num_response_fields = num; /* an empty list asks for nothing in particular */
    kept->response_fields = paths;
    return 0;
}

/* Streams tell ids in any case, and all answers the prompt at their end. */
static int tell(struct translation *t)
{
    t->tells_prompt_last = t->tells_sampling = true;
    if (!kept_of(t)) return api_error_no_memory(t->err);
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(t->body, "stream")))
        return codec_put(t, t->body, "return_token_ids", cJSON_CreateTrue());
    return 0;
}

/* ---- values that say nothing ---- */

static void forget_empty_grammar(cJSON *body)
{
    const cJSON *grammar = cJSON_GetObjectItemCaseSensitive(body, "grammar");
    if (cJSON_IsString(grammar) && !grammar->valuestring[0])
        cJSON_DeleteItemFromObjectCaseSensitive(body, "grammar");
}

/* -1, also as an integer of 32 bits without a sign: any. */
static void forget_any_seed(cJSON *body)
{
    const cJSON *seed = cJSON_GetObjectItemCaseSensitive(body, "seed");
    if (cJSON_IsNumber(seed) && (seed->valuedouble == -1 || seed->valuedouble == UINT32_MAX))
        cJSON_DeleteItemFromObjectCaseSensitive(body, "seed");
}

static int translate(struct translation *t)
{
    t->fills_context = t->ends_with_context = true;
    forget_empty_grammar(t->body);
    forget_any_seed(t->body);
    return tell(t);
}

/* ---- /completion ---- */

/* {prompt_string}, which may have media beside it, in the place of a text. */
static int unwrap_prompt(struct translation *t, cJSON *parent, cJSON *prompt)
{
    const cJSON *media = json_field_find(prompt, "multimodal_data");
    const cJSON *text = json_field_find(prompt, "prompt_string");
    if (media && (!cJSON_IsArray(media) || media->child))
        return api_error_invalid(t->err, "unsupported_value", "prompt",
                                 "prompt has multimodal_data; this model reads text only");
    if (!cJSON_IsString(text))
        return json_field_refuse_type(prompt, "prompt", "a string, or an object with a prompt_string",
                                      t->err);
    cJSON *copy = cJSON_CreateString(text->valuestring);
    if (!copy) return api_error_no_memory(t->err);
    if (cJSON_IsObject(parent)) return codec_put(t, parent, "prompt", copy);
    cJSON_ReplaceItemViaPointer(parent, prompt, copy);
    return 0;
}

static int unwrap_prompts(struct translation *t)
{
    cJSON *prompt = cJSON_GetObjectItemCaseSensitive(t->body, "prompt"), *next;
    int status = 0;
    if (cJSON_IsObject(prompt)) return unwrap_prompt(t, t->body, prompt);
    if (!cJSON_IsArray(prompt)) return 0;
    for (cJSON *item = prompt->child; item && status == 0; item = next) {
        next = item->next;
        if (cJSON_IsObject(item)) status = unwrap_prompt(t, prompt, item);
    }
    return status;
}

int llama_translate_completion(struct translation *t)
{
    int status = unwrap_prompts(t);
    if (status == 0) status = translate(t);
    return status == 0 ? fill_in_middle_read_suffix(t) : status;
}

#define ANSWERS                                                                                              \
    {.name = "samplers", .read = read_samplers}, {.name = "n_probs", .read = read_n_probs},                  \
        {.name = "return_tokens", .read = read_return_tokens},                                               \
        {.name = "response_fields", .read = read_response_fields},                                           \
    {                                                                                                        \
        .name = "n_cmpl", .canonical = "n"                                                                   \
    }

const struct codec_field llama_completion_fields[] = {ANSWERS, {.name = NULL}};

const struct codec_name llama_names[] = {{.name = "n_probs", .canonical = "logprobs"}, {.name = NULL}};

/* ---- /infill ---- */

static int find_text(struct translation *t, const char *name, bool is_needed, const cJSON **out)
{
    *out = json_field_find(t->body, name);
    if (!*out && is_needed)
        return api_error_invalid(t->err, "missing_required_parameter", name, "%s is missing: a string", name);
    if (!*out || cJSON_IsString(*out)) return 0;
    return json_field_refuse_type(*out, name, "a string", t->err);
}

static int fill(struct translation *t)
{
    struct gap gap = {.extra = json_field_find(t->body, "input_extra")};
    int status = find_text(t, "input_prefix", true, &gap.before);
    if (status == 0) status = find_text(t, "input_suffix", true, &gap.behind);
    if (status == 0) status = find_text(t, "prompt", false, &gap.begun);
    if (status < 0) return status;
    if (gap.extra && !cJSON_IsArray(gap.extra))
        return json_field_refuse_type(gap.extra, "input_extra", "an array of objects with a text", t->err);
    return fill_in_middle(t, &gap, "input_prefix");
}

int llama_translate_infill(struct translation *t)
{
    int status = fill(t);
    cJSON_DeleteItemFromObjectCaseSensitive(t->body, "input_prefix");
    cJSON_DeleteItemFromObjectCaseSensitive(t->body, "input_suffix");
    cJSON_DeleteItemFromObjectCaseSensitive(t->body, "input_extra");
    return status == 0 ? translate(t) : status;
}

/* A suffix stands in input_suffix. */
const struct codec_field llama_infill_fields[] = {ANSWERS, {.name = "suffix"}, {.name = NULL}};

const struct codec_name llama_infill_names[] = {{.name = "n_probs", .canonical = "logprobs"},
                                                {.name = "input_prefix", .canonical = "prompt"},
                                                {.name = NULL}};
