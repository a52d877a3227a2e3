/* llama.c - llama.cpp's /completion and /infill: a stream's chunks have content and ids, and the last one, or the whole
 * answer, all that there is to tell. Several prompts, or answers, are an array. */
#include "server/api/codecs/llama.h"

#include <string.h>

enum { ANSWER_BYTES_MAX = 256 << 20 };

static const struct llama_kept *kept_of(const struct answer *a)
{
    return a->context->params->kept;
}

static void append_real(struct buffer *out, const char *name, float value)
{
    buffer_printf(out, ",\"%s\":%.9g", name, (double)value);
}

/* ---- what was asked for ---- */

static void append_stop(struct buffer *out, const struct stop_strings *stop)
{
    buffer_append_text(out, ",\"stop\":[");
    for (int i = 0; i < stop->count; i++) {
        if (i > 0) buffer_append_char(out, ',');
        buffer_append_json(out, stop->items[i].text, (size_t)stop->items[i].num_bytes);
    }
    buffer_append_char(out, ']');
}

static void append_settings(struct buffer *out, const struct answer *a)
{
    const struct params *p = a->context->params;
    const struct sampling *s = p->sampling;
    buffer_printf(
        out, ",\"generation_settings\":{\"n_ctx\":%d,\"n_predict\":%d,\"max_tokens\":%d,\"seed\":%llu",
        a->context->server->facts->max_model_len, p->max_tokens, p->max_tokens, (unsigned long long)a->seed);
    append_real(out, "temperature", s->temperature);
    append_real(out, "top_p", s->top_p);
    append_real(out, "min_p", s->min_p);
    append_real(out, "repeat_penalty", s->repetition_penalty);
    append_real(out, "presence_penalty", s->presence_penalty);
    append_real(out, "frequency_penalty", s->frequency_penalty);
    buffer_printf(out, ",\"top_k\":%d,\"repeat_last_n\":-1,\"n_probs\":%d,\"n_indent\":%d,\"stream\":%s",
                  s->top_k, p->logprobs ? p->num_top_logprobs : 0, p->n_indent, p->stream ? "true" : "false");
    append_stop(out, &p->stop);
    buffer_append_char(out, '}');
}

/* ---- one answer ---- */

static void append_probabilities(struct buffer *out, const struct logprobs_part *logprobs)
{
    struct logprobs_part part = *logprobs;
    part.with_ids = true;
    buffer_append_text(out, ",\"completion_probabilities\":");
    logprobs_append_entries(out, &part);
}

/* {"index":...,"content":text,"tokens":[...] */
static void begin_answer(struct buffer *out, const struct answer *a, const struct choice *c, const char *text,
                         size_t num_bytes, int32_t ids_begin, int32_t ids_end)
{
    buffer_printf(out, "{\"index\":%d,\"content\":", c->index);
    buffer_append_json(out, text, num_bytes);
    buffer_append_text(out, ",\"tokens\":");
    if (ids_begin < ids_end)
        codec_append_ids(out, a, c, ids_begin, ids_end);
    else
        buffer_append_text(out, "[]");
    buffer_printf(out, ",\"id_slot\":-1,\"tokens_predicted\":%d,\"tokens_evaluated\":%d", c->num_pulled,
                  c->num_prompt_tokens);
}

static const char *stop_type(const struct choice *c)
{
    if (strcmp(c->finish_reason, "stop") != 0 || c->text.is_outdented) return "limit";
    return c->text.stop_idx >= 0 ? "word" : "eos";
}

static void append_end(struct buffer *out, const struct answer *a, const struct choice *c)
{
    const struct params *p = a->context->params;
    const struct stop_string *word = c->text.stop_idx >= 0 ? &p->stop.items[c->text.stop_idx] : NULL;
    bool is_full = c->num_prompt_tokens + c->num_pulled >= a->context->server->facts->max_model_len;
    buffer_append_text(out, ",\"stop\":true,\"model\":");
    buffer_append_json_text(out, a->model);
    buffer_printf(out, ",\"stop_type\":\"%s\",\"stopping_word\":", stop_type(c));
    buffer_append_json(out, word ? word->text : "", word ? (size_t)word->num_bytes : 0);
    buffer_printf(out, ",\"truncated\":%s,\"tokens_cached\":%d",
                  is_full && !strcmp(stop_type(c), "limit") ? "true" : "false",
                  a->reports_cached_tokens ? c->num_cached_tokens : 0);
    append_settings(out, a);
    buffer_append_text(out, ",\"prompt\":");
    codec_append_prompt(out, a, c);
    buffer_append_char(out, ',');
    codec_append_timings(out, a, c);
}

/* An answer's last members, and of all that is in whole those that the client picks. */
static void end_answer(struct buffer *out, const struct answer *a, struct buffer *whole)
{
    const struct llama_kept *kept = kept_of(a);
    codec_append_receipt(whole, a);
    buffer_append_char(whole, '}');
    buffer_append(whole, "", 1);
    if (buffer_failed(whole))
        out->failed = true;
    else if (kept->num_response_fields >= 0)
        llama_pick_fields(out, whole->data, kept);
    else
        buffer_append(out, whole->data, whole->num_bytes - 1);
    buffer_deinit(whole);
}

/* ---- stream ---- */

static void append_last_chunk(struct buffer *out, struct answer *a, const struct event *e)
{
    struct buffer whole;
    buffer_init(&whole, ANSWER_BYTES_MAX);
    begin_answer(&whole, a, e->choice, "", 0, 0, 0);
    append_end(&whole, a, e->choice);
    codec_append_energy(&whole, a, e->usage);
    buffer_append_text(out, "data: ");
    end_answer(out, a, &whole);
    buffer_append_text(out, "\n\n");
}

/* What the last tokens say comes before the end, which a client may pick other members of. */
static void append_chunk(struct buffer *out, struct answer *a, const struct event *e)
{
    int32_t begin = max_of(e->ids_begin, e->choice->num_prompt_tokens);
    if (e->text_bytes > 0 || begin < e->ids_end || e->logprobs) {
        buffer_append_text(out, "data: ");
        begin_answer(out, a, e->choice, e->text, e->text_bytes, begin, e->ids_end);
        if (e->logprobs) append_probabilities(out, e->logprobs);
        buffer_append_text(out, ",\"stop\":false}\n\n");
    }
    if (e->finish_reason) append_last_chunk(out, a, e);
}

static void append_error(struct buffer *out, struct answer *a, const struct event *e)
{
    const struct failure f = api_error_failure(e->error, a->request_id);
    buffer_append_text(out, "data: ");
    response_append_error(out, &f);
    buffer_append_text(out, "\n\n");
}

/* ---- whole ---- */

static void append_answer(struct buffer *out, struct answer *a, const struct choice *c, const struct usage *u)
{
    const struct logprobs_part part = choice_next_logprobs(c, a->context, INT32_MAX);
    const int32_t begin = c->num_prompt_tokens, end = begin + c->num_pulled;
    struct buffer whole;
    buffer_init(&whole, ANSWER_BYTES_MAX);
    begin_answer(&whole, a, c, c->ready.data, c->ready.num_bytes, begin,
                 a->context->params->return_token_ids ? end : begin);
    if (a->context->params->logprobs) append_probabilities(&whole, &part);
    append_end(&whole, a, c);
    if (u) codec_append_energy(&whole, a, u);
    end_answer(out, a, &whole);
}

/* The energy of all of them stands in the first. */
static void append_whole(struct buffer *out, struct answer *a, const struct event *e)
{
    bool is_array = a->num_choices > 1;
    if (is_array) buffer_append_char(out, '[');
    for (int i = 0; i < a->num_choices; i++) {
        if (i > 0) buffer_append_char(out, ',');
        append_answer(out, a, &a->choices[i], i == 0 ? e->usage : NULL);
    }
    if (is_array) buffer_append_char(out, ']');
}

/* ---- the tables ---- */

#define EVENTS                                                                                               \
    {                                                                                                        \
        [EVENT_DELTA] = append_chunk, [EVENT_ERROR] = append_error, [EVENT_PING] = codec_append_ping,        \
        [EVENT_WHOLE] = append_whole                                                                         \
    }

const struct codec codec_llama_completion = {
    .path = "/completion",
    .id_prefix = "cmpl-",
    .stream_type = EVENT_STREAM_TYPE,
    .kind = API_COMPLETIONS,
    .fields = llama_completion_fields,
    .names = llama_names,
    .translate = llama_translate_completion,
    .tells_ids = true,
    .events = EVENTS,
    .append_error = response_append_error,
};

const struct codec codec_llama_infill = {
    .path = "/infill",
    .id_prefix = "cmpl-",
    .stream_type = EVENT_STREAM_TYPE,
    .kind = API_COMPLETIONS,
    .fields = llama_infill_fields,
    .names = llama_infill_names,
    .translate = llama_translate_infill,
    .tells_ids = true,
    .events = EVENTS,
    .append_error = response_append_error,
};
