#include "server/work_queue.h"

#include "server/loop_watch.h"

static void begin_waiting(struct work_queue *q);

static void end(struct pool_work *w, bool has_run)
{
    struct work_queue *q = w->queue;
    q->num_long -= w->is_long;
    w->done(w, has_run); /* w may be gone */
    begin_waiting(q);
}

static void on_work(uv_work_t *uv)
{
    struct pool_work *w = uv->data;
    w->run(w);
}

static void on_work_done(uv_work_t *uv, int uv_status)
{
    loop_watch_enter("a worker's result");
    end(uv->data, uv_status == 0);
}

static bool begin(struct work_queue *q, struct pool_work *w)
{
    w->uv.data = w;
    bool begun = (!w->begin || w->begin(w)) && uv_queue_work(q->loop, &w->uv, on_work, on_work_done) == 0;
    if (begun) q->num_long += w->is_long;
    return begun;
}

static struct pool_work *next_waiting(const struct work_queue *q)
{
    for (struct pool_work *w = q->first; w; w = w->next)
        if (w->api_key_idx != q->last_key_idx) return w;
    return q->first;
}

static void begin_waiting(struct work_queue *q)
{
    struct pool_work *w;
    while (q->num_long < LONG_WORKS_MAX && (w = next_waiting(q))) {
        (void)work_queue_take_back(w);
        q->last_key_idx = w->api_key_idx;
        if (!begin(q, w)) w->done(w, false);
    }
}

bool work_queue_put(struct work_queue *q, uv_loop_t *loop, struct pool_work *w)
{
    struct pool_work **at = &q->first;
    q->loop = loop;
    w->queue = q;
    w->next = NULL;
    w->waits = w->is_long && q->num_long >= LONG_WORKS_MAX;
    if (!w->waits) return begin(q, w);
    while (*at) at = &(*at)->next;
    *at = w;
    return true;
}

bool work_queue_take_back(struct pool_work *w)
{
    if (!w->waits) return false;
    struct pool_work **at = &w->queue->first;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    w->waits = false;
    return true;
}
