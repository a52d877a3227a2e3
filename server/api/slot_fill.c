#include "server/api/slot_fill.h"

#include <string.h>

#include "base/check.h"
#include "base/digest.h"
#include "base/rng.h"

int32_t slot_fill_max_tokens(const struct server *server, const struct params *params,
                             int32_t num_prompt_tokens)
{
    int32_t room = server->facts->max_model_len - num_prompt_tokens;
    if (params->max_tokens != MAX_TOKENS_DEFAULT)
        return params->ends_with_context ? min_of(room, params->max_tokens) : params->max_tokens;
    if (params->kind == API_COMPLETIONS && !params->fills_context)
        return min_of(room, (int32_t)COMPLETION_MAX_TOKENS);
    int32_t from_model = server->facts->generation.max_new_tokens;
    bool use_model = from_model > 0 && strcmp(server->config->generation_config, "vllm") != 0;
    return use_model ? min_of(room, from_model) : room;
}

uint64_t slot_fill_seed(uint64_t request_seed, bool is_clients, int prompt_idx, int i)
{
    enum { STREAM_CHOICE = 0x63686f69 /* apart from what the sampler draws */ };
    uint64_t counter = (uint64_t)i | (is_clients ? 0 : (uint64_t)prompt_idx << 32);
    if (counter == 0) return request_seed;
    struct rng_block b = rng_philox(request_seed, counter, STREAM_CHOICE);
    return (uint64_t)b.word[0] << 32 | b.word[1];
}

void slot_fill_cache_salt(const struct cache_salt_parts *parts, uint8_t out[CACHE_SALT_BYTES])
{
    struct sha256_ctx hash;
    sha256_init(&hash);
    digest_add_text(&hash, parts->api_key ? parts->api_key : "");
    digest_add_bytes(&hash, parts->salt, parts->salt_bytes);
    digest_add_text(&hash, parts->lora ? parts->lora : "");
    sha256_digest(&hash, CACHE_SALT_BYTES, out);
}

static void fill_prediction(struct request_slots *slots, int32_t slot_idx, const struct token_list *from)
{
    request_slots_get(slots, slot_idx)->input.num_predicted = from->num_ids;
    if (from->num_ids == 0) return;
    memcpy(request_slots_predicted(slots, slot_idx), from->ids, (size_t)from->num_ids * sizeof *from->ids);
}

void slot_fill(const struct generation *g, struct choice *c, const struct prompts *prompts,
               int64_t num_tokens, const uint8_t cache_salt[CACHE_SALT_BYTES])
{
    const struct server *server = g->api->server;
    const struct prompt *prompt = &prompts->items[c->prompt_idx];
    const struct token_list *tokens = &prompt->tokens;
    struct request_slot_input *input = &request_slots_get(server->slots, c->slot_idx)->input;
    *input = *g->params.input;
    struct request_payload *payload = request_slots_payload(server->slots, c->slot_idx);
    memcpy(payload->logit_bias, g->params.payload->logit_bias,
           (size_t)input->num_logit_bias * sizeof(struct logit_bias));
    memcpy(payload->logprob_ids, g->params.payload->logprob_ids,
           (size_t)input->num_logprob_ids * sizeof(int32_t));
    memcpy(payload->row_logits, g->params.payload->row_logits,
           (size_t)input->num_row_logits * sizeof(int32_t));
    input->request_id = g->serial;
    input->arrival_ns = g->arrival_ns;
    input->deadline_ns = g->deadline_ns;
    tenant_fill(g, input);
    input->priority = g->params.priority;
    input->num_prompt_tokens = tokens->num_ids;
    input->num_tokens_beside = num_tokens - tokens->num_ids;
    input->second_begin = prompt->second_begin;
    c->max_tokens = input->max_tokens = slot_fill_max_tokens(server, &g->params, tokens->num_ids);
    /* The slot's arrays are no longer: prompts.c has refused what would not fit. */
    assert_always(tokens->num_ids >= 1 && input->max_tokens >= 0 &&
                  (int64_t)tokens->num_ids + input->max_tokens <= server->facts->max_model_len);
    input->min_tokens = min_of(input->min_tokens, input->max_tokens);
    input->sampling.seed =
        slot_fill_seed(g->answer.seed, g->params.has_seed, c->prompt_idx, c->index % g->params.n);
    memcpy(input->cache_salt, cache_salt, CACHE_SALT_BYTES);
    memcpy(request_slots_tokens(server->slots, c->slot_idx), tokens->ids,
           (size_t)tokens->num_ids * sizeof *tokens->ids);
    fill_prediction(server->slots, c->slot_idx, &prompts->prediction);
}
