/* load_stream.h - one request of a load: a connection of its own, a streamed answer, and when its parts came. On libuv's
 * loop. Thread: the loop's. */
#ifndef CLI_LOAD_STREAM_H
#define CLI_LOAD_STREAM_H

#include <stdint.h>
#include <sys/socket.h>

#include "cli/http_client.h"
#include "cli/samples.h"

enum load_end {
    LOAD_PENDING,     /* it has not begun, or not ended */
    LOAD_COMPLETE,    /* status 200, and a finish reason or [DONE] before the end */
    LOAD_REFUSED,     /* another status */
    LOAD_FAILED,      /* an error in the stream */
    LOAD_CUT_OFF,     /* the answer ended early, or is no stream */
    LOAD_UNREACHABLE, /* no connection */
    LOAD_TIMED_OUT,
};

struct load_result {
    int64_t input, output; /* asked: tokens or words of the prompt, tokens of the answer */
    enum load_end end;
    int http_status;
    int64_t retry_after_s;                 /* of a refusal; -1: it does not say */
    int64_t num_prompt_tokens, num_tokens; /* the server's count; -1: it does not say */
    uint64_t due_ns, first_ns, last_ns;    /* first_ns, last_ns: when text came; 0: none has */
    uint64_t end_ns;
    struct samples gaps_ms; /* between chunks that bring text */
    char problem[256];      /* the server's sentence; "": none */
};

/* Where to; client's Unix socket, or address. */
struct load_target {
    const struct http_client *client;
    struct sockaddr_storage address;
    uint64_t timeout_ms;
};

struct load_stream;
typedef void load_on_end(void *context);

/* Sends body to path; result is the caller's until on_end, after which the stream is gone. NULL: no memory. */
struct load_stream *load_stream_begin(const struct load_target *target, const char *path, const char *body,
                                      struct load_result *result, load_on_end *on_end, void *context);

/* As it is: result stays LOAD_PENDING. */
void load_stream_stop(struct load_stream *s);

#endif
