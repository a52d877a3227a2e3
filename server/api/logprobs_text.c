#include "server/api/logprobs_text.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"

static const float LOGPROB_FLOOR = -9999.0f;

void logprobs_text_init(struct logprobs_text *t, enum api_kind kind, const struct tokenizer *tokenizer,
                        bool token_ids_as_text, size_t max_bytes)
{
    *t = (struct logprobs_text){.kind = kind, .tokenizer = tokenizer, .token_ids_as_text = token_ids_as_text};
    buffer_init(&t->tokens, max_bytes);
    buffer_init(&t->values, max_bytes);
    buffer_init(&t->tops, max_bytes);
    buffer_init(&t->offsets, max_bytes);
}

void logprobs_text_deinit(struct logprobs_text *t)
{
    buffer_deinit(&t->tokens);
    buffer_deinit(&t->values);
    buffer_deinit(&t->tops);
    buffer_deinit(&t->offsets);
}

bool logprobs_text_failed(const struct logprobs_text *t)
{
    return buffer_failed(&t->tokens) || buffer_failed(&t->values) || buffer_failed(&t->tops) ||
           buffer_failed(&t->offsets);
}

/* ---- token text ---- */

/* A token's text as JSON can hold it. */
struct token_text {
    char text[256];
    size_t num_bytes;
    int num_chars;
};

static size_t utf8_length(const unsigned char *p, size_t n)
{
    size_t length = p[0] < 0x80   ? 1
                    : p[0] < 0xC2 ? 0
                    : p[0] < 0xE0 ? 2
                    : p[0] < 0xF0 ? 3
                    : p[0] < 0xF5 ? 4
                                  : 0;
    if (length == 0 || length > n) return 0;
    for (size_t i = 1; i < length; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    bool overlong = (p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xF0 && p[1] < 0x90);
    bool beyond = (p[0] == 0xED && p[1] > 0x9F) || (p[0] == 0xF4 && p[1] > 0x8F);
    return overlong || beyond ? 0 : length;
}

static void make_token_text(const struct logprobs_text *t, int32_t id, struct token_text *out)
{
    out->num_bytes = 0;
    out->num_chars = 0;
    if (t->token_ids_as_text) {
        out->num_bytes = out->num_chars = snprintf(out->text, sizeof out->text, "token_id:%d", id);
        return;
    }
    size_t n, i = 0;
    const unsigned char *bytes = (const unsigned char *)tokenizer_token_bytes(t->tokenizer, id, &n);
    while (i < n && out->num_bytes + 4 <= sizeof out->text) {
        size_t length = utf8_length(bytes + i, n - i);
        memcpy(out->text + out->num_bytes, length ? (const char *)bytes + i : "\xEF\xBF\xBD",
               length ? length : 3);
        out->num_bytes += length ? length : 3;
        out->num_chars++;
        i += length ? length : 1;
    }
}

static void append_logprob(struct buffer *out, float logprob)
{
    buffer_printf(out, "%.9g", (double)(logprob > LOGPROB_FLOOR ? logprob : LOGPROB_FLOOR) + 0.0);
}

/* ---- chat ---- */

static void append_entry(const struct logprobs_text *t, struct buffer *out, int32_t id, float logprob)
{
    struct token_text text;
    size_t n;
    make_token_text(t, id, &text);
    const unsigned char *bytes = (const unsigned char *)tokenizer_token_bytes(t->tokenizer, id, &n);
    buffer_append_text(out, "{\"token\":");
    buffer_append_json(out, text.text, text.num_bytes);
    buffer_append_text(out, ",\"logprob\":");
    append_logprob(out, logprob);
    buffer_append_text(out, ",\"bytes\":[");
    for (size_t i = 0; i < n; i++) buffer_printf(out, i ? ",%u" : "%u", bytes[i]);
    buffer_append_char(out, ']');
}

static void add_chat(struct logprobs_text *t, int32_t id, const struct token_logprobs *lp)
{
    struct buffer *out = &t->tokens;
    if (t->count > 0) buffer_append_char(out, ',');
    append_entry(t, out, id, lp ? lp->logprob : 0);
    buffer_append_text(out, ",\"top_logprobs\":[");
    for (int i = 0; lp && i < lp->num_top; i++) {
        if (i > 0) buffer_append_char(out, ',');
        append_entry(t, out, lp->top_ids[i], lp->top_logprobs[i]);
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
static void append_top_object(struct logprobs_text *t, const struct token_text *token,
                              const struct token_logprobs *lp)
{
    struct token_text seen[TOP_LOGPROBS_MAX + 1];
    int count = 0;
    bool has_token = false;
    buffer_append_char(&t->tops, '{');
    for (int i = 0; i <= lp->num_top; i++) {
        struct token_text *text = &seen[count];
        bool is_token = i == lp->num_top;
        if (is_token && has_token) break;
        if (is_token)
            *text = *token;
        else
            make_token_text(t, lp->top_ids[i], text);
        bool duplicate = false;
        for (int k = 0; k < count && !duplicate; k++) duplicate = same_text(text, &seen[k]);
        has_token = has_token || same_text(text, token);
        if (duplicate) continue;
        if (count++ > 0) buffer_append_char(&t->tops, ',');
        buffer_append_json(&t->tops, text->text, text->num_bytes);
        buffer_append_char(&t->tops, ':');
        append_logprob(&t->tops, is_token ? lp->logprob : lp->top_logprobs[i]);
    }
    buffer_append_char(&t->tops, '}');
}

static void add_completion(struct logprobs_text *t, int32_t id, const struct token_logprobs *lp)
{
    struct token_text text;
    make_token_text(t, id, &text);
    if (t->count > 0) {
        buffer_append_char(&t->tokens, ',');
        buffer_append_char(&t->values, ',');
        buffer_append_char(&t->tops, ',');
        buffer_append_char(&t->offsets, ',');
    }
    buffer_append_json(&t->tokens, text.text, text.num_bytes);
    buffer_printf(&t->offsets, "%lld", (long long)t->offset_chars);
    t->offset_chars += text.num_chars;
    if (lp) {
        append_logprob(&t->values, lp->logprob);
        append_top_object(t, &text, lp);
    } else {
        buffer_append_text(&t->values, "null");
        buffer_append_text(&t->tops, "null");
    }
}

/* ---- both ---- */

void logprobs_text_add(struct logprobs_text *t, int32_t token_id, const struct token_logprobs *lp)
{
    if (t->kind == API_CHAT)
        add_chat(t, token_id, lp);
    else
        add_completion(t, token_id, lp);
    t->count++;
}

static void move(struct buffer *out, struct buffer *from)
{
    buffer_append(out, from->data, from->num_bytes);
    buffer_clear(from);
}

void logprobs_text_append(struct logprobs_text *t, struct buffer *out)
{
    buffer_append_text(out, t->kind == API_CHAT ? "{\"content\":[" : "{\"tokens\":[");
    move(out, &t->tokens);
    if (t->kind == API_COMPLETIONS) {
        buffer_append_text(out, "],\"token_logprobs\":[");
        move(out, &t->values);
        buffer_append_text(out, "],\"top_logprobs\":[");
        move(out, &t->tops);
        buffer_append_text(out, "],\"text_offset\":[");
        move(out, &t->offsets);
        buffer_append_text(out, "]}");
    } else {
        buffer_append_text(out, "],\"refusal\":null}");
    }
    t->count = 0;
}
