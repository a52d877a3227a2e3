#include "server/api/prepare.h"

#include <string.h>

#include "server/api/codecs/canonical.h"
#include "server/api/custom_tools.h"
#include "server/api/json_field.h"
#include "server/api/limit_params.h"
#include "server/api/nul_text.h"
#include "server/api/prediction.h"
#include "server/api/receipt.h"
#include "server/api/tool_params.h"
#include "text/json_numbers.h"

cJSON *prepare_parse(const char *body, size_t body_bytes, struct api_error *err)
{
    bool conflict;
    cJSON *tree = nul_text_parse(body, body_bytes, &conflict);
    if (conflict) {
        api_error_invalid(
            err, "invalid_value", NULL,
            "the body has both U+0000 and U+10FFFF in its texts; only one of them can be taken");
    } else if (!tree) {
        api_error_no_memory(err); /* the gate has let it through, so it is JSON */
    } else if (!cJSON_IsObject(tree)) {
        api_error_invalid(err, "invalid_type", NULL, "the body must be a JSON object");
        cJSON_Delete(tree);
        tree = NULL;
    }
    return tree;
}

/* Numbers are kept before a codec moves them: they are found in the order of the text. */
static int make_canonical(const struct prepare_input *in, struct translation *t)
{
    if (json_keep_numbers(t->body, in->body, in->body_bytes)) return api_error_no_memory(t->err);
    return codec_translate(in->codec, t);
}

/* What only OpenAI's protocols have a place for. */
static const char *find_untold(const struct params *params)
{
    if (params->return_token_ids) return "return_token_ids";
    if (params->return_prompt_text) return "return_prompt_text";
    return params->num_prompt_logprobs >= 0 ? "prompt_logprobs" : NULL;
}

/* What a protocol cannot tell is not asked for, nor taken apart. */
static int check_codec(const struct codec *codec, struct params *params, struct api_error *err)
{
    const char *untold = codec->tells_ids ? NULL : find_untold(params);
    if (untold)
        return api_error_invalid(err, "unsupported_parameter", untold,
                                 "%s is not supported by this endpoint: its answers have no place for it",
                                 untold);
    if (codec->tells_pieces && params->kind == API_CHAT) return 0;
    params->separate_reasoning = false;
    if (!params->uses_tools) return 0;
    return api_error_invalid(err, "unsupported_parameter", "tools",
                             "tools are not supported by this endpoint yet");
}

/* Encoders, and models with a head that scores, do one thing. */
static int check_kind(const struct prepare_input *in, enum api_kind kind, struct api_error *err)
{
    const struct link_facts *facts = in->server->facts;
    if (kind == (facts->scores_pairs ? API_SCORING : API_POOLING)) return 0;
    if (facts->scores_pairs)
        return api_error_invalid(err, "unsupported_value", "model",
                                 "this model scores pairs of texts and does nothing else: POST /v1/rerank or "
                                 "/v1/score");
    if (!facts->is_encoder) return 0;
    return api_error_invalid(err, "unsupported_value", "model",
                             "this model makes embeddings and nothing else: POST /v1/embeddings");
}

/* Of the translation, for the prompt and the answer. */
static int keep_what_was_meant(const struct translation *t, struct params *params)
{
    params->kept = t->kept;
    params->ends_with_context = t->ends_with_context;
    params->fills_context |= t->fills_context;
    params->drops_turns = t->drops_turns;
    params->tells_prompt_last = t->tells_prompt_last;
    params->in_background = t->in_background;
    if (!t->tells_sampling) return 0;
    struct sampling *sampling = arena_alloc(t->arena, sizeof *sampling);
    if (!sampling) return api_error_no_memory(t->err);
    *sampling = params->input->sampling;
    params->sampling = sampling;
    return 0;
}

/* For the answer's head. */
static void warn_of_prompts(struct translation *t, const struct params *params, const struct prompts *prompts)
{
    if (prompts->num_dropped > 0)
        translation_warn(t, "the oldest messages had no room: %d were dropped", prompts->num_dropped);
    if (prompts->num_unseen > 0)
        translation_warn(t, "parts of tools' results that are no text are not seen: %d", prompts->num_unseen);
    if (params->ignored && params->ignored->misspelt[0]) translation_warn(t, "%s", params->ignored->misspelt);
}

static int keep_warnings(struct translation *t, struct params *params)
{
    if (!t->warnings[0]) return 0;
    params->warnings = arena_copy(t->arena, t->warnings, strlen(t->warnings));
    return params->warnings ? 0 : api_error_no_memory(t->err);
}

static int try_form(struct translation *t, const bool *is_free, bool opens_reasoning, struct params *params)
{
    int status = 0;
    if (params->uses_tools)
        status = tool_params_demand(t->server, t->body, is_free, t->arena, params, t->err);
    if (status < 0) return status;
    return constraint_compile(t->server, json_field_find(t->body, "tools"), opens_reasoning, &params->form,
                              t->err);
}

static void warn_of_free(struct translation *t, const cJSON *tool)
{
    char why[120];
    size_t begin = strlen(t->err->param) + strlen(": ");
    snprintf(why, sizeof why, "%s", t->err->text + min_of(begin, strlen(t->err->text)));
    for (char *c = why; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?';
    translation_warn(t, "arguments of tool %.32s are not held to its schema: %s",
                     canonical_text(json_field_find(tool, "function"), "name"), why);
}

/* What answers must look like. A schema that cannot be held is refused, but for those of tools that are not strict, whose
 * arguments are then free: of each that is found, after so many of all. */
static int make_form(struct translation *t, bool opens_reasoning, struct params *params)
{
    enum { TRIES_MAX = 8 };
    const cJSON *tools = json_field_find(t->body, "tools");
    int status = try_form(t, NULL, opens_reasoning, params), place;
    if (status == 0 || (place = tool_params_find_loose(tools, t->err)) < 0) return status;
    size_t count = (size_t)cJSON_GetArraySize(tools);
    bool *is_free = arena_alloc_array(t->arena, count, sizeof *is_free);
    if (!is_free) return api_error_no_memory(t->err);
    for (int i = 1; status < 0 && place >= 0 && !is_free[place]; i++) {
        warn_of_free(t, cJSON_GetArrayItem(tools, place));
        is_free[place] = true;
        if (i == TRIES_MAX) memset(is_free, true, count);
        *t->err = (struct api_error){0};
        status = try_form(t, is_free, opens_reasoning, params);
        place = tool_params_find_loose(tools, t->err);
    }
    return status;
}

int prepare_run(const struct prepare_input *in, struct arena *arena, struct params *params,
                struct prompts *prompts, struct api_error *err)
{
    cJSON *body = prepare_parse(in->body, in->body_bytes, err);
    if (!body) return STATUS_INVALID;
    struct translation t = {.server = in->server,
                            .body = body,
                            .kind = in->codec->kind,
                            .arena = arena,
                            .err = err,
                            .api_key_idx = in->api_key_idx,
                            .has_nul = nul_text_is_in(in->body, in->body_bytes)};
    int status = make_canonical(in, &t);
    if (status == 0) status = check_kind(in, t.kind, err);
    if (status == 0)
        status = params_read(in->server, t.kind, body, in->body, in->body_bytes, arena, params, err);
    if (status == 0) status = check_codec(in->codec, params, err);
    if (status == 0) status = keep_what_was_meant(&t, params);
    if (status == 0 && t.kind == API_CHAT)
        status = prompts_read_chat(in->server, params, body, in->now_seconds, arena, prompts, err);
    else if (status == 0 && t.kind == API_SCORING)
        status = prompts_read_pairs(in->server, params, body, arena, prompts, err);
    else if (status == 0)
        status = prompts_read_completions(in->server, params, body, arena, prompts, err);
    if (status == 0 && !api_kind_has_rows(t.kind))
        status = prediction_read(in->server, params, body, &prompts->prediction, err);
    if (status == 0) warn_of_prompts(&t, params, prompts);
    if (status == 0) status = make_form(&t, prompts->items[0].opens_reasoning, params);
    if (status == 0) status = keep_warnings(&t, params);
    if (status == 0 && !api_kind_has_rows(t.kind))
        status = limit_params_read(in->server, body, params->has_nul, &params->limits, err);
    if (status == 0) params->input->constrained = params->form.grammar || params->limits;
    if (status == 0 && in->server->makes_receipts && !api_kind_has_rows(t.kind)) {
        params->request_digest = receipt_digest_request(params, prompts, body, arena);
        if (!params->request_digest) status = api_error_no_memory(err);
    }
    if (status < 0) codec_name_error(in->codec, &t);
    if (status == 0 && params->uses_tools) {
        params->tools = cJSON_DetachItemFromObjectCaseSensitive(body, "tools");
        if (custom_tools_mark(params->tools, t.custom_tools) != 0) status = api_error_no_memory(err);
        if (status < 0) cJSON_Delete(params->tools);
        if (status < 0) params->tools = NULL;
    }
    cJSON_Delete(t.custom_tools);
    cJSON_Delete(body);
    return status;
}
