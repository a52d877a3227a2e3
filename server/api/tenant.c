#include "server/api/tenant.h"

#include <nettle/sha2.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "config/api_keys.h"
#include "server/api/generation.h"
#include "server/ip_address.h"

/* Behind a NUL, which no header has, an address. */
uint64_t tenant_read(const struct exchange *x)
{
    const char *said = x->server->config->tenant_header ? exchange_header(x, "x-tenant") : NULL;
    struct sha256_ctx hash;
    uint64_t tenant;
    sha256_init(&hash);
    if (said) {
        sha256_update(&hash, strlen(said), (const uint8_t *)said);
    } else {
        struct ip_address address;
        exchange_get_client(x, &address);
        address = ip_address_of_client(&address);
        sha256_update(&hash, 1, (const uint8_t *)"");
        sha256_update(&hash, sizeof address, address.bytes);
    }
    sha256_digest(&hash, sizeof tenant, (uint8_t *)&tenant);
    return tenant;
}

enum { PLACES_PER_MANY = 16 }; /* of --max-num-seqs: more answers than that leave of them are many */
static const uint64_t BULK = 1ull << 63; /* of a tenant's id */

/* Vectors and scores have their places for a step each. What shall go before others of its client's is compared with them. */
static bool is_bulk(const struct generation *g, int32_t num_sequences)
{
    const struct server *server = g->api->server;
    bool is_many =
        num_sequences > 1 && (int64_t)num_sequences * PLACES_PER_MANY > server->facts->max_num_seqs;
    return g->params.priority >= 0 &&
           (g->params.in_background || (is_many && g->params.input->pooling == POOLING_NONE));
}

/* Of a tenant among those of all keys; not 0. */
static uint64_t id_of(const struct generation *g)
{
    enum { STREAM_TENANTS = 0x74656e61 };
    struct rng_block block = rng_philox(g->tenant, (uint64_t)(g->api_key_idx + 1), STREAM_TENANTS);
    return (((uint64_t)block.word[0] << 32 | block.word[1]) & ~BULK) | 1;
}

void tenant_fill(const struct generation *g, struct request_slot_input *out)
{
    const struct config *config = g->api->server->config;
    bool is_beside = !config->tenant_header && is_bulk(g, g->num_choices);
    uint64_t id = id_of(g);
    out->tenant_id = id | (is_beside ? BULK : 0);
    out->owner_id = g->api_key_idx < 0 ? id : (uint64_t)(g->api_key_idx + 1);
    out->weight = api_keys_terms(config, g->api_key_idx).weight;
    out->leaves_places = config->tenant_header || is_beside;
    out->owner_leaves_places = config->api_key.num_items > 1;
}

/* ---- what is in flight ---- */

static struct key_use *use_of(struct api *api, int api_key_idx)
{
    return &api->key_use[api_key_idx + 1];
}

static struct key_use sum_of(const struct generation *g)
{
    struct key_use sum = {.num_sequences = g->num_choices};
    for (int i = 0; i < g->num_choices; i++)
        sum.num_prompt_tokens += (uint64_t)g->choices[i].num_prompt_tokens;
    return sum;
}

void tenant_count(struct generation *g)
{
    struct key_use *use = use_of(g->api, g->api_key_idx), sum = sum_of(g);
    use->num_sequences += sum.num_sequences;
    use->num_prompt_tokens += sum.num_prompt_tokens;
    g->counts_for_key = true;
}

void tenant_forget(struct generation *g)
{
    if (!g->counts_for_key) return;
    struct key_use *use = use_of(g->api, g->api_key_idx), sum = sum_of(g);
    use->num_sequences -= sum.num_sequences;
    use->num_prompt_tokens -= sum.num_prompt_tokens;
}

/* ---- what may be ---- */

static int refuse(const struct generation *g, int64_t num_missing, const struct api_key_terms *terms,
                  const char *limit, struct api_error *err)
{
    struct api *api = g->api;
    struct key_use *use = use_of(api, g->api_key_idx);
    int seconds =
        admission_retry_after(&api->admission, api->server, g->api_key_idx, (int32_t)num_missing, &use->room);
    const char *who = g->api_key_idx < 0 ? "Whoever has no API key" : "The API key";
    api_error_set(
        err, 429, "rate_limit_error", "rate_limit_exceeded", NULL,
        "%s%s%s has %lld sequences with %llu prompt tokens in flight, and may have %s; try again in %d s",
        who, terms->name[0] ? " of " : "", terms->name, (long long)use->num_sequences,
        (unsigned long long)use->num_prompt_tokens, limit, seconds);
    err->retry_after_seconds = seconds;
    return STATUS_LIMIT;
}

/* A sequence too many alone, or a prompt too long alone, would be told to come back for ever. */
static int refuse_for_good(struct api_error *err, const char *what, int64_t most)
{
    return api_error_invalid(err, "invalid_value", NULL,
                             "the request has more %s than its API key may have in flight at all, %lld", what,
                             (long long)most);
}

static int check_quotas(const struct generation *g, int32_t num_sequences, uint64_t num_prompt_tokens,
                        const struct api_key_terms *terms, struct api_error *err)
{
    const struct key_use *use = use_of(g->api, g->api_key_idx);
    int64_t total = use->num_sequences + num_sequences;
    if (terms->max_seqs > 0 && num_sequences > terms->max_seqs)
        return refuse_for_good(err, "sequences", terms->max_seqs);
    if (terms->max_tokens > 0 && num_prompt_tokens > (uint64_t)terms->max_tokens)
        return refuse_for_good(err, "prompt tokens", terms->max_tokens);
    if (terms->max_seqs > 0 && total > terms->max_seqs)
        return refuse(g, total - terms->max_seqs, terms, "no more sequences (max-seqs)", err);
    if (terms->max_tokens > 0 && use->num_prompt_tokens + num_prompt_tokens > (uint64_t)terms->max_tokens)
        return refuse(g, 1, terms, "no more prompt tokens (max-tokens)", err);
    return 0;
}

static int check_share_of_places(const struct generation *g, int32_t num_sequences,
                                 const struct api_key_terms *terms, struct api_error *err)
{
    int64_t num_slots = request_slots_count(g->api->server->slots);
    int64_t share = max_of(num_slots - num_slots / 4, (int64_t)1);
    int64_t total = use_of(g->api, g->api_key_idx)->num_sequences + num_sequences;
    if (num_sequences > share || total <= share) return 0; /* where it fits it has come first */
    return refuse(g, total - share, terms, "three quarters of the server's places (--max-queued-requests)",
                  err);
}

/* Looks at each sequence only once so many prompts are in flight that they could be too many. */
static int check_share_of_tokens(const struct generation *g, uint64_t num_prompt_tokens,
                                 const struct api_key_terms *terms, struct api_error *err)
{
    uint64_t limit = admission_token_limit(g->api->server), share = limit - limit / 4;
    if (num_prompt_tokens > share) return 0;
    if (use_of(g->api, g->api_key_idx)->num_prompt_tokens + num_prompt_tokens <= share) return 0;
    if (admission_num_waiting_tokens(g->api->server, g->api_key_idx) + num_prompt_tokens <= share) return 0;
    return refuse(g, 1, terms, "three quarters of those that may wait (--max-queued-tokens)", err);
}

int tenant_check(const struct generation *g, int32_t num_sequences, uint64_t num_prompt_tokens,
                 struct api_error *err)
{
    const struct config *config = g->api->server->config;
    const struct api_key_terms terms = api_keys_terms(config, g->api_key_idx);
    bool leaves_some = config->api_key.num_items > 1 || is_bulk(g, num_sequences);
    int status = check_quotas(g, num_sequences, num_prompt_tokens, &terms, err);
    if (status == 0 && leaves_some) status = check_share_of_places(g, num_sequences, &terms, err);
    if (status == 0 && leaves_some) status = check_share_of_tokens(g, num_prompt_tokens, &terms, err);
    return status;
}
