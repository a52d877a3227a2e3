/* text_generation.c - Text Generation Inference's /generate, /generate_stream and POST /: an event for each token, the last
 * one with the text and the details; or both whole. */
#include "server/api/codecs/text_generation.h"

#include <string.h>

#include "server/api/logprobs_text.h"

enum { TEXT_BYTES_MAX = 256 << 20 };

/* Of a stream. */
struct stream {
    bool begun;
    int index;          /* of the next event */
    struct buffer text; /* of the answer so far */
    struct id_and_logprob last;
};

static const struct text_generation_kept *kept_of(const struct answer *a)
{
    return a->context->params->kept;
}

static const char *error_type(int http_status)
{
    if (http_status == 429 || http_status == 503 || http_status == 504) return "overloaded";
    return http_status < 500 ? "validation" : "generation";
}

void text_generation_append_error(struct buffer *out, const struct failure *f)
{
    buffer_append_text(out, "{\"error\":");
    buffer_append_json_text(out, f->message);
    buffer_printf(out, ",\"error_type\":\"%s\"}", error_type(f->http_status));
}

/* ---- what both tell ---- */

static const char *finish_reason(const struct choice *c)
{
    if (!strcmp(c->finish_reason, "length") || c->text.is_outdented) return "length";
    return c->text.stop_idx >= 0 ? "stop_sequence" : "eos_token";
}

/* "generated_text":TEXT */
static void append_text(struct buffer *out, const struct answer *a, const char *text, size_t num_bytes)
{
    const struct text_generation_kept *kept = kept_of(a);
    struct buffer full;
    buffer_append_text(out, "\"generated_text\":");
    if (!kept->full_text) {
        buffer_append_json(out, num_bytes > 0 ? text : "", num_bytes);
        return;
    }
    buffer_init(&full, TEXT_BYTES_MAX);
    buffer_append(&full, kept->inputs, kept->num_bytes);
    buffer_append(&full, text, num_bytes);
    buffer_append_json(out, full.num_bytes > 0 ? full.data : "", full.num_bytes);
    if (buffer_failed(&full)) out->failed = true;
    buffer_deinit(&full);
}

/* "details":{"finish_reason":... */
static void begin_details(struct buffer *out, const struct answer *a, const struct choice *c)
{
    buffer_printf(out, "\"details\":{\"finish_reason\":\"%s\",\"generated_tokens\":%d,\"seed\":%llu",
                  finish_reason(c), c->num_pulled, (unsigned long long)a->seed);
}

/* ---- stream ---- */

static struct stream *stream_of(struct answer *a)
{
    struct stream *s = a->state;
    if (s->begun) return s;
    *s = (struct stream){.begun = true, .last.id = tokenizer_eos_id(a->context->server->tokenizer)};
    buffer_init(&s->text, TEXT_BYTES_MAX);
    return s;
}

static void forget(void *state)
{
    struct stream *s = state;
    if (s->begun) buffer_deinit(&s->text);
}

/* The members of an answer's last event. */
static void append_end(struct buffer *out, struct answer *a, const struct event *e)
{
    const struct stream *s = stream_of(a);
    append_text(out, a, s->text.data, s->text.num_bytes);
    buffer_append_char(out, ',');
    if (kept_of(a)->details) {
        begin_details(out, a, e->choice);
        buffer_printf(out, ",\"input_length\":%d}", e->choice->num_prompt_tokens);
    } else {
        buffer_append_text(out, "\"details\":null");
    }
    if (e->usage) codec_append_energy(out, a, e->usage);
    codec_append_receipt(out, a);
}

/* position: of the token; -1: there is none, and what there is to tell comes with the last one again. Of several tokens in an event the
 * last one has the text. */
static void append_token_event(struct buffer *out, struct answer *a, const struct event *e, int32_t position,
                               bool is_last)
{
    struct stream *s = stream_of(a);
    bool has_text = is_last && e->text_bytes > 0;
    if (position >= 0) s->last = logprobs_of(e->logprobs, position);
    buffer_printf(out, "data: {\"index\":%d,\"token\":", s->index++);
    logprobs_append_token(out, a->context->server->tokenizer, s->last, has_text ? e->text : "",
                          has_text ? e->text_bytes : 0);
    if (position >= 0 && kept_of(a)->num_top > 0) {
        buffer_append_text(out, ",\"top_tokens\":");
        logprobs_append_top_tokens(out, e->logprobs, position);
    }
    buffer_append_char(out, ',');
    if (is_last && e->finish_reason)
        append_end(out, a, e);
    else
        buffer_append_text(out, "\"generated_text\":null,\"details\":null");
    buffer_append_text(out, "}\n\n");
}

static void append_delta(struct buffer *out, struct answer *a, const struct event *e)
{
    struct stream *s = stream_of(a);
    const int32_t begin = e->logprobs ? e->logprobs->begin : 0, end = e->logprobs ? e->logprobs->end : 0;
    if (e->text_bytes > 0) buffer_append(&s->text, e->text, e->text_bytes);
    for (int32_t p = begin; p < end; p++) append_token_event(out, a, e, p, p == end - 1);
    if (begin == end && (e->text_bytes > 0 || e->finish_reason)) append_token_event(out, a, e, -1, true);
    if (buffer_failed(&s->text)) out->failed = true;
}

static void append_error(struct buffer *out, struct answer *a, const struct event *e)
{
    const struct failure f = api_error_failure(e->error, a->request_id);
    buffer_append_text(out, "data: ");
    text_generation_append_error(out, &f);
    buffer_append_text(out, "\n\n");
}

/* ---- whole ---- */

static void append_tokens(struct buffer *out, const struct answer *a, const struct logprobs_part *part)
{
    buffer_append_text(out, ",\"prefill\":[],\"tokens\":[");
    for (int32_t p = part->begin; p < part->end; p++) {
        if (p > part->begin) buffer_append_char(out, ',');
        logprobs_append_token(out, part->tokenizer, logprobs_of(part, p), NULL, 0);
    }
    buffer_append_char(out, ']');
    if (kept_of(a)->num_top == 0) return;
    buffer_append_text(out, ",\"top_tokens\":[");
    for (int32_t p = part->begin; p < part->end; p++) {
        if (p > part->begin) buffer_append_char(out, ',');
        logprobs_append_top_tokens(out, part, p);
    }
    buffer_append_char(out, ']');
}

static void append_whole(struct buffer *out, struct answer *a, const struct event *e)
{
    const struct choice *c = &a->choices[0];
    const struct text_generation_kept *kept = kept_of(a);
    buffer_append_text(out, kept->is_list ? "[{" : "{");
    append_text(out, a, c->ready.data, c->ready.num_bytes);
    if (kept->details) {
        const struct logprobs_part part = choice_next_logprobs(c, a->context, INT32_MAX);
        buffer_append_char(out, ',');
        begin_details(out, a, c);
        append_tokens(out, a, &part);
        buffer_append_char(out, '}');
    }
    codec_append_energy(out, a, e->usage);
    codec_append_receipt(out, a);
    buffer_append_text(out, kept->is_list ? "}]" : "}");
}

/* ---- the tables ---- */

#define CODEC(route, begins)                                                                                 \
    {                                                                                                        \
        .path = (route), .id_prefix = "cmpl-", .stream_type = EVENT_STREAM_TYPE, .kind = API_COMPLETIONS,    \
        .begin = (begins), .fields = text_generation_fields, .names = text_generation_names,                 \
        .translate = text_generation_translate,                                                              \
        .events = {[EVENT_DELTA] = append_delta,                                                             \
                   [EVENT_ERROR] = append_error,                                                             \
                   [EVENT_PING] = codec_append_ping,                                                         \
                   [EVENT_WHOLE] = append_whole},                                                            \
        .append_error = text_generation_append_error, .state_bytes = sizeof(struct stream), .forget = forget \
    }

const struct codec codec_text_generation = CODEC("/generate", text_generation_begin_whole);
const struct codec codec_text_generation_stream = CODEC("/generate_stream", text_generation_begin_stream);
const struct codec codec_text_generation_root = CODEC("/", text_generation_begin_either);
