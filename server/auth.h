/* auth.h - which --api-key a request came with.
 *
 * An entry may be "sha256:" and a key's digest in 64 small hexadecimal digits instead of the key.
 * Keys are kept and compared as SHA-256 digests, every key each time and in constant time, so that neither
 * the length of a key nor how much of it was guessed can be timed. Thread: the loop's. */
#ifndef SERVER_AUTH_H
#define SERVER_AUTH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "config/config.h"

enum { AUTH_DIGEST_BYTES = 32 };

struct auth {
    int num_keys; /* 0: everybody may */
    uint8_t (*digests)[AUTH_DIGEST_BYTES];
};

int auth_init(struct auth *a, const struct text_list *keys, struct error *err) must_check;
void auth_deinit(struct auth *a);

/* The two headers that may bring a key ("Authorization: Bearer K", "x-api-key: K"), each NULL if absent.
 * Returns the index of the key, or -1. */
int auth_find_key(const struct auth *a, const char *authorization, const char *x_api_key);

#endif
