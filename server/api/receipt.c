#include "server/api/receipt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "server/api/json_field.h"
#include "server/api/loras.h"
#include "server/fingerprint.h"

/* ---- the request ---- */

static void add_sampling(struct sha256_ctx *hash, const struct params *p)
{
    const struct request_slot_input *input = p->input;
    const struct sampling *s = &input->sampling;
    const float reals[] = {
        s->temperature, s->top_p, s->min_p, s->presence_penalty, s->frequency_penalty, s->repetition_penalty};
    for (size_t i = 0; i < array_length(reals); i++) digest_add_real(hash, (double)reals[i]);
    digest_add_int(hash, s->top_k);
    digest_add_int(hash, input->min_tokens);
    digest_add_int(hash, input->ignore_eos);
    digest_add_bytes(hash, input->stop_token_ids, (size_t)input->num_stop_token_ids * sizeof(int32_t));
    digest_add_int(hash, input->num_logit_bias);
    for (int32_t i = 0; i < input->num_logit_bias; i++) {
        digest_add_int(hash, p->payload->logit_bias[i].token_id);
        digest_add_real(hash, (double)p->payload->logit_bias[i].bias);
    }
}

/* False: out of memory. */
static bool add_list(struct sha256_ctx *hash, const cJSON *body, const char *name)
{
    const cJSON *list = json_field_find(body, name);
    char *text = list ? cJSON_PrintUnformatted(list) : NULL;
    digest_add_text(hash, text ? text : "");
    cJSON_free(text);
    return text || !list;
}

/* What ends answers, and what they must look like. False: out of memory. */
static bool add_form(struct sha256_ctx *hash, const struct params *p, const cJSON *body)
{
    const struct answer_form *form = &p->form;
    digest_add_int(hash, p->stop.count);
    for (int i = 0; i < p->stop.count; i++)
        digest_add_bytes(hash, p->stop.items[i].text, (size_t)p->stop.items[i].num_bytes);
    digest_add_int(hash, p->include_stop_str_in_output);
    digest_add_int(hash, p->skip_special_tokens);
    digest_add_int(hash, form->constraint.kind);
    digest_add_int(hash, form->constraint.max_spaces);
    digest_add_bytes(hash, form->constraint.text, form->constraint.num_bytes);
    digest_add_text(hash, form->trigger ? form->trigger : "");
    if (p->n_indent > 0) digest_add_int(hash, p->n_indent);
    return add_list(hash, body, "allowed_token_ids") && add_list(hash, body, "bad_words");
}

const struct digest_text *receipt_digest_request(const struct params *params, const struct prompts *prompts,
                                                 const cJSON *body, struct arena *arena)
{
    struct sha256_ctx hash;
    struct digest_text *out = arena_alloc(arena, sizeof *out);
    if (!out) return NULL;
    sha256_init(&hash);
    digest_add_int(&hash, params->n);
    if (params->num_returned < params->n) digest_add_int(&hash, params->num_returned);
    digest_add_int(&hash, params->has_seed);
    digest_add_int(&hash,
                   params->max_tokens); /* as it was asked: where there is less room, the answer shows it */
    add_sampling(&hash, params);
    if (!add_form(&hash, params, body)) return NULL;
    for (int i = 0; i < prompts->count; i++) {
        const struct token_list *tokens = &prompts->items[i].tokens;
        digest_add_bytes(&hash, tokens->ids, (size_t)tokens->num_ids * sizeof *tokens->ids);
    }
    *out = digest_end(&hash);
    return out;
}

/* ---- the receipt ---- */

static struct digest_text digest_answer(const struct generation *g)
{
    struct sha256_ctx hash;
    sha256_init(&hash);
    for (int i = 0; i < g->num_choices; i++) {
        const struct transcript *t = g->choices[i].transcript;
        struct sha256_ctx tokens = t->tokens, text = t->text;
        digest_add_text(&hash, g->choices[i].finish_reason);
        digest_add_int(&hash, g->choices[i].num_pulled);
        digest_add_text(&hash, digest_end(&tokens).text);
        digest_add_text(&hash, digest_end(&text).text);
    }
    return digest_end(&hash);
}

static bool has_few_tokens(const struct generation *g)
{
    int64_t count = g->num_choices; /* an answer without tokens is one, too */
    for (int i = 0; i < g->num_choices; i++) count += g->choices[i].num_pulled;
    return count <= TRANSCRIPT_TOKENS_MAX;
}

/* A choice whose ids found no memory is broken (choice.h), and its answer is not sent. */
static void append_ids(struct buffer *out, const struct choice *c)
{
    const int32_t *ids = (const int32_t *)c->transcript->ids.data;
    if (buffer_failed(&c->transcript->ids)) {
        out->failed = true;
        return;
    }
    buffer_append_char(out, '[');
    for (int32_t i = 0; i < c->num_pulled; i++) buffer_printf(out, i > 0 ? ",%d" : "%d", ids[i]);
    buffer_append_char(out, ']');
}

static void append_tokens(struct buffer *out, const struct generation *g)
{
    buffer_append_text(out, has_few_tokens(g) ? ",\"tokens\":[" : ",\"tokens\":null");
    if (!has_few_tokens(g)) return;
    for (int i = 0; i < g->num_choices; i++) {
        if (i > 0) buffer_append_char(out, ',');
        append_ids(out, &g->choices[i]);
    }
    buffer_append_char(out, ']');
}

static void append_digest(struct buffer *out, const char *name, const char *digest)
{
    buffer_printf(out, digest[0] ? ",\"%s\":\"%s\"" : ",\"%s\":null", name, digest);
}

static void append_kernels(struct buffer *out, const struct server *server)
{
    buffer_append_text(out, ",\"kernels\":\"");
    fingerprint_append(out, server->facts->device);
    const char *kv_dtype = server->config->kv_cache_dtype;
    if (strcmp(kv_dtype, "auto") != 0 && strcmp(kv_dtype, "bf16") != 0)
        buffer_printf(out, "_kv_%s", kv_dtype);
    buffer_append_char(out, '"');
}

/* Sorted by name; without the digest and the last brace. */
static void append_members(struct buffer *out, const struct generation *g, const struct receipt_chain *chain)
{
    const struct server *server = g->api->server;
    const char *template = server->chat_template ? chat_template_source(server->chat_template) : NULL;
    buffer_printf(out,
                  "{\"answer\":\"%s\",\"chain\":\"%016llx\",\"created\":%lld,\"id\":", digest_answer(g).text,
                  (unsigned long long)g->api->chain_id, (long long)g->answer.created);
    buffer_append_json_text(out, g->answer.id);
    append_kernels(out, server);
    append_digest(out, "model",
                  g->params.lora ? loras_identity(server->loras, g->params.lora)
                                 : server->identity.weights.text);
    buffer_printf(out, ",\"number\":%llu,\"path\":\"%s\"", (unsigned long long)chain->number,
                  g->answer.codec->path);
    append_digest(out, "previous", chain->last.text);
    append_digest(out, "request", g->params.request_digest->text);
    buffer_printf(out, ",\"seed\":\"%llu\"", (unsigned long long)g->answer.seed);
    append_digest(out, "template", template ? digest_of(template, strlen(template)).text : "");
    append_digest(out, "tokenizer", server->identity.tokenizer.text);
    append_tokens(out, g);
    buffer_append_text(out, ",\"version\":1");
}

static const struct buffer no_memory = {.failed = true};

void receipt_make(struct generation *g)
{
    enum { RECEIPT_BYTES_MAX = 1 << 20 };
    struct receipt_chain *chain = &g->api->key_use[g->api_key_idx + 1].chain;
    struct sha256_ctx hash;
    if (!g->params.request_digest || g->receipt) return;
    struct buffer *out = g->receipt = arena_alloc(&g->arena, sizeof *g->receipt);
    if (g->api->server->config->receipts) g->answer.receipt = out ? out : &no_memory;
    if (!out) return;
    buffer_init(out, RECEIPT_BYTES_MAX);
    chain->number++;
    append_members(out, g, chain);
    sha256_init(&hash);
    sha256_update(&hash, out->num_bytes, (const uint8_t *)out->data);
    sha256_update(&hash, 1, (const uint8_t *)"}");
    chain->last = digest_end(&hash);
    append_digest(out, "digest", chain->last.text);
    buffer_append_char(out, '}');
}

/* ---- again ---- */

static bool read_number(const char *text, uint64_t most, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return !errno && strspn(text, "0123456789") == strlen(text) && text[0] && *out <= most;
}

int receipt_read_replay(const struct exchange *x, struct arena *arena, const struct replay **out,
                        struct api_error *err)
{
    const char *text = exchange_header(x, "x-flashd-replay");
    char id[128], created[24], seed[24];
    uint64_t seconds;
    *out = NULL;
    if (!text || !x->server->makes_receipts) return 0;
    struct replay *r = arena_alloc(arena, sizeof *r);
    if (!r) return api_error_no_memory(err);
    if (sscanf(text, "%127[A-Za-z0-9_-] %23[0-9] %23[0-9]", id, created, seed) != 3 ||
        !read_number(created, 1ULL << 40, &seconds) || !read_number(seed, UINT64_MAX, &r->seed))
        return api_error_invalid(err, "invalid_value", NULL,
                                 "x-flashd-replay must be an answer's id, its time in seconds and its seed");
    r->created = (int64_t)seconds;
    if (strlen(id) < sizeof r->id) memcpy(r->id, id, strlen(id) + 1);
    *out = r;
    return 0;
}
