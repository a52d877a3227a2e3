/* byte_queue.h - whole pieces of bytes from any threads to one that writes them: bounded, and nobody waits.
 *
 * Two halves of memory that change places: everybody fills one while the writer reads the other. A half that was
 * read is filled from its front again, so a quiet queue touches few pages of them. What finds the half full is
 * dropped and counted. Thread: any; take: the writer's. */
#ifndef BASE_BYTE_QUEUE_H
#define BASE_BYTE_QUEUE_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct byte_half {
    char *bytes; /* the owner's: [half_bytes] */
    size_t num_bytes;
    uint64_t num_missing; /* pieces that found it full */
};

struct byte_queue {
    pthread_mutex_t lock;
    pthread_cond_t not_empty;
    size_t half_bytes;
    struct byte_half halves[2], *filling;
    bool open;         /* somebody writes what is put */
    _Atomic bool idle; /* all that was put is written or given up */
};

/* For static memory, or what was zeroed; nothing is to be freed. */
#define BYTE_QUEUE_INIT(first_half, second_half, bytes_of_half)                                              \
    {                                                                                                        \
        .lock = PTHREAD_MUTEX_INITIALIZER, .not_empty = PTHREAD_COND_INITIALIZER,                            \
        .half_bytes = bytes_of_half, .halves = {{.bytes = first_half}, {.bytes = second_half}}, .idle = true \
    }

enum byte_queue_result { BYTE_QUEUE_KEPT, BYTE_QUEUE_FULL, BYTE_QUEUE_CLOSED };

/* The lock is held for a copy of n bytes. */
enum byte_queue_result byte_queue_put(struct byte_queue *q, const char *bytes, size_t n);

/* Before the writer begins, and when nothing more is to be taken: what is in it then still is read. */
void byte_queue_open(struct byte_queue *q);
void byte_queue_close(struct byte_queue *q);

/* The half that was filled, waiting for it; NULL: closed and empty. The one before counts as written. */
struct byte_half *byte_queue_take(struct byte_queue *q);

/* Also in a signal handler. False: something is left after so many ms. */
static inline bool byte_queue_wait(struct byte_queue *q, int ms)
{
    for (; ms > 0 && !atomic_load(&q->idle); ms--) poll(NULL, 0, 1);
    return ms > 0;
}

#endif
