/* messages.c - Anthropic's Messages: events and errors.
 *
 *   message_start (content_block_start content_block_delta* content_block_stop)* message_delta message_stop
 *
 * Each event has its name in front of its data. A block begins with its first text, so that an empty answer
 * has none. Of usage, input_tokens are those that the prefix cache did not have. */
#include "server/api/codecs/messages.h"

#include <string.h>

#include "base/check.h"

struct stream {
    int num_blocks;
    bool open;            /* the last of them is, */
    enum piece_kind kind; /* of this kind; that of a call is ARGUMENTS */
};

/* ---- parts of answers ---- */

static void append_usage(struct buffer *out, const struct answer *a, const struct usage *u)
{
    int64_t cached = a->reports_cached_tokens ? u->cached_tokens : 0;
    buffer_printf(
        out,
        "{\"input_tokens\":%lld,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%lld,"
        "\"cache_creation\":null,\"output_tokens\":%lld,\"output_tokens_details\":{\"thinking_tokens\":"
        "%lld},\"server_tool_use\":null,\"service_tier\":\"standard\",\"inference_geo\":null",
        (long long)(u->prompt_tokens - cached), (long long)cached, (long long)u->completion_tokens,
        (long long)u->reasoning_tokens);
    codec_append_energy(out, a, u);
    buffer_append_char(out, '}');
}

static const char *stop_reason_of(const struct answer *a, const struct choice *c, const char *finish_reason)
{
    bool is_cut = c->max_tokens < a->context->params->max_tokens;
    if (!strcmp(finish_reason, "length")) return is_cut ? "model_context_window_exceeded" : "max_tokens";
    if (!strcmp(finish_reason, "tool_calls")) return "tool_use";
    return c->text.stop_idx >= 0 ? "stop_sequence" : "end_turn";
}

/* "stop_reason":...,"stop_sequence":..., and what never is. */
static void append_stop(struct buffer *out, const struct answer *a, const struct choice *c,
                        const char *finish_reason)
{
    const char *reason = stop_reason_of(a, c, finish_reason);
    buffer_printf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", reason);
    if (!strcmp(reason, "stop_sequence")) {
        const struct stop_string *s = &c->text.stop->items[c->text.stop_idx];
        buffer_append_json(out, s->text, (size_t)s->num_bytes);
    } else {
        buffer_append_text(out, "null");
    }
    buffer_append_text(out, ",\"stop_details\":null,\"container\":null");
}

static void begin_message(struct buffer *out, const struct answer *a)
{
    buffer_printf(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", a->id);
    buffer_append_json_text(out, a->model);
    buffer_append_text(out, ",\"content\":[");
}

/* A call, up to its input. */
static void begin_tool_use(struct buffer *out, const struct answer *a, const struct choice *c,
                           const struct call *call)
{
    buffer_append_text(out, "{\"type\":\"tool_use\",\"id\":");
    codec_append_call_id(out, a, c, call);
    buffer_append_text(out, ",\"name\":");
    buffer_append_json_text(out, call->name);
    buffer_append_text(out, ",\"caller\":{\"type\":\"direct\"},\"input\":");
}

/* ---- stream ---- */

static void append_start(struct buffer *out, struct answer *a, const struct event *e)
{
    const struct choice *c = &a->choices[0];
    (void)e;
    codec_begin_event(out, "message_start");
    buffer_append_text(out, ",\"message\":");
    begin_message(out, a);
    buffer_append_text(
        out, "],\"stop_reason\":null,\"stop_sequence\":null,\"stop_details\":null,\"container\":null,"
             "\"usage\":");
    append_usage(
        out, a,
        &(struct usage){.prompt_tokens = c->num_prompt_tokens, .cached_tokens = c->num_cached_tokens});
    buffer_append_char(out, '}');
    codec_end_event(out);
}

static void append_block_event(struct buffer *out, const struct stream *s, const char *name)
{
    codec_begin_event(out, name);
    buffer_printf(out, ",\"index\":%d", s->num_blocks - 1);
}

static void close_block(struct buffer *out, struct stream *s)
{
    if (!s->open) return;
    s->open = false;
    append_block_event(out, s, "content_block_stop");
    codec_end_event(out);
}

/* A block of this kind is open afterwards. Each call has its own. */
static void open_block(struct buffer *out, const struct answer *a, const struct event *e)
{
    struct stream *s = a->state;
    enum piece_kind kind = e->piece == PIECE_CALL ? PIECE_ARGUMENTS : e->piece;
    if (s->open && s->kind == kind && e->piece != PIECE_CALL) return;
    close_block(out, s);
    *s = (struct stream){.num_blocks = s->num_blocks + 1, .open = true, .kind = kind};
    append_block_event(out, s, "content_block_start");
    buffer_append_text(out, ",\"content_block\":");
    if (kind == PIECE_TEXT) buffer_append_text(out, "{\"type\":\"text\",\"text\":\"\",\"citations\":null}");
    if (kind == PIECE_REASONING)
        buffer_append_text(out, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    if (kind == PIECE_ARGUMENTS) {
        begin_tool_use(out, a, e->choice, e->call);
        buffer_append_text(out, "{}}");
    }
    codec_end_event(out);
}

static void append_block_delta(struct buffer *out, const struct answer *a, const struct event *e)
{
    static const char *const deltas[][2] = {[PIECE_TEXT] = {"text_delta", "text"},
                                            [PIECE_REASONING] = {"thinking_delta", "thinking"},
                                            [PIECE_CALL] = {"input_json_delta", "partial_json"},
                                            [PIECE_ARGUMENTS] = {"input_json_delta", "partial_json"}};
    append_block_event(out, a->state, "content_block_delta");
    buffer_printf(out, ",\"delta\":{\"type\":\"%s\",\"%s\":", deltas[e->piece][0], deltas[e->piece][1]);
    buffer_append_json(out, e->text, e->text_bytes);
    buffer_append_char(out, '}');
    codec_end_event(out);
}

static void append_delta(struct buffer *out, struct answer *a, const struct event *e)
{
    struct stream *s = a->state;
    if (e->text_bytes > 0 || e->piece == PIECE_CALL) open_block(out, a, e);
    if (e->text_bytes > 0) append_block_delta(out, a, e);
    if (!e->finish_reason) return;
    close_block(out, s);
    codec_begin_event(out, "message_delta");
    buffer_append_text(out, ",\"delta\":{");
    append_stop(out, a, e->choice, e->finish_reason);
    buffer_append_text(out, "},\"usage\":");
    append_usage(out, a, e->usage);
    codec_append_receipt(out, a);
    codec_end_event(out);
}

static void append_done(struct buffer *out, struct answer *a, const struct event *e)
{
    (void)a, (void)e;
    codec_begin_event(out, "message_stop");
    codec_end_event(out);
}

static void append_ping(struct buffer *out, struct answer *a, const struct event *e)
{
    (void)a, (void)e;
    codec_begin_event(out, "ping");
    codec_end_event(out);
}

/* ---- whole ---- */

static void append_text_block(struct buffer *out, const char *type, const char *member, const char *text,
                              size_t n)
{
    if (n == 0) return;
    if (out->data[out->num_bytes - 1] != '[') buffer_append_char(out, ',');
    buffer_printf(out, "{\"type\":\"%s\",\"%s\":", type, member);
    buffer_append_json(out, text, n);
    buffer_append_text(out, !strcmp(type, "thinking") ? ",\"signature\":\"\"" : ",\"citations\":null");
    buffer_append_char(out, '}');
}

static void append_tool_use(struct buffer *out, const struct answer *a, const struct choice *c,
                            const struct piece *call, const struct buffer *arguments)
{
    if (out->data[out->num_bytes - 1] != '[') buffer_append_char(out, ',');
    begin_tool_use(out, a, c, &c->pieces->calls[call->call_idx]);
    codec_append_arguments(out, arguments);
    buffer_append_char(out, '}');
}

static void append_piece(struct buffer *out, const struct answer *a, const struct choice *c,
                         const struct piece *piece, const struct buffer *bytes)
{
    if (piece->kind == PIECE_CALL)
        append_tool_use(out, a, c, piece, bytes);
    else if (piece->kind == PIECE_REASONING)
        append_text_block(out, "thinking", "thinking", bytes->data, bytes->num_bytes);
    else
        append_text_block(out, "text", "text", bytes->data, bytes->num_bytes);
}

static void append_content(struct buffer *out, const struct answer *a, const struct choice *c)
{
    struct piece piece;
    struct buffer bytes;
    if (!c->pieces) append_text_block(out, "text", "text", c->ready.data, c->ready.num_bytes);
    for (int at = 0; c->pieces && !buffer_failed(out) && pieces_next_item(c->pieces, &at, &piece, &bytes);)
        append_piece(out, a, c, &piece, &bytes);
}

static void append_whole(struct buffer *out, struct answer *a, const struct event *e)
{
    const struct choice *c = &a->choices[0];
    begin_message(out, a);
    if (!buffer_failed(out)) append_content(out, a, c);
    buffer_append_text(out, "],");
    append_stop(out, a, c, c->finish_reason);
    buffer_append_text(out, ",\"usage\":");
    append_usage(out, a, e->usage);
    codec_append_receipt(out, a);
    buffer_append_char(out, '}');
}

/* ---- errors ---- */

static const char *error_type_of(int http_status)
{
    static const struct {
        int http_status;
        const char *type;
    } types[] = {{401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
                 {413, "request_too_large"},    {429, "rate_limit_error"}, {503, "overloaded_error"},
                 {504, "timeout_error"}};
    for (size_t i = 0; i < array_length(types); i++)
        if (types[i].http_status == http_status) return types[i].type;
    return http_status < 500 ? "invalid_request_error" : "api_error";
}

/* ,"error":{...},"request_id":... */
static void append_failure_members(struct buffer *out, const struct failure *f)
{
    buffer_printf(out, ",\"error\":{\"type\":\"%s\",\"message\":", error_type_of(f->http_status));
    buffer_append_json_text(out, f->message);
    buffer_append_text(out, "},\"request_id\":");
    buffer_append_json_text(out, f->request_id);
}

void messages_append_error(struct buffer *out, const struct failure *f)
{
    buffer_append_text(out, "{\"type\":\"error\"");
    append_failure_members(out, f);
    buffer_append_char(out, '}');
}

static void append_error_event(struct buffer *out, struct answer *a, const struct event *e)
{
    const struct failure f = api_error_failure(e->error, a->request_id);
    codec_begin_event(out, "error");
    append_failure_members(out, &f);
    codec_end_event(out);
}

const struct codec codec_messages = {
    .path = "/v1/messages",
    .id_prefix = "msg_",
    .stream_type = EVENT_STREAM_TYPE,
    .kind = API_CHAT,
    .fields = messages_fields,
    .names = messages_names,
    .translate = messages_translate,
    .events = {[EVENT_STARTED] = append_start,
               [EVENT_DELTA] = append_delta,
               [EVENT_DONE] = append_done,
               [EVENT_ERROR] = append_error_event,
               [EVENT_PING] = append_ping,
               [EVENT_WHOLE] = append_whole},
    .append_error = messages_append_error,
    .tells_pieces = true,
    .state_bytes = sizeof(struct stream),
};
