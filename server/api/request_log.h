/* request_log.h - the one line that an admitted request leaves when it ends (--log-requests). Numbers and
 * names only: never a prompt, an answer or a key. Requests that are refused before admission leave the
 * transport's line instead. Thread: the loop's. */
#ifndef SERVER_API_REQUEST_LOG_H
#define SERVER_API_REQUEST_LOG_H

#include <stdbool.h>
#include <stdint.h>

struct request_record {
    const char *request_id, *path, *model;
    const char *trace_id;       /* traceparent's, or that of its span; NULL: none */
    const char *client;         /* its address */
    const char *key;            /* the API key's name; NULL: it has none */
    int http_status;            /* of the head that was sent; 499: the client left before one */
    const char *ignored_fields; /* of its body; NULL: none */
    const char *finish_reason;  /* "stop", "length", "client_gone", "engine_fault", "aborted" */
    bool stream;
    int32_t n;
    const char *constraint; /* of the answer's form; NULL: none */
    int64_t prompt_tokens, cached_tokens, completion_tokens, preemptions;
    uint64_t seed; /* of the first choice: the request again with this seed gives the same answer */
    uint64_t queue_ns, ttft_ns; /* 0: never got that far */
    uint64_t duration_ns;
};

void request_log_write(const struct request_record *r);

#endif
