/* endpoint_llama.c - llama.cpp's /completion, /infill and /embedding, and what its clients ask about the server: /props, /slots,
 * /lora-adapters. */
#include "base/version.h"
#include "server/api/endpoint_tokenizer_info.h"
#include "server/api/generation.h"
#include "server/api/loras.h"

enum { PAGE_BYTES_MAX = 16 << 20 };

void endpoint_llama_completion(struct exchange *x)
{
    generation_start(x, &codec_llama_completion);
}

void endpoint_llama_infill(struct exchange *x)
{
    generation_start(x, &codec_llama_infill);
}

void endpoint_llama_embedding(struct exchange *x)
{
    generation_start(x, &codec_llama_embedding);
}

void endpoint_props(struct exchange *x)
{
    const struct server *server = x->server;
    const char *name = server->model_names[0];
    struct buffer body;
    buffer_init(&body, PAGE_BYTES_MAX);
    buffer_printf(&body,
                  "{\"default_generation_settings\":{\"n_ctx\":%d},\"total_slots\":%d,\"model_alias\":",
                  server->facts->max_model_len, server->facts->max_num_seqs);
    buffer_append_json_text(&body, name);
    buffer_append_text(&body, ",\"model_path\":");
    buffer_append_json_text(&body, name);
    buffer_printf(&body, ",\"modalities\":{\"vision\":false,\"audio\":false},\"build_info\":\"flashd %s\",",
                  flashd_version());
    append_template_and_tokens(&body, server);
    buffer_append_char(&body, '}');
    exchange_reply_page(x, "application/json", &body);
    buffer_deinit(&body);
}

/* One for each sequence that may run at once; those in use come first. */
void endpoint_slots(struct exchange *x)
{
    const struct server *server = x->server;
    struct link_stats stats;
    struct buffer body;
    link_stats(server->link, &stats);
    buffer_init(&body, PAGE_BYTES_MAX);
    buffer_append_char(&body, '[');
    for (int i = 0; i < server->facts->max_num_seqs; i++)
        buffer_printf(&body, "%s{\"id\":%d,\"n_ctx\":%d,\"is_processing\":%s}", i > 0 ? "," : "", i,
                      server->facts->max_model_len, i < stats.num_running ? "true" : "false");
    buffer_append_char(&body, ']');
    exchange_reply_page(x, "application/json", &body);
    buffer_deinit(&body);
}

/* save, restore and erase: there is one prefix cache, and it keeps what is asked for again. */
void endpoint_slot_action(struct exchange *x)
{
    exchange_error(
        x, 400, "invalid_request_error", "unsupported_value", "action", 0,
        "slots cannot be saved, restored or erased: prompts that begin alike share one prefix cache, "
        "which makes room by itself");
}

/* They are chosen by their names, as the model: without that none counts. */
void endpoint_lora_adapters(struct exchange *x)
{
    const struct loras *loras = x->server->loras;
    struct buffer body;
    int num = 0;
    buffer_init(&body, PAGE_BYTES_MAX);
    buffer_append_char(&body, '[');
    for (int i = 1; i <= loras_num_places(loras); i++) {
        if (!loras_is_there(loras, i)) continue;
        buffer_printf(&body, "%s{\"id\":%d,\"name\":", num++ > 0 ? "," : "", i - 1);
        buffer_append_json_text(&body, loras_name(loras, i));
        buffer_append_text(&body, ",\"path\":");
        buffer_append_json_text(&body, loras_path(loras, i));
        buffer_append_text(&body, ",\"scale\":0}");
    }
    buffer_append_char(&body, ']');
    exchange_reply_page(x, "application/json", &body);
    buffer_deinit(&body);
}
