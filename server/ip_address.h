/* ip_address.h - internet addresses and their networks, IPv4's among IPv6's as they are mapped there (::ffff:a.b.c.d). */
#ifndef SERVER_IP_ADDRESS_H
#define SERVER_IP_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sockaddr;

struct ip_address {
    uint8_t bytes[16]; /* all zero: none, as of a Unix socket */
};

/* The first num_bits bits of address, which has no others. */
struct ip_network {
    struct ip_address address;
    int num_bits;
};

/* False: it is no internet address. NULL: it is none. */
bool ip_address_of(const struct sockaddr *from, struct ip_address *out);
/* "192.0.2.1", "2001:db8::1": n bytes, and nothing beside. */
bool ip_address_parse(const char *text, size_t n, struct ip_address *out);
enum { IP_ADDRESS_CHARS = 46 }; /* with the NUL */
/* As it is written: IPv4's as such; "unix" for none. */
void ip_address_write(const struct ip_address *a, char text[IP_ADDRESS_CHARS]);
bool ip_address_is_loopback(const struct ip_address *a);
bool ip_address_is_same(const struct ip_address *a, const struct ip_address *b);
/* What one household or machine gets: an IPv4 address, an IPv6 network of 64 bits. */
struct ip_address ip_address_of_client(const struct ip_address *a);

/* An address, or one with "/" and the length of a prefix behind it: "10.0.0.0/8". Bits behind the prefix are zero. */
bool ip_network_parse(const char *text, size_t n, struct ip_network *out);
bool ip_network_has(const struct ip_network *network, const struct ip_address *a);

#endif
