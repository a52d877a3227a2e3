#include "server/api/logprobs_text.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"
#include "server/api/number_text.h"

static const float LOGPROB_FLOOR = -9999.0f;

/* ---- token text ---- */

/* A token's text as JSON can hold it. */
struct token_text {
    char text[256];
    size_t num_bytes;
};

static void decode_token(const struct tokenizer *tokenizer, int32_t id, struct token_text *out)
{
    size_t n, i = 0;
    const unsigned char *bytes = (const unsigned char *)tokenizer_token_bytes(tokenizer, id, &n);
    out->num_bytes = 0;
    while (i < n && out->num_bytes + 4 <= sizeof out->text) {
        size_t length = (size_t)utf8_length(bytes + i, bytes + n);
        memcpy(out->text + out->num_bytes, length ? (const char *)bytes + i : "\xEF\xBF\xBD",
               length ? length : 3);
        out->num_bytes += length ? length : 3;
        i += length ? length : 1;
    }
}

static void make_token_text(const struct logprobs_part *part, int32_t id, struct token_text *out)
{
    if (part->token_ids_as_text)
        out->num_bytes = (size_t)snprintf(out->text, sizeof out->text, "token_id:%d", id);
    else
        decode_token(part->tokenizer, id, out);
}

static void append_logprob(struct buffer *out, float logprob)
{
    number_append_float(out, (logprob > LOGPROB_FLOOR ? logprob : LOGPROB_FLOOR) + 0.0f); /* not -0 */
}

static int32_t token_at(const struct logprobs_part *part, int32_t position)
{
    return part->tokens[position - part->first];
}

/* NULL: nothing predicted it. */
static const struct token_logprobs *logprobs_at(const struct logprobs_part *part, int32_t position)
{
    return position > 0 ? &part->logprobs[position - part->first] : NULL;
}

static int32_t num_top_of(const struct logprobs_part *part, const struct token_logprobs *lp)
{
    assert_debug(lp->num_top >= 0 && lp->num_top <= TOP_LOGPROBS_MAX);
    return min_of(lp->num_top, part->num_top);
}

/* ---- chat ---- */

static void append_entry(const struct logprobs_part *part, struct buffer *out, int32_t id, float logprob)
{
    struct token_text text;
    size_t n;
    make_token_text(part, id, &text);
    const unsigned char *bytes = (const unsigned char *)tokenizer_token_bytes(part->tokenizer, id, &n);
    buffer_append_char(out, '{');
    if (part->with_ids) buffer_printf(out, "\"id\":%d,", id);
    buffer_append_text(out, "\"token\":");
    buffer_append_json(out, text.text, text.num_bytes);
    buffer_append_text(out, ",\"logprob\":");
    append_logprob(out, logprob);
    buffer_append_text(out, ",\"bytes\":[");
    for (size_t i = 0; i < n; i++) {
        if (i > 0) buffer_append_char(out, ',');
        number_append_count(out, bytes[i]);
    }
    buffer_append_char(out, ']');
}

static void append_chat_position(const struct logprobs_part *part, struct buffer *out, int32_t p)
{
    const struct token_logprobs *lp = logprobs_at(part, p);
    append_entry(part, out, token_at(part, p), lp ? lp->logprob : 0);
    buffer_append_text(out, ",\"top_logprobs\":[");
    for (int i = 0; lp && i < num_top_of(part, lp); i++) {
        if (i > 0) buffer_append_char(out, ',');
        append_entry(part, out, lp->top_ids[i], lp->top_logprobs[i]);
        buffer_append_char(out, '}');
    }
    buffer_append_text(out, "]}");
}

/* ---- completions ---- */

static bool same_text(const struct token_text *a, const struct token_text *b)
{
    return a->num_bytes == b->num_bytes && !memcmp(a->text, b->text, a->num_bytes);
}

/* The top entries and the token itself, by text; of two with the same text (parts of characters) the likelier
 * stays, as an object has a key once. */
static void append_top_object(const struct logprobs_part *part, struct buffer *out,
                              const struct token_text *token, const struct token_logprobs *lp)
{
    struct token_text seen[TOP_LOGPROBS_MAX + 1];
    int count = 0, num_top = num_top_of(part, lp);
    bool has_token = false;
    buffer_append_char(out, '{');
    for (int i = 0; i <= num_top; i++) {
        struct token_text *text = &seen[count];
        bool is_token = i == num_top;
        if (is_token && has_token) break;
        if (is_token)
            *text = *token;
        else
            make_token_text(part, lp->top_ids[i], text);
        bool duplicate = false;
        for (int k = 0; k < count && !duplicate; k++) duplicate = same_text(text, &seen[k]);
        has_token = has_token || same_text(text, token);
        if (duplicate) continue;
        if (count++ > 0) buffer_append_char(out, ',');
        buffer_append_json(out, text->text, text->num_bytes);
        buffer_append_char(out, ':');
        append_logprob(out, is_token ? lp->logprob : lp->top_logprobs[i]);
    }
    buffer_append_char(out, '}');
}

static void append_token(const struct logprobs_part *part, struct buffer *out, int32_t p)
{
    struct token_text text;
    make_token_text(part, token_at(part, p), &text);
    buffer_append_json(out, text.text, text.num_bytes);
}

static void append_value(const struct logprobs_part *part, struct buffer *out, int32_t p)
{
    const struct token_logprobs *lp = logprobs_at(part, p);
    if (lp)
        append_logprob(out, lp->logprob);
    else
        buffer_append_text(out, "null");
}

static void append_top(const struct logprobs_part *part, struct buffer *out, int32_t p)
{
    const struct token_logprobs *lp = logprobs_at(part, p);
    struct token_text text;
    if (!lp) {
        buffer_append_text(out, "null");
        return;
    }
    make_token_text(part, token_at(part, p), &text);
    append_top_object(part, out, &text, lp);
}

static void append_offset(const struct logprobs_part *part, struct buffer *out, int32_t p)
{
    buffer_printf(out, "%lld", (long long)token_offsets_next(part->offsets, token_at(part, p)));
}

/* ---- tokens by themselves ---- */

struct id_and_logprob logprobs_of(const struct logprobs_part *part, int32_t position)
{
    const struct token_logprobs *lp = logprobs_at(part, position);
    return (struct id_and_logprob){token_at(part, position), lp ? lp->logprob : 0};
}

void logprobs_append_token(struct buffer *out, const struct tokenizer *tokenizer, struct id_and_logprob token,
                           const char *text, size_t num_bytes)
{
    struct token_text own;
    if (!text) {
        decode_token(tokenizer, token.id, &own);
        text = own.text;
        num_bytes = own.num_bytes;
    }
    buffer_printf(out, "{\"id\":%d,\"text\":", token.id);
    buffer_append_json(out, text, num_bytes);
    buffer_append_text(out, ",\"logprob\":");
    append_logprob(out, token.logprob);
    buffer_printf(out, ",\"special\":%s}", tokenizer_is_special(tokenizer, token.id) ? "true" : "false");
}

void logprobs_append_top_tokens(struct buffer *out, const struct logprobs_part *part, int32_t position)
{
    const struct token_logprobs *lp = logprobs_at(part, position);
    buffer_append_char(out, '[');
    for (int i = 0; lp && i < num_top_of(part, lp); i++) {
        if (i > 0) buffer_append_char(out, ',');
        logprobs_append_token(out, part->tokenizer,
                              (struct id_and_logprob){lp->top_ids[i], lp->top_logprobs[i]}, NULL, 0);
    }
    buffer_append_char(out, ']');
}

/* ---- the prompt's ---- */

static void append_ranked(const struct logprobs_part *part, struct buffer *out, int32_t id, float logprob,
                          int rank)
{
    struct token_text text;
    decode_token(part->tokenizer, id, &text);
    buffer_append_char(out, '"');
    number_append_count(out, (uint32_t)id);
    buffer_append_text(out, "\":{\"logprob\":");
    append_logprob(out, logprob);
    buffer_append_text(out, ",\"rank\":");
    if (rank > 0)
        number_append_count(out, (uint32_t)rank);
    else
        buffer_append_text(out, "null");
    buffer_append_text(out, ",\"decoded_token\":");
    buffer_append_json(out, text.text, text.num_bytes);
    buffer_append_char(out, '}');
}

static int rank_of(const struct token_logprobs *lp, int32_t id)
{
    for (int i = 0; i < lp->num_top; i++)
        if (lp->top_ids[i] == id) return i + 1;
    return 0;
}

/* The token itself first, then the likeliest. */
static void append_prompt_position(const struct logprobs_part *part, struct buffer *out, int32_t p)
{
    const struct token_logprobs *lp = logprobs_at(part, p);
    int32_t id = token_at(part, p);
    if (!lp) {
        buffer_append_text(out, "null");
        return;
    }
    buffer_append_char(out, '{');
    append_ranked(part, out, id, lp->logprob, rank_of(lp, id));
    for (int i = 0; i < num_top_of(part, lp); i++) {
        if (lp->top_ids[i] == id) continue;
        buffer_append_char(out, ',');
        append_ranked(part, out, lp->top_ids[i], lp->top_logprobs[i], i + 1);
    }
    buffer_append_char(out, '}');
}

/* ---- arrays of them ---- */

static void append_array(const struct logprobs_part *part, struct buffer *out,
                         void (*append)(const struct logprobs_part *part, struct buffer *out, int32_t p))
{
    buffer_append_char(out, '[');
    for (int32_t p = part->begin; p < part->end; p++) {
        if (p > part->begin) buffer_append_char(out, ',');
        append(part, out, p);
    }
    buffer_append_char(out, ']');
}

void logprobs_append(struct buffer *out, enum api_kind kind, const struct logprobs_part *part)
{
    assert_debug(part->begin >= part->first || part->begin == part->end);
    if (kind == API_CHAT) {
        buffer_append_text(out, "{\"content\":");
        append_array(part, out, append_chat_position);
        buffer_append_text(out, ",\"refusal\":null}");
        return;
    }
    buffer_append_text(out, "{\"tokens\":");
    append_array(part, out, append_token);
    buffer_append_text(out, ",\"token_logprobs\":");
    append_array(part, out, append_value);
    buffer_append_text(out, ",\"top_logprobs\":");
    append_array(part, out, append_top);
    buffer_append_text(out, ",\"text_offset\":");
    append_array(part, out, append_offset);
    buffer_append_char(out, '}');
}

void logprobs_append_entries(struct buffer *out, const struct logprobs_part *part)
{
    append_array(part, out, append_chat_position);
}

void prompt_logprobs_append(struct buffer *out, const struct logprobs_part *part)
{
    append_array(part, out, append_prompt_position);
}
