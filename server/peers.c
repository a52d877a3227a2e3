#include "server/peers.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"

enum { LOOPBACK_NET = 127 };

int peers_init(struct peers *p, int num_expected, uint64_t seed, struct error *err)
{
    *p = (struct peers){.num_buckets = 16, .seed = seed};
    while (p->num_buckets < (uint32_t)num_expected) p->num_buckets *= 2;
    p->buckets = calloc(p->num_buckets, sizeof *p->buckets);
    return p->buckets ? STATUS_OK : error_set(err, STATUS_NO_MEMORY, "out of memory");
}

void peers_deinit(struct peers *p)
{
    free(p->buckets);
}

static bool read_v4(struct peer *key, const void *bytes)
{
    uint32_t address;
    memcpy(&address, bytes, sizeof address);
    *key = (struct peer){.family = AF_INET, .network = ntohl(address)};
    key->is_loopback = key->network >> 24 == LOOPBACK_NET;
    return true;
}

static bool read_v6(struct peer *key, const struct in6_addr *address)
{
    if (IN6_IS_ADDR_V4MAPPED(address)) return read_v4(key, &address->s6_addr[12]);
    *key = (struct peer){.family = AF_INET6, .is_loopback = IN6_IS_ADDR_LOOPBACK(address)};
    memcpy(&key->network, address, sizeof key->network);
    return true;
}

static bool read_address(struct peer *key, const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) return read_v4(key, &((const struct sockaddr_in *)address)->sin_addr);
    if (address->sa_family == AF_INET6)
        return read_v6(key, &((const struct sockaddr_in6 *)address)->sin6_addr);
    return false;
}

static struct peer **bucket_of(struct peers *p, const struct peer *key)
{
    struct rng_block block = rng_philox(p->seed, key->network, (uint64_t)key->family);
    return &p->buckets[block.word[0] & (p->num_buckets - 1)];
}

struct peer *peers_add(struct peers *p, const struct sockaddr *address)
{
    struct peer key;
    if (!read_address(&key, address)) return NULL;
    struct peer **bucket = bucket_of(p, &key), *peer = *bucket;
    while (peer && (peer->network != key.network || peer->family != key.family)) peer = peer->next;
    if (!peer) {
        peer = malloc(sizeof *peer);
        if (!peer) return NULL;
        *peer = key;
        peer->next = *bucket;
        *bucket = peer;
    }
    peer->num_connections++;
    return peer;
}

void peers_drop(struct peers *p, struct peer *peer)
{
    if (!peer || --peer->num_connections > 0) return;
    struct peer **at = bucket_of(p, peer);
    while (*at != peer) at = &(*at)->next;
    *at = peer->next;
    free(peer);
}
