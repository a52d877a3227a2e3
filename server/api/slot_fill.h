/* slot_fill.h - what a slot is told about its sequence. Thread: the loop's. */
#ifndef SERVER_API_SLOT_FILL_H
#define SERVER_API_SLOT_FILL_H

#include "server/api/generation.h"

/* How many tokens an answer to a prompt of this length may have. */
int32_t slot_fill_max_tokens(const struct server *server, const struct params *params,
                             int32_t num_prompt_tokens);

/* The seed of choice i of a prompt. Choice 0 of a seeded request draws with exactly the request's seed,
 * whatever stands beside it; the others, and the prompts of an unseeded request, each get their own. */
uint64_t slot_fill_seed(uint64_t request_seed, bool is_clients, int prompt_idx, int i);

/* What K and V that sequences share have in common beside their tokens. */
struct cache_salt_parts {
    const char *api_key; /* NULL: none */
    const char *salt;    /* the client's; NULL: none */
    size_t salt_bytes;
    const char *lora; /* which files the adapter is that they are computed with, as a digest; NULL: none */
};

/* SHA-256 over all, each with its length before it: no client can name another key's salt. */
void slot_fill_cache_salt(const struct cache_salt_parts *parts, uint8_t out[CACHE_SALT_BYTES]);

/* Fills in an acquired slot for a choice of its prompt. num_tokens: of all prompts. */
void slot_fill(const struct generation *g, struct choice *c, const struct prompts *prompts,
               int64_t num_tokens, const uint8_t cache_salt[CACHE_SALT_BYTES]);

#endif
