#include "server/api/journal_lines.h"

#include <string.h>

#include "config/api_keys.h"
#include "server/journal.h"

enum { LINE_BYTES_MAX = 1 << 30, HEAD_BYTES = 512 };

static void begin_line(struct buffer *line, const struct generation *g, const char *type)
{
    buffer_init(line, LINE_BYTES_MAX);
    buffer_printf(line, "{\"type\":\"%s\",\"entry\":\"%016llx-%llu\"", type,
                  (unsigned long long)g->api->chain_id, (unsigned long long)g->serial);
}

static void end_line(struct buffer *line, const struct generation *g)
{
    buffer_append_text(line, "}\n");
    if (buffer_failed(line))
        journal_count_dropped(g->api->server->journal);
    else
        journal_put(g->api->server->journal, line->data, line->num_bytes);
    buffer_deinit(line);
}

static void append_text(struct buffer *line, const char *name, const char *text)
{
    if (!text) return;
    buffer_printf(line, ",\"%s\":", name);
    buffer_append_json_text(line, text);
}

static void blank_out(char *text, size_t n, char c)
{
    for (char *at = text, *end = text + n; (at = memchr(at, c, (size_t)(end - at))); at++) *at = ' ';
}

/* JSON has line breaks between its values only, where blanks say the same. */
static void append_body(struct buffer *line, const char *body, size_t n)
{
    buffer_append_text(line, ",\"body\":");
    buffer_append(line, body, n);
    if (buffer_failed(line)) return;
    blank_out(line->data + line->num_bytes - n, n, '\n');
    blank_out(line->data + line->num_bytes - n, n, '\r');
}

static bool is_kept(const struct generation *g)
{
    return g->api->server->journal && g->params.request_digest;
}

void journal_tell_request(const struct generation *g, const char *body, size_t body_bytes)
{
    struct buffer line;
    if (!is_kept(g)) return;
    begin_line(&line, g, "request");
    buffer_reserve(&line, body_bytes + HEAD_BYTES);
    buffer_printf(&line, ",\"time\":%lld", (long long)g->answer.created);
    append_text(&line, "request_id", g->request_id);
    append_text(&line, "key", api_keys_name(g->api->server->config, g->api_key_idx));
    append_text(&line, "path", g->answer.codec->path);
    append_text(&line, "id", g->answer.id);
    buffer_printf(&line, ",\"seed\":\"%llu\"", (unsigned long long)g->answer.seed);
    append_body(&line, body, body_bytes);
    end_line(&line, g);
}

void journal_tell_answer(const struct generation *g, const char *outcome)
{
    struct buffer line;
    if (!is_kept(g)) return;
    begin_line(&line, g, "answer");
    append_text(&line, "outcome", outcome);
    if (g->receipt) {
        buffer_append_text(&line, ",\"receipt\":");
        buffer_append(&line, g->receipt->data, g->receipt->num_bytes);
        line.failed |= buffer_failed(g->receipt);
    }
    end_line(&line, g);
}
