#include "text/tokenizer/byte_map.h"

#include <stdint.h>

#include "text/tokenizer/unicode.h"

static bool stands_for_itself(uint32_t c)
{
    return (c >= 33 && c <= 126) || (c >= 161 && c <= 172) || (c >= 174 && c <= 255);
}

/* The others are, in order: 0-32, 127-160, 173. */
static int byte_of(uint32_t c)
{
    if (stands_for_itself(c)) return (int)c;
    if (c < 256 || c >= 256 + 68) return -1;
    int n = (int)c - 256;
    if (n <= 32) return n;
    return n < 67 ? n - 33 + 127 : 173;
}

bool byte_map_decode(const char *content, size_t num_bytes, char *out, size_t *out_bytes)
{
    const unsigned char *p = (const unsigned char *)content, *end = p + num_bytes;
    size_t n = 0;
    while (p < end) {
        int length;
        int byte = byte_of(utf8_decode(p, end, &length));
        if (byte < 0) return false;
        out[n++] = (char)byte;
        p += length;
    }
    *out_bytes = n;
    return true;
}
