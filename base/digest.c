#include "base/digest.h"

#include <string.h>

void digest_add_int(struct sha256_ctx *hash, int64_t value)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)((uint64_t)value >> (8 * i));
    sha256_update(hash, sizeof bytes, bytes);
}

void digest_add_real(struct sha256_ctx *hash, double value)
{
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    digest_add_int(hash, bits);
}

void digest_add_bytes(struct sha256_ctx *hash, const void *bytes, size_t n)
{
    digest_add_int(hash, (int64_t)n);
    if (n > 0) sha256_update(hash, n, bytes);
}

void digest_add_text(struct sha256_ctx *hash, const char *text)
{
    digest_add_bytes(hash, text, strlen(text));
}

struct digest_text digest_end(struct sha256_ctx *hash)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct digest_text out = {""};
    sha256_digest(hash, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++) {
        out.text[2 * i] = digits[digest[i] >> 4];
        out.text[2 * i + 1] = digits[digest[i] & 15];
    }
    return out;
}

struct digest_text digest_of(const void *bytes, size_t n)
{
    struct sha256_ctx hash;
    sha256_init(&hash);
    if (n > 0) sha256_update(&hash, n, bytes);
    return digest_end(&hash);
}
