#include "server/api/tenant.h"

#include <nettle/sha2.h>
#include <string.h>

#include "base/check.h"
#include "config/api_keys.h"
#include "server/api/generation.h"

uint64_t tenant_id(const struct server *server, int api_key_idx, const char *x_tenant)
{
    uint64_t key = (uint64_t)(api_key_idx + 1);
    if (!server->config->tenant_header || !x_tenant) return key;
    struct sha256_ctx hash;
    uint64_t id;
    sha256_init(&hash);
    sha256_update(&hash, sizeof key, (const uint8_t *)&key);
    sha256_update(&hash, strlen(x_tenant), (const uint8_t *)x_tenant);
    sha256_digest(&hash, sizeof id, (uint8_t *)&id);
    return id;
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

static int refuse(struct api *api, int api_key_idx, int64_t num_missing, const struct api_key_terms *terms,
                  const char *limit, struct api_error *err)
{
    struct key_use *use = use_of(api, api_key_idx);
    int seconds =
        admission_retry_after(&api->admission, api->server, api_key_idx, (int32_t)num_missing, &use->room);
    api_error_set(
        err, 429, "rate_limit_error", "rate_limit_exceeded", NULL,
        "The API key%s%s has %lld sequences with %llu prompt tokens in flight, and may have %s; try "
        "again in %d s",
        terms->name[0] ? " of " : "", terms->name, (long long)use->num_sequences,
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

/* Looks at each sequence only once so many prompts are in flight that they could be too many. */
static int check_share_of_tokens(struct api *api, int api_key_idx, uint64_t num_prompt_tokens,
                                 const struct api_key_terms *terms, struct api_error *err)
{
    uint64_t limit = admission_token_limit(api->server), share = limit - limit / 4;
    if (num_prompt_tokens > share) return 0; /* where it fits it has come first */
    if (use_of(api, api_key_idx)->num_prompt_tokens + num_prompt_tokens <= share) return 0;
    if (admission_num_waiting_tokens(api->server, api_key_idx) + num_prompt_tokens <= share) return 0;
    return refuse(api, api_key_idx, 1, terms, "three quarters of those that may wait (--max-queued-tokens)",
                  err);
}

int tenant_check(struct api *api, int api_key_idx, int32_t num_sequences, uint64_t num_prompt_tokens,
                 struct api_error *err)
{
    const struct server *server = api->server;
    const struct api_key_terms terms = api_keys_terms(server->config, api_key_idx);
    const struct key_use *use = use_of(api, api_key_idx);
    int64_t num_slots = request_slots_count(server->slots);
    bool has_several = server->config->api_key.num_items > 1;
    int64_t share = has_several ? max_of(num_slots - num_slots / 4, (int64_t)1) : 0;
    if (terms.max_seqs > 0 && num_sequences > terms.max_seqs)
        return refuse_for_good(err, "sequences", terms.max_seqs);
    if (terms.max_tokens > 0 && num_prompt_tokens > (uint64_t)terms.max_tokens)
        return refuse_for_good(err, "prompt tokens", terms.max_tokens);
    int64_t total = use->num_sequences + num_sequences;
    if (terms.max_seqs > 0 && total > terms.max_seqs)
        return refuse(api, api_key_idx, total - terms.max_seqs, &terms, "no more sequences (max-seqs)", err);
    if (terms.max_tokens > 0 && use->num_prompt_tokens + num_prompt_tokens > (uint64_t)terms.max_tokens)
        return refuse(api, api_key_idx, 1, &terms, "no more prompt tokens (max-tokens)", err);
    if (share > 0 && num_sequences <= share && total > share)
        return refuse(api, api_key_idx, total - share, &terms,
                      "three quarters of the server's places (--max-queued-requests)", err);
    return has_several ? check_share_of_tokens(api, api_key_idx, num_prompt_tokens, &terms, err) : 0;
}
