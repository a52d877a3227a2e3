/* connection_room.c - whose place, and whose memory, it is when there is no more.
 *
 * What a client keeps by being slow others may need: a body that is on its way, an answer that is not read. Such a connection of the
 * client that has most ends for one of a client that has less, and will have less even so. A client is an address; where those do
 * not count, as those of this machine by default, each connection is one. */
#include "base/check.h"
#include "server/connection.h"
#include "server/http_metrics.h"

enum {
    SLOW_MS = 1000, /* who makes another wait for longer is slow */
    ANY_KEY = -2,
};

/* A client on this machine may be a proxy, and many. */
static bool counts_peer(const struct connection *c)
{
    return c->peer && (c->listener->config->max_connections_per_address > 0 || !c->peer->is_loopback);
}

/* ---- slow ones ---- */

/* Since when the client makes us wait; UINT64_MAX: it does not. */
static uint64_t slow_since_ms(const struct connection *c)
{
    if (c->state == CONNECTION_BODY) return c->since_ms;
    bool answers = c->state == CONNECTION_RESPONDING || c->state == CONNECTION_FLUSHING;
    return answers && output_unsent_bytes(&c->output) > 0 ? c->unsent_since_ms : UINT64_MAX;
}

/* What a connection has of something, and its client. */
struct share {
    uint64_t own, of_client;
};

static struct share places_of(const struct connection *c)
{
    return (struct share){1, counts_peer(c) ? (uint64_t)c->peer->num_connections : 1};
}

static struct share bytes_of(const struct connection *c)
{
    return (struct share){c->num_buffered_bytes,
                          counts_peer(c) ? c->peer->num_buffered_bytes : c->num_buffered_bytes};
}

/* Of the client with the largest share, and more than n, the slow one with the largest of its own, of those the one that has been slow
 * for longest. key_idx: only what that key's requests hold. NULL: there is none. */
static struct connection *find_slow(const struct connection *c,
                                    struct share (*share_of)(const struct connection *), uint64_t n,
                                    int key_idx)
{
    const uint64_t now_ms = uv_now(c->listener->loop);
    struct connection *found = NULL;
    struct share most = {1, n + 1};
    uint64_t longest_ms = UINT64_MAX;
    for (struct connection *each = c->listener->others.first; each; each = each->next) {
        const uint64_t since_ms = slow_since_ms(each);
        if (each == c || since_ms > now_ms || now_ms - since_ms < SLOW_MS) continue;
        if (key_idx != ANY_KEY && each->api_key_idx != key_idx) continue;
        const struct share share = share_of(each);
        if (share.of_client < most.of_client) continue;
        if (share.of_client == most.of_client && share.own < most.own) continue;
        if (share.of_client == most.of_client && share.own == most.own && since_ms >= longest_ms) continue;
        found = each;
        most = share;
        longest_ms = since_ms;
    }
    return found;
}

static void end_slow(struct connection *c, const char *option)
{
    struct refusal why;
    if (c->state != CONNECTION_BODY) {
        connection_cut_off(c, "the client reads slowly, and another one needs the room");
        return;
    }
    http_metrics_count_displaced();
    (void)!refuse(&why, 408, "the request body comes slowly, and another client needs the room (%s)", option);
    connection_refuse(c, &why);
    connection_close(c);
}

/* ---- memory ---- */

static bool all_have_too_much(const struct connection *c, size_t n)
{
    const struct listener *l = c->listener;
    const uint64_t max_bytes = l->config->max_buffered_bytes;
    return n > max_bytes || l->num_buffered_bytes > max_bytes - n;
}

static bool key_has_too_much(const struct connection *c, size_t n)
{
    const struct listener *l = c->listener;
    const uint64_t max_bytes = l->config->max_buffered_bytes,
                   most = max_of(max_bytes - max_bytes / 4, 2 * l->config->max_body_bytes);
    return c->api_key_idx >= 0 && l->auth.num_keys > 1 && l->key_buffered_bytes[c->api_key_idx] + n > most;
}

static bool peer_has_too_much(const struct connection *c, size_t n)
{
    const struct config *config = c->listener->config;
    const uint64_t most = max_of(config->max_buffered_bytes / 2, 2 * config->max_body_bytes);
    return counts_peer(c) && c->peer->num_buffered_bytes + n > most;
}

bool connection_has_room(const struct connection *c, size_t n)
{
    return !all_have_too_much(c, n) && !key_has_too_much(c, n) && !peer_has_too_much(c, n);
}

bool connection_make_room(struct connection *c, size_t n)
{
    if (n > c->listener->config->max_buffered_bytes || peer_has_too_much(c, n)) return false;
    while (!connection_has_room(c, n)) {
        const int key_idx = key_has_too_much(c, n) ? c->api_key_idx : ANY_KEY;
        struct connection *slow = find_slow(c, bytes_of, bytes_of(c).of_client + n, key_idx);
        if (!slow) return false;
        end_slow(slow, "--max-buffered-bytes");
    }
    return true;
}

/* ---- places ---- */

static bool peer_has_too_many(const struct connection *c)
{
    const struct listener *l = c->listener;
    int64_t max = l->config->max_connections_per_address;
    if (!counts_peer(c)) return false;
    if (max == 0) max = max_of(l->max_connections / 2, 1);
    return c->peer->num_connections > max;
}

/* Closes the one that has waited longest, but not c; if peer is given, of that client's. */
static bool close_idle(struct connection *c, const struct peer *peer)
{
    struct connection *longest = c->listener->waiting.first;
    while (longest && (longest == c || (peer && longest->peer != peer))) longest = longest->next;
    if (!longest) return false;
    http_metrics_count_displaced();
    connection_close(longest);
    return true;
}

static void make_place(struct connection *c)
{
    if (close_idle(c, NULL)) return;
    struct connection *slow = find_slow(c, places_of, places_of(c).of_client, ANY_KEY);
    if (slow) end_slow(slow, "--max-connections");
}

bool connection_take_place(struct connection *c)
{
    struct listener *l = c->listener;
    struct refusal why;
    if (peer_has_too_many(c) && !close_idle(c, c->peer)) {
        http_metrics_count_overflow();
        (void)!refuse(&why, 429,
                      "this client's address has %d connections at work (--max-connections-per-address)",
                      c->peer->num_connections - 1);
        connection_refuse(c, &why);
        return false;
    }
    if (l->num_open > l->max_connections) make_place(c);
    c->in_reserve = l->num_open > l->max_connections;
    if (l->num_open <= l->max_connections + CONNECTION_RESERVE) return true;
    http_metrics_count_overflow();
    connection_close(c);
    return false;
}

bool connection_is_in_reserve(struct connection *c)
{
    c->in_reserve = c->in_reserve && c->listener->num_open > c->listener->max_connections;
    return c->in_reserve;
}
