#include "server/api/tenant.h"

#include <nettle/sha2.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"
#include "config/api_keys.h"
#include "server/api/generation.h"
#include "server/grammars.h"
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
    return tenant | 1;
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

static int refuse(const struct generation *g, const char *who, const struct key_use *has, int64_t num_missing,
                  const char *limit, struct api_error *err)
{
    struct api *api = g->api;
    int seconds = admission_retry_after(&api->admission, api->server, g->api_key_idx, (int32_t)num_missing,
                                        &use_of(api, g->api_key_idx)->room);
    api_error_set(
        err, 429, "rate_limit_error", "rate_limit_exceeded", NULL,
        "%s has %lld sequences with %llu prompt tokens in flight, and may have %s; try again in %d s", who,
        (long long)has->num_sequences, (unsigned long long)has->num_prompt_tokens, limit, seconds);
    err->retry_after_seconds = seconds;
    return STATUS_LIMIT;
}

static int refuse_key(const struct generation *g, int64_t num_missing, const struct api_key_terms *terms,
                      const char *limit, struct api_error *err)
{
    char who[128];
    snprintf(who, sizeof who, "%s%s%.80s", g->api_key_idx < 0 ? "Whoever has no API key" : "The API key",
             terms->name[0] ? " of " : "", terms->name);
    return refuse(g, who, use_of(g->api, g->api_key_idx), num_missing, limit, err);
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
        return refuse_key(g, total - terms->max_seqs, terms, "no more sequences (max-seqs)", err);
    if (terms->max_tokens > 0 && use->num_prompt_tokens + num_prompt_tokens > (uint64_t)terms->max_tokens)
        return refuse_key(g, 1, terms, "no more prompt tokens (max-tokens)", err);
    return 0;
}

static int64_t share_of(int64_t num)
{
    return max_of(num - num / 4, (int64_t)1);
}

static int check_share_of_places(const struct generation *g, int32_t num_sequences,
                                 const struct api_key_terms *terms, struct api_error *err)
{
    int64_t share = share_of(request_slots_count(g->api->server->slots));
    int64_t total = use_of(g->api, g->api_key_idx)->num_sequences + num_sequences;
    if (num_sequences > share || total <= share) return 0; /* where it fits it has come first */
    return refuse_key(g, total - share, terms,
                      "three quarters of the server's places (--max-queued-requests)", err);
}

/* Looks at each sequence only once so many prompts are in flight that they could be too many. */
static int check_share_of_tokens(const struct generation *g, uint64_t num_prompt_tokens,
                                 const struct api_key_terms *terms, struct api_error *err)
{
    uint64_t limit = admission_token_limit(g->api->server), share = limit - limit / 4;
    if (num_prompt_tokens > share) return 0;
    if (use_of(g->api, g->api_key_idx)->num_prompt_tokens + num_prompt_tokens <= share) return 0;
    if (admission_num_waiting_tokens(g->api->server, g->api_key_idx, 0) + num_prompt_tokens <= share)
        return 0;
    return refuse_key(g, 1, terms, "three quarters of those that may wait (--max-queued-tokens)", err);
}

/* ---- a tenant's part of it, while others of its key find no room ---- */

enum { ROOM_WANTED_S = 60 };

static struct key_use use_of_tenant(struct api *api, int api_key_idx, uint64_t tenant)
{
    struct key_use sum = {0};
    for (const struct generation *g = api->generations; g; g = g->next) {
        if (!g->counts_for_key || g->api_key_idx != api_key_idx || g->tenant != tenant) continue;
        struct key_use one = sum_of(g);
        sum.num_sequences += one.num_sequences;
        sum.num_prompt_tokens += one.num_prompt_tokens;
    }
    return sum;
}

struct part {
    int64_t num_sequences; /* in flight */
    uint64_t num_tokens;   /* of prompts that wait */
};

static struct part part_of_tenant(const struct generation *g, const struct api_key_terms *terms)
{
    const struct server *server = g->api->server;
    struct part of_key = {request_slots_count(server->slots), admission_token_limit(server)};
    if (server->config->api_key.num_items > 1)
        of_key = (struct part){share_of(of_key.num_sequences), of_key.num_tokens - of_key.num_tokens / 4};
    if (terms->max_seqs > 0) of_key.num_sequences = min_of(of_key.num_sequences, (int64_t)terms->max_seqs);
    return (struct part){share_of(of_key.num_sequences), of_key.num_tokens - of_key.num_tokens / 4};
}

void tenant_note_refused(struct api *api, int api_key_idx, uint64_t tenant)
{
    struct refused_tenant *last = use_of(api, api_key_idx)->refused;
    if (last[0].tenant != tenant) last[1] = last[0];
    last[0] = (struct refused_tenant){tenant, clock_monotonic_ns()};
}

static bool others_want_room(const struct generation *g)
{
    const struct refused_tenant *last = use_of(g->api, g->api_key_idx)->refused;
    uint64_t now_ns = clock_monotonic_ns();
    for (int i = 0; i < 2; i++)
        if (last[i].tenant > 0 && last[i].tenant != g->tenant &&
            now_ns - last[i].at_ns < ROOM_WANTED_S * 1000000000ull)
            return true;
    return false;
}

/* Looks at all that is in flight only once there is so much of it that it could be too much. */
static int check_part_of_tenant(const struct generation *g, int32_t num_sequences, uint64_t num_prompt_tokens,
                                const struct api_key_terms *terms, struct api_error *err)
{
    const struct part part = part_of_tenant(g, terms);
    const struct key_use *all = use_of(g->api, g->api_key_idx);
    bool fits = all->num_sequences + num_sequences <= part.num_sequences &&
                all->num_prompt_tokens + num_prompt_tokens <= part.num_tokens;
    bool is_too_large = num_sequences > part.num_sequences || num_prompt_tokens > part.num_tokens;
    if (fits || is_too_large || !others_want_room(g)) return 0;
    const struct key_use own = use_of_tenant(g->api, g->api_key_idx, g->tenant);
    int64_t total = own.num_sequences + num_sequences;
    if (total > part.num_sequences)
        return refuse(g, "The client", &own, total - part.num_sequences,
                      "three quarters of the places (--max-queued-requests) while others find none", err);
    uint64_t waiting = admission_num_waiting_tokens(g->api->server, g->api_key_idx, g->tenant);
    if (waiting + num_prompt_tokens <= part.num_tokens) return 0;
    return refuse(g, "The client", &own, 1,
                  "three quarters of those that may wait (--max-queued-tokens) while others find no room",
                  err);
}

/* ---- forms that are held ---- */

/* Of this one's key, or of its tenant alone. */
static size_t form_bytes(const struct generation *g, bool of_tenant)
{
    size_t sum = 0;
    for (const struct generation *other = g->api->generations; other; other = other->next) {
        if (other->api_key_idx != g->api_key_idx || (of_tenant && other->tenant != g->tenant)) continue;
        if (!other->params.form.grammar || !(other == g || other->counts_for_key)) continue;
        sum += grammars_part_bytes(g->api->server->grammars, other->params.form.grammar);
    }
    return sum;
}

/* Half of what may be held is a client's, three quarters are a key's. Looks at each only once so much is held. */
static int check_forms(const struct generation *g, struct api_error *err)
{
    const size_t half = GRAMMARS_HELD_BYTES_MAX / 2;
    const struct server *server = g->api->server;
    if (!g->params.form.grammar || grammars_held_bytes(server->grammars) <= half) return 0;
    const char *who = NULL;
    if (form_bytes(g, true) > half) who = "client";
    if (!who && server->config->api_key.num_items > 1 && form_bytes(g, false) > half + half / 2)
        who = "API key";
    if (!who) return 0;
    int status =
        api_error_set(err, 429, "rate_limit_error", "rate_limit_exceeded", NULL,
                      "The %s has answers in flight whose forms fill its part of the memory that there "
                      "is for all; try again in 1 s",
                      who);
    err->retry_after_seconds = 1;
    return status;
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
    if (status == 0) status = check_part_of_tenant(g, num_sequences, num_prompt_tokens, &terms, err);
    return status == 0 ? check_forms(g, err) : status;
}
