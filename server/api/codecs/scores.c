/* scores.c - pairs of texts in, a score of each out: /v1/score as vLLM has it, and /rerank, /v1/rerank and /v2/rerank, which
 * Jina's, Cohere's and vLLM's clients call, with the best documents first; those of Text Embeddings Inference send texts and get the
 * list alone. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "server/api/codec.h"
#include "server/api/json_field.h"

static const struct codec_field score_fields[] = {
    {"text_1", "queries", NULL}, {"text_2", "documents", NULL}, {NULL, NULL, NULL}};

/* A request of texts has something in params->kept, and is not told them unless it asks. */
static int begin_rerank(struct translation *t)
{
    if (!json_field_find(t->body, "texts")) return 0;
    if (json_field_find(t->body, "documents"))
        return api_error_invalid(t->err, "invalid_value", "texts",
                                 "texts stands beside documents; one of them is ranked");
    t->kept = arena_alloc(t->arena, 1);
    if (!t->kept) return api_error_no_memory(t->err);
    return codec_put(t, t->body, "return_documents", cJSON_CreateFalse());
}

static int read_texts(struct translation *t, cJSON *value)
{
    return codec_put(t, t->body, "documents", cJSON_Duplicate(value, true));
}

static int read_return_text(struct translation *t, cJSON *value)
{
    if (!cJSON_IsBool(value)) return json_field_refuse_type(value, "return_text", "a boolean", t->err);
    return codec_put(t, t->body, "return_documents", cJSON_Duplicate(value, false));
}

static int read_raw_scores(struct translation *t, cJSON *value)
{
    if (!cJSON_IsBool(value)) return json_field_refuse_type(value, "raw_scores", "a boolean", t->err);
    if (cJSON_IsFalse(value)) return 0;
    return api_error_invalid(
        t->err, "unsupported_value", "raw_scores",
        "raw_scores must be false: a score is what the model's file makes of its output");
}

static const struct codec_field rerank_fields[] = {{"query", "queries", NULL},
                                                   {"texts", NULL, read_texts},
                                                   {"return_text", NULL, read_return_text},
                                                   {"raw_scores", NULL, read_raw_scores},
                                                   {"truncate", NULL, NULL}, /* no pair is cut */
                                                   {"truncation_direction", NULL, NULL},
                                                   {NULL, NULL, NULL}};
static const struct codec_name rerank_names[] = {{"texts", "documents", true}, {NULL, NULL, false}};

static void begin_answer(struct buffer *out, const struct answer *a)
{
    buffer_printf(out, "{\"id\":\"%s\",\"object\":\"list\",\"created\":%lld,\"model\":", a->id,
                  (long long)a->created);
    buffer_append_json_text(out, a->model);
}

static void append_usage(struct buffer *out, const struct answer *a, const struct usage *u)
{
    buffer_printf(out, "],\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":0,\"total_tokens\":%lld",
                  (long long)u->prompt_tokens, (long long)u->prompt_tokens);
    codec_append_energy(out, a, u);
    buffer_append_text(out, "}}");
}

static void append_scores(struct buffer *out, struct answer *a, const struct event *e)
{
    begin_answer(out, a);
    buffer_append_text(out, ",\"data\":[");
    for (int i = 0; i < a->num_choices; i++)
        buffer_printf(out, "%s{\"index\":%d,\"object\":\"score\",\"score\":%.17g}", i > 0 ? "," : "", i,
                      a->choices[i].score);
    append_usage(out, a, e->usage);
}

/* ---- the best first ---- */

static int compare_choices(const void *x, const void *y)
{
    const struct choice *a = *(const struct choice *const *)x, *b = *(const struct choice *const *)y;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return a->index - b->index;
}

static bool ranks_texts(const struct answer *a)
{
    return a->context->params->kept != NULL;
}

static void append_result(struct buffer *out, const struct answer *a, const struct choice *c)
{
    bool is_flat = ranks_texts(a);
    buffer_printf(out, "{\"index\":%d,\"%s\":%.17g", c->index, is_flat ? "score" : "relevance_score",
                  c->score);
    if (a->context->params->scoring.return_documents) {
        buffer_append_text(out, is_flat ? ",\"text\":" : ",\"document\":{\"text\":");
        buffer_append_json(out, c->ready.num_bytes > 0 ? c->ready.data : "", c->ready.num_bytes);
        if (!is_flat) buffer_append_char(out, '}');
    }
    buffer_append_char(out, '}');
}

static void append_results(struct buffer *out, struct answer *a, const struct event *e)
{
    const struct choice **order = calloc((size_t)a->num_choices, sizeof(struct choice *));
    int32_t num = min_of(a->context->params->scoring.top_n, (int32_t)a->num_choices);
    if (!order) {
        out->failed = true;
        return;
    }
    for (int i = 0; i < a->num_choices; i++) order[i] = &a->choices[i];
    qsort(order, (size_t)a->num_choices, sizeof(struct choice *), compare_choices);
    bool is_list = ranks_texts(a);
    if (!is_list) begin_answer(out, a);
    buffer_append_text(out, is_list ? "[" : ",\"results\":[");
    for (int32_t i = 0; i < num; i++) {
        if (i > 0) buffer_append_char(out, ',');
        append_result(out, a, order[i]);
    }
    if (is_list)
        buffer_append_char(out, ']');
    else
        append_usage(out, a, e->usage);
    free(order);
}

/* ---- the tables ---- */

const struct codec codec_score = {
    .path = "/v1/score",
    .id_prefix = "score-",
    .kind = API_SCORING,
    .fields = score_fields,
    .events = {[EVENT_WHOLE] = append_scores},
    .append_error = response_append_error,
};

const struct codec codec_rerank = {
    .path = "/v1/rerank",
    .id_prefix = "rerank-",
    .kind = API_SCORING,
    .begin = begin_rerank,
    .fields = rerank_fields,
    .names = rerank_names,
    .events = {[EVENT_WHOLE] = append_results},
    .append_error = response_append_error,
};
