#include "server/ip_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

enum { ADDRESS_BITS = 128, MAPPED_BITS = 96, CLIENT_BITS = 64, LOOPBACK_NET = 127 };

static const uint8_t mapped_prefix[MAPPED_BITS / 8] = {[10] = 0xff, [11] = 0xff};

static bool is_v4(const struct ip_address *a)
{
    return !memcmp(a->bytes, mapped_prefix, sizeof mapped_prefix);
}

static void set_v4(struct ip_address *out, const struct in_addr *from)
{
    memcpy(out->bytes, mapped_prefix, sizeof mapped_prefix);
    memcpy(out->bytes + sizeof mapped_prefix, from, sizeof *from);
}

bool ip_address_of(const struct sockaddr *from, struct ip_address *out)
{
    *out = (struct ip_address){0};
    if (from && from->sa_family == AF_INET) {
        set_v4(out, &((const struct sockaddr_in *)from)->sin_addr);
        return true;
    }
    if (!from || from->sa_family != AF_INET6) return false;
    memcpy(out->bytes, &((const struct sockaddr_in6 *)from)->sin6_addr, sizeof out->bytes);
    return true;
}

bool ip_address_parse(const char *text, size_t n, struct ip_address *out)
{
    char copy[INET6_ADDRSTRLEN];
    struct in_addr v4;
    if (n >= sizeof copy || memchr(text, '\0', n)) return false;
    memcpy(copy, text, n);
    copy[n] = '\0';
    if (inet_pton(AF_INET, copy, &v4) != 1) return inet_pton(AF_INET6, copy, out->bytes) == 1;
    set_v4(out, &v4);
    return true;
}

void ip_address_write(const struct ip_address *a, char text[IP_ADDRESS_CHARS])
{
    static const struct ip_address none;
    snprintf(text, IP_ADDRESS_CHARS, "unix");
    if (is_v4(a))
        inet_ntop(AF_INET, a->bytes + sizeof mapped_prefix, text, IP_ADDRESS_CHARS);
    else if (!ip_address_is_same(a, &none))
        inet_ntop(AF_INET6, a->bytes, text, IP_ADDRESS_CHARS);
}

bool ip_address_is_loopback(const struct ip_address *a)
{
    static const struct ip_address loopback = {.bytes = {[15] = 1}};
    return is_v4(a) ? a->bytes[MAPPED_BITS / 8] == LOOPBACK_NET : ip_address_is_same(a, &loopback);
}

bool ip_address_is_same(const struct ip_address *a, const struct ip_address *b)
{
    return !memcmp(a, b, sizeof *a);
}

/* Without the bits behind the first num_bits. */
static struct ip_address cut(const struct ip_address *a, int num_bits)
{
    struct ip_address out = *a;
    for (int i = num_bits; i < ADDRESS_BITS; i++) out.bytes[i / 8] &= (uint8_t) ~(0x80 >> i % 8);
    return out;
}

struct ip_address ip_address_of_client(const struct ip_address *a)
{
    return cut(a, is_v4(a) ? ADDRESS_BITS : CLIENT_BITS);
}

bool ip_network_has(const struct ip_network *network, const struct ip_address *a)
{
    int num_whole = network->num_bits / 8, num_rest = network->num_bits % 8;
    uint8_t mask = (uint8_t) ~(0xff >> num_rest);
    return !memcmp(network->address.bytes, a->bytes, (size_t)num_whole) &&
           (num_rest == 0 || network->address.bytes[num_whole] == (a->bytes[num_whole] & mask));
}

/* One to three digits. -1: no number, or a larger one than most. */
static int parse_length(const char *text, size_t n, int most)
{
    int length = 0;
    if (n < 1 || n > 3) return -1;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9') return -1;
        length = length * 10 + (text[i] - '0');
    }
    return length <= most ? length : -1;
}

bool ip_network_parse(const char *text, size_t n, struct ip_network *out)
{
    const char *slash = memchr(text, '/', n);
    size_t address_bytes = slash ? (size_t)(slash - text) : n;
    if (!ip_address_parse(text, address_bytes, &out->address)) return false;
    out->num_bits = ADDRESS_BITS;
    if (!slash) return true;
    int before = memchr(text, ':', address_bytes) ? 0 : MAPPED_BITS;
    int length = parse_length(slash + 1, n - address_bytes - 1, ADDRESS_BITS - before);
    if (length < 0) return false;
    out->num_bits = before + length;
    struct ip_address first = cut(&out->address, out->num_bits);
    return ip_address_is_same(&first, &out->address);
}
