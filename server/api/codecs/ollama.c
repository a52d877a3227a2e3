/* ollama.c - Ollama's /api/chat and /api/generate: a line of JSON an event, the last one with counts and times.
 *
 * JSON lines have no comments: the sign of life is a line with no text. Times are in nanoseconds. */
#include "server/api/codecs/ollama.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"

static void append_text(struct buffer *out, const char *text)
{
    buffer_append_json(out, text, strlen(text));
}

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

/* {"model":...,"created_at":...,"message" or "response": text */
static void begin_line(struct buffer *out, const struct answer *a, const char *text, size_t n)
{
    buffer_append_text(out, "{\"model\":");
    append_text(out, a->model);
    buffer_append_text(out, ",\"created_at\":");
    ollama_append_time(out, clock_wall_ns());
    buffer_append_text(out,
                       is_chat(a) ? ",\"message\":{\"role\":\"assistant\",\"content\":" : ",\"response\":");
    buffer_append_json(out, n > 0 ? text : "", n);
    if (is_chat(a)) buffer_append_char(out, '}');
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
                  "\"eval_duration\":%llu}",
                  c->finish_reason, (unsigned long long)since(now_ns, a->arrival_ns),
                  (long long)u->prompt_tokens, (unsigned long long)since(c->first_token_ns, c->scheduled_ns),
                  (long long)u->completion_tokens, (unsigned long long)since(now_ns, c->first_token_ns));
}

/* ---- events ---- */

static void append_line(struct buffer *out, struct answer *a, const struct event *e)
{
    if (e->text_bytes == 0) return; /* the last line says the rest */
    begin_line(out, a, e->text, e->text_bytes);
    buffer_append_text(out, ",\"done\":false}\n");
}

static void append_ping(struct buffer *out, struct answer *a, const struct event *e)
{
    (void)e;
    begin_line(out, a, "", 0);
    buffer_append_text(out, ",\"done\":false}\n");
}

static void append_done(struct buffer *out, struct answer *a, const struct event *e)
{
    begin_line(out, a, "", 0);
    append_end(out, a, e->usage);
    buffer_append_char(out, '\n');
}

static void append_whole(struct buffer *out, struct answer *a, const struct event *e)
{
    const struct choice *c = &a->choices[0];
    begin_line(out, a, c->ready.data, c->ready.num_bytes);
    append_end(out, a, e->usage);
}

void ollama_append_error(struct buffer *out, const struct failure *f)
{
    buffer_append_text(out, "{\"error\":");
    append_text(out, f->message);
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
        [EVENT_DELTA] = append_line, [EVENT_DONE] = append_done, [EVENT_ERROR] = append_error_line,          \
        [EVENT_PING] = append_ping, [EVENT_WHOLE] = append_whole                                             \
    }

const struct codec codec_ollama_chat = {
    .path = "/api/chat",
    .id_prefix = "",
    .stream_type = "application/x-ndjson",
    .kind = API_CHAT,
    .fields = ollama_chat_fields,
    .translate = ollama_translate_chat,
    .events = EVENTS,
    .append_error = ollama_append_error,
};

const struct codec codec_ollama_generate = {
    .path = "/api/generate",
    .id_prefix = "",
    .stream_type = "application/x-ndjson",
    .kind = API_CHAT,
    .fields = ollama_generate_fields,
    .translate = ollama_translate_generate,
    .events = EVENTS,
    .append_error = ollama_append_error,
};
