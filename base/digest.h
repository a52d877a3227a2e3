/* digest.h - SHA-256 over values one behind the other, so that no two lists of values look alike: each number has eight
 * bytes, the lower first, and each text its length before it. Thread: none of its own. */
#ifndef BASE_DIGEST_H
#define BASE_DIGEST_H

#include <nettle/sha2.h>
#include <stddef.h>
#include <stdint.h>

enum { DIGEST_TEXT_BYTES = 2 * SHA256_DIGEST_SIZE + 1 };

/* In small hexadecimal digits. */
struct digest_text {
    char text[DIGEST_TEXT_BYTES];
};

void digest_add_int(struct sha256_ctx *hash, int64_t value);
void digest_add_real(struct sha256_ctx *hash, double value);
void digest_add_bytes(struct sha256_ctx *hash, const void *bytes, size_t n); /* NULL when n is 0 */
void digest_add_text(struct sha256_ctx *hash, const char *text);             /* up to its NUL */

/* The hash begins anew. */
struct digest_text digest_end(struct sha256_ctx *hash);

struct digest_text digest_of(const void *bytes, size_t n);

#endif
