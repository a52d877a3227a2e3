/* job.h - a request that a worker answers, out of its body or of what is stored: no sequence of the engine's.
 *
 * When the client leaves meanwhile the answer is dropped. What waits for its turn (work_queue.h) keeps its body in its exchange, a copy
 * is made when it begins. Owner: a job is its own from job_start on. Thread: the loop's, but run. */
#ifndef SERVER_API_JOB_H
#define SERVER_API_JOB_H

#include <cjson/cJSON.h>

#include "base/buffer.h"
#include "server/api/api_error.h"
#include "server/work_queue.h"

struct job {
    struct pool_work work; /* first */
    struct exchange *x;    /* NULL: the client is gone */
    struct server *server;
    int api_key_idx;
    const char *name; /* for loop_watch.h */
    /* On a worker: fills answer in, JSON, or error, which its status says. body: the request's, with numbers as they were
     * written; NULL: the route has none. */
    int (*run)(struct job *job, cJSON *body);
    /* On the loop, when it has succeeded: more to do, which may fill error in. True: job_end follows later. NULL: nothing is. */
    bool (*then)(struct job *job);
    bool has_body;
    char *body;       /* our copy, while the worker reads it */
    const char *text; /* body, or the exchange's while it waits */
    size_t text_bytes;
    struct buffer answer;
    struct api_error error;
    int status;
};

/* Zeros, but for what it is of, within num_bytes that begin with it; the caller fills in name, run and has_body. NULL: no memory, which x is told. */
void *job_create(struct exchange *x, size_t num_bytes, size_t answer_bytes_max);
/* is_long: work_queue.h. */
void job_start(struct job *job, bool is_long);
/* Answers and frees one of which then has said that this follows. */
void job_end(struct job *job);
/* Answers those that have not begun. */
void job_abort_waiting(struct server *server, const struct api_error *error);

#endif
