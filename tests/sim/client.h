/* client.h - what a client has of its answer. */
#ifndef TESTS_SIM_CLIENT_H
#define TESTS_SIM_CLIENT_H

#include "sim/request.h"

enum response_state { RESPONSE_HEAD, RESPONSE_BODY, RESPONSE_COMPLETE };

struct response {
    enum response_state state;
    int http_status;
    bool chunked, closes, has_retry_after;
    size_t content_bytes;
    struct bytes body; /* without chunk framing */
};

/* How the client's connection ended, if not after whole answers. */
enum parting { PARTING_NONE, PARTING_LEFT, PARTING_CUT };

void clients_init(void);
void clients_act(void);
uint64_t clients_next_ns(void);
bool clients_are_done(void);
int clients_num_admitted(void);
/* The server is gone: whoever waits is told, and each request must be accounted for. */
void clients_end(void);
/* It sits there reading nothing, or too little: the server may cut it off. */
bool client_is_slow(int client_idx);
/* It sends its requests byte by byte: the server may lose patience. */
bool client_drips(int client_idx);

#endif
