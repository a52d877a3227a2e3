/* ollama.c - Ollama's /api/chat and /api/generate: a line of JSON an event, the last one with counts and times.
 *
 * JSON lines have no comments: the sign of life is a line with no text. A call is told when it is whole. Times
 * are in nanoseconds. */
#include "server/api/codecs/ollama.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"

enum { ARGUMENTS_BYTES_MAX = 64 << 20 };

struct stream {
    bool begun, open; /* a call is */
    struct call call;
    struct buffer arguments;
};

void ollama_append_time(struct buffer *out, uint64_t wall_ns)
{
    time_t seconds = (time_t)(wall_ns / 1000000000u);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    buffer_printf(out, "\"%04d-%02d-%02dT%02d:%02d:%02d.%06uZ\"", tm.tm_year + 1900, tm.tm_mon + 1,
                  tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (unsigned)(wall_ns % 1000000000u / 1000));
}

static bool is_chat(const struct answer *a)
{
    return a->codec == &codec_ollama_chat;
}

#define CLOCK ",\"created_at\":\""

/* {"model":...,"created_at":...,"message" or "response": text, and a message's further members */
static void begin_line(struct buffer *out, const struct answer *a, const struct buffer *text,
                       const struct buffer *members)
{
    buffer_append_text(out, "{\"model\":");
    buffer_append_json_text(out, a->model);
    buffer_append_text(out, ",\"created_at\":");
    ollama_append_time(out, clock_wall_ns());
    buffer_append_text(out,
                       is_chat(a) ? ",\"message\":{\"role\":\"assistant\",\"content\":" : ",\"response\":");
    buffer_append_json(out, text->data, text->num_bytes);
    buffer_append(out, members->data, members->num_bytes);
    if (is_chat(a)) buffer_append_char(out, '}');
}

static const struct buffer nothing;

static void append_logprobs(struct buffer *out, const struct logprobs_part *logprobs)
{
    if (!logprobs) return;
    buffer_append_text(out, ",\"logprobs\":");
    logprobs_append_entries(out, logprobs);
}

static void append_thinking(struct buffer *members, const char *text, size_t n)
{
    if (n == 0) return;
    buffer_append_text(members, ",\"thinking\":");
    buffer_append_json(members, text, n);
}

static void append_call(struct buffer *out, const char *name, const struct buffer *arguments)
{
    buffer_append_text(out, "{\"function\":{\"name\":");
    buffer_append_json_text(out, name);
    buffer_append_text(out, ",\"arguments\":");
    codec_append_arguments(out, arguments);
    buffer_append_text(out, "}}");
}

static uint64_t since(uint64_t now_ns, uint64_t then_ns)
{
    return then_ns > 0 && now_ns > then_ns ? now_ns - then_ns : 0;
}

static void append_end(struct buffer *out, const struct answer *a, const struct usage *u)
{
    const struct choice *c = &a->choices[0];
    uint64_t now_ns = clock_monotonic_ns();
    buffer_printf(out,
                  ",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%llu,\"load_duration\":0,"
                  "\"prompt_eval_count\":%lld,\"prompt_eval_duration\":%llu,\"eval_count\":%lld,"
                  "\"eval_duration\":%llu",
                  strcmp(c->finish_reason, "tool_calls") ? c->finish_reason : "stop",
                  (unsigned long long)since(now_ns, a->arrival_ns), (long long)u->prompt_tokens,
                  (unsigned long long)since(c->first_token_ns, c->scheduled_ns),
                  (long long)u->completion_tokens, (unsigned long long)since(now_ns, c->first_token_ns));
    codec_append_energy(out, a, u);
    codec_append_receipt(out, a);
    buffer_append_char(out, '}');
}

/* ---- events ---- */

/* Takes members, and its failure. */
static void append_line(struct buffer *out, const struct answer *a, const struct buffer *text,
                        struct buffer *members, const struct logprobs_part *logprobs)
{
    begin_line(out, a, text, members);
    append_logprobs(out, logprobs);
    buffer_append_text(out, ",\"done\":false}\n");
    if (buffer_failed(members)) out->failed = true;
    buffer_deinit(members);
}

static void close_call(struct buffer *out, struct answer *a)
{
    struct stream *s = a->state;
    struct buffer members;
    if (!s->open) return;
    s->open = false;
    buffer_init(&members, ARGUMENTS_BYTES_MAX);
    buffer_append_text(&members, ",\"tool_calls\":[");
    append_call(&members, s->call.name, &s->arguments);
    buffer_append_char(&members, ']');
    if (buffer_failed(&s->arguments)) out->failed = true;
    append_line(out, a, &nothing, &members, NULL);
}

static void open_call(struct answer *a, const struct call *call)
{
    struct stream *s = a->state;
    if (!s->begun) buffer_init(&s->arguments, ARGUMENTS_BYTES_MAX);
    s->begun = s->open = true;
    s->call = *call;
    buffer_clear(&s->arguments);
}

/* The last line says the rest. */
static void append_delta(struct buffer *out, struct answer *a, const struct event *e)
{
    struct stream *s = a->state;
    const struct buffer text = {.data = (char *)e->text, .num_bytes = e->text_bytes};
    struct buffer members;
    buffer_init(&members, ARGUMENTS_BYTES_MAX);
    bool has_text = e->piece != PIECE_CALL && e->piece != PIECE_ARGUMENTS && e->text_bytes > 0;
    if (e->piece == PIECE_CALL || has_text || e->finish_reason) close_call(out, a);
    if (e->piece == PIECE_CALL)
        open_call(a, e->call);
    else if (e->piece == PIECE_ARGUMENTS)
        buffer_append(&s->arguments, e->text, e->text_bytes);
    else if (e->piece == PIECE_REASONING)
        append_thinking(&members, e->text, e->text_bytes);
    if (has_text || e->logprobs)
        append_line(out, a, e->piece == PIECE_TEXT ? &text : &nothing, &members, e->logprobs);
    buffer_deinit(&members);
}

static void forget(void *state)
{
    struct stream *s = state;
    if (s->begun) buffer_deinit(&s->arguments);
}

static void append_ping(struct buffer *out, struct answer *a, const struct event *e)
{
    (void)e;
    begin_line(out, a, &nothing, &nothing);
    buffer_append_text(out, ",\"done\":false}\n");
}

static void append_done(struct buffer *out, struct answer *a, const struct event *e)
{
    begin_line(out, a, &nothing, &nothing);
    append_end(out, a, e->usage);
    buffer_append_char(out, '\n');
}

/* The pieces of a whole answer: its text, and what else a message has. */
static void collect(const struct pieces *p, struct buffer *text, struct buffer *members)
{
    struct buffer part;
    buffer_init(&part, ARGUMENTS_BYTES_MAX);
    pieces_collect(p, PIECE_TEXT, -1, text);
    pieces_collect(p, PIECE_REASONING, -1, &part);
    append_thinking(members, part.data, part.num_bytes);
    for (int i = 0; i < p->num_calls; i++) {
        bool is_broken = buffer_failed(&part);
        buffer_clear(&part);
        pieces_collect(p, PIECE_ARGUMENTS, i, &part);
        buffer_append_text(members, i == 0 ? ",\"tool_calls\":[" : ",");
        append_call(members, p->calls[i].name, &part);
        if (is_broken) members->failed = true;
    }
    if (p->num_calls > 0) buffer_append_char(members, ']');
    if (buffer_failed(&part)) members->failed = true;
    buffer_deinit(&part);
}

static void append_whole(struct buffer *out, struct answer *a, const struct event *e)
{
    const struct choice *c = &a->choices[0];
    const struct logprobs_part part = choice_next_logprobs(c, a->context, INT32_MAX);
    struct buffer text, members;
    buffer_init(&text, ARGUMENTS_BYTES_MAX);
    buffer_init(&members, ARGUMENTS_BYTES_MAX);
    if (c->pieces) collect(c->pieces, &text, &members);
    begin_line(out, a, c->pieces ? &text : &c->ready, &members);
    append_logprobs(out, a->context->params->logprobs ? &part : NULL);
    append_end(out, a, e->usage);
    if (buffer_failed(&text) || buffer_failed(&members)) out->failed = true;
    buffer_deinit(&text);
    buffer_deinit(&members);
}

void ollama_append_error(struct buffer *out, const struct failure *f)
{
    buffer_append_text(out, "{\"error\":");
    buffer_append_json_text(out, f->message);
    buffer_append_char(out, '}');
}

static void append_error_line(struct buffer *out, struct answer *a, const struct event *e)
{
    const struct failure f = api_error_failure(e->error, a->request_id);
    ollama_append_error(out, &f);
    buffer_append_char(out, '\n');
}

#define EVENTS                                                                                               \
    {                                                                                                        \
        [EVENT_DELTA] = append_delta, [EVENT_DONE] = append_done, [EVENT_ERROR] = append_error_line,         \
        [EVENT_PING] = append_ping, [EVENT_WHOLE] = append_whole                                             \
    }

const struct codec codec_ollama_chat = {
    .path = "/api/chat",
    .id_prefix = "",
    .stream_type = "application/x-ndjson",
    .kind = API_CHAT,
    .fields = ollama_chat_fields,
    .names = ollama_names,
    .translate = ollama_translate_chat,
    .events = EVENTS,
    .append_error = ollama_append_error,
    .clock = CLOCK,
    .tells_pieces = true,
    .state_bytes = sizeof(struct stream),
    .forget = forget,
};

const struct codec codec_ollama_generate = {
    .path = "/api/generate",
    .id_prefix = "",
    .stream_type = "application/x-ndjson",
    .kind = API_CHAT,
    .fields = ollama_generate_fields,
    .names = ollama_names,
    .translate = ollama_translate_generate,
    .events = EVENTS,
    .append_error = ollama_append_error,
    .clock = CLOCK,
    .tells_pieces = true,
    .state_bytes = sizeof(struct stream),
    .forget = forget,
};
