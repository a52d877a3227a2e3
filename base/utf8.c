#include "base/utf8.h"

int utf8_sequence_bytes(unsigned char lead)
{
    if (lead < 0x80) return 1;
    if (lead < 0xC2) return 0;
    if (lead < 0xE0) return 2;
    if (lead < 0xF0) return 3;
    return lead < 0xF5 ? 4 : 0;
}

bool utf8_may_follow(unsigned char first, int idx, unsigned char byte)
{
    unsigned char low = 0x80, high = 0xBF;
    if (idx == 1) {
        if (first == 0xE0) low = 0xA0;
        if (first == 0xED) high = 0x9F;
        if (first == 0xF0) low = 0x90;
        if (first == 0xF4) high = 0x8F;
    }
    return byte >= low && byte <= high;
}

int utf8_length(const unsigned char *p, const unsigned char *end)
{
    int n = utf8_sequence_bytes(p[0]);
    if (end - p < n) return 0;
    for (int i = 1; i < n; i++) {
        if (!utf8_may_follow(p[0], i, p[i])) return 0;
    }
    return n;
}

uint32_t utf8_decode(const unsigned char *p, const unsigned char *end, int *num_bytes)
{
    *num_bytes = 1;
    if (p[0] < 0x80) return p[0];
    int n = utf8_length(p, end);
    if (n == 0) return 0xFFFD;
    uint32_t code_point = p[0] & (0x7Fu >> n);
    for (int i = 1; i < n; i++) code_point = code_point << 6 | (p[i] & 0x3Fu);
    *num_bytes = n;
    return code_point;
}

int utf8_encode(uint32_t code_point, unsigned char *out)
{
    if (code_point < 0x80) {
        out[0] = (unsigned char)code_point;
        return 1;
    }
    int n = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--) {
        out[i] = (unsigned char)(0x80 | (code_point & 0x3F));
        code_point >>= 6;
    }
    out[0] = (unsigned char)((0xF00 >> n) | code_point);
    return n;
}

const unsigned char *utf8_previous(const unsigned char *begin, const unsigned char *p)
{
    const unsigned char *q = p - 1;
    while (q > begin && p - q < 4 && (*q & 0xC0) == 0x80) q--;
    int num_bytes;
    utf8_decode(q, p, &num_bytes);
    return q + num_bytes == p ? q : p - 1;
}

bool utf8_is_valid(const unsigned char *p, size_t num_bytes)
{
    const unsigned char *end = p + num_bytes;
    while (p < end) {
        int n = *p < 0x80 ? 1 : utf8_length(p, end);
        if (n == 0) return false;
        p += n;
    }
    return true;
}
