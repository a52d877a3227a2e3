#include "server/peers.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"

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

static struct peer **bucket_of(struct peers *p, const struct ip_address *client)
{
    uint64_t halves[2];
    memcpy(halves, client, sizeof halves);
    struct rng_block block = rng_philox(p->seed, halves[0], halves[1]);
    return &p->buckets[block.word[0] & (p->num_buckets - 1)];
}

struct peer *peers_add(struct peers *p, const struct ip_address *address)
{
    struct ip_address client = ip_address_of_client(address);
    struct peer **bucket = bucket_of(p, &client), *peer = *bucket;
    while (peer && !ip_address_is_same(&peer->client, &client)) peer = peer->next;
    if (!peer) {
        peer = malloc(sizeof *peer);
        if (!peer) return NULL;
        *peer =
            (struct peer){.next = *bucket, .client = client, .is_loopback = ip_address_is_loopback(address)};
        *bucket = peer;
    }
    peer->num_connections++;
    return peer;
}

void peers_drop(struct peers *p, struct peer *peer)
{
    if (!peer || --peer->num_connections > 0) return;
    struct peer **at = bucket_of(p, &peer->client);
    while (*at != peer) at = &(*at)->next;
    *at = peer->next;
    free(peer);
}
