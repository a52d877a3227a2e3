/* responses.c - OpenAI's Responses: events, and responses that are named again.
 *
 *   created in_progress (output_item.added content_part.added output_text.delta* output_text.done
 *   content_part.done output_item.done) completed | incomplete | failed
 *
 * Each event has its name in front of its data, and its number in it. A stream begins before its first token:
 * clients want response.created first, and response.in_progress is also the sign of life. */
#include "server/api/codecs/responses.h"

#include <string.h>

#include "server/api/api.h"
#include "server/api/response_store.h"

enum { TEXT_BYTES_MAX = 64 << 20 };

struct stream {
    int sequence;
    bool begun, open; /* the message */
    struct buffer text;
};

static void append_text(struct buffer *out, const char *text)
{
    buffer_append_json(out, text, strlen(text));
}

static const struct responses_request *request_of(const struct answer *a)
{
    return a->context->params->kept;
}

/* ---- parts of responses ---- */

/* As the id of the response, so that it is unique and the same in all events. */
static void append_item_id(struct buffer *out, const struct answer *a)
{
    buffer_printf(out, "\"msg_%s\"", a->id + strlen(a->codec->id_prefix));
}

static void append_part(struct buffer *out, const char *text, size_t n, const struct logprobs_part *logprobs)
{
    buffer_append_text(out, "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":");
    if (logprobs)
        logprobs_append_entries(out, logprobs);
    else
        buffer_append_text(out, "[]");
    buffer_append_text(out, ",\"text\":");
    buffer_append_json(out, n > 0 ? text : "", n);
    buffer_append_char(out, '}');
}

static void begin_item(struct buffer *out, const struct answer *a, const char *status)
{
    buffer_append_text(out, "{\"id\":");
    append_item_id(out, a);
    buffer_printf(out, ",\"type\":\"message\",\"role\":\"assistant\",\"status\":\"%s\",\"content\":[",
                  status);
}

static const char *status_of(const char *finish_reason)
{
    return finish_reason && !strcmp(finish_reason, "length") ? "incomplete" : "completed";
}

static void append_item(struct buffer *out, const struct answer *a, const char *finish_reason,
                        const char *text, size_t n, const struct logprobs_part *logprobs)
{
    begin_item(out, a, status_of(finish_reason));
    append_part(out, text, n, logprobs);
    buffer_append_text(out, "]}");
}

static void append_usage(struct buffer *out, const struct answer *a, const struct usage *u)
{
    buffer_printf(out,
                  ",\"usage\":{\"input_tokens\":%lld,\"input_tokens_details\":{\"cached_tokens\":%lld,"
                  "\"cache_write_tokens\":0},"
                  "\"output_tokens\":%lld,\"output_tokens_details\":{\"reasoning_tokens\":0},"
                  "\"total_tokens\":%lld}",
                  (long long)u->prompt_tokens, (long long)(a->reports_cached_tokens ? u->cached_tokens : 0),
                  (long long)u->completion_tokens, (long long)(u->prompt_tokens + u->completion_tokens));
}

/* All but the output and what follows it. */
static void begin_response(struct buffer *out, const struct answer *a, const char *status)
{
    buffer_printf(
        out, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\",\"model\":", a->id,
        (long long)a->created, status);
    append_text(out, a->model);
    buffer_append_text(out, ",\"background\":false");
    buffer_append_text(out, request_of(a)->echo);
    buffer_printf(out, ",\"incomplete_details\":%s",
                  !strcmp(status, "incomplete") ? "{\"reason\":\"max_output_tokens\"}" : "null");
}

/* One that has no output yet. */
static void append_unfinished(struct buffer *out, const struct answer *a, const char *status)
{
    begin_response(out, a, status);
    buffer_append_text(out, ",\"error\":null,\"output\":[],\"usage\":null}");
}

/* The answer's text in a response, where n bytes of it are. */
static void append_finished(struct buffer *out, const struct answer *a, const char *text, size_t n,
                            const struct logprobs_part *logprobs, const struct usage *usage)
{
    const char *finish_reason = a->choices[0].finish_reason;
    begin_response(out, a, status_of(finish_reason));
    buffer_append_text(out, ",\"error\":null,\"output\":[");
    append_item(out, a, finish_reason, text, n, logprobs);
    buffer_append_char(out, ']');
    append_usage(out, a, usage);
    buffer_append_char(out, '}');
}

/* ---- the store ---- */

/* Keeps the response that stands in out from begin on, and the conversation with its text. */
static void keep(const struct answer *a, const struct buffer *out, size_t begin, const char *text, size_t n)
{
    const char *before = request_of(a)->history;
    struct buffer history;
    if (!before || buffer_failed(out)) return;
    buffer_init(&history, TEXT_BYTES_MAX);
    buffer_append(&history, before, strlen(before) - 1); /* without the bracket */
    buffer_append_text(&history, ",{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":");
    buffer_append_json(&history, n > 0 ? text : "", n);
    buffer_append_text(&history, "}]}]");
    const struct response_texts texts = {
        .bytes = {[RESPONSE_BODY] = out->data + begin, [RESPONSE_HISTORY] = history.data},
        .num_bytes = {[RESPONSE_BODY] = out->num_bytes - begin, [RESPONSE_HISTORY] = history.num_bytes}};
    if (!buffer_failed(&history))
        response_store_put(a->context->server->api->responses, a->api_key_idx, a->id, &texts);
    buffer_deinit(&history);
}

/* ---- stream ---- */

static void begin_event(struct buffer *out, struct answer *a, const char *name)
{
    struct stream *s = a->state;
    codec_begin_event(out, name);
    buffer_printf(out, ",\"sequence_number\":%d", s->sequence++);
}

static void append_response_event(struct buffer *out, struct answer *a, const char *name)
{
    begin_event(out, a, name);
    buffer_append_text(out, ",\"response\":");
    append_unfinished(out, a, "in_progress");
    codec_end_event(out);
}

static void append_start(struct buffer *out, struct answer *a, const struct event *e)
{
    struct stream *s = a->state;
    (void)e;
    buffer_init(&s->text, TEXT_BYTES_MAX);
    s->begun = true;
    append_response_event(out, a, "response.created");
    append_response_event(out, a, "response.in_progress");
}

static void append_ping(struct buffer *out, struct answer *a, const struct event *e)
{
    (void)e;
    append_response_event(out, a, "response.in_progress");
}

/* Of the one item, or of its one part. */
static void begin_item_event(struct buffer *out, struct answer *a, const char *name)
{
    begin_event(out, a, name);
    buffer_append_text(out, ",\"output_index\":0");
}

static void begin_part_event(struct buffer *out, struct answer *a, const char *name)
{
    begin_item_event(out, a, name);
    buffer_append_text(out, ",\"content_index\":0,\"item_id\":");
    append_item_id(out, a);
}

static void open_item(struct buffer *out, struct answer *a)
{
    struct stream *s = a->state;
    if (s->open) return;
    s->open = true;
    begin_item_event(out, a, "response.output_item.added");
    buffer_append_text(out, ",\"item\":");
    begin_item(out, a, "in_progress");
    buffer_append_text(out, "]}");
    codec_end_event(out);
    begin_part_event(out, a, "response.content_part.added");
    buffer_append_text(out, ",\"part\":");
    append_part(out, "", 0, NULL);
    codec_end_event(out);
}

static void append_text_delta(struct buffer *out, struct answer *a, const struct event *e)
{
    begin_part_event(out, a, "response.output_text.delta");
    buffer_append_text(out, ",\"delta\":");
    buffer_append_json(out, e->text_bytes > 0 ? e->text : "", e->text_bytes);
    buffer_append_text(out, ",\"logprobs\":");
    if (e->logprobs)
        logprobs_append_entries(out, e->logprobs);
    else
        buffer_append_text(out, "[]");
    codec_end_event(out);
}

static void close_item(struct buffer *out, struct answer *a, const char *finish_reason)
{
    const struct stream *s = a->state;
    begin_part_event(out, a, "response.output_text.done");
    buffer_append_text(out, ",\"logprobs\":[],\"text\":");
    buffer_append_json(out, s->text.num_bytes > 0 ? s->text.data : "", s->text.num_bytes);
    codec_end_event(out);
    begin_part_event(out, a, "response.content_part.done");
    buffer_append_text(out, ",\"part\":");
    append_part(out, s->text.data, s->text.num_bytes, NULL);
    codec_end_event(out);
    begin_item_event(out, a, "response.output_item.done");
    buffer_append_text(out, ",\"item\":");
    append_item(out, a, finish_reason, s->text.data, s->text.num_bytes, NULL);
    codec_end_event(out);
}

static void append_delta(struct buffer *out, struct answer *a, const struct event *e)
{
    struct stream *s = a->state;
    buffer_append(&s->text, e->text, e->text_bytes);
    if (buffer_failed(&s->text)) out->failed = true; /* the end would lack what is missing here */
    if (e->text_bytes > 0 || e->logprobs || e->finish_reason) open_item(out, a);
    if (e->text_bytes > 0 || e->logprobs) append_text_delta(out, a, e);
    if (e->finish_reason) close_item(out, a, e->finish_reason);
}

static void append_done(struct buffer *out, struct answer *a, const struct event *e)
{
    const struct stream *s = a->state;
    bool cut = !strcmp(status_of(a->choices[0].finish_reason), "incomplete");
    begin_event(out, a, cut ? "response.incomplete" : "response.completed");
    buffer_append_text(out, ",\"response\":");
    size_t begin = out->num_bytes;
    append_finished(out, a, s->text.data, s->text.num_bytes, NULL, e->usage);
    keep(a, out, begin, s->text.data, s->text.num_bytes);
    codec_end_event(out);
}

static void append_error_event(struct buffer *out, struct answer *a, const struct event *e)
{
    begin_event(out, a, "response.failed");
    buffer_append_text(out, ",\"response\":");
    begin_response(out, a, "failed");
    buffer_append_text(out,
                       ",\"output\":[],\"usage\":null,\"error\":{\"code\":\"server_error\",\"message\":");
    append_text(out, e->error->text);
    buffer_append_text(out, "}}");
    codec_end_event(out);
}

static void forget(void *state)
{
    struct stream *s = state;
    if (s->begun) buffer_deinit(&s->text);
}

/* ---- whole ---- */

static void append_whole(struct buffer *out, struct answer *a, const struct event *e)
{
    const struct choice *c = &a->choices[0];
    const struct logprobs_part part = choice_next_logprobs(c, a->context, INT32_MAX);
    size_t begin = out->num_bytes;
    append_finished(out, a, c->ready.data, c->ready.num_bytes, a->context->params->logprobs ? &part : NULL,
                    e->usage);
    keep(a, out, begin, c->ready.data, c->ready.num_bytes);
}

const struct codec codec_responses = {
    .path = "/v1/responses",
    .id_prefix = "resp_",
    .stream_type = EVENT_STREAM_TYPE,
    .starts_at_once = true,
    .kind = API_CHAT,
    .begin = responses_begin,
    .fields = responses_fields,
    .translate = responses_translate,
    .events = {[EVENT_STARTED] = append_start,
               [EVENT_DELTA] = append_delta,
               [EVENT_DONE] = append_done,
               [EVENT_ERROR] = append_error_event,
               [EVENT_PING] = append_ping,
               [EVENT_WHOLE] = append_whole},
    .append_error = response_append_error,
    .state_bytes = sizeof(struct stream),
    .forget = forget,
};
