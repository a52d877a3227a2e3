/* endpoint_tokenizer_info.c - what vLLM's GET /tokenizer_info says, as far as clients read it: lm-evaluation-harness
 * learns from it that this server tokenizes for it. */
#include "server/api/endpoint_tokenizer_info.h"
#include "server/api/generation.h"
#include "text/chat_template.h"

enum { PAGE_BYTES_MAX = 16 << 20 };

static void append_token(struct buffer *out, const char *name, const struct tokenizer *t, int32_t id)
{
    size_t n = 0;
    const char *text = id >= 0 ? tokenizer_token_bytes(t, id, &n) : NULL;
    buffer_printf(out, "\"%s\":", name);
    if (text)
        buffer_append_json(out, text, n);
    else
        buffer_append_text(out, "null");
    buffer_append_char(out, ',');
}

void append_template_and_tokens(struct buffer *out, const struct server *server)
{
    const struct tokenizer *t = server->tokenizer;
    append_token(out, "bos_token", t, tokenizer_bos_id(t));
    append_token(out, "eos_token", t, tokenizer_eos_id(t));
    buffer_append_text(out, "\"chat_template\":");
    if (server->chat_template)
        buffer_append_json_text(out, chat_template_source(server->chat_template));
    else
        buffer_append_text(out, "null");
}

void endpoint_tokenizer_info(struct exchange *x)
{
    const struct server *server = x->server;
    struct buffer body;
    buffer_init(&body, PAGE_BYTES_MAX);
    buffer_printf(&body, "{\"pad_token\":null,\"vocab_size\":%d,\"model_max_length\":%d,",
                  tokenizer_vocab_size(server->tokenizer), server->facts->max_model_len);
    append_template_and_tokens(&body, server);
    buffer_append_char(&body, '}');
    exchange_reply_page(x, "application/json", &body);
    buffer_deinit(&body);
}
