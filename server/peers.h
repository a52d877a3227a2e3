/* peers.h - how many connections each client has open, and what is held for it. A client is an IPv4 address or an IPv6 network of 64
 * bits (ip_address.h). Thread: the loop's. */
#ifndef SERVER_PEERS_H
#define SERVER_PEERS_H

#include <stdint.h>

#include "base/status.h"
#include "server/ip_address.h"

struct peer {
    struct peer *next;
    struct ip_address client; /* ip_address_of_client */
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

/* Counts one more connection from address. NULL when there is no memory: it is not counted. */
struct peer *peers_add(struct peers *p, const struct ip_address *address);
/* One less; peer is gone with its last. NULL is fine. */
void peers_drop(struct peers *p, struct peer *peer);

#endif
