/* responses.c - OpenAI's Responses: events, and responses that are named again.
 *
 *   created in_progress item* completed | incomplete | failed
 *
 *   item: output_item.added ... output_item.done, and between them
 *     a message  content_part.added output_text.delta* output_text.done content_part.done
 *     reasoning  content_part.added reasoning_text.delta* reasoning_text.done content_part.done
 *     a call     function_call_arguments.delta* function_call_arguments.done
 *
 * Each event has its name in front of its data, and its number in it. A stream begins before its first token:
 * clients want response.created first, and response.in_progress is also the sign of life. An answer without
 * anything in it is an empty message. */
#include "server/api/codecs/responses.h"

#include <string.h>

#include "base/clock.h"
#include "server/api/api.h"
#include "server/api/codecs/response_items.h"
#include "server/api/response_store.h"

enum { TEXT_BYTES_MAX = 64 << 20 };

struct stream {
    int sequence;
    bool begun, open;             /* an item is */
    struct response_item item;    /* the last one */
    struct buffer text, logprobs; /* of it */
    struct response_output output;
};

static const struct responses_request *request_of(const struct answer *a)
{
    return a->context->params->kept;
}

/* ---- parts of responses ---- */

static const char *status_of(const char *finish_reason)
{
    return finish_reason && !strcmp(finish_reason, "length") ? "incomplete" : "completed";
}

static void append_usage(struct buffer *out, const struct answer *a, const struct usage *u)
{
    buffer_printf(out,
                  ",\"usage\":{\"input_tokens\":%lld,\"input_tokens_details\":{\"cached_tokens\":%lld,"
                  "\"cache_write_tokens\":0},"
                  "\"output_tokens\":%lld,\"output_tokens_details\":{\"reasoning_tokens\":%lld},"
                  "\"total_tokens\":%lld",
                  (long long)u->prompt_tokens, (long long)(a->reports_cached_tokens ? u->cached_tokens : 0),
                  (long long)u->completion_tokens, (long long)u->reasoning_tokens,
                  (long long)(u->prompt_tokens + u->completion_tokens));
    codec_append_energy(out, a, u);
    buffer_append_char(out, '}');
}

static void append_completed_at(struct buffer *out, const char *status)
{
    if (!strcmp(status, "completed"))
        buffer_printf(out, ",\"completed_at\":%lld", (long long)(clock_wall_ns() / 1000000000));
    else
        buffer_append_text(out, ",\"completed_at\":null");
}

/* All but the output and what follows it. */
static void begin_response(struct buffer *out, const struct answer *a, const char *status)
{
    buffer_printf(
        out, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\",\"model\":", a->id,
        (long long)a->created, status);
    buffer_append_json_text(out, a->model);
    append_completed_at(out, status);
    buffer_printf(out, ",\"background\":%s", a->context->params->in_background ? "true" : "false");
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

static void append_finished(struct buffer *out, const struct answer *a, const struct response_output *o,
                            const struct usage *usage)
{
    begin_response(out, a, status_of(a->choices[0].finish_reason));
    buffer_append_text(out, ",\"error\":null,\"output\":[");
    buffer_append(out, o->items.data, o->items.num_bytes);
    buffer_append_char(out, ']');
    append_usage(out, a, usage);
    codec_append_receipt(out, a);
    buffer_append_char(out, '}');
    if (response_output_failed(o)) out->failed = true;
}

/* ---- the store ---- */

/* Keeps the response that stands in out from begin on, and the conversation with what it says. */
static void keep(const struct answer *a, const struct buffer *out, size_t begin,
                 const struct response_output *o)
{
    const char *before = request_of(a)->history;
    struct buffer history;
    if (!before || buffer_failed(out)) return;
    buffer_init(&history, TEXT_BYTES_MAX);
    buffer_append(&history, before, strlen(before) - 1); /* without the bracket */
    buffer_append_char(&history, ',');
    response_output_append_message(&history, o);
    buffer_append_char(&history, ']');
    const struct response_texts texts = {
        .bytes = {[RESPONSE_BODY] = out->data + begin, [RESPONSE_HISTORY] = history.data},
        .num_bytes = {[RESPONSE_BODY] = out->num_bytes - begin, [RESPONSE_HISTORY] = history.num_bytes}};
    if (!buffer_failed(&history))
        response_store_put(a->context->server->api->responses, a->api_key_idx, a->tenant, a->id, &texts);
    buffer_deinit(&history);
}

/* ---- in the background ---- */

static const char *status_so_far(const struct answer *a, const struct api_error *error)
{
    if (!error) return a->choices[0].scheduled_ns > 0 ? "in_progress" : "queued";
    return error->code && !strcmp(error->code, "cancelled") ? "cancelled" : "failed";
}

/* One that will get no output is kept for who asks for it. */
static void append_unfinished_or_lost(struct buffer *out, struct answer *a, const struct event *e)
{
    const char *status = status_so_far(a, e->error), *history = request_of(a)->history;
    begin_response(out, a, status);
    buffer_append_text(out, ",\"error\":");
    if (!strcmp(status, "failed")) {
        buffer_append_text(out, "{\"code\":\"server_error\",\"message\":");
        buffer_append_json_text(out, e->error->text);
        buffer_append_char(out, '}');
    } else {
        buffer_append_text(out, "null");
    }
    buffer_append_text(out, ",\"output\":[],\"usage\":null}");
    if (!e->error || !history || buffer_failed(out)) return;
    const struct response_texts texts = {
        .bytes = {[RESPONSE_BODY] = out->data, [RESPONSE_HISTORY] = history},
        .num_bytes = {[RESPONSE_BODY] = out->num_bytes, [RESPONSE_HISTORY] = strlen(history)}};
    response_store_put(a->context->server->api->responses, a->api_key_idx, a->tenant, a->id, &texts);
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

static void begin_state(struct stream *s)
{
    buffer_init(&s->text, TEXT_BYTES_MAX);
    buffer_init(&s->logprobs, TEXT_BYTES_MAX);
    response_output_init(&s->output);
    s->begun = true;
}

static void append_start(struct buffer *out, struct answer *a, const struct event *e)
{
    struct stream *s = a->state;
    (void)e;
    begin_state(s);
    append_response_event(out, a, "response.created");
    append_response_event(out, a, "response.in_progress");
}

static void append_ping(struct buffer *out, struct answer *a, const struct event *e)
{
    (void)e;
    append_response_event(out, a, "response.in_progress");
}

/* ---- items of a stream ---- */

/* Of the item that is open, with its place. */
static void begin_item_event(struct buffer *out, struct answer *a, const char *name)
{
    const struct stream *s = a->state;
    begin_event(out, a, name);
    buffer_printf(out, ",\"output_index\":%d", s->item.index);
}

/* Of its one part, where it has parts. */
static void begin_part_event(struct buffer *out, struct answer *a, const char *name)
{
    const struct stream *s = a->state;
    begin_item_event(out, a, name);
    if (s->item.kind != PIECE_ARGUMENTS) buffer_append_text(out, ",\"content_index\":0");
    buffer_append_text(out, ",\"item_id\":");
    response_item_append_id(out, a, &s->item);
}

static void append_item_event(struct buffer *out, struct answer *a, const char *name, const char *status,
                              const struct buffer *text)
{
    const struct stream *s = a->state;
    begin_item_event(out, a, name);
    buffer_append_text(out, ",\"item\":");
    response_item_append(out, a, &s->item, status, text, &s->logprobs);
    codec_end_event(out);
}

static void append_part_event(struct buffer *out, struct answer *a, const char *name,
                              const struct buffer *text)
{
    const struct stream *s = a->state;
    if (s->item.kind == PIECE_ARGUMENTS) return;
    begin_part_event(out, a, name);
    buffer_append_text(out, ",\"part\":");
    response_item_append_part(out, &s->item, text->data, text->num_bytes, &s->logprobs);
    codec_end_event(out);
}

/* The names of the events with more of an item, and with all of it, and of its text in them. */
static const struct item_event {
    const char *delta, *done, *member;
} item_events[] = {
    [PIECE_TEXT] = {"response.output_text.delta", "response.output_text.done", "text"},
    [PIECE_REASONING] = {"response.reasoning_text.delta", "response.reasoning_text.done", "text"},
    [PIECE_ARGUMENTS] = {"response.function_call_arguments.delta", "response.function_call_arguments.done",
                         "arguments"},
};

static const struct item_event *item_event(const struct response_item *item)
{
    static const struct item_event of_custom = {"response.custom_tool_call_input.delta",
                                                "response.custom_tool_call_input.done", "input"};
    bool is_custom = item->kind == PIECE_ARGUMENTS && item->call.is_custom;
    return is_custom ? &of_custom : &item_events[item->kind];
}

static void append_delta_logprobs(struct buffer *out, struct stream *s, const struct logprobs_part *logprobs)
{
    buffer_append_text(out, ",\"logprobs\":");
    if (!logprobs) {
        buffer_append_text(out, "[]");
        return;
    }
    logprobs_append_entries(out, logprobs);
    response_logprobs_add(&s->logprobs, logprobs);
}

static void append_item_delta(struct buffer *out, struct answer *a, const struct event *e)
{
    struct stream *s = a->state;
    begin_part_event(out, a, item_event(&s->item)->delta);
    buffer_append_text(out, ",\"delta\":");
    buffer_append_json(out, e->text, e->text_bytes);
    if (s->item.kind == PIECE_TEXT) append_delta_logprobs(out, s, e->logprobs);
    codec_end_event(out);
    buffer_append(&s->text, e->text, e->text_bytes);
}

static void append_item_text(struct buffer *out, struct answer *a)
{
    const struct stream *s = a->state;
    begin_part_event(out, a, item_event(&s->item)->done);
    if (s->item.kind == PIECE_TEXT) response_logprobs_append(out, &s->logprobs);
    if (s->item.kind == PIECE_ARGUMENTS && !s->item.call.is_custom)
        response_item_append_name(out, a, &s->item.call, false);
    buffer_printf(out, ",\"%s\":", item_event(&s->item)->member);
    buffer_append_json(out, s->text.data, s->text.num_bytes);
    codec_end_event(out);
}

static void close_item(struct buffer *out, struct answer *a, const char *status)
{
    struct stream *s = a->state;
    if (!s->open) return;
    status = response_item_status(a, &s->item, status);
    append_item_text(out, a);
    append_part_event(out, a, "response.content_part.done", &s->text);
    append_item_event(out, a, "response.output_item.done", status, &s->text);
    response_output_add(&s->output, a, &s->item, status, &s->text, &s->logprobs);
    if (buffer_failed(&s->text) || buffer_failed(&s->logprobs))
        out->failed = true; /* the end would lack what is missing here */
    buffer_clear(&s->text);
    buffer_clear(&s->logprobs);
    s->open = false;
}

/* An item of this kind is open afterwards. Each call has its own. */
static void open_item(struct buffer *out, struct answer *a, const struct event *e)
{
    struct stream *s = a->state;
    enum piece_kind kind = e->piece == PIECE_CALL ? PIECE_ARGUMENTS : e->piece;
    if (s->open && s->item.kind == kind && e->piece != PIECE_CALL) return;
    close_item(out, a, "completed");
    s->open = true;
    s->item = (struct response_item){.kind = kind, .index = s->output.num_items};
    if (e->call) s->item.call = *e->call;
    append_item_event(out, a, "response.output_item.added", "in_progress", NULL);
    append_part_event(out, a, "response.content_part.added", &(struct buffer){0});
}

/* What log probabilities belong to is a message, unless the answer is taken apart. */
static void append_delta(struct buffer *out, struct answer *a, const struct event *e)
{
    struct stream *s = a->state;
    bool has_more = e->text_bytes > 0 || (e->logprobs && !e->choice->pieces);
    bool is_empty = e->finish_reason && !s->open && s->output.num_items == 0;
    if (has_more || e->piece == PIECE_CALL || is_empty) open_item(out, a, e);
    if (has_more) append_item_delta(out, a, e);
    if (e->finish_reason) close_item(out, a, status_of(e->finish_reason));
}

static void append_done(struct buffer *out, struct answer *a, const struct event *e)
{
    const struct stream *s = a->state;
    bool cut = !strcmp(status_of(a->choices[0].finish_reason), "incomplete");
    begin_event(out, a, cut ? "response.incomplete" : "response.completed");
    buffer_append_text(out, ",\"response\":");
    size_t begin = out->num_bytes;
    append_finished(out, a, &s->output, e->usage);
    keep(a, out, begin, &s->output);
    codec_end_event(out);
}

static void append_error_event(struct buffer *out, struct answer *a, const struct event *e)
{
    begin_event(out, a, "response.failed");
    buffer_append_text(out, ",\"response\":");
    begin_response(out, a, "failed");
    buffer_append_text(out, ",\"output\":[],\"usage\":null,\"error\":{\"code\":\"");
    buffer_append_text(out, e->error->http_status == 400 ? "invalid_prompt" : "server_error");
    buffer_append_text(out, "\",\"message\":");
    buffer_append_json_text(out, e->error->text);
    buffer_append_text(out, "}}");
    codec_end_event(out);
}

static void forget(void *state)
{
    struct stream *s = state;
    if (!s->begun) return;
    buffer_deinit(&s->text);
    buffer_deinit(&s->logprobs);
    response_output_deinit(&s->output);
}

/* ---- whole ---- */

static void append_whole(struct buffer *out, struct answer *a, const struct event *e)
{
    const struct choice *c = &a->choices[0];
    const struct logprobs_part part = choice_next_logprobs(c, a->context, INT32_MAX);
    struct stream *s = a->state;
    begin_state(s);
    if (a->context->params->logprobs) response_logprobs_add(&s->logprobs, &part);
    response_output_add_all(&s->output, a, status_of(c->finish_reason), &s->logprobs);
    append_finished(out, a, &s->output, e->usage);
    if (buffer_failed(&s->logprobs)) out->failed = true;
}

static void keep_whole(struct answer *a, const struct buffer *out)
{
    const struct stream *s = a->state;
    keep(a, out, 0, &s->output);
}

const struct codec codec_responses = {
    .path = "/v1/responses",
    .id_prefix = "resp_",
    .stream_type = EVENT_STREAM_TYPE,
    .starts_at_once = true,
    .kind = API_CHAT,
    .begin = responses_begin,
    .fields = responses_fields,
    .names = responses_names,
    .translate = responses_translate,
    .events = {[EVENT_STARTED] = append_start,
               [EVENT_DELTA] = append_delta,
               [EVENT_DONE] = append_done,
               [EVENT_ERROR] = append_error_event,
               [EVENT_PING] = append_ping,
               [EVENT_WHOLE] = append_whole,
               [EVENT_UNFINISHED] = append_unfinished_or_lost},
    .append_error = response_append_error,
    .tells_pieces = true,
    .tells_custom = true,
    .keep = keep_whole,
    .state_bytes = sizeof(struct stream),
    .forget = forget,
};
