#include "base/byte_queue.h"

#include <string.h>

static struct byte_half *half_to_fill(struct byte_queue *q)
{
    if (!q->filling) q->filling = &q->halves[0];
    return q->filling;
}

static bool append(struct byte_queue *q, const char *bytes, size_t n)
{
    struct byte_half *half = half_to_fill(q);
    if (n > q->half_bytes - half->num_bytes) {
        half->num_missing++;
        return false;
    }
    memcpy(half->bytes + half->num_bytes, bytes, n);
    half->num_bytes += n;
    atomic_store(&q->idle, false);
    pthread_cond_signal(&q->not_empty);
    return true;
}

enum byte_queue_result byte_queue_put(struct byte_queue *q, const char *bytes, size_t n)
{
    pthread_mutex_lock(&q->lock);
    enum byte_queue_result result = !q->open              ? BYTE_QUEUE_CLOSED
                                    : append(q, bytes, n) ? BYTE_QUEUE_KEPT
                                                          : BYTE_QUEUE_FULL;
    pthread_mutex_unlock(&q->lock);
    return result;
}

static void set_open(struct byte_queue *q, bool open)
{
    pthread_mutex_lock(&q->lock);
    q->open = open;
    pthread_cond_signal(&q->not_empty);
    pthread_mutex_unlock(&q->lock);
}

void byte_queue_open(struct byte_queue *q)
{
    set_open(q, true);
}

void byte_queue_close(struct byte_queue *q)
{
    set_open(q, false);
}

struct byte_half *byte_queue_take(struct byte_queue *q)
{
    pthread_mutex_lock(&q->lock);
    struct byte_half *full = half_to_fill(q), *other = &q->halves[full == &q->halves[0]];
    other->num_bytes = 0;
    other->num_missing = 0;
    atomic_store(&q->idle, full->num_bytes == 0);
    while (full->num_bytes == 0 && q->open) pthread_cond_wait(&q->not_empty, &q->lock);
    if (full->num_bytes > 0)
        q->filling = other;
    else
        full = NULL;
    pthread_mutex_unlock(&q->lock);
    return full;
}
