#include "server/api/answer_json.h"

#include <string.h>

static void append_text(struct buffer *out, const char *text)
{
    buffer_append_json(out, text, strlen(text));
}

/* {"id":...,"object":...,"created":...,"model":...,"choices":[ */
static void begin_object(struct buffer *out, const struct answer_head *head, const char *object)
{
    buffer_printf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", head->id, object,
                  (long long)head->created);
    append_text(out, head->model);
    buffer_append_text(out, ",\"choices\":[");
}

static void append_usage(struct buffer *out, const struct answer_head *head, const struct usage *u)
{
    int64_t total_tokens = u->prompt_tokens + u->completion_tokens;
    buffer_printf(out,
                  "{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,"
                  "\"prompt_tokens_details\":",
                  (long long)u->prompt_tokens, (long long)u->completion_tokens, (long long)total_tokens);
    if (head->reports_cached_tokens)
        buffer_printf(out, "{\"cached_tokens\":%lld}}", (long long)u->cached_tokens);
    else
        buffer_append_text(out, "null}");
}

static void append_finish_reason(struct buffer *out, const char *finish_reason)
{
    buffer_append_text(out, ",\"finish_reason\":");
    if (finish_reason)
        append_text(out, finish_reason);
    else
        buffer_append_text(out, "null");
}

static void append_logprobs(struct buffer *out, const struct answer_head *head,
                            const struct logprobs_part *logprobs)
{
    buffer_append_text(out, ",\"logprobs\":");
    if (logprobs)
        logprobs_append(out, head->kind, logprobs);
    else
        buffer_append_text(out, "null");
}

/* ---- stream ---- */

static const char *chunk_object(const struct answer_head *head)
{
    return head->kind == API_CHAT ? "chat.completion.chunk" : "text_completion";
}

static void append_delta(struct buffer *out, const struct chunk *chunk)
{
    if (chunk->is_first) {
        buffer_append_text(out, ",\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null}");
    } else {
        buffer_append_text(out, ",\"delta\":{\"content\":");
        buffer_append_json(out, chunk->text_bytes > 0 ? chunk->text : "", chunk->text_bytes);
        buffer_append_char(out, '}');
    }
}

static void append_text_member(struct buffer *out, const char *text, size_t num_bytes)
{
    buffer_append_text(out, ",\"text\":");
    buffer_append_json(out, num_bytes > 0 ? text : "", num_bytes);
}

void answer_append_chunk(struct buffer *out, const struct answer_head *head, const struct chunk *chunk)
{
    buffer_append_text(out, "data: ");
    begin_object(out, head, chunk_object(head));
    buffer_printf(out, "{\"index\":%d", chunk->index);
    if (head->kind == API_CHAT)
        append_delta(out, chunk);
    else
        append_text_member(out, chunk->text, chunk->text_bytes);
    append_logprobs(out, head, chunk->logprobs);
    append_finish_reason(out, chunk->finish_reason);
    buffer_append_text(out, "}]");
    if (chunk->usage) {
        buffer_append_text(out, ",\"usage\":");
        append_usage(out, head, chunk->usage);
    } else if (head->usage_in_chunks) {
        buffer_append_text(out, ",\"usage\":null");
    }
    buffer_append_text(out, "}\n\n");
}

void answer_append_usage_chunk(struct buffer *out, const struct answer_head *head, const struct usage *usage)
{
    buffer_append_text(out, "data: ");
    begin_object(out, head, chunk_object(head));
    buffer_append_text(out, "],\"usage\":");
    append_usage(out, head, usage);
    buffer_append_text(out, "}\n\n");
}

void answer_append_done(struct buffer *out)
{
    buffer_append_text(out, "data: [DONE]\n\n");
}

/* ---- whole ---- */

static void append_message(struct buffer *out, const struct choice *c)
{
    buffer_append_text(out, ",\"message\":{\"role\":\"assistant\",\"content\":");
    buffer_append_json(out, c->ready.num_bytes > 0 ? c->ready.data : "", c->ready.num_bytes);
    buffer_append_text(out, ",\"refusal\":null}");
}

static void append_prompt_logprobs(struct buffer *out, const struct choice *c,
                                   const struct choice_context *context)
{
    if (context->params->num_prompt_logprobs < 0) return;
    const struct logprobs_part part = choice_prompt_logprobs(c, context);
    buffer_append_text(out, ",\"prompt_logprobs\":");
    prompt_logprobs_append(out, &part);
}

void answer_append_whole(struct buffer *out, const struct answer_head *head, const struct choice *choices,
                         int num_choices, const struct choice_context *context, const struct usage *usage)
{
    begin_object(out, head, head->kind == API_CHAT ? "chat.completion" : "text_completion");
    for (int i = 0; i < num_choices; i++) {
        const struct choice *c = &choices[i];
        const struct logprobs_part part = choice_next_logprobs(c, context, INT32_MAX);
        buffer_printf(out, "%s{\"index\":%d", i > 0 ? "," : "", c->index);
        if (head->kind == API_CHAT)
            append_message(out, c);
        else
            append_text_member(out, c->ready.data, c->ready.num_bytes);
        append_logprobs(out, head, context->params->logprobs ? &part : NULL);
        append_finish_reason(out, c->finish_reason);
        if (head->kind == API_COMPLETIONS) append_prompt_logprobs(out, c, context);
        buffer_append_char(out, '}');
    }
    buffer_append_text(out, "],\"usage\":");
    append_usage(out, head, usage);
    if (head->kind == API_CHAT) append_prompt_logprobs(out, &choices[0], context);
    buffer_append_char(out, '}');
}
