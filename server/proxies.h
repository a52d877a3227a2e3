/* proxies.h - proxies that are trusted to say whose a request is (--trusted-proxies).
 *
 * Each proxy adds to the end of X-Forwarded-For whom it has a request from. So the field is read from its end, and only as
 * far as who has added an entry is trusted: what stands before that is whatever the client wrote. (RFC 7239's Forwarded is
 * not read: a proxy that sets one of the two passes a client's other one on.) Read-only once made: any thread. */
#ifndef SERVER_PROXIES_H
#define SERVER_PROXIES_H

#include "config/text_list.h"
#include "server/http_request.h"
#include "server/ip_address.h"

struct proxies {
    int num_networks;
    struct ip_network *networks;
    bool unix_socket; /* whoever connects over one */
};

/* Of addresses, networks ("10.0.0.0/8") and the word unix. Zeroed it trusts nobody. */
int proxies_init(struct proxies *p, const struct text_list *texts, struct error *err) must_check;
void proxies_deinit(struct proxies *p);

/* The address is a proxy's; all zero: it came over a Unix socket. */
bool proxies_trust(const struct proxies *p, const struct ip_address *a);

/* Whose a request with these headers is that came from peer: the last one that no proxy is said of; peer itself where one of
 * those that were looked at is no address. */
struct ip_address proxies_find_client(const struct proxies *p, const struct ip_address *peer,
                                      const struct http_request_header *headers, int num_headers);

#endif
