/* openai.c - chat completions and text completions: the canonical form itself, so that bodies are read as they
 * are. Answers are written member by member in the order that OpenAI sends them; a stream's chunk is one
 * `data: {...}` event. */
#include <stdint.h>
#include <string.h>

#include "server/api/codecs/fill_in_middle.h"
#include "server/api/codecs/functions.h"
#include "server/fingerprint.h"

/* {"id":...,"object":...,"created":...,"model":...,"system_fingerprint":...,"choices":[ */
static void begin_object(struct buffer *out, const struct answer *a, const char *object)
{
    buffer_printf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", a->id, object,
                  (long long)a->created);
    buffer_append_json_text(out, a->model);
    buffer_append_text(out, ",\"system_fingerprint\":\"");
    fingerprint_append(out, a->context->server->facts->device);
    buffer_append_text(out, "\",\"choices\":[");
}

/* Why the prefix cache had no more of the prompt, and the first token that it did not have. */
static void append_cache_miss(struct buffer *out, const struct answer *a, const struct cache_miss *miss)
{
    static const char *const names[] = {
        [CACHE_MISS_NEW] = "new", [CACHE_MISS_DIFFERS] = "differs", [CACHE_MISS_EVICTED] = "evicted"};
    if (miss->reason == CACHE_MISS_NONE) return;
    bool is_salted = miss->reason == CACHE_MISS_NEW && miss->position == 0 && a->context->params->cache_salt;
    buffer_printf(out, ",\"cache_miss\":{\"reason\":\"%s\",\"position\":%d}",
                  is_salted ? "salted" : names[miss->reason], miss->position);
}

static void append_details(struct buffer *out, const struct answer *a, const struct usage *u)
{
    if (a->codec->kind != API_CHAT && !a->reports_prediction) return;
    buffer_printf(out, ",\"completion_tokens_details\":{\"reasoning_tokens\":%lld",
                  (long long)u->reasoning_tokens);
    if (a->reports_prediction)
        buffer_printf(out, ",\"accepted_prediction_tokens\":%lld,\"rejected_prediction_tokens\":%lld",
                      (long long)u->accepted_prediction_tokens, (long long)u->rejected_prediction_tokens);
    buffer_append_char(out, '}');
}

static void append_usage(struct buffer *out, const struct answer *a, const struct usage *u)
{
    int64_t total_tokens = u->prompt_tokens + u->completion_tokens;
    buffer_printf(out,
                  "{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,"
                  "\"prompt_tokens_details\":",
                  (long long)u->prompt_tokens, (long long)u->completion_tokens, (long long)total_tokens);
    if (a->reports_cached_tokens) {
        buffer_printf(out, "{\"cached_tokens\":%lld", (long long)u->cached_tokens);
        append_cache_miss(out, a, &u->cache_miss);
        buffer_append_char(out, '}');
    } else {
        buffer_append_text(out, "null");
    }
    append_details(out, a, u);
    codec_append_energy(out, a, u);
    buffer_append_char(out, '}');
}

/* return_token_ids and return_prompt_text: of the prompt. */
static void append_prompt(struct buffer *out, const struct answer *a, const struct choice *c)
{
    const struct params *p = a->context->params;
    if (p->return_token_ids) {
        buffer_append_text(out, ",\"prompt_token_ids\":");
        codec_append_ids(out, a, c, 0, c->num_prompt_tokens);
    }
    if (p->return_prompt_text) {
        buffer_append_text(out, ",\"prompt_text\":");
        codec_append_prompt(out, a, c);
    }
}

/* Positions [begin, end) are new, and the prompt with position 0. */
static void append_new_ids(struct buffer *out, const struct answer *a, const struct choice *c, int32_t begin,
                           int32_t end)
{
    if (begin == 0 && a->codec->kind == API_COMPLETIONS) append_prompt(out, a, c);
    if (!a->context->params->return_token_ids) return;
    buffer_append_text(out, ",\"token_ids\":");
    codec_append_ids(out, a, c, max_of(begin, c->num_prompt_tokens), end);
}

static void append_finish_reason(struct buffer *out, const struct answer *a, const char *finish_reason)
{
    buffer_append_text(out, ",\"finish_reason\":");
    if (finish_reason && functions_are_asked(a) && !strcmp(finish_reason, "tool_calls"))
        buffer_append_text(out, "\"function_call\"");
    else if (finish_reason)
        buffer_append_json_text(out, finish_reason);
    else
        buffer_append_text(out, "null");
}

static void append_logprobs(struct buffer *out, const struct answer *a, const struct logprobs_part *logprobs)
{
    buffer_append_text(out, ",\"logprobs\":");
    if (logprobs)
        logprobs_append(out, a->codec->kind, logprobs);
    else
        buffer_append_text(out, "null");
}

/* Of one choice, where they are asked for. */
static void append_timings(struct buffer *out, const struct answer *a, const struct choice *c)
{
    if (!a->context->params->timings) return;
    buffer_append_char(out, ',');
    codec_append_timings(out, a, c);
}

/* ---- stream ---- */

static void begin_chunk(struct buffer *out, const struct answer *a)
{
    buffer_append_text(out, "data: ");
    begin_object(out, a, a->codec->kind == API_CHAT ? "chat.completion.chunk" : "text_completion");
}

static void append_member(struct buffer *out, const char *name, const char *text, size_t num_bytes)
{
    buffer_printf(out, "\"%s\":", name);
    buffer_append_json(out, text, num_bytes);
}

static void append_chunk_usage(struct buffer *out, const struct answer *a, const struct usage *usage)
{
    if (!a->context->params->include_usage) return;
    buffer_append_text(out, ",\"usage\":");
    if (a->context->params->continuous_usage)
        append_usage(out, a, usage);
    else
        buffer_append_text(out, "null");
}

/* Of all choices at once and in order: clients take a choice's first chunk as its beginning. */
static void append_roles(struct buffer *out, struct answer *a, const struct event *e)
{
    (void)e;
    for (int i = 0; i < a->num_choices; i++) {
        const struct choice *c = &a->choices[i];
        begin_chunk(out, a);
        buffer_printf(out,
                      "{\"index\":%d,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},"
                      "\"logprobs\":null,\"finish_reason\":null}]",
                      i);
        append_chunk_usage(out, a,
                           &(struct usage){.prompt_tokens = c->num_prompt_tokens,
                                           .cached_tokens = c->num_cached_tokens,
                                           .cache_miss = c->cache_miss});
        if (i == 0) append_prompt(out, a, &a->choices[0]);
        buffer_append_text(out, "}\n\n");
    }
}

static const char *call_type(const struct call *call)
{
    return call->is_custom ? "custom" : "function";
}

static const char *argument_member(const struct call *call)
{
    return call->is_custom ? "input" : "arguments";
}

/* ,"type":"function","function":{"name":NAME */
static void append_call_type(struct buffer *out, const struct call *call)
{
    buffer_printf(out, ",\"type\":\"%s\",\"%s\":{\"name\":", call_type(call), call_type(call));
    buffer_append_json_text(out, call->name);
}

/* The call as it was told before there were tools: NAME with no arguments yet, then more of them. */
static void append_function_piece(struct buffer *out, const struct event *e)
{
    buffer_append_text(out, "\"function_call\":{");
    if (e->piece == PIECE_CALL) {
        append_member(out, "name", e->call->name, strlen(e->call->name));
        buffer_append_char(out, ',');
    }
    append_member(out, "arguments", e->text, e->piece == PIECE_CALL ? 0 : e->text_bytes);
    buffer_append_char(out, '}');
}

static void append_call_piece(struct buffer *out, const struct answer *a, const struct event *e)
{
    if (functions_are_asked(a)) {
        append_function_piece(out, e);
        return;
    }
    buffer_printf(out, "\"tool_calls\":[{\"index\":%d,", e->call->index);
    if (e->piece == PIECE_CALL) {
        buffer_append_text(out, "\"id\":");
        codec_append_call_id(out, a, e->choice, e->call);
        append_call_type(out, e->call);
        buffer_printf(out, ",\"%s\":\"\"}}]", argument_member(e->call));
        return;
    }
    buffer_printf(out, "\"%s\":{", call_type(e->call));
    append_member(out, argument_member(e->call), e->text, e->text_bytes);
    buffer_append_text(out, "}}]");
}

/* Both names that clients look for. */
static void append_reasoning(struct buffer *out, const char *text, size_t num_bytes)
{
    append_member(out, "reasoning_content", text, num_bytes);
    buffer_append_char(out, ',');
    append_member(out, "reasoning", text, num_bytes);
}

static void append_piece(struct buffer *out, const struct answer *a, const struct event *e)
{
    if (e->piece == PIECE_CALL || e->piece == PIECE_ARGUMENTS)
        append_call_piece(out, a, e);
    else if (e->piece == PIECE_REASONING)
        append_reasoning(out, e->text, e->text_bytes);
    else if (!e->choice->pieces || e->text_bytes > 0)
        append_member(out, a->codec->kind == API_CHAT ? "content" : "text", e->text, e->text_bytes);
}

static void append_chunk(struct buffer *out, struct answer *a, const struct event *e)
{
    bool is_chat = a->codec->kind == API_CHAT;
    begin_chunk(out, a);
    buffer_printf(out, "{\"index\":%d,%s", e->choice->index, is_chat ? "\"delta\":{" : "");
    append_piece(out, a, e);
    if (is_chat) buffer_append_char(out, '}');
    append_logprobs(out, a, e->logprobs);
    append_finish_reason(out, a, e->finish_reason);
    append_new_ids(out, a, e->choice, e->ids_begin, e->ids_end);
    buffer_append_text(out, "}]");
    append_chunk_usage(out, a, e->usage);
    if (e->finish_reason) append_timings(out, a, e->choice);
    codec_append_receipt(out, a);
    buffer_append_text(out, "}\n\n");
}

static void append_end_of_stream(struct buffer *out)
{
    buffer_append_text(out, "data: [DONE]\n\n");
}

static void append_done(struct buffer *out, struct answer *a, const struct event *e)
{
    if (a->context->params->include_usage) {
        begin_chunk(out, a);
        buffer_append_text(out, "],\"usage\":");
        append_usage(out, a, e->usage);
        buffer_append_text(out, "}\n\n");
    }
    append_end_of_stream(out);
}

static void append_error(struct buffer *out, struct answer *a, const struct event *e)
{
    const struct failure f = api_error_failure(e->error, a->request_id);
    buffer_append_text(out, "data: ");
    response_append_error(out, &f);
    buffer_append_text(out, "\n\n");
    append_end_of_stream(out);
}

/* ---- whole ---- */

/* All pieces of a kind as one member; call_idx: of this call. */
static void append_pieces(struct buffer *out, const char *name, const struct choice *c, enum piece_kind kind,
                          int call_idx)
{
    struct buffer text;
    buffer_init(&text, SIZE_MAX / 2);
    pieces_collect(c->pieces, kind, call_idx, &text);
    append_member(out, name, text.data, text.num_bytes);
    if (buffer_failed(&text)) out->failed = true;
    buffer_deinit(&text);
}

static void append_calls(struct buffer *out, const struct answer *a, const struct choice *c)
{
    buffer_append_text(out, ",\"tool_calls\":[");
    for (int i = 0; i < c->pieces->num_calls; i++) {
        buffer_append_text(out, i > 0 ? ",{\"id\":" : "{\"id\":");
        codec_append_call_id(out, a, c, &c->pieces->calls[i]);
        append_call_type(out, &c->pieces->calls[i]);
        buffer_append_char(out, ',');
        append_pieces(out, argument_member(&c->pieces->calls[i]), c, PIECE_ARGUMENTS, i);
        buffer_append_text(out, "}}");
    }
    buffer_append_char(out, ']');
}

static void append_function_call(struct buffer *out, const struct choice *c)
{
    buffer_append_text(out, ",\"function_call\":{\"name\":");
    buffer_append_json_text(out, c->pieces->calls[0].name);
    buffer_append_char(out, ',');
    append_pieces(out, "arguments", c, PIECE_ARGUMENTS, 0);
    buffer_append_char(out, '}');
}

/* The message of an answer that was taken apart. */
static void append_taken_apart(struct buffer *out, const struct answer *a, const struct choice *c)
{
    const struct pieces *p = c->pieces;
    buffer_append_text(out, "\"message\":{\"role\":\"assistant\",");
    if (p->num_calls > 0 && !pieces_have(p, PIECE_TEXT))
        buffer_append_text(out, "\"content\":null");
    else
        append_pieces(out, "content", c, PIECE_TEXT, -1);
    buffer_append_text(out, ",\"refusal\":null,\"annotations\":[]");
    if (pieces_have(p, PIECE_REASONING)) {
        buffer_append_char(out, ',');
        append_pieces(out, "reasoning_content", c, PIECE_REASONING, -1);
        buffer_append_char(out, ',');
        append_pieces(out, "reasoning", c, PIECE_REASONING, -1);
    }
    if (p->num_calls > 0 && functions_are_asked(a))
        append_function_call(out, c);
    else if (p->num_calls > 0)
        append_calls(out, a, c);
    buffer_append_char(out, '}');
}

static void append_content(struct buffer *out, const struct answer *a, const struct choice *c)
{
    bool is_chat = a->codec->kind == API_CHAT;
    if (c->pieces) {
        append_taken_apart(out, a, c);
        return;
    }
    if (is_chat) buffer_append_text(out, "\"message\":{\"role\":\"assistant\",");
    append_member(out, is_chat ? "content" : "text", c->ready.data, c->ready.num_bytes);
    if (is_chat) buffer_append_text(out, ",\"refusal\":null,\"annotations\":[]}");
}

static void append_prompt_logprobs(struct buffer *out, const struct answer *a, const struct choice *c)
{
    if (a->context->params->num_prompt_logprobs < 0) return;
    const struct logprobs_part part = choice_prompt_logprobs(c, a->context);
    buffer_append_text(out, ",\"prompt_logprobs\":");
    prompt_logprobs_append(out, &part);
}

static void append_choice(struct buffer *out, const struct answer *a, const struct choice *c)
{
    const struct logprobs_part part = choice_next_logprobs(c, a->context, INT32_MAX);
    buffer_printf(out, "{\"index\":%d,", c->index);
    append_content(out, a, c);
    append_logprobs(out, a, a->context->params->logprobs ? &part : NULL);
    append_finish_reason(out, a, c->finish_reason);
    append_new_ids(out, a, c, 0, c->num_prompt_tokens + c->num_pulled);
    if (a->codec->kind == API_COMPLETIONS) append_prompt_logprobs(out, a, c);
    buffer_append_char(out, '}');
}

static void append_whole(struct buffer *out, struct answer *a, const struct event *e)
{
    bool is_chat = a->codec->kind == API_CHAT;
    begin_object(out, a, is_chat ? "chat.completion" : "text_completion");
    for (int i = 0; i < a->num_choices; i++) {
        if (i > 0) buffer_append_char(out, ',');
        append_choice(out, a, &a->choices[i]);
    }
    buffer_append_text(out, "],\"usage\":");
    append_usage(out, a, e->usage);
    append_timings(out, a, &a->choices[0]);
    if (is_chat) append_prompt_logprobs(out, a, &a->choices[0]);
    if (is_chat) append_prompt(out, a, &a->choices[0]);
    codec_append_receipt(out, a);
    buffer_append_char(out, '}');
}

/* ---- the tables ---- */

static const struct codec_field chat_fields[] = {
    {"functions", NULL, functions_read},
    {"function_call", NULL, functions_read_choice},
    {NULL, NULL, NULL},
};

static const struct codec_name chat_names[] = {
    {"functions[]", "tools[].function", .if_sent = true},
    {"functions", "tools", .if_sent = true},
    {"function_call", "tool_choice", .if_sent = true},
    {NULL, NULL, false},
};

const struct codec codec_chat = {
    .path = "/v1/chat/completions",
    .id_prefix = "chatcmpl-",
    .stream_type = EVENT_STREAM_TYPE,
    .kind = API_CHAT,
    .fields = chat_fields,
    .names = chat_names,
    .tells_ids = true,
    .tells_pieces = true,
    .tells_custom = true,
    .events = {[EVENT_STARTED] = append_roles,
               [EVENT_DELTA] = append_chunk,
               [EVENT_DONE] = append_done,
               [EVENT_ERROR] = append_error,
               [EVENT_PING] = codec_append_ping,
               [EVENT_WHOLE] = append_whole},
    .append_error = response_append_error,
};

const struct codec codec_completions = {
    .path = "/v1/completions",
    .id_prefix = "cmpl-",
    .stream_type = EVENT_STREAM_TYPE,
    .kind = API_COMPLETIONS,
    .translate = fill_in_middle_read_suffix,
    .tells_ids = true,
    .events = {[EVENT_DELTA] = append_chunk,
               [EVENT_DONE] = append_done,
               [EVENT_ERROR] = append_error,
               [EVENT_PING] = codec_append_ping,
               [EVENT_WHOLE] = append_whole},
    .append_error = response_append_error,
};
