#include "server/auth.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <nettle/memops.h>
#include <nettle/sha2.h>

static void digest_of_text(const char *text, uint8_t digest[AUTH_DIGEST_BYTES])
{
    struct sha256_ctx sha;
    sha256_init(&sha);
    sha256_update(&sha, strlen(text), (const uint8_t *)text);
    sha256_digest(&sha, AUTH_DIGEST_BYTES, digest);
}

static int value_of_digit(char digit)
{
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    return -1;
}

/* "sha256:" and 64 digits stand for the key that has this digest: a file of such holds no secret. */
static bool read_digest(const char *entry, uint8_t digest[AUTH_DIGEST_BYTES])
{
    if (strncmp(entry, "sha256:", 7) != 0 || strlen(entry) != 7 + 2 * AUTH_DIGEST_BYTES) return false;
    for (int i = 0; i < AUTH_DIGEST_BYTES; i++) {
        int high = value_of_digit(entry[7 + 2 * i]), low = value_of_digit(entry[8 + 2 * i]);
        if (high < 0 || low < 0) return false;
        digest[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

int auth_init(struct auth *a, const struct text_list *keys, struct error *err)
{
    *a = (struct auth){0};
    if (keys->num_items == 0) return STATUS_OK;
    a->digests = calloc((size_t)keys->num_items, sizeof *a->digests);
    if (!a->digests) return error_set(err, STATUS_NO_MEMORY, "out of memory");
    for (int i = 0; i < keys->num_items; i++) {
        if (!keys->items[i][0]) {
            auth_deinit(a);
            return error_set(err, STATUS_INVALID, "--api-key: a key is empty");
        }
        if (!read_digest(keys->items[i], a->digests[i])) digest_of_text(keys->items[i], a->digests[i]);
    }
    a->num_keys = keys->num_items;
    return STATUS_OK;
}

void auth_deinit(struct auth *a)
{
    free(a->digests);
    *a = (struct auth){0};
}

/* The token of "Bearer token"; NULL when it is another scheme. */
static const char *bearer_token(const char *authorization)
{
    if (!authorization || strncasecmp(authorization, "bearer ", 7) != 0) return NULL;
    authorization += 7;
    while (*authorization == ' ') authorization++;
    return authorization;
}

int auth_find_key(const struct auth *a, const char *authorization, const char *x_api_key)
{
    const char *token = bearer_token(authorization);
    if (!token) token = x_api_key;
    if (!token) return -1;
    uint8_t digest[AUTH_DIGEST_BYTES];
    digest_of_text(token, digest);
    int found = -1;
    for (int i = 0; i < a->num_keys; i++) {
        int equal = memeql_sec(digest, a->digests[i], AUTH_DIGEST_BYTES);
        found = equal && found < 0 ? i : found;
    }
    return found;
}
