/* peers.h - how many connections each client has open, and what is held for it. A client is an IPv4 address or an IPv6 network of 64
 * bits, which is what one household or machine gets. Thread: the loop's. */
#ifndef SERVER_PEERS_H
#define SERVER_PEERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct sockaddr;

struct peer {
    struct peer *next;
    uint64_t network;
    int family;
    bool is_loopback;
    int num_connections;
    uint64_t num_buffered_bytes; /* of their input, bodies and answers */
};

struct peers {
    struct peer **buckets;
    uint32_t num_buckets;
    uint64_t seed; /* unknown to clients: they must not be able to fill one bucket */
};

/* num_expected: how many there may be without searches growing long. */
int peers_init(struct peers *p, int num_expected, uint64_t seed, struct error *err) must_check;
void peers_deinit(struct peers *p);

/* Counts one more connection from address. NULL when it is no internet address or there is no memory: such
 * are not counted. */
struct peer *peers_add(struct peers *p, const struct sockaddr *address);
/* One less; peer is gone with its last. NULL is fine. */
void peers_drop(struct peers *p, struct peer *peer);

#endif
