/* refusal.h - why the transport does not serve a request: a status, and a sentence for the client that names
 * the limit and its option where there is one. Never holds bytes of the client's. */
#ifndef SERVER_REFUSAL_H
#define SERVER_REFUSAL_H

struct refusal {
    int http_status;
    char message[256];
};

/* Fills r and returns -1, so that a failing path reads `return refuse(r, 400, "...")`. */
int refuse(struct refusal *r, int http_status, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
